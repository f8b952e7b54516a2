//! Counters of the programs of one reactor, with a single writer.
//!
//! The reactor that owns a [`ProgramsCounters`] writes with plain loads and stores; the metrics of
//! the service read it at any time from any thread.

use std::time::Duration;

use millrace_primitives::{Counter, Histogram, HistogramSnapshot};

use super::program::{DataDirection, ProgramInfo};

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
    /// The same of calls that succeeded, by size, if the procedure moves file data.
    pub sized: Option<Box<SizedLatency>>,
}

impl ProcedureCounters {
    /// Counts one call, but for its latency.
    fn record(&self, success: bool) {
        self.calls.add(1);
        if !success {
            self.errors.add(1);
        }
    }

    /// The latency of all calls of any size.
    #[must_use]
    pub fn all_latencies(&self) -> HistogramSnapshot {
        let mut sum = self.latency.snapshot();
        for sized in self.sized.iter().flat_map(|sized| sized.iter()) {
            sum.merge(&sized.snapshot());
        }
        sum
    }
}

/// Size classes of READ and WRITE, bounded by powers of two: small, medium and large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// At most 4 KiB.
    Small,
    /// At most 64 KiB.
    Middling,
    /// More.
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

/// The kinds of calls that latencies are measured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallKind {
    program: usize,
    procedure: u32,
    size: Option<Size>,
}

impl CallKind {
    /// A call of the procedure with this number, of the program at this place in the table; with a
    /// size if it succeeded.
    pub const fn new(program: usize, procedure: u32, size: Option<Size>) -> Self {
        Self {
            program,
            procedure,
            size,
        }
    }
}

/// Latencies of calls that move data, by [`Size`].
pub type SizedLatency = [Histogram; Size::ALL.len()];

/// Counters of the procedures of one program.
#[derive(Debug)]
pub struct ProgramCounters {
    /// The program.
    pub info: &'static ProgramInfo,
    /// By number; empty for programs that are not counted.
    pub procedures: Box<[ProcedureCounters]>,
}

impl ProgramCounters {
    fn new(info: &'static ProgramInfo) -> Self {
        let counted = if info.counted { info.procedures } else { &[] };
        let procedures = counted.iter().map(|procedure| ProcedureCounters {
            sized: procedure.data.map(|_| Box::default()),
            ..ProcedureCounters::default()
        });
        Self {
            info,
            procedures: procedures.collect(),
        }
    }
}

/// Everything that the programs of one reactor count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ProgramsCounters {
    /// By place in the table.
    pub programs: Box<[ProgramCounters]>,
    /// Bytes of file data read by clients.
    pub bytes_read: Counter,
    /// Bytes of file data written by clients.
    pub bytes_written: Counter,
    /// Messages that were no RPC calls.
    pub not_calls: Counter,
    /// Calls of another RPC version (`RPC_MISMATCH`).
    pub rpc_mismatch: Counter,
    /// Calls refused for their credentials (`AUTH_ERROR`).
    pub auth_errors: Counter,
    /// Calls of programs that are not served (`PROG_UNAVAIL`).
    pub program_unavailable: Counter,
    /// Calls of versions that are not served (`PROG_MISMATCH`).
    pub program_mismatch: Counter,
    /// Calls of procedures that do not exist (`PROC_UNAVAIL`).
    pub procedure_unavailable: Counter,
    /// Calls with arguments that did not decode (`GARBAGE_ARGS`).
    pub garbage_arguments: Counter,
    /// Repeated calls answered from the duplicate request cache.
    pub replayed: Counter,
    /// Answers that did not fit what the transport could carry.
    pub too_large: Counter,
    /// Calls of MOUNT and NFS from clients that the export does not admit.
    pub not_admitted: Counter,
}

impl ProgramsCounters {
    pub(super) fn new(infos: Vec<&'static ProgramInfo>) -> Self {
        Self {
            programs: infos.into_iter().map(ProgramCounters::new).collect(),
            ..Self::default()
        }
    }

    fn procedure(&self, program: usize, procedure: u32) -> Option<&ProcedureCounters> {
        self.programs
            .get(program)?
            .procedures
            .get(procedure as usize)
    }

    /// Counts one call, but for its latency.
    pub(super) fn record(&self, program: usize, procedure: u32, success: bool) {
        if let Some(counters) = self.procedure(program, procedure) {
            counters.record(success);
        }
    }

    /// Counts how long calls took each.
    pub(super) fn observe(&self, kind: CallKind, took: Duration, calls: u64) {
        let Some(counters) = self.procedure(kind.program, kind.procedure) else {
            return;
        };
        let latency = match counters.sized.as_deref().zip(kind.size) {
            Some((sized, size)) => &sized[size as usize],
            None => &counters.latency,
        };
        latency.observe_equal(nanoseconds(took), calls);
    }

    /// File data moved, if a procedure moves any.
    #[must_use]
    pub fn bytes(&self, direction: DataDirection) -> u64 {
        match direction {
            DataDirection::Read => self.bytes_read.get(),
            DataDirection::Write => self.bytes_written.get(),
        }
    }
}
