//! The properties of a device, for reports.

use std::fmt;

/// The network of a device.
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
    /// The name in logs and metrics.
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
    /// The firmware's version, if reported.
    pub firmware: String,
    /// Its memory node, if the machine has several.
    pub numa_node: Option<u32>,
    /// Completion vectors.
    pub completion_vectors: u32,
    /// Its ports.
    pub ports: Vec<PortReport>,
    /// The most queue pairs.
    pub queue_pairs_max: u32,
    /// The most work requests of a queue.
    pub work_requests_max: u32,
    /// The most local ranges of a work request.
    pub ranges_max: u32,
    /// The most local ranges of an RDMA Read.
    pub read_ranges_max: u32,
    /// The most entries of a completion queue.
    pub completions_max: u32,
    /// The most RDMA Reads of a peer served at once.
    pub reads_served_max: u32,
    /// The most RDMA Reads open at once.
    pub reads_open_max: u32,
    /// Bytes of the largest registration.
    pub registration_max: u64,
    /// Its features.
    pub features: Features,
}

/// The features of a device that the service uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features {
    /// Memory windows of type 2 with enforced bounds.
    pub memory_windows: bool,
    /// Shared receive queues.
    pub shared_receive_queues: bool,
    /// Sends may invalidate keys of the peer.
    pub send_invalidate: bool,
}

/// One port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// From 1 on.
    pub number: u8,
    /// Whether it is active.
    pub is_active: bool,
    /// The state in the library's words.
    pub state: &'static str,
    /// The most payload bytes of a packet.
    pub mtu: u32,
    /// Its addresses in the fabric (GIDs).
    pub gids: Vec<std::net::Ipv6Addr>,
}
