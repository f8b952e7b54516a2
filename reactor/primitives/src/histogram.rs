//! Latency histograms with one writer.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Counter;

/// The first bucket ends at two to this many nanoseconds: 256 ns.
const FIRST_BITS: u32 = 8;
/// The last bound is two to this many nanoseconds: 34 s.
const LAST_BITS: u32 = 35;
/// Buckets per power of two, as bits: four, so a quantile is at most a quarter off.
const SUB_BITS: u32 = 2;

/// How many buckets: one up to the first bound, four per power of two, one beyond the last.
pub const BUCKETS: usize = 2 + (((LAST_BITS - FIRST_BITS) as usize) << SUB_BITS);

/// Counts of durations by bucket. One thread writes, any thread reads.
///
/// An observation costs two loads and two stores. Bounds are inclusive, as Prometheus wants.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            sum: Counter::new(),
        }
    }
}

impl Histogram {
    /// Counts one duration, in nanoseconds; for the one writer.
    pub fn observe(&self, nanoseconds: u64) {
        self.observe_equal(nanoseconds, 1);
    }

    /// Counts several durations that are equal.
    pub fn observe_equal(&self, nanoseconds: u64, count: u64) {
        let bucket = &self.buckets[bucket_of(nanoseconds)];
        bucket.store(
            bucket.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
        self.sum.add(nanoseconds.saturating_mul(count));
    }

    /// The counts so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum_nanoseconds: self.sum.get(),
        }
    }
}

/// A histogram's counts at one moment, or the sum of several histograms'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    sum_nanoseconds: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            sum_nanoseconds: 0,
        }
    }
}

impl HistogramSnapshot {
    /// Adds another histogram's counts, such as another core's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.sum_nanoseconds = self.sum_nanoseconds.wrapping_add(other.sum_nanoseconds);
    }

    /// What was counted since an earlier snapshot of the same histograms; nothing where less is
    /// counted now, as one of them is gone.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: array::from_fn(|at| self.buckets[at].saturating_sub(earlier.buckets[at])),
            sum_nanoseconds: self.sum_nanoseconds.saturating_sub(earlier.sum_nanoseconds),
        }
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All durations together, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        seconds(self.sum_nanoseconds)
    }

    /// The bound below which this share of the durations lies (0.5 is the median), at most a
    /// quarter above the true value; `None` without durations. Beyond the last bound, the last.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        self.quantiles([share]).map(|[bound]| bound)
    }

    /// The bounds of several shares, like [`HistogramSnapshot::quantile`].
    pub fn quantiles<const SHARES: usize>(
        &self,
        shares: [f64; SHARES],
    ) -> Option<[Duration; SHARES]> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        Some(shares.map(|share| {
            let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count);
            let mut below = 0;
            let buckets = self.buckets[..BUCKETS - 1].iter();
            // Those that are in none of these are beyond the last bound.
            let short = buckets.take_while(|&bucket| {
                below += bucket;
                below < rank
            });
            Duration::from_nanos(upper_bound(short.count().min(BUCKETS - 2)))
        }))
    }

    /// The counts as Prometheus wants them: for each power of two, its seconds and how many
    /// durations are not above it. The bucket without a bound is [`HistogramSnapshot::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut next = 0;
        let mut below = 0;
        (FIRST_BITS..=LAST_BITS).map(move |bits| {
            let end = 1 + (((bits - FIRST_BITS) as usize) << SUB_BITS);
            below += self.buckets[next..end].iter().sum::<u64>();
            next = end;
            (seconds(1 << bits), below)
        })
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn bucket_of(nanoseconds: u64) -> usize {
    // One less, so that a bound belongs to the bucket it ends.
    let value = nanoseconds.saturating_sub(1);
    if value < 1 << FIRST_BITS {
        return 0;
    }
    let bits = value.ilog2();
    let sub = (value >> (bits - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    let at = 1 + (((bits - FIRST_BITS) as usize) << SUB_BITS) + sub;
    at.min(BUCKETS - 1)
}

/// The inclusive upper bound of a bucket, in nanoseconds; not of the last, which has none.
fn upper_bound(bucket: usize) -> u64 {
    let Some(past_first) = bucket.checked_sub(1) else {
        return 1 << FIRST_BITS;
    };
    let bits = FIRST_BITS + (past_first >> SUB_BITS) as u32;
    let sub = (past_first & ((1 << SUB_BITS) - 1)) as u64;
    (1 << bits) + ((sub + 1) << (bits - SUB_BITS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_belong_to_the_bucket_they_end() {
        for bucket in 0..BUCKETS - 1 {
            let bound = upper_bound(bucket);
            assert_eq!(bucket_of(bound), bucket, "{bound}");
            assert_eq!(bucket_of(bound + 1), bucket + 1, "{bound}");
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(upper_bound(BUCKETS - 2), 1 << LAST_BITS);
    }

    #[test]
    fn a_snapshot_since_another_has_what_was_counted_between() {
        let histogram = Histogram::default();
        histogram.observe_equal(1_000_000, 3);
        let earlier = histogram.snapshot();
        histogram.observe_equal(1_000, 2);
        let since = histogram.snapshot().since(&earlier);
        assert_eq!((since.count(), since.sum_seconds()), (2, 2e-6));
        assert!(since.quantile(1.0).unwrap() < Duration::from_micros(2));
        // One of the histograms that were summed is gone.
        assert_eq!(earlier.since(&histogram.snapshot()).count(), 0);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        let empty = Histogram::default().snapshot();
        assert_eq!((empty.count(), empty.quantile(0.5)), (0, None));
        assert_eq!(empty.quantiles([0.5, 0.9]), None);
        assert!(empty.cumulative().all(|(_, count)| count == 0));
    }

    proptest! {
        #[test]
        fn counts_agree_with_the_values(
            one in proptest::collection::vec(0u64..1 << 36, 1..200),
            other in proptest::collection::vec(0u64..1 << 20, 0..50),
        ) {
            let histograms = [Histogram::default(), Histogram::default()];
            one.iter().for_each(|&value| histograms[0].observe(value));
            other.iter().for_each(|&value| histograms[1].observe(value));
            let mut both = HistogramSnapshot::default();
            histograms.iter().for_each(|histogram| both.merge(&histogram.snapshot()));

            let mut values = [one, other].concat();
            values.sort_unstable();
            prop_assert_eq!(both.count(), values.len() as u64);
            prop_assert_eq!(both.sum_nanoseconds, values.iter().sum::<u64>());
            for (bound, count) in both.cumulative() {
                let expected = values.iter().filter(|&&value| value as f64 / 1e9 <= bound).count();
                prop_assert_eq!(count, expected as u64, "le {}", bound);
            }
            let shares = [0.0, 0.5, 0.99, 1.0];
            let each = shares.map(|share| both.quantile(share).unwrap());
            prop_assert_eq!(both.quantiles(shares), Some(each));
            for share in shares {
                let rank = ((share * values.len() as f64).ceil() as usize).max(1);
                let exact = values[rank - 1];
                let bound = both.quantile(share).unwrap().as_nanos() as u64;
                if exact <= 1 << LAST_BITS {
                    prop_assert!(exact <= bound, "{} <= {}", exact, bound);
                    prop_assert!(bound <= (exact + exact / 4 + 1).max(256), "{} near {}", bound, exact);
                }
            }
        }
    }
}
