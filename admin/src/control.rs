//! The interface of the service for the management plane.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, ConfigProblem};
use crate::figures::{ItemSamples, ServiceTotals};
use crate::status::{
    Ban, CaptureBounds, ClientStatus, ConnectionStatus, DrainOrder, DrainStatus, ExportStatus,
    GatewayList, GatewayTakeover, GraceStatus, GssContexts, Health, ListPage, ListenerStatus,
    Nfs4Client, Nfs4Clients, Nfs4State, Nfs4StateFilter, Nfs4States, OperationStatus, PoolStatus,
    ReactorOutcome, ReactorStatus, Readiness,
};

/// The service as the management plane sees it; the service implements it.
///
/// The API calls it on threads that may block, never on a reactor. A call may send messages to
/// reactors and wait for their snapshots. The API stops waiting at its timeout; the call itself
/// runs to its end.
pub trait Control: Send + Sync + 'static {
    /// Whether the service accepts clients.
    fn readiness(&self) -> Readiness;

    /// Whether all reactors make progress. Must not wait for a reactor.
    fn health(&self) -> Health;

    /// The configuration in force: for keys that need a restart, the running value, whatever was
    /// requested since.
    fn config(&self) -> Arc<Config>;

    /// Errors of a configuration that only the running service can find: cores that the process may
    /// not use, a log filter that does not parse. Changes nothing. The rules of
    /// [`crate::config::validate`] are already checked.
    fn check(&self, next: &Config) -> Vec<ConfigProblem>;

    /// Applies `next` on every reactor, and returns when all have it. `next` differs from
    /// [`Control::config`] only in keys that can change while the service runs
    /// ([`crate::config::live_part`]).
    ///
    /// # Errors
    ///
    /// Some part cannot be applied (a port is in use, memory is exhausted, a reactor does not
    /// answer). Then everything, including [`Control::config`], is as before.
    fn apply(&self, next: Arc<Config>) -> Result<Applied, ApplyError>;

    /// The current clients: addresses with connections, and their use of resources.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn clients(&self) -> Result<Vec<ClientStatus>, ControlError>;

    /// The current connections.
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

    /// Refuses connections of an address for a time. Those that it has stay.
    ///
    /// # Errors
    ///
    /// Too many addresses are banned.
    fn ban(&self, address: IpAddr, time: Duration) -> Result<(), ControlError>;

    /// Lifts the ban of an address. False if there is none. Must not wait for a reactor.
    fn lift_ban(&self, address: IpAddr) -> bool;

    /// The banned addresses, by address. Must not wait for a reactor.
    fn bans(&self) -> Vec<Ban>;

    /// The current reactors.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn reactors(&self) -> Result<Vec<ReactorStatus>, ControlError>;

    /// The current buffer pools.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn pools(&self) -> Result<Vec<PoolStatus>, ControlError>;

    /// The current exports.
    ///
    /// # Errors
    ///
    /// A store did not answer.
    fn exports(&self) -> Result<Vec<ExportStatus>, ControlError>;

    /// The listeners.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn listeners(&self) -> Result<Vec<ListenerStatus>, ControlError>;

    /// Requests by procedure, over all reactors since the start. Must not wait for a reactor.
    fn operations(&self) -> Vec<OperationStatus>;

    /// What the service has done since its start. Must not wait for a reactor, nor for long.
    fn totals(&self) -> ServiceTotals;

    /// What was done on each export and for each client. Must not wait for a reactor, nor for long.
    fn item_samples(&self) -> ItemSamples;

    /// Refuses new connections and calls, finishes those in progress, and closes connections when
    /// idle, or all of them at the deadline. A call during a drain sets a new deadline. The service
    /// continues to run, and answers through the API, when it is drained.
    ///
    /// # Errors
    ///
    /// A reactor does not accept messages.
    fn drain(&self, order: DrainOrder) -> Result<DrainStatus, ControlError>;

    /// The progress of a drain.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn drain_status(&self) -> Result<DrainStatus, ControlError>;

    /// Serves again: listens, and accepts connections and calls.
    ///
    /// # Errors
    ///
    /// A listener's address cannot be used any more, or a reactor does not accept messages.
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

    /// The state of NFS version 4's clients; `None` if that version is not served.
    fn nfs4(&self) -> Option<&dyn Nfs4Control>;

    /// The gateways to the same files; `None` if this server is alone.
    fn gateways(&self) -> Option<&dyn GatewayControl> {
        None
    }

    /// The contexts of Kerberos; `None` if that is not served.
    fn gss(&self) -> Option<&dyn GssControl> {
        None
    }
}

/// The gateways to the same files as the management plane sees them.
pub trait GatewayControl {
    /// All of them.
    ///
    /// # Errors
    ///
    /// The folder that they share cannot be used.
    fn list(&self) -> Result<GatewayList, ControlError>;

    /// Takes the place of another one. `is_fenced`: somebody has made sure that it is off. `None` if
    /// there is no such gateway.
    ///
    /// # Errors
    ///
    /// [`ControlError::Conflict`] with the reason and what to do about it.
    fn take_over(
        &self,
        name: &str,
        is_fenced: bool,
    ) -> Result<Option<GatewayTakeover>, ControlError>;
}

/// The contexts of Kerberos as the management plane sees them.
pub trait GssControl {
    /// Those used last.
    fn contexts(&self) -> GssContexts;

    /// Ends those of a principal, or all. Returns how many.
    fn flush(&self, principal: Option<&str>) -> u64;
}

/// The state of NFS version 4's clients as the management plane sees it. A page of a list is
/// gathered in parts of bounded work, and ends early where that takes too long.
///
/// # Errors
///
/// The reactor that keeps the state did not answer.
pub trait Nfs4Control {
    /// Some clients.
    ///
    /// # Errors
    ///
    /// As said above, here and below.
    fn clients(&self, page: ListPage) -> Result<Nfs4Clients, ControlError>;

    /// A client; `None` if there is none with this ID.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn client(&self, id: u64) -> Result<Option<Nfs4Client>, ControlError>;

    /// Ends a client with its sessions, opens, locks and delegations. False if there is none with
    /// this ID.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn end_client(&self, id: u64) -> Result<bool, ControlError>;

    /// Some states.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn states(&self, filter: &Nfs4StateFilter, page: ListPage) -> Result<Nfs4States, ControlError>;

    /// The state with this stateid, whose sequence number is left out; `None` if there is none.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn state(&self, stateid: [u8; 12]) -> Result<Option<Nfs4State>, ControlError>;

    /// Revokes a state. False if there is none in force with this stateid.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn revoke(&self, stateid: [u8; 12]) -> Result<bool, ControlError>;

    /// The grace period.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn grace(&self) -> Result<GraceStatus, ControlError>;

    /// Ends the grace period. False if there is none.
    ///
    /// # Errors
    ///
    /// See [`Nfs4Control::clients`].
    fn end_grace(&self) -> Result<bool, ControlError>;
}

/// A capture in progress; dropping it ends it.
pub trait CaptureStream: Send {
    /// The next bytes of the capture file, its header first; waits for at most `timeout`. An empty
    /// vector means that there are none yet, `None` that the capture has ended.
    ///
    /// # Errors
    ///
    /// The capturing reactor has stopped.
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Vec<u8>>>;
}

/// The service could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Not now: the part that did not answer.
    #[error("{0}")]
    Unavailable(String),
    /// A conflict with the current state: the reason.
    #[error("{0}")]
    Conflict(String),
}

/// The result of an applied configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// The result of each reactor.
    pub reactors: Vec<ReactorOutcome>,
    /// Parts outside the reactors that are not updated, each with its key and the reason.
    pub pending: Vec<String>,
}

/// The error of a configuration that could not be applied; the previous one is in force.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ApplyError {
    /// The key that could not be applied, such as `fabric[1].listen`; the section if it is not a
    /// single key.
    pub path: String,
    /// The reason.
    pub reason: String,
    /// The result of each reactor.
    pub reactors: Vec<ReactorOutcome>,
}
