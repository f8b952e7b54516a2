//! The state of NFS version 4's clients, as values of the API.
//!
//! Owners are arbitrary bytes. Those that are not printable ASCII are written as `\x00`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a client of NFS version 4 can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Nfs4Callbacks {
    /// By at least one connection.
    Up,
    /// Not now: it has lost its connections for callbacks, or refuses callbacks.
    Down,
    /// Not now: client and server disagree about the slots.
    Faulty,
    /// It never offered a connection.
    Never,
}

/// A client of NFS version 4: one that has named itself with EXCHANGE_ID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Nfs4Client {
    /// Its client ID, 16 hexadecimal digits.
    pub id: String,
    /// The name that it gives itself.
    pub owner: String,
    /// The address that its latest session came from; `null` before the first.
    pub address: Option<String>,
    /// The minor version that it used there.
    pub minor_version: Option<u32>,
    /// Its sessions.
    pub sessions: u64,
    /// The connections that it has bound to them, as `/api/v1/connections` numbers them. It may use
    /// others.
    pub connections: Vec<u64>,
    /// Whether it can be called.
    pub callbacks: Nfs4Callbacks,
    /// Whether a session has confirmed it.
    pub confirmed: bool,
    /// The time since then, or since it named itself.
    pub age_seconds: f64,
    /// How long its lease lasts, if it stays silent.
    pub lease_left_seconds: f64,
    /// How long ago its lease ran out; `null` while it has one. Others may take its state then.
    pub silent_seconds: Option<f64>,
    /// How long its state is kept all the same while nobody else wants it; `null` while it has a
    /// lease.
    pub courtesy_left_seconds: Option<f64>,
    /// Whether it may still reclaim state that it had before the server's restart.
    pub reclaims: bool,
    /// Whether it has a durable record, and so may reclaim its state after a restart.
    pub recorded: bool,
    /// Its opens.
    pub opens: u64,
    /// Its lock owners with locks of a file.
    pub lock_owners: u64,
    /// Its locked ranges.
    pub locked_ranges: u64,
    /// Its delegations.
    pub delegations: u64,
    /// State that was revoked, and of which it has not taken note.
    pub revoked: u64,
}

/// The body of `/api/v1/nfs4/clients`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Nfs4Clients {
    /// Some of the clients.
    pub clients: Vec<Nfs4Client>,
    /// `after` of the next page; `null` at the end.
    pub next: Option<u32>,
}

/// The kinds of state of NFS version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Nfs4StateKind {
    /// A file opened by an open owner.
    Open,
    /// The locks of a lock owner on a file.
    Lock,
    /// A delegation of a file.
    Delegation,
    /// State that was revoked, and of which the client has not taken note.
    Revoked,
}

/// Reading, writing, both or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Nfs4Access {
    /// Neither.
    None,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    Both,
}

/// Why state was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nfs4Revocation {
    /// The client's lease had run out, and another client wanted what the state blocked.
    LeaseExpired,
    /// An operator ordered it.
    Administrative,
    /// The delegation was recalled, and not returned in time.
    NotReturned,
}

/// A locked range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockRange {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes; `null` for all bytes from the first one on.
    pub length: Option<u64>,
    /// Whether others may not read there, either.
    pub exclusive: bool,
}

/// A piece of state of a client of NFS version 4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Nfs4State {
    /// Its stateid without the sequence number, 24 hexadecimal digits.
    pub stateid: String,
    /// What it is.
    pub kind: Nfs4StateKind,
    /// The ID of its client.
    pub client: String,
    /// The address that the client's latest session came from.
    pub address: Option<String>,
    /// The export of its file; `null` if that is no longer exported.
    pub export: Option<String>,
    /// The file, as the export's store names it, in hexadecimal digits.
    pub file: String,
    /// The time since it was granted first.
    pub age_seconds: f64,
    /// The open owner or lock owner; `null` for others.
    pub owner: Option<String>,
    /// What an open or a delegation allows.
    pub access: Option<Nfs4Access>,
    /// What an open denies to others.
    pub deny: Option<Nfs4Access>,
    /// The first locked ranges; empty for others than locks.
    pub ranges: Vec<LockRange>,
    /// All of its locked ranges.
    pub range_count: u64,
    /// Requests for locks of this file that were denied and wait; for locks only.
    pub waiting: u64,
    /// How long ago a delegation was recalled; `null` if it was not.
    pub recalled_seconds: Option<f64>,
    /// How long the client has to return it.
    pub return_within_seconds: Option<f64>,
    /// Why it was revoked.
    pub revocation: Option<Nfs4Revocation>,
}

/// The body of `/api/v1/nfs4/states`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Nfs4States {
    /// Some of the states.
    pub states: Vec<Nfs4State>,
    /// `after` of the next page; `null` at the end. A page may be empty before the end.
    pub next: Option<u32>,
}

/// A client that the grace period waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwaitedClient {
    /// The name that it gave itself.
    pub owner: String,
    /// Its present client ID; `null` if it has not returned.
    pub client: Option<String>,
}

/// The grace period after a start of the server: clients reclaim their state, and new state is
/// refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraceStatus {
    /// Whether it lasts.
    pub active: bool,
    /// How long at most, unless a client prolongs it by reclaiming in the last seconds.
    pub left_seconds: f64,
    /// How many clients it waits for.
    pub waits_for: u64,
    /// Some of them.
    pub awaited: Vec<AwaitedClient>,
}

/// Which states of NFS version 4 are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nfs4StateFilter {
    /// Of the client with this ID.
    pub client: Option<u64>,
    /// Of clients whose latest sessions came from this address.
    pub address: Option<IpAddr>,
    /// Of this kind.
    pub kind: Option<Nfs4StateKind>,
    /// Of this export.
    pub export: Option<String>,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// Where it begins: 0, or `next` of the page before.
    pub after: u32,
    /// Most items.
    pub limit: usize,
}
