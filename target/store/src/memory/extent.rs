//! Extents: pieces of a store's memory that hold bytes of a file.

use std::num::NonZeroU64;

use super::space::{BLOCK, PAGE};

const KIND_BITS: u32 = 2;
const PAGE_KIND: u64 = 1;
const BLOCK_KIND: u64 = 2;
const SCATTERED_KIND: u64 = 3;

/// Names an extent. The space counts its holders: a file's map, a staged write, and slices that a
/// fabric operation still works on. The memory is free again when the last one has released it.
///
/// As a number it fits an atomic cell, so that a map can exchange extents without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent(NonZeroU64);

/// Where the bytes of an extent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentMemory {
    /// One page, by number.
    Page(u32),
    /// One block, by the number of its first page.
    Block(u32),
    /// Pages that together make a block, where no whole block was free: by number in their table.
    Scattered(u32),
}

impl Extent {
    pub fn new(memory: ExtentMemory) -> Self {
        let (kind, number) = match memory {
            ExtentMemory::Page(number) => (PAGE_KIND, number),
            ExtentMemory::Block(number) => (BLOCK_KIND, number),
            ExtentMemory::Scattered(number) => (SCATTERED_KIND, number),
        };
        let raw = u64::from(number) << KIND_BITS | kind;
        Self(NonZeroU64::new(raw).expect("no kind is zero"))
    }

    pub fn memory(self) -> ExtentMemory {
        let number = (self.0.get() >> KIND_BITS) as u32;
        match self.0.get() & ((1 << KIND_BITS) - 1) {
            PAGE_KIND => ExtentMemory::Page(number),
            BLOCK_KIND => ExtentMemory::Block(number),
            _ => ExtentMemory::Scattered(number),
        }
    }

    /// The extent that a cell names; zero names none.
    pub fn from_raw(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    pub fn raw(self) -> u64 {
        self.0.get()
    }

    /// Length in bytes.
    pub fn size(self) -> usize {
        match self.memory() {
            ExtentMemory::Page(_) => PAGE,
            ExtentMemory::Block(_) | ExtentMemory::Scattered(_) => BLOCK,
        }
    }
}
