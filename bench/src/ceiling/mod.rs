//! NFS over RDMA beside a raw exchange of the same bytes, in one run.

mod raw;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::client::Client;
use crate::load::{Engine, Operation, ServerCpu, Workload, pin};
use crate::spawn::{Spawned, set_paused};
use crate::table::Table;
use crate::units;

pub use raw::{Exchange, measure};

/// Bytes of a call or reply around the data: transport header, RPC header, arguments or results,
/// as they are for READ and WRITE.
const AROUND: usize = 180;
/// The same for GETATTR.
const AROUND_GETATTR: usize = 140;
/// Bytes of the file that READs and WRITEs go through.
const FILE: usize = 64 << 20;

/// Compare NFS over RDMA with a raw TCP exchange of the same bytes.
///
/// Both run in turns, pinned alike: the server on one core, the client on another. The median of
/// the turns counts. The target must be idle otherwise; with --spawn or --server-pid it is stopped
/// while the raw exchange runs, so that its polling takes nothing away.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  All in one command, with a target of its own:
    millrace-bench ceiling --spawn build/release/millraced
  Against a running target, whose reactor is pinned to core 0:
    millrace-bench ceiling --server-core 0 --client-core 1 --server-pid $(pidof millraced)
")]
pub struct Ceiling {
    #[command(flatten)]
    client: Client,

    /// Start this `millraced` on free ports, and end it afterwards. With --classic it is in
    /// classic mode.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["target", "mount", "rpcbind", "export"]
    )]
    spawn: Option<PathBuf>,

    /// The running target's process.
    #[arg(long, value_name = "PID", conflicts_with = "spawn")]
    server_pid: Option<u32>,

    /// The core of the target's reactor and of the raw server.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    server_core: usize,

    /// The core of the client.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    client_core: usize,

    /// Turns.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    rounds: usize,

    /// Time of each measurement.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::duration)]
    time: Duration,

    /// Calls in flight where data is 1 MiB.
    #[arg(long, value_name = "CALLS", default_value_t = 8)]
    bulk_depth: usize,

    /// End with status 1 if a bar is missed.
    #[arg(long)]
    strict: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What counts as good enough.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Bar {
    /// Share of the raw rate.
    ratio: f64,
    /// Or so many operations per second, whatever the raw rate.
    rate: Option<f64>,
}

struct Contest {
    workload: Workload,
    exchange: Exchange,
    bar: Bar,
}

/// One contest's outcome.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Verdict {
    /// What was done.
    pub name: String,
    /// Median operations per second of the raw exchange.
    pub raw: f64,
    /// Median operations per second of NFS over RDMA.
    pub nfs: f64,
    /// The second by the first.
    pub ratio: f64,
    /// All turns: raw, NFS.
    pub rounds: Vec<(f64, f64)>,
    /// What counts as good enough.
    pub bar: Bar,
    /// Whether it was reached.
    pub reached: bool,
    /// The client's processor time per operation, in microseconds, in the last turn.
    pub client_cpu_us: Option<f64>,
    /// The server's processor time per operation, in microseconds, in the last turn.
    pub server_cpu_us: Option<f64>,
}

impl Ceiling {
    fn contests(&self) -> Vec<Contest> {
        let contest = |operation, size, depth, request, reply, bar| Contest {
            workload: Workload::new(operation, size, depth, self.time),
            exchange: Exchange {
                request,
                reply,
                depth,
                footprint: if size == 0 { 0 } else { FILE },
                time: self.time,
            },
            bar,
        };
        let share = |ratio| Bar { ratio, rate: None };
        let (small, large, bulk) = (4096, 1 << 20, self.bulk_depth);
        let getattr = Bar {
            ratio: 0.1,
            rate: Some(300_000.0),
        };
        vec![
            contest(
                Operation::Read,
                small,
                32,
                AROUND,
                AROUND + small,
                share(0.5),
            ),
            contest(
                Operation::Write,
                small,
                32,
                AROUND + small,
                AROUND,
                share(0.0),
            ),
            contest(
                Operation::Read,
                large,
                bulk,
                AROUND,
                AROUND + large,
                share(0.8),
            ),
            contest(
                Operation::Write,
                large,
                bulk,
                AROUND + large,
                AROUND,
                share(0.8),
            ),
            contest(
                Operation::Getattr,
                0,
                32,
                AROUND_GETATTR,
                AROUND_GETATTR,
                getattr,
            ),
        ]
    }

    /// Runs and prints.
    ///
    /// # Errors
    /// If the target cannot be reached, or there are no such cores.
    pub fn run(&self) -> Result<bool> {
        if self.rounds == 0 || self.bulk_depth == 0 {
            bail!("--rounds and --bulk-depth are at least 1");
        }
        let spawned = match &self.spawn {
            Some(path) => Some(Spawned::start(
                path,
                self.server_core,
                &self.client.options.fabric,
                self.client.options.classic,
            )?),
            None => None,
        };
        let client = spawned.as_ref().map_or_else(
            || self.client.clone(),
            |spawned| spawned.client(&self.client),
        );
        let pid = spawned.as_ref().map(Spawned::pid).or(self.server_pid);
        let server = ServerCpu {
            admin: None,
            server_pid: pid,
        };
        let pause = |pause| {
            if let Some(pid) = pid {
                set_paused(pid, pause);
            }
        };
        pin(self.client_core)?;
        let mut engine = Engine::new(&client, 1, self.bulk_depth.max(32), FILE)?;
        let mut verdicts = Vec::new();
        for contest in self.contests() {
            let mut rounds = Vec::new();
            let mut cpu = (None, None);
            for _ in 0..self.rounds {
                pause(true);
                let raw = measure(contest.exchange, Some(self.server_core));
                pause(false);
                let measured = engine.run(&contest.workload, &server, &mut |_| {})?;
                cpu = (measured.client_cpu_us, measured.server_cpu_us);
                rounds.push((raw?, measured.operations_per_second));
            }
            verdicts.push(verdict(&contest, rounds, cpu));
        }
        engine.finish()?;
        let reached = verdicts.iter().all(|verdict| verdict.reached);
        if self.json {
            println!(
                "{}",
                serde_json::json!({ "reached": reached, "contests": verdicts })
            );
        } else {
            println!("{}", table(&verdicts));
        }
        Ok(reached || !self.strict)
    }
}

fn verdict(
    contest: &Contest,
    rounds: Vec<(f64, f64)>,
    (client_cpu_us, server_cpu_us): (Option<f64>, Option<f64>),
) -> Verdict {
    let raw = median(rounds.iter().map(|(raw, _)| *raw));
    let nfs = median(rounds.iter().map(|(_, nfs)| *nfs));
    let ratio = nfs / raw.max(1e-9);
    let bar = contest.bar;
    Verdict {
        name: contest.workload.name(),
        raw,
        nfs,
        ratio,
        rounds,
        bar,
        reached: ratio >= bar.ratio || bar.rate.is_some_and(|rate| nfs >= rate),
        client_cpu_us,
        server_cpu_us,
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(&[
        "load",
        "raw TCP /s",
        "NFS/RDMA /s",
        "ratio",
        "bar",
        "",
        "client CPU us",
        "server CPU us",
    ]);
    let cpu = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    for verdict in verdicts {
        let bar = match verdict.bar {
            Bar {
                rate: Some(rate),
                ratio,
            } => format!("{rate:.0}/s or {ratio}"),
            Bar { ratio, .. } if ratio > 0.0 => format!("{ratio}"),
            Bar { .. } => "-".to_owned(),
        };
        table.row(&[
            verdict.name.clone(),
            format!("{:.0}", verdict.raw),
            format!("{:.0}", verdict.nfs),
            format!("{:.2}", verdict.ratio),
            bar,
            if verdict.reached { "reached" } else { "MISSED" }.to_owned(),
            cpu(verdict.client_cpu_us),
            cpu(verdict.server_cpu_us),
        ]);
    }
    table
}
