//! A service without reactors, whose state the tests set.
#![allow(dead_code, reason = "every test uses another part of it")]

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace_admin::api::{
    AdminHandle, AdminSocket, AdminState, ApiLimits, Certificates, serve_with_socket,
};
use millrace_admin::change::ConfigStore;
use millrace_admin::config::{Config, ConfigProblem};
use millrace_admin::control::{
    Applied, ApplyError, CaptureStream, Control, ControlError, Nfs4Control,
};
use millrace_admin::figures::{ItemSamples, ServiceTotals};
use millrace_admin::metrics::Metrics;
use millrace_admin::status::*;

pub mod bench;
pub mod ctl;
pub mod http;
pub mod nfs4;
pub mod raw;
pub mod tls;

/// What it says when it is asked.
pub struct Service {
    pub readiness: Mutex<Readiness>,
    pub stalled: Mutex<Vec<StalledReactor>>,
    /// In force.
    pub config: Mutex<Arc<Config>>,
    /// What the next change fails with.
    pub refuses: Mutex<Option<ApplyError>>,
    /// Taken by the next change, which says through it that it has begun, and waits for a word.
    pub gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    /// What changes leave as it was.
    pub pending: Mutex<Vec<String>>,
    /// How often something was applied.
    pub applied: AtomicU64,
    pub connections: Mutex<Vec<ConnectionStatus>>,
    /// The addresses of its clients.
    pub addresses: Mutex<Vec<String>>,
    pub bans: Mutex<Vec<Ban>>,
    pub drain: Mutex<DrainPhase>,
    pub nfs4: nfs4::StateOfClients,
    /// None answer, if this is none.
    pub pools: Mutex<Option<Vec<PoolStatus>>>,
    /// Requests that each export has answered.
    pub export_requests: AtomicU64,
    /// Used bytes and files of `/scratch`.
    pub scratch: Mutex<(Option<u64>, Option<u64>)>,
}

impl Service {
    /// One that works by this configuration.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Self {
            readiness: Mutex::new(Readiness::Ready),
            stalled: Mutex::default(),
            config: Mutex::new(Arc::new(config)),
            refuses: Mutex::default(),
            gate: Mutex::default(),
            pending: Mutex::default(),
            applied: AtomicU64::new(0),
            connections: Mutex::new(vec![connection()]),
            addresses: Mutex::new(vec!["192.0.2.1".to_owned()]),
            bans: Mutex::default(),
            drain: Mutex::new(DrainPhase::Serving),
            nfs4: nfs4::StateOfClients::default(),
            pools: Mutex::default(),
            export_requests: AtomicU64::new(99),
            scratch: Mutex::new((Some(1536), None)),
        })
    }

    /// Serves its API on a free port.
    pub fn serve(self: &Arc<Self>) -> AdminHandle {
        self.serve_file(None)
    }

    /// The same with a configuration file.
    pub fn serve_file(self: &Arc<Self>, file: Option<PathBuf>) -> AdminHandle {
        self.serve_within(file, ApiLimits::default())
    }

    /// The same with other limits.
    pub fn serve_within(self: &Arc<Self>, file: Option<PathBuf>, limits: ApiLimits) -> AdminHandle {
        self.serve_at(None, file, limits)
    }

    /// The same, also on a Unix socket.
    pub fn serve_at(
        self: &Arc<Self>,
        socket: Option<&Path>,
        file: Option<PathBuf>,
        limits: ApiLimits,
    ) -> AdminHandle {
        let socket = socket.map(|path| AdminSocket::bind(path).unwrap());
        self.serve_state(socket, file, |state| state.with_limits(limits))
    }

    /// The same by HTTPS, with the files of the configuration.
    pub fn serve_tls(self: &Arc<Self>) -> AdminHandle {
        let files = self.config().admin.tls.clone().unwrap();
        let certificates = Arc::new(Certificates::load(&files).unwrap());
        self.serve_state(None, None, |state| state.with_certificates(certificates))
    }

    fn serve_state(
        self: &Arc<Self>,
        socket: Option<AdminSocket>,
        file: Option<PathBuf>,
        change: impl FnOnce(AdminState) -> AdminState,
    ) -> AdminHandle {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config_store = Arc::new(ConfigStore::new(Arc::clone(self) as _, self.config(), file));
        let metrics = Metrics::new();
        metrics.register(Arc::clone(&config_store) as _);
        let state = AdminState::new(Arc::clone(self) as _, metrics, config_store);
        serve_with_socket(listener, socket, change(state)).unwrap()
    }
}

pub fn connection() -> ConnectionStatus {
    ConnectionStatus {
        id: 7,
        peer: "192.0.2.1:800".to_owned(),
        provider: "iwarp".to_owned(),
        device: None,
        core: Some(3),
        age_seconds: 90.0,
        rpcrdma_version: Some(2),
        inline_send_bytes: Some(4096),
        inline_receive_bytes: Some(4096),
        credits_granted: Some(96),
        credits_requested: Some(128),
        requests_in_flight: 2,
        requests: 99,
        bytes_written: 3 << 30,
        bytes_read: 0,
        exposures: 13,
        latency: Some(LATENCY),
    }
}

const LATENCY: Latency = Latency {
    p50_seconds: 16e-6,
    p90_seconds: 32e-6,
    p99_seconds: 64e-6,
    p999_seconds: 1e-3,
};

impl Control for Service {
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap()
    }

    fn health(&self) -> Health {
        Health {
            stalled: self.stalled.lock().unwrap().clone(),
        }
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap())
    }

    fn check(&self, next: &Config) -> Vec<ConfigProblem> {
        let path = millrace_admin::config::KeyPath::root().key("log");
        let bad = next.log.contains("no such level");
        bad.then(|| ConfigProblem::new(path, "no filter"))
            .into_iter()
            .collect()
    }

    fn apply(&self, next: Arc<Config>) -> Result<Applied, ApplyError> {
        if let Some(error) = self.refuses.lock().unwrap().take() {
            return Err(error);
        }
        let gate = self.gate.lock().unwrap().take();
        if let Some((begun, go_on)) = gate {
            begun.send(()).unwrap();
            // Ends with a word or when the other side is gone.
            let _ = go_on.recv();
        }
        *self.config.lock().unwrap() = next;
        self.applied.fetch_add(1, Ordering::Relaxed);
        Ok(Applied {
            reactors: vec![ReactorOutcome {
                name: "reactor-0".to_owned(),
                core: Some(0),
                applied: true,
                error: None,
                seconds: 0.000_1,
            }],
            pending: self.pending.lock().unwrap().clone(),
        })
    }

    fn clients(&self) -> Result<Vec<ClientStatus>, ControlError> {
        let connections = self.connections.lock().unwrap().len() as u64;
        let client = |address: &String| ClientStatus {
            address: address.clone(),
            connections,
            credits_granted: 96,
            credits_requested: 128,
            credits_used: 2,
            waiting: 0,
            exposures: 13,
            memory_bytes: 5 << 20,
            requests: 99,
            bytes_read: 0,
            bytes_written: 3 << 30,
            throttled_seconds: 0.5,
            limits: RateLimits::default(),
        };
        Ok(self.addresses.lock().unwrap().iter().map(client).collect())
    }

    fn connections(&self) -> Result<Vec<ConnectionStatus>, ControlError> {
        Ok(self.connections.lock().unwrap().clone())
    }

    fn ban(&self, address: IpAddr, time: Duration) -> Result<(), ControlError> {
        let mut bans = self.bans.lock().unwrap();
        let address = address.to_string();
        bans.retain(|one| one.address != address);
        let seconds = time.as_secs();
        bans.push(Ban { address, seconds });
        Ok(())
    }

    fn lift_ban(&self, address: IpAddr) -> bool {
        let mut bans = self.bans.lock().unwrap();
        let before = bans.len();
        bans.retain(|one| one.address != address.to_string());
        bans.len() < before
    }

    fn bans(&self) -> Vec<Ban> {
        self.bans.lock().unwrap().clone()
    }

    fn evict(&self, connection: u64) -> Result<bool, ControlError> {
        let mut connections = self.connections.lock().unwrap();
        let before = connections.len();
        connections.retain(|one| one.id != connection);
        Ok(connections.len() < before)
    }

    fn reactors(&self) -> Result<Vec<ReactorStatus>, ControlError> {
        Ok(vec![ReactorStatus {
            name: "reactor-0".to_owned(),
            core: Some(0),
            connections: 1,
            tasks: 2,
            requests_in_flight: 2,
            turns: 12345,
            busy_seconds: 1.0,
            idle_seconds: 3.0,
            longest_turn_seconds: 0.000_25,
            last_turn_age_seconds: 0.0,
            messages: 4,
            sleeps: 5,
            stalled: false,
        }])
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, ControlError> {
        let pools = self.pools.lock().unwrap().clone();
        let silent = "reactor-0 did not\x1b[2J answer".to_owned();
        pools.ok_or(ControlError::Unavailable(silent))
    }

    fn exports(&self) -> Result<Vec<ExportStatus>, ControlError> {
        let config = self.config();
        let configured = config.exports.iter().find(|one| one.path == "/scratch");
        let clients = configured.map(|one| one.clients.iter().map(ToString::to_string).collect());
        let usual = || vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
        let (used_bytes, files) = *self.scratch.lock().unwrap();
        let scratch = ExportStatus {
            path: "/scratch".to_owned(),
            store: "memory".to_owned(),
            access: "rw".to_owned(),
            squash: "none".to_owned(),
            clients: clients.unwrap_or_else(usual),
            capacity_bytes: Some(1 << 30),
            used_bytes,
            files,
            capacity_files: Some(262_144),
            requests: self.export_requests.load(Ordering::Relaxed),
            bytes_read: 0,
            bytes_written: 3 << 30,
            folder: None,
            cluster: None,
            limits: RateLimits::default(),
        };
        let folder = FolderStatus {
            root: "/srv".to_owned(),
            acts_as: "server".to_owned(),
            ..FolderStatus::default()
        };
        let data = ExportStatus {
            path: "/data".to_owned(),
            store: "posix".to_owned(),
            folder: Some(folder),
            ..scratch.clone()
        };
        Ok(vec![scratch, data])
    }

    fn listeners(&self) -> Result<Vec<ListenerStatus>, ControlError> {
        let config = self.config();
        let fabrics = config.fabric.iter().enumerate();
        Ok(fabrics
            .map(|(index, fabric)| ListenerStatus {
                index: Some(index),
                provider: fabric.provider.name().to_owned(),
                address: fabric.listen.to_string(),
                accepting: *self.drain.lock().unwrap() == DrainPhase::Serving,
                connections: 1,
                accepted: 4,
            })
            .collect())
    }

    fn totals(&self) -> ServiceTotals {
        ServiceTotals::default()
    }

    fn item_samples(&self) -> ItemSamples {
        ItemSamples::default()
    }

    fn operations(&self) -> Vec<OperationStatus> {
        vec![OperationStatus {
            program: "nfs".to_owned(),
            procedure: "write".to_owned(),
            requests: 99,
            errors: 1,
            bytes: 3 << 30,
            latency: Some(LATENCY),
        }]
    }

    fn drain(&self, _order: DrainOrder) -> Result<DrainStatus, ControlError> {
        *self.drain.lock().unwrap() = DrainPhase::Draining;
        *self.readiness.lock().unwrap() = Readiness::Draining;
        self.drain_status()
    }

    fn drain_status(&self) -> Result<DrainStatus, ControlError> {
        let phase = *self.drain.lock().unwrap();
        Ok(DrainStatus {
            phase,
            remaining_seconds: (phase == DrainPhase::Draining).then_some(9.5),
            connections: self.connections.lock().unwrap().len() as u64,
            requests_in_flight: 2,
            exposures: 13,
        })
    }

    fn cancel_drain(&self) -> Result<DrainStatus, ControlError> {
        *self.drain.lock().unwrap() = DrainPhase::Serving;
        *self.readiness.lock().unwrap() = Readiness::Ready;
        self.drain_status()
    }

    fn capture(
        &self,
        connection: u64,
        _bounds: &CaptureBounds,
    ) -> Result<Option<Box<dyn CaptureStream>>, ControlError> {
        let connections = self.connections.lock().unwrap();
        let known = connections.iter().any(|one| one.id == connection);
        Ok(known.then(|| Box::new(Once(Some(b"captured".to_vec()))) as _))
    }

    fn nfs4(&self) -> Option<&dyn Nfs4Control> {
        Some(&self.nfs4)
    }
}

/// A capture of one piece.
struct Once(Option<Vec<u8>>);

impl CaptureStream for Once {
    fn next(&mut self, _timeout: Duration) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}
