//! A private target: started on free ports, ended with its owner.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Client, ServerAddress};
use crate::fabric::Fabric;
use crate::interrupt::{OwnedFile, OwnedProgram};

/// Time for the target to come up.
const START_WAIT: Duration = Duration::from_secs(15);

/// The one export.
const EXPORT: &str = "/scratch";

/// How a target is configured.
#[derive(Clone, Copy, Debug)]
pub struct SpawnOptions {
    /// Classic mode (RFC 5666 section 3.8).
    pub classic: bool,
    /// A management plane that takes changes.
    pub managed: bool,
    /// Inline limit in bytes.
    pub inline: usize,
}

impl Default for SpawnOptions {
    fn default() -> Self {
        Self {
            classic: false,
            managed: false,
            inline: 4096,
        }
    }
}

/// A running `millraced` with one export in memory.
pub struct Spawned {
    child: OwnedProgram,
    _config: OwnedFile,
    rdma: SocketAddr,
    rpc: SocketAddr,
    /// Its management plane, and the file with the token for changes.
    admin: Option<(SocketAddr, OwnedFile)>,
}

impl Spawned {
    /// Starts the program at `path` with one busy reactor on `core` and one listener on `fabric`,
    /// in classic mode or not, and waits until it listens.
    ///
    /// # Errors
    /// If it cannot be started or does not come up.
    pub fn start(path: &Path, core: usize, fabric: &Fabric, classic: bool) -> Result<Self> {
        let options = SpawnOptions {
            classic,
            ..SpawnOptions::default()
        };
        Self::start_with(path, core, fabric, options)
    }

    /// The same, not in classic mode, with a management plane that takes changes.
    ///
    /// # Errors
    /// If it cannot be started or does not come up.
    pub fn managed(path: &Path, core: usize, fabric: &Fabric) -> Result<Self> {
        let options = SpawnOptions {
            managed: true,
            ..SpawnOptions::default()
        };
        Self::start_with(path, core, fabric, options)
    }

    /// The same, with options of one's own.
    ///
    /// # Errors
    /// If it cannot be started or does not come up.
    pub fn start_with(
        path: &Path,
        core: usize,
        fabric: &Fabric,
        options: SpawnOptions,
    ) -> Result<Self> {
        let (rdma, rpc) = (fabric.free_address()?, free_address()?);
        let file = |end| {
            let name = format!("millrace-bench-{}.{end}", rdma.port());
            OwnedFile::new(std::env::temp_dir().join(name))
        };
        let config = file("yaml");
        let mut text = configuration(core, options, (fabric.name(), rdma), rpc);
        let mut admin = None;
        if options.managed {
            let (address, token) = (free_address()?, file("token"));
            write_token(token.path())?;
            let section = format!(
                "listen: {address}\n  token_file: {}",
                token.path().display()
            );
            text = text.replace("listen: 127.0.0.1:0", &section);
            admin = Some((address, token));
        }
        fs::write(config.path(), text)?;
        let mut command = Command::new(path);
        command
            .arg("--config")
            .arg(config.path())
            .stdout(Stdio::null())
            // Where it says what ails it.
            .stderr(Stdio::inherit());
        let child = OwnedProgram::start(&mut command)
            .with_context(|| format!("cannot start {}", path.display()))?;
        let mut spawned = Self {
            child,
            _config: config,
            rdma,
            rpc,
            admin,
        };
        spawned.wait()?;
        Ok(spawned)
    }

    fn wait(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_WAIT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the target ended at once: {status}");
            }
            if TcpStream::connect(self.rpc).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the target does not listen")
    }

    /// The same client, sent to this target.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let mut place = ServerAddress::of(self.rdma, self.rpc, EXPORT);
        place.source = client.place.source;
        Client {
            place,
            options: client.options.clone(),
        }
    }

    /// Its addresses: NFS over RDMA, and MOUNT over TCP.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.rdma, self.rpc]
    }

    /// Its management plane, and the file with the token for changes, if it was started with one.
    #[must_use]
    pub fn admin(&self) -> Option<(SocketAddr, &Path)> {
        let (address, token) = self.admin.as_ref()?;
        Some((*address, token.path()))
    }

    /// Its export.
    #[must_use]
    pub fn export(&self) -> &'static str {
        EXPORT
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it from running, or lets it run again.
    pub fn pause(&self, pause: bool) {
        set_paused(self.child.id(), pause);
    }
}

/// Stops a process from running, or lets it run again.
pub fn set_paused(pid: u32, pause: bool) {
    let signal = if pause { Signal::STOP } else { Signal::CONT };
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // A process that has gone is noticed by its connections.
        let _ = kill_process(pid, signal);
    }
}

/// Writes a new token that only this user can read.
fn write_token(path: &Path) -> Result<()> {
    let mut random = [0_u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let options = &mut fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file?.write_all(token.as_bytes())?;
    Ok(())
}

/// A port that is currently unused.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The networks that may mount.
pub(crate) fn networks(host: IpAddr) -> Vec<String> {
    let mut networks = vec!["127.0.0.0/8".to_owned()];
    if !host.is_loopback() {
        networks.push(host.to_string());
    }
    networks
}

fn configuration(
    core: usize,
    options: SpawnOptions,
    (provider, rdma): (&str, SocketAddr),
    rpc: SocketAddr,
) -> String {
    let networks = networks(rdma.ip());
    let inline = options.inline;
    let classic = if options.classic { "on" } else { "off" };
    format!(
        "\
reactors:
  cores: [{core}]
  poll: busy
mempool:
  hugepages: auto
  size: 256MiB
fabric:
  - provider: {provider}
    listen: {rdma}
rpc:
  listen: {rpc}
  rpcbind: off
rpcrdma:
  read_chunk_replies: {classic}
  inline: {inline}
exports:
  - path: {EXPORT}
    store: {{ kind: memory, size: 512MiB }}
    clients: {networks:?}
    access: rw
    squash: none
admin:
  listen: 127.0.0.1:0
log: error
"
    )
}
