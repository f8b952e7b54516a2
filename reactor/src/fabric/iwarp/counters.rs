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
        for (counter, amount) in [
            (&self.frames_in, &gone.frames_in),
            (&self.frames_out, &gone.frames_out),
            (&self.bytes_in, &gone.bytes_in),
            (&self.bytes_out, &gone.bytes_out),
            (&self.bytes_direct, &gone.bytes_direct),
            (&self.receive_calls, &gone.receive_calls),
            (&self.send_calls, &gone.send_calls),
            (&self.ready_calls, &gone.ready_calls),
            (&self.crc_errors, &gone.crc_errors),
            (&self.terminates_sent, &gone.terminates_sent),
            (&self.terminates_received, &gone.terminates_received),
            (&self.setups_failed, &gone.setups_failed),
            (&self.established, &gone.established),
            (&self.indications_unexpected, &gone.indications_unexpected),
        ] {
            add(counter, amount.load(Ordering::Relaxed));
        }
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
