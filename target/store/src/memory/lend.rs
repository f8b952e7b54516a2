//! Reference counts of slices of extents. A slice is in one page or one whole block.

#![allow(unsafe_code)]

use millrace_mempool::{Lender, SharedArena};

use super::extent::{Extent, ExtentMemory};
use super::space::Space;

// SAFETY: a space makes its arenas with itself, and replaces none ([`Space::arena_of`]).
unsafe impl Lender for Space {
    fn arena(&self, number: u64) -> &SharedArena {
        match Extent::from_raw(number).map(Extent::memory) {
            Some(ExtentMemory::Page(page) | ExtentMemory::Block(page)) => self.arena_of(page),
            _ => unreachable!("a slice is of one page or block"),
        }
    }

    fn retain(&self, number: u64) {
        if let Some(extent) = Extent::from_raw(number) {
            self.retain(extent);
        }
    }

    fn release(&self, number: u64) {
        if let Some(extent) = Extent::from_raw(number) {
            self.release(extent);
        }
    }
}
