//! What a provider has done, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use millrace_iwarp::Tally;

use crate::fabric::{Ended, WorkError};

/// Numbers of one provider that only grow, but for `connections`. The provider's reactor alone
/// writes them; anyone may read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IwarpCounters {
    /// FPDUs received and found good.
    pub frames_in: AtomicU64,
    /// FPDUs sent.
    pub frames_out: AtomicU64,
    /// Bytes received, headers and all.
    pub bytes_in: AtomicU64,
    /// Bytes sent, headers and all.
    pub bytes_out: AtomicU64,
    /// Received bytes that the kernel put straight into registered memory.
    pub bytes_direct: AtomicU64,
    /// Receiving system calls.
    pub receive_calls: AtomicU64,
    /// Sending system calls.
    pub send_calls: AtomicU64,
    /// System calls that asked which sockets are ready.
    pub ready_calls: AtomicU64,
    /// FPDUs with a wrong check value.
    pub crc_errors: AtomicU64,
    /// Terminate messages sent.
    pub terminates_sent: AtomicU64,
    /// Terminate messages received.
    pub terminates_received: AtomicU64,
    /// Connection setups that failed or timed out, and half-open connections pushed out.
    pub setups_failed: AtomicU64,
    /// Connections that were established.
    pub established: AtomicU64,
    /// First messages that proved a peer ready, but were not of an agreed kind.
    pub indications_unexpected: AtomicU64,
    /// Connections now, whatever their state.
    pub connections: AtomicU64,
    /// Work requests and receives of each kind.
    pub work: [WorkCounters; WORK_KINDS.len()],
    /// Work requests that failed, by [`FAILURES`].
    pub failures: [AtomicU64; FAILURES.len()],
    /// Established connections that ended, by [`ENDINGS`].
    pub ended: [AtomicU64; ENDINGS.len()],
}

/// Names of the kinds of work, in the order of [`IwarpCounters::work`].
pub const WORK_KINDS: [&str; 4] = ["send", "write", "read", "receive"];

/// Names of the ways that work requests fail, in the order of [`IwarpCounters::failures`].
pub const FAILURES: [&str; 4] = ["flushed", "remote_access", "local_length", "no_reads"];

/// Names of the ways that connections end, in the order of [`IwarpCounters::ended`].
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

impl WorkCounters {
    /// Takes in what a connection has done since it was counted last.
    pub(super) fn add(&self, now: Tally, before: Tally) {
        for (counter, now, before) in [
            (&self.posted, now.posted, before.posted),
            (&self.completed, now.completed, before.completed),
            (&self.bytes, now.bytes, before.bytes),
        ] {
            if now != before {
                add(counter, now - before);
            }
        }
    }
}

impl IwarpCounters {
    pub(super) fn count_failure(&self, error: WorkError) {
        let kind = match error {
            WorkError::Flushed => 0,
            WorkError::RemoteAccess => 1,
            WorkError::LocalLength => 2,
            WorkError::NoReads => 3,
        };
        add(&self.failures[kind], 1);
    }

    pub(super) fn count_end(&self, reason: &Ended) {
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
}

impl IwarpCounters {
    /// Adds what a provider that is gone has done. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        for (counter, amount) in self.growing().into_iter().zip(gone.growing()) {
            add(counter, amount.load(Ordering::Relaxed));
        }
    }

    /// All numbers that only grow, in one order.
    fn growing(&self) -> Vec<&AtomicU64> {
        // Taken apart whole, so that a new counter is not forgotten here.
        let Self {
            frames_in,
            frames_out,
            bytes_in,
            bytes_out,
            bytes_direct,
            receive_calls,
            send_calls,
            ready_calls,
            crc_errors,
            terminates_sent,
            terminates_received,
            setups_failed,
            established,
            indications_unexpected,
            connections: _,
            work,
            failures,
            ended,
        } = self;
        let mut all = vec![
            frames_in,
            frames_out,
            bytes_in,
            bytes_out,
            bytes_direct,
            receive_calls,
            send_calls,
            ready_calls,
            crc_errors,
            terminates_sent,
            terminates_received,
            setups_failed,
            established,
            indications_unexpected,
        ];
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

/// Adds to a counter that this thread alone writes.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
}

/// Takes one from a counter that this thread alone writes.
pub(super) fn take_one(counter: &AtomicU64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Relaxed,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_grows_is_lost_with_a_provider() {
        let (gone, kept) = (IwarpCounters::default(), IwarpCounters::default());
        for (counter, amount) in gone.growing().into_iter().zip(1..) {
            counter.store(amount, Ordering::Relaxed);
        }
        gone.connections.store(9, Ordering::Relaxed);
        for round in 1..3 {
            kept.absorb(&gone);
            for (counter, amount) in kept.growing().into_iter().zip(1..) {
                assert_eq!(counter.load(Ordering::Relaxed), round * amount);
            }
        }
        assert_eq!(kept.connections.load(Ordering::Relaxed), 0);
    }
}
