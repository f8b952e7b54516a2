//! What goes between the thread that asks for a change and the reactors.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_channel::Sender;
use millrace_admin::config::{self, ConfigProblem};
use millrace_mempool::UnusedArena;
use millrace_reactor::PollMode;
use millrace_reactor::fabric::QueuePairLimits;

use super::exports::ExportVolumes;
use crate::rdma::{FabricId, Settings};
use crate::rpcbind::Offers;
use crate::service::devices::Devices;
use crate::service::plan::ProviderCounters;

/// A change on its way.
pub struct Change {
    /// Listeners to be added.
    pub listeners: Vec<NewListener>,
    /// Where RPC over TCP shall listen instead.
    pub rpc: Option<SocketAddr>,
    /// The exports, if they change.
    pub exports: Option<ExportVolumes>,
    /// The devices that listeners may be on.
    pub devices: Option<Devices>,
    /// What is to become of it, once all reactors have answered or one has not.
    pub decision: OnceLock<ChangeDecision>,
}

/// A listener to be added.
pub struct NewListener {
    /// Its name.
    pub id: FabricId,
    /// Its place in the configuration.
    pub index: usize,
    /// What the configuration says of it.
    pub fabric: config::Fabric,
    /// Limits of its connections.
    pub limits: QueuePairLimits,
    /// The listener at the same address, which goes: its socket is taken over.
    pub replaces: Option<FabricId>,
    /// Where another one listens at the same port that goes once this one is there.
    pub behind: Option<SocketAddr>,
}

/// What is to become of a change.
pub enum ChangeDecision {
    /// It is put in force, by all reactors.
    Commit(Box<Commit>),
    /// It is given up, by all reactors.
    Abort,
}

/// What a reactor has to do to put a change in force; none of it can fail.
pub struct Commit {
    /// What the responder goes by.
    pub settings: Settings,
    /// How to wait for work.
    pub poll: PollMode,
    /// More memory, by reactor, to be taken once; empty if there is none to add.
    pub arenas: Vec<Mutex<Option<UnusedArena>>>,
    /// What the port mapper tells, if that changes.
    pub offers: Option<Arc<Offers>>,
    /// Listeners that go.
    pub removed: Vec<FabricId>,
    /// Limits of listeners that stay.
    pub limits: Vec<(FabricId, QueuePairLimits)>,
}

/// What a reactor has made ready.
#[derive(Debug, Default)]
pub struct Ready {
    /// Where new listeners listen, where this reactor has them.
    pub fabric: Vec<(FabricId, SocketAddr)>,
    /// Where RPC over TCP listens, if that changes and this reactor has it.
    pub rpc: Option<SocketAddr>,
    /// What its new providers count.
    pub counters: Vec<ProviderCounters>,
}

/// Why a change cannot be: the key at fault and what stands in its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRefused {
    /// Such as `fabric[1].listen`.
    pub path: String,
    /// What stands in the way.
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

/// What a reactor answers.
#[derive(Debug)]
pub enum ReactorAnswer {
    /// All that can fail is done, or has failed.
    Prepared(Result<Ready, ChangeRefused>),
    /// It works by the change.
    Applied,
}

/// A change as it reaches one reactor.
pub struct ChangeTicket {
    /// The change.
    pub change: Arc<Change>,
    /// The reactor's number, with which it answers.
    pub reactor: usize,
    /// Takes two answers of each reactor without waiting.
    pub answers: Sender<(usize, ReactorAnswer)>,
}

impl ChangeTicket {
    /// Answers. Whoever asked may have gone.
    pub fn answer(&self, answer: ReactorAnswer) {
        let _ = self.answers.try_send((self.reactor, answer));
    }
}

/// Where to listen again after a drain.
pub struct Resume {
    /// Listeners and their addresses.
    pub fabric: Vec<(FabricId, SocketAddr)>,
    /// RPC over TCP.
    pub rpc: Option<SocketAddr>,
}
