//! Durability of answered operations when the server is killed at any time.

mod content;
mod gateways;
mod inspect;
mod lane;
mod mix;
mod mutant;
mod operation;
mod random;
mod run;
mod server;
mod state;
mod tcp;
mod tree;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::client::{Client, ClientOptions, ServerAddress};
use crate::load::NfsVersion;
use crate::lookup::resolve;
use crate::table::Table;
use crate::units;
use gateways::StateServers;
use mutant::Mutant;
use random::Random;
use run::{CrashPlan, CrashRun, Sums};
use server::{Own, OwnPlan, Server, Store};
use state::{StateFault, StatePlan, StateRun, StateSums};

/// The export of a server started here.
const EXPORT: &str = "/crash";

/// Cycles in which a mutant must find something to break.
const MUTANT_CYCLES: u64 = 30;

/// Time between two progress lines.
const TELL: Duration = Duration::from_secs(2);

/// Kill the server repeatedly under load, and verify that no answered operation is lost.
///
/// Clients over RDMA and one over TCP keep their queues full of WRITEs (UNSTABLE, DATA_SYNC and
/// FILE_SYNC, ragged and aligned), COMMITs, READs, CREATEs (GUARDED and EXCLUSIVE), MKDIRs,
/// RENAMEs, REMOVEs, RMDIRs, LINKs and SETATTRs. At a random time the server is killed (SIGKILL),
/// or sometimes stopped (SIGTERM), and started again. Then, with the old handles, these are
/// verified:
///
///   - every byte that was answered as durable, or was committed, is there, or that of a later
///     unanswered write; so is every unstable byte, unless the write verifier has changed (then it
///     is written again, as clients do);
///   - every name, link count and mode that was answered is there; an unanswered operation is done
///     or not done, never half;
///   - removed files are gone, their handles are stale, and there are no unknown objects;
///   - an orderly stop has changed neither the verifier nor anything else.
///
/// Half of the clients abandon calls without an answer, and look up the outcome. The others repeat
/// them with the same XIDs: a call that was executed must be answered with success (`remembered`).
/// Being refused because it cannot be executed twice (`forgotten`) is an error.
///
/// With --nfs 4.1 or 4.2, clients over RDMA instead keep opening (with denials), closing, locking,
/// unlocking, writing and reading files that they share. After each kill they return in random order,
/// some of them restarted, some too late, and sometimes the server is killed again meanwhile. It is
/// verified that:
///
///   - every open and lock that was answered can be reclaimed, with its denials and modes, and
///     nothing else can;
///   - until then strangers, and reclaims of what others have reclaimed, are refused;
///   - afterwards a stranger meets exactly what the clients have, byte by byte, and no less;
///   - nothing is granted twice, under load and after the restart; stateids of before are dead;
///   - what was written is there.
///
/// With --gateways as well, two servers serve the same files to clients of each, and act as one.
/// Whenever one has ended, the other one takes its place, by `millracectl gateways take-over`, and the
/// first one is started again beside it; some clients go there then. Clients of both get no locks that
/// conflict, and strangers meet the same locks at both. Servers of folders are stopped in order
/// instead, as the locks there end with the process.
///
/// The first violation ends the run with status 1, the seed, and a folder with the journal of all
/// calls and the server's log. The seed reproduces the calls; the moments of the kills depend on
/// the machine.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Thirty kills, less than a minute:
    millrace-bench crash --spawn build/release/millraced
  A thousand, on another file system, with two reactors and direct I/O:
    millrace-bench crash --spawn build/release/millraced --cycles 1000 --root /mnt/xfs \\
        --reactors 2 --store-key direct=always
  Opens and locks of NFS version 4.2, with five clients:
    millrace-bench crash --spawn build/release/millraced --nfs 4.2 --clients 5
  The same, with two gateways to a directory in CephFS, which is empty:
    millrace-bench crash --spawn build/release/millraced --nfs 4.2 --gateways --store ceph \\
        --store-key conf=/etc/ceph/ceph.conf --store-key user=millrace \\
        --store-key keyring=/etc/ceph/keyring --store-key root=/crash
  Test the checker itself:
    millrace-bench crash --spawn build/release/millraced --self-test
  Another server, which a command kills and restarts:
    millrace-bench crash --target 10.0.0.1 --mount 10.0.0.1 --export /data \\
        --crash-command 'ssh 10.0.0.1 restart-hard'
")]
pub struct Crash {
    #[command(flatten)]
    options: ClientOptions,

    /// The version of NFS: 3 for data and names, 4.1 or 4.2 for opens and locks (with --spawn and a
    /// store that survives).
    #[arg(long, value_enum, value_name = "VERSION", default_value = "3")]
    nfs: NfsVersion,

    /// Of version 4: two servers of the same files, one of which takes the place of the other. Needs
    /// millracectl beside millraced.
    #[arg(long, requires = "spawn")]
    gateways: bool,

    /// Of version 4, so many clients of a thousand do not return before the end of the grace period,
    /// which then takes 10 s.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    absent: u64,

    /// The millraced to start, kill and start again.
    #[arg(long, value_name = "PROGRAM", required_unless_present = "target")]
    spawn: Option<PathBuf>,

    /// Use a running server instead: address of NFS over RDMA.
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        conflicts_with = "spawn",
        requires = "crash_command"
    )]
    target: Option<String>,

    /// Its MOUNT and NFS over TCP.
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1:2049")]
    mount: String,

    /// Its export, in which there must be no `crash`.
    #[arg(long, value_name = "PATH", default_value = EXPORT)]
    export: String,

    /// The command that kills the server, and returns when it serves again.
    #[arg(long, value_name = "COMMAND")]
    crash_command: Option<String>,

    /// Number of kills.
    #[arg(long, value_name = "NUMBER", default_value_t = 30)]
    cycles: u64,

    /// Seed of the random calls; different by default.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// The folder for all files of the run; it selects the file system of the store.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,

    /// The kind of store.
    #[arg(long, value_enum, default_value = "posix")]
    store: Store,

    /// More keys of the store, such as direct=always, or root=/crash of a store of kind ceph.
    #[arg(long, value_name = "KEY=VALUE")]
    store_key: Vec<String>,

    /// Reactors of the server, on cores 0 and up.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    reactors: usize,

    /// Clients over RDMA; one more speaks TCP.
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    clients: usize,

    /// Calls in flight of each client.
    #[arg(long, value_name = "CALLS", default_value_t = 8)]
    depth: usize,

    /// The longest time of load before each kill.
    #[arg(long, value_name = "DURATION", default_value = "600ms", value_parser = units::duration)]
    load: Duration,

    /// Percentage of orderly stops by SIGTERM.
    #[arg(long, value_name = "PERCENT", default_value_t = 15)]
    stops: u64,

    /// A repeated call that was executed before the kill may be refused. Always permitted with
    /// --target.
    #[arg(long)]
    may_forget: bool,

    /// Damage the files between a kill and the start, in one way after the other: each damage must
    /// be detected. So must the loss of a store in memory.
    #[arg(long, requires = "spawn")]
    self_test: bool,

    /// Keep the folder with the logs after success.
    #[arg(long)]
    keep: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

impl Crash {
    /// Runs and prints. False if an operation was lost.
    ///
    /// # Errors
    /// If the run cannot begin.
    pub fn run(&self) -> Result<bool> {
        if self.cycles == 0 || self.clients == 0 || self.depth == 0 || self.reactors == 0 {
            bail!("--cycles, --clients, --depth and --reactors take 1 or more");
        }
        if let Some(minor_version) = self.nfs.minor_version() {
            return self.run_states(minor_version);
        }
        if self.gateways {
            bail!("--gateways takes --nfs 4.1 or 4.2");
        }
        if self.self_test {
            return self.test_mutants();
        }
        let seed = self
            .seed
            .unwrap_or_else(|| u64::from(std::process::id()) ^ clock());
        let folder = self.folder("run")?;
        eprintln!("seed {seed}, logs in {}", folder.display());
        let mut done = 0;
        let start = Instant::now();
        let ended = self.go(&folder, seed, self.store, None, &mut done);
        match ended {
            Ok(sums) => {
                self.print(&sums, seed, start.elapsed());
                if self.keep {
                    eprintln!("logs: {}", folder.display());
                } else {
                    fs::remove_dir_all(&folder)?;
                }
                Ok(true)
            }
            Err(error) => {
                println!("cycle {}: {error:#}", done + 1);
                println!("seed {seed}, logs and files: {}", folder.display());
                Ok(false)
            }
        }
    }

    /// A folder for this run.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let below = self.root.clone().unwrap_or_else(std::env::temp_dir);
        let below = below
            .canonicalize()
            .with_context(|| format!("--root {}", below.display()))?;
        let folder = below.join(format!("millrace-crash-{}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }

    /// All cycles of one run.
    fn go(
        &self,
        folder: &Path,
        seed: u64,
        store: Store,
        mutant: Option<Mutant>,
        done: &mut u64,
    ) -> Result<Sums> {
        let plan = CrashPlan {
            folder: folder.to_owned(),
            clients: self.clients,
            depth: self.depth,
            load: self.load,
            stops: if mutant.is_some() { 0 } else { self.stops },
            remembers: self.spawn.is_some() && !self.may_forget,
            mutant,
        };
        let mut options = self.options.clone();
        // millraced does not lose early messages.
        options.settle = options.settle.or(Some(Duration::ZERO));
        let (server, place, nfs) = self.server(folder, store)?;
        let client = Client { place, options };
        let mut run = CrashRun::new(plan, server, client, nfs, seed)?;
        let cycles = if mutant.is_some() {
            MUTANT_CYCLES
        } else {
            self.cycles
        };
        let (start, mut told) = (Instant::now(), Instant::now());
        while *done < cycles {
            run.cycle(*done + 1)?;
            *done += 1;
            if told.elapsed() > TELL && mutant.is_none() {
                told = Instant::now();
                let calls: u64 = run.sums.answered.values().sum();
                let seconds = start.elapsed().as_secs();
                eprintln!("{done} of {cycles} cycles, {calls} calls answered, {seconds} s");
            }
        }
        run.finish()
    }

    fn server(&self, folder: &Path, store: Store) -> Result<(Server, ServerAddress, SocketAddr)> {
        if let (Some(target), Some(crash)) = (&self.target, &self.crash_command) {
            let target = resolve(target, millrace_wire::nfs3::RDMA_PORT)?;
            let mount = resolve(&self.mount, millrace_wire::nfs3::PORT)?;
            let server = Server::Foreign {
                crash: crash.clone(),
            };
            return Ok((
                server,
                ServerAddress::of(target, mount, &self.export),
                mount,
            ));
        }
        let program = self.spawn.as_ref().context("--spawn or --target")?;
        let store = store.configuration(folder, &self.store_key)?;
        let plan = OwnPlan {
            program,
            folder,
            export: EXPORT,
            store: &store,
            reactors: self.reactors,
            keys: "",
        };
        let mut own = Own::new(&plan)?;
        own.start()?;
        let (place, nfs) = (ServerAddress::of(own.rdma, own.rpc, EXPORT), own.rpc);
        Ok((Server::Own(own), place, nfs))
    }

    /// Each mutant must be found.
    fn test_mutants(&self) -> Result<bool> {
        let mut random = Random::new(self.seed.unwrap_or(1));
        let mut all = true;
        let mutants = Mutant::ALL.map(|mutant| (Store::Posix, Some(mutant)));
        for (store, mutant) in mutants.into_iter().chain([(Store::Memory, None)]) {
            let name = mutant.map_or("a store in memory".to_owned(), |one| format!("{one:?}"));
            let folder = self.folder(&name.replace(' ', "-"))?;
            let mut done = 0;
            match self.go(&folder, random.next(), store, mutant, &mut done) {
                Ok(_) => {
                    println!("MISSED {name}");
                    all = false;
                }
                Err(error) => {
                    println!("found  {name}: {error:#}");
                }
            }
            fs::remove_dir_all(&folder)?;
        }
        Ok(all)
    }

    /// A run about opens and locks; with `--self-test` one for each fault, which must be noticed.
    fn run_states(&self, minor_version: u32) -> Result<bool> {
        if self.spawn.is_none() || self.store == Store::Memory {
            bail!("--nfs 4.1 and 4.2 take --spawn, and a store of kind posix or ceph");
        }
        let seed = self
            .seed
            .unwrap_or_else(|| u64::from(std::process::id()) ^ clock());
        if self.self_test {
            let mut random = Random::new(seed);
            let mut all = true;
            for fault in StateFault::ALL {
                if !fault.is_of(self.denies(), self.store == Store::Posix) {
                    continue;
                }
                let folder = self.folder(&format!("{fault:?}"))?;
                let seed = random.next();
                match self.go_states(&folder, seed, minor_version, Some(fault)) {
                    Ok(_) => {
                        println!("MISSED {fault:?} (seed {seed})");
                        all = false;
                    }
                    Err((_, error)) => println!("found  {fault:?}: {error:#}"),
                }
                fs::remove_dir_all(&folder)?;
            }
            return Ok(all);
        }
        let folder = self.folder("run")?;
        eprintln!("seed {seed}, logs in {}", folder.display());
        let start = Instant::now();
        match self.go_states(&folder, seed, minor_version, None) {
            Ok(sums) => {
                self.print_states(&sums, seed, start.elapsed());
                if self.keep {
                    eprintln!("logs: {}", folder.display());
                } else {
                    fs::remove_dir_all(&folder)?;
                }
                Ok(true)
            }
            Err((done, error)) => {
                println!("cycle {}: {error:#}", done + 1);
                println!("seed {seed}, logs and files: {}", folder.display());
                Ok(false)
            }
        }
    }

    /// All cycles of one run; after an error, how many were done before.
    fn go_states(
        &self,
        folder: &Path,
        seed: u64,
        minor_version: u32,
        fault: Option<StateFault>,
    ) -> Result<StateSums, (u64, anyhow::Error)> {
        let mut done = 0;
        let cycles = match fault {
            Some(_) => MUTANT_CYCLES,
            None => self.cycles,
        };
        let mut go = || {
            let program = self.spawn.as_ref().context("--spawn")?;
            let lease = state::LEASE.as_secs();
            let servers = OwnPlan {
                program,
                folder,
                export: EXPORT,
                store: &self.store.configuration(folder, &self.store_key)?,
                reactors: self.reactors,
                keys: &format!("nfs4: {{ minor_versions: [1, 2], lease: {lease}s }}\n"),
            };
            let servers = match self.gateways {
                true => StateServers::gateways(&servers, self.store == Store::Ceph)?,
                false => StateServers::alone(&servers)?,
            };
            let mut options = self.options.clone();
            options.settle = options.settle.or(Some(Duration::ZERO));
            let plan = StatePlan {
                folder: folder.to_owned(),
                export: EXPORT.trim_start_matches('/'),
                clients: self.clients,
                minor_version,
                load: self.load,
                absent: self.absent,
                denies: self.denies(),
                fault,
            };
            let mut run = StateRun::new(plan, servers, &options, seed)?;
            let mut told = Instant::now();
            while done < cycles {
                run.cycle(done + 1)?;
                done += 1;
                if told.elapsed() > TELL && fault.is_none() {
                    told = Instant::now();
                    eprintln!("{done} of {cycles} cycles");
                }
            }
            run.finish()
        };
        go().map_err(|error| (done, error))
    }

    /// Whether servers know of all denials: not of those that another server has granted.
    fn denies(&self) -> bool {
        self.store == Store::Posix && !self.gateways
    }

    fn print_states(&self, sums: &StateSums, seed: u64, elapsed: Duration) {
        if self.json {
            let seconds = elapsed.as_secs_f64();
            let report = serde_json::json!({ "seed": seed, "seconds": seconds, "sums": sums });
            println!("{report}");
            return;
        }
        let mut table = Table::new(&["operations done", ""]);
        for (name, count) in &sums.done {
            table.row(&[(*name).to_owned(), count.to_string()]);
        }
        println!("{table}");
        println!(
            "{} ends of a server, {} of them before all had returned, in {:.1} s; all back within {} ms",
            sums.ends,
            sums.ends_in_grace,
            elapsed.as_secs_f64(),
            sums.longest_return_ms
        );
        println!(
            "{} operations refused as they conflict, {} told to come later, {} without an answer",
            sums.refused, sums.delayed, sums.unanswered
        );
        println!(
            "reclaimed: {} opens, {} ranges; {} clients had been restarted, {} came too late",
            sums.opens_reclaimed, sums.locks_reclaimed, sums.restarted, sums.late
        );
        println!(
            "refused in grace periods: {}; compared with the answers to a stranger: {}",
            sums.refused_in_grace, sums.probes
        );
        println!("nothing lost, nothing granted twice");
    }

    fn print(&self, sums: &Sums, seed: u64, elapsed: Duration) {
        if self.json {
            let report = serde_json::json!({
                "seed": seed,
                "seconds": elapsed.as_secs_f64(),
                "sums": sums,
            });
            println!("{report}");
            return;
        }
        let mut table = Table::new(&["calls answered", ""]);
        for (name, count) in &sums.answered {
            table.row(&[(*name).to_owned(), count.to_string()]);
        }
        let found = &sums.found;
        println!("{table}");
        println!(
            "{} kills and {} ends in order in {:.1} s; back with the first answer within {} ms",
            sums.kills,
            sums.stops,
            elapsed.as_secs_f64(),
            sums.longest_start_ms
        );
        println!(
            "compared: {} objects, {} bytes; of {} bytes that might have been lost {} were there",
            found.names, found.bytes, found.open, found.kept
        );
        println!(
            "without an answer: {} calls about names were done and {} were not, {} others; told to \
             come later: {}",
            sums.unanswered[0], sums.unanswered[1], sums.unanswered_data, sums.delayed
        );
        let resent = &sums.resent;
        println!(
            "sent again: {} done now, {} remembered, {} forgotten, {} told to come later, {} that \
             may be done twice",
            resent.done_now, resent.remembered, resent.forgotten, resent.delayed, resent.idempotent
        );
        println!(
            "{} exclusive CREATEs known again, {} dead handles of removed files, {} bytes written \
             again",
            found.exclusive, found.dead, found.rewritten
        );
        println!("nothing lost");
    }
}

/// A number that differs between runs.
fn clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
