//! The face that both transports show to the service: refusal, drain, eviction, reports. They
//! differ in how bytes come and go, which stays with each of them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use millrace_primitives::Histogram;

use super::ConnectionRef;
use super::call::{Peer, TurnEnd};

/// The connections of one reactor over one transport.
pub trait Transport {
    /// Stops to listen, and takes neither connections nor calls from now on. Calls that wait are
    /// not begun: their clients send them again, elsewhere or later. Connections of which calls
    /// were refused end when the calls in service are answered.
    fn refuse(&mut self, now: Instant);

    /// Accepts connections and calls again. Listeners have to be set up again.
    fn resume(&mut self);

    /// Ends connections that have no call in service.
    fn close_idle(&mut self);

    /// Ends all connections: those without calls in service in order, the others at once.
    fn close_all(&mut self);

    /// Closes the connection with this identifier ([`ConnectionRef::id`]) at once. Whether there
    /// was one.
    fn evict(&mut self, id: u64) -> bool;

    /// The work that is still open.
    fn open_work(&self) -> OpenWork;

    /// Appends a report on each connection.
    fn report(&self, now: Instant, reports: &mut Vec<ConnectionReport>);

    /// Appends how many calls wait for a limit or for their client's share, by client. A client may
    /// be there twice.
    fn waiting(&self, waiting: &mut Vec<(IpAddr, u32)>);

    /// Calls that are being served.
    fn calls(&self) -> usize;

    /// The reactor has come to the end of a turn: counts the calls that were answered in it.
    fn turned(&mut self, end: &TurnEnd);

    /// Appends the descriptors that become readable when there is work.
    fn descriptors(&self, list: &mut Vec<RawFd>);

    /// Called before the reactor sleeps on those descriptors. False if there is work already.
    fn arm(&mut self) -> bool {
        true
    }

    /// The next time at which there is work even if nothing arrives.
    fn next_deadline(&self) -> Option<Instant>;
}

/// What keeps a drain from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenWork {
    /// Connections that are open.
    pub connections: usize,
    /// Calls that are not answered yet.
    pub in_flight: usize,
    /// Replies that clients have still to fetch.
    pub exposures: u64,
}

impl std::ops::AddAssign for OpenWork {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.in_flight += other.in_flight;
        self.exposures += other.exposures;
    }
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Unique while the process runs.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// Seconds since it was accepted.
    pub age: f64,
    /// The most calls that were not answered yet at once, in the latest one to two seconds.
    pub in_service: u32,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
    /// The latency of its calls, which is updated live.
    pub latency: Arc<Histogram>,
    /// What RDMA connections have; none for TCP.
    pub rdma: Option<RdmaReport>,
}

/// What only RDMA connections have.
#[derive(Clone, Debug)]
pub struct RdmaReport {
    /// The name of the provider that carries it.
    pub provider: &'static str,
    /// The RDMA device that it is on, if it is on one.
    pub device: Option<String>,
    /// RPC-over-RDMA version of its latest call; none before the first.
    pub version: Option<u32>,
    /// Longest message sent to it inline, in bytes.
    pub inline_send: usize,
    /// Longest message taken from it inline, in bytes.
    pub inline_receive: usize,
    /// Credits announced last.
    pub granted: u32,
    /// Credits the client wishes for.
    pub requested: u32,
    /// Replies exposed to it.
    pub exposures: u32,
}

impl ConnectionReport {
    /// Reports what all connections have. `in_service` is [`ConnectionReport::in_service`].
    #[must_use]
    pub fn new(connection: &ConnectionRef, in_service: u32, now: Instant) -> Self {
        let usage = connection.usage();
        let (bytes_read, bytes_written) = usage.bytes();
        Self {
            id: connection.id(),
            peer: connection.peer(),
            age: now
                .saturating_duration_since(connection.since())
                .as_secs_f64(),
            in_service,
            bytes_read,
            bytes_written,
            latency: Arc::clone(usage.latency()),
            rdma: None,
        }
    }

    /// The client's address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.peer.address, self.peer.port)
    }
}
