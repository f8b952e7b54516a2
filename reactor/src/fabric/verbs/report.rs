//! What there is to tell of a device.

use std::fmt;

/// Which network a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// InfiniBand.
    InfiniBand,
    /// InfiniBand's transport over Ethernet.
    Roce,
    /// iWARP.
    Iwarp,
}

impl Transport {
    /// A word for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Roce => "RoCE",
            Self::Iwarp => "iWARP",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The kernel's name, such as `mlx5_0`.
    pub name: String,
    /// Its network.
    pub transport: Transport,
    /// The firmware's version, where it tells one.
    pub firmware: String,
    /// The memory node that it is near to, where the machine has several.
    pub numa_node: Option<u32>,
    /// Completion vectors.
    pub completion_vectors: u32,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// Most queue pairs.
    pub queue_pairs_max: u32,
    /// Most work requests of a queue.
    pub work_requests_max: u32,
    /// Most local ranges of a work request, and of a Read.
    pub ranges_max: u32,
    /// Most local ranges of an RDMA Read.
    pub read_ranges_max: u32,
    /// Most entries of a completion queue.
    pub completions_max: u32,
    /// Most RDMA Reads of a peer's served at once.
    pub reads_served_max: u32,
    /// Most RDMA Reads open at once.
    pub reads_open_max: u32,
    /// Bytes of the largest registration.
    pub registration_max: u64,
    /// What it can.
    pub features: Features,
}

/// What a device can, of what the service makes use of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// Memory windows of type 2 that keep peers within them.
    pub memory_windows: bool,
    /// Shared receive queues.
    pub shared_receive_queues: bool,
    /// Sends may invalidate keys of the peer's.
    pub send_invalidate: bool,
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// From 1 on.
    pub number: u8,
    /// Whether it carries traffic.
    pub is_active: bool,
    /// The state in the fabric's words.
    pub state: &'static str,
    /// Most payload bytes of a packet.
    pub mtu: u32,
    /// Its addresses in the fabric (GIDs).
    pub gids: Vec<std::net::Ipv6Addr>,
}
