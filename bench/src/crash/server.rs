//! The server of the run: started, killed, stopped in order, started again in the same place.

use std::fs::{self, File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millrace_wire::nfs3;
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt::OwnedProgram;
use crate::requester::session::call_over_tcp;

/// Time for a start, and for an end in order.
const START_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(60);

/// Pause between two looks.
pub const PAUSE: Duration = Duration::from_millis(5);

/// A store to serve from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// A folder of this machine.
    Posix,
    /// Memory: it loses everything, which must be found.
    Memory,
    /// A directory in CephFS, which is empty; --store-key says where it is.
    Ceph,
}

impl Store {
    /// Its configuration with these keys, over a new folder below `folder` if it is of kind posix.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn configuration(self, folder: &Path, keys: &[String]) -> Result<String> {
        let mut text = match self {
            Self::Memory => return Ok("{ kind: memory, size: 256MiB }".to_owned()),
            Self::Ceph => "{ kind: ceph".to_owned(),
            Self::Posix => {
                let root = folder.join("export");
                fs::create_dir(&root)?;
                format!("{{ kind: posix, root: {}", root.display())
            }
        };
        for key in keys {
            let (key, value) = key.split_once('=').unwrap_or((key, ""));
            text += &format!(", {key}: {value}");
        }
        Ok(text + " }")
    }
}

/// A server, and how it is brought to its end.
pub enum Server {
    /// A millraced of our own.
    Own(Own),
    /// One that commands end and bring back.
    Foreign {
        /// Kills it, and returns when it serves again.
        crash: String,
    },
}

/// What a millraced of our own is to be.
#[derive(Clone, Copy)]
pub struct OwnPlan<'a> {
    /// The program.
    pub program: &'a Path,
    /// The folder for all that it needs.
    pub folder: &'a Path,
    /// The path of its export.
    pub export: &'a str,
    /// The store, as its configuration has it.
    pub store: &'a str,
    /// Reactors, on cores 0 and up.
    pub reactors: usize,
    /// More lines of its configuration.
    pub keys: &'a str,
}

/// A millraced of our own.
pub struct Own {
    program: PathBuf,
    config: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    child: Option<OwnedProgram>,
    /// NFS over RDMA.
    pub rdma: SocketAddr,
    /// MOUNT and NFS over TCP.
    pub rpc: SocketAddr,
}

impl Own {
    /// A server that is not started.
    ///
    /// # Errors
    /// If files cannot be made.
    pub fn new(plan: &OwnPlan<'_>) -> Result<Self> {
        let OwnPlan {
            program,
            folder,
            export,
            store,
            reactors,
            keys,
        } = *plan;
        let (rdma, rpc) = (free_address()?, free_address()?);
        let state = folder.join("state");
        fs::create_dir_all(&state)?;
        let cores: Vec<usize> = (0..reactors).collect();
        let config = folder.join("millraced.yaml");
        let socket = folder.join("admin.sock");
        let text = format!(
            "\
reactors: {{ cores: {cores:?}, poll: adaptive }}
mempool: {{ hugepages: off, size: 128MiB }}
fabric: [{{ provider: iwarp, listen: {rdma} }}]
rpc: {{ listen: {rpc}, rpcbind: off }}
state_directory: {}
exports:
  - path: {export}
    store: {store}
    clients: [127.0.0.0/8]
    access: rw
    squash: none
admin: {{ listen: 127.0.0.1:0, socket: {} }}
log: info
{keys}",
            state.display(),
            socket.display()
        );
        fs::write(&config, text)?;
        Ok(Self {
            program: program.to_owned(),
            config,
            log: folder.join("millraced.log"),
            socket,
            child: None,
            rdma,
            rpc,
        })
    }

    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start(&mut self) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = OwnedProgram::start(&mut command)
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        let start = Instant::now();
        while start.elapsed() < START_WAIT {
            self.check()?;
            if self.answers() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        bail!("the server does not listen")
    }

    /// The address of its management plane, for millracectl.
    #[must_use]
    pub fn admin(&self) -> String {
        format!("unix:{}", self.socket.display())
    }

    /// Whether it answers calls: while its reactors start, it may listen and close what comes.
    fn answers(&self) -> bool {
        let null = CallHeader {
            xid: 1,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: nfs3::Procedure::Null as u32,
            credential: Credential::None,
            verifier: OpaqueAuth::NONE,
        };
        call_over_tcp(self.rpc, &null, &(), START_WAIT).is_ok()
    }

    /// Fails if it has ended by itself.
    ///
    /// # Errors
    /// That it has.
    pub fn check(&mut self) -> Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            self.child = None;
            bail!("the server ended by itself: {status}\n{}", self.tail());
        }
        Ok(())
    }

    /// Kills it and waits until it is gone.
    ///
    /// # Errors
    /// If it has ended before.
    pub fn kill(&mut self) -> Result<()> {
        self.check()?;
        if let Some(mut child) = self.child.take() {
            child.end()?;
        }
        Ok(())
    }

    /// Asks it to end, without waiting.
    pub fn ask_to_end(&self) {
        let pid = self.child.as_ref().map(OwnedProgram::id);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // If the process has ended, the function that waits for it reports that.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Whether it has ended, in order, after being asked.
    ///
    /// # Errors
    /// If it ended with a failure.
    pub fn has_ended(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else {
            return Ok(true);
        };
        let Some(status) = child.try_wait()? else {
            return Ok(false);
        };
        self.child = None;
        if !status.success() {
            bail!(
                "the server ended with {status} when asked to\n{}",
                self.tail()
            );
        }
        Ok(true)
    }

    /// How long it may take to end in order.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        STOP_WAIT
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Runs a command of the user's.
///
/// # Errors
/// If it fails.
pub fn run(command: &str, log: &Path) -> Result<()> {
    let log = File::options().create(true).append(true).open(log)?;
    let status = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    if !status.success() {
        bail!("`{command}` ended with {status}");
    }
    Ok(())
}

/// A port that is currently unused.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
