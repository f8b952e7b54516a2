//! Division of a pool's memory: a reserve for each class, and the rest by demand.

use crate::{Class, PoolConfig};

/// Parts that a buffer is split into: buffers of the next smaller class.
pub(crate) const PARTS: usize = Class::Medium.size() / Class::Control.size();

const _: () = assert!(Class::Large.size() == PARTS * Class::Medium.size());

/// The reserves of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserves {
    /// Buffers of the middle class that stay split.
    pub control: usize,
    /// Buffers of the middle class.
    pub medium: usize,
    /// Buffers of the largest class that stay split, for the two above.
    pub split: usize,
    /// Buffers of the largest class that are never split.
    pub large: usize,
}

impl Reserves {
    /// The reserves of a pool of so many bytes.
    pub fn of(bytes: usize) -> Self {
        let buffers = |class: Class| {
            let (share, least) = match class {
                Class::Control => (bytes / 16, 256 << 10),
                Class::Medium => (bytes / 4, 512 << 10),
                Class::Large => (bytes / 4, 1 << 20),
            };
            share.max(least) / class.size()
        };
        let control = buffers(Class::Control).div_ceil(PARTS);
        let medium = buffers(Class::Medium);
        Self {
            control,
            medium,
            split: (control + medium).div_ceil(PARTS),
            large: buffers(Class::Large),
        }
    }
}

/// The size of a pool is a multiple of this, in bytes.
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
        let Some(bytes) = self.bytes.checked_next_multiple_of(STEP) else {
            return false;
        };
        let [control, medium, large] = need;
        let reserves = Reserves::of(bytes);
        // Buffers of the middle class beyond the reserves and the parts that were split for them.
        let beside = reserves.split * PARTS - reserves.control - reserves.medium;
        let control = control.div_ceil(PARTS).saturating_sub(reserves.control);
        let medium = medium.saturating_sub(reserves.medium);
        let more = control.saturating_add(medium).saturating_sub(beside);
        let taken = more
            .div_ceil(PARTS)
            .saturating_add(large.max(reserves.large))
            .saturating_add(reserves.split);
        taken <= bytes / Class::Large.size()
    }
}

#[cfg(test)]
mod tests {
    use super::Reserves;
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
            let reserves = Reserves::of(bytes);
            let buffers = [reserves.control, reserves.medium, reserves.large];
            assert!(buffers.iter().all(|&buffers| buffers > 0));
            let middle = reserves.control + reserves.medium;
            let reserved = middle * Class::Medium.size() + reserves.large * Class::Large.size();
            assert!(reserved < bytes, "{reserved} of {bytes}");
            assert!(reserves.split + reserves.large <= mebibytes);
        }
    }
}
