//! The registered memory of a store: free memory, reference counts and accounting.
//!
//! All memory is allocated when the store starts and divided into blocks. Blocks are divided into
//! pages for small extents. Taking, lending and returning memory take no lock and allocate nothing.
//! Accounting is exact: bytes are reserved before memory is taken, and released after it is
//! returned. So a reservation always finds memory, if need be scattered pages.
//!
//! There are two kinds of reservations. One that makes the store grow (data in holes, names, texts
//! of links) has to fit into the store's size. One that replaces memory which the same operation
//! releases may exceed the size, into spare memory. So a full store can still be overwritten and
//! shrunk.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use millrace_mempool::{Arena, ArenaError, Registry, SharedArena, Slice};

use super::attributes::pause;
use super::extent::{Extent, ExtentMemory};
use super::free::FreePages;
use super::scattered::ScatteredBlocks;
use crate::{Result, StoreError};

/// Bytes of a small extent, and the unit of accounting for data.
pub(super) const PAGE: usize = 4096;
/// Bytes of a large extent.
pub(super) const BLOCK: usize = 64 * 1024;
pub(super) const PAGES_PER_BLOCK: usize = BLOCK / PAGE;

/// Blocks of one arena: 1 GiB, which every fabric can register in one piece.
const ARENA_BLOCKS: usize = 16 * 1024;
/// Blocks beyond the store's size: one in 64, but enough for a WRITE of 1 MiB at any offset while
/// another one is under way, and at most 64 MiB.
const SPARE_SHARE: usize = 64;
const SPARE_BLOCKS_MIN: usize = 36;
const SPARE_BLOCKS_MAX: usize = 1024;

/// Flags of a count of holders. An extent without holders is free.
const WRITING: u32 = 1 << 31;
/// The pages of a block stand behind the count, not one page.
const WHOLE: u32 = 1 << 30;
const HOLDERS: u32 = WHOLE - 1;

/// The arenas that a store of so many bytes maps: how many, and of how many bytes each.
pub(super) fn arenas_of(bytes: u64) -> [(u64, u64); 3] {
    let total = (bytes / PAGE as u64).max(1) * PAGE as u64;
    let spare = spare_blocks(usize::try_from(total).unwrap_or(usize::MAX));
    let pages = total / PAGE as u64 + (spare * PAGES_PER_BLOCK) as u64;
    let blocks = pages.div_ceil(PAGES_PER_BLOCK as u64);
    let whole = ARENA_BLOCKS as u64;
    let rest = blocks % whole;
    [
        (blocks / whole, whole * BLOCK as u64),
        (rest.min(1), rest * BLOCK as u64),
        // The zeros.
        (1, BLOCK as u64),
    ]
}

/// All memory of one store.
pub(super) struct Space {
    arenas: Box<[SharedArena]>,
    /// A block of zeros, for holes; never written.
    zeros: SharedArena,
    free: FreePages,
    /// Holders of each page, or of the block that begins with it.
    holders: Box<[AtomicU32]>,
    scattered: ScatteredBlocks,
    total: u64,
    /// Bytes beyond `total`.
    spare: u64,
    used: AtomicU64,
    /// Those of `used` that are on the heap.
    heap: AtomicU64,
}

impl Space {
    /// Maps and registers `bytes` bytes, rounded down to whole pages but at least one, and spare
    /// memory.
    pub fn new(registry: &Registry, bytes: u64) -> std::result::Result<Self, ArenaError> {
        let total = whole_pages(bytes);
        let spare = spare_blocks(total);
        let pages = total / PAGE + spare * PAGES_PER_BLOCK;
        let blocks = pages.div_ceil(PAGES_PER_BLOCK);
        let mut arenas = Vec::new();
        for first in (0..blocks).step_by(ARENA_BLOCKS) {
            let bytes = (blocks - first).min(ARENA_BLOCKS) * BLOCK;
            arenas.push(registry.arena(bytes)?.share());
        }
        Ok(Self {
            arenas: arenas.into(),
            zeros: registry.arena(BLOCK)?.share(),
            free: FreePages::new(pages),
            holders: (0..pages).map(|_| AtomicU32::new(0)).collect(),
            scattered: ScatteredBlocks::new(),
            total: total as u64,
            spare: (spare * BLOCK) as u64,
            used: AtomicU64::new(0),
            heap: AtomicU64::new(0),
        })
    }

    /// Where its memory is.
    pub fn arenas(&self) -> impl Iterator<Item = &Arc<Arena>> {
        let all = self.arenas.iter().chain([&self.zeros]);
        all.map(SharedArena::arena)
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes taken: by files, names, reservations, and what operations in flight still hold. For a
    /// moment more than [`Space::total`] when a full store is overwritten or shrinks.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Counts `growing` bytes by which the store grows, and `replacing` bytes for what replaces
    /// something else.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] where the store would grow beyond its size, [`StoreError::Delay`]
    /// where only operations in flight prevent it.
    pub fn reserve(&self, growing: u64, replacing: u64) -> Result<()> {
        let fits = |used: u64| {
            let grown = used.checked_add(growing)?;
            let after = grown.checked_add(replacing)?;
            let fits = (growing == 0 || grown <= self.total) && after <= self.total + self.spare;
            fits.then_some(after)
        };
        match self.used.fetch_update(AcqRel, Acquire, fits) {
            Ok(_) => Ok(()),
            Err(_) if growing == 0 => Err(StoreError::Delay),
            Err(_) => Err(StoreError::NoSpace),
        }
    }

    /// Takes back a [`Space::reserve`].
    pub fn unreserve(&self, bytes: u64) {
        self.used.fetch_sub(bytes, AcqRel);
    }

    /// Counts bytes that names and objects take from the heap.
    pub fn charge_heap(&self, bytes: u64) -> Result<()> {
        self.reserve(bytes, 0)?;
        self.heap.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Takes back a [`Space::charge_heap`].
    pub fn discharge_heap(&self, bytes: u64) {
        self.heap.fetch_sub(bytes, Relaxed);
        self.unreserve(bytes);
    }

    /// Bytes that names and objects take from the heap.
    pub fn heap(&self) -> u64 {
        self.heap.load(Relaxed)
    }

    /// Whether memory that was reserved to replace other memory may stay allocated although nothing
    /// was replaced: all memory in use is then within the store's size.
    pub fn may_keep_replacing(&self) -> bool {
        self.used.load(Acquire) <= self.total
    }

    /// Takes an extent that has been reserved, with one holder. Its bytes are not cleared.
    pub fn take(&self, size: usize) -> Extent {
        if size == PAGE {
            let page = self.find_page();
            self.holders[page as usize].store(1, Release);
            return Extent::new(ExtentMemory::Page(page));
        }
        debug_assert_eq!(size, BLOCK);
        if let Some(first) = self.free.take_block() {
            self.holders[first as usize].store(WHOLE | 1, Release);
            return Extent::new(ExtentMemory::Block(first));
        }
        let pages = std::array::from_fn(|_| {
            let page = self.find_page();
            self.holders[page as usize].store(1, Release);
            page
        });
        Extent::new(ExtentMemory::Scattered(
            self.scattered.add(pages, WHOLE | 1),
        ))
    }

    /// The extent of a cell, with the caller as an additional holder.
    fn hold(&self, cell: &AtomicU64) -> Option<Extent> {
        let mut spins = 0;
        loop {
            let extent = Extent::from_raw(cell.load(Acquire))?;
            if self.try_retain(extent) {
                // If the cell still names the extent, its own holder existed when this one was
                // added. Otherwise the memory may have been reused.
                if cell.load(Acquire) == extent.raw() {
                    return Some(extent);
                }
                self.release(extent);
            }
            pause(&mut spins);
        }
    }

    /// Adds a holder to an extent that may be gone, or that is being written just now.
    fn try_retain(&self, extent: Extent) -> bool {
        let whole = match extent.memory() {
            ExtentMemory::Page(_) => 0,
            ExtentMemory::Block(_) | ExtentMemory::Scattered(_) => WHOLE,
        };
        let joined = |count: u32| {
            let open = count & WRITING == 0 && count & WHOLE == whole && count & HOLDERS != 0;
            open.then_some(count + 1)
        };
        self.count(extent)
            .fetch_update(AcqRel, Acquire, joined)
            .is_ok()
    }

    /// Adds a holder to an extent that the caller holds already.
    pub fn retain(&self, extent: Extent) {
        self.count(extent).fetch_add(1, Relaxed);
    }

    /// Takes a holder away, and gives the memory back with the last.
    pub fn release(&self, extent: Extent) {
        let freed = self.let_go(extent);
        if freed > 0 {
            self.unreserve(freed);
        }
    }

    /// As [`Space::release`] for many, which is counted in one step.
    pub fn release_all(&self, extents: impl Iterator<Item = Extent>) {
        let freed = extents.map(|extent| self.let_go(extent)).sum();
        if freed > 0 {
            self.unreserve(freed);
        }
    }

    /// Takes a holder away. Returns the bytes that became free, which still count as used.
    fn let_go(&self, extent: Extent) -> u64 {
        let before = self.count(extent).fetch_sub(1, AcqRel);
        debug_assert_ne!(before & HOLDERS, 0, "an extent is released once");
        if before & HOLDERS != 1 {
            return 0;
        }
        match extent.memory() {
            ExtentMemory::Page(page) => {
                self.free.put_page(page);
                PAGE as u64
            }
            ExtentMemory::Block(first) => {
                self.free.put_block(first);
                BLOCK as u64
            }
            ExtentMemory::Scattered(number) => {
                let block = self.scattered.get(number);
                let pages: [u32; PAGES_PER_BLOCK] = std::array::from_fn(|index| block.page(index));
                self.scattered.remove(number);
                let pages = pages
                    .into_iter()
                    .map(|page| Extent::new(ExtentMemory::Page(page)));
                pages.map(|page| self.let_go(page)).sum()
            }
        }
    }

    /// Runs `write` if the caller has the only holder, and excludes new holders meanwhile, so that
    /// no reader sees an incomplete write. Returns whether it ran.
    pub fn write_alone(&self, extent: Extent, write: impl FnOnce()) -> bool {
        // Pages of a scattered block have holders of their own.
        let alone = match extent.memory() {
            ExtentMemory::Page(_) => 1,
            ExtentMemory::Block(_) => WHOLE | 1,
            ExtentMemory::Scattered(_) => return false,
        };
        let count = self.count(extent);
        if count
            .compare_exchange(alone, alone | WRITING, Acquire, Relaxed)
            .is_err()
        {
            return false;
        }
        write();
        count.store(alone, Release);
        true
    }

    /// Replaces bytes of an extent from `start` on, if the caller has the only holder. False if not, or
    /// if its memory is scattered: nothing has changed then.
    pub fn overwrite(&self, extent: Extent, start: usize, bytes: &[u8]) -> bool {
        debug_assert!(start + bytes.len() <= extent.size());
        match extent.memory() {
            ExtentMemory::Page(first) | ExtentMemory::Block(first) => {
                let copy = || {
                    let arena = self.arena_of(first);
                    arena.copy_from(offset_in_arena(first) + start, bytes);
                };
                self.write_alone(extent, copy)
            }
            ExtentMemory::Scattered(_) => false,
        }
    }

    /// Passes slices of a range of a cell's extent to `sink`, in order, or none if the cell is
    /// empty. Each slice is a holder.
    pub fn lend(
        self: &Arc<Self>,
        cell: &AtomicU64,
        range: Range<usize>,
        mut sink: impl FnMut(Slice),
    ) -> bool {
        let Some(extent) = self.hold(cell) else {
            return false;
        };
        match extent.memory() {
            ExtentMemory::Page(page) | ExtentMemory::Block(page) if !range.is_empty() => {
                sink(self.slice(extent, page, range));
            }
            _ => {
                self.slices(extent, range, sink);
                self.release(extent);
            }
        }
        true
    }

    /// Hands out slices of a range of an extent that the caller holds, in order. Each slice is a
    /// holder.
    pub fn slices(
        self: &Arc<Self>,
        extent: Extent,
        range: Range<usize>,
        mut sink: impl FnMut(Slice),
    ) {
        match extent.memory() {
            _ if range.is_empty() => {}
            ExtentMemory::Page(page) | ExtentMemory::Block(page) => {
                self.retain(extent);
                sink(self.slice(extent, page, range));
            }
            ExtentMemory::Scattered(number) => {
                let block = self.scattered.get(number);
                let mut start = range.start;
                while start < range.end {
                    let base = start / PAGE * PAGE;
                    let end = range.end.min(base + PAGE);
                    let page = block.page(base / PAGE);
                    let extent = Extent::new(ExtentMemory::Page(page));
                    self.retain(extent);
                    sink(self.slice(extent, page, start - base..end - base));
                    start = end;
                }
            }
        }
    }

    /// The arena of a page. It is never replaced.
    pub(super) fn arena_of(&self, page: u32) -> &SharedArena {
        &self.arenas[page as usize / (ARENA_BLOCKS * PAGES_PER_BLOCK)]
    }

    /// A slice of an extent that begins with a page. It takes over one holder.
    fn slice(self: &Arc<Self>, extent: Extent, first: u32, range: Range<usize>) -> Slice {
        debug_assert!(range.end <= extent.size());
        let base = offset_in_arena(first);
        let place = base + range.start..base + range.end;
        Slice::lent(self.clone(), extent.raw(), place)
    }

    /// Fills a range with zeros.
    pub fn zero(self: &Arc<Self>, extent: Extent, range: Range<usize>) {
        self.slices(extent, range, |slice| slice.fill_zero(0..slice.len()));
    }

    /// Fills everything but a range with zeros.
    pub fn zero_outside(self: &Arc<Self>, extent: Extent, range: &Range<usize>) {
        self.zero(extent, 0..range.start);
        self.zero(extent, range.end..extent.size());
    }

    /// Copies a range from one extent to the same place in another.
    pub fn copy(self: &Arc<Self>, from: Extent, to: Extent, range: Range<usize>) {
        self.copy_at((from, range.start), to, range);
    }

    /// Fills a range of an extent with the bytes of another one, from an offset on.
    pub fn copy_at(
        self: &Arc<Self>,
        (from, mut start): (Extent, usize),
        to: Extent,
        range: Range<usize>,
    ) {
        self.slices(to, range, |slice| {
            let mut filled = 0;
            self.slices(from, start..start + slice.len(), |source| {
                slice.copy_from_slice(filled, &source, 0..source.len());
                filled += source.len();
            });
            start += slice.len();
        });
    }

    /// Copies everything but a range from one extent to another.
    pub fn copy_outside(self: &Arc<Self>, from: Extent, to: Extent, range: &Range<usize>) {
        self.copy(from, to, 0..range.start);
        self.copy(from, to, range.end..to.size());
    }

    /// `length` zeros, at most a block of them.
    pub fn zeros(&self, length: usize) -> Slice {
        Slice::shared(&self.zeros, 0..length)
    }

    fn count(&self, extent: Extent) -> &AtomicU32 {
        match extent.memory() {
            ExtentMemory::Page(page) | ExtentMemory::Block(page) => &self.holders[page as usize],
            ExtentMemory::Scattered(number) => &self.scattered.get(number).holders,
        }
    }

    /// A page for a reservation that has been made. There is always one, but it may have moved
    /// behind this search while another was taken ahead of it. In that case another thread has made
    /// progress.
    fn find_page(&self) -> u32 {
        loop {
            match self.free.take_page() {
                Some(page) => return page,
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Where a page begins in its arena.
fn offset_in_arena(page: u32) -> usize {
    page as usize % (ARENA_BLOCKS * PAGES_PER_BLOCK) * PAGE
}

/// Bytes that a store of this size maps and registers: its size and spare memory.
#[must_use]
pub fn mapped_bytes(size_bytes: u64) -> u64 {
    let total = whole_pages(size_bytes);
    let bytes = (total as u64).saturating_add((spare_blocks(total) * BLOCK) as u64);
    bytes
        .checked_next_multiple_of(BLOCK as u64)
        .unwrap_or(bytes)
}

fn whole_pages(bytes: u64) -> usize {
    (usize::try_from(bytes).unwrap_or(usize::MAX) / PAGE).max(1) * PAGE
}

fn spare_blocks(total: usize) -> usize {
    (total / BLOCK / SPARE_SHARE).clamp(SPARE_BLOCKS_MIN, SPARE_BLOCKS_MAX)
}

#[cfg(test)]
mod tests {
    use millrace_mempool::HugepagePolicy;

    use super::*;

    fn space(bytes: usize) -> Arc<Space> {
        Arc::new(Space::new(&Registry::new(HugepagePolicy::Off), bytes as u64).unwrap())
    }

    fn grow(space: &Space, size: usize) -> Option<Extent> {
        space
            .reserve(size as u64, 0)
            .ok()
            .map(|()| space.take(size))
    }

    fn replace(space: &Space, size: usize) -> Option<Extent> {
        space
            .reserve(0, size as u64)
            .ok()
            .map(|()| space.take(size))
    }

    #[test]
    fn what_is_told_of_the_arenas_is_what_is_mapped() {
        for bytes in [0, PAGE, BLOCK + 17, 5 << 20] {
            let mapped = space(bytes);
            let mut told: Vec<_> = mapped.arenas().map(|arena| arena.len() as u64).collect();
            told.sort_unstable();
            let arenas = arenas_of(bytes as u64).into_iter();
            let arenas = arenas.filter(|(count, _)| *count > 0);
            let mut expected: Vec<_> = arenas
                .map(|(_, bytes)| bytes.next_multiple_of(2 << 20))
                .collect();
            expected.sort_unstable();
            assert_eq!(told, expected, "{bytes}");
        }
        // With one block in 64 beside them, so many fill three arenas.
        let [whole, rest, _] = arenas_of(48_396 * BLOCK as u64);
        assert_eq!((whole, rest), ((3, 1 << 30), (0, 0)));
        let [whole, rest, _] = arenas_of(3 << 30);
        assert_eq!((whole, rest), ((3, 1 << 30), (1, 768 * BLOCK as u64)));
        let _ = arenas_of(u64::MAX);
    }

    #[test]
    fn the_size_is_given_out_to_the_byte_and_comes_back() {
        let space = space(2 * BLOCK + 3 * PAGE + 17);
        assert_eq!(space.total(), (2 * BLOCK + 3 * PAGE) as u64);
        for _ in 0..2 {
            let taken: Vec<_> = std::iter::from_fn(|| grow(&space, PAGE)).collect();
            assert_eq!(taken.len(), 2 * PAGES_PER_BLOCK + 3);
            assert_eq!(space.used(), space.total());
            assert_eq!(space.reserve(1, 0), Err(StoreError::NoSpace));
            space.release_all(taken.into_iter());
            assert_eq!(space.used(), 0);
        }
        let blocks: Vec<_> = std::iter::from_fn(|| grow(&space, BLOCK)).collect();
        assert!(blocks.len() == 2);
        assert!(
            blocks
                .iter()
                .all(|block| matches!(block.memory(), ExtentMemory::Block(_)))
        );
    }

    #[test]
    fn what_is_mapped_is_told_beforehand() {
        for bytes in [1, PAGE, 3 * BLOCK + 5, 40 << 20] {
            let space = space(bytes);
            let mapped: usize = space.arenas.iter().map(|arena| arena.len()).sum();
            // Mappings are rounded up further, to whole huge pages.
            let told = mapped_bytes(bytes as u64).next_multiple_of(2 << 20);
            assert_eq!(told, mapped as u64);
        }
        assert_eq!(mapped_bytes(1 << 30), (1 << 30) + (16 << 20));
        assert_eq!(mapped_bytes(1 << 40), (1 << 40) + (64 << 20));
    }

    #[test]
    fn what_replaces_goes_into_spare_memory_and_what_grows_does_not() {
        let space = space(BLOCK);
        let block = grow(&space, BLOCK).unwrap();
        let spares: Vec<_> = std::iter::from_fn(|| replace(&space, BLOCK)).collect();
        assert_eq!(spares.len(), SPARE_BLOCKS_MIN);
        assert_eq!(space.reserve(0, 1), Err(StoreError::Delay));
        assert_eq!(space.reserve(1, 0), Err(StoreError::NoSpace));
        assert!(!space.may_keep_replacing());
        space.release_all(spares.into_iter());
        assert!(space.may_keep_replacing());
        space.release(block);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn scattered_pages_make_a_block_when_none_is_whole() {
        let space = space(2 * BLOCK);
        let mut pages: Vec<_> = std::iter::from_fn(|| replace(&space, PAGE)).collect();
        assert_eq!(pages.len(), (2 + SPARE_BLOCKS_MIN) * PAGES_PER_BLOCK);
        let mut odd = false;
        pages.retain(|page| {
            odd = !odd;
            if odd {
                space.release(*page);
            }
            !odd
        });
        let block = replace(&space, BLOCK).expect("enough pages are free");
        assert!(matches!(block.memory(), ExtentMemory::Scattered(_)));
        let mut slices = Vec::new();
        space.slices(block, PAGE - 10..3 * PAGE, |slice| slices.push(slice));
        let lengths: Vec<_> = slices.iter().map(Slice::len).collect();
        assert_eq!(lengths, [10, PAGE, PAGE]);
        assert!(!space.write_alone(block, || unreachable!("its pages are lent")));

        let before = space.used();
        space.release(block);
        assert_eq!(
            space.used(),
            before - (BLOCK - 3 * PAGE) as u64,
            "pages with holders stay"
        );
        drop(slices);
        assert_eq!(space.used(), before - BLOCK as u64);
        space.release_all(pages.into_iter());
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn an_extent_with_another_holder_is_not_written() {
        let space = space(4 * BLOCK);
        for size in [PAGE, BLOCK] {
            let extent = grow(&space, size).unwrap();
            let cell = AtomicU64::new(extent.raw());
            let mut ran = false;
            assert!(space.write_alone(extent, || {
                ran = true;
                assert!(!space.try_retain(extent), "nobody joins meanwhile");
            }));
            assert!(ran);
            assert_eq!(space.hold(&cell), Some(extent));
            assert!(!space.write_alone(extent, || unreachable!("it has two holders")));
            space.release(extent);
            assert!(space.write_alone(extent, || {}));
            space.release(extent);
            assert!(!space.try_retain(extent), "it is gone");
        }
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn an_old_name_of_memory_that_is_used_otherwise_holds_nothing() {
        let space = space(BLOCK);
        let block = grow(&space, BLOCK).unwrap();
        space.release(block);
        let page = grow(&space, PAGE).unwrap();
        let (ExtentMemory::Block(first), ExtentMemory::Page(number)) =
            (block.memory(), page.memory())
        else {
            panic!("one block, one page");
        };
        assert_eq!(first, number, "the same memory");
        assert!(!space.try_retain(block));
        assert!(space.try_retain(page));
    }

    #[test]
    fn threads_that_share_the_limit_all_find_what_they_reserved() {
        let space = space(256 * BLOCK);
        std::thread::scope(|scope| {
            for turn in 0..4 {
                let space = &space;
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for step in 0..4000_usize {
                        let size = if (step + turn) % 3 == 0 { BLOCK } else { PAGE };
                        match grow(space, size) {
                            Some(extent) => held.push(extent),
                            None => space.release_all(held.drain(..)),
                        }
                    }
                    space.release_all(held.into_iter());
                });
            }
        });
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn a_cell_that_others_exchange_is_held_by_what_it_names() {
        let space = space(64 * BLOCK);
        let fresh = |byte: u8| {
            let extent = grow(&space, PAGE).unwrap();
            space.slices(extent, 0..PAGE, |slice| slice.copy_from(0, &[byte; PAGE]));
            extent
        };
        let cells = [0_u8, 100].map(|byte| AtomicU64::new(fresh(byte).raw()));
        std::thread::scope(|scope| {
            for (cell, base) in cells.iter().zip([0, 100]) {
                let (space, fresh) = (&space, &fresh);
                scope.spawn(move || {
                    for round in 0..3000_u32 {
                        let next = fresh(base + (round % 100) as u8);
                        let old = cell.swap(next.raw(), AcqRel);
                        space.release(Extent::from_raw(old).unwrap());
                    }
                });
                scope.spawn(move || {
                    let mut bytes = [0; PAGE];
                    for _ in 0..3000 {
                        let extent = space.hold(cell).unwrap();
                        space.slices(extent, 0..PAGE, |slice| slice.copy_to(0, &mut bytes));
                        space.release(extent);
                        assert!((base..base + 100).contains(&bytes[0]));
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                    }
                });
            }
        });
        space.release_all(
            cells
                .iter()
                .filter_map(|cell| Extent::from_raw(cell.load(Acquire))),
        );
        assert_eq!(space.used(), 0);
    }
}
