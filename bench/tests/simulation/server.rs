//! The project's own responder and programs over a memory store.

use std::cell::RefCell;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::exports::{ExportId, Exports, Rules, Squash};
use millrace::flow::rate::Rates;
use millrace::flow::{self, ClientLimit, Flow};
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::rdma::{FabricSlot, RdmaConnection, Responder, ResponderShared, work};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::rpc::Transport;
use millrace::service::ReactorPrograms;
use millrace_mempool::{Pool, Registry};
use millrace_reactor::Clock;
use millrace_reactor::fabric::{AnyProvider, ControlPath, QueuePairLimits};
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_store::{Caller, CreateHow, Namespace, SetAttributes, Store};
use millrace_wire::nfs3::FileHandle;

use super::dice::Dice;
use super::mutant::{Mutant, Programs};
use super::options::ServerOptions;
use super::reverse::Calls;
use super::watch::Watched;

const SECRET: [u8; 16] = *b"a secret of test";

/// A responder whatever its futures are.
pub trait Turned: Transport {
    fn turn(&mut self, now: Instant) -> usize;
    fn connections(&self) -> Vec<Rc<RdmaConnection>>;
}

impl<F: Future<Output = ()>> Turned for Responder<Programs, F> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
        work + self.run() + self.flush(now)
    }

    fn connections(&self) -> Vec<Rc<RdmaConnection>> {
        Self::connections(self).cloned().collect()
    }
}

pub struct Server {
    pub responder: Box<dyn Turned>,
    pub shared: Rc<ResponderShared<Programs>>,
    pub address: SocketAddr,
    pub root: FileHandle,
    pub files: Vec<FileHandle>,
    /// Calls to clients.
    pub calls: Calls,
    /// The network of the first client.
    pub limited: String,
    clients: flow::ClientTable,
    dice: Dice,
}

impl Server {
    #[allow(clippy::too_many_arguments)] // The parts of one server.
    pub fn new(
        registry: &Registry,
        pool: Pool,
        mut provider: Watched,
        options: &ServerOptions,
        mutant: Option<Mutant>,
        dice: Dice,
        now: Instant,
    ) -> Self {
        let config = MemoryConfig {
            size_bytes: 2 << 20,
            inodes: Some(256),
            file_system: 1,
            epoch: 1,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
        };
        let store = MemoryStore::new(registry, config).expect("memory");
        let rules = Rules {
            path: "/export".to_owned(),
            clients: vec!["0.0.0.0/0".parse().expect("a network")],
            read_only: false,
            security: [
                millrace::access::Security::Sys,
                millrace::access::Security::None,
            ]
            .into(),
            squash: Squash::None,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
        };
        let exports = Exports::new([(rules, store.clone())]).expect("one export");
        let export = exports.iter().next().expect("one export").id.0;
        let key = HandleKey::new(&SECRET);
        let seal = |handle| key.seal(export, handle);
        let files = (0..FILES).map(|number| {
            let name = format!("file{number}");
            let how = CreateHow::Guarded(SetAttributes::default());
            let caller = Caller {
                uid: 0,
                gid: 0,
                groups: Default::default(),
            };
            let made = store.create(&caller, store.root(), name.as_bytes(), &how);
            seal(ready(made).result.expect("made").0)
        });
        let (root, files) = (seal(store.root()), files.collect());
        let replay = ReplayLimits {
            age: match mutant {
                Some(Mutant::ForgetsReplies) => Duration::ZERO,
                _ => ReplayLimits::default().age,
            },
            ..ReplayLimits::default()
        };
        let service = ReactorPrograms::new(
            exports,
            key,
            ReplayCache::new(replay),
            MountTable::default(),
        );
        let programs = Programs {
            service,
            early: mutant == Some(Mutant::AcknowledgesEarly),
        };
        let clock = Clock::new(now);
        let class = options.settings.receive_class();
        let clients = flow::ClientTable::new(1);
        let flow = Flow::new(&clients, 0, &pool, class, &clock);
        let shared = ResponderShared::new(programs, pool, clock, options.settings).with_flow(flow);
        let shared = Rc::new(shared);
        let limits = QueuePairLimits {
            send_depth: options.send_depth,
            receive_depth: 4096,
            ird: if options.classic { 16 } else { 0 },
            ord: options.ord,
            exposures: if options.classic { 64 } else { 0 },
            receive_size: u32::try_from(options.settings.receive_size()).expect("small"),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = provider
            .listen(anywhere, limits, false)
            .expect("a free port");
        let address = provider.listener_address(listener).expect("listening");
        let fabric = AnyProvider::Dynamic(Box::new(provider));
        let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), limits, Some(listener));
        let responder = Responder::new(Rc::clone(&shared), vec![slot], work, None);
        Self {
            responder: Box::new(responder),
            shared,
            address,
            root,
            files,
            calls: Calls::default(),
            limited: "192.0.2.0/31".to_owned(),
            clients,
            dice,
        }
    }

    /// Puts other limits in place, as a live change does; all are far from stopping anybody.
    pub fn limit(&mut self, limited: bool, now: Instant) {
        let mut rates = || Rates {
            iops: self.dice.pick(&[None, Some(1000), Some(5000)]),
            bandwidth: self.dice.pick(&[None, Some(20_000_000)]),
        };
        let client = ClientLimit {
            networks: vec![self.limited.parse().expect("a network")],
            rates: rates(),
        };
        let export = (ExportId::of("/export"), rates());
        let clients = limited.then_some(client);
        let exports = limited.then_some(export);
        self.clients.set_limits(clients.as_slice(), exports, now);
        self.shared.flow.limits_changed();
    }

    /// One turn; some connections are called that `may` be.
    ///
    /// # Errors
    /// What is wrong with an answer to such a call.
    pub fn turn(&mut self, now: Instant, may: &dyn Fn(IpAddr) -> bool) -> Result<usize, String> {
        let work = self.responder.turn(now) + self.calls.run(&mut self.dice)?;
        if work > 0 && self.calls.len() < 4 && self.dice.once_in(20) {
            let mut connections = self.responder.connections();
            connections.retain(|connection| may(connection.peer().address));
            if !connections.is_empty() {
                let connection = connections.swap_remove(self.dice.below(connections.len()));
                self.calls.make(&connection, &mut self.dice, now);
                return Ok(work + 1);
            }
        }
        Ok(work)
    }
}

/// Files that all clients read and write.
pub const FILES: usize = 3;

/// A future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the store waits"),
    }
}
