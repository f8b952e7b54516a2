//! The Millrace server.

mod allocator;
mod announce;
mod descriptors;
mod devices;
mod inherited;
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
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Parser, Subcommand};
use millrace::service::devices as rdma;
use millrace::service::hardening::{self, ThreadKind, confine_thread};
use millrace::service::preflight::{self, RunningServer};
use millrace::service::{InheritedListeners, Service, StartError, StartProgress};
use millrace_admin::api::{self, AdminSocket, AdminState, Certificates, StartingAdmin};
use millrace_admin::change::ConfigStore;
use millrace_admin::config::{self, Config, ConfigError, ConfigProblem, KeyPath, Source};
use millrace_admin::metrics::Metrics;
use millrace_admin::{roles, token};

/// How long a stop waits for calls in service.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Serve files to NFS/RDMA clients.
///
/// One configuration file has all settings: cores, listeners, exports and the clients that they
/// admit. `deploy/millraced.yaml` shows every key with its default.
///
/// SIGTERM or Ctrl-C stops in order: new connections are refused, calls in service are finished
/// (for at most ten seconds), and connections are closed. A second signal ends the process at once.
/// SIGHUP reads the configuration file again and applies the changes that need no restart.
#[derive(Parser)]
#[command(name = "millraced", version, long_version = VERSION, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<Serve>,
}

#[derive(Subcommand)]
enum Command {
    Plan(plan::PlanArguments),
    Devices(devices::DevicesArguments),
}

/// The version, and what is built in.
const VERSION: &str = {
    macro_rules! version {
        ($providers:literal, $stores:literal) => {
            concat!(
                env!("CARGO_PKG_VERSION"),
                "\nproviders: ",
                $providers,
                "\nstores: ",
                $stores
            )
        };
    }
    match (rdma::BUILT_IN, cfg!(feature = "ceph")) {
        (true, true) => version!("iwarp, verbs (RDMA devices)", "memory, posix, ceph"),
        (true, false) => version!("iwarp, verbs (RDMA devices)", "memory, posix"),
        (false, true) => version!("iwarp (built without RDMA devices)", "memory, posix, ceph"),
        (false, false) => version!("iwarp (built without RDMA devices)", "memory, posix"),
    }
};

#[derive(Args)]
struct Serve {
    /// The configuration file (YAML).
    #[arg(long, value_name = "FILE", required = true)]
    config: PathBuf,
    /// Check the configuration, print its errors with their lines, and end. Without `=file`, also
    /// check that this machine has the memory, addresses, free ports, cores and folders. Resources
    /// of a running server with the same file count as free.
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "machine")]
    check: Option<Checked>,
    /// When started as root, continue as this user. Of root's rights the process keeps access to
    /// ports below 1024 and, if folders are exported, the rights to act as clients' users.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t)]
    log_format: logging::Format,
}

/// What `--check` checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Checked {
    /// The file, and whether this machine can serve it.
    Machine,
    /// The file only.
    File,
}

const EXAMPLES: &str = "Examples:
  millraced --config /etc/millrace/millraced.yaml --check
  millraced --config /etc/millrace/millraced.yaml
  millraced --config deploy/quickstart.yaml --log-format json
  millraced plan --connections 500 --depth 32
  millraced devices

Then, on a Linux client:
  mount -t nfs -o rdma HOST:/scratch /mnt";

fn main() -> ExitCode {
    allocator::free_at_once();
    let arguments = match Arguments::parse() {
        Arguments {
            command: Some(Command::Plan(wanted)),
            ..
        } => return plan::print(&wanted),
        Arguments {
            command: Some(Command::Devices(wanted)),
            ..
        } => return devices::print(&wanted),
        Arguments { serve, .. } => serve.expect("required without a command"),
    };
    let inherited = match inherited::sockets() {
        Ok(sockets) => InheritedListeners::new(sockets),
        Err(error) => return failed(&anyhow!("sockets of the service manager: {error}")),
    };
    descriptors::prepare();
    let (config, source) = match config::load_with_source(&arguments.config) {
        Ok(loaded) => loaded,
        Err(errors) => return refused(&errors),
    };
    let certificates = config.admin.tls.as_ref().map(Certificates::load);
    let certificates = match certificates.transpose() {
        Ok(certificates) => certificates.map(Arc::new),
        Err(error) => return refused(&source.error(error.into())),
    };
    // From here on the process has only the rights it serves with.
    if let Err(error) = become_user(&arguments, &config) {
        return failed(&error);
    }
    if arguments.check.is_none() {
        close_unwanted(&inherited, &config);
    }
    let mut running = None;
    let problems = match arguments.check {
        Some(Checked::File) => preflight::file_problems(&config),
        Some(Checked::Machine) => {
            running = preflight::running_by(&arguments.config);
            preflight::problems(&config, running.as_ref(), &inherited)
        }
        None => preflight::problems(&config, None, &inherited),
    };
    if let Some(errors) = source.errors(problems) {
        return refused(&errors);
    }
    let done = match arguments.check {
        Some(_) => check(
            &arguments,
            &config,
            &source,
            certificates.as_deref(),
            running.as_ref(),
        ),
        None => match run(&arguments, config, &source, certificates, inherited) {
            Err(Failure::Configuration(error)) => return refused(&error),
            Err(Failure::Other(error)) => Err(error),
            Ok(()) => Ok(()),
        },
    };
    done.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

/// The reason for not serving.
enum Failure {
    /// The configuration cannot be served: a retry would not help.
    Configuration(ConfigError),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

fn become_user(arguments: &Serve, config: &Config) -> Result<()> {
    let Some(user) = &arguments.user else {
        return Ok(());
    };
    rights::become_user(user, hardening::kept_by_user(config))
}

/// Closes inherited sockets at addresses that were changed since, as they may be in the way of
/// others: `127.0.0.1:2049` and `0.0.0.0:2049` exclude each other.
fn close_unwanted(inherited: &InheritedListeners, config: &Config) {
    if inherited.take_unwanted(config).is_empty() {
        return;
    }
    // The manager has a copy of each.
    notify::close_kept();
    notify::barrier();
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("millraced: {error:#}");
    ExitCode::FAILURE
}

/// The configuration is invalid: a retry would not help.
fn refused(errors: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("{errors}");
    ExitCode::from(2)
}

/// Notes on effects of a configuration that an operator may not expect.
fn notes(config: &Config, certificates: Option<&Certificates>) -> Vec<String> {
    let mut notes: Vec<String> = config.notes();
    notes.extend(token::note(config));
    notes.extend(roles::note(config));
    notes.extend(certificates.into_iter().flat_map(Certificates::notes));
    notes.extend(rdma::note(config));
    notes
}

/// Reports that the configuration is valid, and its notes.
fn check(
    arguments: &Serve,
    config: &Config,
    source: &Source,
    certificates: Option<&Certificates>,
    running: Option<&RunningServer>,
) -> Result<()> {
    let mut text = format!("{}: good\n", arguments.config.display());
    text.push_str(&announce::summary(config));
    if let Some(process) = running.map(RunningServer::process) {
        text.push_str(&format!(
            "note: process {process} runs with this file; its ports and memory count as free\n"
        ));
    }
    let machine = arguments.check == Some(Checked::Machine);
    let hardening = machine.then(|| hardening::notes(config));
    for note in notes(config, certificates)
        .into_iter()
        .chain(hardening.into_iter().flatten())
    {
        text.push_str(&format!("note: {note}\n"));
    }
    if rdma::are_asked_for(config) {
        // The file is valid nevertheless: devices can be added and removed.
        match rdma::describe(Some(config)) {
            Ok(devices) => text.push_str(&devices),
            Err(why) => {
                let problem = rdma::unusable(config, &why).map(|problem| source.error(problem));
                let problem = problem.map(|error| error.to_string()).unwrap_or(why);
                text.push_str(&format!("note: {problem}; millraced would not start now\n"));
            }
        }
    }
    // A closed pipe (`| head -1`) is no error.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Moves this thread, and all threads that it starts, off the reactors' cores.
fn step_aside(cores: &[usize]) {
    match millrace_reactor::step_aside(cores) {
        Ok(aside) => tracing::info!(%aside, "the management plane runs beside the reactors"),
        Err(error) => tracing::warn!(%error, "the threads of the management plane may run on the \
            reactors' cores"),
    }
}

/// Answers requests during the start, on threads off the reactors' cores.
fn serve_start(
    config: &Config,
    listener: TcpListener,
    socket: Option<AdminSocket>,
    certificates: Option<Arc<Certificates>>,
    progress: StartProgress,
) -> Result<StartingAdmin> {
    let allowed = millrace_reactor::allowed_cores();
    let cores = config.reactors.cores.resolve(&allowed);
    // This thread keeps its cores, as the reactors choose from them.
    let serve = move || {
        step_aside(&cores);
        confine_thread(ThreadKind::Management);
        api::serve_start(listener, socket, certificates, move || progress.stage())
    };
    let thread = thread::Builder::new().name("aside".to_owned());
    let thread = thread.spawn(serve).context("cannot start a thread")?;
    let served = thread
        .join()
        .map_err(|_| anyhow!("admin: the start panicked"))?;
    served.context("admin: cannot serve")
}

fn run(
    arguments: &Serve,
    config: Config,
    source: &Source,
    certificates: Option<Arc<Certificates>>,
    inherited: InheritedListeners,
) -> Result<(), Failure> {
    hardening::confine(&config, &arguments.config)
        .map_err(|problem| Failure::Configuration(source.error(problem)))?;
    let filter = logging::filter(&config.log)?;
    let cores = config
        .reactors
        .cores
        .resolve(&millrace_reactor::allowed_cores());
    let (log, log_hook) = logging::start(filter, arguments.log_format, cores)?;
    let _flush = log.flush_at_end();
    if rights::are_roots() {
        tracing::warn!("running as root: use --user NAME to drop its rights");
    }
    let mut signals = signals::StopSignals::catch().context("cannot catch signals")?;
    let reloads = signals::ReloadSignal::catch().context("cannot catch signals")?;
    let manager = notify::Manager::default();
    let starting = manager.starting().context("cannot start a thread")?;

    let config = Arc::new(config);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        rdma_devices = if rdma::BUILT_IN {
            "built in"
        } else {
            "left out"
        },
        "millraced"
    );
    if inherited.count() > 0 {
        let sockets = inherited.count();
        tracing::info!(sockets, "clients could connect during the restart");
    }
    hardening::log();
    for note in notes(&config, certificates.as_deref()) {
        tracing::warn!("{note}");
    }
    // Bound early: a port in use ends the start before memory is mapped.
    let listener = TcpListener::bind(config.admin.listen).map_err(|error| {
        let path = KeyPath::root().key("admin").key("listen");
        let message = format!("cannot listen on {}: {error}", config.admin.listen);
        Failure::Configuration(source.error(ConfigProblem::new(path, message)))
    })?;
    let socket = config.admin.socket.as_deref().map(|file| {
        AdminSocket::bind(file).map_err(|error| {
            let path = KeyPath::root().key("admin").key("socket");
            let message = format!("cannot listen on {}: {error}", file.display());
            Failure::Configuration(source.error(ConfigProblem::new(path, message)))
        })
    });
    let socket = socket.transpose()?;
    let progress = StartProgress::interrupted_by(signals.asked());
    let admin = serve_start(
        &config,
        listener,
        socket,
        certificates.clone(),
        progress.clone(),
    )?;
    let service = match Service::start_watched(Arc::clone(&config), &progress, inherited) {
        Ok(service) => service,
        Err(_) if progress.is_interrupted() => {
            tracing::info!("stopped before the service had started");
            return Ok(());
        }
        Err(StartError::Devices(problem)) => {
            return Err(anyhow!("{}", source.error(problem)).into());
        }
        Err(error) => {
            return Err(match error.problem() {
                Some(problem) => Failure::Configuration(source.error(problem)),
                None => Failure::Other(error.into()),
            });
        }
    };
    service.control().on_log_filter(log_hook);
    step_aside(&service.cores());
    confine_thread(ThreadKind::Management);
    let metrics = Metrics::new();
    metrics.register(service.control());
    let file = Some(arguments.config.clone());
    let config_store = Arc::new(ConfigStore::new(
        service.control(),
        Arc::clone(&config),
        file,
    ));
    metrics.register(Arc::clone(&config_store) as _);
    metrics.register(Arc::clone(&log) as _);
    let mut state = AdminState::new(service.control(), metrics, Arc::clone(&config_store));
    if let Some(certificates) = &certificates {
        state = state.with_certificates(Arc::clone(certificates));
    }
    let admin = admin.serve(state);
    announce::served(&config, service.addresses(), admin.address());
    drop(starting);
    notify::close_kept();
    manager.ready(&announce::status(
        &config,
        service.addresses(),
        admin.address(),
    ));
    let told = manager.clone();
    let served = reloads
        .serve(move || told.reload(|| reload::reload(&config_store, certificates.as_deref())));
    served.context("cannot start a thread")?;
    let fed = manager.feed_watchdog(service.control());
    let _fed = fed.context("cannot start a thread")?;

    signals.wait();
    manager.keep_open(&service.listening_sockets());
    manager.stopping(STOP_TIMEOUT);
    tracing::info!(timeout = ?STOP_TIMEOUT, "stopping: calls in progress are finished first");
    service.drain(STOP_TIMEOUT);
    admin.shutdown();
    tracing::info!("stopped");
    Ok(())
}
