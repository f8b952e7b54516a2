//! Counters common to all providers.

use millrace_primitives::{Counter, Gauge};

use super::{Ended, WorkError};

/// Counters of one provider; `connections` is a gauge. Written by the provider's reactor only, read
/// by any thread.
#[derive(Debug, Default)]
pub struct FabricCounters {
    /// Connection setups that failed or timed out, and evicted half-open connections.
    pub setups_failed: Counter,
    /// Connections that were established.
    pub established: Counter,
    /// Current connections in any state.
    pub connections: Gauge,
    /// Work requests and receives of each kind.
    pub work: [WorkCounters; WORK_KINDS.len()],
    /// Work requests that failed, by [`FAILURES`].
    pub failures: [Counter; FAILURES.len()],
    /// Established connections that ended, by [`ENDINGS`].
    pub ended: [Counter; ENDINGS.len()],
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
    pub posted: Counter,
    /// Of these, completed with success.
    pub completed: Counter,
    /// Bytes moved by those.
    pub bytes: Counter,
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
        self.failures[kind].add(1);
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
            // Counted as a failed set-up.
            Ended::Setup(_) => return,
        };
        self.ended[kind].add(1);
    }

    /// All counters without gauges, in a fixed order.
    pub fn growing(&self) -> Vec<&Counter> {
        // Destructured completely, so that a new counter is not forgotten here.
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

/// Adds the counts of a removed provider: each of `gone` to its counterpart in `kept`.
pub fn absorb(kept: &[&Counter], gone: &[&Counter]) {
    for (counter, amount) in kept.iter().zip(gone) {
        counter.add(amount.get());
    }
}
