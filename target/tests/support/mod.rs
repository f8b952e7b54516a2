//! A service over a memory store, called through the seam as a transport would.

#![allow(dead_code)] // Each test binary uses a part of it.

pub mod accounts;
pub mod callback_client;
pub mod fetch;
pub mod folder;
pub mod lasting;
pub mod message;
pub mod nfs;
pub mod nfs4;
pub mod raw;
pub mod script;
pub mod served;
pub mod session_double;
pub mod trace;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use millrace::access::Security;
use millrace::call::{
    Answer, Broken, Bulk, BulkArgument, Call, Limits, NO_CHUNKS, Peer, Reply, Serve, TransportKind,
};
use millrace::exports::{Exports, Rules, Squash};
use millrace::flow::Flow;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::rpc::ConnectionRef;
use millrace::service::ReactorPrograms;
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::Clock;
use millrace_store::Store;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_wire::nfs3::{self, FileHandle, Procedure};
use millrace_wire::rpc::{
    Accepted, AuthSys, CallHeader, CallOutcome, Credential, Groups, OpaqueAuth, ReplyHeader,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder, Padding};

pub const SECRET: [u8; 16] = *b"a secret of test";
pub const LIMITS: Limits = Limits {
    headroom: 64,
    message: (1 << 20) + 4096,
    apart: NO_CHUNKS,
    tells_shortage: false,
    flattens: false,
};

pub fn rules(path: &str) -> Rules {
    Rules {
        path: path.to_owned(),
        clients: ["0.0.0.0/0", "::/0"]
            .map(|network| network.parse().expect("a network"))
            .to_vec(),
        read_only: false,
        security: [Security::Sys, Security::None].into(),
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
    }
}

pub fn memory_store(registry: &Registry) -> MemoryStore {
    let config = MemoryConfig {
        size_bytes: 16 << 20,
        inodes: None,
        file_system: 1,
        epoch: 1,
        root_mode: 0o755,
        root_uid: 0,
        root_gid: 0,
    };
    MemoryStore::new(registry, config).unwrap()
}

pub fn service(
    exports: impl IntoIterator<Item = (Rules, MemoryStore)>,
) -> ReactorPrograms<MemoryStore> {
    service_with(exports, ReplayCache::new(ReplayLimits::default()))
}

pub fn service_with(
    exports: impl IntoIterator<Item = (Rules, MemoryStore)>,
    replay: ReplayCache,
) -> ReactorPrograms<MemoryStore> {
    let exports = Exports::new(exports).unwrap();
    ReactorPrograms::new(
        exports,
        HandleKey::new(&SECRET),
        replay,
        MountTable::default(),
    )
}

/// A call's future that waits for nobody, as all over a memory store.
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending if woken.0.swap(false, SeqCst) => {}
            Poll::Pending => panic!("the future waits"),
        }
    }
}

/// A call's future that another thread wakes.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Whether a future that gave up its turn wants another one.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Flow control of the only reactor.
pub fn flow(pool: &Pool) -> Flow {
    Flow::of_one_reactor(pool, Class::Control, &Clock::new(Instant::now()))
}

/// A client's connection.
pub fn connection(flow: &Flow, peer: Peer) -> ConnectionRef {
    ConnectionRef::new(flow, flow.client(peer.address), peer, Instant::now())
}

/// Chunks of a call, copied instead of read by RDMA.
#[derive(Default)]
pub struct Chunks<'a> {
    pub chunks: Vec<&'a [u8]>,
    pub pulls: usize,
    pub broken: bool,
    /// Whether the transport fetches the only one before the call is served, if it is small.
    pub comes_first: bool,
    /// What happens elsewhere while the data is on its way.
    pub meanwhile: Option<Box<dyn FnOnce() + 'a>>,
}

impl<'a> Chunks<'a> {
    /// The data that is fetched before a call with these arguments is served.
    pub fn fetched(&self, arguments: &[BulkArgument]) -> Option<&'a [u8]> {
        match (arguments, &self.chunks[..]) {
            ([one], [bytes]) if self.comes_first && one.length <= 4096 => {
                Some(&bytes[..one.length as usize])
            }
            _ => None,
        }
    }
}

impl Bulk for Chunks<'_> {
    async fn pull(&mut self, index: usize, sinks: &[Slice]) -> Result<(), Broken> {
        self.pulls += 1;
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        if self.broken {
            return Err(Broken);
        }
        let mut rest = self.chunks[index];
        for sink in sinks {
            let (part, later) = rest.split_at(sink.len());
            sink.copy_from(0, part);
            rest = later;
        }
        Ok(())
    }
}

/// What came back.
#[derive(Debug)]
pub struct Replied {
    pub answer: Answer,
    /// The message without its data.
    pub message: Vec<u8>,
    /// The data that stood apart.
    pub data: Vec<u8>,
    /// Where the data belongs.
    pub position: usize,
}

impl Replied {
    /// The message with its data in place, as a stream transport sends it.
    pub fn gathered(&self) -> Vec<u8> {
        let (head, tail) = self.message.split_at(self.position);
        let pad = self.data.len().wrapping_neg() % 4;
        [head, &self.data, &[0; 3][..pad], tail].concat()
    }
}

/// A service and somebody who calls it.
pub struct Bench<S: Store = MemoryStore> {
    pub pool: Pool,
    pub store: S,
    pub service: ReactorPrograms<S>,
    /// Meters nobody, but knows the clients.
    pub flow: Flow,
    connection: RefCell<ConnectionRef>,
    pub limits: Cell<Limits>,
    pub user: RefCell<Option<(u32, u32)>>,
    pub xid: Cell<u32>,
    /// Whether calls may wait for other threads.
    pub waits: Cell<bool>,
    lists: Cell<Vec<Slice>>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(rules("/export"))
    }

    pub fn with(rules: Rules) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = memory_store(&registry);
        let service = service([(rules, store.clone())]);
        Self::over(&registry, store, service)
    }
}

impl<S: Store> Bench<S> {
    pub fn over(registry: &Registry, store: S, service: ReactorPrograms<S>) -> Self {
        let peer: SocketAddr = "192.0.2.1:1000".parse().unwrap();
        let pool = Pool::new(registry, PoolConfig { bytes: 16 << 20 }).unwrap();
        let flow = flow(&pool);
        let peer = Peer::new(peer, TransportKind::Rdma);
        Self {
            pool,
            store,
            service,
            connection: RefCell::new(connection(&flow, peer)),
            flow,
            limits: Cell::new(LIMITS),
            user: RefCell::new(Some((0, 0))),
            xid: Cell::new(1),
            waits: Cell::default(),
            lists: Cell::default(),
        }
    }

    /// The root of the export at `/export`, or the only one.
    pub fn root(&self) -> FileHandle {
        let exports = self.service.exports();
        let export = exports.iter().next().unwrap();
        HandleKey::new(&SECRET).seal(export.id.0, self.store.root())
    }

    /// Sends a message as it is.
    pub fn send(&self, message: &[u8], bulk: &[BulkArgument], chunks: &mut Chunks<'_>) -> Replied {
        self.send_call(message, bulk, Padding::default(), chunks)
    }

    /// Sends a message of type RDMA_MSGP.
    pub fn send_padded(&self, message: &[u8], padding: Padding) -> Replied {
        self.send_call(message, &[], padding, &mut Chunks::default())
    }

    fn send_call(
        &self,
        message: &[u8],
        bulk: &[BulkArgument],
        padding: Padding,
        chunks: &mut Chunks<'_>,
    ) -> Replied {
        let mut reply = self.reply();
        let connection = self.connection();
        let call = self.call(&connection, message, bulk, padding);
        let serving = self.service.serve(call, chunks, &mut reply);
        let answer = match self.waits.get() {
            true => block_on(serving),
            false => ready(serving),
        };
        self.replied(answer, reply)
    }

    /// Sends a message whose call is answered at once, if it is.
    pub fn send_at_once(&self, message: &[u8]) -> Option<Replied> {
        let mut reply = self.reply();
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let answer = self.service.serve_at_once(call, &mut reply)?;
        Some(self.replied(answer, reply))
    }

    fn replied(&self, answer: Answer, reply: Reply) -> Replied {
        let mut parts = reply.into_parts();
        let mut data = Vec::new();
        let mut position = parts.message.len();
        if let Some(bulk) = parts.bulk.first() {
            position = bulk.position;
            for slice in &parts.slices {
                let start = data.len();
                data.resize(start + slice.len(), 0);
                slice.copy_to(0, &mut data[start..]);
            }
            assert_eq!(data.len(), bulk.length);
        }
        parts.slices.clear();
        self.lists.set(parts.slices);
        let message = parts.buffer[parts.message].to_vec();
        Replied {
            answer,
            message,
            data,
            position,
        }
    }

    fn reply(&self) -> Reply {
        let buffer = self.pool.try_acquire(Class::Control).unwrap();
        Reply::new(&self.pool, buffer, self.limits.get(), self.lists.take())
    }

    /// The connection that calls come by.
    pub fn connection(&self) -> ConnectionRef {
        self.connection.borrow().clone()
    }

    /// Has calls come by another client's connection, or by another transport. Returns the one
    /// before.
    pub fn call_from(&self, peer: Peer) -> ConnectionRef {
        self.connection.replace(connection(&self.flow, peer))
    }

    fn call<'a>(
        &self,
        connection: &'a ConnectionRef,
        message: &'a [u8],
        bulk: &'a [BulkArgument],
        padding: Padding,
    ) -> Call<'a> {
        Call {
            connection,
            arrived: Instant::now(),
            message,
            bulk,
            fetched: None,
            padding,
            is_authenticated: false,
        }
    }

    /// Sends a message whose call waits for something; `meanwhile` is done before it is given up.
    pub fn send_waiting<T>(&self, message: &[u8], meanwhile: impl FnOnce() -> T) -> T {
        let (mut reply, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let mut serving = pin!(self.service.serve(call, &mut chunks, &mut reply));
        let polled = serving
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "the call waits");
        meanwhile()
    }

    /// Sends a message whose call stops for ever when `is_stopped` says so, and may wait for other
    /// threads before; `meanwhile` is done before it is given up.
    pub fn send_until_stopped(
        &self,
        message: &[u8],
        is_stopped: &Cell<bool>,
        meanwhile: impl FnOnce(),
    ) {
        let (mut reply, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let mut serving = pin!(self.service.serve(call, &mut chunks, &mut reply));
        block_on(poll_fn(|context| match serving.as_mut().poll(context) {
            Poll::Pending if is_stopped.replace(false) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => panic!("the call is answered"),
        }));
        meanwhile();
    }

    /// Sends a message whose call gives up its turn; `meanwhile` is done then. Returns the reply.
    pub fn send_and(&self, message: &[u8], meanwhile: impl FnOnce()) -> Vec<u8> {
        let (mut reply, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let answer = {
            let mut serving = pin!(self.service.serve(call, &mut chunks, &mut reply));
            let polled = serving
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "the call gives up its turn");
            meanwhile();
            ready(serving)
        };
        self.replied(answer, reply).gathered()
    }

    /// Sends a message whose call waits for another thread. Returns the reply.
    pub fn send_until_done(&self, message: &[u8]) -> Vec<u8> {
        block_on(self.exchange(message))
    }

    /// Sends a message whose call may wait. Returns the reply.
    pub async fn exchange(&self, message: &[u8]) -> Vec<u8> {
        let (mut reply, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let answer = self.service.serve(call, &mut chunks, &mut reply).await;
        self.replied(answer, reply).gathered()
    }

    /// Sends a message that is tried at once first, without success. Returns the reply.
    pub fn send_after_attempt(&self, message: &[u8]) -> Vec<u8> {
        let (mut attempt, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = self.call(&connection, message, &[], Padding::default());
        let attempted = self.service.serve_at_once(call, &mut attempt);
        assert_eq!(attempted, None);
        let mut reply = self.reply();
        let call = Call {
            is_authenticated: attempt.is_authenticated(),
            ..call
        };
        let answer = ready(self.service.serve(call, &mut chunks, &mut reply));
        self.replied(answer, reply).gathered()
    }

    /// A call message with the next XID.
    pub fn message(&self, program: (u32, u32, u32), arguments: &impl Encode) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        let credential = match *self.user.borrow() {
            None => Credential::None,
            Some((uid, gid)) => Credential::Sys(AuthSys {
                stamp: 0,
                machine: b"client",
                uid,
                gid,
                gids: Groups::new(),
            }),
        };
        let header = CallHeader {
            xid: self.xid.get(),
            program: program.0,
            version: program.1,
            procedure: program.2,
            credential,
            verifier: OpaqueAuth::NONE,
        };
        let mut bytes = vec![0; 2 << 20];
        let mut out = Encoder::new(&mut bytes);
        header.encode(&mut out).unwrap();
        arguments.encode(&mut out).unwrap();
        let length = out.position();
        bytes.truncate(length);
        bytes
    }

    /// Calls a procedure of NFS that is let in, and returns its encoded results.
    pub fn nfs(&self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let program = (nfs3::PROGRAM, nfs3::VERSION, procedure.number());
        self.success(&self.message(program, arguments))
    }

    /// Sends a message that deserves results, and returns them encoded.
    pub fn success(&self, message: &[u8]) -> Vec<u8> {
        let replied = self.send(message, &[], &mut Chunks::default());
        assert_eq!(replied.answer, Answer::Send);
        let gathered = replied.gathered();
        results(&gathered).to_vec()
    }
}

/// What follows the header of a successful reply.
pub fn results(message: &[u8]) -> &[u8] {
    let mut input = Decoder::new(message);
    let header = ReplyHeader::decode(&mut input).unwrap();
    let CallOutcome::Accepted {
        status: Accepted::Success,
        ..
    } = header.outcome
    else {
        panic!("not a success: {header:?}");
    };
    input.rest()
}

/// The outcome of a call that got no results.
pub fn outcome(message: &[u8]) -> CallOutcome<'_> {
    let mut input = Decoder::new(message);
    let header = ReplyHeader::decode(&mut input).unwrap();
    assert_eq!(input.remaining(), 0);
    header.outcome
}
