//! Counters of a reactor: one aligned block per core, one writer, summed by readers.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use millrace_primitives::{Counter, Gauge};

/// The source of a worker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkSource {
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

impl WorkSource {
    /// All sources.
    pub const ALL: [Self; 5] = [
        Self::Fabric,
        Self::Records,
        Self::Tasks,
        Self::Timers,
        Self::Store,
    ];

    /// The name for metric labels.
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
    /// When the first turn began.
    start: OnceLock<Instant>,
    loops: Counter,
    busy_ns: Counter,
    idle_ns: Counter,
    sleep_ns: Counter,
    sleeps: Counter,
    longest_loop_ns: Gauge,
    messages: Counter,
    last_loop_ns: Gauge,
    work: [Counter; 5],
}

impl CoreCounters {
    /// Turns of the loop.
    pub fn loops(&self) -> u64 {
        self.loops.get()
    }

    /// Nanoseconds of turns that found work: the utilization of a polling server.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }

    /// Nanoseconds of turns without work.
    pub fn idle_ns(&self) -> u64 {
        self.idle_ns.get()
    }

    /// Nanoseconds asleep.
    pub fn sleep_ns(&self) -> u64 {
        self.sleep_ns.get()
    }

    /// The number of sleeps.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.get()
    }

    /// Nanoseconds of the longest turn since the start.
    pub fn longest_loop_ns(&self) -> u64 {
        self.longest_loop_ns.get()
    }

    /// Messages handled.
    pub fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// When the latest turn ended, in nanoseconds since the reactor's start.
    pub fn last_loop_ns(&self) -> u64 {
        self.last_loop_ns.get()
    }

    /// Time since the latest turn ended; zero before the first one has begun.
    pub fn last_loop_age(&self, now: Instant) -> Duration {
        let ended = Duration::from_nanos(self.last_loop_ns());
        self.start.get().map_or(Duration::ZERO, |&start| {
            now.saturating_duration_since(start).saturating_sub(ended)
        })
    }

    /// Marks the start of the loop.
    pub(crate) fn begin(&self, start: Instant) {
        self.start.get_or_init(|| start);
    }

    /// Units of work done for one source.
    pub fn work(&self, source: WorkSource) -> u64 {
        self.work[source as usize].get()
    }

    /// Adds work of one source. Called by the worker on the reactor's own thread only.
    pub fn add_work(&self, source: WorkSource, units: usize) {
        self.work[source as usize].add(units as u64);
    }

    /// Records a turn that ended at `now_ns`.
    pub(crate) fn end_turn(&self, length_ns: u64, now_ns: u64, busy: bool) {
        self.loops.add(1);
        let spent = if busy { &self.busy_ns } else { &self.idle_ns };
        spent.add(length_ns);
        self.longest_loop_ns.raise(length_ns);
        self.last_loop_ns.set(now_ns);
    }

    pub(crate) fn end_sleep(&self, length_ns: u64) {
        self.sleeps.add(1);
        self.sleep_ns.add(length_ns);
    }

    pub(crate) fn add_messages(&self, messages: usize) {
        self.messages.add(messages as u64);
    }
}
