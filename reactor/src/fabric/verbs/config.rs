//! Settings.

use std::net::IpAddr;
use std::time::Duration;

/// Settings of a [`super::Verbs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsConfig {
    /// Connections of one device share one receive queue, if the device supports it.
    pub shared_receives: bool,
    /// The local address that connections are made from.
    pub source: Option<IpAddr>,
    /// The most connections in any state.
    pub connections_max: usize,
    /// The most connection requests that wait for their answer.
    pub half_open_max: usize,
    /// Timeout of the peer's answer to a connection request, including address and route
    /// resolution.
    pub connect_wait: Duration,
    /// Timeout of the application's answer to a connection request.
    pub decide_wait: Duration,
    /// Timeout of an orderly close, before posted work is flushed.
    pub close_wait: Duration,
    /// Timeout of completing flushed work, before its queue pair is destroyed without it.
    pub drain_wait: Duration,
    /// How often the connection manager is polled for events while the reactor polls.
    pub event_interval: Duration,
    /// The core of the reactor, to determine whether it is near a device.
    pub core: Option<usize>,
    /// The completion vector (interrupt) of the device; modulo their number.
    pub completion_vector: usize,
    /// Each RDMA Read gets its own registration, as iWARP adapters require, on other devices as
    /// well. For tests of this mode on software devices.
    #[doc(hidden)]
    pub force_read_registrations: bool,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            shared_receives: false,
            source: None,
            connections_max: 16 * 1024,
            half_open_max: 1024,
            connect_wait: Duration::from_secs(10),
            decide_wait: Duration::from_secs(5),
            close_wait: Duration::from_secs(5),
            drain_wait: Duration::from_secs(1),
            event_interval: Duration::from_millis(1),
            core: None,
            completion_vector: 0,
            force_read_registrations: false,
        }
    }
}
