//! Blocks that are made of single pages, where no whole block was free.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, OnceLock};

use super::lock;
use super::space::PAGES_PER_BLOCK;

/// Blocks of the first chunk; each later chunk is twice as long, so that none ever moves.
const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = 24;

/// A table of such blocks. Blocks are found without a lock.
pub(super) struct ScatteredBlocks {
    chunks: [OnceLock<Box<[ScatteredBlock]>>; CHUNKS],
    unused: Mutex<UnusedNumbers>,
}

#[derive(Default)]
pub(super) struct ScatteredBlock {
    /// Holders, as with other extents.
    pub holders: AtomicU32,
    pages: [AtomicU32; PAGES_PER_BLOCK],
}

#[derive(Default)]
struct UnusedNumbers {
    returned: Vec<u32>,
    next: u32,
}

impl ScatteredBlock {
    /// The page at an index. Known to those who hold the block.
    pub fn page(&self, index: usize) -> u32 {
        self.pages[index].load(Relaxed)
    }
}

impl ScatteredBlocks {
    pub fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            unused: Mutex::default(),
        }
    }

    /// A block of these pages, with one holder.
    pub fn add(&self, pages: [u32; PAGES_PER_BLOCK], holders: u32) -> u32 {
        let number = {
            let mut unused = lock(&self.unused);
            unused.returned.pop().unwrap_or_else(|| {
                unused.next += 1;
                unused.next - 1
            })
        };
        let (chunk, index) = place(number);
        let blocks = self.chunks[chunk].get_or_init(|| {
            (0..FIRST_CHUNK << chunk)
                .map(|_| ScatteredBlock::default())
                .collect()
        });
        let block = &blocks[index];
        for (cell, page) in block.pages.iter().zip(pages) {
            cell.store(page, Relaxed);
        }
        block.holders.store(holders, Release);
        number
    }

    /// The block with a number that [`ScatteredBlocks::add`] returned.
    pub fn get(&self, number: u32) -> &ScatteredBlock {
        let (chunk, index) = place(number);
        &self.chunks[chunk].get().expect("a block that was added")[index]
    }

    /// Releases the number of a block without holders for reuse.
    pub fn remove(&self, number: u32) {
        lock(&self.unused).returned.push(number);
    }
}

/// The chunk of a number, and the index in it.
fn place(number: u32) -> (usize, usize) {
    let chunk = (number / FIRST_CHUNK + 1).ilog2();
    let first = FIRST_CHUNK * ((1 << chunk) - 1);
    (chunk as usize, (number - first) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_chunk_after_chunk_and_are_used_again() {
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        let blocks = ScatteredBlocks::new();
        for number in 0..200 {
            assert_eq!(blocks.add([number; PAGES_PER_BLOCK], 1), number);
        }
        assert_eq!(blocks.get(130).page(15), 130);
        blocks.remove(130);
        assert_eq!(blocks.add([7; PAGES_PER_BLOCK], 1), 130);
        assert_eq!(blocks.get(130).page(0), 7);
    }
}
