//! The running service: one worker per reactor, the listeners, and what the management plane sees.

mod build;
mod capture;
mod change;
mod client_state;
mod control;
pub mod devices;
pub mod folders;
pub mod hardening;
mod lock;
mod memory;
mod metrics;
mod peers;
mod phase;
mod placement;
mod plan;
pub mod preflight;
pub mod programs;
mod providers;
mod reports;
mod secret;
mod served;
pub mod sizing;
mod spaces;
mod startup;
mod status;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use millrace_admin::config::Config;
use millrace_reactor::ReactorHandle;

pub use build::StartError;
pub use change::LogHook;
pub use control::ServiceControl;
pub use programs::ReactorPrograms;
pub use startup::StartProgress;
pub use worker::ReactorMessage;

/// How long after the end of all connections reactors may take to end.
const LAST_TURNS: Duration = Duration::from_secs(5);

/// Where the service listens, with the ports that the system chose.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Each fabric of the configuration, in its order.
    pub fabric: Vec<SocketAddr>,
    /// RPC over TCP.
    pub rpc: Option<SocketAddr>,
}

/// The running service. Dropping it without [`Service::drain`] leaves its reactors running until
/// the process ends.
pub struct Service {
    reactors: Vec<ReactorHandle<ReactorMessage>>,
    addresses: Addresses,
    control: Arc<ServiceControl>,
    /// The right to the state directory.
    _lock: Option<lock::StateLock>,
}

impl Service {
    /// Starts everything that the configuration names, but the management plane.
    ///
    /// # Errors
    /// [`StartError`] names the key of the configuration that cannot be served and why. Nothing
    /// is left running then.
    pub fn start(config: Arc<Config>) -> Result<Self, StartError> {
        Self::start_watched(config, &StartProgress::default())
    }

    /// As [`Service::start`]; others may look on, and end it before its time.
    ///
    /// # Errors
    /// [`StartError`]; also that it was interrupted.
    pub fn start_watched(
        config: Arc<Config>,
        progress: &StartProgress,
    ) -> Result<Self, StartError> {
        build::start(config, progress)
    }

    /// Where it listened when it started.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The cores of its reactors, in their order. Other threads had better keep off them
    /// ([`millrace_reactor::step_aside`]).
    #[must_use]
    pub fn cores(&self) -> Vec<usize> {
        self.reactors
            .iter()
            .filter_map(ReactorHandle::core)
            .collect()
    }

    /// What the management plane asks, and what metrics are read from.
    #[must_use]
    pub fn control(&self) -> Arc<ServiceControl> {
        Arc::clone(&self.control)
    }

    /// Stops: takes no more connections and calls, finishes those in service for at most
    /// `timeout`, closes all connections and waits for the reactors to end. Then what was written
    /// to folders is made durable, for at most as long again.
    pub fn drain(self, timeout: Duration) {
        self.control.stop(Instant::now() + timeout);
        // Waiting for a change that is under way does not shorten it.
        let deadline = Instant::now() + timeout;
        for reactor in &self.reactors {
            // A reactor that is stuck with a full mailbox ends with the process.
            if reactor
                .send(ReactorMessage::Drain {
                    deadline,
                    ends: true,
                })
                .is_err()
            {
                tracing::warn!(reactor = reactor.name(), "the reactor takes no messages");
            }
        }
        // Connections are cut at the deadline; what is left has a moment to come to its end.
        self.join(deadline + LAST_TURNS);
        // Folders have as long again to make durable what was written.
        let deadline = Instant::now() + timeout;
        let volumes = self.control.folders();
        let closing = !volumes.is_empty();
        folders::close(volumes, deadline);
        if !self.control.reaper.wait(deadline) {
            tracing::warn!("folders that were taken out before are not closed in order");
        }
        if closing {
            tracing::info!("folders are closed");
        }
    }

    /// Waits for the reactors to end. One that a file system holds up ends with the process.
    fn join(&self, deadline: Instant) {
        let (ended, all) = crossbeam_channel::unbounded();
        for reactor in &self.reactors {
            let (reactor, ended) = (reactor.clone(), ended.clone());
            let thread = std::thread::Builder::new().name("join".to_owned());
            let spawned = thread.spawn(move || {
                if reactor.join().is_err() {
                    tracing::error!(reactor = reactor.name(), "the reactor panicked");
                }
                // Nobody waits any more after the deadline.
                let _ = ended.send(());
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "a reactor is not waited for");
            }
        }
        drop(ended);
        for _ in &self.reactors {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = all.recv_timeout(left) {
                tracing::warn!("a reactor does not end in time");
                return;
            }
        }
    }
}
