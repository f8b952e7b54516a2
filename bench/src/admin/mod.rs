//! `admin`: the cost of HTTP API clients to the reactors.

mod hostile;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::hostile::{Count, HostileBehaviour, behave};
use crate::client::Client;
use crate::load::{Engine, Operation, ServerCpu, Workload, pin};
use crate::spawn::Spawned;
use crate::table::Table;
use crate::units;

/// Measure READs of 4 KiB while the HTTP API is idle, scraped and flooded, in turns.
///
/// The command starts a target. The load, the clients of the API and, on a machine of two cores,
/// the target's management plane share the cores without the reactor. So operations per second and
/// latencies include what these take from the load's own client. The cost to the reactor is its
/// busy time per operation and its longest turn, as counted by the target.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  millrace-bench admin --spawn build/release/millraced
  millrace-bench admin --spawn build/release/millraced --time 2s --rounds 9
")]
pub struct Admin {
    #[command(flatten)]
    client: Client,

    /// The millraced to start.
    #[arg(long, value_name = "PROGRAM")]
    spawn: PathBuf,

    /// How long each slice takes.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::duration)]
    time: Duration,

    /// How many times the three kinds of slices are repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    rounds: usize,

    /// Calls in flight.
    #[arg(long, value_name = "CALLS", default_value_t = 32)]
    depth: usize,

    /// The core of the target's reactor.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    server_core: usize,

    /// The core of the load and of the clients of the API.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    client_core: usize,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Figures of the slices of one kind: medians, except for the longest turn.
#[derive(Clone, Debug, serde::Serialize)]
pub struct SliceFigures {
    /// The kind.
    pub name: &'static str,
    /// Operations per second.
    pub operations_per_second: f64,
    /// p99 of the latency, in microseconds.
    pub p99_us: f64,
    /// The reactor's busy time per operation, in nanoseconds.
    pub busy_ns: f64,
    /// The longest turn of the reactor during such a slice, in microseconds. The target reports the
    /// longest since its start: `None` if no turn here was longer than all before it.
    pub longest_turn_us: Option<f64>,
    /// Requests of the API's clients per second.
    pub asked_per_second: f64,
    /// Requests per second that were served (200).
    pub served_per_second: f64,
}

/// The kinds of slices.
const KINDS: [(&str, &[HostileBehaviour]); 3] = [
    ("quiet", &[]),
    ("scraped at 10 Hz", &[HostileBehaviour::Scrape]),
    ("flooded", &HostileBehaviour::FLOOD),
];

impl Admin {
    /// Runs and prints.
    ///
    /// # Errors
    /// If the target does not start or a call fails.
    pub fn run(&self) -> Result<bool> {
        if self.rounds == 0 || self.depth == 0 {
            bail!("--rounds and --depth take 1 or more");
        }
        let spawned = Spawned::managed(&self.spawn, self.server_core, &self.client.options.fabric)?;
        let (server, _) = spawned.admin().context("it has a management plane")?;
        pin(self.client_core)?;
        let client = spawned.client(&self.client);
        let mut engine = Engine::new(&client, 1, self.depth, 8 << 20)?;
        let mut slices: [Vec<SliceFigures>; 3] = Default::default();
        for _ in 0..self.rounds {
            for ((name, behaviours), seen) in KINDS.iter().zip(&mut slices) {
                seen.push(self.slice(&mut engine, server, name, behaviours)?);
            }
        }
        engine.finish()?;
        let seen: Vec<SliceFigures> = slices.iter().map(|slices| median(slices)).collect();
        if self.json {
            println!("{}", serde_json::json!({ "slices": seen }));
        } else {
            println!("{}", table(&seen));
            println!(
                "busy ns/op and the longest turn are the reactor's own; operations/s and p99 are \
                 the load's,\nwhich shares its core with the clients of the API; longest turn: - where no turn \
                 was longer\nthan all since the start"
            );
        }
        Ok(true)
    }

    fn slice(
        &self,
        engine: &mut Engine,
        server: SocketAddr,
        name: &'static str,
        behaviours: &[HostileBehaviour],
    ) -> Result<SliceFigures> {
        let (stop, count) = (AtomicBool::new(false), Count::default());
        let workload = Workload::new(Operation::Read, 4096, self.depth, self.time);
        let [busy_before, longest_before] = figures(server)?;
        let (stop_all, count_all) = (&stop, &count);
        let measured = std::thread::scope(|scope| {
            for &behaviour in behaviours {
                // The thread inherits the core of this thread.
                scope.spawn(move || behave(behaviour, server, stop_all, count_all));
            }
            let measured = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
            stop.store(true, Ordering::Relaxed);
            measured
        })?;
        let [busy, longest] = figures(server)?;
        let per_second =
            |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / measured.seconds;
        Ok(SliceFigures {
            name,
            operations_per_second: measured.operations_per_second,
            p99_us: measured.p99_us,
            busy_ns: (busy - busy_before) * 1e9 / measured.operations.max(1) as f64,
            longest_turn_us: (longest > longest_before).then_some(longest * 1e6),
            asked_per_second: per_second(&count.asked),
            served_per_second: per_second(&count.served),
        })
    }
}

/// The reactor's busy time and its longest turn since the start, in seconds.
fn figures(server: SocketAddr) -> Result<[f64; 2]> {
    let text = hostile::metrics(server)?;
    let metric =
        |name: &str| sum(&text, name).with_context(|| format!("the metrics have no {name}"));
    Ok([
        metric("millrace_reactor_busy_seconds_total")?,
        metric("millrace_reactor_longest_turn_seconds")?,
    ])
}

/// The sum of a metric over all its labels.
fn sum(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let labels = line.strip_prefix(name)?;
        labels.starts_with(['{', ' ']).then_some(())?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.reduce(|one, other| one + other)
}

fn median(slices: &[SliceFigures]) -> SliceFigures {
    let of = |value: fn(&SliceFigures) -> f64| {
        let mut values: Vec<f64> = slices.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    SliceFigures {
        name: slices[0].name,
        operations_per_second: of(|seen| seen.operations_per_second),
        p99_us: of(|seen| seen.p99_us),
        busy_ns: of(|seen| seen.busy_ns),
        longest_turn_us: slices
            .iter()
            .filter_map(|seen| seen.longest_turn_us)
            .reduce(f64::max),
        asked_per_second: of(|seen| seen.asked_per_second),
        served_per_second: of(|seen| seen.served_per_second),
    }
}

fn table(seen: &[SliceFigures]) -> Table {
    let mut table = Table::new(&[
        "API",
        "asked/s",
        "served/s",
        "operations/s",
        "ratio",
        "p99 us",
        "busy ns/op",
        "ratio",
        "longest turn us",
    ]);
    let quiet = &seen[0];
    for one in seen {
        table.row(&[
            one.name.to_owned(),
            format!("{:.0}", one.asked_per_second),
            format!("{:.0}", one.served_per_second),
            format!("{:.0}", one.operations_per_second),
            format!(
                "{:.2}",
                one.operations_per_second / quiet.operations_per_second
            ),
            format!("{:.1}", one.p99_us),
            format!("{:.0}", one.busy_ns),
            format!("{:.2}", one.busy_ns / quiet.busy_ns),
            one.longest_turn_us
                .map_or_else(|| "-".to_owned(), |longest| format!("{longest:.0}")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_over_its_labels() {
        let text = "# TYPE a counter\na{core=\"0\"} 1.5\na{core=\"1\"} 2\na_more 7\nb 3\n";
        assert_eq!(sum(text, "a"), Some(3.5));
        assert_eq!(sum(text, "b"), Some(3.0));
        assert_eq!(sum(text, "c"), None);
    }

    #[test]
    fn slices_come_down_to_medians_and_their_longest_turn() {
        let slice = |busy_ns, longest_turn_us| SliceFigures {
            name: "quiet",
            operations_per_second: 1000.0 / busy_ns,
            p99_us: busy_ns,
            busy_ns,
            longest_turn_us,
            asked_per_second: 0.0,
            served_per_second: 0.0,
        };
        let seen = median(&[
            slice(9.0, Some(4.0)),
            slice(1.0, None),
            slice(2.0, Some(7.0)),
        ]);
        assert_eq!((seen.busy_ns, seen.operations_per_second), (2.0, 500.0));
        assert_eq!(seen.longest_turn_us, Some(7.0));
        assert_eq!(median(&[slice(1.0, None)]).longest_turn_us, None);
    }
}
