//! ONC RPC over TCP (RFC 5531 section 11): the transport of MOUNT, and of NFS for clients without
//! RDMA.
//!
//! One [`TcpServer`] lives on each reactor. It polls its sockets through one epoll descriptor and
//! never blocks. Calls of a connection are served side by side and answered as they finish, those of
//! a turn by one gathered write. Data of a WRITE is copied out of its record; data of a READ goes
//! from the store's memory to the socket.
//!
//! A peer can hold a bounded number of calls and bytes, and has to finish records and take replies
//! in time; whatever else it sends ends its own connection only.

mod connection;
mod records;
mod reply_record;
mod reverse;
mod server;
mod worker;

use std::time::Duration;

use crate::call::TransportKind;
use crate::flow::TaskLimits;
use crate::transfer::TransferLimits;

pub use server::{PreparedListener, TcpCounters, TcpServer};

/// Longest message that is taken or sent: the largest READ or WRITE and what stands around it.
pub const MESSAGE_MAX: usize = (1 << 20) + 4096;

/// Longest record that is taken.
const RECORD_MAX: usize = MESSAGE_MAX;

/// Bounds of a [`TcpServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Most connections at once.
    pub connections: usize,
    /// Most calls of one connection that wait, are served, or have unsent replies.
    pub calls_per_connection: usize,
    /// Most calls served at once, over all connections, but for one of each client. Clients with
    /// calls have equal shares, and one share is left for who comes next.
    pub calls: usize,
    /// Most bytes of the records that wait or are being served, over all connections, in shares
    /// alike and but for one record of each client.
    pub bytes: usize,
    /// Most connections at once from addresses that no export admits
    /// ([`crate::call::Serve::admits`]).
    pub unadmitted: usize,
    /// Most of these from one address.
    pub unadmitted_per_address: usize,
    /// They are closed after this time: enough to be told that they are not admitted.
    pub unadmitted_deadline: Duration,
    /// A connection that has sent no valid call, or that no export admits any more, is closed after
    /// this time without calls. Others may be idle for as long as nobody needs their place.
    pub idle_deadline: Duration,
    /// A record has to be complete this long after its first byte.
    pub record_deadline: Duration,
    /// How slowly waiting replies may be taken.
    pub transfers: TransferLimits,
    /// Report new connections ([`TcpServer::accepted`]) instead of serving them here.
    pub hand_over: bool,
}

impl TcpConfig {
    fn task_limits(&self) -> TaskLimits {
        TaskLimits {
            transport: TransportKind::Tcp,
            divided: u32::try_from(self.calls).unwrap_or(u32::MAX),
            common: self.calls,
            capacity: self.calls + self.connections,
            few: 1,
        }
    }
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            connections: 4096,
            calls_per_connection: 128,
            calls: 256,
            bytes: 64 << 20,
            unadmitted: 8,
            unadmitted_per_address: 2,
            unadmitted_deadline: Duration::from_secs(10),
            idle_deadline: Duration::from_secs(60),
            record_deadline: Duration::from_secs(30),
            transfers: TransferLimits::default(),
            hand_over: false,
        }
    }
}
