//! Whether changes of the configuration disturb clients.

mod patches;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace_admin::client::{Answer, Client as Admin, ClientToken, Method, Order};

use crate::client::{Client, ClientOptions};
use crate::load::{Engine, Measurement, NfsVersion, Operation, ServerCpu, Workload, pin};
use crate::spawn::Spawned;
use crate::table::Table;
use crate::units;
use patches::Patches;

/// Bytes of the file that each connection works on.
const FILE: usize = 8 << 20;

/// Pause before a retry when the server answers to try later.
const PAUSE: Duration = Duration::from_millis(2);

/// How long one round of load takes, after which the end of the changes is checked.
const ROUND: Duration = Duration::from_millis(500);

/// Change the configuration of a server thousands of times under full load, and count lost calls.
///
/// The command starts a millraced of its own. Its configuration is changed over HTTP: credits,
/// exports, listeners, limits, polling, protocol settings and the log, in turn. Meanwhile the
/// client keeps its queue full of READs and WRITEs and verifies their data. A call that fails, or
/// gets no answer, counts as lost.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Ten thousand changes:
    millrace-bench changes --spawn build/release/millraced
  A short run, with large blocks:
    millrace-bench changes --spawn build/release/millraced --changes 500 --size 256KiB --depth 8
  With clients of NFS version 4.2:
    millrace-bench changes --spawn build/release/millraced --nfs 4.2
")]
pub struct Changes {
    #[command(flatten)]
    options: ClientOptions,

    /// The millraced to start.
    #[arg(long, value_name = "PROGRAM")]
    spawn: PathBuf,

    /// Changes to make.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    changes: usize,

    /// The version of NFS of the READs and WRITEs.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "3")]
    nfs: NfsVersion,

    /// Bytes of one READ or WRITE.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = units::size)]
    size: usize,

    /// Calls in flight on each connection.
    #[arg(long, value_name = "CALLS", default_value_t = 32)]
    depth: usize,

    /// Connections.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    connections: usize,

    /// How long the load is measured without changes.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = units::duration)]
    time: Duration,

    /// The core of the target's reactor.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    server_core: usize,

    /// The core of the client.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    client_core: usize,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Results of the load, with or without changes.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Load {
    /// Calls that were answered.
    pub requests: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Calls per second.
    pub requests_per_second: f64,
    /// Median latency in microseconds, the mean over rounds.
    pub p50_us: f64,
    /// p99 of the latency in microseconds, the mean over rounds.
    pub p99_us: f64,
    /// Places with wrong data.
    pub mismatches: u64,
    rounds: u32,
}

impl Load {
    fn add(&mut self, round: &Measurement) {
        let mean = |so_far: f64, one: f64, rounds: u32| {
            (so_far * f64::from(rounds) + one) / f64::from(rounds + 1)
        };
        self.p50_us = mean(self.p50_us, round.p50_us, self.rounds);
        self.p99_us = mean(self.p99_us, round.p99_us, self.rounds);
        self.rounds += 1;
        self.requests += round.operations;
        self.seconds += round.seconds;
        self.requests_per_second = self.requests as f64 / self.seconds.max(1e-9);
        self.mismatches += round.mismatches;
    }
}

/// Results of the changes.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    changes: usize,
    seconds: f64,
}

impl Changes {
    /// Runs and prints. False if a call was lost, or data was wrong.
    ///
    /// # Errors
    /// If the target does not start, or refuses a change.
    pub fn run(&self) -> Result<bool> {
        if self.changes == 0 || self.depth == 0 || self.connections == 0 {
            bail!("--changes, --depth and --connections take 1 or more");
        }
        let target = Spawned::managed(&self.spawn, self.server_core, &self.options.fabric)?;
        let (address, token) = target.admin().context("it has a management plane")?;
        let token = ClientToken::read(token).map_err(|error| anyhow::anyhow!("{error}"))?;
        let admin = Admin::new(&address.to_string())?.with_token(token);
        let over = AtomicBool::new(false);
        let (loads, made) = std::thread::scope(|scope| {
            let (quiet, begin) = std::sync::mpsc::channel();
            let load = scope.spawn(|| self.load(&target, quiet, &over));
            // If the channel is closed, the load has failed, and joining it returns the error.
            let made = match begin.recv() {
                Ok(()) => self.change(&admin, &target, || load.is_finished()),
                Err(_) => Ok(Made::default()),
            };
            over.store(true, Ordering::Relaxed);
            let loads = load
                .join()
                .map_err(|_| anyhow::anyhow!("the client panicked"))?;
            Ok::<_, anyhow::Error>((loads, made?))
        })?;
        let ([without, with], lost) = loads?;
        let good = lost.is_none() && with.mismatches + without.mismatches == 0;
        self.print(&without, &with, made, lost.as_ref());
        Ok(good && made.changes == self.changes)
    }

    /// Keeps the queue full until the end, first without changes. Returns the error that ended it
    /// early, if any: a lost call.
    fn load(
        &self,
        target: &Spawned,
        quiet: std::sync::mpsc::Sender<()>,
        over: &AtomicBool,
    ) -> Result<([Load; 2], Option<anyhow::Error>)> {
        pin(self.client_core)?;
        let client = target.client(&Client {
            place: crate::client::ServerAddress::of(
                target.addresses()[0],
                target.addresses()[1],
                "",
            ),
            options: self.options.clone(),
        });
        let mut engine = Engine::speaking(&client, self.nfs, self.connections, self.depth, FILE)?;
        let mut workload = Workload::new(Operation::Mixed, self.size, self.depth, ROUND);
        (workload.random, workload.verify) = (true, true);
        let mut loads = [Load::default(); 2];
        let start = Instant::now();
        let mut run = |load: &mut Load| {
            let round = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
            round.map(|round| load.add(&round))
        };
        while start.elapsed() < self.time {
            run(&mut loads[0])?;
        }
        // The receiver is gone if the changes have failed.
        let _ = quiet.send(());
        drop(quiet);
        while !over.load(Ordering::Relaxed) {
            if let Err(lost) = run(&mut loads[1]) {
                return Ok((loads, Some(lost)));
            }
        }
        engine.finish()?;
        Ok((loads, None))
    }

    /// Makes the changes, one after the other, until all are made or it is `over`.
    fn change(&self, admin: &Admin, target: &Spawned, over: impl Fn() -> bool) -> Result<Made> {
        let first = admin.get("/api/v1/config")?;
        let mut tag = first.tag.context("the configuration has no tag")?;
        let mut patches = Patches::new(
            self.options.fabric.name(),
            target.addresses()[0],
            target.export(),
        );
        let start = Instant::now();
        let mut made = 0;
        while made < self.changes && !over() {
            let order = Order::new(Method::Patch, "/api/v1/config")
                .with_body(
                    "application/merge-patch+json",
                    patches.next(made).to_string(),
                )
                .if_match(tag.clone());
            let answer = patiently(admin, &order)?;
            if !answer.is_success() {
                bail!(
                    "change {made} was refused: {} {}",
                    answer.status,
                    answer.body
                );
            }
            let report: millrace_admin::change::ChangeReport = answer.value()?;
            if report.reactors.iter().any(|one| !one.applied) {
                bail!("change {made} is not in force: {:?}", report.reactors);
            }
            tag = answer.tag.context("the change has no tag")?;
            made += 1;
        }
        Ok(Made {
            changes: made,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn print(&self, without: &Load, with: &Load, made: Made, lost: Option<&anyhow::Error>) {
        let rate = made.changes as f64 / made.seconds.max(1e-9);
        let lost_calls = u64::from(lost.is_some());
        if self.json {
            let report = serde_json::json!({
                "changes": made.changes,
                "changes_per_second": rate,
                "lost": lost_calls,
                "reason": lost.map(|lost| format!("{lost:#}")),
                "without": without,
                "with": with,
            });
            println!("{report}");
            return;
        }
        let mut table = Table::new(&["", "requests", "/s", "p50 us", "p99 us", "wrong data"]);
        for (name, load) in [("without changes", without), ("with changes", with)] {
            table.row(&[
                name.to_owned(),
                load.requests.to_string(),
                format!("{:.0}", load.requests_per_second),
                format!("{:.0}", load.p50_us),
                format!("{:.0}", load.p99_us),
                load.mismatches.to_string(),
            ]);
        }
        println!("{table}");
        println!("{} changes, {rate:.0} a second", made.changes);
        match lost {
            None => println!("lost: 0"),
            Some(lost) => println!("lost: at least {lost_calls} ({lost:#})"),
        }
    }
}

/// Sends an order, and again while the server answers to try later.
fn patiently(admin: &Admin, order: &Order) -> Result<Answer> {
    loop {
        let answer = admin.send(order)?;
        if answer.status != 429 {
            return Ok(answer);
        }
        std::thread::sleep(PAUSE);
    }
}
