//! `millraced plan`: the memory that a load needs, and the configuration for it.

use std::path::PathBuf;
use std::process::ExitCode;

use millrace::service::sizing::{self, HUGE_PAGE, Load, Sizing};
use millrace_admin::config::{self, ByteSize, Config};
use millrace_mempool::Class;

/// Compute the memory that a load needs, and print the configuration for it.
///
/// The rules are those of the running service: receives take half of their buffers, shares leave
/// room for one more client, and credits are reduced when an eighth or less is free. Data of READs
/// and WRITEs needs no buffers: it moves directly between clients and stores in memory.
///
/// Ends with status 1 if the configuration given with --config is too small.
#[derive(clap::Args)]
pub struct PlanArguments {
    /// RDMA connections at once; a Linux client has one for each server that it mounts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Calls that each connection has in flight at once. Linux asks for 128 at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: u32,
    /// Number of client addresses; default: one for each connection.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: Option<u32>,
    /// Directory listings and other calls with long messages at once, over all connections;
    /// default: one for eight connections.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    long_calls: Option<u32>,
    /// Number of reactors; default: that of the configuration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    reactors: Option<u32>,
    /// A configuration (YAML) with exports, protocol and cores; default: all defaults, without
    /// exports.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Prints the plan.
pub fn print(arguments: &PlanArguments) -> ExitCode {
    let config = match arguments.config.as_deref().map(config::load).transpose() {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(2);
        }
    };
    let given = config.is_some();
    let config = config.unwrap_or_default();
    let load = load(arguments, &config);
    let Some(sizing) = sizing::size(&config, load) else {
        eprintln!("millraced: no machine has the memory for this");
        return ExitCode::FAILURE;
    };
    print!("{}", text(load, &sizing));
    if !given {
        return ExitCode::SUCCESS;
    }
    let shortages = sizing::shortages(&config, &sizing);
    if shortages.is_empty() {
        println!("\nThe configuration is large enough.");
        return ExitCode::SUCCESS;
    }
    println!(
        "\nThe configuration is too small: {}.",
        shortages.join("; ")
    );
    ExitCode::FAILURE
}

fn load(arguments: &PlanArguments, config: &Config) -> Load {
    let configured = || {
        let allowed = millrace_reactor::allowed_cores();
        let cores = config.reactors.cores.resolve(&allowed).len();
        u32::try_from(cores).unwrap_or(u32::MAX)
    };
    Load {
        connections: arguments.connections,
        depth: arguments.depth,
        clients: arguments.clients.unwrap_or(arguments.connections),
        long: (arguments.long_calls).unwrap_or_else(|| arguments.connections.div_ceil(8)),
        reactors: arguments.reactors.unwrap_or_else(configured),
    }
}

fn text(load: Load, sizing: &Sizing) -> String {
    let Load {
        connections,
        depth,
        clients,
        long,
        reactors,
    } = load;
    let mut text = format!(
        "{connections} connections from {clients} clients, {depth} calls at once on each, {long} \
         long calls at once;\n{reactors} {}, of which one has up to {} connections\n\n",
        if reactors == 1 { "reactor" } else { "reactors" },
        sizing.need.connections
    );
    text += &format!("{:34}{:>12}{:>12}\n", "ONE REACTOR", "BUFFERS", "MEMORY");
    let mut line = |what: &str, buffers: u64, bytes: u64| {
        text += &format!("{what:34}{buffers:>12}{:>12}\n", human(bytes));
    };
    let classes = Class::ALL.into_iter().zip(sizing.need.buffers);
    for (class, buffers) in classes {
        let name = format!("{} ({})", class.name(), ByteSize(class.size() as u64));
        line(&name, buffers, buffers * class.size() as u64);
    }
    text += &format!(
        "  at work: {} receives, {} replies\n\n",
        sizing.need.receives, sizing.need.replies
    );
    text += &format!("{:34}{:>24}\n", "SERVER", "MEMORY");
    for (what, bytes) in [
        ("buffers of all reactors", sizing.pools_bytes),
        ("exports in memory", sizing.stores_bytes),
        ("remembered calls, at most", sizing.replay_bytes),
    ] {
        text += &format!("{what:34}{:>24}\n", human(bytes));
    }
    text += &format!(
        "\nWrite into the configuration:\n  mempool: {{ size: {} }}\n  flow: {{ credits: {} }}\n",
        ByteSize(sizing.pool_bytes),
        sizing.credits
    );
    text += &format!(
        "Reserve {} huge pages of {}, in /etc/sysctl.d/60-millrace.conf:\n  vm.nr_hugepages = {}\n",
        sizing.huge_pages,
        ByteSize(HUGE_PAGE),
        sizing.huge_pages
    );
    text
}

/// In the largest unit, to one decimal place.
fn human(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}
