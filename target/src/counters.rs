//! What the programs of one reactor have done: counters with a single writer.
//!
//! The reactor that owns a [`Counters`] writes with plain loads and stores; the metrics of the
//! service read it at any time from any thread.

use std::time::Duration;

use millrace_primitives::{Counter, Histogram, HistogramSnapshot};
use millrace_wire::nfs3::{Procedure, Status};

use crate::store_times::StoreTimes;

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

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

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
    /// Time from the arrival of the call to the end of the reactor's turn that encoded its reply,
    /// of calls without a [`Size`].
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
        self.latency.observe(nanoseconds(latency));
    }
}

/// What a READ or WRITE moved, by powers of two that tell small, middling and large ones apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// At most 4 KiB.
    Small,
    /// At most 64 KiB.
    Middling,
    /// More, and at most [`crate::nfs3::TRANSFER_MAX`].
    Large,
}

impl Size {
    /// All sizes.
    pub const ALL: [Self; 3] = [Self::Small, Self::Middling, Self::Large];

    /// The size of so many bytes.
    #[must_use]
    pub const fn of(bytes: u32) -> Self {
        match bytes {
            0..=4096 => Self::Small,
            4097..=65_536 => Self::Middling,
            _ => Self::Large,
        }
    }

    /// The word for it in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "le_4k",
            Self::Middling => "le_64k",
            Self::Large => "le_1m",
        }
    }
}

/// What a call was, for its latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    program: Program,
    procedure: u32,
    size: Option<Size>,
}

impl Whose {
    /// A call of the procedure with this number; with a size if it moved data.
    #[must_use]
    pub const fn new(program: Program, procedure: u32, size: Option<Size>) -> Self {
        Self {
            program,
            procedure,
            size,
        }
    }
}

/// Latencies of calls that move data, by [`Size`].
pub type SizedLatency = [Histogram; Size::ALL.len()];

/// Everything that the programs of one reactor count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// NFS version 3, by procedure number.
    pub nfs: [ProcedureCounters; NFS_PROCEDURES.len()],
    /// READs that succeeded, by size.
    pub reads: SizedLatency,
    /// WRITEs that succeeded, by size.
    pub writes: SizedLatency,
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
    /// Calls of MOUNT and NFS from clients that the export does not admit.
    pub not_admitted: Counter,
    /// Failures of NFS calls by status.
    pub statuses: StatusCounters,
    /// How long operations of stores take.
    pub store: StoreTimes,
}

impl Counters {
    /// Counts how long a call took.
    pub fn observe(&self, whose: Whose, took: Duration) {
        let (all, sized) = match whose.program {
            Program::Nfs => (&self.nfs[..], self.sized(whose.procedure)),
            Program::Mount => (&self.mount[..], None),
        };
        if let Some((latencies, size)) = sized.zip(whose.size) {
            latencies[size as usize].observe(nanoseconds(took));
        } else if let Some(slot) = all.get(whose.procedure as usize) {
            slot.observe(took);
        }
    }

    /// The latencies of an NFS procedure by size, if it moves data.
    #[must_use]
    pub fn sized(&self, procedure: u32) -> Option<&SizedLatency> {
        match procedure {
            READ => Some(&self.reads),
            WRITE => Some(&self.writes),
            _ => None,
        }
    }

    /// The latency of all calls of a procedure, whatever their size.
    #[must_use]
    pub fn latency(&self, program: Program, procedure: u32) -> HistogramSnapshot {
        let (all, sized) = match program {
            Program::Nfs => (self.nfs.get(procedure as usize), self.sized(procedure)),
            Program::Mount => (self.mount.get(procedure as usize), None),
        };
        let mut sum = all.map_or_else(HistogramSnapshot::default, |all| all.latency.snapshot());
        for sized in sized.into_iter().flatten() {
            sum.merge(&sized.snapshot());
        }
        sum
    }
}

const READ: u32 = Procedure::Read.number();
const WRITE: u32 = Procedure::Write.number();

/// Failures of NFS calls by status.
#[derive(Debug)]
pub struct StatusCounters([Counter; STATUSES]);

/// All statuses but that of success.
const STATUSES: usize = Status::ALL.len() - 1;

impl Default for StatusCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::new()))
    }
}

impl StatusCounters {
    /// Counts a failure.
    pub fn count(&self, status: Status) {
        let failures = Status::ALL[1..].iter();
        for (_, counter) in failures.zip(&self.0).filter(|(known, _)| **known == status) {
            counter.increment();
        }
    }

    /// Failures by status.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> {
        let failures = Status::ALL[1..].iter().copied();
        failures.zip(self.0.iter().map(Counter::get))
    }
}
