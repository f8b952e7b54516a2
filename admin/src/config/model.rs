//! The configuration as types. Its fields are those of the YAML: a key is a field, a section is a
//! struct, a word of a fixed set is an enum. Defaults are those of the complete example,
//! `deploy/millraced.yaml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::{DurationText, SocketText};
use super::units::duration;
use super::{
    ByteSize, ClientLimits, Export, Gateways, Gss, HardeningLevel, Nfs4, PlainHttp, ReadToken, Tls,
    scalar,
};

/// The configuration of `millraced`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The cores and the polling mode.
    pub reactors: Reactors,
    /// Buffers.
    pub mempool: Mempool,
    /// Listeners for RDMA connections.
    pub fabric: Vec<Fabric>,
    /// The listener of ONC RPC over TCP.
    pub rpc: Rpc,
    /// RPC-over-RDMA.
    pub rpcrdma: Rpcrdma,
    /// Whether NFS version 3 is served, with MOUNT.
    pub nfs3: Switch,
    /// NFS version 4.
    pub nfs4: Nfs4,
    /// Kerberos, if it is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gss: Option<Gss>,
    /// Credits and limits of memory advertised for read-chunk replies.
    pub flow: Flow,
    /// What is served.
    pub exports: Vec<Export>,
    /// Limits of single clients; the first entry with a network of a client applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ClientLimits>,
    /// The management plane.
    pub admin: Admin,
    /// Rights dropped at start.
    pub hardening: Hardening,
    /// A tracing filter, such as `info` or `info,millrace::nfs3=debug`.
    #[schema(min_length = 1, max_length = 1024, example = "info")]
    pub log: String,
    /// A folder for the server's secret, so that file handles remain valid after a restart; without
    /// it they become stale at each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state_directory: Option<PathBuf>,
    /// The file of the secret of file handles, where several servers serve the same files: 32
    /// hexadecimal digits. By default each server has its own in `state_directory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub handle_secret: Option<PathBuf>,
    /// Other servers of the same files, with which this one acts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateways: Option<Gateways>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reactors: Reactors::default(),
            mempool: Mempool::default(),
            fabric: vec![Fabric::default()],
            rpc: Rpc::default(),
            rpcrdma: Rpcrdma::default(),
            nfs3: Switch::On,
            nfs4: Nfs4::default(),
            gss: None,
            flow: Flow::default(),
            exports: Vec::new(),
            limits: Vec::new(),
            admin: Admin::default(),
            hardening: Hardening::default(),
            log: "info".to_owned(),
            state_directory: None,
            handle_secret: None,
            gateways: None,
        }
    }
}

impl Config {
    /// A complete, commented and valid configuration.
    pub fn default_text() -> &'static str {
        include_str!("../../../deploy/millraced.yaml")
    }
}

/// The pinned loops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ReactorSettings)]
pub struct Reactors {
    /// One reactor per core.
    pub cores: Cores,
    /// The behaviour of a reactor without work.
    pub poll: PollMode,
    /// How long a reactor polls without work before it sleeps, with [`PollMode::Adaptive`].
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub idle_after: Duration,
}

impl Default for Reactors {
    fn default() -> Self {
        Self {
            cores: Cores::List(vec![0]),
            poll: PollMode::Busy,
            idle_after: Duration::from_micros(100),
        }
    }
}

/// The cores with a reactor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "super::raw::CoresRaw", into = "super::raw::CoresRaw")]
pub enum Cores {
    /// One reactor for each core that the process may use, except the last.
    Auto,
    /// These cores, by number.
    List(Vec<usize>),
}

impl Cores {
    /// The cores of reactors, given those that the process may use. `auto` leaves the last of them
    /// to other threads, unless it is the only one.
    pub fn resolve(&self, allowed: &[usize]) -> Vec<usize> {
        match self {
            Self::List(cores) => cores.clone(),
            Self::Auto => match allowed {
                [] | [_] => allowed.to_vec(),
                [most @ .., _] => most.to_vec(),
            },
        }
    }
}

/// The behaviour of a reactor without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PollMode {
    /// Keeps polling.
    Busy,
    /// Sleeps on events after [`Reactors::idle_after`].
    Adaptive,
}

/// Buffer memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mempool {
    /// Whether the memory uses huge pages.
    pub hugepages: Hugepages,
    /// Bytes per reactor.
    pub size: ByteSize,
}

impl Default for Mempool {
    fn default() -> Self {
        Self {
            hugepages: Hugepages::Auto,
            size: ByteSize::mib(256),
        }
    }
}

/// Whether memory uses huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hugepages {
    /// If available; else ordinary pages and a warning.
    Auto,
    /// The server does not start without them.
    Required,
    /// Never.
    Off,
}

/// One RDMA listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, try_from = "super::raw::FabricRaw")]
pub struct Fabric {
    /// The RDMA provider.
    pub provider: Provider,
    /// Address and port.
    #[serde(with = "scalar::socket")]
    #[schema(value_type = SocketText)]
    pub listen: SocketAddr,
    /// The MPA CRC; for `iwarp` only, `None` for other providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc: Option<CrcPolicy>,
    /// Connections of one device and reactor share one receive queue, if the device supports it;
    /// for `verbs` only, `None` for other providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_receives: Option<Switch>,
    /// Classic mode of the connections to this listener; default: that of [`Rpcrdma`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_chunk_replies: Option<Switch>,
}

impl Fabric {
    /// Whether its connections are in classic mode. `default` is [`Rpcrdma::read_chunk_replies`].
    pub fn is_classic(&self, default: Switch) -> bool {
        self.read_chunk_replies.unwrap_or(default).is_on()
    }
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            provider: Provider::Iwarp,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 20049)),
            crc: Some(CrcPolicy::Auto),
            shared_receives: None,
            read_chunk_replies: None,
        }
    }
}

/// The RDMA provider of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Software iWARP over TCP.
    Iwarp,
    /// RDMA devices (InfiniBand, RoCE and iWARP adapters, and the kernel's own), through
    /// librdmacm.
    Verbs,
}

impl Provider {
    /// The provider's name in configuration, metrics and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Verbs => "verbs",
        }
    }
}

/// Whether MPA frames carry a CRC (RFC 5044 section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CrcPolicy {
    /// On, but off over loopback.
    Auto,
    /// On; a peer that does not request it gets it nevertheless.
    Required,
    /// Off, unless the peer requests it.
    Off,
}

/// MOUNT and NFS over TCP, for clients that mount by NFSv3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rpc {
    /// Address and port.
    #[serde(with = "scalar::socket")]
    #[schema(value_type = SocketText)]
    pub listen: SocketAddr,
    /// How clients find the port.
    pub rpcbind: Rpcbind,
}

impl Default for Rpc {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 2049)),
            rpcbind: Rpcbind::Off,
        }
    }
}

/// How clients find the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rpcbind {
    /// Not at all.
    Off,
    /// From this process.
    Embedded,
    /// From the host's rpcbind, where this process registers them.
    Register,
}

/// RPC-over-RDMA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rpcrdma {
    /// Supported protocol versions: one or both of 1 and 2.
    pub versions: Vec<u32>,
    /// Size of a receive buffer, the inline threshold announced to the peer; a whole number of KiB
    /// from 1 to 256. With version 2, receive buffers have at least 4 KiB.
    pub inline: ByteSize,
    /// Classic mode: replies may use read chunks and wait for RDMA_DONE (RFC 5666 section 3.8).
    pub read_chunk_replies: Switch,
    /// RDMA_MSGP is accepted.
    pub padding: Switch,
    /// The connection configuration protocol (RFC 5666 section 6) is served.
    pub ccp: Switch,
    /// The weakest flavor of calls of the configuration protocol that set limits.
    pub ccp_flavor: CcpFlavor,
    /// The program number of the configuration protocol: 100417, unless the peers are older than
    /// its assignment.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    pub ccp_program: u32,
    /// Whether the XIDs of a call's transport header and of its RPC message must be the same.
    pub same_xid: SameXid,
}

impl Default for Rpcrdma {
    fn default() -> Self {
        Self {
            versions: vec![1, 2],
            inline: ByteSize(4096),
            read_chunk_replies: Switch::Off,
            padding: Switch::On,
            ccp: Switch::On,
            ccp_flavor: CcpFlavor::Sys,
            ccp_program: 100_417,
            same_xid: SameXid::Strict,
        }
    }
}

/// Flavors of calls of the configuration protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CcpFlavor {
    /// AUTH_SYS at least; calls with AUTH_NONE are refused with AUTH_TOOWEAK.
    Sys,
    /// AUTH_NONE is sufficient.
    None,
}

/// Handling of calls with two XIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SameXid {
    /// They are refused (RFC 8166 section 4.2.1).
    Strict,
    /// They are served, for peers of the first drafts: the reply's transport header has the XID of
    /// the call's, and its RPC message that of the call's.
    Lenient,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    #[serde(alias = "true")]
    On,
    /// Off.
    #[serde(alias = "false")]
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }

    /// The word for it in configuration and log.
    pub fn name(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

/// Limits of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flow {
    /// The most credits granted to one connection.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 4096)]
    pub credits: u32,
    /// How long a read-chunk reply may wait for RDMA_DONE.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub done_window: Duration,
    /// The action at that timeout.
    pub on_window_end: WindowEnd,
    /// The most read-chunk replies outstanding on one connection.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1024)]
    pub max_exposures: u32,
    /// The most read-chunk replies outstanding on all connections from one address.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub max_client_exposures: u32,
    /// The most read-chunk replies outstanding in the whole service.
    #[serde(deserialize_with = "scalar::whole")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub max_total_exposures: u32,
    /// The most bytes of read-chunk replies in the whole service.
    pub max_exposed_bytes: ByteSize,
    /// How many bytes a client has to receive, or send, in each window while more are pending; its
    /// connection ends otherwise.
    pub transfer_least: ByteSize,
    /// The length of that window.
    #[serde(with = "duration")]
    #[schema(value_type = DurationText)]
    pub transfer_window: Duration,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            credits: 128,
            done_window: Duration::from_secs(10),
            on_window_end: WindowEnd::Free,
            max_exposures: 16,
            max_client_exposures: 64,
            max_total_exposures: 1024,
            max_exposed_bytes: ByteSize::mib(256),
            transfer_least: ByteSize::mib(1),
            transfer_window: Duration::from_secs(30),
        }
    }
}

/// The action if RDMA_DONE has not arrived in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowEnd {
    /// The memory is revoked and freed.
    Free,
    /// The connection ends.
    Close,
}

/// The management plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Address and port of the HTTP API.
    #[serde(with = "scalar::socket")]
    #[schema(value_type = SocketText)]
    pub listen: SocketAddr,
    /// A Unix socket with the same API, over which root and the server's own user make changes
    /// without a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub socket: Option<PathBuf>,
    /// Names of the server in HTTP requests, in addition to its addresses and `localhost`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// A file whose content allows changes through the API; without it the API is read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub token_file: Option<PathBuf>,
    /// A file with more tokens, users and groups of the socket, and client certificates, each with
    /// a role: `read`, `operate` or `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub roles_file: Option<PathBuf>,
    /// Whether reading needs the token, too.
    pub read_token: ReadToken,
    /// The folders below which exports may be made through the API; the file is not restricted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub exportable_roots: Vec<PathBuf>,
    /// A file that gets a line of JSON for each attempted change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub audit_file: Option<PathBuf>,
    /// HTTPS; default: HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Where HTTP without TLS is permitted.
    pub plain_http: PlainHttp,
    /// Clients with series of their own in the metrics, 0 to 1024: the busiest. All others are
    /// counted together.
    pub client_series: u32,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9620)),
            socket: None,
            hosts: Vec::new(),
            token_file: None,
            roles_file: None,
            read_token: ReadToken::None,
            exportable_roots: Vec::new(),
            audit_file: None,
            tls: None,
            plain_http: PlainHttp::Loopback,
            client_series: 64,
        }
    }
}

/// Rights that the process drops at start, permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hardening {
    /// No program that it starts gains rights (PR_SET_NO_NEW_PRIVS).
    pub no_new_privileges: HardeningLevel,
    /// Capabilities that the configuration does not need are dropped.
    pub capabilities: HardeningLevel,
    /// System calls that no thread of a kind needs are refused.
    pub seccomp: HardeningLevel,
    /// Only files that the configuration names can be opened.
    pub landlock: HardeningLevel,
}

impl Default for Hardening {
    fn default() -> Self {
        Self {
            no_new_privileges: HardeningLevel::On,
            capabilities: HardeningLevel::On,
            seccomp: HardeningLevel::On,
            landlock: HardeningLevel::Off,
        }
    }
}
