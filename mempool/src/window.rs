//! A range of an arena, and raw copies to and from it.
//!
//! The bytes of an arena are shared memory in the full sense: an adapter, the kernel, or another
//! thread's store may write them at any time. Hence no references to them are made here, only
//! copies by pointer, and what is copied out means nothing before it is checked. A [`Window`]
//! holds its arena, so the memory is mapped as long as the window lives.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::{Arena, RegionId};

/// What keeps a window's memory mapped: clones keep the same arena, always.
pub(crate) trait Keeper {
    fn arena(&self) -> &Arc<Arena>;
}

impl Keeper for Arc<Arena> {
    fn arena(&self) -> &Arc<Arena> {
        self
    }
}

#[derive(Clone)]
pub(crate) struct Window<K> {
    keeper: K,
    start: NonNull<u8>,
    len: usize,
}

impl<K: Keeper> Window<K> {
    /// # Panics
    /// If the range is not inside the keeper's arena.
    pub fn new(keeper: K, range: Range<usize>) -> Self {
        let arena = keeper.arena();
        assert!(
            range.start <= range.end && range.end <= arena.len(),
            "inside the arena"
        );
        // SAFETY: the offset is within the arena's mapping, or one past its end.
        let start = unsafe { arena.base().add(range.start) };
        Self {
            keeper,
            start,
            len: range.len(),
        }
    }

    /// A part of this window, with a keeper of its own.
    ///
    /// # Panics
    /// If the range is not inside this window, or the keeper keeps another arena.
    pub fn part<L: Keeper>(&self, range: Range<usize>, keeper: L) -> Window<L> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "inside the memory"
        );
        assert!(
            Arc::ptr_eq(self.keeper.arena(), keeper.arena()),
            "of the same arena"
        );
        // SAFETY: within the window or one past its end, as just checked.
        let start = unsafe { self.start.add(range.start) };
        Window {
            keeper,
            start,
            len: range.len(),
        }
    }

    /// Leaves a part of this window only.
    ///
    /// # Panics
    /// If the range is not inside this window.
    #[inline]
    pub fn narrow(&mut self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "inside the memory"
        );
        // SAFETY: within the window or one past its end, as just checked.
        self.start = unsafe { self.start.add(range.start) };
        self.len = range.len();
    }

    pub fn keeper(&self) -> &K {
        &self.keeper
    }

    pub fn into_keeper(self) -> K {
        self.keeper
    }

    pub fn region(&self) -> RegionId {
        self.keeper.arena().id()
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub fn copy_from(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the destination is inside the window, whose arena we hold. `copy` allows
        // overlap. Nobody holds a reference to these bytes: exclusive views are given out by
        // `Buffer` alone, and no slice of a buffer exists while the buffer does.
        unsafe {
            self.start
                .add(offset)
                .copy_from(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: as in `copy_from`, the other way.
        unsafe {
            self.start
                .add(offset)
                .copy_to(NonNull::from(&mut *bytes).cast(), bytes.len());
        }
    }

    pub fn copy_within_arenas(&self, offset: usize, from: &Self, at: usize, len: usize) {
        self.check(offset, len);
        from.check(at, len);
        // SAFETY: both ranges are inside their windows, whose arenas we hold; overlap is allowed;
        // no references exist to either, as in `copy_from`.
        unsafe { from.start.add(at).copy_to(self.start.add(offset), len) };
    }

    pub fn fill(&self, range: Range<usize>, byte: u8) {
        let len = range
            .end
            .checked_sub(range.start)
            .expect("a range in order");
        self.check(range.start, len);
        // SAFETY: as in `copy_from`.
        unsafe { self.start.add(range.start).as_ptr().write_bytes(byte, len) }
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "inside the memory"
        );
    }
}
