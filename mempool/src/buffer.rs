//! Exclusive buffers, and the reference counts of pool memory.
//!
//! A [`BufferSlot`] is a fixed piece of an arena. While it is free, the pool holds its only `Rc`.
//! While it is lent, [`Lease`]s hold it, and dropping the last one returns it. A [`Buffer`] holds
//! the only lease of its slot, so its view of the bytes is exclusive by construction.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::account::MemoryAccount;
use crate::arena::Arena;
use crate::blocks::NONE;
use crate::plan::PARTS;
use crate::pool::Inner;
use crate::slice::Slice;
use crate::window::{Keeper, Window};
use crate::{Class, RegionId};

/// Freed memory is filled with this in debug builds.
const POISON: u8 = 0xdb;

pub(crate) struct BufferSlot {
    pub window: Window<Arc<Arena>>,
    pub class: Class,
    /// Empty once the pool was dropped: the slot is then dropped instead of returned, and its arena
    /// with the last slot.
    pub pool: Weak<Inner>,
    /// The account that it is charged to while it is lent.
    pub account: Cell<Option<Rc<MemoryAccount>>>,
    /// The index of its block.
    pub home: Cell<u32>,
    /// The index of the block of its parts, if it was ever split.
    pub split: Cell<u32>,
    /// Whether it was filled with [`POISON`] when it became free.
    pub is_poisoned: Cell<bool>,
}

impl BufferSlot {
    pub fn new(window: Window<Arc<Arena>>, class: Class, pool: Weak<Inner>) -> Self {
        Self {
            window,
            class,
            pool,
            account: Cell::default(),
            home: Cell::new(NONE),
            split: Cell::new(NONE),
            is_poisoned: Cell::new(false),
        }
    }

    /// Buffers of the next smaller class that cover it. They and this one must never be lent at the
    /// same time: [`crate::blocks`] owns this one while any of them can be.
    pub fn parts(&self) -> Vec<Rc<Self>> {
        let Some(class) = self.class.smaller() else {
            return Vec::new();
        };
        let part = |index: usize| {
            let start = index * class.size();
            let arena = Arc::clone(self.window.keeper());
            let window = self.window.part(start..start + class.size(), arena);
            let part = Self::new(window, class, Weak::clone(&self.pool));
            part.is_poisoned.set(self.is_poisoned.get());
            Rc::new(part)
        };
        (0..PARTS).rev().map(part).collect()
    }
}

impl BufferSlot {
    /// Fills memory that became free, in debug builds.
    pub fn poison(this: &mut Rc<Self>) {
        if cfg!(debug_assertions) {
            Self::free_bytes(this).fill(POISON);
            this.is_poisoned.set(true);
        }
    }

    /// Panics in debug builds if free memory was written to.
    pub fn check_poison(this: &mut Rc<Self>) {
        if cfg!(debug_assertions) && this.is_poisoned.get() {
            let pages = Self::free_bytes(this).chunks(4096);
            for page in pages {
                assert!(page == [POISON; 4096], "free memory was written to");
            }
        }
    }

    /// The bytes of a slot that is not lent.
    fn free_bytes(this: &mut Rc<Self>) -> &mut [u8] {
        let window = &Rc::get_mut(this)
            .expect("a free slot has one holder")
            .window;
        // SAFETY: the window is mapped and was initialised by the kernel. The slot's only holder is
        // borrowed exclusively, so there is neither a buffer nor a slice of it, and [`blocks`]
        // lends no slot that shares its memory while this one is free or on its way back.
        unsafe { std::slice::from_raw_parts_mut(window.start().as_ptr(), window.len()) }
    }
}

/// One holder of a lent slot. The option is empty only while the last holder is being dropped.
#[derive(Clone)]
pub(crate) struct Lease(Option<Rc<BufferSlot>>);

impl Lease {
    /// Lends a slot: `slot` is its only `Rc`.
    pub fn new(slot: Rc<BufferSlot>) -> Self {
        debug_assert_eq!(
            Rc::strong_count(&slot),
            1,
            "a free slot has one holder, the pool"
        );
        Self(Some(slot))
    }

    pub fn window(&self) -> &Window<Arc<Arena>> {
        &self.slot().window
    }

    /// Whether this is the only lease of the slot.
    pub fn is_sole(&self) -> bool {
        Rc::strong_count(self.slot()) == 1
    }

    fn slot(&self) -> &Rc<BufferSlot> {
        self.0.as_ref().expect("emptied by drop alone")
    }
}

impl Keeper for Lease {
    fn arena(&self) -> &Arc<Arena> {
        self.window().keeper()
    }
}

impl Drop for Lease {
    /// The last one returns the slot; the others only stop holding it.
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.0.take()
            && Rc::strong_count(&slot) == 1
        {
            give_back(slot);
        }
    }
}

fn give_back(slot: Rc<BufferSlot>) {
    if let Some(pool) = slot.pool.upgrade() {
        pool.give_back(slot);
    }
}

/// A pool buffer with exclusive access: plain bytes, of the size of its [`Class`].
///
/// The content is what the last user left (zeros at first); in debug builds, a poison pattern.
/// Dropping the buffer returns it to its pool.
///
/// Its first bytes may be skipped ([`Buffer::indent`]): all other functions then see a shorter
/// buffer that begins behind them.
pub struct Buffer {
    lease: Lease,
    indent: usize,
}

impl Buffer {
    /// Wraps the only lease of a slot.
    pub(crate) fn new(lease: Lease) -> Self {
        assert!(lease.is_sole(), "a buffer is exclusive");
        Self { lease, indent: 0 }
    }

    /// Bytes of the buffer, without those that are skipped.
    pub fn capacity(&self) -> usize {
        self.lease.window().len() - self.indent
    }

    /// Skips the first `bytes` bytes, instead of those skipped before, so that the front of the
    /// buffer lies `bytes` behind a boundary of its class's size. Zero skips none; a number beyond
    /// the size skips all.
    pub fn indent(&mut self, bytes: usize) {
        self.indent = bytes.min(self.lease.window().len());
    }

    /// The size class.
    pub fn class(&self) -> Class {
        self.lease.slot().class
    }

    /// The arena that it was cut from.
    pub fn region(&self) -> RegionId {
        self.lease.window().region()
    }

    /// Records the account that it is charged to until it is back in its pool.
    pub(crate) fn charge(&self, account: Rc<MemoryAccount>) {
        self.lease.slot().account.set(Some(account));
    }

    /// Whether it is charged to an account.
    pub(crate) fn is_charged(&self) -> bool {
        let account = &self.lease.slot().account;
        let known = account.take();
        let is_charged = known.is_some();
        account.set(known);
        is_charged
    }

    /// Gives up the exclusive view for a registered range that fabric operations take.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    pub fn into_slice(self, range: Range<usize>) -> Slice {
        Slice::of_pool(
            self.lease,
            range.start + self.indent..range.end + self.indent,
        )
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let window = self.lease.window();
        // SAFETY: the window is mapped and was initialised by the kernel. This buffer holds the
        // only lease of the slot, so there is no slice of it, and thus no operation that writes
        // it; pools keep their arenas to themselves, so no shared slice covers it either.
        let whole = unsafe { std::slice::from_raw_parts(window.start().as_ptr(), window.len()) };
        &whole[self.indent..]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let window = self.lease.window();
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        let whole =
            unsafe { std::slice::from_raw_parts_mut(window.start().as_ptr(), window.len()) };
        &mut whole[self.indent..]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Buffer")
            .field("region", &self.region())
            .field("class", &self.class())
            .finish_non_exhaustive()
    }
}
