//! What is running, as values: the bodies of the HTTP API.
//!
//! Sizes are bytes and times are seconds. A list is wrapped in an object under its own name
//! (`{"connections": [...]}`), so that fields can be added beside it.

use serde::{Deserialize, Serialize};

/// Which program answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Whether clients should come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// Not yet: listeners are being opened.
    Starting,
    /// Yes.
    Ready,
    /// No more: requests under way are finished, then the server ends.
    Draining,
}

/// A reactor that has not looked for work for too long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StalledReactor {
    /// Its name.
    pub name: String,
    /// Its core; `null` if it is not pinned.
    pub core: Option<usize>,
    /// What it was doing when it was last seen.
    pub activity: String,
    /// Since when, in seconds.
    pub seconds: f64,
}

/// Whether the server works.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Reactors that do not turn; empty when all is well.
    pub stalled: Vec<StalledReactor>,
}

/// A client's connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Unique while the server runs.
    pub id: u64,
    /// The client's address and port.
    pub peer: String,
    /// `iwarp`, `verbs`, or `tcp` for ONC RPC over TCP.
    pub provider: String,
    /// The core it lives on; `null` if its reactor is not pinned.
    pub core: Option<usize>,
    /// Since when it is open, in seconds.
    pub age_seconds: f64,
    /// The RPC-over-RDMA version of the latest call; `null` before the first, and for TCP.
    pub rpcrdma_version: Option<u32>,
    /// The largest message the client takes inline; `null` for TCP.
    pub inline_send_bytes: Option<u64>,
    /// The largest message taken inline from the client; `null` for TCP.
    pub inline_receive_bytes: Option<u64>,
    /// Credits granted now; `null` for TCP.
    pub credits_granted: Option<u32>,
    /// Credits the client wishes for; `null` for TCP.
    pub credits_requested: Option<u32>,
    /// Requests not answered yet.
    pub requests_in_flight: u32,
    /// Requests answered.
    pub requests: u64,
    /// Bytes moved out of the client's memory by RDMA: data of WRITEs and long calls.
    pub bytes_written: u64,
    /// Bytes moved to the client by RDMA: data of READs and long replies.
    pub bytes_read: u64,
    /// Replies that the client is to fetch, and that are held until its RDMA_DONE.
    pub exposures: u32,
}

/// A pinned loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReactorStatus {
    /// Its name.
    pub name: String,
    /// Its core; `null` if it is not pinned.
    pub core: Option<usize>,
    /// Connections that live on it.
    pub connections: u64,
    /// Tasks that have not ended.
    pub tasks: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Time of turns with work.
    pub busy_seconds: f64,
    /// Time of turns without work, and of sleep.
    pub idle_seconds: f64,
    /// The longest turn so far.
    pub longest_turn_seconds: f64,
    /// Since the last turn began.
    pub last_turn_age_seconds: f64,
    /// Messages from other threads.
    pub messages: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Whether the watchdog holds it for stalled.
    pub stalled: bool,
}

/// A reactor's buffers of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The core of the reactor; `null` if it is not pinned.
    pub core: Option<usize>,
    /// The class of buffers.
    pub class: String,
    /// Size of one buffer.
    pub buffer_bytes: u64,
    /// Buffers there are.
    pub buffers: u64,
    /// Buffers handed out.
    pub in_use: u64,
    /// The most handed out at once so far.
    pub high_water: u64,
    /// Requests that wait for one.
    pub waiters: u64,
    /// Requests that had to wait so far.
    pub waits: u64,
    /// Size of the memory pages under them.
    pub page_bytes: u64,
}

/// An exported tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The name clients mount.
    pub path: String,
    /// The store's kind.
    pub store: String,
    /// `rw` or `ro`.
    pub access: String,
    /// `none`, `root` or `all`.
    pub squash: String,
    /// Networks that may mount.
    pub clients: Vec<String>,
    /// Bytes it can hold; `null` if the store does not say.
    pub capacity_bytes: Option<u64>,
    /// Bytes it holds; `null` if the store does not say.
    pub used_bytes: Option<u64>,
    /// Files and folders; `null` if the store does not say.
    pub files: Option<u64>,
}

/// The body of `/api/v1/connections`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// All of them.
    pub connections: Vec<ConnectionStatus>,
}

/// The body of `/api/v1/reactors`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reactors {
    /// All of them, in the order of the configuration.
    pub reactors: Vec<ReactorStatus>,
}

/// The body of `/api/v1/pools`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pools {
    /// Every class of every reactor.
    pub pools: Vec<PoolStatus>,
}

/// The body of `/api/v1/exports`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exports {
    /// All of them, in the order of the configuration.
    pub exports: Vec<ExportStatus>,
}

/// The body of an answer that is no success (RFC 9457), of type `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A name for the kind of problem; `about:blank` when the status says it all.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
}
