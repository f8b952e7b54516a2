//! How all commands reach a server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use millrace_mempool::{Pool, PoolConfig};
use millrace_reactor::fabric::Provider;
use millrace_wire::nfs3::{self, FileHandle};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcbind::{self, Netid};
use millrace_wire::rpcrdma::{MIN_INLINE, Version, Versions};
use millrace_wire::{ccp, mount};

use crate::fabric::{self, Fabric};
use crate::lookup::{Service, ask_rpcbind, rdma_netid, resolve};
use crate::requester::{
    Alignment, Ccp, Connection, Identity, Session, Settings, VersionMemory, session,
};
use crate::security::Security;
use crate::units::{duration, size};

/// Stands for the port mapper's answer.
const ASK: &str = "rpcbind";

/// Data of more bytes is aligned, if any is.
const PADDING_THRESHOLD: u32 = 512;

/// The longest inline limit that a client can announce (RFC 8797 section 4.2).
const MAX_INLINE: usize = 256 << 10;

/// Where the server is, and how to behave towards it.
#[derive(Args, Clone, Debug)]
pub struct Client {
    /// Where the server is.
    #[command(flatten)]
    pub place: ServerAddress,
    /// How to behave towards it.
    #[command(flatten)]
    pub options: ClientOptions,
}

/// Where the server is, and from where it is reached.
#[derive(Args, Clone, Debug)]
pub struct ServerAddress {
    /// NFS over RDMA: address and port of the server's RDMA listener. Port 20049 may be left out;
    /// the oldest servers listen on 2049.
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1:20049")]
    pub target: String,

    /// MOUNT over TCP: address and port. Linux's mountd has a port of its own (see rpcinfo, or use
    /// --rpcbind).
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        default_value = "127.0.0.1:2049",
        default_value_if("rpcbind", clap::builder::ArgPredicate::IsPresent, "rpcbind")
    )]
    pub mount: String,

    /// Ask the port mapper for the ports of NFS over RDMA and MOUNT: the one of the target's host,
    /// or this one. The port of --target is then ignored; --mount still applies.
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    pub rpcbind: Option<String>,

    /// Name of the RDMA network to ask the port mapper for; by default `rdma`, or `rdma6` if the
    /// target has an IPv6 address.
    #[arg(long, value_name = "NETID", requires = "rpcbind")]
    pub netid: Option<String>,

    /// The export to mount.
    #[arg(long, value_name = "PATH", default_value = "/scratch")]
    pub export: String,

    /// Connect from this local address.
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
}

/// How to behave towards a server.
#[derive(Args, Clone, Debug)]
pub struct ClientOptions {
    /// Versions of RPC-over-RDMA to offer: `1`, `2`, or `1,2`. With both, version two is tried
    /// first, by a NULL call alone on the new connection, and version one is used with servers
    /// without it. Version two has longer inline messages, more specific errors, and remote
    /// invalidation of keys. Most servers support version one only; millraced supports both by
    /// default (rpcrdma.versions).
    #[arg(long, value_name = "1|2|1,2", default_value = "1", value_parser = versions)]
    pub versions: Versions,

    /// Use version two only: short for --versions 2.
    #[arg(long, conflicts_with = "versions")]
    pub version_two: bool,

    /// Servers that closed the connection when asked for version two. All connections share it.
    #[arg(skip)]
    pub version_memory: VersionMemory,

    /// Inline limit in bytes announced to the server for both directions, 1KiB to 256KiB. 0
    /// announces none, which means 1KiB, or 4KiB in version two.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = inline)]
    pub inline: usize,

    /// In version one, ask the server for its limits before the first call (CCP, RFC 5666 section
    /// 6), with this program number (default 100417). They replace --inline. Servers without CCP
    /// are used as without this option.
    #[arg(
        long,
        value_name = "PROGRAM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "100417"
    )]
    pub ccp: Option<u32>,

    /// In version one, align the data of WRITEs that fit inline, by RDMA_MSGP (RFC 5666 section
    /// 3.9): `off`, to the server's alignment as obtained with --ccp (`ccp`), or to multiples of
    /// this number of bytes. millraced accepts such calls unless rpcrdma.padding is off; Linux
    /// refuses them.
    #[arg(long, value_name = "off|ccp|BYTES", default_value = "off", value_parser = padding)]
    pub padding: Alignment,

    /// Offer no memory for large results, so that a server in classic mode (millraced with
    /// `read_chunk_replies: on`) must send them as read chunks (RFC 5666 section 3.8), in version
    /// one. Other servers answer READ with no more than fits inline, or fail the call. Replies with
    /// read chunks are fetched, and answered by RDMA_DONE, without this option as well.
    #[arg(long)]
    pub classic: bool,

    /// How calls are authenticated and protected, as mount's option `sec`: sys, or krb5, krb5i, krb5p
    /// with a Kerberos ticket, which `kinit` gets. The ticket is taken from the cache that KRB5CCNAME
    /// names, or else from the default one. Calls are made as the user of the ticket, whatever --uid
    /// and --gid are; MOUNT uses AUTH_SYS. The export must allow it (`security` in millraced.yaml).
    /// With krb5i and krb5p, READ and WRITE move at most 960 KiB.
    #[arg(long, value_enum, value_name = "SECURITY", default_value = "sys")]
    pub security: Security,

    /// The server's service that the Kerberos ticket is for: SERVICE@HOST, or the name of a principal
    /// as `klist -k` shows it of the server's keytab. By default nfs@ and the host of --target, which
    /// then has to be the name in the keytab and no address.
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,

    /// User number of the calls.
    #[arg(long, value_name = "UID", default_value_t = 0)]
    pub uid: u32,

    /// Group number of the calls.
    #[arg(long, value_name = "GID", default_value_t = 0)]
    pub gid: u32,

    /// Let the server invalidate the client's keys with its replies.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub remote_invalidation: bool,

    /// Timeout of connecting, of mounting, and of each call.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,

    /// How long to wait on a new connection before the first call: Linux's siw as responder loses a
    /// message that follows too closely. By default 100ms on iWARP, 0 on other networks.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub settle: Option<Duration>,

    /// What carries the calls.
    #[command(flatten)]
    pub fabric: Fabric,
}

impl ServerAddress {
    /// Listeners at known addresses, reached from an address that the system selects.
    #[must_use]
    pub fn of(target: SocketAddr, mount: SocketAddr, export: &str) -> Self {
        Self {
            target: target.to_string(),
            mount: mount.to_string(),
            rpcbind: None,
            netid: None,
            export: export.to_owned(),
            source: None,
        }
    }
}

impl ClientOptions {
    /// The program number of the request for limits, if enabled.
    fn ccp_program(&self) -> Option<u32> {
        let learns = matches!(self.padding, Alignment::Learnt { .. });
        self.ccp.or(learns.then_some(ccp::PROGRAM))
    }

    /// How long to wait on a new connection. 0 without a fabric.
    #[must_use]
    pub fn settle(&self) -> Duration {
        let usual = || self.fabric.settle().unwrap_or_default();
        self.settle.unwrap_or_else(usual)
    }
}

impl Client {
    /// The identity of the calls.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity::system("millrace-bench", self.options.uid, self.options.gid, &[])
    }

    /// Settings for connections with so many calls at once.
    #[must_use]
    pub fn settings(&self, depth: usize) -> Settings {
        let private_data = (self.options.inline > 0).then_some(PrivateData {
            remote_invalidation: self.options.remote_invalidation,
            send_size: self.options.inline,
            receive_size: self.options.inline,
        });
        let versions = if self.options.version_two {
            Versions::TWO
        } else {
            self.options.versions
        };
        Settings {
            versions,
            version_memory: self.options.version_memory.clone(),
            remote_invalidation: self.options.remote_invalidation,
            private_data,
            credits: u32::try_from(depth).unwrap_or(u32::MAX).max(1),
            calls: depth.max(1),
            identity: self.identity(),
            timeout: self.options.timeout,
            settle: self.options.settle(),
            ccp: self.options.ccp_program().map(|program| Ccp {
                program,
                call_size: self.options.inline.max(MIN_INLINE),
                reply_size: self.options.inline.max(MIN_INLINE),
            }),
            alignment: self.options.padding,
            expect_read_chunks: self.options.classic,
            offer_results: !self.options.classic,
            ..Settings::default()
        }
    }

    /// Address of the RDMA listener: that of the target, or the port mapper's answer.
    ///
    /// # Errors
    /// If the name has no address, or the port mapper does not know of the service.
    pub fn target(&self) -> Result<SocketAddr> {
        let target = resolve(&self.place.target, nfs3::RDMA_PORT)?;
        let Some(rpcbind) = self.port_mapper()? else {
            return Ok(target);
        };
        let netid = self.place.netid.as_deref();
        let service = Service {
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            netid: netid.unwrap_or_else(|| rdma_netid(target.ip())),
        };
        ask_rpcbind(rpcbind, service, self.options.timeout)
    }

    /// Address of MOUNT.
    ///
    /// # Errors
    /// If the name has no address, or the port mapper does not know of the service.
    pub fn mount(&self) -> Result<SocketAddr> {
        match self.port_mapper()? {
            Some(rpcbind) if self.place.mount == ASK => {
                let netid = if rpcbind.is_ipv4() {
                    Netid::Tcp
                } else {
                    Netid::Tcp6
                };
                let service = Service {
                    program: mount::PROGRAM,
                    version: mount::VERSION,
                    netid: netid.name(),
                };
                ask_rpcbind(rpcbind, service, self.options.timeout)
            }
            _ => resolve(&self.place.mount, nfs3::PORT),
        }
    }

    /// Address of the port mapper, if it is used.
    fn port_mapper(&self) -> Result<Option<SocketAddr>> {
        match self.place.rpcbind.as_deref() {
            None => Ok(None),
            Some("") => {
                let mut host = resolve(&self.place.target, nfs3::RDMA_PORT)?;
                host.set_port(rpcbind::PORT);
                Ok(Some(host))
            }
            Some(name) => resolve(name, rpcbind::PORT).map(Some),
        }
    }

    /// The root of the export.
    ///
    /// # Errors
    /// If MOUNT cannot be reached or refuses.
    pub fn root(&self) -> Result<FileHandle> {
        let address = self.mount()?;
        session::mount(
            address,
            &self.place.export,
            &self.identity(),
            self.options.timeout,
        )
        .with_context(|| format!("cannot mount {} by MOUNT at {address}", self.place.export))
    }

    /// A session with settings of one's own, with Kerberos under a context of its own. Over RDMA
    /// devices the pool has to be one of [`pool`].
    ///
    /// # Errors
    /// If the server cannot be reached, or makes no context.
    pub fn session(&self, pool: &Pool, settings: Settings) -> Result<Session> {
        let address = self.target()?;
        let connected = Session::connect(self.provider()?, pool, address, settings);
        let mut session = connected.with_context(|| match self.place.source {
            Some(source) => {
                format!("cannot connect to NFS over RDMA at {address} from {source}")
            }
            None => format!("cannot connect to NFS over RDMA at {address}"),
        })?;
        if let Some(context) = self.create_context(&mut session)? {
            session.authenticate(context);
        }
        Ok(session)
    }

    /// The provider that carries the client.
    ///
    /// # Errors
    /// If the system gives no descriptor, or there are no RDMA devices where such are wanted.
    pub fn provider(&self) -> Result<Box<dyn Provider>> {
        let ClientOptions {
            fabric, timeout, ..
        } = &self.options;
        fabric.provider(self.place.source, *timeout)
    }
}

/// Reads an inline limit: none, or one that the private data can tell (RFC 8797 section 4.2).
fn inline(text: &str) -> Result<usize, String> {
    match size(text) {
        Ok(bytes) if bytes == 0 || (MIN_INLINE..=MAX_INLINE).contains(&bytes) => Ok(bytes),
        _ => Err("expected 0, or a size from 1KiB to 256KiB".to_owned()),
    }
}

/// Reads `off`, `ccp` or an alignment in bytes.
fn padding(text: &str) -> Result<Alignment, String> {
    match text {
        "off" => Ok(Alignment::Off),
        "ccp" => Ok(Alignment::Learnt {
            threshold: PADDING_THRESHOLD,
        }),
        _ => {
            let align = size(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
            let align = align.ok_or("expected `off`, `ccp`, or bytes such as 512")?;
            Ok(Alignment::Fixed {
                align,
                threshold: PADDING_THRESHOLD,
            })
        }
    }
}

/// Memory for a client, with hugepages if there are any, known to RDMA devices.
///
/// # Errors
/// If there is not so much memory.
pub fn pool(bytes: usize) -> Result<Pool> {
    Pool::new(fabric::registry(), PoolConfig { bytes }).context("no memory for buffers")
}

/// Reads `--versions`.
fn versions(text: &str) -> Result<Versions, String> {
    let mut found = Vec::new();
    for word in text.split(',') {
        let number = word.trim().parse().ok();
        match number.and_then(Version::from_number) {
            Some(version) if !found.contains(&version) => found.push(version),
            Some(_) => return Err(format!("`{word}` stands there twice")),
            None => return Err(format!("`{word}` is no version; there are 1 and 2")),
        }
    }
    match found[..] {
        [one] => Ok(Versions::new(one, one)),
        [one, other] => Ok(Versions::new(one, other)),
        _ => Err("no version; there are 1 and 2".to_owned()),
    }
}

/// The number of the version that a connection speaks, zero if it speaks none.
#[must_use]
pub fn spoken(connection: &Connection) -> u32 {
    connection.version().map_or(0, Version::number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct ProgramArguments {
        #[command(flatten)]
        client: Client,
    }

    fn client(arguments: &[&str]) -> Result<Client, clap::Error> {
        let line = [&["millrace-bench"], arguments].concat();
        <ProgramArguments as clap::Parser>::try_parse_from(line).map(|line| line.client)
    }

    #[test]
    fn inline_limits_are_those_that_can_be_told() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("4KiB", 4096),
            ("256KiB", 262_144),
        ] {
            let client = client(&["--inline", text]).expect(text);
            assert_eq!(client.options.inline, bytes);
        }
        for wrong in ["1", "1023", "262145", "1GiB", "-1", "little"] {
            assert!(client(&["--inline", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn alignment_that_is_to_be_learnt_is_asked_for() {
        for (arguments, program) in [
            (&[][..], None),
            (&["--padding", "512"], None),
            (&["--padding", "ccp"], Some(ccp::PROGRAM)),
            (&["--ccp"], Some(ccp::PROGRAM)),
            (&["--padding", "ccp", "--ccp=7"], Some(7)),
        ] {
            let settings = client(arguments).expect("parses").settings(1);
            let asked = settings.ccp.map(|ccp| ccp.program);
            assert_eq!(asked, program, "{arguments:?}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(versions("1"), Ok(Versions::ONE));
        assert_eq!(versions("2"), Ok(Versions::TWO));
        for both in ["1,2", "2,1", "1, 2"] {
            assert_eq!(versions(both), Ok(Versions::BOTH));
        }
        for wrong in ["", "0", "3", "1,", "1,1", "1,2,2", "two", "1-2"] {
            assert!(versions(wrong).is_err(), "{wrong}");
        }
    }
}
