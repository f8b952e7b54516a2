//! Settings.

use std::net::IpAddr;
use std::time::Duration;

/// How a [`super::Verbs`] behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsConfig {
    /// Connections of one device share one receive queue, where the device has such.
    pub shared_receives: bool,
    /// The local address that connections are made from.
    pub source: Option<IpAddr>,
    /// Most connections in any state.
    pub connections_max: usize,
    /// Most connection requests that wait for their answer.
    pub half_open_max: usize,
    /// How long a peer may take to answer a connection request, addresses and routes included.
    pub connect_wait: Duration,
    /// How long the application may take to answer a connection request.
    pub decide_wait: Duration,
    /// How long an orderly close may take, before posted work is flushed.
    pub close_wait: Duration,
    /// How long flushed work may take to complete, before its queue pair is destroyed without.
    pub drain_wait: Duration,
    /// How often the connection manager is asked for events while the reactor polls.
    pub event_interval: Duration,
    /// The core of the reactor, to tell whether it is near a device.
    pub core: Option<usize>,
    /// Which of the device's completion vectors (interrupts) is used; modulo their number.
    pub completion_vector: usize,
    /// Each RDMA Read gets a registration of its own, as iWARP adapters need it, on devices that
    /// do not need it as well. For tests of that way on software devices.
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
