//! Exports, and the limits of their clients.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Bandwidth, ByteSize, Ceph, ExportSecurity, Network, Posix, gss, scalar};

/// One exported tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The name that clients mount.
    pub path: String,
    /// The store of the files.
    pub store: Store,
    /// Networks that may mount; default: loopback only.
    #[serde(default = "loopback")]
    pub clients: Vec<Network>,
    /// How calls that may use it are secured, best first; `flavor`, the former name of the key, has
    /// the weakest.
    #[serde(
        default = "ExportSecurity::weak",
        alias = "flavor",
        deserialize_with = "gss::security"
    )]
    pub security: Vec<ExportSecurity>,
    /// Whether changes are permitted.
    #[serde(default)]
    pub access: Access,
    /// Users mapped to the anonymous user.
    #[serde(default)]
    pub squash: Squash,
    /// The anonymous user.
    #[serde(default = "nobody", deserialize_with = "scalar::whole")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub anon_uid: u32,
    /// The anonymous group.
    #[serde(default = "nobody", deserialize_with = "scalar::whole")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub anon_gid: u32,
    /// Limits of all clients of the export together, enforced through credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// The store of an export's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    rename_all = "lowercase",
    tag = "kind",
    try_from = "super::raw::StoreRaw"
)]
pub enum Store {
    /// In memory, lost when the server stops.
    Memory {
        /// Bytes for data and names together.
        size: ByteSize,
        /// Most files and folders, where each further hard link counts as one; one for each 4 KiB
        /// of `size` if absent, and no fewer than 16,384.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 4_294_967_295_u64)]
        inodes: Option<u32>,
    },
    /// In a folder of a file system of the host.
    Posix(Posix),
    /// In a directory of a CephFS file system.
    Ceph(Ceph),
}

impl Store {
    /// The kind's name in configuration and status.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Posix(_) => "posix",
            Self::Ceph(_) => "ceph",
        }
    }
}

/// Whether an export may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read and write.
    #[default]
    Rw,
    /// Read only.
    Ro,
}

impl Access {
    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rw => "rw",
            Self::Ro => "ro",
        }
    }
}

/// Users mapped to the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    /// None.
    #[default]
    None,
    /// User 0 and group 0.
    Root,
    /// All users.
    All,
}

impl Squash {
    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Root => "root",
            Self::All => "all",
        }
    }
}

/// Limits of each client of some networks, summed over its connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientLimits {
    /// The networks.
    pub clients: Vec<Network>,
    /// NFS requests per second, except NULL.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "scalar::count"
    )]
    #[schema(minimum = 1, nullable = false)]
    pub iops: Option<u64>,
    /// Bytes of READ and WRITE per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
}

/// Limits of all clients of an export together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// NFS requests per second, except NULL.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "scalar::count"
    )]
    #[schema(minimum = 1, nullable = false)]
    pub iops: Option<u64>,
    /// Bytes of READ and WRITE per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
}

fn loopback() -> Vec<Network> {
    [
        (Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        (Ipv6Addr::LOCALHOST.into(), 128),
    ]
    .into_iter()
    .filter_map(|(address, prefix)| Network::around(address, prefix).ok())
    .collect()
}

fn nobody() -> u32 {
    65534
}
