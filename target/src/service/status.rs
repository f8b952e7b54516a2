//! What a reactor tells of itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use millrace_primitives::Histogram;
use millrace_wire::rpcrdma::Version;

use crate::call::Peer;
use crate::rdma::Connection;
use crate::tcp::TcpReport;

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Unique while the process runs.
    pub id: u64,
    /// The client.
    pub peer: Peer,
    /// The RDMA device that it is on, if it is on one.
    pub device: Option<String>,
    /// Seconds since it was accepted.
    pub age: f64,
    /// The most calls that were not answered yet at once, in the latest one to two seconds.
    pub in_service: u32,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
    /// How long its calls took, which goes on to change.
    pub latency: Arc<Histogram>,
    /// What RDMA connections have; none for TCP.
    pub rdma: Option<RdmaReport>,
}

/// What only RDMA connections have.
#[derive(Clone, Copy, Debug)]
pub struct RdmaReport {
    /// The name of the provider that carries it.
    pub provider: &'static str,
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

/// One reactor.
#[derive(Clone, Debug, Default)]
pub struct ReactorReport {
    /// Its connections, RDMA and TCP.
    pub connections: Vec<ConnectionReport>,
    /// Calls being served.
    pub tasks: usize,
    /// Calls that wait for a limit or for their client's share, by client; only those with any.
    pub waiting: Vec<(IpAddr, u32)>,
}

impl ReactorReport {
    /// Calls that were not answered yet, at the peak of each connection.
    pub fn requests_in_flight(&self) -> u64 {
        let connections = self.connections.iter();
        connections.map(|one| u64::from(one.in_service)).sum()
    }
}

impl ConnectionReport {
    /// The client's address and port.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.peer.address, self.peer.port)
    }
}

/// Reports on an RDMA connection.
pub fn of(connection: &Connection, now: Instant) -> ConnectionReport {
    let (requested, granted, _) = connection.credits();
    let usage = connection.usage();
    let (bytes_read, bytes_written) = usage.bytes();
    ConnectionReport {
        id: connection.id(),
        peer: connection.peer(),
        device: connection.device_name(),
        age: seconds(connection.since(), now),
        in_service: connection.in_service_peak(now),
        bytes_read,
        bytes_written,
        latency: Arc::clone(usage.latency()),
        rdma: Some(RdmaReport {
            provider: connection.provider_name(),
            version: connection.version().map(Version::number),
            inline_send: connection
                .inline()
                .limit(connection.version().unwrap_or(Version::One)),
            inline_receive: connection.terms().receive_size(),
            granted,
            requested,
            exposures: connection.exposures.open_replies(),
        }),
    }
}

/// Reports on a TCP connection.
pub fn of_tcp(connection: &TcpReport<'_>, now: Instant) -> ConnectionReport {
    let (bytes_read, bytes_written) = connection.usage.bytes();
    ConnectionReport {
        id: connection.id,
        peer: connection.peer,
        device: None,
        age: seconds(connection.since, now),
        in_service: connection.in_flight,
        bytes_read,
        bytes_written,
        latency: Arc::clone(connection.usage.latency()),
        rdma: None,
    }
}

fn seconds(since: Instant, now: Instant) -> f64 {
    now.saturating_duration_since(since).as_secs_f64()
}
