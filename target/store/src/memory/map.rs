//! The extents of a file, by offset.
//!
//! The first 64 KiB are 16 small extents, so that small files waste little. The rest are large
//! extents in tables of 64 slots. The tables form tiers: the first tier is one table (to 4 MiB),
//! the second a table of tables (to 256 MiB), and so on. So a small file has no deep tree, and a
//! byte at 2^62 takes only a few tables.
//!
//! An extent is replaced in one step. A file that shrinks gets a new map, which shares the
//! unchanged tables with the old one. Look-ups take no lock and allocate nothing. Changes are made
//! by the holder of the file's attribute lock.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};

use super::extent::Extent;
use super::space::{BLOCK, PAGE, PAGES_PER_BLOCK, Space};

const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;
/// Reach 2^48 blocks, more than the largest file has.
const TIERS: usize = 8;

type ExtentSlot<T> = OnceLock<Arc<T>>;

/// The extents of one file; nothing at all while it has none.
#[derive(Default)]
pub(super) struct ExtentMap(ArcSwapOption<Map>);

/// The map of a file as it was at one moment, with the extents of now where it was not cut since.
pub(super) struct View(Guard<Option<Arc<Map>>>);

/// Extents that a file has released. Dropping it frees them, which may take long.
pub(super) struct Discarded {
    _map: Option<Arc<Map>>,
}

/// Parts come as a file needs them: one page, then small extents, then large ones.
struct Map {
    first: ExtentCells<1>,
    head: OnceLock<Box<ExtentCells<PAGES_PER_BLOCK>>>,
    tiers: OnceLock<Box<[ExtentSlot<Node>; TIERS]>>,
}

#[allow(clippy::large_enum_variant)] // Nodes are shared one by one, and most are of extents.
enum Node {
    Tables(Box<[ExtentSlot<Node>; FANOUT]>),
    Extents(ExtentCells<FANOUT>),
}

/// References to extents, zero for holes. Each cell is a holder of its extent.
struct ExtentCells<const N: usize> {
    space: Arc<Space>,
    cells: [AtomicU64; N],
}

impl<const N: usize> ExtentCells<N> {
    fn new(space: &Arc<Space>) -> Self {
        Self {
            space: space.clone(),
            cells: [const { AtomicU64::new(0) }; N],
        }
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        self.cells
            .iter()
            .filter_map(|cell| Extent::from_raw(cell.load(Acquire)))
    }
}

impl<const N: usize> Drop for ExtentCells<N> {
    fn drop(&mut self) {
        self.space.release_all(self.extents());
    }
}

/// A range of bytes inside one extent's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentSpan {
    /// Where in the file the extent begins.
    pub base: u64,
    /// Bytes of the extent.
    pub size: usize,
    /// First byte in the extent.
    pub start: usize,
    /// Byte after the last one in the extent.
    pub end: usize,
}

impl ExtentSpan {
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Where in the file the range ends.
    pub fn file_end(&self) -> u64 {
        self.base + self.end as u64
    }
}

/// Cuts a range of a file at the borders of extents.
pub(super) fn spans(offset: u64, length: u64) -> impl Iterator<Item = ExtentSpan> {
    let end = offset + length;
    let mut next = offset;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let size = extent_size(next);
        let start = (next % size as u64) as usize;
        let base = next - start as u64;
        let stop = (end - base).min(size as u64) as usize;
        next = base + stop as u64;
        Some(ExtentSpan {
            base,
            size,
            start,
            end: stop,
        })
    })
}

/// Bytes of the extent that holds the byte at `offset`.
fn extent_size(offset: u64) -> usize {
    if offset < BLOCK as u64 { PAGE } else { BLOCK }
}

impl ExtentMap {
    /// The map as it is now.
    pub fn view(&self) -> View {
        View(self.0.load())
    }

    /// Puts an extent where the byte at `offset` is looked up. The map takes over one holder of it,
    /// and the caller one of the extent that was there.
    pub fn put(&self, space: &Arc<Space>, offset: u64, extent: Extent) -> Option<Extent> {
        let map = self.0.load_full().unwrap_or_else(|| {
            let map = Arc::new(Map::new(space));
            self.0.store(Some(map.clone()));
            map
        });
        let exchange = |cell: &AtomicU64| Extent::from_raw(cell.swap(extent.raw(), AcqRel));
        match position(offset) {
            Position::Head(0) => exchange(&map.first.cells[0]),
            Position::Head(page) => {
                let head = map.head.get_or_init(|| Box::new(ExtentCells::new(space)));
                exchange(&head.cells[page])
            }
            Position::Tier(tier, index) => {
                let tiers = map.tiers.get_or_init(Box::default);
                let mut node = tiers[tier].get_or_init(|| Node::empty(space, tier));
                let mut level = tier;
                loop {
                    match &**node {
                        Node::Extents(extents) => break exchange(&extents.cells[slot(index, 0)]),
                        Node::Tables(tables) => {
                            let next = &tables[slot(index, level)];
                            level -= 1;
                            node = next.get_or_init(|| Node::empty(space, level));
                        }
                    }
                }
            }
        }
    }

    /// Releases every extent that begins at `size` or later, and replaces the one with the byte at
    /// `size` by `last`, of which it takes over a holder. Returns the number of bytes released.
    pub fn truncate(
        &self,
        space: &Arc<Space>,
        size: u64,
        last: Option<Extent>,
    ) -> (u64, Discarded) {
        self.cut(space, size..u64::MAX, last)
    }

    /// Releases every extent in a range, which begins and ends between extents. Returns the number
    /// of bytes released.
    pub fn punch(&self, space: &Arc<Space>, start: u64, end: u64) -> (u64, Discarded) {
        self.cut(space, start..end, None)
    }

    fn cut(&self, space: &Arc<Space>, gone: Range<u64>, last: Option<Extent>) -> (u64, Discarded) {
        let Some(old) = self.0.load_full() else {
            debug_assert!(last.is_none());
            return (0, Discarded { _map: None });
        };
        let is_whole = gone == (0..u64::MAX);
        let keeps = |from: u64, to: u64| gone.start > from || gone.end < to;
        let (keeps_head, keeps_tiers) = (
            keeps(PAGE as u64, BLOCK as u64),
            keeps(BLOCK as u64, u64::MAX),
        );
        let mut cut = Cut {
            space,
            gone,
            last,
            freed: 0,
        };
        let map = Map::new(space);
        cut.extents(&old.first, Some(&map.first), 0, PAGE);
        if let Some(head) = old.head.get() {
            let kept =
                keeps_head.then(|| &**map.head.get_or_init(|| Box::new(ExtentCells::new(space))));
            cut.extents(head, kept, 0, PAGE);
        }
        if let Some(tiers) = old.tiers.get() {
            let kept = if keeps_tiers {
                &map.tiers.get_or_init(Box::default)[..]
            } else {
                &[]
            };
            let mut base = BLOCK as u64;
            for (level, tier) in tiers.iter().enumerate() {
                cut.nodes(
                    tier,
                    kept.get(level).unwrap_or(&OnceLock::new()),
                    level,
                    base,
                );
                base = base.saturating_add(reach(level));
            }
        }
        debug_assert!(cut.last.is_none(), "there was an extent to replace");
        drop(old);
        let old = self.0.swap((!is_whole).then(|| Arc::new(map)));
        (cut.freed, Discarded { _map: old })
    }
}

impl Map {
    fn new(space: &Arc<Space>) -> Self {
        Self {
            first: ExtentCells::new(space),
            head: OnceLock::new(),
            tiers: OnceLock::new(),
        }
    }
}

impl View {
    /// The extent that holds the byte at `offset`. It stays the file's, and so it is held, only
    /// while the caller has the file's attributes locked.
    pub fn get(&self, offset: u64) -> Option<Extent> {
        Extent::from_raw(self.cell(offset)?.load(Acquire))
    }

    /// The first byte from `offset` on that is in an extent, or in none.
    pub fn next(&self, offset: u64, is_data: bool) -> Option<u64> {
        let Some(map) = self.0.as_deref() else {
            return (!is_data).then_some(offset);
        };
        if offset < BLOCK as u64 {
            let mut pages = offset as usize / PAGE..PAGES_PER_BLOCK;
            let found = pages.find(|page| self.get((page * PAGE) as u64).is_some() == is_data);
            if let Some(page) = found {
                return Some(offset.max((page * PAGE) as u64));
            }
        }
        // Counted in blocks behind the small extents.
        let mut block = (offset.max(BLOCK as u64) / BLOCK as u64) - 1;
        let mut first = 0;
        for level in 0..TIERS {
            let count = blocks(level);
            if block < first + count {
                let from = block - first;
                let node = map.tiers.get().and_then(|tiers| tiers[level].get());
                let found = match node {
                    Some(node) => node.next(level, from, is_data),
                    None => (!is_data).then_some(from),
                };
                if let Some(found) = found {
                    return Some(offset.max((first + found + 1).saturating_mul(BLOCK as u64)));
                }
                block = first + count;
            }
            first += count;
        }
        None
    }

    /// The cell of the extent that holds the byte at `offset`.
    pub fn cell(&self, offset: u64) -> Option<&AtomicU64> {
        let map = self.0.as_deref()?;
        match position(offset) {
            Position::Head(0) => Some(&map.first.cells[0]),
            Position::Head(page) => Some(&map.head.get()?.cells[page]),
            Position::Tier(tier, index) => {
                let mut node = map.tiers.get()?[tier].get()?;
                let mut level = tier;
                loop {
                    match &**node {
                        Node::Extents(extents) => return Some(&extents.cells[slot(index, 0)]),
                        Node::Tables(tables) => node = tables[slot(index, level)].get()?,
                    }
                    level -= 1;
                }
            }
        }
    }
}

impl Node {
    fn empty(space: &Arc<Space>, level: usize) -> Arc<Self> {
        Arc::new(if level == 0 {
            Self::Extents(ExtentCells::new(space))
        } else {
            Self::Tables(Box::new([const { OnceLock::new() }; FANOUT]))
        })
    }

    /// Whether it has no extents. Tables have no empty ones below.
    fn is_empty(&self) -> bool {
        match self {
            Self::Extents(extents) => extents.extents().next().is_none(),
            Self::Tables(tables) => tables.iter().all(|table| table.get().is_none()),
        }
    }

    /// The first block from `from` on, counted here, that has an extent or has none.
    fn next(&self, level: usize, from: u64, is_data: bool) -> Option<u64> {
        match self {
            Self::Extents(extents) => {
                let cells = extents.cells.iter().enumerate().skip(from as usize);
                let mut found = cells.filter(|(_, cell)| (cell.load(Acquire) != 0) == is_data);
                found.next().map(|(index, _)| index as u64)
            }
            Self::Tables(tables) => {
                let below = blocks(level - 1);
                let mut from = from;
                for (index, table) in tables.iter().enumerate().skip((from / below) as usize) {
                    let base = index as u64 * below;
                    let inner = from.saturating_sub(base);
                    let found = match table.get() {
                        Some(node) => node.next(level - 1, inner, is_data),
                        None => (!is_data).then_some(inner),
                    };
                    if let Some(found) = found {
                        return Some(base + found);
                    }
                    from = base + below;
                }
                None
            }
        }
    }

    /// Bytes of all extents below.
    fn bytes(&self) -> u64 {
        match self {
            Self::Extents(extents) => extents.extents().count() as u64 * BLOCK as u64,
            Self::Tables(tables) => tables
                .iter()
                .filter_map(OnceLock::get)
                .map(|node| node.bytes())
                .sum(),
        }
    }
}

/// Carries over to a new map what stays of an old one.
struct Cut<'a> {
    space: &'a Arc<Space>,
    /// The range of the file whose extents are released.
    gone: Range<u64>,
    /// Takes the place of the extent in which the file ends, where the range begins.
    last: Option<Extent>,
    freed: u64,
}

impl Cut<'_> {
    /// Carries over extents of `step` bytes each, the first of which begins at `base`.
    fn extents<const N: usize>(
        &mut self,
        old: &ExtentCells<N>,
        new: Option<&ExtentCells<N>>,
        base: u64,
        step: usize,
    ) {
        for (index, cell) in old.cells.iter().enumerate() {
            let Some(extent) = Extent::from_raw(cell.load(Acquire)) else {
                continue;
            };
            let base = base.saturating_add((step * index) as u64);
            let kept = new.filter(|_| !self.gone.contains(&base));
            let Some(new) = kept else {
                self.freed += step as u64;
                continue;
            };
            let ends_here = base.saturating_add(step as u64) > self.gone.start;
            let carried = self.last.take_if(|_| ends_here).unwrap_or_else(|| {
                self.space.retain(extent);
                extent
            });
            new.cells[index].store(carried.raw(), Release);
        }
    }

    fn nodes(&mut self, old: &ExtentSlot<Node>, new: &ExtentSlot<Node>, level: usize, base: u64) {
        let Some(node) = old.get() else {
            return;
        };
        let end = base.saturating_add(reach(level));
        if base >= self.gone.start && end <= self.gone.end {
            self.freed += node.bytes();
            return;
        }
        if end <= self.gone.start || base >= self.gone.end {
            new.get_or_init(|| node.clone());
            return;
        }
        let copy = Node::empty(self.space, level);
        match (&**node, &*copy) {
            (Node::Extents(old), Node::Extents(new)) => self.extents(old, Some(new), base, BLOCK),
            (Node::Tables(old), Node::Tables(new)) => {
                let step = reach(level - 1);
                let bases = (0..).map(|index| base.saturating_add(step.saturating_mul(index)));
                for ((old, new), base) in old.iter().zip(new.iter()).zip(bases) {
                    self.nodes(old, new, level - 1, base);
                }
            }
            _ => unreachable!("nodes of one level are of one kind"),
        }
        // Tables of holes would take memory that nobody is charged for.
        if !copy.is_empty() {
            new.get_or_init(|| copy);
        }
    }
}

/// Where an extent is looked up.
enum Position {
    /// A small extent, by page.
    Head(usize),
    /// A large one, by tier and its index there.
    Tier(usize, u64),
}

fn position(offset: u64) -> Position {
    if offset < BLOCK as u64 {
        return Position::Head(offset as usize / PAGE);
    }
    let mut index = offset / BLOCK as u64 - 1;
    let mut tier = 0;
    while index >= blocks(tier) {
        index -= blocks(tier);
        tier += 1;
    }
    Position::Tier(tier, index)
}

/// Blocks that a table of a level covers.
fn blocks(level: usize) -> u64 {
    1 << (FANOUT_BITS as usize * (level + 1))
}

/// Bytes that a table of a level covers.
fn reach(level: usize) -> u64 {
    blocks(level).saturating_mul(BLOCK as u64)
}

fn slot(index: u64, level: usize) -> usize {
    (index >> (FANOUT_BITS as usize * level)) as usize % FANOUT
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{HugepagePolicy, Registry};

    use super::*;

    const FAR: u64 = i64::MAX as u64 - 1;

    fn space() -> Arc<Space> {
        Arc::new(Space::new(&Registry::new(HugepagePolicy::Off), 4 << 20).unwrap())
    }

    fn put(map: &ExtentMap, space: &Arc<Space>, offset: u64) -> Extent {
        let size = extent_size(offset);
        space.reserve(size as u64, 0).unwrap();
        let extent = space.take(size);
        assert_eq!(map.put(space, offset, extent), None);
        extent
    }

    #[test]
    fn spans_cover_a_range_without_gaps() {
        let all: Vec<_> = spans(4000, 200_000).collect();
        assert_eq!(
            all[0],
            ExtentSpan {
                base: 0,
                size: PAGE,
                start: 4000,
                end: PAGE
            }
        );
        assert_eq!(
            all[1],
            ExtentSpan {
                base: PAGE as u64,
                size: PAGE,
                start: 0,
                end: PAGE
            }
        );
        assert_eq!(all[16].size, BLOCK);
        assert_eq!(all.last().unwrap().file_end(), 204_000);
        assert!(
            all.windows(2)
                .all(|pair| pair[0].file_end() == pair[1].base)
        );
        assert_eq!(spans(7, 0).count(), 0);
    }

    #[test]
    fn a_mebibyte_is_few_spans() {
        assert_eq!(spans(0, 1 << 20).count(), 16 + 15);
        assert_eq!(spans(1 << 20, 1 << 20).count(), 16);
    }

    #[test]
    fn every_distance_is_found_again() {
        let space = space();
        let map = ExtentMap::default();
        let block = BLOCK as u64;
        let offsets = [
            0,
            4096,
            block - 1,
            block,
            65 * block,
            66 * block,
            5000 * block,
            1 << 40,
            FAR,
        ];
        let extents: Vec<_> = offsets
            .iter()
            .map(|offset| put(&map, &space, *offset))
            .collect();
        for (offset, extent) in offsets.iter().zip(&extents) {
            assert_eq!(map.view().get(*offset), Some(*extent), "at {offset}");
        }
        assert!(map.view().get(2 * block).is_none());
        assert!(map.view().get(FAR - block).is_none());
    }

    #[test]
    fn truncation_frees_what_begins_beyond() {
        let space = space();
        let map = ExtentMap::default();
        let block = BLOCK as u64;
        let offsets = [
            0,
            8192,
            block,
            2 * block,
            64 * block,
            65 * block,
            4200 * block,
            FAR,
        ];
        for offset in offsets {
            put(&map, &space, offset);
        }
        assert_eq!(map.truncate(&space, FAR, None).0, 0);
        assert_eq!(map.truncate(&space, 65 * block + 1, None).0, 2 * block);
        assert!(map.view().get(65 * block).is_some());
        assert_eq!(map.truncate(&space, 65 * block, None).0, block);
        assert_eq!(map.truncate(&space, block + 1, None).0, 2 * block);
        assert!(map.view().get(block).is_some());
        assert_eq!(map.truncate(&space, 8192, None).0, block + PAGE as u64);
        assert_eq!(map.truncate(&space, 1, None).0, 0);
        assert_eq!(map.truncate(&space, 0, None).0, PAGE as u64);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn what_is_let_go_is_freed_with_what_was_discarded() {
        let space = space();
        let map = ExtentMap::default();
        for offset in [0, 8192, BLOCK as u64, 70 * BLOCK as u64] {
            put(&map, &space, offset);
        }
        let before = space.used();
        let (freed, discarded) = map.truncate(&space, 100, None);
        assert_eq!(freed, before - PAGE as u64);
        assert_eq!(space.used(), before);
        drop(discarded);
        assert_eq!(space.used(), PAGE as u64);
    }

    #[test]
    fn an_extent_is_exchanged_for_another() {
        let space = space();
        let map = ExtentMap::default();
        for offset in [0, 4096, BLOCK as u64] {
            let old = put(&map, &space, offset);
            let size = extent_size(offset);
            space.reserve(0, size as u64).unwrap();
            let new = space.take(size);
            assert_eq!(map.put(&space, offset, new), Some(old));
            assert_eq!(map.view().get(offset), Some(new));
            space.release(old);
        }
        assert_eq!(space.used(), (2 * PAGE + BLOCK) as u64);
        drop(map);
        assert_eq!(space.used(), 0);
    }
}
