//! The last hour of single exports and clients.
//!
//! Only the management plane samples; a reactor does nothing for it. Intervals without calls are not
//! stored. A series takes 80 bytes for each interval with calls, 56 KiB if there were calls all the
//! time, and about 200 bytes if there were none. An export takes 2.7 KiB more for the latest reading
//! of its latencies. All exports and clients together take at most 19 MiB, and each client that is
//! known 100 bytes.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use millrace_primitives::HistogramSnapshot;

use super::ranking::{self, KEPT_FOR, RANK_AFTER};
use super::{INTERVAL, POINTS};
use crate::status::Latency;

/// Counts of calls on one export or of one client. They only grow while it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// Calls answered.
    pub requests: u64,
    /// Of these, with a status other than success.
    pub errors: u64,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
}

/// Latencies of calls on one export.
#[derive(Clone, Debug, Default)]
pub struct CallLatencies {
    /// Of calls that read file data.
    pub read: HistogramSnapshot,
    /// Of calls that wrote file data.
    pub write: HistogramSnapshot,
    /// Of other calls.
    pub other: HistogramSnapshot,
}

/// One export or client at one moment.
#[derive(Clone, Debug)]
pub struct ItemSample<K> {
    /// The path or the address.
    pub key: K,
    /// What was done so far.
    pub totals: CallTotals,
    /// How long that took; `None` for clients, whose latencies no reactor keeps together.
    pub latencies: Option<Box<CallLatencies>>,
}

/// What was done in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ItemPoint {
    /// The number of the interval.
    pub tick: u32,
    pub requests: u32,
    pub errors: u32,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Quantiles of reads, writes and other calls, in nanoseconds; all zero without any. Bounds of
    /// histograms have three significant bits, so that this type holds them exactly.
    latencies: [[f32; 4]; 3],
}

const _: () = assert!(size_of::<ItemPoint>() == 80);

/// Histories of items by their keys, for a bounded number of them: the busiest, if there are more.
/// One that is gone keeps its history until it is an hour old or its place is needed.
#[derive(Debug)]
pub(super) struct SeriesTable<K> {
    most: usize,
    /// Whether the counts of an item that appears begin at zero.
    from_zero: bool,
    /// The items at the latest sample.
    known: HashMap<K, KnownItem>,
    series: HashMap<K, ItemSeries>,
}

#[derive(Debug)]
struct KnownItem {
    totals: CallTotals,
    latencies: Option<Box<CallLatencies>>,
    /// Its totals at the last ranking.
    ranked: CallTotals,
    activity: u64,
}

#[derive(Debug)]
struct ItemSeries {
    /// The first interval.
    since: u32,
    /// The latest interval in which the item was there.
    until: u32,
    /// Those with calls.
    points: VecDeque<ItemPoint>,
}

const fn ticks(time: std::time::Duration) -> u32 {
    (time.as_secs() / INTERVAL.as_secs()) as u32
}

impl<K: Clone + Eq + Hash + Ord> SeriesTable<K> {
    pub fn new(most: usize, from_zero: bool) -> Self {
        Self {
            most,
            from_zero,
            known: HashMap::new(),
            series: HashMap::new(),
        }
    }

    /// Takes the first sample, from which on there are intervals.
    pub fn begin(&mut self, samples: Vec<ItemSample<K>>) {
        let known = samples.into_iter().map(|sample| {
            let item = KnownItem {
                totals: sample.totals,
                latencies: sample.latencies,
                ranked: sample.totals,
                activity: 0,
            };
            (sample.key, item)
        });
        self.known = known.collect();
    }

    /// Notes what was done in an interval. Numbers of intervals are consecutive.
    pub fn note(&mut self, tick: u32, samples: Vec<ItemSample<K>>) {
        let ranks = tick.is_multiple_of(ticks(RANK_AFTER));
        let mut before = std::mem::take(&mut self.known);
        let mut points = Vec::new();
        for sample in samples {
            let earlier = before.remove(&sample.key);
            let base = match &earlier {
                Some(earlier) => earlier.totals,
                None if self.from_zero => CallTotals::default(),
                None => sample.totals,
            };
            let done = sample.totals.since(&base);
            if done != CallTotals::default() {
                let latencies = match (&sample.latencies, &earlier) {
                    (Some(now), Some(earlier)) => now.since(earlier.latencies.as_deref()),
                    _ => Default::default(),
                };
                points.push((sample.key.clone(), ItemPoint::new(tick, &done, latencies)));
            }
            let (mut ranked, mut activity) =
                earlier.map_or((base, 0), |earlier| (earlier.ranked, earlier.activity));
            if ranks {
                let done = sample.totals.since(&ranked);
                let bytes = done.bytes_read.saturating_add(done.bytes_written);
                activity = ranking::activity(activity, done.requests, bytes);
                ranked = sample.totals;
            }
            let item = KnownItem {
                totals: sample.totals,
                latencies: sample.latencies,
                ranked,
                activity,
            };
            self.known.insert(sample.key, item);
        }
        self.expire(tick);
        self.choose(tick, ranks);
        for (key, point) in points {
            if let Some(series) = self.series.get_mut(&key) {
                series.push(point);
            }
        }
        for (key, series) in &mut self.series {
            if self.known.contains_key(key) {
                series.until = tick;
            }
        }
    }

    /// The intervals of an item from one of them on, without gaps; none if it has no history.
    pub fn of(&self, key: &K, first: u32) -> Vec<ItemPoint> {
        let Some(series) = self.series.get(key) else {
            return Vec::new();
        };
        let mut points = series.points.iter().copied().peekable();
        let first = series.since.max(first);
        while points.next_if(|point| point.tick < first).is_some() {}
        let all = (first..=series.until).map(|tick| {
            let with_calls = points.next_if(|point| point.tick == tick);
            with_calls.unwrap_or(ItemPoint {
                tick,
                ..ItemPoint::default()
            })
        });
        all.collect()
    }

    /// Drops what is older than an hour.
    fn expire(&mut self, tick: u32) {
        let first = (tick + 1).saturating_sub(POINTS as u32);
        self.series.retain(|_, series| {
            while series.points.front().is_some_and(|one| one.tick < first) {
                series.points.pop_front();
            }
            series.since = series.since.max(first);
            series.until >= first
        });
    }

    /// Begins the series of those that have none.
    fn choose(&mut self, tick: u32, ranks: bool) {
        if !ranks && self.series.len() >= self.most {
            return;
        }
        let known = self.known.iter();
        let without = known.filter(|(key, _)| !self.series.contains_key(*key));
        let mut waiting: Vec<(u64, K)> = without
            .map(|(key, item)| (item.activity, key.clone()))
            .collect();
        waiting.sort_unstable_by(|(busy, key), (other, second)| {
            (Reverse(busy), key).cmp(&(Reverse(other), second))
        });
        for (activity, key) in waiting {
            if self.series.len() >= self.most {
                let Some(other) = self.replaced(tick, activity) else {
                    break;
                };
                self.series.remove(&other);
            }
            let series = ItemSeries {
                since: tick,
                until: tick,
                points: VecDeque::new(),
            };
            self.series.insert(key, series);
        }
    }

    /// The series that ends for an item with this activity: that which ended first, else that of the
    /// least busy.
    fn replaced(&self, tick: u32, activity: u64) -> Option<K> {
        let rank = |key: &K, series: &ItemSeries| match self.known.get(key) {
            None => (0, series.until, 0),
            Some(item) => (1, 0, item.activity),
        };
        let ends = |series: &ItemSeries, key: &K| match self.known.get(key) {
            None => activity > 0,
            Some(item) => {
                tick >= series.since + ticks(KEPT_FOR) && ranking::replaces(activity, item.activity)
            }
        };
        let candidates = self.series.iter();
        let candidates = candidates.filter(|(key, series)| ends(series, key));
        let least = candidates.min_by_key(|(key, series)| (rank(key, series), (*key).clone()));
        least.map(|(key, _)| key.clone())
    }
}

impl ItemSeries {
    /// Adds the latest interval. Room is doubled, but not beyond that for an hour.
    fn push(&mut self, point: ItemPoint) {
        let held = self.points.len();
        if held == self.points.capacity() {
            let more = held.max(16).min(POINTS.saturating_sub(held)).max(1);
            self.points.reserve_exact(more);
        }
        self.points.push_back(point);
    }
}

impl CallTotals {
    /// What was done since `earlier`. An item that went and came back counts from zero.
    fn since(&self, earlier: &Self) -> Self {
        if self.requests < earlier.requests {
            return *self;
        }
        Self {
            requests: self.requests - earlier.requests,
            errors: self.errors.saturating_sub(earlier.errors),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}

impl CallLatencies {
    /// Quantiles of what was timed since `earlier`, in nanoseconds.
    fn since(&self, earlier: Option<&Self>) -> [[f32; 4]; 3] {
        let all = |of: fn(&Self) -> &HistogramSnapshot| {
            let since = match earlier {
                Some(earlier) => of(self).since(of(earlier)),
                None => of(self).clone(),
            };
            Latency::of(&since).map_or([0.0; 4], nanoseconds)
        };
        [
            all(|one| &one.read),
            all(|one| &one.write),
            all(|one| &one.other),
        ]
    }
}

#[allow(clippy::cast_possible_truncation)] // Bounds of histograms are exact in this type.
fn nanoseconds(latency: Latency) -> [f32; 4] {
    let Latency {
        p50_seconds,
        p90_seconds,
        p99_seconds,
        p999_seconds,
    } = latency;
    [p50_seconds, p90_seconds, p99_seconds, p999_seconds]
        .map(|seconds| (seconds * 1e9).round() as f32)
}

impl ItemPoint {
    fn new(tick: u32, done: &CallTotals, latencies: [[f32; 4]; 3]) -> Self {
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            tick,
            requests: count(done.requests),
            errors: count(done.errors),
            bytes_read: done.bytes_read,
            bytes_written: done.bytes_written,
            latencies,
        }
    }

    /// Latencies of reads, writes and other calls.
    pub fn latencies(&self) -> [Option<Latency>; 3] {
        self.latencies.map(|quantiles| {
            let [p50_seconds, p90_seconds, p99_seconds, p999_seconds] =
                quantiles.map(|nanoseconds| f64::from(nanoseconds) / 1e9);
            (quantiles != [0.0; 4]).then_some(Latency {
                p50_seconds,
                p90_seconds,
                p99_seconds,
                p999_seconds,
            })
        })
    }
}

#[cfg(test)]
mod tests;
