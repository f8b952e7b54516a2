//! What the programs of one reactor have done: counters with a single writer.
//!
//! The reactor that owns a [`Counters`] writes with plain loads and stores; the metrics of the
//! service read it at any time from any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a latency histogram: bucket `n` counts latencies below `2^n` microseconds that the
/// bucket before does not; the last counts all the rest.
pub const LATENCY_BUCKETS: usize = 24;

/// Procedures of NFS version 3 (RFC 1813 section 3.3), by number.
pub const NFS_PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

/// Procedures of MOUNT version 3 (RFC 1813 section 5.2), by number.
pub const MOUNT_PROCEDURES: [&str; 6] = ["null", "mnt", "dump", "umnt", "umntall", "export"];

/// A number that one thread writes.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; only the owning thread may.
    pub fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One procedure.
#[derive(Debug, Default)]
pub struct ProcedureCounters {
    /// Calls answered.
    pub calls: Count,
    /// Of these, with a status other than success.
    pub errors: Count,
    /// Time from the arrival of the call to its encoded reply, in nanoseconds, over all calls.
    pub latency_ns: Count,
    /// The same times by size; see [`LATENCY_BUCKETS`].
    pub latency: [Count; LATENCY_BUCKETS],
}

impl ProcedureCounters {
    /// Counts one call.
    pub fn record(&self, latency: Duration, success: bool) {
        self.calls.add(1);
        if !success {
            self.errors.add(1);
        }
        self.latency_ns
            .add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let bits = u128::BITS - latency.as_micros().leading_zeros();
        self.latency[(bits as usize).min(LATENCY_BUCKETS - 1)].add(1);
    }
}

/// Everything that the programs of one reactor count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// NFS version 3, by procedure number.
    pub nfs: [ProcedureCounters; NFS_PROCEDURES.len()],
    /// MOUNT version 3, by procedure number.
    pub mount: [ProcedureCounters; MOUNT_PROCEDURES.len()],
    /// Bytes of file data read by clients.
    pub bytes_read: Count,
    /// Bytes of file data written by clients.
    pub bytes_written: Count,
    /// Messages that were no RPC calls.
    pub not_calls: Count,
    /// Calls of another RPC version (`RPC_MISMATCH`).
    pub rpc_mismatch: Count,
    /// Calls whose credentials were refused (`AUTH_ERROR`).
    pub auth_errors: Count,
    /// Calls of programs that are not served (`PROG_UNAVAIL`).
    pub program_unavailable: Count,
    /// Calls of versions that are not served (`PROG_MISMATCH`).
    pub program_mismatch: Count,
    /// Calls of procedures that do not exist (`PROC_UNAVAIL`).
    pub procedure_unavailable: Count,
    /// Calls whose arguments did not decode (`GARBAGE_ARGS`).
    pub garbage_arguments: Count,
    /// Repeated calls answered from the duplicate request cache.
    pub replayed: Count,
    /// Answers that did not fit what the transport could carry.
    pub too_large: Count,
    /// Calls from clients that the export does not admit.
    pub not_admitted: Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_powers_of_two_microseconds() {
        let counters = ProcedureCounters::default();
        for (micros, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 40, 23)] {
            let before = counters.latency[bucket].get();
            counters.record(Duration::from_micros(micros), true);
            assert_eq!(counters.latency[bucket].get(), before + 1, "{micros} us");
        }
        counters.record(Duration::from_nanos(1), false);
        assert_eq!((counters.calls.get(), counters.errors.get()), (7, 1));
    }
}
