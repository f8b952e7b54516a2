//! A reactor's report.

use std::net::IpAddr;

use crate::rpc::ConnectionReport;

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
    /// Unanswered calls, at the peak of each connection.
    pub fn requests_in_flight(&self) -> u64 {
        let connections = self.connections.iter();
        connections.map(|one| u64::from(one.in_service)).sum()
    }
}
