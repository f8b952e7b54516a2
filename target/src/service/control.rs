//! The management plane's view of the service.

use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use millrace_admin::config::{Config, ConfigProblem, KeyPath, live_part};
use millrace_admin::control::{
    Applied, ApplyError, CaptureStream, Control, ControlError, GatewayControl, GssControl,
    Nfs4Control,
};
use millrace_admin::figures::{ItemSamples, ServiceTotals};
use millrace_admin::status::{
    Ban, CaptureBounds, ClientStatus, ConnectionStatus, DrainOrder, DrainStatus, ExportStatus,
    Health, ListenerStatus, OperationStatus, PoolStatus, ReactorStatus, Readiness, StalledReactor,
};
use millrace_mempool::{Class, PoolGauges, Registry};
use millrace_primitives::Counter;
use millrace_reactor::{ReactorHandle, Watchdog};
use millrace_store::any::AnyVolume;
use millrace_store::posix::engine::Backend;
use millrace_store::posix::identity::privileged;

use super::change::{Changing, InForce, LogFilter, LogHook, Reaper, listener_status};
use super::devices::{self, OpenedDevices};
use super::gateways::GatewayMember;
use super::gss::ShownContexts;
use super::memory;
use super::metrics::client_state::StateGauges;
use super::metrics::clients::ClientSeries;
use super::phase::{CurrentPhase, ServicePhase};
use super::preflight;
use super::providers::Providers;
use super::reports::Latest;
use super::spaces::Spaces;
use super::status::ReactorReport;
use super::worker::ReactorMessage;
use super::{clusters, folders, hardening};
use crate::counters::ProgramsCounters;
use crate::export_counters::ExportsCounters;
use crate::flow::{ClassesHistograms, ClientTable, FlowCounters};
use crate::nfs3::Nfs3Counters;
use crate::nfs4::Nfs4Counters;
use crate::rdma::ConnectionCounters;
use crate::replay::ReplayCache;
use crate::tcp::TcpCounters;

/// The timeout of a reactor's answer.
pub(super) const REACTOR_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// One reactor's data for other threads.
pub struct ReactorParts {
    /// Its buffers.
    pub pool: Arc<PoolGauges>,
    /// The page size of that memory, in bytes.
    pub page_size: usize,
    /// Its programs.
    pub programs: Arc<ProgramsCounters>,
    /// Counters of NFS version 3 only.
    pub nfs3: Arc<Nfs3Counters>,
    /// Counters of NFS version 4 only.
    pub nfs4: Arc<Nfs4Counters>,
    /// Its programs' counters of each export.
    pub exports: ExportsCounters,
    /// Uses of file handles that were not made under the present secret.
    pub other_handles: Arc<Counter>,
    /// Its RPC-over-RDMA connections.
    pub rdma: Arc<ConnectionCounters>,
    /// Its flow control.
    pub flow: Arc<FlowCounters>,
    /// Latencies of its clients' calls, by class.
    pub classes: ClassesHistograms,
    /// Its TCP connections.
    pub tcp: Arc<TcpCounters>,
    /// Its providers.
    pub providers: Providers,
    /// The backend of folders there, once there were any.
    pub backend: Arc<OnceLock<Backend>>,
    /// The state of NFS version 4's clients, if that reactor keeps it.
    pub client_state: Option<Arc<StateGauges>>,
}

/// The service as the management plane sees it.
pub struct ServiceControl {
    pub(super) in_force: Mutex<Arc<InForce>>,
    pub(super) changing: Mutex<Changing>,
    pub(super) phase: CurrentPhase,
    /// The cores that the process may use.
    cores: Vec<usize>,
    pub(super) reactors: Vec<ReactorHandle<ReactorMessage>>,
    pub(super) parts: Vec<ReactorParts>,
    pub(super) clients: ClientTable,
    pub(super) replay: ReplayCache,
    pub(super) client_series: ClientSeries,
    reports: Latest<Vec<ReactorReport>>,
    pub(super) registry: Registry,
    pub(super) devices: OpenedDevices,
    /// The contexts of Kerberos, if it is served.
    pub(super) gss: Option<ShownContexts>,
    pub(super) reaper: Reaper,
    pub(super) spaces: Spaces,
    pub(super) log: LogFilter,
    /// Captures in progress.
    pub(super) captures: Arc<AtomicUsize>,
    watchdog: Watchdog,
    /// If this server is one of several.
    pub(super) gateway: Option<GatewayMember>,
}

impl ServiceControl {
    #[allow(clippy::too_many_arguments)] // Each a part of its own, put together once.
    pub(super) fn new(
        in_force: InForce,
        changing: Changing,
        cores: Vec<usize>,
        reactors: Vec<ReactorHandle<ReactorMessage>>,
        parts: Vec<ReactorParts>,
        clients: ClientTable,
        replay: ReplayCache,
        registry: Registry,
        devices: OpenedDevices,
        gss: Option<ShownContexts>,
        watchdog: Watchdog,
        gateway: Option<GatewayMember>,
    ) -> Self {
        Self {
            in_force: Mutex::new(Arc::new(in_force)),
            changing: Mutex::new(changing),
            phase: CurrentPhase::default(),
            cores,
            reactors,
            parts,
            clients,
            replay,
            client_series: ClientSeries::default(),
            reports: Latest::default(),
            registry,
            devices,
            gss,
            reaper: Reaper::default(),
            spaces: Spaces::default(),
            log: LogFilter::default(),
            captures: Arc::default(),
            watchdog,
            gateway,
        }
    }

    /// Sets the function for new log filters. Only the first call has an effect.
    pub fn on_log_filter(&self, hook: LogHook) {
        self.log.set_hook(hook);
    }

    /// Ends everything, clients at the deadline: no change is made from here on.
    pub(super) fn stop(&self, deadline: Instant) {
        // It may be stopping already.
        let _ = self.phase.set(ServicePhase::Stopping(deadline));
        self.lock_changes().registration = None;
    }

    /// The volumes that are served and have to be closed.
    pub(super) fn volumes(&self) -> Vec<AnyVolume> {
        let in_force = self.in_force();
        let volumes = in_force.exports.iter();
        volumes
            .map(|(_, volume)| volume)
            .filter(|volume| volume.is_kept_elsewhere())
            .cloned()
            .collect()
    }

    /// What all exports serve from, with their paths.
    pub(super) fn export_volumes(&self) -> Vec<(String, AnyVolume)> {
        let in_force = self.in_force();
        let exports = in_force.exports.iter();
        let exports = exports.map(|(rules, volume)| (rules.path.clone(), volume.clone()));
        exports.collect()
    }

    /// The reports of all reactors, in order; recent ones are reused.
    pub(super) fn reports(&self) -> Result<Arc<Vec<ReactorReport>>, ControlError> {
        self.reports.get(Instant::now, || self.ask())
    }

    fn ask(&self) -> Result<Vec<ReactorReport>, ControlError> {
        self.ask_all(ReactorMessage::Status)
    }

    /// Queries all reactors at once, then waits for each. `question` gets the channel for the
    /// answer.
    pub(super) fn ask_all<T>(
        &self,
        question: impl Fn(Sender<T>) -> ReactorMessage,
    ) -> Result<Vec<T>, ControlError> {
        let asked: Vec<Option<Receiver<T>>> = self
            .reactors
            .iter()
            .map(|reactor| {
                let (answer, answered) = crossbeam_channel::bounded(1);
                reactor.send(question(answer)).ok().map(|()| answered)
            })
            .collect();
        let answers = asked
            .into_iter()
            .zip(&self.reactors)
            .map(|(asked, reactor)| {
                asked
                    .and_then(|answered| answered.recv_timeout(REACTOR_ANSWER_TIMEOUT).ok())
                    .ok_or_else(|| {
                        ControlError::Unavailable(format!("{} does not answer", reactor.name()))
                    })
            });
        answers.collect()
    }

    pub(super) fn stalled(&self) -> Vec<StalledReactor> {
        let stalls = self.watchdog.stalls();
        let stalled = stalls.into_iter().map(|stall| StalledReactor {
            core: self
                .reactors
                .iter()
                .find(|reactor| reactor.name() == stall.reactor)
                .and_then(ReactorHandle::core),
            name: stall.reactor,
            activity: stall.activity.to_owned(),
            seconds: stall.since.as_secs_f64(),
        });
        stalled.collect()
    }

    /// Why the first listeners on devices cannot be added while this process runs, if so.
    pub(super) fn late_devices(&self, next: &Config) -> Option<ConfigProblem> {
        let is_late = devices::are_asked_for(next) && self.devices.get().is_none();
        let mut backends = self.parts.iter().map(|parts| parts.backend.get());
        let serves_folders = backends.any(|backend| backend.is_some());
        match is_late && serves_folders && privileged() {
            true => devices::unusable(next, devices::LATE),
            false => None,
        }
    }
}

impl Control for ServiceControl {
    fn readiness(&self) -> Readiness {
        if self.phase.get() != ServicePhase::Serving {
            Readiness::Draining
        } else if self.in_force().listeners.is_empty() {
            Readiness::NoListener
        } else {
            Readiness::Ready
        }
    }

    fn health(&self) -> Health {
        Health {
            stalled: self.stalled(),
        }
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.in_force().config)
    }

    fn check(&self, next: &Config) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let running = self.config();
        if next.reactors.cores != running.reactors.cores {
            problems.extend(preflight::cores(&next.reactors.cores, &self.cores));
        }
        let reactors = self.reactors.len();
        let live = live_part(&running, next);
        problems.extend(memory::check_growth(&running, &live, reactors).err());
        problems.extend(devices::unserved(next));
        let new = folders::new_of(&running, next);
        problems.extend(folders::unserved(&new));
        problems.extend(clusters::unserved(&new));
        problems.extend(folders::unentitled(next));
        problems.extend(hardening::outside(next));
        problems.extend(self.late_devices(next));
        // Devices already open may be added and removed.
        if devices::BUILT_IN && devices::are_asked_for(next) && self.devices.get().is_none() {
            let looked = devices::look().err();
            problems.extend(looked.and_then(|why| devices::unusable(next, &why)));
        }
        if let Err(message) = LogFilter::parse(&next.log) {
            problems.push(ConfigProblem::new(KeyPath::root().key("log"), message));
        }
        problems
    }

    fn apply(&self, next: Arc<Config>) -> Result<Applied, ApplyError> {
        if let Some(contexts) = &self.gss {
            contexts.0.reload();
        }
        self.change(&next)
    }

    fn clients(&self) -> Result<Vec<ClientStatus>, ControlError> {
        self.clients_now()
    }

    fn evict(&self, connection: u64) -> Result<bool, ControlError> {
        let closed = self.ask_all(|answer| ReactorMessage::Evict(connection, answer))?;
        Ok(closed.contains(&true))
    }

    fn ban(&self, address: IpAddr, time: Duration) -> Result<(), ControlError> {
        let now = Instant::now();
        let banned = self.clients.bans().ban(address, now + time, now);
        banned.map_err(|error| ControlError::Conflict(error.to_string()))
    }

    fn lift_ban(&self, address: IpAddr) -> bool {
        self.clients.bans().lift(address, Instant::now())
    }

    fn bans(&self) -> Vec<Ban> {
        let bans = self.clients.bans().list(Instant::now()).into_iter();
        bans.map(|(address, left)| Ban {
            address: address.to_string(),
            seconds: left.as_secs() + u64::from(left.subsec_nanos() > 0),
        })
        .collect()
    }

    fn listeners(&self) -> Result<Vec<ListenerStatus>, ControlError> {
        let in_force = self.in_force();
        let accepting = self.readiness() != Readiness::Draining;
        let InForce {
            listeners,
            former,
            rpc,
            ..
        } = &*in_force;
        Ok(listener_status(
            listeners,
            former,
            *rpc,
            accepting,
            &self.parts,
        ))
    }

    fn operations(&self) -> Vec<OperationStatus> {
        self.operations_now()
    }

    fn totals(&self) -> ServiceTotals {
        self.totals_now()
    }

    fn item_samples(&self) -> ItemSamples {
        self.item_samples_now()
    }

    fn drain(&self, order: DrainOrder) -> Result<DrainStatus, ControlError> {
        self.begin_drain(order)
    }

    fn drain_status(&self) -> Result<DrainStatus, ControlError> {
        self.drain_progress()
    }

    fn cancel_drain(&self) -> Result<DrainStatus, ControlError> {
        self.end_drain()
    }

    fn capture(
        &self,
        connection: u64,
        bounds: &CaptureBounds,
    ) -> Result<Option<Box<dyn CaptureStream>>, ControlError> {
        self.begin_capture(connection, bounds)
    }

    fn nfs4(&self) -> Option<&dyn Nfs4Control> {
        let is_served = self.parts.iter().any(|one| one.client_state.is_some());
        is_served.then_some(self)
    }

    fn gateways(&self) -> Option<&dyn GatewayControl> {
        self.gateway.is_some().then_some(self)
    }

    fn gss(&self) -> Option<&dyn GssControl> {
        self.gss.as_ref().map(|shown| shown as &dyn GssControl)
    }

    fn connections(&self) -> Result<Vec<ConnectionStatus>, ControlError> {
        self.connections_now()
    }

    fn reactors(&self) -> Result<Vec<ReactorStatus>, ControlError> {
        let stalled = self.stalled();
        let reports = self.reports()?;
        let reports = reports.iter().zip(&self.reactors);
        Ok(reports
            .map(|(report, reactor)| {
                let counters = reactor.counters();
                let seconds = |nanoseconds| Duration::from_nanos(nanoseconds).as_secs_f64();
                ReactorStatus {
                    name: reactor.name().to_owned(),
                    core: reactor.core(),
                    connections: report.connections.len() as u64,
                    tasks: report.tasks as u64,
                    requests_in_flight: report.requests_in_flight(),
                    turns: counters.loops(),
                    busy_seconds: seconds(counters.busy_ns()),
                    idle_seconds: seconds(counters.idle_ns() + counters.sleep_ns()),
                    longest_turn_seconds: seconds(counters.longest_loop_ns()),
                    last_turn_age_seconds: stalled
                        .iter()
                        .find(|stall| stall.name == reactor.name())
                        .map_or(0.0, |stall| stall.seconds),
                    messages: counters.messages(),
                    sleeps: counters.sleeps(),
                    stalled: stalled.iter().any(|stall| stall.name == reactor.name()),
                }
            })
            .collect())
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, ControlError> {
        let reactors = self.reactors.iter().zip(&self.parts);
        let pools = reactors.flat_map(|(reactor, parts)| {
            Class::ALL.map(|class| {
                let gauges = parts.pool.class(class);
                PoolStatus {
                    core: reactor.core(),
                    class: class.name().to_owned(),
                    buffer_bytes: class.size() as u64,
                    buffers: gauges.capacity(),
                    in_use: gauges.in_use(),
                    high_water: gauges.high_water(),
                    waiters: gauges.waiters(),
                    waits: gauges.waits_total(),
                    page_bytes: parts.page_size as u64,
                }
            })
        });
        Ok(pools.collect())
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, ControlError> {
        Ok(self.exports_now())
    }
}
