//! The Millrace server.

mod announce;
mod logging;
mod notify;
mod plan;
mod reload;
mod rights;
mod signals;

use std::io::{self, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use millrace::service::Service;
use millrace_admin::api::{self, AdminState, Certificates};
use millrace_admin::change::Ledger;
use millrace_admin::config::{self, Config};
use millrace_admin::metrics::Metrics;
use millrace_admin::token;

/// How long a stop waits for calls in service.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serve files to NFS/RDMA clients.
///
/// One configuration file says everything: which cores poll, where clients connect, what is
/// exported to whom. `deploy/millraced.yaml` shows every key with its default.
///
/// SIGTERM or Ctrl-C stops in order: no new connections, calls in service are finished (for at most
/// ten seconds), connections are closed. A second signal ends at once. SIGHUP reads the
/// configuration file again and puts in force what needs no restart.
#[derive(Parser)]
#[command(name = "millraced", version, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<Serve>,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::Arguments),
}

#[derive(Args)]
struct Serve {
    /// The configuration file (YAML).
    #[arg(long, value_name = "FILE", required = true)]
    config: PathBuf,
    /// Check the configuration, say what is wrong with it by line, and end.
    #[arg(long)]
    check: bool,
    /// Started as root: go on as this user, with no right of root's but that to ports below 1024.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t)]
    log_format: logging::Format,
}

const EXAMPLES: &str = "Examples:
  millraced --config /etc/millrace/millraced.yaml --check
  millraced --config /etc/millrace/millraced.yaml
  millraced --config deploy/quickstart.yaml --log-format json
  millraced plan --connections 500 --depth 32

Then, on a Linux client:
  mount -t nfs -o vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=2049 HOST:/scratch /mnt";

fn main() -> ExitCode {
    let arguments = match Arguments::parse() {
        Arguments {
            command: Some(Command::Plan(wanted)),
            ..
        } => return plan::print(&wanted),
        Arguments { serve, .. } => serve.expect("required without a command"),
    };
    let config = match config::load(&arguments.config) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millraced: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Takes this thread, and so every thread that it starts, out of the reactors' way.
fn step_aside(service: &Service) {
    match millrace_reactor::step_aside(&service.cores()) {
        Ok(aside) => tracing::info!(%aside, "everything but the reactors runs aside"),
        Err(error) => tracing::warn!(%error, "the management plane may disturb reactors"),
    }
}

fn run(arguments: &Serve, config: Config) -> Result<()> {
    let filter = logging::filter(&config.log)?;
    let certificates = config.admin.tls.as_ref().map(Certificates::load);
    let certificates = certificates.transpose()?.map(Arc::new);
    let mut notes: Vec<String> = config.notes();
    notes.extend(token::note(&config));
    notes.extend(
        certificates
            .iter()
            .flat_map(|certificates| certificates.notes()),
    );
    if arguments.check {
        let mut text = format!("{}: good\n", arguments.config.display());
        for note in notes {
            text.push_str(&format!("note: {note}\n"));
        }
        // A reader that has seen enough (`| head -1`) is no fault.
        let _ = io::stdout().write_all(text.as_bytes());
        return Ok(());
    }
    if let Some(user) = &arguments.user {
        rights::become_user(user)?;
    }
    let log = logging::start(filter, arguments.log_format);
    if rights::are_roots() {
        tracing::warn!("running as root: --user NAME gives its rights away");
    }
    let mut signals = signals::StopSignals::catch().context("cannot catch signals")?;
    let reloads = signals::ReloadSignal::catch().context("cannot catch signals")?;
    let manager = notify::Manager::default();
    let starting = manager.starting().context("cannot start a thread")?;

    let config = Arc::new(config);
    for note in notes {
        tracing::warn!("{note}");
    }
    // Taken early: a port that is in use ends the start before any memory is mapped.
    let admin = TcpListener::bind(config.admin.listen)
        .with_context(|| format!("admin.listen: cannot listen on {}", config.admin.listen))?;
    let service = Service::start(Arc::clone(&config))?;
    service.control().on_log_filter(log);
    step_aside(&service);
    let metrics = Metrics::new();
    metrics.register(service.control());
    let file = Some(arguments.config.clone());
    let ledger = Arc::new(Ledger::new(service.control(), Arc::clone(&config), file));
    metrics.register(Arc::clone(&ledger) as _);
    let mut state = AdminState::new(service.control(), metrics, Arc::clone(&ledger));
    if let Some(certificates) = certificates {
        state = state.with_certificates(certificates);
    }
    let admin = api::serve(admin, state).context("admin: cannot serve")?;
    announce::served(&config, service.addresses(), admin.address());
    drop(starting);
    manager.ready(&announce::status(
        &config,
        service.addresses(),
        admin.address(),
    ));
    let told = manager.clone();
    let served = reloads.serve(move || told.reload(|| reload::reload(&ledger)));
    served.context("cannot start a thread")?;
    let fed = manager.feed_watchdog(service.control());
    let _fed = fed.context("cannot start a thread")?;

    signals.wait();
    manager.stopping(PATIENCE);
    tracing::info!(patience = ?PATIENCE, "stopping: calls in service are finished first");
    signals.end_at_next().context("cannot catch signals")?;
    service.drain(PATIENCE);
    admin.shutdown();
    tracing::info!("stopped");
    Ok(())
}
