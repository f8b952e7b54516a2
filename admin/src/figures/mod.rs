//! What the service has done in the last hour, so that a page that is opened now shows it: all of it
//! together, on each export, and for each of the busiest clients.

pub mod ranking;
mod series;

use std::collections::VecDeque;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use millrace_primitives::HistogramSnapshot;

use crate::status::{FiguresPoint, Latency, ReactorShare};
pub use series::{CallLatencies, CallTotals, ItemSample};
use series::{ItemPoint, SeriesTable};

/// The time between two points.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Points that are kept: an hour.
const POINTS: usize = 720;
/// Most exports with a history: as many as a configuration may have.
const EXPORTS_MAX: usize = 256;
/// Most clients with a history.
const CLIENTS_MAX: usize = 64;

/// What the service has done since its start. Numbers only grow.
#[derive(Clone, Debug, Default)]
pub struct ServiceTotals {
    /// Calls answered.
    pub requests: u64,
    /// Of these, with a status other than success.
    pub errors: u64,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
    /// Latency of calls that read file data.
    pub read: HistogramSnapshot,
    /// Latency of calls that wrote file data.
    pub write: HistogramSnapshot,
    /// Latency of other calls on exports.
    pub other: HistogramSnapshot,
    /// The reactors, always in the same order.
    pub reactors: Vec<ReactorTime>,
}

/// How a reactor has spent its time.
#[derive(Clone, Debug, Default)]
pub struct ReactorTime {
    /// Its name.
    pub name: String,
    /// Time with work.
    pub busy: Duration,
    /// Time without, and asleep.
    pub idle: Duration,
}

/// The exports and clients at one moment.
#[derive(Clone, Debug, Default)]
pub struct ItemSamples {
    /// The exports that are served.
    pub exports: Vec<ItemSample<String>>,
    /// The clients that are known.
    pub clients: Vec<ItemSample<IpAddr>>,
}

/// The figures of the last hour.
#[derive(Debug, Default)]
pub struct FigureHistory {
    kept: Mutex<KeptFigures>,
}

#[derive(Debug)]
struct KeptFigures {
    last: Option<(Instant, ServiceTotals)>,
    points: VecDeque<FiguresPoint>,
    /// The number of the first of `points`.
    first: u32,
    exports: SeriesTable<String>,
    clients: SeriesTable<IpAddr>,
}

impl Default for KeptFigures {
    fn default() -> Self {
        Self {
            last: None,
            points: VecDeque::new(),
            first: 0,
            // Counts of an export outlive its removal.
            exports: SeriesTable::new(EXPORTS_MAX, false),
            clients: SeriesTable::new(CLIENTS_MAX, true),
        }
    }
}

impl FigureHistory {
    fn kept(&self) -> MutexGuard<'_, KeptFigures> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was done since the last call. To be called once per [`INTERVAL`].
    pub fn note(
        &self,
        now: Instant,
        time: SystemTime,
        totals: ServiceTotals,
        samples: ItemSamples,
    ) {
        let mut kept = self.kept();
        if let Some((then, before)) = kept.last.replace((now, totals))
            && let Some((_, totals)) = &kept.last
        {
            let point = point(now - then, time, &before, totals);
            if kept.points.len() == POINTS {
                kept.points.pop_front();
                kept.first += 1;
            }
            kept.points.push_back(point);
            let tick = kept.first + kept.points.len() as u32 - 1;
            kept.exports.note(tick, samples.exports);
            kept.clients.note(tick, samples.clients);
        } else {
            kept.exports.begin(samples.exports);
            kept.clients.begin(samples.clients);
        }
    }

    /// The points that end after a time, in milliseconds since 1970.
    pub fn after(&self, unix_milliseconds: u64) -> Vec<FiguresPoint> {
        let kept = self.kept();
        let points = kept.points.iter();
        points
            .filter(|point| point.unix_milliseconds > unix_milliseconds)
            .cloned()
            .collect()
    }

    /// The same of one export; none if it has no history.
    pub fn of_export(&self, path: &str, unix_milliseconds: u64) -> Vec<FiguresPoint> {
        let kept = self.kept();
        kept.of_item(&kept.exports, &path.to_owned(), unix_milliseconds)
    }

    /// The same of one client; none if it has no history.
    pub fn of_client(&self, address: IpAddr, unix_milliseconds: u64) -> Vec<FiguresPoint> {
        let kept = self.kept();
        kept.of_item(&kept.clients, &address, unix_milliseconds)
    }
}

impl KeptFigures {
    fn of_item<K: Clone + Eq + Hash + Ord>(
        &self,
        items: &SeriesTable<K>,
        key: &K,
        after: u64,
    ) -> Vec<FiguresPoint> {
        // Times of intervals are those of the service's.
        let skipped = self
            .points
            .partition_point(|point| point.unix_milliseconds <= after);
        let points = items.of(key, self.first + skipped as u32);
        let point = |point: ItemPoint| {
            let frame = self.points.get((point.tick - self.first) as usize)?;
            Some(of_interval(&point, frame))
        };
        points.into_iter().filter_map(point).collect()
    }
}

#[allow(clippy::cast_precision_loss)] // Figures for people.
fn of_interval(point: &ItemPoint, frame: &FiguresPoint) -> FiguresPoint {
    let rate = |number: u64| number as f64 / frame.seconds;
    let [read, write, other] = point.latencies();
    FiguresPoint {
        unix_milliseconds: frame.unix_milliseconds,
        seconds: frame.seconds,
        requests: rate(point.requests.into()),
        errors: rate(point.errors.into()),
        bytes_read: rate(point.bytes_read),
        bytes_written: rate(point.bytes_written),
        read,
        write,
        other,
        reactors: Vec::new(),
    }
}

#[allow(clippy::cast_precision_loss)] // Figures for people.
fn point(
    elapsed: Duration,
    time: SystemTime,
    before: &ServiceTotals,
    totals: &ServiceTotals,
) -> FiguresPoint {
    let seconds = elapsed.as_secs_f64().max(1e-3);
    let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let latency = |now: &HistogramSnapshot, then| Latency::of(&now.since(then));
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH);
    let reactors = totals.reactors.iter().zip(&before.reactors);
    FiguresPoint {
        unix_milliseconds: u64::try_from(since_1970.unwrap_or_default().as_millis())
            .unwrap_or(u64::MAX),
        seconds,
        requests: rate(totals.requests, before.requests),
        errors: rate(totals.errors, before.errors),
        bytes_read: rate(totals.bytes_read, before.bytes_read),
        bytes_written: rate(totals.bytes_written, before.bytes_written),
        read: latency(&totals.read, &before.read),
        write: latency(&totals.write, &before.write),
        other: latency(&totals.other, &before.other),
        reactors: reactors
            .map(|(now, then)| {
                let busy = now.busy.saturating_sub(then.busy).as_secs_f64();
                let idle = now.idle.saturating_sub(then.idle).as_secs_f64();
                ReactorShare {
                    name: now.name.clone(),
                    busy: busy / (busy + idle).max(1e-9),
                }
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use millrace_primitives::Histogram;

    use super::*;

    #[test]
    fn a_point_tells_what_was_done_since_the_last_one() {
        let (history, latency) = (FigureHistory::default(), Histogram::default());
        let totals = |scale: u64| ServiceTotals {
            requests: 100 * scale,
            errors: scale,
            bytes_read: 1000 * scale,
            bytes_written: 10 * scale,
            read: latency.snapshot(),
            reactors: vec![ReactorTime {
                name: "reactor-0".to_owned(),
                busy: Duration::from_secs(scale),
                idle: Duration::from_secs(3 * scale),
            }],
            ..ServiceTotals::default()
        };
        let start = Instant::now();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        latency.observe_equal(1_000_000, 50);
        history.note(start, at(100), totals(1), ItemSamples::default());
        assert_eq!(history.after(0), [], "one reading is no interval");
        latency.observe_equal(1_000, 50);
        history.note(start + INTERVAL, at(105), totals(6), ItemSamples::default());
        let points = history.after(0);
        let [point] = &points[..] else {
            panic!("{points:?}");
        };
        assert_eq!(point.unix_milliseconds, 105_000);
        let rates = [point.requests, point.errors, point.bytes_read];
        assert_eq!(rates, [100.0, 1.0, 1000.0]);
        assert_eq!((point.bytes_written, point.seconds), (10.0, 5.0));
        // Not of the slow calls before.
        let read = point.read.as_ref().expect("calls");
        assert!(read.p999_seconds < 2e-6, "{read:?}");
        assert_eq!(point.write, None);
        assert_eq!(point.reactors[0].busy, 0.25);
    }

    #[test]
    fn an_hour_is_kept_and_told_from_a_time_on() {
        let history = FigureHistory::default();
        let start = Instant::now();
        for number in 0..=POINTS as u32 + 10 {
            let time = INTERVAL * number;
            let totals = ServiceTotals::default();
            let samples = ItemSamples::default();
            history.note(start + time, SystemTime::UNIX_EPOCH + time, totals, samples);
        }
        let points = history.after(0);
        assert_eq!(points.len(), POINTS);
        let latest = points[POINTS - 1].unix_milliseconds;
        assert_eq!(latest - points[0].unix_milliseconds, 5_000 * 719);
        assert_eq!(history.after(latest - 5_000), points[POINTS - 1..]);
        assert_eq!(history.after(latest), []);
    }
}
