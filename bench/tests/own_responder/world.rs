//! A client and a server with one export, on one thread and whatever network.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace::access::Security;
use millrace::exports::{Exports, Rules, Squash};
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::rdma::{self, FabricSlot, Responder, ResponderShared, work};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::service::ReactorPrograms;
use millrace_bench::requester::{Call, CallError, Connection, Reply, Settings};
use millrace_mempool::{Class, Pool, PoolConfig, Slice};
use millrace_reactor::Clock;
use millrace_reactor::fabric::testing::{Wire, Wired, registry};
use millrace_reactor::fabric::{AnyProvider, ControlPath, DataPath, QueuePairLimits};
use millrace_store::Store;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_wire::nfs3::FileHandle;
use millrace_wire::rpcrdma::Versions;
use millrace_wire::xdr::Encode;

const SECRET: [u8; 16] = *b"a secret of test";
/// Turns after which nothing more is to be expected.
const TURNS: usize = 10_000;

pub type Programs = ReactorPrograms<MemoryStore>;

/// A responder whatever its futures are.
trait Turned {
    fn turn(&mut self, now: Instant) -> usize;
    fn connection(&self) -> Option<Rc<rdma::RdmaConnection>>;
}

impl<F: Future<Output = ()>> Turned for Responder<Programs, F> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
        work + self.run() + self.flush(now)
    }

    fn connection(&self) -> Option<Rc<rdma::RdmaConnection>> {
        self.connections().next().cloned()
    }
}

pub struct World {
    responder: Box<dyn Turned>,
    wire: Wire,
    pub client: Wired,
    pub connection: Connection,
    pub pool: Pool,
    pub root: FileHandle,
    pub now: Instant,
}

/// A server's settings: every version, and padded messages.
pub fn server() -> rdma::Settings {
    rdma::Settings::new(4096, 32, 1 << 20, true)
}

impl World {
    /// A server of these versions and a client with these settings, connected.
    pub fn new(versions: Versions, settings: Settings) -> Self {
        Self::with(server().serving(versions), false, settings)
    }

    /// A server with these settings, in classic mode or not, and a client, connected.
    pub fn with(server: rdma::Settings, classic: bool, settings: Settings) -> Self {
        let wire = Wire::new();
        let registry = registry();
        let pool = || Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).expect("memory");
        let (server_pool, pool) = (pool(), pool());
        let config = MemoryConfig {
            size_bytes: 16 << 20,
            inodes: None,
            file_system: 1,
            epoch: 1,
            root_mode: 0o777,
            root_uid: 0,
            root_gid: 0,
        };
        let store = MemoryStore::new(&registry, config).expect("memory");
        let rules = Rules {
            path: "/export".to_owned(),
            clients: vec!["0.0.0.0/0".parse().expect("a network")],
            read_only: false,
            security: [Security::Sys, Security::None].into(),
            squash: Squash::None,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
        };
        let exports = Exports::new([(rules, store.clone())]).expect("one export");
        let export = exports.iter().next().expect("one export").id.0;
        let key = HandleKey::new(&SECRET);
        let root = key.seal(export, store.root());
        let replay = ReplayCache::new(ReplayLimits::default());
        let service = ReactorPrograms::new(exports, key, replay, MountTable::default());
        let now = Instant::now();
        let shared = Rc::new(ResponderShared::new(
            service,
            server_pool,
            Clock::new(now),
            server,
        ));

        let mut provider = wire.provider();
        let limits = QueuePairLimits {
            send_depth: 1024,
            receive_depth: 4096,
            ird: if classic { 16 } else { 0 },
            ord: 16,
            exposures: if classic { 1024 } else { 0 },
            receive_size: u32::try_from(server.receive_size()).expect("small"),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = provider.listen(anywhere, limits, false).expect("a port");
        let address = provider.listener_address(listener).expect("listening");
        let fabric = AnyProvider::Dynamic(Box::new(provider));
        let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), limits, Some(listener));
        let responder = Responder::new(shared, vec![slot], work, None);

        let mut client = wire.provider();
        let connection =
            Connection::connect(&mut client, &pool, address, settings, now).expect("connects");
        let mut world = Self {
            responder: Box::new(responder),
            wire,
            client,
            connection,
            pool,
            root,
            now,
        };
        world.settle();
        world
    }

    /// Lets everything happen that can happen at this time.
    pub fn settle(&mut self) {
        self.settle_with(&mut |token, _| panic!("call {token} is nobody's"));
    }

    /// The same while calls are underway, whose ends are told.
    pub fn settle_with(&mut self, told: &mut dyn FnMut(u64, Result<Reply<'_>, CallError>)) {
        let mut rest = self.wire.rest(TURNS);
        while !rest.reached(self.turn(told)) {}
    }

    fn turn(&mut self, told: &mut dyn FnMut(u64, Result<Reply<'_>, CallError>)) -> usize {
        let mut work = self.responder.turn(self.now);
        let mut events = Vec::with_capacity(64);
        work += self.client.poll(self.now, &mut events);
        let connection = &mut self.connection;
        let mut sink =
            |done: millrace_bench::requester::Completion<'_>| told(done.token, done.result);
        for event in events {
            connection.handle(&mut self.client, event, self.now, &mut sink);
        }
        connection.expire(&mut self.client, self.now, &mut sink);
        work += connection.pump(&mut self.client, &mut sink);
        work + self.client.flush(self.now)
    }

    /// Makes a call, takes what is needed out of its reply, and lets everything happen that comes
    /// of it.
    pub fn call<A: Encode, T>(
        &mut self,
        call: &Call<'_, A>,
        read: impl FnOnce(&Reply<'_>) -> T,
    ) -> Result<T, CallError> {
        self.connection.submit(call, self.now).expect("taken");
        let (mut read, mut outcome) = (Some(read), None);
        let mut rest = self.wire.rest(TURNS);
        loop {
            let work = self.turn(&mut |_, result| {
                let read = read.take().expect("one call, one end");
                outcome = Some(result.map(|reply| read(&reply)));
            });
            if let Some(outcome) = outcome.take() {
                self.settle();
                return outcome;
            }
            assert!(!rest.reached(work), "no end of the call");
        }
    }

    /// The server's end of the connection.
    pub fn server_end(&self) -> Rc<rdma::RdmaConnection> {
        self.responder.connection().expect("connected")
    }

    /// Turns the world until a future of the server's is ready.
    pub fn wait<T>(&mut self, mut future: Pin<&mut dyn Future<Output = T>>) -> T {
        let mut rest = self.wire.rest(TURNS);
        let mut rests = false;
        loop {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
            assert!(!rests, "never ready");
            let work = self.turn(&mut |token, _| panic!("call {token} is nobody's"));
            rests = rest.reached(work);
        }
    }

    /// Memory with a pattern in it.
    pub fn memory(&self, length: usize) -> Slice {
        let class = Class::for_size(length).expect("not too large");
        let mut buffer = self.pool.try_acquire(class).expect("free");
        buffer[..length].copy_from_slice(&pattern(length));
        buffer.into_slice(0..length)
    }
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}
