//! Exclusive creation (RFC 1813 section 3.3.8): the verifier is kept in two times of the file.

use crate::{Attributes, SetAttributes, SetTime, Time};

/// The verifier of an exclusive creation as the seconds of two times, so that it survives a
/// restart. Every file system stores seconds of this range.
fn verifier_seconds(verifier: [u8; 8]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h] = verifier;
    [[a, b, c, d], [e, f, g, h]].map(|half| u64::from(u32::from_be_bytes(half) & 0x7fff_ffff))
}

/// Attributes of a file made with a verifier.
pub(crate) fn verifier_times(verifier: [u8; 8], set: &SetAttributes) -> SetAttributes {
    let [accessed, modified] = verifier_seconds(verifier).map(|seconds| {
        SetTime::To(Time {
            seconds,
            nanoseconds: 0,
        })
    });
    SetAttributes {
        accessed,
        modified,
        ..*set
    }
}

/// Whether a file is as an exclusive creation with this verifier left it.
pub(crate) fn carries(found: &Attributes, verifier: [u8; 8], set: &SetAttributes) -> bool {
    found.size == set.size.unwrap_or(0)
        && [found.accessed.seconds, found.modified.seconds] == verifier_seconds(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_are_times_that_every_file_system_keeps() {
        let verifier = [0xff, 0xff, 0xff, 0xff, 0x80, 0, 0, 5];
        assert_eq!(verifier_seconds(verifier), [0x7fff_ffff, 5]);
        assert_ne!(verifier_seconds([1; 8]), verifier_seconds([2; 8]));
    }
}
