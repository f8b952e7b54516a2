//! Which extent holds which bytes of a file.
//!
//! The first 64 KiB are 16 small extents, so that small files waste little; the rest are large
//! ones, found through tables of 64 slots. Tables stand in tiers: the first tier is one table (to
//! 4 MiB), the next a table of tables (to 256 MiB), and so on, so that a small file needs no deep
//! tree and a byte at 2^62 only a handful of tables.
//!
//! Slots are set once. What a file loses when it shrinks, it loses by a new map that shares with
//! the old one the tables that stay as they are. Looking up takes no lock and allocates nothing;
//! changes are made by one at a time, under the file's lock.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};

use super::extent::Extent;
use super::space::{BLOCK, PAGE, PAGES_PER_BLOCK};

const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;
/// Reach 2^48 blocks, more than the largest file has.
const TIERS: usize = 8;

type Slot<T> = OnceLock<Arc<T>>;

/// The extents of one file; nothing at all while it has none.
#[derive(Default)]
pub(super) struct ExtentMap(ArcSwapOption<Map>);

/// The extents of a file as they were at one moment, and those that have joined since.
pub(super) struct View(Guard<Option<Arc<Map>>>);

/// Parts come as a file needs them: one page, then small extents, then large ones.
#[derive(Default)]
struct Map {
    first: Slot<Extent>,
    head: OnceLock<Box<[Slot<Extent>; PAGES_PER_BLOCK]>>,
    tiers: OnceLock<Box<[Slot<Node>; TIERS]>>,
}

enum Node {
    Tables([Slot<Node>; FANOUT]),
    Extents([Slot<Extent>; FANOUT]),
}

/// A range of bytes inside one extent's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Where in the file the extent begins.
    pub base: u64,
    /// Bytes of the extent.
    pub size: usize,
    /// First byte in the extent.
    pub start: usize,
    /// Byte after the last one in the extent.
    pub end: usize,
}

impl Span {
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Where in the file the range ends.
    pub fn file_end(&self) -> u64 {
        self.base + self.end as u64
    }
}

/// Cuts a range of a file at the borders of extents.
pub(super) fn spans(offset: u64, length: u64) -> impl Iterator<Item = Span> {
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
        Some(Span {
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

    /// Puts an extent where the byte at `offset` is looked up and nothing is yet.
    pub fn put(&self, offset: u64, extent: Arc<Extent>) {
        let map = self.0.load_full().unwrap_or_else(|| {
            let map = Arc::new(Map::default());
            self.0.store(Some(map.clone()));
            map
        });
        let vacant = match position(offset) {
            Position::Head(0) => map.first.set(extent),
            Position::Head(page) => map.head.get_or_init(Box::default)[page].set(extent),
            Position::Tier(tier, index) => {
                let tiers = map.tiers.get_or_init(Box::default);
                let mut node = tiers[tier].get_or_init(|| Node::empty(tier));
                let mut level = tier;
                loop {
                    match &**node {
                        Node::Extents(extents) => break extents[slot(index, 0)].set(extent),
                        Node::Tables(tables) => {
                            let next = &tables[slot(index, level)];
                            level -= 1;
                            node = next.get_or_init(|| Node::empty(level));
                        }
                    }
                }
            }
        };
        debug_assert!(vacant.is_ok(), "an extent is put into a hole");
    }

    /// Lets go of every extent that begins at `size` or later, and replaces the one that holds the
    /// byte at `size` by `last`; returns the bytes let go.
    pub fn truncate(&self, size: u64, last: Option<&Arc<Extent>>) -> u64 {
        let Some(old) = self.0.load_full() else {
            return 0;
        };
        let mut cut = Cut {
            size,
            last,
            freed: 0,
        };
        let map = Map::default();
        cut.slots(&old.first, &map.first, 0);
        if let Some(head) = old.head.get() {
            let kept = if size > PAGE as u64 {
                &map.head.get_or_init(Box::default)[..]
            } else {
                &[]
            };
            for (page, slot) in head.iter().enumerate() {
                cut.slots(
                    slot,
                    kept.get(page).unwrap_or(&OnceLock::new()),
                    (page * PAGE) as u64,
                );
            }
        }
        if let Some(tiers) = old.tiers.get() {
            let kept = if size > BLOCK as u64 {
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
        self.0.store((size > 0).then(|| Arc::new(map)));
        cut.freed
    }
}

impl View {
    /// The extent that holds the byte at `offset`.
    pub fn get(&self, offset: u64) -> Option<&Arc<Extent>> {
        let map = self.0.as_deref()?;
        match position(offset) {
            Position::Head(0) => map.first.get(),
            Position::Head(page) => map.head.get()?[page].get(),
            Position::Tier(tier, index) => {
                let mut node = map.tiers.get()?[tier].get()?;
                let mut level = tier;
                loop {
                    match &**node {
                        Node::Extents(extents) => return extents[slot(index, 0)].get(),
                        Node::Tables(tables) => node = tables[slot(index, level)].get()?,
                    }
                    level -= 1;
                }
            }
        }
    }
}

impl Node {
    fn empty(level: usize) -> Arc<Self> {
        Arc::new(if level == 0 {
            Self::Extents([const { OnceLock::new() }; FANOUT])
        } else {
            Self::Tables([const { OnceLock::new() }; FANOUT])
        })
    }

    /// Bytes of all extents below.
    fn bytes(&self) -> u64 {
        match self {
            Self::Extents(extents) => {
                extents.iter().filter(|slot| slot.get().is_some()).count() as u64 * BLOCK as u64
            }
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
    size: u64,
    /// Takes the place of the extent in which the file ends.
    last: Option<&'a Arc<Extent>>,
    freed: u64,
}

impl Cut<'_> {
    fn slots(&mut self, old: &Slot<Extent>, new: &Slot<Extent>, base: u64) {
        let Some(extent) = old.get() else {
            return;
        };
        if base >= self.size {
            self.freed += extent.size() as u64;
            return;
        }
        let ends_here = base + extent.size() as u64 > self.size;
        let kept = self.last.filter(|_| ends_here).unwrap_or(extent);
        new.get_or_init(|| kept.clone());
    }

    fn nodes(&mut self, old: &Slot<Node>, new: &Slot<Node>, level: usize, base: u64) {
        let Some(node) = old.get() else {
            return;
        };
        if base >= self.size {
            self.freed += node.bytes();
            return;
        }
        if base.saturating_add(reach(level)) <= self.size {
            new.get_or_init(|| node.clone());
            return;
        }
        let copy = Node::empty(level);
        let step = reach(level) / FANOUT as u64;
        let bases = (0..).map(|index| base.saturating_add(step.saturating_mul(index)));
        match (&**node, &*copy) {
            (Node::Extents(old), Node::Extents(new)) => {
                for ((old, new), base) in old.iter().zip(new).zip(bases) {
                    self.slots(old, new, base);
                }
            }
            (Node::Tables(old), Node::Tables(new)) => {
                for ((old, new), base) in old.iter().zip(new).zip(bases) {
                    self.nodes(old, new, level - 1, base);
                }
            }
            _ => unreachable!("nodes of one level are of one kind"),
        }
        new.get_or_init(|| copy);
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

    use super::super::space::{Purpose, Space};
    use super::*;

    const FAR: u64 = i64::MAX as u64 - 1;

    fn space() -> Arc<Space> {
        Arc::new(Space::new(&Registry::new(HugepagePolicy::Off), 4 << 20).unwrap())
    }

    fn put(map: &ExtentMap, space: &Arc<Space>, offset: u64) -> Arc<Extent> {
        let extent = Extent::allocate(space, extent_size(offset), Purpose::Grow).unwrap();
        map.put(offset, extent.clone());
        extent
    }

    #[test]
    fn spans_cover_a_range_without_gaps() {
        let all: Vec<_> = spans(4000, 200_000).collect();
        assert_eq!(
            all[0],
            Span {
                base: 0,
                size: PAGE,
                start: 4000,
                end: PAGE
            }
        );
        assert_eq!(
            all[1],
            Span {
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
            assert!(
                Arc::ptr_eq(map.view().get(*offset).unwrap(), extent),
                "at {offset}"
            );
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
        assert_eq!(map.truncate(FAR, None), 0);
        assert_eq!(map.truncate(65 * block + 1, None), 2 * block);
        assert!(map.view().get(65 * block).is_some());
        assert_eq!(map.truncate(65 * block, None), block);
        assert_eq!(map.truncate(block + 1, None), 2 * block);
        assert!(map.view().get(block).is_some());
        assert_eq!(map.truncate(8192, None), block + PAGE as u64);
        assert_eq!(map.truncate(1, None), 0);
        assert_eq!(map.truncate(0, None), PAGE as u64);
        assert_eq!(space.used(), 0);
    }
}
