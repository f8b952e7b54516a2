//! ONC RPC over TCP (RFC 5531 section 11): the transport of MOUNT, and of NFS for clients without
//! RDMA.
//!
//! One [`TcpServer`] runs on each reactor. It polls its sockets through one epoll descriptor and
//! never blocks. Calls of a connection are served concurrently and answered as they finish, those
//! of a turn by one gathered write. Data of a WRITE is copied out of its record; data of a READ
//! goes from the store's memory to the socket.
//!
//! The calls and bytes held by a peer are limited, and it must finish records and receive replies
//! in time; anything else it sends ends its own connection only.

mod connection;
mod records;
mod reply_record;
mod reverse;
mod server;
mod turns;
mod worker;

use std::time::Duration;

use crate::call::TransportKind;
use crate::flow::TaskLimits;
use crate::transfer::TransferLimits;

pub use server::{PreparedListener, TcpCounters, TcpServer};

/// The longest message accepted or sent: the largest READ or WRITE and the message around it.
pub const MESSAGE_MAX: usize = (1 << 20) + 4096;

/// The longest record accepted.
const RECORD_MAX: usize = MESSAGE_MAX;

/// Limits of a [`TcpServer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// The most connections at once.
    pub connections: usize,
    /// The most calls of one connection that wait, are served, or have unsent replies.
    pub calls_per_connection: usize,
    /// The most calls served at once, over all connections, plus one of each client. Clients with
    /// calls have equal shares, and one share is reserved for the next client.
    pub calls: usize,
    /// The most bytes of records that wait or are served, over all connections, in equal shares,
    /// plus one record of each client.
    pub bytes: usize,
    /// The most connections at once from addresses that no export admits
    /// ([`crate::call::Serve::admits`]).
    pub unadmitted: usize,
    /// The most of these from one address.
    pub unadmitted_per_address: usize,
    /// They are closed after this time, which is enough for the answer that they are not admitted.
    pub unadmitted_deadline: Duration,
    /// A connection that has sent no valid call, or that no export admits any more, is closed after
    /// this time without calls. Others may be idle until they are evicted.
    pub idle_deadline: Duration,
    /// A record must be complete this long after its first byte.
    pub record_deadline: Duration,
    /// The minimum rate at which pending replies must be received.
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
