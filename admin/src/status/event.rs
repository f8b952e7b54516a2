//! Events: what happened, as values of the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DrainPhase, Readiness};

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServiceEvent {
    /// Unique over all runs of servers; `Last-Event-ID` names the last one that a client has.
    pub id: String,
    /// When, in seconds since 1970.
    pub time_seconds: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: Occurrence,
}

/// What happened. Its kind is `event`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Occurrence {
    /// A change of the configuration was made or refused.
    Configuration {
        /// Who.
        author: String,
        /// The client's address; `null` for a change from within the host.
        address: Option<String>,
        /// Such as `patch` or `reload`.
        action: String,
        /// `applied`, or the reason of the refusal in a word, such as `invalid`.
        outcome: String,
        /// The generation in force afterwards.
        generation: u64,
        /// Some of the keys that changed, at most 16.
        keys: Vec<String>,
    },
    /// Something else was ordered: an address was banned, a drain begun, a token was wrong.
    Action {
        /// Who.
        author: String,
        /// The client's address; `null` for an order from within the host.
        address: Option<String>,
        /// In words.
        action: String,
        /// `done`, `not_found`, or the reason of a failure.
        outcome: String,
    },
    /// A client's first connection was made.
    ClientConnected {
        /// Its address.
        address: String,
        /// Its connections.
        connections: u64,
    },
    /// A client's last connection has ended.
    ClientGone {
        /// Its address.
        address: String,
    },
    /// An address may not connect.
    BanBegun {
        /// The address.
        address: String,
        /// For how long.
        seconds: u64,
    },
    /// An address may connect again.
    BanEnded {
        /// The address.
        address: String,
    },
    /// Clients are accepted, or are not any more.
    Readiness {
        /// The state now.
        readiness: Readiness,
    },
    /// A drain has begun, is complete, or has been ended.
    Drain {
        /// The phase now.
        phase: DrainPhase,
    },
    /// A grace period of NFS version 4 has begun or ended.
    Grace {
        /// Whether it lasts.
        active: bool,
    },
    /// A reactor makes no progress.
    ReactorStalled {
        /// Its name.
        name: String,
        /// Its last known activity.
        activity: String,
    },
    /// It makes progress again.
    ReactorRecovered {
        /// Its name.
        name: String,
    },
    /// A listener accepts connections.
    ListenerOpened {
        /// Address and port.
        address: String,
        /// `iwarp`, `verbs` or `tcp`.
        provider: String,
    },
    /// A listener accepts connections no more: it was closed, or its device is gone.
    ListenerClosed {
        /// Address and port.
        address: String,
        /// `iwarp`, `verbs` or `tcp`.
        provider: String,
    },
    /// The store of an export does not work as it should.
    ExportTrouble {
        /// The export.
        path: String,
        /// In words.
        trouble: String,
    },
    /// It works again.
    ExportRecovered {
        /// The export.
        path: String,
    },
    /// Events that are not kept any more.
    Lost {
        /// How many; `null` if the server has been restarted in the meantime.
        count: Option<u64>,
    },
}

impl Occurrence {
    /// The kind, as `event` has it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Configuration { .. } => "configuration",
            Self::Action { .. } => "action",
            Self::ClientConnected { .. } => "client_connected",
            Self::ClientGone { .. } => "client_gone",
            Self::BanBegun { .. } => "ban_begun",
            Self::BanEnded { .. } => "ban_ended",
            Self::Readiness { .. } => "readiness",
            Self::Drain { .. } => "drain",
            Self::Grace { .. } => "grace",
            Self::ReactorStalled { .. } => "reactor_stalled",
            Self::ReactorRecovered { .. } => "reactor_recovered",
            Self::ListenerOpened { .. } => "listener_opened",
            Self::ListenerClosed { .. } => "listener_closed",
            Self::ExportTrouble { .. } => "export_trouble",
            Self::ExportRecovered { .. } => "export_recovered",
            Self::Lost { .. } => "lost",
        }
    }
}
