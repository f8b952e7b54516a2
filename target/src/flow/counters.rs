//! Counters of flow control on one reactor. The reactor writes, any thread may read.

use std::time::Duration;

use millrace_primitives::{Counter, Gauge};
use millrace_wire::rpcrdma::Version;

/// Why a client got less than requested, or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The limit of the client.
    ClientLimit,
    /// The limit of an export.
    ExportLimit,
    /// The client's share of the reactor's memory, of calls in service, or of a turn.
    Share,
    /// The reactor's memory is short.
    PoolPressure,
    /// Memory is advertised for read-chunk replies that wait for RDMA_DONE.
    Exposures,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 5] = [
        Self::ClientLimit,
        Self::ExportLimit,
        Self::Share,
        Self::PoolPressure,
        Self::Exposures,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientLimit => "client_limit",
            Self::ExportLimit => "export_limit",
            Self::Share => "share",
            Self::PoolPressure => "pool_pressure",
            Self::Exposures => "exposures",
        }
    }
}

/// Versions of RPC-over-RDMA.
pub const VERSIONS: [Version; 2] = [Version::One, Version::Two];

/// Flow control of one reactor.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FlowCounters {
    /// Credits announced last, over all connections.
    pub granted: Gauge,
    /// Credits that clients request, over all connections.
    pub requested: Gauge,
    /// Unanswered calls.
    pub used: Gauge,
    /// The most of them at once in the latest one to two seconds.
    pub used_peak: Gauge,
    /// Replies withheld now for lack of credits.
    pub withheld: Gauge,
    /// Replies that were withheld.
    pub withheld_total: Counter,
    /// Clients with connections.
    pub clients: Gauge,
    /// Calls that have a task.
    pub tasks: Gauge,
    /// Calls that wait for a task.
    pub backlog: Gauge,
    /// Calls that panicked, and ended their connections.
    pub panics: Counter,
    /// Connections refused because their client has reached its share, or because no buffers are
    /// free for them.
    pub turned_away: Counter,
    /// Connections ended because their clients answered RDMA Reads too slowly.
    pub stuck_reads: Counter,
    /// Connections ended because their clients received data too slowly.
    pub stuck_sends: Counter,
    /// Connections by the version of their latest call.
    versions: [Gauge; VERSIONS.len()],
    throttled: [Counter; Cause::ALL.len()],
    cuts: [Counter; Cause::ALL.len()],
}

impl FlowCounters {
    /// Moves a connection from one version to another.
    pub fn count_version(&self, before: Option<Version>, after: Option<Version>) {
        for (gauge, version) in self.versions.iter().zip(VERSIONS) {
            gauge.sub(u64::from(before == Some(version)));
            gauge.add(u64::from(after == Some(version)));
        }
    }

    /// Connections by the version of their latest call, as in [`VERSIONS`].
    #[must_use]
    pub fn versions(&self) -> [u64; VERSIONS.len()] {
        [0, 1].map(|at| self.versions[at].get())
    }

    /// Adds time that calls or replies had to wait, by cause.
    pub fn add_throttled(&self, cause: Cause, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.throttled[cause as usize].add(nanoseconds);
    }

    /// Time that calls and replies had to wait, by cause.
    #[must_use]
    pub fn throttled(&self, cause: Cause) -> Duration {
        Duration::from_nanos(self.throttled[cause as usize].get())
    }

    /// Counts a reduced grant, by cause.
    pub fn add_cut(&self, cause: Cause) {
        self.cuts[cause as usize].add(1);
    }

    /// Reduced grants, by cause.
    #[must_use]
    pub fn cuts(&self, cause: Cause) -> u64 {
        self.cuts[cause as usize].get()
    }
}
