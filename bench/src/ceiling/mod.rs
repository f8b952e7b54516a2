//! NFS over RDMA and over TCP compared with a raw exchange of the same bytes, in one run.

mod contest;
mod raw;
mod variant;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::client::Client;
use crate::load::{Engine, IdlePolicy, Measurement, NfsVersion, ServerCpu, TcpLoad, pin};
use crate::spawn::{SpawnOptions, Spawned, set_paused};
use crate::units;

use contest::FILE;
pub use contest::{Contest, Figure, Goal, LONG_INLINE, NfsTransport};
pub use raw::{Exchange, RawExchange, RawRate, Trip};
pub use variant::Variant;
use verdict::median;
pub use verdict::{GoalOutcome, Round, Verdict, table, targets};

/// Compare NFS over RDMA and TCP with a raw TCP exchange of the same bytes.
///
/// Several variants of the raw exchange are tried for each load, and the three fastest take part in
/// every round. All runs are pinned alike: the server on one core, the client on another. Results
/// are medians over the rounds, and for the raw exchange the best variant. The target must be idle
/// otherwise; with --spawn or --server-pid it is stopped while the raw exchange runs, so that its
/// polling takes no processor time.
///
/// Busy time is the time of turns that found work, without idle polling. If the limit of a row is
/// the REQUESTER, the row measures the client and not the server. NFS over TCP uses the address of
/// MOUNT.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  With a target started for it:
    millrace-bench ceiling --spawn build/release/millraced
  The targets and whether they are met, as a table in Markdown:
    millrace-bench ceiling --spawn build/release/millraced --targets
  Against a running target, whose reactor is pinned to core 0:
    millrace-bench ceiling --server-core 0 --client-core 1 --server-pid $(pidof millraced) \\
      --admin 127.0.0.1:9620
")]
pub struct Ceiling {
    #[command(flatten)]
    client: Client,

    /// Start this `millraced` on free ports, and stop it afterwards. With --classic it runs in
    /// classic mode.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["target", "mount", "rpcbind", "export"]
    )]
    spawn: Option<PathBuf>,

    /// The running target's process, and its management address for its busy time.
    #[command(flatten)]
    server: ServerCpu,

    /// The core of the target's reactor and of the raw server.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    server_core: usize,

    /// The core of the client.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    client_core: usize,

    /// The version of NFS over RDMA. The loads over TCP use version 3 only, and are left out with
    /// another one.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "3")]
    nfs: NfsVersion,

    /// Rounds.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    rounds: usize,

    /// Time of each measurement.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::duration)]
    time: Duration,

    /// Calls in flight where data is 64 KiB or more.
    #[arg(long, value_name = "CALLS", default_value_t = 8)]
    bulk_depth: usize,

    /// Only loads whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// End with status 1 if a threshold is missed. The thresholds are below the targets, so that a
    /// busy machine reaches them.
    #[arg(long)]
    strict: bool,

    /// Print the targets only, as a table in Markdown: target, measured value, met or not.
    #[arg(long, conflicts_with = "json")]
    targets: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// A target, and connections to it.
struct MeasuredPeer {
    engine: Engine,
    tcp: Option<TcpLoad>,
    server: ServerCpu,
    /// Dropped last.
    _spawned: Option<Spawned>,
}

impl Ceiling {
    /// Runs and prints.
    ///
    /// # Errors
    /// If the target cannot be reached, or there are no such cores.
    pub fn run(&self) -> Result<bool> {
        if self.rounds == 0 || self.bulk_depth == 0 {
            bail!("--rounds and --bulk-depth are at least 1");
        }
        let everywhere = sched_getaffinity(None)?;
        let mut contests = Contest::all(self.time, self.bulk_depth);
        if self.nfs != NfsVersion::Three {
            contests.retain(|contest| contest.transport != NfsTransport::Tcp);
        }
        if let Some(only) = &self.only {
            contests.retain(|contest| contest.name().contains(only));
            if contests.is_empty() {
                bail!("--only: no load has a name with {only:?}");
            }
        }
        let mut verdicts = Vec::new();
        for transport in NfsTransport::ALL {
            let own: Vec<_> = contests
                .iter()
                .filter(|contest| contest.transport == transport)
                .collect();
            if own.is_empty() {
                continue;
            }
            // A target inherits the cores of the thread that starts it, which must not be the
            // client's core alone.
            sched_setaffinity(None, &everywhere)?;
            let mut peer = self.peer(transport)?;
            for contest in own {
                verdicts.push(self.compare(contest, &mut peer)?);
            }
            peer.engine.finish()?;
        }
        let reached = verdicts.iter().all(Verdict::reached);
        if self.json {
            println!(
                "{}",
                serde_json::json!({ "reached": reached, "contests": verdicts })
            );
        } else if self.targets {
            println!("{}", targets(&verdicts));
        } else {
            println!("{}", table(&verdicts));
        }
        Ok(reached || !self.strict)
    }

    fn peer(&self, transport: NfsTransport) -> Result<MeasuredPeer> {
        let mut client = self.client.clone();
        match transport {
            NfsTransport::RdmaCrc => client.options.fabric.crc = true,
            NfsTransport::RdmaInline => client.options.inline = LONG_INLINE,
            NfsTransport::Rdma | NfsTransport::Tcp => {}
        }
        let options = SpawnOptions {
            classic: client.options.classic,
            managed: true,
            inline: client.options.inline.max(SpawnOptions::default().inline),
        };
        let spawned = match &self.spawn {
            Some(path) => Some(Spawned::start_with(
                path,
                self.server_core,
                &client.options.fabric,
                options,
            )?),
            None => None,
        };
        pin(self.client_core)?;
        let mut server = self.server.clone();
        if let Some(spawned) = &spawned {
            client = spawned.client(&client);
            server = ServerCpu {
                admin: spawned.admin().map(|(address, _)| address.to_string()),
                server_pid: Some(spawned.pid()),
            };
        }
        let depth = self.bulk_depth.max(32);
        let mut engine = Engine::speaking(&client, self.nfs, 1, depth, FILE)?;
        let mut tcp = match transport {
            NfsTransport::Tcp => {
                let file = engine.file().context("there is no file")?;
                let address = client.mount()?;
                Some(TcpLoad::connect(address, client.identity(), file, FILE)?)
            }
            _ => None,
        };
        // As the raw exchange may.
        if self.client_core != self.server_core {
            engine.set_idle_policy(IdlePolicy::Spin);
            tcp.iter_mut()
                .for_each(|load| load.set_idle_policy(IdlePolicy::Spin));
        }
        Ok(MeasuredPeer {
            engine,
            tcp,
            server,
            _spawned: spawned,
        })
    }

    fn compare(&self, contest: &Contest, peer: &mut MeasuredPeer) -> Result<Verdict> {
        let pid = peer.server.server_pid;
        let pause = |pause| {
            if let Some(pid) = pid {
                set_paused(pid, pause);
            }
        };
        let mut raw = RawExchange::new(contest.exchange.clone(), Some(self.server_core));
        pause(true);
        let finalists = Variant::fastest(&mut raw);
        pause(false);
        let finalists = finalists?;
        let mut exchanged = vec![Vec::new(); finalists.len()];
        let mut measured = Vec::new();
        for _ in 0..self.rounds {
            for (variant, rounds) in finalists.iter().zip(&mut exchanged) {
                pause(true);
                let round = raw.measure(variant, self.time);
                pause(false);
                rounds.push(round?);
            }
            measured.push(peer.measure(contest)?);
        }
        let rate = |rounds: &[RawRate]| median(rounds.iter().map(|round| round.rate));
        let pairs = finalists.into_iter().zip(exchanged);
        let fastest = pairs.max_by(|(_, one), (_, other)| rate(one).total_cmp(&rate(other)));
        let (variant, raw) = fastest.context("no raw exchange was made")?;
        let rounds: Vec<Round> = raw.into_iter().zip(measured).collect();
        Ok(Verdict::new(contest, variant, &rounds))
    }
}

impl MeasuredPeer {
    fn measure(&mut self, contest: &Contest) -> Result<Measurement> {
        match &mut self.tcp {
            Some(tcp) => tcp.run(&contest.workload, &self.server),
            None => self
                .engine
                .run(&contest.workload, &self.server, &mut |_| {}),
        }
    }
}
