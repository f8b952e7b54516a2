//! What a reactor counts: one aligned block per core, one writer, summed by whoever reads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where a worker's work comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Events and flushes of fabric providers.
    Fabric,
    /// Reads and writes of TCP records.
    Records,
    /// Polls of tasks.
    Tasks,
    /// Timers that expired.
    Timers,
    /// Completions of the store.
    Store,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 5] = [
        Self::Fabric,
        Self::Records,
        Self::Tasks,
        Self::Timers,
        Self::Store,
    ];

    /// A word for metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fabric => "fabric",
            Self::Records => "records",
            Self::Tasks => "tasks",
            Self::Timers => "timers",
            Self::Store => "store",
        }
    }
}

/// Counters of one reactor. Only its own thread writes, with plain loads and stores.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreCounters {
    /// When the loop began to turn.
    start: OnceLock<Instant>,
    loops: AtomicU64,
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    sleep_ns: AtomicU64,
    sleeps: AtomicU64,
    longest_loop_ns: AtomicU64,
    messages: AtomicU64,
    last_loop_ns: AtomicU64,
    work: [AtomicU64; 5],
}

impl CoreCounters {
    /// Turns of the loop.
    pub fn loops(&self) -> u64 {
        self.loops.load(Relaxed)
    }

    /// Nanoseconds of turns that found work. For a polled server, the only honest measure of use.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Relaxed)
    }

    /// Nanoseconds of turns that found nothing to do.
    pub fn idle_ns(&self) -> u64 {
        self.idle_ns.load(Relaxed)
    }

    /// Nanoseconds asleep.
    pub fn sleep_ns(&self) -> u64 {
        self.sleep_ns.load(Relaxed)
    }

    /// Times gone to sleep.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Relaxed)
    }

    /// Nanoseconds of the longest turn so far.
    pub fn longest_loop_ns(&self) -> u64 {
        self.longest_loop_ns.load(Relaxed)
    }

    /// Messages handled.
    pub fn messages(&self) -> u64 {
        self.messages.load(Relaxed)
    }

    /// When the latest turn ended, in nanoseconds since the reactor's start.
    pub fn last_loop_ns(&self) -> u64 {
        self.last_loop_ns.load(Relaxed)
    }

    /// Time since the latest turn ended; zero before the first one has begun.
    pub fn last_loop_age(&self, now: Instant) -> Duration {
        let ended = Duration::from_nanos(self.last_loop_ns());
        self.start.get().map_or(Duration::ZERO, |&start| {
            now.saturating_duration_since(start).saturating_sub(ended)
        })
    }

    /// The loop begins to turn.
    pub(crate) fn begin(&self, start: Instant) {
        self.start.get_or_init(|| start);
    }

    /// Units of work done for one source.
    pub fn work(&self, source: Source) -> u64 {
        self.work[source as usize].load(Relaxed)
    }

    /// Adds work of one source. For the worker, on the reactor's own thread only.
    pub fn add_work(&self, source: Source, units: usize) {
        add(&self.work[source as usize], units as u64);
    }

    /// Books a turn that ended at `now_ns`.
    pub(crate) fn end_turn(&self, length_ns: u64, now_ns: u64, busy: bool) {
        add(&self.loops, 1);
        add(if busy { &self.busy_ns } else { &self.idle_ns }, length_ns);
        if length_ns > self.longest_loop_ns.load(Relaxed) {
            self.longest_loop_ns.store(length_ns, Relaxed);
        }
        self.last_loop_ns.store(now_ns, Relaxed);
    }

    pub(crate) fn end_sleep(&self, length_ns: u64) {
        add(&self.sleeps, 1);
        add(&self.sleep_ns, length_ns);
    }

    pub(crate) fn add_messages(&self, messages: usize) {
        add(&self.messages, messages as u64);
    }
}

// One writer: a locked addition would cost four times as much and give nothing.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}
