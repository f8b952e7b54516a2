//! How many calls a client may have outstanding (RFC 5666 section 3.3).
//!
//! The policy is pure: what is known goes in, a grant and the number of receives that must be
//! posted before it is announced come out.

/// What a grant depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The client's wish: the credit word of its latest call.
    pub wish: u32,
    /// Most credits that the configuration grants to one connection, at least one.
    pub most: u32,
    /// Receives that are posted, and calls in service whose receive is posted again before
    /// their reply leaves.
    pub covered: u32,
}

/// Receives kept posted beyond the grant: clients that count one differently around an error or
/// a stray message must not lose their connection (conformance row OLD-11), as a Send that finds
/// no receive ends it.
pub const SPARE_RECEIVES: u32 = 2;

/// Receives posted at accept. The first call may come at once, and old clients send more than one
/// before the first reply (conformance row OLD-09).
pub const FIRST_RECEIVES: u32 = 1 + SPARE_RECEIVES;

/// Receives that should be posted, counting calls in service, to grant all that is wished for.
#[must_use]
pub fn receives_wanted(wish: u32, most: u32) -> u32 {
    wish.clamp(1, most.max(1)) + SPARE_RECEIVES
}

/// The credits to announce: at least one, and never more than receives cover.
#[must_use]
pub fn grant(inputs: Inputs) -> u32 {
    let covered = inputs.covered.saturating_sub(SPARE_RECEIVES);
    inputs.wish.min(inputs.most).min(covered).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rr1_cred_25_wishes_are_clamped() {
        let at = |wish| {
            grant(Inputs {
                wish,
                most: 128,
                covered: 1000,
            })
        };
        assert_eq!((at(0), at(1), at(128), at(u32::MAX)), (1, 1, 128, 128));
    }

    proptest! {
        #[test]
        fn rr1_cred_03_a_grant_is_never_zero(wish: u32, most: u32, covered: u32) {
            let granted = grant(Inputs { wish, most, covered });
            prop_assert!(granted >= 1);
        }

        #[test]
        fn rr1_cred_09_a_grant_never_exceeds_what_receives_cover(
            wish: u32, most in 1_u32..100_000, covered in FIRST_RECEIVES..100_000,
        ) {
            let granted = grant(Inputs { wish, most, covered });
            prop_assert!(granted + SPARE_RECEIVES <= covered);
            prop_assert!(granted <= most);
        }

        #[test]
        fn posting_what_is_wanted_grants_the_wish(wish in 1_u32..100_000, most in 1_u32..100_000) {
            let covered = receives_wanted(wish, most);
            prop_assert_eq!(grant(Inputs { wish, most, covered }), wish.min(most));
        }
    }
}
