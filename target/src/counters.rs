//! What the programs of one reactor have done: counters with a single writer.
//!
//! The reactor that owns a [`Counters`] writes with plain loads and stores; the metrics of the
//! service read it at any time from any thread.

use std::time::Duration;

use millrace_admin::metrics::{Counter, Histogram};

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

/// Whose procedure was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// NFS version 3.
    Nfs,
    /// MOUNT version 3.
    Mount,
}

impl Program {
    /// The word for it in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Mount => "mount",
        }
    }
}

/// One procedure.
#[derive(Debug, Default)]
pub struct ProcedureCounters {
    /// Calls answered.
    pub calls: Counter,
    /// Of these, with a status other than success.
    pub errors: Counter,
    /// Time from the arrival of the call to the end of the reactor's turn that encoded its reply.
    pub latency: Histogram,
}

impl ProcedureCounters {
    /// Counts one call, but for its latency.
    pub fn record(&self, success: bool) {
        self.calls.add(1);
        if !success {
            self.errors.add(1);
        }
    }

    /// Counts how long one call took.
    pub fn observe(&self, latency: Duration) {
        self.latency
            .observe(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
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
    pub bytes_read: Counter,
    /// Bytes of file data written by clients.
    pub bytes_written: Counter,
    /// Messages that were no RPC calls.
    pub not_calls: Counter,
    /// Calls of another RPC version (`RPC_MISMATCH`).
    pub rpc_mismatch: Counter,
    /// Calls whose credentials were refused (`AUTH_ERROR`).
    pub auth_errors: Counter,
    /// Calls of programs that are not served (`PROG_UNAVAIL`).
    pub program_unavailable: Counter,
    /// Calls of versions that are not served (`PROG_MISMATCH`).
    pub program_mismatch: Counter,
    /// Calls of procedures that do not exist (`PROC_UNAVAIL`).
    pub procedure_unavailable: Counter,
    /// Calls whose arguments did not decode (`GARBAGE_ARGS`).
    pub garbage_arguments: Counter,
    /// Repeated calls answered from the duplicate request cache.
    pub replayed: Counter,
    /// Answers that did not fit what the transport could carry.
    pub too_large: Counter,
    /// Calls from clients that the export does not admit.
    pub not_admitted: Counter,
}

impl Counters {
    /// Counts how long a call of the procedure with this number took.
    pub fn observe(&self, (program, procedure): (Program, u32), took: Duration) {
        let procedures = match program {
            Program::Nfs => &self.nfs[..],
            Program::Mount => &self.mount[..],
        };
        if let Some(slot) = procedures.get(procedure as usize) {
            slot.observe(took);
        }
    }
}
