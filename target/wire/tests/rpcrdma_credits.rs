//! The credits that a requester counts, in either direction.

use millrace_wire::rpcrdma::CreditWindow;
use proptest::prelude::*;

/// A responder that calls its client: its window is of so many credits at most, and the client's
/// errors are no grants.
#[test]
fn rr1_cred_24_a_window_of_the_reverse_direction() {
    let mut window = CreditWindow::new(16);
    window.sent();
    assert_eq!((window.limit(), window.has_room()), (1, false));
    // Not sent after all, or answered by an error.
    window.returned();
    assert_eq!((window.limit(), window.in_flight()), (1, 0));
    assert!(!window.is_open());
    for (grant, limit) in [(5, 5), (u32::MAX, 16), (0, 1)] {
        window.sent();
        window.answered(grant, true);
        assert_eq!((window.limit(), window.has_room()), (limit, true));
        window.sent();
        window.returned();
        assert_eq!((window.limit(), window.in_flight()), (limit, 0));
    }
}

/// A requester that may owe an RDMA_DONE (RFC 5666 section 3.8) has a credit left for it, but
/// where there is only one, calls go first.
#[test]
fn rr1_cred_15_a_credit_is_kept_back_for_a_done() {
    let mut window = CreditWindow::new(3);
    assert_eq!((window.wish(), window.is_open()), (3, false));
    window.keep_room();
    assert!(window.has_room(), "the only one");
    window.sent();
    window.answered(3, true);
    assert!(window.is_open());
    for room in [true, true, false] {
        assert_eq!(window.has_room(), room);
        if room {
            window.sent();
        }
    }
    assert!(!window.has_room_for_done(), "none is owed");
    window.owe_done();
    window.owe_done();
    assert!(window.has_room_for_done());
    window.sent_done();
    assert!(!window.has_room_for_done(), "the other has to wait");
    assert!(!window.has_room());
    window.answered(3, true);
    assert!(window.has_room_for_done() && !window.has_room());
    window.sent_done();
    window.answered(3, true);
    assert!(window.has_room());
}

proptest! {
    /// Random grants and random answers: never more calls out than both sides agreed to, and
    /// never a window that stays closed.
    #[test]
    fn rr1_cred_02_the_window_model(
        wish in 1_u32..20,
        steps in prop::collection::vec((any::<bool>(), 0_u32..30, any::<bool>()), 1..200),
    ) {
        let mut window = CreditWindow::new(wish);
        let (mut out, mut grant, mut open) = (0_u32, 1_u32, false);
        for (send, credits, good) in steps {
            if send {
                let limit = grant.min(wish);
                let may = out < limit || (out == 0 && limit == 0);
                prop_assert_eq!(window.has_room(), may);
                if may {
                    window.sent();
                    out += 1;
                }
            } else if out > 0 {
                window.answered(credits, good);
                out -= 1;
                open |= good;
                if open {
                    grant = credits;
                }
            }
            prop_assert_eq!(window.in_flight(), out);
            prop_assert!(out > 0 || window.has_room(), "locked up");
        }
    }

    /// A window with RDMA_DONEs against a plain model of the rule: what is out never exceeds the
    /// last grant by sending, and something can always be done.
    #[test]
    fn rr1_cred_15_the_window_model_with_dones(
        wish in 1_u32..6,
        steps in prop::collection::vec((0_u8..4, 0_u32..6), 1..300),
    ) {
        let mut window = CreditWindow::new(wish);
        let (mut calls, mut owed, mut dones, mut limit) = (0_u32, 0_u32, 0_u32, 1_u32);
        for (step, grant) in steps {
            match step {
                0 if window.has_room() => {
                    window.sent();
                    calls += 1;
                    prop_assert!(calls + owed + dones <= limit, "no room for what is owed");
                }
                1 if window.has_room_for_done() => {
                    window.sent_done();
                    owed -= 1;
                    dones += 1;
                    prop_assert!(calls + dones <= limit, "too much is out");
                }
                2 | 3 if calls > 0 => {
                    window.answered(grant, true);
                    calls -= 1;
                    dones = 0;
                    limit = grant.min(wish);
                    if step == 3 {
                        window.keep_room();
                        window.owe_done();
                        owed += 1;
                    }
                }
                _ => {}
            }
            if calls == 0 {
                // Nobody will bring these credits back, and a grant of zero would be for ever.
                dones = 0;
                limit = limit.max(1);
            }
            prop_assert!(
                calls > 0 || window.has_room() || window.has_room_for_done(),
                "locked up"
            );
            prop_assert_eq!(window.in_flight(), calls);
        }
    }
}
