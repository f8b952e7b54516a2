//! What every provider counts of its connections and their work.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Ended, WorkError};

/// Numbers of one provider that only grow, but for `connections`. The provider's reactor alone
/// writes them; anyone may read.
#[derive(Debug, Default)]
pub struct FabricCounters {
    /// Connection setups that failed or timed out, and half-open connections pushed out.
    pub setups_failed: AtomicU64,
    /// Connections that were established.
    pub established: AtomicU64,
    /// Connections now, whatever their state.
    pub connections: AtomicU64,
    /// Work requests and receives of each kind.
    pub work: [WorkCounters; WORK_KINDS.len()],
    /// Work requests that failed, by [`FAILURES`].
    pub failures: [AtomicU64; FAILURES.len()],
    /// Established connections that ended, by [`ENDINGS`].
    pub ended: [AtomicU64; ENDINGS.len()],
}

/// Names of the kinds of work, in the order of [`FabricCounters::work`].
pub const WORK_KINDS: [&str; 4] = ["send", "write", "read", "receive"];

/// Names of the ways that work requests fail, in the order of [`FabricCounters::failures`].
pub const FAILURES: [&str; 4] = ["flushed", "remote_access", "local_length", "no_reads"];

/// Names of the ways that connections end, in the order of [`FabricCounters::ended`].
pub const ENDINGS: [&str; 6] = [
    "local",
    "peer",
    "terminate_received",
    "terminate_sent",
    "timed_out",
    "network",
];

/// Work requests, or receives, of one kind.
#[derive(Debug, Default)]
pub struct WorkCounters {
    /// Posted.
    pub posted: AtomicU64,
    /// Of these, carried out.
    pub completed: AtomicU64,
    /// Bytes that those moved.
    pub bytes: AtomicU64,
}

impl FabricCounters {
    /// Counts a work request that did not succeed.
    pub fn count_failure(&self, error: WorkError) {
        let kind = match error {
            WorkError::Flushed => 0,
            WorkError::RemoteAccess => 1,
            WorkError::LocalLength => 2,
            WorkError::NoReads => 3,
        };
        add(&self.failures[kind], 1);
    }

    /// Counts an established connection that ended.
    pub fn count_end(&self, reason: &Ended) {
        let kind = match reason {
            Ended::Local => 0,
            Ended::Peer => 1,
            Ended::TerminateReceived(_) => 2,
            Ended::TerminateSent(_) => 3,
            Ended::TimedOut(_) => 4,
            Ended::Network(_) => 5,
            // Counted as a set-up that failed.
            Ended::Setup(_) => return,
        };
        add(&self.ended[kind], 1);
    }

    /// All numbers that only grow, in one order.
    pub fn growing(&self) -> Vec<&AtomicU64> {
        // Taken apart whole, so that a new counter is not forgotten here.
        let Self {
            setups_failed,
            established,
            connections: _,
            work,
            failures,
            ended,
        } = self;
        let mut all = vec![setups_failed, established];
        for WorkCounters {
            posted,
            completed,
            bytes,
        } in work
        {
            all.extend([posted, completed, bytes]);
        }
        all.extend(failures);
        all.extend(ended);
        all
    }
}

/// Adds what providers that are gone have done: each of `gone` to its like in `kept`.
pub fn absorb(kept: &[&AtomicU64], gone: &[&AtomicU64]) {
    for (counter, amount) in kept.iter().zip(gone) {
        add(counter, amount.load(Ordering::Relaxed));
    }
}

/// Adds to a counter that this thread alone writes.
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
}

/// Takes one from a counter that this thread alone writes.
pub fn take_one(counter: &AtomicU64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Relaxed,
    );
}
