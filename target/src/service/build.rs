//! Starting the service from its configuration.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millrace_admin::config::{self, Config};
use millrace_mempool::{ArenaError, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig, IwarpCounters};
use millrace_reactor::fabric::{Provider, QueuePairLimits};
use millrace_reactor::{
    Clock, Context, PollMode, ReactorConfig, ReactorHandle, SpawnError, Watchdog,
};
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_wire::rpcrdma::{Version, Versions};

use super::control::{ReactorParts, ServiceControl};
use super::worker::{Message, Worker};
use super::{Addresses, Service, secret};
use crate::dispatch;
use crate::exports::{ExportId, Exports, ExportsError, Flavor, Rules, Squash};
use crate::flow::rate::Rates;
use crate::flow::{ClientLimit, Clients as FlowClients, Flow, policy};
use crate::handle::HandleKey;
use crate::mount3::Clients;
use crate::nfs3::TRANSFER_MAX;
use crate::rdma::reverse::CALLS_MAX;
use crate::rdma::{self, Ccp, ExposureBudget, ExposureLimits, FabricSlot, Settings, Shared};
use crate::replay::{ReplayCache, ReplayLimits};
use crate::rpcbind::{Offers, Registration, Rendezvous, RpcbindServer};
use crate::tcp::{TcpConfig, TcpServer};

/// Send queue entries of a connection: a reply of the most segments that a header holds and the
/// most pieces that a file's range has, several times over.
const SEND_DEPTH: u32 = 1024;

/// RDMA Reads that a client may have open towards us: none is needed where no memory is exposed, but
/// a ready-to-receive indication may be one (RFC 6581 section 9.2).
const INBOUND_READS: u16 = 1;

/// The same where clients fetch replies (classic mode).
const CLASSIC_INBOUND_READS: u16 = 32;

/// RDMA Reads that we have open towards a client at once; less where the client serves fewer.
const OUTBOUND_READS: u16 = 128;

/// Where port mappers listen (RFC 1833 section 2.1).
const RPCBIND_PORT: u16 = 111;

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The memory of an export cannot be had.
    #[error("exports: {path}: {error}")]
    Store {
        /// The export.
        path: String,
        /// Why.
        error: ArenaError,
    },
    /// The exports contradict each other.
    #[error("exports: {0}")]
    Exports(ExportsError),
    /// The state directory cannot be used.
    #[error("state_directory: {0}")]
    State(io::Error),
    /// The system has no such core for this process.
    #[error("reactors.cores: {0}")]
    Core(SpawnError),
    /// A reactor cannot start; the text names the key.
    #[error("{0}")]
    Reactor(SpawnError),
    /// No core may be used.
    #[error("reactors.cores: this process may use no core at all")]
    NoCore,
    /// The watchdog cannot start.
    #[error("cannot start the watchdog: {0}")]
    Watchdog(io::Error),
}

/// Why a worker cannot be built on its core.
#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error("mempool: {0}")]
    Pool(#[from] ArenaError),
    #[error("{key}: cannot listen on {address}: {error}")]
    Listen {
        key: &'static str,
        address: SocketAddr,
        error: io::Error,
    },
    #[error(
        "rpc.rpcbind: cannot listen on {address}: {error} (where another port mapper runs, use \
         `register`)"
    )]
    Rpcbind {
        address: SocketAddr,
        error: io::Error,
    },
    #[error("fabric: {0}")]
    Provider(io::Error),
    #[error("rpc: {0}")]
    Tcp(io::Error),
    #[error("exports: {0}")]
    Exports(#[from] ExportsError),
}

/// What every worker is built from; each gets its own clone.
#[derive(Clone)]
struct Plan {
    config: Arc<Config>,
    registry: Registry,
    exports: Vec<(Rules, MemoryStore)>,
    key: [u8; 16],
    replay: ReplayCache,
    clients: Clients,
    flow: FlowClients,
    exposures: Arc<ExposureBudget>,
    /// What the port mapper tells over RDMA, once it is known.
    offers: Option<Arc<OnceLock<Offers>>>,
    /// How many reactors there are, and which of them this is.
    reactors: usize,
    index: usize,
}

/// What a worker leaves for other threads to read.
struct Built {
    parts: ReactorParts,
    addresses: Addresses,
}

/// Starts everything.
pub fn start(config: Arc<Config>) -> Result<Service, StartError> {
    let registry = Registry::new(match config.mempool.hugepages {
        config::Hugepages::Auto => HugepagePolicy::Auto,
        config::Hugepages::Required => HugepagePolicy::Required,
        config::Hugepages::Off => HugepagePolicy::Off,
    });
    let cores = config
        .reactors
        .cores
        .resolve(&millrace_reactor::allowed_cores());
    if cores.is_empty() {
        return Err(StartError::NoCore);
    }
    let plan = Plan {
        exports: stores(&config, &registry)?,
        key: secret::load(config.state_directory.as_deref()).map_err(StartError::State)?,
        replay: ReplayCache::new(ReplayLimits::default()),
        clients: Clients::default(),
        flow: FlowClients::new(cores.len()),
        exposures: Arc::default(),
        offers: (config.rpc.rpcbind == config::Rpcbind::Embedded).then(Arc::default),
        reactors: cores.len(),
        index: 0,
        registry,
        config: Arc::clone(&config),
    };
    let (clients, export_limits) = rates(&config);
    plan.flow
        .set_limits(&clients, export_limits, Instant::now());
    // A wrong table is found before any reactor starts.
    Exports::new(plan.exports.iter().cloned()).map_err(StartError::Exports)?;

    let mut reactors: Vec<ReactorHandle<Message>> = Vec::new();
    let mut parts = Vec::new();
    let mut addresses = Addresses::default();
    for (index, &core) in cores.iter().enumerate() {
        match spawn(&plan, index, core) {
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
        // The mailboxes are empty yet.
        let _ = reactor.send(Message::Peers(reactors.clone()));
    }
    let watchdog = Watchdog::spawn(&reactors).map_err(|error| {
        stop(&reactors);
        StartError::Watchdog(error)
    })?;
    let registration = (config.rpc.rpcbind == config::Rpcbind::Register).then(|| {
        let offers = Offers::of_service(addresses.rpc, &addresses.fabric);
        Registration::start(Rendezvous::of_this_host(), offers, cores.clone())
    });
    let registration = registration.transpose().unwrap_or_else(|error| {
        tracing::warn!(%error, "rpc.rpcbind: nothing could be registered");
        None
    });
    let handles = reactors.clone();
    let control = ServiceControl::new(
        config,
        handles,
        parts,
        plan.exports,
        plan.flow,
        plan.replay,
        watchdog,
    );
    Ok(Service {
        reactors,
        addresses,
        control: Arc::new(control),
        registration,
    })
}

/// Ends reactors that have served nobody yet.
fn stop(reactors: &[ReactorHandle<Message>]) {
    for reactor in reactors {
        let _ = reactor.send(Message::Drain(Instant::now()));
    }
    for reactor in reactors {
        let _ = reactor.join();
    }
}

fn stores(config: &Config, registry: &Registry) -> Result<Vec<(Rules, MemoryStore)>, StartError> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let mut stores = Vec::new();
    for export in &config.exports {
        // Validation lets no other kind through.
        let config::Store::Memory { size } = &export.store else {
            continue;
        };
        let rules = rules(export);
        let memory = MemoryConfig {
            size_bytes: size.bytes(),
            inodes: None,
            file_system: ExportId::of(&rules.path).0,
            epoch,
            // Usable by everybody from the start, also where clients' root is squashed; a client
            // that is root may tighten it.
            root_mode: 0o1777,
            root_uid: 0,
            root_gid: 0,
        };
        let store = MemoryStore::new(registry, memory).map_err(|error| StartError::Store {
            path: rules.path.clone(),
            error,
        })?;
        stores.push((rules, store));
    }
    Ok(stores)
}

/// The limits of clients and of exports.
fn rates(config: &Config) -> (Vec<ClientLimit>, Vec<(ExportId, Rates)>) {
    let clients = config.limits.iter().map(|entry| ClientLimit {
        networks: entry.clients.clone(),
        rates: Rates {
            iops: entry.iops,
            bandwidth: entry.bandwidth.map(|bandwidth| bandwidth.0),
        },
    });
    let exports = config.exports.iter().filter_map(|export| {
        let limits = export.limits.as_ref()?;
        let rates = Rates {
            iops: limits.iops,
            bandwidth: limits.bandwidth.map(|bandwidth| bandwidth.0),
        };
        Some((ExportId::of(&export.path), rates))
    });
    (clients.collect(), exports.collect())
}

fn rules(export: &config::Export) -> Rules {
    Rules {
        path: export.path.clone(),
        clients: export.clients.clone(),
        read_only: export.access == config::Access::Ro,
        flavor: match export.flavor {
            config::ExportFlavor::None => Flavor::None,
            config::ExportFlavor::Sys => Flavor::Sys,
            config::ExportFlavor::Gss => Flavor::Gss,
        },
        squash: match export.squash {
            config::Squash::None => Squash::None,
            config::Squash::Root => Squash::Root,
            config::Squash::All => Squash::All,
        },
        anonymous_uid: export.anon_uid,
        anonymous_gid: export.anon_gid,
    }
}

fn spawn(
    plan: &Plan,
    index: usize,
    core: usize,
) -> Result<(ReactorHandle<Message>, Built), SpawnError> {
    let reactors = &plan.config.reactors;
    let config = ReactorConfig {
        core: Some(core),
        name: format!("reactor-{core}"),
        poll: match reactors.poll {
            config::PollMode::Busy => PollMode::Busy,
            config::PollMode::Adaptive => PollMode::Adaptive {
                idle_after: reactors.idle_after,
            },
        },
    };
    let (report, built) = crossbeam_channel::bounded(1);
    let plan = Plan {
        index,
        ..plan.clone()
    };
    let handle = millrace_reactor::spawn(config, move |context| {
        let shared = shared(&plan)?;
        let (fabrics, fabric) = fabrics(&plan)?;
        let programs = shared.programs.clone();
        let (tcp, rpc) = tcp(&plan, context, &shared.pool, programs)?;
        let offers = Offers::of_service(rpc, &fabric);
        if let (0, Some(everywhere)) = (plan.index, &plan.offers) {
            // The first reactor, which listens, is built before the others.
            let _ = everywhere.set(offers.clone());
        }
        let rpcbind = rpcbind(&plan, context, &shared.pool, offers)?;
        let parts = ReactorParts {
            pool: shared.pool.gauges(),
            page_size: shared.pool.page_size(),
            programs: shared.programs.counters(),
            exports: shared.programs.export_counters(),
            rdma: Arc::clone(&shared.counters),
            flow: Arc::clone(shared.flow.counters()),
            tcp: tcp.counters(),
            providers: fabrics.counters,
        };
        // The one who started this thread waits for it.
        let _ = report.send(Built {
            parts,
            addresses: Addresses { fabric, rpc },
        });
        Ok(Worker::new(
            context,
            shared,
            fabrics.slots,
            tcp,
            rpcbind,
            rdma::work,
        ))
    })?;
    let built = built.recv().map_err(|_| SpawnError::Panicked)?;
    Ok((handle, built))
}

type Programs = dispatch::Service<MemoryStore>;

fn shared(plan: &Plan) -> Result<Rc<Shared<Programs>>, BuildError> {
    let config = &plan.config;
    let bytes = usize::try_from(config.mempool.size.bytes()).unwrap_or(usize::MAX);
    let pool = Pool::new(&plan.registry, PoolConfig { bytes })?;
    let exports = Exports::new(plan.exports.iter().cloned())?;
    let key = HandleKey::new(&plan.key);
    let settings = settings(config);
    let clock = Clock::new(Instant::now());
    let class = settings.receive_class();
    let flow = Flow::new(&plan.flow, plan.index, &pool, class, &clock);
    let (replay, clients) = (plan.replay.clone(), plan.clients.clone());
    let programs = dispatch::Service::new(exports, key, replay, clients).with_flow(&flow);
    let programs = match &plan.offers {
        Some(offers) => programs.with_rpcbind(offers),
        None => programs,
    };
    let shared = Shared::new(programs, pool, clock, settings);
    let budget = Arc::clone(&plan.exposures);
    Ok(Rc::new(shared.with_flow(flow).within(budget)))
}

/// What the configuration says of RPC-over-RDMA.
fn settings(config: &Config) -> Settings {
    let rpcrdma = &config.rpcrdma;
    let inline = usize::try_from(rpcrdma.inline.bytes()).unwrap_or(usize::MAX);
    let padding = rpcrdma.padding.is_on();
    let mut settings = Settings {
        exposures: exposures(&config.flow),
        ccp: rpcrdma.ccp.is_on().then_some(Ccp {
            program: rpcrdma.ccp_program,
            anonymous: rpcrdma.ccp_flavor == config::CcpFlavor::None,
        }),
        ..Settings::new(inline, config.flow.credits, TRANSFER_MAX, padding)
    };
    settings.rules.same_xid = rpcrdma.same_xid == config::SameXid::Strict;
    let numbers = rpcrdma.versions.iter();
    let versions = numbers.filter_map(|&number| Version::from_number(number));
    let (low, high) = (versions.clone().min(), versions.max());
    match (low, high) {
        (Some(low), Some(high)) => settings.serving(Versions::new(low, high)),
        _ => settings,
    }
}

/// What the configuration says of replies with read chunks.
fn exposures(flow: &config::Flow) -> ExposureLimits {
    ExposureLimits {
        window: flow.done_window,
        close: flow.on_window_end == config::WindowEnd::Close,
        connection: flow.max_exposures,
        client: flow.max_client_exposures,
        total: flow.max_total_exposures,
        bytes: flow.max_exposed_bytes.bytes(),
    }
}

/// The limits of a listener's connections.
fn limits(config: &Config, fabric: &config::Fabric) -> QueuePairLimits {
    let receive_size = u32::try_from(settings(config).receive_size()).unwrap_or(u32::MAX);
    let classic = fabric.is_classic(config.rpcrdma.read_chunk_replies);
    let replies = if classic {
        config.flow.max_exposures
    } else {
        0
    };
    // Receives beyond what credits ask for.
    let beyond = rdma::dones_most(replies).saturating_add(CALLS_MAX);
    QueuePairLimits {
        send_depth: SEND_DEPTH,
        receive_depth: policy::receives_most(config.flow.credits, beyond),
        ird: if classic {
            CLASSIC_INBOUND_READS
        } else {
            INBOUND_READS
        },
        ord: OUTBOUND_READS,
        exposures: rdma::keys_most(replies),
        receive_size,
    }
}

struct Fabrics {
    slots: Vec<FabricSlot>,
    counters: Vec<(&'static str, Arc<IwarpCounters>)>,
}

/// Providers for every fabric of the configuration; the first reactor listens.
fn fabrics(plan: &Plan) -> Result<(Fabrics, Vec<SocketAddr>), BuildError> {
    let mut fabrics = Fabrics {
        slots: Vec::new(),
        counters: Vec::new(),
    };
    let mut addresses = Vec::new();
    for fabric in &plan.config.fabric {
        let limits = limits(&plan.config, fabric);
        let crc = match fabric.crc.unwrap_or(config::CrcPolicy::Auto) {
            config::CrcPolicy::Auto => CrcPolicy::Auto,
            config::CrcPolicy::Required => CrcPolicy::Required,
            config::CrcPolicy::Off => CrcPolicy::Off,
        };
        let config = IwarpConfig {
            crc,
            ..IwarpConfig::default()
        };
        let mut provider = Iwarp::new(config).map_err(BuildError::Provider)?;
        let mut listener = None;
        if plan.index == 0 {
            let address = fabric.listen;
            let id = provider
                .listen(address, limits, plan.reactors > 1)
                .map_err(|error| BuildError::Listen {
                    key: "fabric",
                    address,
                    error,
                })?;
            addresses.push(provider.listener_address(id).unwrap_or(address));
            listener = Some(id);
        }
        fabrics
            .counters
            .push((provider.name(), provider.counters()));
        let boxed: Box<dyn Provider> = Box::new(provider);
        fabrics.slots.push(FabricSlot::new(
            Rc::new(RefCell::new(boxed)),
            limits,
            listener,
        ));
    }
    Ok((fabrics, addresses))
}

/// RPC over TCP; the first reactor listens.
fn tcp(
    plan: &Plan,
    context: &Context,
    pool: &Pool,
    programs: Programs,
) -> Result<(TcpServer<Programs>, Option<SocketAddr>), BuildError> {
    let config = TcpConfig {
        hand_over: plan.reactors > 1,
        ..TcpConfig::default()
    };
    let mut server =
        TcpServer::new(config, pool, programs, Some(context.alarm())).map_err(BuildError::Tcp)?;
    server = server.with_clients(&plan.flow, plan.index);
    if plan.index > 0 {
        return Ok((server, None));
    }
    let address = plan.config.rpc.listen;
    let bound = server.listen(address).map_err(|error| BuildError::Listen {
        key: "rpc.listen",
        address,
        error,
    })?;
    Ok((server, Some(bound)))
}

/// The port mapper, where it is to be this process; the first reactor runs it.
fn rpcbind(
    plan: &Plan,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rr1_done_01_only_listeners_in_classic_mode_can_expose() {
        let mut config = Config::default();
        let plain = limits(&config, &config.fabric[0]);
        assert_eq!((plain.exposures, plain.ird), (0, INBOUND_READS));
        config.fabric[0].read_chunk_replies = Some(config::Switch::On);
        let classic = limits(&config, &config.fabric[0]);
        // Room for every reply's keys, and for every RDMA_DONE that may come for them.
        assert_eq!(classic.exposures, 16 * 8);
        assert_eq!(classic.ird, CLASSIC_INBOUND_READS);
        assert_eq!(classic.receive_depth, plain.receive_depth + 2 * 16);
        assert_eq!(
            settings(&config).exposures,
            ExposureLimits::default(),
            "the defaults of the configuration"
        );
    }
}
