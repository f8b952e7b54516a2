//! Whether reads of a file find their bytes in the page cache.

use std::cell::Cell;

/// Most reads of a file that are not tried at once after some whose bytes were not in the page
/// cache.
const PAUSE_MOST: u32 = 64;

/// Whether the reads of a file find their bytes in the page cache.
#[derive(Debug, Default)]
pub(super) struct CacheHits {
    /// Reads that are not to be tried, and how many of them after the next miss.
    left: Cell<u32>,
    pause: Cell<u32>,
}

impl CacheHits {
    /// Whether the next read is to be tried.
    pub fn expected(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }

    /// A read has found its bytes.
    pub fn hit(&self) {
        self.pause.set(0);
    }

    /// A read has not found its bytes. Fewer reads are tried with each of these.
    pub fn missed(&self) {
        let pause = (self.pause.get() * 2).clamp(1, PAUSE_MOST);
        self.pause.set(pause);
        self.left.set(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_reads_are_tried_after_misses_and_all_after_a_hit() {
        let hits = CacheHits::default();
        let tried = |count: usize| (0..count).filter(|_| hits.expected()).count();
        assert_eq!(tried(100), 100);
        let mut distance = Vec::new();
        for _ in 0..9 {
            hits.missed();
            distance.push((1..).find(|_| hits.expected()).unwrap());
        }
        assert_eq!(distance, [2, 3, 5, 9, 17, 33, 65, 65, 65]);
        hits.hit();
        assert_eq!(tried(100), 100);
        hits.missed();
        assert_eq!(tried(3), 2);
    }
}
