//! How a pool's memory is divided: a reserve per class, the rest by need.
//!
//! Each class is given its reserve at the start, so that bulk data can never starve control
//! traffic. What remains of an [`Extent`] goes to whichever class first runs empty: large buffers
//! from the top, the others from the bottom, so that neither leaves gaps.

use std::sync::Arc;

use crate::arena::Arena;
use crate::{Class, PoolConfig};

/// Bytes taken at once for small classes, so that the bottom stays aligned for all.
const CARVE_UNIT: usize = Class::Medium.size();

/// Buffers of `class` that a pool of `bytes` starts with.
pub(crate) fn reserve(class: Class, bytes: usize) -> usize {
    let (share, least) = match class {
        Class::Control => (bytes / 16, 256 << 10),
        Class::Medium => (bytes / 4, 512 << 10),
        Class::Large => (bytes / 4, 1 << 20),
    };
    share.max(least) / class.size()
}

/// Pools come in steps of this many bytes.
const STEP: usize = 2 << 20;

impl PoolConfig {
    /// The smallest pool that can lend so many buffers of each class at once, in the order of
    /// [`Class::ALL`]; `None` if no pool can.
    pub fn for_buffers(need: [usize; 3]) -> Option<Self> {
        let mut low = 0;
        let mut high = 1;
        while !Self::steps(high)?.holds(need) {
            low = high;
            high = high.checked_mul(2)?;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if Self::steps(middle)?.holds(need) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Self::steps(high)
    }

    fn steps(count: usize) -> Option<Self> {
        let bytes = count.checked_mul(STEP)?;
        Some(Self { bytes })
    }

    /// Whether a pool of this size can lend so many buffers of each class at once, in the order of
    /// [`Class::ALL`].
    pub fn holds(&self, need: [usize; 3]) -> bool {
        let bytes = self.bytes.next_multiple_of(STEP);
        let mut taken = 0_usize;
        for (class, need) in Class::ALL.into_iter().zip(need) {
            let unit = class.size().max(CARVE_UNIT);
            let buffers = reserve(class, bytes).max(need);
            let Some(more) = buffers
                .div_ceil(unit / class.size())
                .checked_mul(unit)
                .and_then(|more| taken.checked_add(more))
            else {
                return false;
            };
            taken = more;
        }
        taken <= bytes
    }
}

/// The part of an arena that no class has taken yet.
pub(crate) struct Extent {
    arena: Arc<Arena>,
    low: usize,
    high: usize,
}

impl Extent {
    pub fn new(arena: Arc<Arena>) -> Self {
        let high = arena.len() - arena.len() % Class::Large.size();
        Self {
            arena,
            low: 0,
            high,
        }
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Takes memory for `class`: the first byte and the number of buffers. `None` when too little
    /// is left.
    pub fn carve(&mut self, class: Class) -> Option<(usize, usize)> {
        let bytes = class.size().max(CARVE_UNIT);
        if self.high - self.low < bytes {
            return None;
        }
        let start = if class == Class::Large {
            self.high -= bytes;
            self.high
        } else {
            self.low += bytes;
            self.low - bytes
        };
        Some((start, bytes / class.size()))
    }

    /// Buffers of `class` that could be taken, if no other class took any.
    pub fn room(&self, class: Class) -> usize {
        let unit = class.size().max(CARVE_UNIT);
        (self.high - self.low) / unit * (unit / class.size())
    }
}

#[cfg(test)]
mod tests {
    use super::{Extent, reserve};
    use crate::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

    /// Whether a real pool lends them all.
    fn lends(config: PoolConfig, need: [usize; 3]) -> bool {
        let pool = Pool::new(&Registry::new(HugepagePolicy::Off), config).unwrap();
        let mut lent = Vec::new();
        Class::ALL.into_iter().zip(need).all(|(class, count)| {
            let buffers = (0..count).map(|_| pool.try_acquire(class));
            let before = lent.len();
            lent.extend(buffers.map_while(|buffer| buffer));
            lent.len() - before == count
        })
    }

    #[test]
    fn the_smallest_pool_for_a_need_holds_it_and_a_smaller_one_does_not() {
        for need in [
            [0, 0, 0],
            [1, 1, 1],
            [1000, 0, 0],
            [1001, 33, 7],
            [64, 200, 0],
            [0, 0, 21],
            [5000, 1, 1],
        ] {
            let config = PoolConfig::for_buffers(need).unwrap();
            assert!(lends(config, need), "{need:?} from {config:?}");
            let bytes = config.bytes - (2 << 20);
            if bytes > 0 {
                assert!(!lends(PoolConfig { bytes }, need), "{need:?} from {bytes}");
            }
        }
        assert_eq!(PoolConfig::for_buffers([usize::MAX, 0, 0]), None);
        assert_eq!(PoolConfig::for_buffers([0, 0, usize::MAX]), None);
    }

    #[test]
    fn the_reserves_fit_every_pool_and_leave_something_by_need() {
        for mebibytes in (2..64).step_by(2).chain([256, 1024, 65536]) {
            let bytes = mebibytes << 20;
            let reserved: usize = Class::ALL
                .iter()
                .map(|&class| reserve(class, bytes) * class.size())
                .sum();
            assert!(reserved < bytes, "{reserved} of {bytes}");
            assert!(Class::ALL.iter().all(|&class| reserve(class, bytes) > 0));
        }
    }

    #[test]
    fn carving_gives_every_byte_to_one_buffer() {
        let arena = Registry::new(HugepagePolicy::Off).arena(4 << 20).unwrap();
        let mut used = vec![false; arena.len() / 4096];
        let mut extent = Extent::new(arena);
        let mut turns = Class::ALL.iter().cycle();
        let mut misses = 0;
        while misses < Class::ALL.len() {
            let class = *turns.next().unwrap();
            let Some((start, count)) = extent.carve(class) else {
                misses += 1;
                continue;
            };
            misses = 0;
            assert_eq!(start % class.size(), 0);
            for page in &mut used[start / 4096..(start + count * class.size()) / 4096] {
                assert!(!*page);
                *page = true;
            }
        }
        assert!(used.iter().all(|&used| used));
    }
}
