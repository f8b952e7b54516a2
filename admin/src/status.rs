//! The state of the service as values: the bodies of the HTTP API.
//!
//! Sizes are bytes and times are seconds. A list is wrapped in an object under its own name
//! (`{"connections": [...]}`), so that fields can be added beside it.

use millrace_primitives::HistogramSnapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod event;
mod figures;
mod gateways;
mod gss;
mod nfs4;
mod problem;
mod requester;

pub use event::{Occurrence, ServiceEvent};
pub use figures::{Figures, FiguresPoint, ReactorShare};
pub use gateways::{GatewayList, GatewayState, GatewayTakeover};
pub use gss::{GssContext, GssContexts, GssFlushed};
pub use nfs4::{
    AwaitedClient, GraceStatus, ListPage, LockRange, Nfs4Access, Nfs4Callbacks, Nfs4Client,
    Nfs4Clients, Nfs4Revocation, Nfs4State, Nfs4StateFilter, Nfs4StateKind, Nfs4States,
};
pub use problem::{FieldProblem, Problem, ProblemType, ResourceUse};
pub use requester::{RequesterProof, RequesterStatus};

/// The version of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// The program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the API.
    pub api: String,
    /// `release` or `debug`.
    pub profile: String,
    /// The processor architecture it was built for.
    pub architecture: String,
}

impl Version {
    /// This build.
    pub fn current() -> Self {
        Self {
            name: "millraced".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: "v1".to_owned(),
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// Whether the service accepts clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// Not yet: listeners are being opened.
    Starting,
    /// Yes.
    Ready,
    /// No: requests in progress are finished, then the server ends.
    Draining,
    /// Not over RDMA: there is no listener.
    #[serde(rename = "no_listener")]
    NoListener,
}

/// The body of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadinessStatus {
    /// Whether the service accepts clients.
    pub readiness: Readiness,
    /// While the server starts: its current stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

/// A reactor that has made no progress for too long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StalledReactor {
    /// Its name.
    pub name: String,
    /// Its core; `null` if it is not pinned.
    pub core: Option<usize>,
    /// Its last known activity.
    pub activity: String,
    /// Since when, in seconds.
    pub seconds: f64,
}

/// Whether the server works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Reactors without progress; empty if all are healthy.
    pub stalled: Vec<StalledReactor>,
}

/// Latency of requests, from arrival to the end of the turn that encoded the reply. Each number is
/// the upper bound of the histogram bucket that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// The median, in seconds.
    pub p50_seconds: f64,
    /// p90, in seconds.
    pub p90_seconds: f64,
    /// p99, in seconds.
    pub p99_seconds: f64,
    /// p99.9, in seconds.
    pub p999_seconds: f64,
}

impl Latency {
    /// The quantiles of a histogram; `None` if it is empty.
    pub fn of(durations: &HistogramSnapshot) -> Option<Self> {
        let shares = durations.quantiles([0.5, 0.9, 0.99, 0.999])?;
        let [p50_seconds, p90_seconds, p99_seconds, p999_seconds] =
            shares.map(|bound| bound.as_secs_f64());
        Some(Self {
            p50_seconds,
            p90_seconds,
            p99_seconds,
            p999_seconds,
        })
    }
}

/// The limits of a client or an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimits {
    /// Requests per second; `null` for no limit.
    #[schema(minimum = 1)]
    pub iops: Option<u64>,
    /// Bytes of READ and WRITE per second; `null` for no limit.
    #[schema(minimum = 1)]
    pub bandwidth_bytes: Option<u64>,
}

/// A client: an address, summed over its connections and reactors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClientStatus {
    /// The address.
    pub address: String,
    /// Its connections, RDMA and TCP.
    pub connections: u64,
    /// Credits granted now.
    pub credits_granted: u64,
    /// Credits that it requests.
    pub credits_requested: u64,
    /// Credits in use: requests without an answer. The most at once in the latest one to two
    /// seconds, summed over its connections.
    pub credits_used: u64,
    /// Requests that wait for a limit or for its share.
    pub waiting: u64,
    /// Replies held until its RDMA_DONE.
    pub exposures: u64,
    /// Bytes of pool memory that its requests and their replies hold.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Requests answered since it connected.
    pub requests: u64,
    /// Bytes of READ since it connected.
    pub bytes_read: u64,
    /// Bytes of WRITE since it connected.
    pub bytes_written: u64,
    /// Time that its calls had to wait for a limit or for its share, summed over calls.
    pub throttled_seconds: f64,
    /// Its limits in the configuration.
    pub limits: RateLimits,
}

/// A client's connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionStatus {
    /// Unique while the server runs.
    pub id: u64,
    /// The client's address and port.
    pub peer: String,
    /// `iwarp`, `verbs`, or `tcp` for ONC RPC over TCP.
    pub provider: String,
    /// Its RDMA device; `null` if the provider has no devices.
    #[serde(default)]
    pub device: Option<String>,
    /// Its core; `null` if its reactor is not pinned.
    pub core: Option<usize>,
    /// Its age, in seconds.
    pub age_seconds: f64,
    /// The RPC-over-RDMA version of the latest call; `null` before the first, and for TCP.
    pub rpcrdma_version: Option<u32>,
    /// The largest message that the client accepts inline; `null` for TCP.
    pub inline_send_bytes: Option<u64>,
    /// The largest message accepted inline from the client; `null` for TCP.
    pub inline_receive_bytes: Option<u64>,
    /// Credits granted now; `null` for TCP.
    pub credits_granted: Option<u32>,
    /// Credits that the client requests; `null` for TCP.
    pub credits_requested: Option<u32>,
    /// Requests without an answer: the most at once in the latest one to two seconds.
    pub requests_in_flight: u32,
    /// Requests answered.
    pub requests: u64,
    /// Bytes of WRITE.
    pub bytes_written: u64,
    /// Bytes of READ.
    pub bytes_read: u64,
    /// Replies that the client is to fetch, held until its RDMA_DONE.
    pub exposures: u32,
    /// The latency of its requests; `null` before the first.
    pub latency: Option<Latency>,
}

/// A pinned loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactorStatus {
    /// Its name.
    pub name: String,
    /// Its core; `null` if it is not pinned.
    pub core: Option<usize>,
    /// Its connections.
    pub connections: u64,
    /// Tasks that have not ended.
    pub tasks: u64,
    /// Requests without an answer: the most at once in the latest one to two seconds, summed over
    /// its connections.
    #[serde(default)]
    pub requests_in_flight: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Time of turns with work.
    pub busy_seconds: f64,
    /// Time of turns without work, and of sleep.
    pub idle_seconds: f64,
    /// The longest turn since the start.
    pub longest_turn_seconds: f64,
    /// Time since the last turn began.
    pub last_turn_age_seconds: f64,
    /// Messages from other threads.
    pub messages: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Whether the watchdog reports it as stalled.
    pub stalled: bool,
}

/// A reactor's buffers of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    /// The core of the reactor; `null` if it is not pinned.
    pub core: Option<usize>,
    /// The class of buffers.
    pub class: String,
    /// Size of one buffer.
    pub buffer_bytes: u64,
    /// All buffers.
    pub buffers: u64,
    /// Buffers in use.
    pub in_use: u64,
    /// The most in use at once since the start.
    pub high_water: u64,
    /// Requests that wait for one.
    pub waiters: u64,
    /// Requests that had to wait since the start.
    pub waits: u64,
    /// Size of their memory pages.
    pub page_bytes: u64,
}

/// An exported tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExportStatus {
    /// The name that clients mount.
    pub path: String,
    /// The store's kind.
    pub store: String,
    /// `rw` or `ro`.
    pub access: String,
    /// `none`, `root` or `all`.
    pub squash: String,
    /// Networks that may mount.
    pub clients: Vec<String>,
    /// Its capacity in bytes; `null` if the store does not report it.
    pub capacity_bytes: Option<u64>,
    /// Bytes used; `null` if the store does not report them.
    pub used_bytes: Option<u64>,
    /// Files and folders; `null` if the store does not report them.
    pub files: Option<u64>,
    /// Files and folders that it can have; `null` if only the space bounds their number.
    pub capacity_files: Option<u64>,
    /// NFS requests answered.
    pub requests: u64,
    /// Bytes of READ.
    pub bytes_read: u64,
    /// Bytes of WRITE.
    pub bytes_written: u64,
    /// Limits of all its clients together.
    pub limits: RateLimits,
    /// Its folder; absent for stores in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub folder: Option<FolderStatus>,
    /// Its cluster; absent for other kinds of stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cluster: Option<ClusterStatus>,
}

/// The file system of an export of kind ceph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// The configuration file of the cluster.
    pub conf: String,
    /// The cluster's user.
    pub user: String,
    /// The directory that is served.
    pub root: String,
    /// The identity of the file system in file handles, sixteen digits: the same on every server.
    pub identity: String,
    /// `strict` or `relaxed`.
    pub sync: String,
    /// Whether all changes are refused.
    pub read_only: bool,
    /// Whether there is a session with the cluster now.
    pub mounted: bool,
    /// Sessions that the cluster has ended since the start.
    pub lost_sessions: u64,
    /// Threads for names, attributes and data.
    pub helper_threads: u64,
    /// Jobs running on these.
    pub helper_jobs: u64,
    /// Jobs that wait for one.
    pub helper_queue: u64,
    /// Seconds since the last job ended, while jobs are running.
    pub stuck_seconds: f64,
    /// Objects that the store knows.
    pub known_objects: u64,
    /// Files that it keeps open.
    pub open_files: u64,
    /// Operations that clients were asked to repeat later.
    pub delays: u64,
    /// Syncs that failed, so that written data may be lost.
    pub sync_errors: u64,
    /// Changes of the write verifier since the start.
    pub verifier_changes: u64,
}

/// The folder of an export of kind posix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FolderStatus {
    /// The folder.
    pub root: String,
    /// The type of its file system, such as `ext4`; empty if not known.
    pub file_system: String,
    /// Its identity in file handles, sixteen digits: the same on every host with this file system.
    pub identity: String,
    /// Whether file handles remain valid after a restart.
    pub lasting_handles: bool,
    /// Whether the file system is mounted read-only.
    pub read_only: bool,
    /// `auto`, `always` or `never`.
    pub direct: String,
    /// The alignment of direct transfers in bytes; `null` if they are not supported, or it is not
    /// known before a file is open.
    pub direct_alignment: Option<u32>,
    /// `strict` or `relaxed`.
    pub sync: String,
    /// The executor of reads and writes: `ring` (io_uring) or `threads`.
    pub backend: String,
    /// The identity of operations: `caller`, or `server`, the server's own user for all callers
    /// (`identity: server` on a server that lacks the right to act as them). Empty from
    /// servers that do not report it.
    #[serde(default)]
    pub acts_as: String,
    /// Capabilities that the process lacks to serve it in full.
    pub missing_capabilities: Vec<String>,
    /// Threads for names and attributes.
    pub helper_threads: u64,
    /// Jobs running on these.
    pub helper_jobs: u64,
    /// Jobs that wait for one.
    pub helper_queue: u64,
    /// Seconds since the last job ended, while jobs are running.
    pub stuck_seconds: f64,
    /// Reads, writes and syncs of data in progress.
    pub operations: u64,
    /// Of these, those that wait for others to complete.
    pub operations_waiting: u64,
    /// Objects that reactors keep open.
    pub open_objects: u64,
    /// Bytes written and not known to be durable.
    pub dirty_bytes: u64,
    /// Times that writing back failed, so that written data may be lost.
    pub write_back_errors: u64,
    /// Changes of the write verifier since the start.
    pub verifier_changes: u64,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListenerStatus {
    /// Its index in `fabric` of the configuration; `null` for ONC RPC over TCP, and for a removed
    /// one whose last connections have not ended yet.
    pub index: Option<usize>,
    /// `iwarp`, `verbs`, or `tcp` for ONC RPC over TCP.
    pub provider: String,
    /// Address and port as bound.
    pub address: String,
    /// Whether it accepts connections now.
    pub accepting: bool,
    /// Open connections accepted here.
    pub connections: u64,
    /// Connections accepted here since it was opened.
    pub accepted: u64,
}

/// Counters of one procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationStatus {
    /// `nfs` or `mount`.
    pub program: String,
    /// Such as `read`.
    pub procedure: String,
    /// Requests answered.
    pub requests: u64,
    /// Of these, with a status other than success.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Their latency; `null` before the first.
    pub latency: Option<Latency>,
}

/// The parameters of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainOrder {
    /// Seconds until connections are closed even with requests in progress, 0 to 86400.
    #[schema(minimum = 0, maximum = 86400)]
    pub deadline_seconds: f64,
}

/// The phase of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrainPhase {
    /// There is none: clients are served.
    Serving,
    /// Calls in progress are being finished.
    Draining,
    /// No connections are left.
    Drained,
}

/// The progress of a drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainStatus {
    /// Its phase.
    pub phase: DrainPhase,
    /// Seconds until the deadline; `null` unless it drains.
    pub remaining_seconds: Option<f64>,
    /// Connections that are open.
    pub connections: u64,
    /// Requests without an answer.
    pub requests_in_flight: u64,
    /// Replies that clients still have to fetch.
    pub exposures: u64,
}

/// The result of a change on one reactor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactorOutcome {
    /// Its name.
    pub name: String,
    /// Its core; `null` if it is not pinned.
    pub core: Option<usize>,
    /// Whether it has applied the change.
    pub applied: bool,
    /// The reason of the failure; `null` if it is applied.
    pub error: Option<String>,
    /// The time it took, in seconds.
    pub seconds: f64,
}

/// Limits of a capture; the first one reached ends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureBounds {
    /// The most messages, 1 to 1000000.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub messages: u64,
    /// The most bytes of the file, 1024 to 1073741824.
    #[schema(minimum = 1024, maximum = 1_073_741_824_u64)]
    pub bytes: u64,
    /// The most seconds, up to 3600.
    #[schema(minimum = 0, maximum = 3600)]
    pub seconds: f64,
}

impl Default for CaptureBounds {
    fn default() -> Self {
        Self {
            messages: 10_000,
            bytes: 64 << 20,
            seconds: 60.0,
        }
    }
}

/// The body of `/api/v1/clients`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Clients {
    /// All of them or a page, by address.
    pub clients: Vec<ClientStatus>,
    /// `cursor` of the next page; `null` at the end.
    #[serde(default)]
    pub next: Option<String>,
}

/// The response to closing connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Evicted {
    /// How many were closed.
    pub connections: u64,
}

/// The body of `/api/v1/bans`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// By address.
    pub bans: Vec<Ban>,
}

/// An address that may not connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ban {
    /// The address.
    pub address: String,
    /// Seconds until it may connect again, rounded up.
    pub seconds: u64,
}

/// A request to ban a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BanOrder {
    /// Seconds until it may connect again: at least 1, at most 30 days.
    pub seconds: u64,
}

/// The body of `/api/v1/listeners`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Listeners {
    /// All of them, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
}

/// The body of `/api/v1/operations`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operations {
    /// Those with requests.
    pub operations: Vec<OperationStatus>,
}

/// The body of `/api/v1/log`: the filter of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFilter {
    /// Such as `info` or `info,millrace::nfs3=debug`.
    #[schema(
        min_length = 1,
        max_length = 1024,
        example = "info,millrace::nfs3=debug"
    )]
    pub filter: String,
}

/// The body of `/api/v1/connections`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Connections {
    /// All of them or a page, by identifier.
    pub connections: Vec<ConnectionStatus>,
    /// `cursor` of the next page; `null` at the end.
    #[serde(default)]
    pub next: Option<u64>,
}

/// The body of `/api/v1/reactors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReactorList {
    /// All of them, in the order of the configuration.
    pub reactors: Vec<ReactorStatus>,
}

/// The body of `/api/v1/pools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pools {
    /// Every class of every reactor.
    pub pools: Vec<PoolStatus>,
}

/// The body of `/api/v1/exports`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exports {
    /// All of them or a page, by path.
    pub exports: Vec<ExportStatus>,
    /// `cursor` of the next page; `null` at the end.
    #[serde(default)]
    pub next: Option<String>,
}
