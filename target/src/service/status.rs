//! What a reactor tells of itself.

use std::time::Instant;

use millrace_wire::rpcrdma::Version;

use crate::rdma::Connection;

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Unique on its reactor while the process runs.
    pub id: u64,
    /// The client's address and port.
    pub peer: String,
    /// The word for the provider that carries it.
    pub provider: &'static str,
    /// Seconds since it was accepted.
    pub age: f64,
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
    /// Calls in service.
    pub in_service: u32,
    /// Replies exposed to it.
    pub exposures: u32,
    /// Calls received.
    pub calls: u64,
    /// Bytes fetched from it by RDMA Reads.
    pub fetched: u64,
    /// Bytes placed in its memory by RDMA Writes, or exposed to it as read chunks.
    pub placed: u64,
}

/// One reactor.
#[derive(Clone, Debug, Default)]
pub struct ReactorReport {
    /// Its RDMA connections.
    pub connections: Vec<ConnectionReport>,
    /// TCP connections.
    pub tcp_connections: usize,
    /// Calls being served.
    pub tasks: usize,
}

/// The number of a connection.
pub fn id_of(connection: &Connection) -> u64 {
    let id = connection.queue_pair();
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// Reports on a connection.
pub fn of(connection: &Connection, now: Instant) -> ConnectionReport {
    let peer = connection.peer();
    let (requested, granted, in_service) = connection.credits();
    let counters = connection.counters();
    ConnectionReport {
        id: id_of(connection),
        peer: std::net::SocketAddr::new(peer.address, peer.port).to_string(),
        provider: connection.provider_name(),
        age: now
            .saturating_duration_since(connection.since())
            .as_secs_f64(),
        version: connection.version().map(Version::number),
        inline_send: connection
            .inline()
            .limit(connection.version().unwrap_or(Version::One)),
        inline_receive: connection.terms().receive_size(),
        granted,
        requested,
        in_service,
        exposures: connection.exposures.open_replies(),
        calls: counters.calls.get(),
        fetched: counters.read_bytes.get(),
        placed: counters.written_bytes.get() + counters.exposed_bytes.get(),
    }
}
