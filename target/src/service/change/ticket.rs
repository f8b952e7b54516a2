//! Data between the thread that requests a change and the reactors.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::Sender;
use millrace_admin::config::{self, ConfigProblem};
use millrace_mempool::UnusedArena;
use millrace_reactor::PollMode;
use millrace_reactor::fabric::QueuePairLimits;
use millrace_store::Time;

use super::exports::ExportVolumes;
use crate::rdma::{FabricId, Settings};
use crate::rpcbind::Offers;
use crate::service::devices::Devices;
use crate::service::plan::ProviderCounters;
use crate::state::StateTerms;

/// A change in progress.
pub struct Change {
    /// Listeners to be added.
    pub listeners: Vec<NewListener>,
    /// The new address of RPC over TCP.
    pub rpc: Option<SocketAddr>,
    /// The exports, if they change.
    pub exports: Option<ExportVolumes>,
    /// When it was made: clients see the same time on all reactors.
    pub made: Time,
    /// The devices for listeners.
    pub devices: Option<Devices>,
    /// The decision, once all reactors have answered or one has not.
    pub decision: OnceLock<ChangeDecision>,
}

/// A listener to be added.
pub struct NewListener {
    /// Its identifier.
    pub id: FabricId,
    /// Its index in the configuration.
    pub index: usize,
    /// Its configuration.
    pub fabric: config::Fabric,
    /// Limits of its connections.
    pub limits: QueuePairLimits,
    /// The removed listener at the same address, whose socket is taken over.
    pub replaces: Option<FabricId>,
    /// The address of another listener at the same port, which is removed once this one is open.
    pub behind: Option<SocketAddr>,
}

/// The decision on a change.
pub enum ChangeDecision {
    /// It is applied, by all reactors.
    Commit(Box<Commit>),
    /// It is aborted, by all reactors.
    Abort,
}

/// The actions of a reactor to apply a change; none of them can fail.
pub struct Commit {
    /// The settings of the responder.
    pub settings: Settings,
    /// The polling mode.
    pub poll: PollMode,
    /// Additional memory, by reactor, to be taken once; empty if there is none.
    pub arenas: Vec<Mutex<Option<UnusedArena>>>,
    /// The addresses for the port mapper, if they change.
    pub offers: Option<Arc<Offers>>,
    /// Removed listeners.
    pub removed: Vec<FabricId>,
    /// Terms of the state of NFS version 4's clients.
    pub state_terms: StateTerms,
    /// Limits of kept listeners.
    pub limits: Vec<(FabricId, QueuePairLimits)>,
}

/// The result of a reactor's preparation.
#[derive(Debug, Default)]
pub struct Ready {
    /// The addresses of new listeners, if this reactor has them.
    pub fabric: Vec<(FabricId, SocketAddr)>,
    /// The address of RPC over TCP, if it changes and this reactor has it.
    pub rpc: Option<SocketAddr>,
    /// The counters of its new providers.
    pub counters: Vec<ProviderCounters>,
}

/// Why a change is not possible: the key and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRefused {
    /// Such as `fabric[1].listen`.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl ChangeRefused {
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

impl From<ConfigProblem> for ChangeRefused {
    fn from(problem: ConfigProblem) -> Self {
        Self::new(problem.path.to_string(), problem.message)
    }
}

/// A reactor's answer.
#[derive(Debug)]
pub enum ReactorAnswer {
    /// Everything that can fail is done, or has failed.
    Prepared(Result<Ready, ChangeRefused>),
    /// The change is applied.
    Applied,
}

/// A change in the form for one reactor.
pub struct ChangeTicket {
    /// The change.
    pub change: Arc<Change>,
    /// The reactor's number in answers.
    pub reactor: usize,
    /// Receives two answers of each reactor without waiting.
    pub answers: Sender<(usize, ReactorAnswer)>,
}

impl ChangeTicket {
    /// Answers. The receiver may be gone.
    pub fn answer(&self, answer: ReactorAnswer) {
        let _ = self.answers.try_send((self.reactor, answer));
    }
}

/// The addresses to listen on after a drain.
pub struct Resume {
    /// Listeners and their addresses.
    pub fabric: Vec<(FabricId, SocketAddr)>,
    /// RPC over TCP.
    pub rpc: Option<SocketAddr>,
}
