//! A private target: started on free ports, ended with its owner.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Client, Place};

/// Time for the target to come up.
const START_WAIT: Duration = Duration::from_secs(15);

/// The one export.
const EXPORT: &str = "/scratch";

/// A running `millraced` with one export in memory.
pub struct Spawned {
    child: Child,
    config: PathBuf,
    rdma: SocketAddr,
    rpc: SocketAddr,
    admin: SocketAddr,
}

impl Spawned {
    /// Starts the program at `path` with one busy reactor on `core`, in classic mode or not, and
    /// waits until it listens.
    ///
    /// # Errors
    /// If it cannot be started or does not come up.
    pub fn start(path: &Path, core: usize, classic: bool) -> Result<Self> {
        let (rdma, rpc, admin) = (free_address()?, free_address()?, free_address()?);
        let config = std::env::temp_dir().join(format!("millrace-bench-{}.yaml", rdma.port()));
        fs::write(&config, configuration(core, classic, rdma, rpc, admin))?;
        let child = Command::new(path)
            .arg("--config")
            .arg(&config)
            .stdout(Stdio::null())
            // Where it says what ails it.
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        let mut spawned = Self {
            child,
            config,
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
            if TcpStream::connect(self.rpc).is_ok() && TcpStream::connect(self.admin).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the target does not listen")
    }

    /// The same client, sent to this target.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let mut place = Place::of(self.rdma, self.rpc, EXPORT);
        place.source = client.place.source;
        Client {
            place,
            manner: client.manner.clone(),
        }
    }

    /// Its addresses: NFS over RDMA, and MOUNT over TCP.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.rdma, self.rpc]
    }

    /// Its management plane.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
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

impl Drop for Spawned {
    fn drop(&mut self) {
        self.pause(false);
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.config);
    }
}

/// A port that nobody has just now.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn configuration(
    core: usize,
    classic: bool,
    rdma: SocketAddr,
    rpc: SocketAddr,
    admin: SocketAddr,
) -> String {
    let classic = if classic { "on" } else { "off" };
    format!(
        "\
reactors:
  cores: [{core}]
  poll: busy
mempool:
  hugepages: auto
  size: 256MiB
fabric:
  - provider: iwarp
    listen: {rdma}
    crc: auto
rpc:
  listen: {rpc}
  rpcbind: off
rpcrdma:
  read_chunk_replies: {classic}
exports:
  - path: {EXPORT}
    store: {{ kind: memory, size: 512MiB }}
    clients: [\"127.0.0.0/8\"]
    access: rw
    squash: none
admin:
  listen: {admin}
log: error
"
    )
}
