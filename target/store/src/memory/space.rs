//! The registered memory of a store, and what of it is free.
//!
//! Memory is taken whole when the store starts and cut into blocks, and blocks into pages where
//! small extents want them. The free lists are split into shards, so that reactors that allocate
//! at the same time seldom meet. Accounting is exact: a byte count is reserved before memory is
//! taken from a list and given up after it is back, so who reserved always finds memory, if need
//! be scattered pages.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

use millrace_mempool::{Arena, ArenaError, Registry, Slice};

use super::lock;

/// Bytes of a small extent, and the unit of accounting.
pub(super) const PAGE: usize = 4096;
/// Bytes of a large extent.
pub(super) const BLOCK: usize = 64 * 1024;
pub(super) const PAGES_PER_BLOCK: usize = BLOCK / PAGE;

/// Blocks of one arena: 1 GiB, which every fabric can register in one piece.
const ARENA_BLOCKS: usize = 16 * 1024;
/// Fewer blocks than this are not worth a shard.
const SHARD_BLOCKS_MIN: usize = 64;
const SHARDS_MAX: usize = 16;
/// Blocks beyond the store's size, so that a full store can shrink while fabric operations still
/// hold what it lets go.
const SPARE_BLOCKS: usize = 16;

/// What memory is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// More data: within the limit.
    Grow,
    /// A copy of what is let go next: may go into the spare memory.
    Shrink,
}

/// Where the bytes of an extent live.
#[derive(Debug)]
pub(super) enum Place {
    /// One page, by number.
    Page(u32),
    /// One block, by number.
    Block(u32),
    /// Pages that together make a block, where no whole block was free.
    Scattered(Box<[u32; PAGES_PER_BLOCK]>),
}

impl Place {
    pub fn bytes(&self) -> usize {
        match self {
            Self::Page(_) => PAGE,
            Self::Block(_) | Self::Scattered(_) => BLOCK,
        }
    }
}

/// All memory of one store.
pub(super) struct Space {
    arenas: Box<[Arc<Arena>]>,
    /// A block of zeros, for holes; never written.
    zeros: Arc<Arena>,
    shards: Box<[Mutex<Shard>]>,
    shard_blocks: usize,
    total: u64,
    used: AtomicU64,
}

impl Space {
    /// Maps and registers `bytes` bytes, rounded down to whole pages but at least one.
    pub fn new(registry: &Registry, bytes: u64) -> Result<Self, ArenaError> {
        let total = (usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE).max(1) * PAGE;
        let pages = total / PAGE + SPARE_BLOCKS * PAGES_PER_BLOCK;
        let blocks = pages.div_ceil(PAGES_PER_BLOCK);
        let mut arenas = Vec::new();
        for first in (0..blocks).step_by(ARENA_BLOCKS) {
            arenas.push(registry.arena((blocks - first).min(ARENA_BLOCKS) * BLOCK)?);
        }
        let zeros = registry.arena(BLOCK)?;

        let shard_count = (blocks / SHARD_BLOCKS_MIN).clamp(1, SHARDS_MAX);
        let shard_blocks = blocks.div_ceil(shard_count);
        let shards = (0..blocks)
            .step_by(shard_blocks)
            .map(|first| first..(first + shard_blocks).min(blocks))
            .map(|range| Mutex::new(Shard::new(range, pages)))
            .collect();
        Ok(Self {
            arenas: arenas.into(),
            zeros,
            shards,
            shard_blocks,
            total: total as u64,
            used: AtomicU64::new(0),
        })
    }

    /// Where its memory is.
    pub fn arenas(&self) -> impl Iterator<Item = &Arc<Arena>> {
        self.arenas.iter().chain([&self.zeros])
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes taken, by files, reservations, and what operations in flight still hold. For a moment
    /// more than [`Space::total`] when a full store shrinks.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Takes a page. Its bytes are whatever they were.
    pub fn take_page(&self, purpose: Purpose) -> Option<Place> {
        self.reserve(PAGE, purpose)
            .then(|| Place::Page(self.find_page()))
    }

    /// Takes a block, or pages that make one. Its bytes are whatever they were.
    pub fn take_block(&self, purpose: Purpose) -> Option<Place> {
        if !self.reserve(BLOCK, purpose) {
            return None;
        }
        for shard in self.shards_from_home() {
            if let Some(block) = lock(shard).whole.pop() {
                return Some(Place::Block(block));
            }
        }
        Some(Place::Scattered(Box::new(std::array::from_fn(|_| {
            self.find_page()
        }))))
    }

    /// Puts memory back that nothing refers to any more.
    pub fn give_back(&self, place: &Place) {
        match place {
            Place::Page(page) => self.put_page(*page),
            Place::Block(block) => lock(self.shard_of(*block)).whole.push(*block),
            Place::Scattered(pages) => pages.iter().for_each(|page| self.put_page(*page)),
        }
        self.used.fetch_sub(place.bytes() as u64, AcqRel);
    }

    /// The contiguous memory from byte `start` of a place on, at most to byte `end`.
    pub fn locate(&self, place: &Place, start: usize, end: usize) -> (&Arc<Arena>, Range<usize>) {
        let (first_page, start, end) = match place {
            Place::Page(page) => (*page as usize, start, end),
            Place::Block(block) => (*block as usize * PAGES_PER_BLOCK, start, end),
            Place::Scattered(pages) => {
                let index = start / PAGE;
                let base = index * PAGE;
                (
                    pages[index] as usize,
                    start - base,
                    end.min(base + PAGE) - base,
                )
            }
        };
        let arena_pages = ARENA_BLOCKS * PAGES_PER_BLOCK;
        let base = first_page % arena_pages * PAGE;
        (
            &self.arenas[first_page / arena_pages],
            base + start..base + end,
        )
    }

    /// `length` zeros, at most a block of them.
    pub fn zeros(&self, length: usize) -> Slice {
        Slice::shared(&self.zeros, 0..length, self.zeros.clone())
    }

    fn reserve(&self, bytes: usize, purpose: Purpose) -> bool {
        let limit = match purpose {
            Purpose::Grow => self.total,
            Purpose::Shrink => self.total + (SPARE_BLOCKS * BLOCK) as u64,
        };
        let fits = |used: u64| {
            let used = used + bytes as u64;
            (used <= limit).then_some(used)
        };
        self.used.fetch_update(AcqRel, Acquire, fits).is_ok()
    }

    /// A page for a reservation that has been made. There is one, but it may have moved behind
    /// this search while another was taken ahead of it; then somebody else went on.
    fn find_page(&self) -> u32 {
        loop {
            for shard in self.shards_from_home() {
                if let Some(page) = lock(shard).take_page() {
                    return page;
                }
            }
            std::thread::yield_now();
        }
    }

    fn put_page(&self, page: u32) {
        lock(self.shard_of(page / PAGES_PER_BLOCK as u32)).put_page(page);
    }

    fn shard_of(&self, block: u32) -> &Mutex<Shard> {
        &self.shards[block as usize / self.shard_blocks]
    }

    /// All shards, beginning with the one that this thread prefers.
    fn shards_from_home(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        let home = thread_number() % self.shards.len();
        self.shards[home..].iter().chain(&self.shards[..home])
    }
}

/// Free memory of a range of blocks.
struct Shard {
    /// Blocks before this one belong to other shards.
    first: u32,
    /// Blocks that are free as a whole.
    whole: Vec<u32>,
    /// For each block that was cut, its free pages as a bit mask.
    masks: Box<[u16]>,
    /// Cut blocks that have a free page. Taken from the lowest, so that others become whole.
    partial: BTreeSet<u32>,
}

impl Shard {
    fn new(blocks: Range<usize>, pages: usize) -> Self {
        let mut shard = Self {
            first: blocks.start as u32,
            whole: Vec::with_capacity(blocks.len()),
            masks: vec![0; blocks.len()].into(),
            partial: BTreeSet::new(),
        };
        for block in blocks.clone().rev() {
            let pages = pages - block * PAGES_PER_BLOCK;
            if pages >= PAGES_PER_BLOCK {
                shard.whole.push(block as u32);
            } else {
                shard.masks[block - blocks.start] = (1 << pages) - 1;
                shard.partial.insert(block as u32);
            }
        }
        shard
    }

    fn take_page(&mut self) -> Option<u32> {
        let block = match self.partial.first() {
            Some(block) => *block,
            None => {
                let block = self.whole.pop()?;
                self.masks[(block - self.first) as usize] = u16::MAX;
                self.partial.insert(block);
                block
            }
        };
        let mask = &mut self.masks[(block - self.first) as usize];
        let page = mask.trailing_zeros();
        *mask &= *mask - 1;
        if *mask == 0 {
            self.partial.remove(&block);
        }
        Some(block * PAGES_PER_BLOCK as u32 + page)
    }

    fn put_page(&mut self, page: u32) {
        let (block, page) = (page / PAGES_PER_BLOCK as u32, page % PAGES_PER_BLOCK as u32);
        let mask = &mut self.masks[(block - self.first) as usize];
        debug_assert_eq!(*mask & 1 << page, 0, "a page is put back once");
        *mask |= 1 << page;
        if *mask == u16::MAX {
            *mask = 0;
            self.partial.remove(&block);
            self.whole.push(block);
        } else {
            self.partial.insert(block);
        }
    }
}

/// A small number for each thread, in the order in which they first ask.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let fresh = NEXT.fetch_add(1, Relaxed);
            number.set(Some(fresh));
            fresh
        })
    })
}

#[cfg(test)]
mod tests {
    use millrace_mempool::HugepagePolicy;

    use super::Purpose::{Grow, Shrink};
    use super::*;

    fn space(bytes: usize) -> Space {
        Space::new(&Registry::new(HugepagePolicy::Off), bytes as u64).unwrap()
    }

    #[test]
    fn every_page_is_given_out_once_and_comes_back() {
        let space = space(2 * BLOCK + 3 * PAGE + 17);
        assert_eq!(space.total(), (2 * BLOCK + 3 * PAGE) as u64);
        for _ in 0..2 {
            let places: Vec<_> = std::iter::from_fn(|| space.take_page(Grow)).collect();
            assert_eq!(places.len(), 2 * PAGES_PER_BLOCK + 3);
            let starts: BTreeSet<_> = places
                .iter()
                .map(|place| space.locate(place, 0, PAGE).1.start)
                .collect();
            assert_eq!(starts.len(), places.len());
            assert_eq!(space.used(), space.total());
            assert!(space.take_block(Grow).is_none());
            places.iter().for_each(|place| space.give_back(place));
            assert_eq!(space.used(), 0);
        }
        let blocks: Vec<_> = std::iter::from_fn(|| space.take_block(Grow)).collect();
        assert!(matches!(blocks[..], [Place::Block(_), Place::Block(_)]));
    }

    #[test]
    fn scattered_pages_make_a_block_when_none_is_whole() {
        let space = space(2 * BLOCK);
        let mut pages: Vec<_> = std::iter::from_fn(|| space.take_page(Shrink)).collect();
        assert_eq!(pages.len(), (2 + SPARE_BLOCKS) * PAGES_PER_BLOCK);
        let mut odd = false;
        pages.retain(|place| {
            odd = !odd;
            if odd {
                space.give_back(place);
            }
            !odd
        });
        let block = space.take_block(Shrink).expect("enough pages are free");
        assert!(matches!(block, Place::Scattered(_)));
        let mut covered = 0;
        while covered < BLOCK {
            let (_, range) = space.locate(&block, covered, BLOCK);
            assert_eq!(range.len(), PAGE);
            covered += range.len();
        }
        let (_, range) = space.locate(&block, PAGE + 10, PAGE + 20);
        assert_eq!(range.len(), 10);
        assert!(
            space.take_page(Grow).is_none(),
            "the spare memory is not for growing"
        );
        space.give_back(&block);
        pages.iter().for_each(|place| space.give_back(place));
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn threads_that_share_the_limit_all_find_what_they_reserved() {
        let space = space(SHARD_BLOCKS_MIN * 4 * BLOCK);
        std::thread::scope(|scope| {
            for turn in 0..4 {
                let space = &space;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for step in 0..4000_usize {
                        let place = if (step + turn) % 3 == 0 {
                            space.take_block(Grow)
                        } else {
                            space.take_page(Grow)
                        };
                        match place {
                            Some(place) => held.push(place),
                            None => held.drain(..).for_each(|place| space.give_back(&place)),
                        }
                    }
                    held.iter().for_each(|place| space.give_back(place));
                });
            }
        });
        assert_eq!(space.used(), 0);
    }
}
