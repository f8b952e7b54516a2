//! Extents: pieces of a store's memory that hold bytes of a file.

use std::ops::Range;
use std::sync::Arc;

use millrace_mempool::Slice;

use super::space::{BLOCK, PAGE, Place, Purpose, Space};

/// Bytes of a file. The memory goes back to the store when the last one who holds the extent is
/// gone: the file's map, a staged write, or a slice that a fabric operation still works on.
pub(super) struct Extent {
    space: Arc<Space>,
    place: Place,
}

impl Extent {
    /// An extent of `size` bytes ([`PAGE`] or [`BLOCK`]) with arbitrary content, or none where the
    /// space does not suffice.
    pub fn allocate(space: &Arc<Space>, size: usize, purpose: Purpose) -> Option<Arc<Self>> {
        debug_assert!(size == PAGE || size == BLOCK);
        let place = if size == PAGE {
            space.take_page(purpose)
        } else {
            space.take_block(purpose)
        }?;
        Some(Arc::new(Self {
            space: space.clone(),
            place,
        }))
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.place.bytes()
    }

    /// Hands out slices of a range, in order.
    pub fn slices(self: &Arc<Self>, range: Range<usize>, mut sink: impl FnMut(Slice)) {
        let mut start = range.start;
        while start < range.end {
            let (arena, place) = self.space.locate(&self.place, start, range.end);
            start += place.len();
            sink(Slice::shared(arena, place, self.clone()));
        }
    }

    /// Fills a range with zeros.
    pub fn zero(self: &Arc<Self>, range: Range<usize>) {
        self.slices(range, |slice| slice.fill_zero(0..slice.len()));
    }

    /// Fills everything but a range with zeros.
    pub fn zero_outside(self: &Arc<Self>, range: Range<usize>) {
        self.zero(0..range.start);
        self.zero(range.end..self.size());
    }

    /// Copies a range from another extent to the same place in this one.
    pub fn copy_from(self: &Arc<Self>, other: &Arc<Self>, range: Range<usize>) {
        let mut start = range.start;
        self.slices(range, |slice| {
            let mut filled = 0;
            other.slices(start..start + slice.len(), |from| {
                slice.copy_from_slice(filled, &from, 0..from.len());
                filled += from.len();
            });
            start += slice.len();
        });
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.space.give_back(&self.place);
    }
}
