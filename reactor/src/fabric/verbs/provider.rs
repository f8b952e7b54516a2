//! The provider: what the application asks for.

use std::io;
use std::sync::Arc;

use super::config::VerbsConfig;
use super::counters::VerbsCounters;
use super::devices::Devices;

/// A connection request on its way to the reactor that shall own it; turned away when dropped.
#[derive(Debug)]
pub struct Arrival {}

/// The queue pairs of one reactor on the devices of the machine.
pub struct Verbs {
    counters: Arc<VerbsCounters>,
}

impl Verbs {
    /// A provider without connections.
    ///
    /// # Errors
    /// If the connection manager cannot be reached.
    pub fn new(_devices: &Devices, _config: VerbsConfig) -> io::Result<Self> {
        Ok(Self {
            counters: Arc::default(),
        })
    }

    /// What this provider does, in numbers.
    #[must_use]
    pub fn counters(&self) -> Arc<VerbsCounters> {
        Arc::clone(&self.counters)
    }
}
