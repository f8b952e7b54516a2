//! Which extent holds which bytes of a file.
//!
//! The first 64 KiB are 16 small extents, so that small files waste little; the rest are large
//! ones, found through tables of 64 slots. Tables stand in tiers: the first tier is one table (to
//! 4 MiB), the next a table of tables (to 256 MiB), and so on, so that a small file needs no deep
//! tree and a byte at 2^62 only a handful of tables. Looking up takes no lock and allocates
//! nothing; changes are made by one at a time, under the file's lock.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::extent::Extent;
use super::space::{BLOCK, PAGE, PAGES_PER_BLOCK};

const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;
/// Reach 2^48 blocks, more than the largest file has.
const TIERS: usize = 8;

/// The extents of one file.
#[derive(Default)]
pub(super) struct ExtentMap {
    head: [ArcSwapOption<Extent>; PAGES_PER_BLOCK],
    tiers: [ArcSwapOption<Node>; TIERS],
}

enum Node {
    Tables([ArcSwapOption<Node>; FANOUT]),
    Extents([ArcSwapOption<Extent>; FANOUT]),
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
    /// The extent that holds the byte at `offset`.
    pub fn get(&self, offset: u64) -> Option<Arc<Extent>> {
        if offset < BLOCK as u64 {
            return self.head[offset as usize / PAGE].load_full();
        }
        let (tier, index) = position(offset);
        let mut node = self.tiers[tier].load();
        let mut level = tier;
        loop {
            let next = match node.as_deref()? {
                Node::Tables(tables) => tables[slot(index, level)].load(),
                Node::Extents(extents) => return extents[slot(index, 0)].load_full(),
            };
            node = next;
            level -= 1;
        }
    }

    /// Puts an extent where the byte at `offset` is looked up, and returns what was there.
    pub fn put(&self, offset: u64, extent: Arc<Extent>) -> Option<Arc<Extent>> {
        if offset < BLOCK as u64 {
            return self.head[offset as usize / PAGE].swap(Some(extent));
        }
        let (tier, index) = position(offset);
        let mut node = child(&self.tiers[tier], tier);
        for level in (1..=tier).rev() {
            let next = match &*node {
                Node::Tables(tables) => child(&tables[slot(index, level)], level - 1),
                Node::Extents(_) => unreachable!("extents stand at level 0 only"),
            };
            node = next;
        }
        match &*node {
            Node::Extents(extents) => extents[slot(index, 0)].swap(Some(extent)),
            Node::Tables(_) => unreachable!("tables stand above level 0 only"),
        }
    }

    /// Lets go of every extent that begins at `size` or later; returns their bytes.
    pub fn truncate(&self, size: u64) -> u64 {
        let mut freed = 0;
        let kept_pages = size.div_ceil(PAGE as u64).min(PAGES_PER_BLOCK as u64) as usize;
        for page in &self.head[kept_pages..] {
            freed += page.swap(None).map_or(0, |extent| extent.size() as u64);
        }
        // Blocks are counted without the one that the head stands for.
        let kept = size.div_ceil(BLOCK as u64).saturating_sub(1);
        let mut first = 0;
        for (level, tier) in self.tiers.iter().enumerate() {
            freed += prune(tier, level, first, kept);
            first += reach(level);
        }
        freed
    }
}

/// Blocks that a table of a level covers.
fn reach(level: usize) -> u64 {
    1 << (FANOUT_BITS as usize * (level + 1))
}

/// The tier of the block that holds `offset`, and its index in that tier.
fn position(offset: u64) -> (usize, u64) {
    let mut index = offset / BLOCK as u64 - 1;
    let mut tier = 0;
    while index >= reach(tier) {
        index -= reach(tier);
        tier += 1;
    }
    (tier, index)
}

fn slot(index: u64, level: usize) -> usize {
    (index >> (FANOUT_BITS as usize * level)) as usize % FANOUT
}

/// The node behind a link, made if it is missing.
fn child(link: &ArcSwapOption<Node>, level: usize) -> Arc<Node> {
    link.load_full().unwrap_or_else(|| {
        let node = Arc::new(if level == 0 {
            Node::Extents(std::array::from_fn(|_| ArcSwapOption::empty()))
        } else {
            Node::Tables(std::array::from_fn(|_| ArcSwapOption::empty()))
        });
        link.store(Some(node.clone()));
        node
    })
}

/// Lets go of all blocks from `kept` on below a link whose first block is `first`.
fn prune(link: &ArcSwapOption<Node>, level: usize, first: u64, kept: u64) -> u64 {
    if first.saturating_add(reach(level)) <= kept {
        return 0;
    }
    let node = if first >= kept {
        link.swap(None)
    } else {
        link.load_full()
    };
    match node.as_deref() {
        None => 0,
        Some(Node::Tables(tables)) => {
            let firsts = (first..).step_by(reach(level - 1) as usize);
            tables
                .iter()
                .zip(firsts)
                .map(|(link, first)| prune(link, level - 1, first, kept))
                .sum()
        }
        Some(Node::Extents(extents)) => extents
            .iter()
            .zip(first..)
            .filter(|(_, block)| *block >= kept)
            .filter_map(|(slot, _)| slot.swap(None))
            .map(|extent| extent.size() as u64)
            .sum(),
    }
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
                Arc::ptr_eq(&map.get(*offset).unwrap(), extent),
                "at {offset}"
            );
        }
        assert!(map.get(2 * block).is_none());
        assert!(map.get(FAR - block).is_none());
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
        assert_eq!(map.truncate(FAR), 0);
        assert_eq!(map.truncate(65 * block + 1), 2 * block);
        assert!(map.get(65 * block).is_some());
        assert_eq!(map.truncate(65 * block), block);
        assert_eq!(map.truncate(block + 1), 2 * block);
        assert!(map.get(block).is_some());
        assert_eq!(map.truncate(8192), block + PAGE as u64);
        assert_eq!(map.truncate(1), 0);
        assert_eq!(map.truncate(0), PAGE as u64);
        assert_eq!(space.used(), 0);
    }
}
