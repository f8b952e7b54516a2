//! What the management plane asks of the service.

use std::sync::Arc;

use crate::config::Config;
use crate::status::{ConnectionStatus, ExportStatus, Health, PoolStatus, ReactorStatus, Readiness};

/// The service as the management plane sees it; the service implements it.
///
/// Every call comes on a thread that may block, never on a reactor. A call may send messages to
/// reactors and wait for their snapshots; one that takes longer than the API's time for an answer
/// is given up by the API (the call itself goes on to its end).
pub trait Control: Send + Sync + 'static {
    /// Whether clients should come.
    fn readiness(&self) -> Readiness;

    /// Whether all reactors turn. Must not wait for a reactor.
    fn health(&self) -> Health;

    /// The configuration in force.
    fn config(&self) -> Arc<Config>;

    /// The connections of the moment.
    ///
    /// # Errors
    ///
    /// A reactor did not answer.
    fn connections(&self) -> Result<Vec<ConnectionStatus>, ControlError>;

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
}

/// The service could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Not now: who or what did not answer.
    #[error("{0}")]
    Unavailable(String),
}
