//! The interface of the service for the management plane.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, ConfigProblem};
use crate::status::{
    CaptureBounds, ClientStatus, ConnectionStatus, DrainOrder, DrainStatus, ExportStatus, Health,
    ListenerStatus, OperationStatus, PoolStatus, ReactorOutcome, ReactorStatus, Readiness,
};

/// The service as the management plane sees it; the service implements it.
///
/// The API calls it on threads that may block, never on a reactor. A call may send messages to
/// reactors and wait for their snapshots. The API stops waiting after its time for a response; the
/// call itself runs to its end.
pub trait Control: Send + Sync + 'static {
    /// Whether the service accepts clients.
    fn readiness(&self) -> Readiness;

    /// Whether all reactors make progress. Must not wait for a reactor.
    fn health(&self) -> Health;

    /// The configuration in force: where a key needs a restart, the value that the service runs
    /// with, whatever was asked for since.
    fn config(&self) -> Arc<Config>;

    /// What is wrong with a configuration that only the running service can tell: cores that the
    /// process may not use, a log filter that does not parse. Changes nothing. The rules of
    /// [`crate::config::validate`] hold already.
    fn check(&self, next: &Config) -> Vec<ConfigProblem>;

    /// Puts `next` in force on every reactor, and answers when all have it. `next` differs from
    /// [`Control::config`] in keys that can change while the service runs only
    /// ([`crate::config::live_part`]).
    ///
    /// # Errors
    ///
    /// Some part cannot be had (a port is taken, there is no memory, a reactor does not answer).
    /// Everything is as before then, and [`Control::config`] with it.
    fn apply(&self, next: Arc<Config>) -> Result<Applied, ApplyError>;

    /// The clients of the moment: addresses with connections, and what each of them uses.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn clients(&self) -> Result<Vec<ClientStatus>, ControlError>;

    /// The connections of the moment.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn connections(&self) -> Result<Vec<ConnectionStatus>, ControlError>;

    /// Closes a connection. False if there is none with this identifier.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn evict(&self, connection: u64) -> Result<bool, ControlError>;

    /// The reactors of the moment.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn reactors(&self) -> Result<Vec<ReactorStatus>, ControlError>;

    /// The buffer pools of the moment.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn pools(&self) -> Result<Vec<PoolStatus>, ControlError>;

    /// The exports of the moment.
    ///
    /// # Errors
    ///
    /// A store did not answer.
    fn exports(&self) -> Result<Vec<ExportStatus>, ControlError>;

    /// Where connections are accepted.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn listeners(&self) -> Result<Vec<ListenerStatus>, ControlError>;

    /// Requests by procedure, over all reactors since the start. Must not wait for a reactor.
    fn operations(&self) -> Vec<OperationStatus>;

    /// Takes no more connections and calls, finishes those in service, and closes connections as
    /// they fall idle, or all of them at the deadline. Asked again while it drains, it goes on with
    /// the new deadline. The service goes on to run, and answers through the API, when it is
    /// drained.
    ///
    /// # Errors
    ///
    /// A reactor takes no messages.
    fn drain(&self, order: DrainOrder) -> Result<DrainStatus, ControlError>;

    /// How far a drain has come.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn drain_status(&self) -> Result<DrainStatus, ControlError>;

    /// Serves again: listens, and takes connections and calls.
    ///
    /// # Errors
    ///
    /// A listener's address cannot be had any more, or a reactor takes no messages.
    fn cancel_drain(&self) -> Result<DrainStatus, ControlError>;

    /// Copies the RPC-over-RDMA messages of a connection from now on. `None` if there is no such
    /// connection.
    ///
    /// # Errors
    ///
    /// The connection cannot be captured, or is captured already.
    fn capture(
        &self,
        connection: u64,
        bounds: &CaptureBounds,
    ) -> Result<Option<Box<dyn CaptureStream>>, ControlError>;
}

/// A capture that is under way; dropping it ends it.
pub trait CaptureStream: Send {
    /// The next bytes of the capture file, its header first; waits for at most `timeout`.
    /// An empty vector says that there are none yet, `None` that the capture has ended.
    ///
    /// # Errors
    ///
    /// The reactor that captures has gone.
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>>;
}

/// The service could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Not now: who or what did not answer.
    #[error("{0}")]
    Unavailable(String),
    /// Not as things are: what stands in the way.
    #[error("{0}")]
    Conflict(String),
}

/// A configuration was put in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// How each reactor took it.
    pub reactors: Vec<ReactorOutcome>,
    /// Parts outside the reactors that are as they were, each with its key and the reason.
    pub pending: Vec<String>,
}

/// A configuration could not be put in force; the one before it is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ApplyError {
    /// The key that could not be put in force, such as `fabric[1].listen`; the section where no
    /// single key is at fault.
    pub path: String,
    /// What stood in the way.
    pub reason: String,
    /// How each reactor fared.
    pub reactors: Vec<ReactorOutcome>,
}
