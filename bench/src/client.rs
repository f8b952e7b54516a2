//! How all commands reach a server.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::fabric::Provider;
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::private_data::PrivateData;

use crate::requester::session::mount;
use crate::requester::{Identity, Session, Settings};
use crate::units::duration;

/// Where the server is, and how to behave towards it.
#[derive(Args, Clone, Debug)]
pub struct Client {
    /// NFS over RDMA: address and port of the server's RDMA listener.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:20049")]
    pub target: String,

    /// MOUNT over TCP: address and port. Linux's mountd has a port of its own (see rpcinfo).
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:2049")]
    pub mount: String,

    /// The export to mount.
    #[arg(long, value_name = "PATH", default_value = "/scratch")]
    pub export: String,

    /// Inline limit in bytes that is told to the server in both directions; 0 tells nothing, which
    /// means 1024.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub inline: usize,

    /// User number of the calls.
    #[arg(long, value_name = "UID", default_value_t = 0)]
    pub uid: u32,

    /// Group number of the calls.
    #[arg(long, value_name = "GID", default_value_t = 0)]
    pub gid: u32,

    /// Let the server invalidate our keys with its replies, if it wants to.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub remote_invalidation: bool,

    /// How long the server may take to connect, to mount, and for each call.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,

    /// How long to wait on a new connection before the first call: Linux's siw as responder
    /// overlooks a message that follows too closely.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    pub settle: Duration,
}

impl Client {
    /// Who calls.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity::system("millrace-bench", self.uid, self.gid, &[])
    }

    /// Settings for connections with so many calls at once.
    #[must_use]
    pub fn settings(&self, depth: usize) -> Settings {
        let private_data = (self.inline > 0).then_some(PrivateData {
            remote_invalidation: self.remote_invalidation,
            send_size: self.inline,
            receive_size: self.inline,
        });
        Settings {
            private_data,
            credits: u32::try_from(depth).unwrap_or(u32::MAX).max(1),
            calls: depth.max(1),
            identity: self.identity(),
            timeout: self.timeout,
            settle: self.settle,
            ..Settings::default()
        }
    }

    /// Address of the RDMA listener.
    ///
    /// # Errors
    /// If the name has no address.
    pub fn target(&self) -> Result<SocketAddr> {
        resolve(&self.target)
    }

    /// The root of the export.
    ///
    /// # Errors
    /// If MOUNT cannot be reached or refuses.
    pub fn root(&self) -> Result<FileHandle> {
        let address = resolve(&self.mount)?;
        mount(address, &self.export, &self.identity(), self.timeout)
            .with_context(|| format!("cannot mount {} by MOUNT at {}", self.export, self.mount))
    }

    /// A session with settings of one's own.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn session(&self, pool: &Pool, settings: Settings) -> Result<Session> {
        let address = self.target()?;
        Session::connect(self.provider()?, pool, address, settings)
            .with_context(|| format!("cannot connect to NFS over RDMA at {}", self.target))
    }

    /// The software iWARP provider.
    ///
    /// # Errors
    /// If the system gives no descriptor.
    pub fn provider(&self) -> Result<Box<dyn Provider>> {
        Ok(Box::new(Iwarp::new(IwarpConfig {
            connect_wait: self.timeout,
            reply_wait: self.timeout,
            ..IwarpConfig::default()
        })?))
    }
}

/// The first address of a name.
///
/// # Errors
/// If there is none.
pub fn resolve(name: &str) -> Result<SocketAddr> {
    let mut addresses = name
        .to_socket_addrs()
        .with_context(|| format!("`{name}` is no HOST:PORT"))?;
    match addresses.next() {
        Some(address) => Ok(address),
        None => bail!("`{name}` has no address"),
    }
}

/// Memory for a client, with hugepages if there are any.
///
/// # Errors
/// If there is not so much memory.
pub fn pool(bytes: usize) -> Result<Pool> {
    let registry = Registry::new(HugepagePolicy::Auto);
    Pool::new(&registry, PoolConfig { bytes }).context("no memory for buffers")
}
