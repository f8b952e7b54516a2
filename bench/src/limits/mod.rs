//! `limits`: how soon a changed limit is enforced.

mod series;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use millrace::service::Service;
use millrace_admin::config::{Bandwidth, ClientLimits, Network};
use millrace_admin::control::{ApplyError, Control};

use crate::client::{Client, ClientOptions, ServerAddress};
use crate::load::{Engine, Operation, Progress, ServerCpu, Workload, pin};
use crate::table::Table;
use crate::units;
pub use series::{SLOT, Series};

/// Bytes of the file that each client works on.
const FILE: usize = 8 << 20;

/// A change must be in force within this time.
const BAR: Duration = Duration::from_millis(100);

/// Sets the limits of clients.
fn set_limits(service: &Service, limits: Vec<ClientLimits>) -> Result<(), ApplyError> {
    let control = service.control();
    let mut next = (*control.config()).clone();
    next.limits = limits;
    control.apply(Arc::new(next)).map(|_| ())
}

/// Change a client's limit under load, and measure how soon the new limit is enforced.
///
/// A target with one reactor is started inside this process. Two clients, at the addresses
/// 127.0.0.1 and 127.0.0.2 or those of --device-address, run at full load; the second has limits.
/// Its rate is sampled every 10 ms.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Reads of 4 KiB under limits of bandwidth:
    millrace-bench limits
  Writes of 64 KiB, one limit after the other, with every slot:
    millrace-bench limits --op write --size 64KiB --steps 100MiB/s,400MiB/s,50MiB/s --slots
")]
pub struct Limits {
    #[command(flatten)]
    options: ClientOptions,

    /// The operation of the clients.
    #[arg(long, value_enum, default_value = "read")]
    op: Operation,

    /// Bytes of one READ or WRITE.
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = units::size)]
    size: usize,

    /// Calls in flight of each client.
    #[arg(long, value_name = "CALLS", default_value_t = 32)]
    depth: usize,

    /// The limits of the second client, one after the other.
    #[arg(
        long,
        value_name = "RATES",
        value_delimiter = ',',
        default_value = "40MiB/s,10MiB/s,80MiB/s,20MiB/s"
    )]
    steps: Vec<Bandwidth>,

    /// How long each limit is in force.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::duration)]
    time: Duration,

    /// The core of the target's reactor.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    server_core: usize,

    /// The core of the clients.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    client_core: usize,

    /// Print the rate in every slot.
    #[arg(long)]
    slots: bool,

    /// End with status 1 if a limit was not enforced within 100 ms.
    #[arg(long)]
    strict: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Result of one limit.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Step {
    /// The limit, in bytes per second.
    pub limit: u64,
    /// Milliseconds until the rate was within 10 % of the limit, and stayed there.
    pub settled_ms: Option<u64>,
    /// Mean bytes per second of the second half.
    pub rate: f64,
    /// The same of the other client, which has no limit.
    pub other_rate: f64,
    /// Bytes per second in each slot since the change.
    pub slots: Vec<f64>,
}

impl Limits {
    /// Runs and prints.
    ///
    /// # Errors
    /// If the target does not start, or there are no such cores.
    pub fn run(&self) -> Result<bool> {
        if self.steps.is_empty() || self.time < SLOT * 20 {
            bail!("--steps takes at least one rate, --time at least 200 ms");
        }
        let service = self.start()?;
        let measured = self.measure(&service);
        service.drain(Duration::from_secs(2));
        let steps = measured?;
        let reached = |step: &Step| {
            let settled = step.settled_ms.map(Duration::from_millis);
            settled.is_some_and(|settled| settled <= BAR)
        };
        let all = steps.iter().all(reached);
        if self.json {
            println!("{}", serde_json::json!({ "reached": all, "steps": steps }));
        } else {
            println!("{}", self.table(&steps));
        }
        Ok(all || !self.strict)
    }

    fn start(&self) -> Result<Service> {
        let text = format!(
            "reactors: {{ cores: [{}], poll: busy }}\n\
             mempool: {{ size: 256MiB }}\n\
             fabric: [{{ provider: {}, listen: \"{}:0\" }}]\n\
             rpc: {{ listen: \"127.0.0.1:0\" }}\n\
             exports: [{{ path: /scratch, store: {{ kind: memory, size: 128MiB }} }}]\n\
             admin: {{ listen: \"127.0.0.1:0\" }}\n\
             log: error\n",
            self.server_core,
            self.options.fabric.name(),
            self.options.fabric.host(0)?,
        );
        let config = millrace_admin::config::parse(&text, "limits")?;
        Ok(Service::start(Arc::new(config))?)
    }

    /// One client's engine, at the host of this number.
    fn engine(&self, service: &Service, host: u8) -> Result<Engine> {
        let addresses = service.addresses();
        let fabric = addresses.fabric.first().context("no listener")?;
        let rpc = addresses.rpc.context("no listener for MOUNT")?;
        let mut place = ServerAddress::of(*fabric, rpc, "/scratch");
        place.source = Some(self.options.fabric.host(host)?);
        let client = Client {
            place,
            options: self.options.clone(),
        };
        Engine::new(&client, 1, self.depth, FILE)
    }

    fn measure(&self, service: &Service) -> Result<Vec<Step>> {
        let stop = AtomicBool::new(false);
        let progress = [Progress::default(), Progress::default()];
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for (host, progress) in (0..).zip(&progress) {
                let (begun, began) = std::sync::mpsc::channel();
                let progress = progress.clone();
                let stop = &stop;
                running.push(scope.spawn(move || {
                    pin(self.client_core)?;
                    let mut engine = self.engine(service, host)?;
                    let _ = begun.send(());
                    let mut workload = Workload::new(self.op, self.size, self.depth, self.time / 4);
                    workload.random = true;
                    while !stop.load(Ordering::Relaxed) {
                        engine.run_counted(
                            &workload,
                            &ServerCpu::default(),
                            &mut |_| {},
                            &progress,
                        )?;
                    }
                    engine.finish()
                }));
                // One after the other, so that both find the server idle.
                let _ = began.recv();
            }
            let steps = self.watch(service, &progress);
            // Without limits, so that what is in flight ends soon.
            let ended = set_limits(service, Vec::new());
            stop.store(true, Ordering::Relaxed);
            for client in running {
                client
                    .join()
                    .map_err(|_| anyhow::anyhow!("a client panicked"))??;
            }
            ended.context("cannot take the limits away")?;
            steps
        })
    }

    /// Sets one limit after the other and samples the rates.
    fn watch(&self, service: &Service, progress: &[Progress; 2]) -> Result<Vec<Step>> {
        std::thread::sleep(self.time / 2);
        let mut steps = Vec::new();
        for &Bandwidth(limit) in &self.steps {
            let limited = self.options.fabric.host(1)?;
            let entry = ClientLimits {
                clients: vec![Network::of_one(limited)],
                iops: None,
                bandwidth: Some(Bandwidth(limit)),
            };
            let start = Instant::now();
            set_limits(service, vec![entry]).context("cannot set the limit")?;
            let mut samples = [Vec::new(), Vec::new()];
            let mut next = start;
            while start.elapsed() < self.time {
                let at = start.elapsed().as_secs_f64();
                for (samples, progress) in samples.iter_mut().zip(progress) {
                    samples.push((at, progress.bytes()));
                }
                next += SLOT;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let [other, mine] = samples.map(|samples| Series::of(&samples));
            let half = mine.rates().len() / 2;
            steps.push(Step {
                limit,
                settled_ms: mine
                    .settled(limit as f64)
                    .map(|slots| slots as u64 * SLOT.as_millis() as u64),
                rate: mine.mean_from(half),
                other_rate: other.mean_from(half),
                slots: mine.rates().to_vec(),
            });
        }
        Ok(steps)
    }

    fn table(&self, steps: &[Step]) -> Table {
        let mut table = Table::new(&["limit", "within 10% after", "rate MiB/s", "other MiB/s"]);
        let mebibytes = |rate: f64| format!("{:.1}", rate / f64::from(1 << 20));
        for step in steps {
            let settled = step.settled_ms;
            table.row(&[
                Bandwidth(step.limit).to_string(),
                settled.map_or("never".to_owned(), |settled| format!("{settled} ms")),
                mebibytes(step.rate),
                mebibytes(step.other_rate),
            ]);
            if self.slots {
                for (slot, &rate) in step.slots.iter().enumerate() {
                    let at = slot as u128 * SLOT.as_millis();
                    table.row(&[format!("  {at} ms"), String::new(), mebibytes(rate)]);
                }
            }
        }
        table
    }
}
