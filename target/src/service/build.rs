//! Starting the service from its configuration.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use millrace_admin::config::{self, Config, ConfigProblem, KeyPath};
use millrace_gss::SystemDirectory;
use millrace_mempool::{ArenaError, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::{
    Clock, Context, ReactorConfig, ReactorHandle, SpawnError, Watchdog, helper_cores, run_on,
};
use millrace_store::Time;
use millrace_store::any::{AnyStore, AnyVolume};
use millrace_store::posix::helpers;

use super::change::{Changing, ExportVolumes, InForce, Listener, check_exports};
use super::client_state::{HomePost, SharedClientState};
use super::control::{ReactorParts, ServiceControl};
use super::devices::{self, OpenedDevices};
use super::folders::ReactorStores;
use super::gateways::{GatewayMember, JoiningGateway, join_gateways};
use super::gss::{self, SharedGss, ShownContexts};
use super::hardening::{ThreadKind, confine_thread};
use super::inherited::InheritedListeners;
use super::lock::StateLock;
use super::plan::ProviderCounters;
use super::programs::ReactorPrograms;
use super::providers::Providers;
use super::startup::StartProgress;
use super::state_reports::StateAsker;
use super::worker::{ReactorIndex, ReactorMessage, Worker};
use super::{Addresses, Service, memory, plan as terms, secret};
use crate::call::Serve;
use crate::exports::{Exports, ExportsError, Rules};
use crate::flow::{ClientTable as FlowClients, Flow};
use crate::handle::{HandleKey, HandleSecrets};
use crate::mount3::MountTable;
use crate::nfs4::OwnerDomain;
use crate::nfs4::ServerIdentity;
use crate::rdma::{self, ExposureBudget, FabricId, FabricSlot, ResponderShared};
use crate::replay::{self, ReplayCache, ReplayLimits};
use crate::rpc::GssAuthenticator;
use crate::rpcbind::{Offers, Registration, Rendezvous, RpcbindServer};
use crate::tcp::{TcpConfig, TcpServer};

/// The port of port mappers (RFC 1833 section 2.1).
pub(super) const RPCBIND_PORT: u16 = 111;

const NO_CORE: &str = "this process may use no core at all";

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory or the folder of an export is not available.
    #[error("{}: {}", .0.path, .0.message)]
    Store(ConfigProblem),
    /// There is not enough memory.
    #[error("{}: {}", .0.path, .0.message)]
    Memory(ConfigProblem),
    /// The library of Kerberos or the keytab cannot be used.
    #[error("{}: {}", .0.path, .0.message)]
    Gss(ConfigProblem),
    /// The interrupt of [`StartProgress`] was set.
    #[error("the start was interrupted")]
    Interrupted,
    /// The exports contradict each other.
    #[error("exports: {0}")]
    Exports(ExportsError),
    /// The state directory cannot be used.
    #[error("state_directory: {0}")]
    State(io::Error),
    /// The folder that gateways share cannot be used.
    #[error("gateways.directory: {0}")]
    Gateways(io::Error),
    /// The shared secret of file handles cannot be used.
    #[error("handle_secret: {0}")]
    HandleSecret(io::Error),
    /// The devices of listeners with `provider: verbs` cannot be used.
    #[error("{}: {}", .0.path, .0.message)]
    Devices(ConfigProblem),
    /// The system has no such core for this process.
    #[error("reactors.cores: {0}")]
    Core(SpawnError),
    /// A reactor cannot start; the text names the key.
    #[error("{0}")]
    Reactor(SpawnError),
    /// No core may be used.
    #[error("reactors.cores: {NO_CORE}")]
    NoCore,
    /// The watchdog cannot start.
    #[error("cannot start the watchdog: {0}")]
    Watchdog(io::Error),
}

impl StartError {
    /// The key of the configuration that causes the error, if a retry would fail too. RDMA devices
    /// can be added, so they are no such error.
    #[must_use]
    pub fn problem(&self) -> Option<ConfigProblem> {
        let root = KeyPath::root();
        let path = match self {
            Self::Store(problem) | Self::Memory(problem) | Self::Gss(problem) => {
                return Some(problem.clone());
            }
            Self::Exports(_) => root.key("exports"),
            Self::State(_) => root.key("state_directory"),
            Self::HandleSecret(_) => root.key("handle_secret"),
            Self::Gateways(_) => root.key("gateways").key("directory"),
            Self::Core(_) | Self::NoCore => root.key("reactors").key("cores"),
            Self::Reactor(SpawnError::Build(error)) => {
                return error.downcast_ref().and_then(BuildError::problem);
            }
            Self::Reactor(_) | Self::Devices(_) | Self::Interrupted | Self::Watchdog(_) => {
                return None;
            }
        };
        // The text without the key.
        let message = match self {
            Self::Exports(error) => error.to_string(),
            Self::State(error) | Self::HandleSecret(error) | Self::Gateways(error) => {
                error.to_string()
            }
            Self::Core(error) => error.to_string(),
            _ => NO_CORE.to_owned(),
        };
        Some(ConfigProblem::new(path, message))
    }
}

/// Why a worker cannot be created on its core.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error("mempool: {0}")]
    Pool(#[from] ArenaError),
    #[error("{key}: cannot listen on {address}: {error}")]
    Listen {
        key: KeyPath,
        address: SocketAddr,
        error: String,
    },
    #[error(
        "rpc.rpcbind: cannot listen on {address}: {error} (where another port mapper runs, use \
         `register`)"
    )]
    Rpcbind {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("fabric[{0}].provider: {1}")]
    Provider(u64, io::Error),
    #[error("rpc: {0}")]
    Tcp(io::Error),
    #[error("exports: {0}")]
    Exports(#[from] ExportsError),
    #[error("exports: stores of kind posix cannot be served: {0}")]
    Engine(io::Error),
}

impl BuildError {
    /// The key that causes the error.
    fn problem(&self) -> Option<ConfigProblem> {
        let text = self.to_string();
        let path = match self {
            Self::Listen { key, .. } => key.clone(),
            Self::Rpcbind { .. } => KeyPath::root().key("rpc").key("rpcbind"),
            Self::Pool(ArenaError::Interrupted) | Self::Provider(..) | Self::Tcp(_) => return None,
            Self::Pool(_) => KeyPath::root().key("mempool"),
            Self::Exports(_) | Self::Engine(_) => KeyPath::root().key("exports"),
        };
        // The text begins with the key.
        let message = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
        Some(ConfigProblem::new(path, message))
    }
}

/// The parameters of every worker; each gets its own clone.
#[derive(Clone)]
struct WorkerPlan {
    config: Arc<Config>,
    registry: Registry,
    exports: Vec<(Rules, AnyVolume)>,
    /// When the table of exports was made: clients see the same time on all reactors.
    made: Time,
    secrets: HandleSecrets,
    replay: ReplayCache,
    /// The journal writers of the reactors, by index, until taken.
    journals: Arc<Mutex<Vec<Option<replay::Writer>>>>,
    clients: MountTable,
    flow: FlowClients,
    exposures: Arc<ExposureBudget>,
    devices: OpenedDevices,
    /// The state of clients, if NFS version 4 is served.
    client_state: Option<SharedClientState>,
    /// Kerberos, if it is served.
    gss: Option<SharedGss>,
    /// The domain of owners by name, if they may have names.
    owners: Option<OwnerDomain>,
    /// The port mapper's answers over RDMA, once known.
    offers: Option<Arc<OnceLock<Offers>>>,
    /// Sockets of the process before this one.
    inherited: InheritedListeners,
    /// The number of reactors, and the index of this one.
    reactors: usize,
    index: usize,
}

/// A worker's data for other threads.
struct Built {
    parts: ReactorParts,
    addresses: Addresses,
}

/// Starts everything.
pub fn start(
    config: Arc<Config>,
    progress: &StartProgress,
    inherited: InheritedListeners,
) -> Result<Service, StartError> {
    let registry = progress.registry(match config.mempool.hugepages {
        config::Hugepages::Auto => HugepagePolicy::Auto,
        config::Hugepages::Required => HugepagePolicy::Required,
        config::Hugepages::Off => HugepagePolicy::Off,
    });
    let allowed = millrace_reactor::allowed_cores();
    let cores = config.reactors.cores.resolve(&allowed);
    if cores.is_empty() {
        return Err(StartError::NoCore);
    }
    let helpers_on = helper_cores(&allowed, &cores);
    helpers::on_start(helpers_on.clone(), || {
        confine_thread(ThreadKind::StoreHelper);
    });
    let enough = memory::check_start(&config, cores.len(), memory::Freed::default());
    enough.map_err(StartError::Memory)?;
    // First, as it fails soonest. Memory mapped later is registered when it is added.
    progress.enter("opening RDMA devices")?;
    let devices = OpenedDevices::default();
    let opened = devices.open_for(&config, &registry);
    opened.map_err(StartError::Devices)?;
    progress.enter("reading the keytab")?;
    let gss = config.gss.as_ref().map(gss::start).transpose();
    let gss = gss.map_err(StartError::Gss)?;
    progress.enter("reading the state directory")?;
    let directory = config.state_directory.as_deref();
    let lock = directory.map(StateLock::take).transpose();
    let lock = lock.map_err(StartError::State)?.map(Arc::new);
    let error = match &config.handle_secret {
        Some(_) => StartError::HandleSecret,
        None => StartError::State,
    };
    let secrets = secret::of_handles(&config).map_err(error)?;
    let gateway = join_gateways(&config, &secrets, progress)?;
    let shared = gateway
        .as_ref()
        .map(|joined| joined.open_replies(cores.len()));
    let shared = shared.transpose().map_err(StartError::Gateways)?.flatten();
    let (replay, shared_replies) = match (shared, directory) {
        (Some((replay, shared)), _) => (replay, Some(shared)),
        (None, Some(directory)) => {
            let replay = ReplayCache::open(ReplayLimits::default(), directory, cores.len());
            (replay, None)
        }
        (None, None) => (
            replay::OpenedCache::in_memory(ReplayLimits::default()),
            None,
        ),
    };
    let client_state = client_state(&config, cores.len(), &lock, gateway.as_ref());
    let client_state = client_state.map_err(StartError::State)?;
    let client_state = client_state.map(|state| state.with_handles_of(&secrets));
    let exports = stores(&config, &registry, &helpers_on, progress)?;
    let plan = WorkerPlan {
        exports,
        made: Time::now(),
        secrets,
        replay: replay.cache,
        journals: Arc::new(Mutex::new(replay.writers.into_iter().map(Some).collect())),
        clients: MountTable::default(),
        flow: FlowClients::new(cores.len()),
        exposures: Arc::default(),
        devices,
        client_state,
        gss,
        owners: owner_domain(&config.nfs4),
        offers: (config.rpc.rpcbind == config::Rpcbind::Embedded).then(Arc::default),
        inherited,
        reactors: cores.len(),
        index: 0,
        registry,
        config: Arc::clone(&config),
    };
    let (clients, export_limits) = terms::rates(&config);
    plan.flow
        .set_limits(&clients, export_limits, Instant::now());
    // An invalid table is found before any reactor starts.
    check_exports(&plan.exports).map_err(StartError::Exports)?;

    let mut reactors: Vec<ReactorHandle<ReactorMessage>> = Vec::new();
    let mut parts = Vec::new();
    let mut addresses = Addresses::default();
    for (index, &core) in cores.iter().enumerate() {
        let entered = progress.enter(format!("starting the reactor of core {core}"));
        let spawned = match entered {
            Ok(()) => spawn(&plan, index, core),
            Err(error) => {
                stop(&reactors);
                return Err(error);
            }
        };
        match spawned {
            Ok((handle, built)) => {
                if index == 0 {
                    addresses = built.addresses;
                }
                reactors.push(handle);
                parts.push(built.parts);
            }
            Err(error) => {
                stop(&reactors);
                return Err(match error {
                    SpawnError::Core { .. } => StartError::Core(error),
                    _ => StartError::Reactor(error),
                });
            }
        }
    }
    for reactor in &reactors {
        // The mailboxes are still empty.
        let _ = reactor.send(ReactorMessage::Peers(reactors.clone()));
    }
    let watchdog = Watchdog::spawn(&reactors).map_err(|error| {
        stop(&reactors);
        StartError::Watchdog(error)
    })?;
    let registration = (config.rpc.rpcbind == config::Rpcbind::Register).then(|| {
        let versions = terms::versions(&config);
        let offers = Offers::of_service(&versions, addresses.rpc, &addresses.fabric);
        Registration::start(Rendezvous::of_this_host(), offers, cores.clone())
    });
    let registration = registration.transpose().unwrap_or_else(|error| {
        tracing::warn!(%error, "rpc.rpcbind: nothing could be registered");
        None
    });
    let listeners = (0..).zip(config.fabric.iter().zip(&addresses.fabric));
    let in_force = InForce {
        exports: plan.exports,
        listeners: listeners
            .map(|(id, (fabric, &address))| Listener {
                id: FabricId(id),
                fabric: fabric.clone(),
                address,
            })
            .collect(),
        former: Vec::new(),
        rpc: addresses.rpc,
        config,
    };
    let changing = Changing {
        next_listener: in_force.listeners.len() as u64,
        registration,
    };
    let asker = StateAsker::new(&reactors);
    let gateway = gateway.map(|joined| GatewayMember::follow(&joined, asker, shared_replies));
    let gateway = gateway.transpose().map_err(StartError::Gateways)?;
    let control = ServiceControl::new(
        in_force,
        changing,
        allowed,
        reactors.clone(),
        parts,
        plan.flow,
        plan.replay,
        plan.registry,
        plan.devices,
        plan.gss.map(|gss| ShownContexts(gss.contexts)),
        watchdog,
        gateway,
    );
    Ok(Service {
        reactors,
        addresses,
        control: Arc::new(control),
        _lock: lock,
    })
}

/// Stops reactors that have served no client yet.
fn stop(reactors: &[ReactorHandle<ReactorMessage>]) {
    for reactor in reactors {
        let _ = reactor.send(ReactorMessage::Drain {
            deadline: Instant::now(),
            ends: true,
        });
    }
    for reactor in reactors {
        let _ = reactor.join();
    }
}

/// Opens the stores, on a thread of the helpers' cores: threads that a store's library starts stay
/// there.
fn stores(
    config: &Config,
    registry: &Registry,
    cores: &[usize],
    progress: &StartProgress,
) -> Result<ExportVolumes, StartError> {
    let store = |(index, export): (usize, &config::Export)| {
        let (path, kind) = (&export.path, export.store.kind());
        progress.enter(format!("opening exports[{index}] ({path}, {kind})"))?;
        let volume = terms::volume(config, index, registry).map_err(StartError::Store)?;
        Ok((terms::rules(export), volume))
    };
    let open = || {
        let _ = run_on(cores);
        config.exports.iter().enumerate().map(store).collect()
    };
    std::thread::scope(|scope| {
        let opened = scope.spawn(open).join();
        opened.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

fn spawn(
    plan: &WorkerPlan,
    index: usize,
    core: usize,
) -> Result<(ReactorHandle<ReactorMessage>, Built), SpawnError> {
    let config = ReactorConfig {
        core: Some(core),
        name: format!("reactor-{core}"),
        poll: terms::poll_mode(&plan.config.reactors),
    };
    let (report, built) = crossbeam_channel::bounded(1);
    let plan = WorkerPlan {
        index,
        ..plan.clone()
    };
    let handle = millrace_reactor::spawn(config, move |context| {
        confine_thread(ThreadKind::Reactor);
        let (shared, room, home) = shared(&plan, context)?;
        let (fabrics, fabric) = fabrics(&plan, context)?;
        let programs = shared.programs.clone();
        let (tcp, rpc) = tcp(&plan, context, &shared.pool, &shared.flow, programs)?;
        let offers = Offers::of_service(&terms::versions(&plan.config), rpc, &fabric);
        if let (0, Some(everywhere)) = (plan.index, &plan.offers) {
            // The first reactor, which listens, is created before the others.
            let _ = everywhere.set(offers.clone());
        }
        let rpcbind = rpcbind(&plan, context, &shared.pool, offers)?;
        let parts = ReactorParts {
            pool: shared.pool.gauges(),
            page_size: shared.pool.page_size(),
            programs: shared.programs.counters(),
            nfs3: shared.programs.nfs3_counters(),
            nfs4: shared.programs.nfs4_counters(),
            exports: shared.programs.export_counters(),
            other_handles: shared.programs.other_handles(),
            rdma: Arc::clone(&shared.counters),
            flow: Arc::clone(shared.flow.counters()),
            classes: shared.flow.classes().clone(),
            tcp: tcp.counters(),
            providers: Providers::new(fabrics.counters),
            backend: room.backend(),
            client_state: plan
                .client_state
                .as_ref()
                .filter(|_| plan.index == 0)
                .map(SharedClientState::gauges),
        };
        // The thread that started this one waits for it.
        let _ = report.send(Built {
            parts,
            addresses: Addresses { fabric, rpc },
        });
        Ok(Worker::new(
            context,
            ReactorIndex {
                index: plan.index,
                reactors: plan.reactors,
            },
            shared,
            fabrics.slots,
            tcp,
            rpcbind,
            room,
            home,
            rdma::work,
        ))
    })?;
    let built = built.recv().map_err(|_| SpawnError::Panicked)?;
    Ok((handle, built))
}

type BuiltPrograms = ReactorPrograms<AnyStore>;
type BuiltShared = (
    Rc<ResponderShared<BuiltPrograms>>,
    ReactorStores,
    Option<HomePost>,
);

/// The state of clients, if NFS version 4 is served.
fn client_state(
    config: &Config,
    reactors: usize,
    lock: &Option<Arc<StateLock>>,
    gateway: Option<&JoiningGateway>,
) -> io::Result<Option<SharedClientState>> {
    if config.nfs4.minor_versions.is_empty() {
        return Ok(None);
    }
    let directory = config.state_directory.as_deref();
    let owner = secret::load(directory, secret::SERVER_IDENTITY)?;
    if let Some(gateway) = gateway {
        let scope = gateway.identity();
        let identity = ServerIdentity { owner, scope };
        let state = SharedClientState::new(reactors, &config.nfs4, identity)?;
        let state = state.with_records(&gateway.records(), Some(gateway.lock()))?;
        let state = state.of_gateway(gateway.taken()?, gateway.announcements());
        return Ok(Some(state));
    }
    let identity = ServerIdentity::alone(owner);
    let state = SharedClientState::new(reactors, &config.nfs4, identity)?;
    match directory {
        Some(directory) => state.with_records(directory, lock.clone()).map(Some),
        None => Ok(Some(state)),
    }
}

/// The domain of owners by name, unless they are numbers only.
fn owner_domain(nfs4: &config::Nfs4) -> Option<OwnerDomain> {
    let domain = &*nfs4.domain;
    (!domain.is_empty()).then(|| OwnerDomain::new(domain, SystemDirectory))
}

fn shared(plan: &WorkerPlan, context: &Context) -> Result<BuiltShared, BuildError> {
    let config = &plan.config;
    let bytes = usize::try_from(config.mempool.size.bytes()).unwrap_or(usize::MAX);
    let pool = Pool::new(&plan.registry, PoolConfig { bytes })?;
    let clock = Clock::reading(Instant::now);
    let room = ReactorStores::new(&pool, &clock, context.alarm(), plan.devices.clone());
    let stores = room.stores(&plan.exports, None);
    let exports = Exports::new(stores.map_err(BuildError::Engine)?)?.made_at(plan.made);
    room.serve(&exports);
    let key = HandleKey::of(&plan.secrets);
    let settings = terms::settings(config);
    let class = settings.receive_class();
    let flow = Flow::new(&plan.flow, plan.index, &pool, class, &clock);
    let (replay, clients) = (plan.replay.clone(), plan.clients.clone());
    let programs = ReactorPrograms::new(exports, key, replay, clients).with_flow(&flow);
    let mut journals = plan.journals.lock().unwrap_or_else(PoisonError::into_inner);
    let journal = journals.get_mut(plan.index).and_then(Option::take);
    drop(journals);
    let programs = match journal {
        Some(journal) => programs.with_journal(journal, &clock),
        None => programs,
    };
    let programs = match &plan.gss {
        Some(gss) => programs.with_gss(GssAuthenticator::new(&gss.contexts, gss.limits)),
        None => programs,
    };
    let programs = match &plan.offers {
        Some(offers) => programs.with_rpcbind(offers),
        None => programs,
    };
    let client_state = plan.client_state.as_ref();
    let client_state = client_state.map(|shared| {
        let key = HandleKey::of(&plan.secrets);
        let (state, home) = shared.of_reactor(plan.index, key, &clock, context.alarm());
        match &plan.gss {
            Some(gss) => (state.with_contexts(&gss.contexts), home),
            None => (state, home),
        }
    });
    let (programs, home) = match client_state {
        Some((state, home)) => (programs.with_nfs4(state), Some(home)),
        None => (programs, None),
    };
    let programs = match plan.owners.clone() {
        Some(owners) => programs.with_owner_domain(owners, &clock),
        None => programs,
    };
    let programs = match config.nfs3 {
        config::Switch::On => programs,
        config::Switch::Off => programs.without_nfs3(),
    };
    let shared = ResponderShared::new(programs.clone(), pool, clock, settings);
    shared.admit_by(move |address| programs.admits(address));
    let budget = Arc::clone(&plan.exposures);
    Ok((Rc::new(shared.with_flow(flow).within(budget)), room, home))
}

struct Fabrics {
    slots: Vec<FabricSlot>,
    counters: Vec<ProviderCounters>,
}

/// Providers for every fabric of the configuration; the first reactor listens.
fn fabrics(plan: &WorkerPlan, context: &Context) -> Result<(Fabrics, Vec<SocketAddr>), BuildError> {
    let mut fabrics = Fabrics {
        slots: Vec::new(),
        counters: Vec::new(),
    };
    let mut addresses = Vec::new();
    let provider_core = terms::ProviderCore {
        index: plan.index,
        core: context.core(),
    };
    for (index, fabric) in plan.config.fabric.iter().enumerate() {
        let id = index as u64;
        let limits = terms::limits(&plan.config, fabric);
        let made = terms::provider(
            FabricId(id),
            fabric,
            limits,
            provider_core,
            plan.devices.get(),
        );
        let (mut slot, counters) = made.map_err(|error| BuildError::Provider(id, error))?;
        if plan.index == 0 {
            let address = fabric.listen;
            let is_iwarp = fabric.provider == config::Provider::Iwarp;
            let socket = is_iwarp.then(|| plan.inherited.take(address)).flatten();
            let listens = match socket {
                Some(socket) => slot.listen_on(socket.into(), plan.reactors > 1),
                None => slot.listen(address, plan.reactors > 1),
            };
            listens.map_err(|error| BuildError::Listen {
                key: KeyPath::root().key("fabric").index(index).key("listen"),
                address,
                error: devices::listen_error(fabric, &error),
            })?;
            addresses.push(slot.address().unwrap_or(address));
        }
        fabrics.counters.push(counters);
        fabrics.slots.push(slot);
    }
    Ok((fabrics, addresses))
}

/// RPC over TCP; the first reactor listens.
fn tcp(
    plan: &WorkerPlan,
    context: &Context,
    pool: &Pool,
    flow: &Flow,
    programs: BuiltPrograms,
) -> Result<(TcpServer<BuiltPrograms>, Option<SocketAddr>), BuildError> {
    let config = TcpConfig {
        transfers: terms::settings(&plan.config).transfers,
        hand_over: plan.reactors > 1,
        ..TcpConfig::default()
    };
    let server = TcpServer::new(config, pool, programs, flow, Some(context.alarm()));
    let mut server = server.map_err(BuildError::Tcp)?;
    if plan.index > 0 {
        return Ok((server, None));
    }
    let address = plan.config.rpc.listen;
    let bound = match plan.inherited.take(address) {
        Some(socket) => server.listen_on(socket),
        None => server.listen(address),
    };
    let bound = bound.map_err(|error| BuildError::Listen {
        key: KeyPath::root().key("rpc").key("listen"),
        address,
        error: error.to_string(),
    })?;
    Ok((server, Some(bound)))
}

/// The port mapper, if it is embedded; the first reactor runs it.
fn rpcbind(
    plan: &WorkerPlan,
    context: &Context,
    pool: &Pool,
    offers: Offers,
) -> Result<Option<RpcbindServer>, BuildError> {
    if plan.index > 0 || plan.config.rpc.rpcbind != config::Rpcbind::Embedded {
        return Ok(None);
    }
    let address = SocketAddr::new(plan.config.rpc.listen.ip(), RPCBIND_PORT);
    let server = RpcbindServer::new(address, offers, pool, Some(context.alarm()));
    server
        .map(Some)
        .map_err(|error| BuildError::Rpcbind { address, error })
}
