//! A range of an arena, and raw copies to and from it.
//!
//! The bytes of an arena are shared memory: an adapter, the kernel or another thread may write them
//! at any time. So this module makes no references to them, only atomic copies, and the caller has
//! to check what it copied out. A [`Window`] holds its arena, so the memory stays mapped.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::{Arena, RegionId};
use crate::copies;

/// Keeps a window's memory mapped. Clones keep the same arena.
pub(crate) trait Keeper {
    fn arena(&self) -> &Arc<Arena>;
}

impl Keeper for Arc<Arena> {
    fn arena(&self) -> &Arc<Arena> {
        self
    }
}

impl Keeper for &Arc<Arena> {
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
        // SAFETY: within the arena's mapping or one past its end, as just checked.
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

    /// A part of a window that the keeper has itself.
    ///
    /// # Panics
    /// If the range is not inside that window, or that is of another arena than the keeper's.
    #[inline]
    pub fn of_keeper(
        keeper: K,
        range: Range<usize>,
        window: impl FnOnce(&K) -> &Window<Arc<Arena>>,
    ) -> Self {
        let whole = window(&keeper);
        assert!(
            range.start <= range.end && range.end <= whole.len,
            "inside the memory"
        );
        assert!(
            Arc::ptr_eq(&whole.keeper, keeper.arena()),
            "of the same arena"
        );
        // SAFETY: within the window or one past its end, as just checked.
        let start = unsafe { whole.start.add(range.start) };
        Self {
            keeper,
            start,
            len: range.len(),
        }
    }

    /// Shortens this window to a part of it.
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
        // SAFETY: see `at`.
        unsafe { copies::store(self.at(offset), bytes) };
    }

    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: see `at`.
        unsafe { copies::load(self.at(offset), bytes) };
    }

    pub fn copy_within_arenas(&self, offset: usize, from: &Self, at: usize, len: usize) {
        self.check(offset, len);
        from.check(at, len);
        // SAFETY: see `at`.
        unsafe { copies::copy(from.at(at), self.at(offset), len) };
    }

    pub fn fill(&self, range: Range<usize>, byte: u8) {
        let len = range
            .end
            .checked_sub(range.start)
            .expect("a range in order");
        self.check(range.start, len);
        // SAFETY: see `at`.
        unsafe { copies::fill(self.at(range.start), len, byte) };
    }

    /// The address of a byte, for the functions of [`copies`]. Their conditions hold by
    /// construction. The bytes are inside the window (`check`), whose arena is mapped while the
    /// keeper lives. Arenas begin and end at a page, so the whole words around the bytes are
    /// mapped. Only `Buffer` gives plain references to bytes of an arena, for whole pages that no
    /// other window covers while the buffer exists.
    fn at(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "inside the memory"
        );
    }
}
