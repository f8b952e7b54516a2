//! The choice between direct transfers and those through the page cache.

use std::io;

use crate::posix::volume::Direct;

/// The end of offsets, as in the kernel.
pub(in crate::posix) const OFFSET_MAX: u64 = i64::MAX as u64;

/// Shorter transfers are not faster when direct; they are direct with `always` only.
pub(in crate::posix) const DIRECT_LEAST: u64 = 64 << 10;

/// The page size of the page cache: writes of both modes must not share a page.
const PAGE: u64 = 4096;

/// The alignment of direct transfers, at least a page.
pub(super) fn alignment(of_device: u32) -> u64 {
    u64::from(of_device).max(PAGE)
}

/// Whether the file system refuses direct transfers although the open succeeded.
pub(super) fn refuses_direct(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// Whether a write of this length is direct if it is aligned.
pub(super) fn write_is_direct(direct: Direct, length: u64) -> bool {
    match direct {
        Direct::Auto => length >= DIRECT_LEAST,
        Direct::Always => true,
        Direct::Never => false,
    }
}

/// A range of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    pub fn new(start: u64, length: u64) -> Self {
        Self {
            start,
            end: start + length,
        }
    }

    pub fn length(self) -> u64 {
        self.end - self.start
    }

    pub fn is_aligned(self, alignment: u64) -> bool {
        self.start.is_multiple_of(alignment) && self.end.is_multiple_of(alignment)
    }

    /// The aligned span around this one, cut at the end if longer than one buffer: a read may be
    /// short. None if the aligned end is beyond the end of offsets.
    pub fn around(self, alignment: u64) -> Option<Self> {
        let start = self.start - self.start % alignment;
        let end = self.end.next_multiple_of(alignment);
        let most = start + u64::from(super::TRANSFER_MAX);
        (end <= OFFSET_MAX).then_some(Self {
            start,
            end: end.min(most),
        })
    }

    /// The number of bytes of this span, from its start, among the first `read` bytes of `outer`.
    pub fn within(self, outer: Self, read: u64) -> u64 {
        (outer.start + read)
            .min(self.end)
            .saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_span_around_is_aligned_and_begins_with_what_is_wanted(
            start in prop_oneof![0..1_u64 << 40, OFFSET_MAX - (1 << 21)..OFFSET_MAX],
            length in 1..=u64::from(super::super::TRANSFER_MAX),
            power in 12..17_u32,
        ) {
            let wanted = Span::new(start, length.min(OFFSET_MAX - start));
            let alignment = 1 << power;
            let Some(around) = wanted.around(alignment) else {
                prop_assert!(wanted.end > OFFSET_MAX - alignment);
                return Ok(());
            };
            prop_assert_eq!(around.start % alignment, 0);
            prop_assert_eq!(around.length() % alignment, 0);
            prop_assert!(around.length() <= u64::from(super::super::TRANSFER_MAX));
            prop_assert!(around.start <= wanted.start && wanted.start < around.end);
            let cut = around.length() == u64::from(super::super::TRANSFER_MAX);
            prop_assert!(around.end >= wanted.end || cut);
            let all = wanted.within(around, around.length());
            prop_assert!(all > 0 && all <= wanted.length());
            prop_assert_eq!(all == wanted.length(), around.end >= wanted.end);
            prop_assert_eq!(wanted.within(around, wanted.start - around.start), 0);
        }
    }
}
