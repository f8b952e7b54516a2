//! The running service: one worker per reactor, the listeners, and the interface to the management
//! plane.

mod build;
mod capture;
mod change;
mod client_records;
mod client_state;
pub mod clusters;
mod control;
pub mod devices;
mod durable_file;
pub mod folders;
mod gateways;
mod gss;
pub mod hardening;
mod host_locks;
mod inherited;
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
mod state_reports;
mod status;
mod totals;
mod worker;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use millrace_admin::config::Config;
use millrace_reactor::ReactorHandle;

pub use build::StartError;
pub use change::LogHook;
pub use control::ServiceControl;
pub use inherited::InheritedListeners;
pub use programs::ReactorPrograms;
pub use startup::StartProgress;
pub use worker::ReactorMessage;

/// The time for reactors to end after the end of all connections.
const LAST_TURNS: Duration = Duration::from_secs(5);

/// The time for a reactor to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The addresses of the service, with actual ports.
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
    /// The lock of the state directory.
    _lock: Option<Arc<lock::StateLock>>,
}

impl Service {
    /// Starts everything that the configuration names, except the management plane.
    ///
    /// # Errors
    /// [`StartError`] names the key of the configuration and the reason. Nothing is left running
    /// then.
    pub fn start(config: Arc<Config>) -> Result<Self, StartError> {
        let inherited = InheritedListeners::default();
        Self::start_watched(config, &StartProgress::default(), inherited)
    }

    /// As [`Service::start`], with progress reports and a way to interrupt it. Where a socket was
    /// inherited, it is used instead of a new one.
    ///
    /// # Errors
    /// [`StartError`], including the interruption.
    pub fn start_watched(
        config: Arc<Config>,
        progress: &StartProgress,
        inherited: InheritedListeners,
    ) -> Result<Self, StartError> {
        build::start(config, progress, inherited)
    }

    /// Its addresses at start.
    #[must_use]
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The cores of its reactors, in order. Other threads should avoid them
    /// ([`millrace_reactor::step_aside`]).
    #[must_use]
    pub fn cores(&self) -> Vec<usize> {
        self.reactors
            .iter()
            .filter_map(ReactorHandle::core)
            .collect()
    }

    /// Second handles on the TCP sockets that listen now, for the process after this one; none if
    /// the first reactor does not answer within a second.
    #[must_use]
    pub fn listening_sockets(&self) -> Vec<OwnedFd> {
        let (answer, sockets) = crossbeam_channel::bounded(1);
        let asked = ReactorMessage::ListeningSockets(answer);
        match self.reactors.first().map(|first| first.send(asked)) {
            Some(Ok(())) => sockets.recv_timeout(ANSWER_LIMIT).unwrap_or_default(),
            // None, or one that is stuck with a full mailbox.
            _ => Vec::new(),
        }
    }

    /// The interface to the management plane and metrics.
    #[must_use]
    pub fn control(&self) -> Arc<ServiceControl> {
        Arc::clone(&self.control)
    }

    /// Stops: refuses new connections and calls, finishes those in progress for at most `timeout`,
    /// closes all connections and waits for the reactors to end. Then folders are synced, for at
    /// most as long again.
    pub fn drain(self, timeout: Duration) {
        if let Some(gateway) = &self.control.gateway {
            gateway.stop();
        }
        self.control.stop(Instant::now() + timeout);
        // Waiting for a change in progress does not shorten it.
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
                tracing::warn!(
                    reactor = reactor.name(),
                    "the reactor does not accept messages"
                );
            }
        }
        // Connections are closed at the deadline; the rest has a short time to end.
        self.join(deadline + LAST_TURNS);
        if let Some(gateway) = &self.control.gateway {
            gateway.end();
        }
        // Folders have as long again to be synced.
        let deadline = Instant::now() + timeout;
        let volumes = self.control.volumes();
        let closing = !volumes.is_empty();
        folders::close(volumes, deadline);
        if !self.control.reaper.wait(deadline) {
            tracing::warn!("folders removed earlier are not closed in order");
        }
        if closing {
            tracing::info!("folders are closed");
        }
    }

    /// Waits for the reactors to end. One blocked by a file system ends with the process.
    fn join(&self, deadline: Instant) {
        let (ended, all) = crossbeam_channel::unbounded();
        for reactor in &self.reactors {
            let (reactor, ended) = (reactor.clone(), ended.clone());
            let thread = std::thread::Builder::new().name("join".to_owned());
            let spawned = thread.spawn(move || {
                if reactor.join().is_err() {
                    tracing::error!(reactor = reactor.name(), "the reactor panicked");
                }
                // The receiver is gone after the deadline.
                let _ = ended.send(());
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "cannot wait for a reactor");
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
