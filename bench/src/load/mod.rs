//! Load on a running server, and its cost.

mod calls;
mod compounds;
mod cpu;
mod engine;
mod file_tree;
mod lane;
mod pattern;
mod progress;
mod report;
mod tcp;
mod tcp_file;
mod workload;

pub use cpu::{ServerCpu, Stopwatch, pin};
pub use engine::Engine;
pub use lane::{FileCount, Lanes};
pub use pattern::Pattern;
pub use progress::Progress;
pub use report::{BusySeconds, Limit, Measurement, table};
pub use tcp::TcpLoad;
pub use tcp_file::TcpFile;
pub use workload::{IdlePolicy, NfsVersion, Operation, Until, Workload};

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use millrace_wire::nfs3;

use crate::client::Client;
use crate::interrupt;
use crate::lookup::resolve;
use crate::requester::PROTECTED_DATA_MAX;
use crate::units;

/// The most connections of one run.
const CONNECTIONS_MAX: usize = 10_000;

/// The most files for LOOKUPs, as their numbers have eight digits, and the most directories.
const FILES_MAX: u64 = 99_999_999;
const DIRECTORIES_MAX: usize = 100_000;

/// A predefined sequence of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// READ and WRITE of 4 KiB and 1 MiB, and GETATTR, about a second each.
    Tour,
}

/// Make load on a server and print operations, bytes, latencies and processor time.
///
/// Ctrl-C ends it early: it prints what was measured until then, removes its files, and fails.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Five loads in five seconds:
    millrace-bench run --preset tour
  Random reads of 4 KiB, 32 at a time, for ten seconds, on core 1:
    millrace-bench run --op read --size 4KiB --depth 32 --random --time 10s --core 1
  Writes whose data is checked by reading everything back:
    millrace-bench run --op write --size 1MiB --depth 16 --verify
  In RPC-over-RDMA version two where the server has it, else in version one:
    millrace-bench run --preset tour --versions 1,2
  Large reads as read-chunk replies, from a server in classic mode:
    millrace-bench run --op read --size 1MiB --depth 8 --classic
  The same calls in NFS version 4.2, if the server serves it (nfs4.minor_versions):
    millrace-bench run --preset tour --nfs 4.2
  The same calls encrypted by Kerberos, with the ticket of `kinit`:
    millrace-bench run --target server.example.com --mount server.example.com --preset tour \
      --security krb5p
  OPEN and CLOSE, beside 100,000 opens of 5,000 other clients:
    millrace-bench run --nfs 4.2 --op open --idle 5000 --opens 20
  The same calls over TCP, to any server of NFS version 3:
    millrace-bench run --tcp=filer:2049 --mount filer:20048 --export /data --preset tour
  LOOKUP among ten million files in ten thousand directories:
    millrace-bench run --op lookup --files 10000000 --directories 10000
  READ and WRITE anywhere in a file of a tebibyte that is a hole:
    millrace-bench run --op mixed --random --sparse --file-size 1TiB
  With the server's processor time per operation, from its metrics:
    millrace-bench run --op getattr --admin 127.0.0.1:9620
")]
pub struct Run {
    #[command(flatten)]
    client: Client,

    /// Call over TCP instead of RDMA, at this address, or at port 2049 of --target's host, by
    /// version 3 on one connection.
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["nfs", "connections", "idle", "random", "verify", "versions", "version_two"]
    )]
    tcp: Option<String>,

    /// The operation.
    #[arg(long, value_enum, default_value = "read")]
    op: Operation,

    /// The version of NFS. In version 4 a call is a COMPOUND as Linux sends it, by a session with a
    /// slot for each call in flight; WRITE brings attributes, as in version 3. The files are made by
    /// version 3.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "3")]
    nfs: NfsVersion,

    /// Bytes of one READ or WRITE, at most 1 MiB.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = units::size)]
    size: usize,

    /// Calls in flight on each connection.
    #[arg(long, value_name = "CALLS", default_value_t = 32)]
    depth: usize,

    /// Connections, all on one core.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    connections: usize,

    /// Further connections, which make one call and are then idle.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    idle: usize,

    /// Further opens of each connection's file by owners of their own, in version 4: state that the
    /// server keeps meanwhile.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    opens: u32,

    /// Random offsets in the file.
    #[arg(long, conflicts_with = "sequential")]
    random: bool,

    /// Sequential offsets (the default).
    #[arg(long)]
    sequential: bool,

    /// WRITEs that are durable when they are answered, instead of unstable ones.
    #[arg(long)]
    stable: bool,

    /// Sleep while nothing arrives, instead of polling: the server has this core then, too. For
    /// machines with few cores, where polling would take time from the server.
    #[arg(long)]
    sleep: bool,

    /// Compare every byte read, and read back everything written.
    #[arg(long)]
    verify: bool,

    /// Duration.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::duration)]
    time: Duration,

    /// Number of operations, instead of a duration.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,

    /// Bytes of each connection's file.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = units::size)]
    file_size: usize,

    /// Give the files that size without writing data: they are holes, until WRITEs fill them.
    #[arg(long, conflicts_with_all = ["verify", "tcp"])]
    sparse: bool,

    /// LOOKUP of random ones of so many files, which are made before and removed afterwards, on one
    /// connection in version 3.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with_all = ["tcp", "preset"])]
    files: u64,

    /// Directories that these files are spread over.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "files")]
    directories: usize,

    /// Several loads in one table, instead of --op, --size and --depth.
    #[arg(long, value_enum)]
    preset: Option<Preset>,

    /// The source of the server's processor time.
    #[command(flatten)]
    server: ServerCpu,

    /// The core to run on.
    #[arg(long, value_name = "NUMBER")]
    core: Option<usize>,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Run {
    fn workloads(&self) -> Vec<Workload> {
        let one = Workload {
            operation: self.op,
            size: self.size,
            depth: self.depth,
            random: self.random,
            verify: self.verify,
            stable: self.stable,
            until: self.count.map_or(Until::Time(self.time), Until::Count),
        };
        let largest = match self.client.options.security.protects_data() {
            true => PROTECTED_DATA_MAX,
            false => usize::MAX,
        };
        match self.preset {
            None => vec![one],
            Some(Preset::Tour) => Workload::tour()
                .into_iter()
                .map(|workload| Workload {
                    random: self.random,
                    verify: self.verify,
                    stable: self.stable,
                    size: workload.size.min(largest),
                    ..workload
                })
                .collect(),
        }
    }

    /// Runs and prints. False if data was wrong.
    ///
    /// # Errors
    /// If the server cannot be reached, or calls fail.
    pub fn run(&self) -> Result<bool> {
        let workloads = self.workloads();
        for workload in &workloads {
            workload.check(self.file_size)?;
        }
        if self.connections == 0 || self.connections.saturating_add(self.idle) > CONNECTIONS_MAX {
            bail!("--connections takes 1 or more, with --idle at most {CONNECTIONS_MAX}");
        }
        self.check_files()?;
        if let Some(core) = self.core {
            pin(core)?;
        }
        if let Some(address) = &self.tcp {
            self.client.check_tcp_security()?;
            self.run_over_tcp(address, &workloads)?;
            return Ok(true);
        }
        let depth = workloads.iter().map(|workload| workload.depth).max();
        let lanes = Lanes {
            nfs: self.nfs,
            connections: self.connections,
            idle: self.idle,
            depth: depth.unwrap_or(1),
            file_size: self.file_size,
            opens: self.opens,
            sparse: self.sparse,
            files: FileCount {
                files: self.files,
                directories: self.directories,
            },
        };
        let mut engine = Engine::with(&self.client, lanes)?;
        engine.set_idle_policy(self.idle_policy());
        let version = engine.version();
        interrupt::ends_in_order();
        if self.files > 0 {
            self.fill(&mut engine)?;
        }
        let goes_on = |_: &&Workload| !interrupt::is_asked_to_end();
        let measured = workloads.iter().take_while(goes_on).map(|workload| {
            let bar = progress(workload, self.json);
            let measured = engine.run(workload, &self.server, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            measured
        });
        let measured = measured.collect::<Result<Vec<_>>>();
        // If the load failed, that is what to tell.
        let finished = engine.finish();
        let measurements = measured?;
        finished?;
        if self.json {
            let report = serde_json::json!({
                "rpcrdma_version": version,
                "measurements": measurements,
            });
            println!("{report}");
        } else {
            println!("RPC-over-RDMA version {version}");
            println!("{}", table(&measurements));
        }
        check_not_interrupted()?;
        Ok(measurements.iter().all(|measured| measured.mismatches == 0))
    }
}

impl Run {
    /// Makes the files for LOOKUPs.
    fn fill(&self, engine: &mut Engine) -> Result<()> {
        let workload = Workload::counted(Operation::Fill, self.depth, self.files);
        let bar = progress(&workload, self.json);
        let filled = engine.fill(&mut |done| bar.set_position(done));
        bar.finish_and_clear();
        filled.context("cannot make the files for --files; some of them are left")
    }

    /// Refuses options that do not go together.
    fn check_files(&self) -> Result<()> {
        let suits = (self.op, self.nfs, self.connections, self.idle);
        if self.files > 0 && suits != (Operation::Lookup, NfsVersion::Three, 1, 0) {
            bail!("--files takes --op lookup and --nfs 3, and one connection");
        }
        if self.files > FILES_MAX || !(1..=DIRECTORIES_MAX).contains(&self.directories) {
            bail!("--files takes at most {FILES_MAX}, --directories 1 to {DIRECTORIES_MAX}");
        }
        Ok(())
    }

    const fn idle_policy(&self) -> IdlePolicy {
        match self.sleep {
            true => IdlePolicy::Sleep,
            false => IdlePolicy::Yield,
        }
    }

    fn run_over_tcp(&self, address: &str, workloads: &[Workload]) -> Result<()> {
        let address = match address {
            "" => SocketAddr::new(
                resolve(&self.client.place.target, nfs3::PORT)?.ip(),
                nfs3::PORT,
            ),
            named => resolve(named, nfs3::PORT)?,
        };
        let file = TcpFile::make(&self.client, address, self.file_size)?;
        let mut load = file.load()?;
        load.set_idle_policy(self.idle_policy());
        interrupt::ends_in_order();
        let goes_on = |_: &&Workload| !interrupt::is_asked_to_end();
        let workloads = workloads.iter().take_while(goes_on);
        let measured = workloads.map(|one| load.run(one, &self.server));
        let measured = measured.collect::<Result<Vec<_>>>();
        // If the load failed, that is what to tell.
        let removed = file.remove();
        let measurements = measured?;
        removed?;
        match self.json {
            true => println!("{}", serde_json::json!({ "measurements": measurements })),
            false => println!("{}", table(&measurements)),
        }
        check_not_interrupted()
    }
}

/// Fails if the load ended before its time: what was measured until then is printed, and its files
/// are removed.
fn check_not_interrupted() -> Result<()> {
    if interrupt::is_asked_to_end() {
        bail!("interrupted");
    }
    Ok(())
}

fn progress(workload: &Workload, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let length = match workload.until {
        Until::Time(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        Until::Count(count) => count,
    };
    let bar = ProgressBar::new(length).with_message(workload.name());
    if let Ok(style) = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}
