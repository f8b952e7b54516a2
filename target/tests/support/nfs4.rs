//! COMPOUNDs over memory stores, called through the seam as a transport would, with a stand-in for
//! the state of clients.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use millrace::access::ServedExports;
use millrace::call::{
    Answer, BulkArgument, BulkResults, Call, Limits, Peer, Reply, Serve, TransportKind,
};
use millrace::exports::{Exports, Rules};
use millrace::flow::Flow;
use millrace::handle::HandleKey;
use millrace::nfs4::{Nfs4, Nfs4Counters, SessionBounds, StateSeam};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::rpc::ConnectionRef;
use millrace::rpc::dispatch::Dispatcher;
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_store::memory::MemoryStore;
use millrace_store::{Caller, Namespace, Store};
use millrace_wire::nfs4::{
    Attribute, Attributes, Bitmap, COMPOUND, Compound, CompoundReplyHeader, CreateOperation,
    HandleBytes, NewObject, Operation, OperationResults, OperationStatus, ReadReply,
    ReaddirOperation, ResultsReader, SequenceOperation, SessionId, SetattrOperation, StateId,
};
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, OpaqueAuth};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder, Padding};

use super::session_double::SessionDouble;
use super::{Chunks, LIMITS, SECRET, connection, flow, memory_store, ready, results, rules};

pub type Programs4<H, S = MemoryStore> = Dispatcher<(Nfs4<S, H>, ())>;

/// The program over some exports, and somebody who calls it.
pub struct Bench4<H: StateSeam = SessionDouble, S: Store = MemoryStore> {
    pub pool: Pool,
    pub stores: Vec<S>,
    pub programs: Programs4<H, S>,
    pub exports: Rc<ServedExports<S>>,
    pub state: Rc<H>,
    pub counters: Arc<Nfs4Counters>,
    pub flow: Flow,
    connection: RefCell<ConnectionRef>,
    pub limits: Cell<Limits>,
    pub user: Cell<Option<(u32, u32)>>,
    pub minor_version: Cell<u32>,
    xid: Cell<u32>,
    pub session: Cell<SessionId>,
    pub sequence: Cell<u32>,
    pub cache_this: Cell<bool>,
}

/// The results of a COMPOUND.
#[derive(Debug)]
pub struct Results4 {
    /// From the status on, with data in place.
    pub bytes: Vec<u8>,
    /// The items that stood beside the message.
    pub items: BulkResults,
}

impl Results4 {
    /// The header and the results, without that of SEQUENCE if the COMPOUND began with one.
    pub fn read(&self) -> (CompoundReplyHeader<'_>, Vec<OperationResults<'_>>) {
        let mut input = Decoder::new(&self.bytes);
        let header = CompoundReplyHeader::decode(&mut input).unwrap();
        let mut reader = ResultsReader::<OperationResults<'_>>::new(input, header.results);
        let mut all: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(all.len(), header.results as usize);
        assert_eq!(reader.input().remaining(), 0);
        if let Some(OperationResults::Sequence(Ok(_))) = all.first() {
            all.remove(0);
        }
        (header, all)
    }

    /// The status of the COMPOUND.
    pub fn status(&self) -> OperationStatus {
        self.read().0.status
    }

    /// The results of the last operation.
    pub fn last(&self) -> OperationResults<'_> {
        let (header, all) = self.read();
        assert_eq!(header.status, OperationStatus::Ok, "{all:?}");
        *all.last().expect("there are results")
    }

    /// The attributes in the last result.
    pub fn attributes(&self) -> Attributes<'_> {
        match self.last() {
            OperationResults::Getattr(Ok(attributes)) => attributes,
            other => panic!("no attributes: {other:?}"),
        }
    }

    /// One attribute of the last result.
    pub fn attribute(&self, number: millrace_wire::nfs4::AttributeNumber) -> Attribute<'_> {
        self.attributes()
            .get(number)
            .unwrap()
            .expect("it is served")
    }

    /// The handle in the last result.
    pub fn handle(&self) -> Vec<u8> {
        match self.last() {
            OperationResults::Getfh(Ok(handle)) => handle.0.to_vec(),
            other => panic!("no handle: {other:?}"),
        }
    }

    /// What the last result, a READ, returned.
    pub fn data(&self) -> (Vec<u8>, bool) {
        match self.last() {
            OperationResults::Read(Ok(ReadReply { eof, data })) => {
                (data.as_inline().expect("gathered").to_vec(), eof)
            }
            other => panic!("no data: {other:?}"),
        }
    }
}

impl Bench4 {
    /// A session without bounds to speak of.
    pub const BOUNDS: SessionBounds = SessionBounds {
        request: 2 << 20,
        reply: 2 << 20,
        cached: None,
    };

    /// One export at `/export`.
    pub fn new() -> Self {
        Self::with([rules("/export")])
    }

    /// These exports, each with a store of its own.
    pub fn with(all: impl IntoIterator<Item = Rules>) -> Self {
        Self::over(all, Rc::default())
    }
}

impl<H: StateSeam> Bench4<H> {
    /// The same over this state of clients.
    pub fn over(all: impl IntoIterator<Item = Rules>, state: Rc<H>) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let stores = all
            .into_iter()
            .map(|rules| (rules, memory_store(&registry)));
        Self::over_stores(&registry, stores.collect(), state)
    }
}

impl<H: StateSeam, S: Store> Bench4<H, S> {
    /// The same over these stores.
    pub fn over_stores(registry: &Registry, exports: Vec<(Rules, S)>, state: Rc<H>) -> Self {
        let stores = exports.iter().map(|(_, store)| store.clone()).collect();
        let exports = Exports::new(exports).unwrap();
        let exports = Rc::new(ServedExports::new(exports, HandleKey::new(&SECRET)));
        let program = Nfs4::new(Rc::clone(&exports));
        program.serve_with(Rc::clone(&state));
        let counters = program.counters();
        let replay = ReplayCache::new(ReplayLimits::default());
        let pool = Pool::new(registry, PoolConfig { bytes: 16 << 20 }).unwrap();
        let flow = flow(&pool);
        let peer: SocketAddr = "192.0.2.1:1000".parse().unwrap();
        Self {
            pool,
            stores,
            programs: Dispatcher::over((program, ()), replay),
            exports,
            state,
            counters,
            connection: RefCell::new(connection(&flow, Peer::new(peer, TransportKind::Rdma))),
            flow,
            limits: Cell::new(LIMITS),
            user: Cell::new(Some((0, 0))),
            minor_version: Cell::new(2),
            xid: Cell::new(1),
            session: Cell::new(SessionDouble::SESSION),
            sequence: Cell::new(0),
            cache_this: Cell::new(false),
        }
    }

    /// Has calls come from another address.
    pub fn call_from(&self, address: &str) {
        let address: SocketAddr = format!("{address}:1000").parse().unwrap();
        let peer = Peer::new(address, TransportKind::Rdma);
        *self.connection.borrow_mut() = connection(&self.flow, peer);
    }

    /// Has calls come by this connection.
    pub fn call_by(&self, connection: &ConnectionRef) {
        *self.connection.borrow_mut() = connection.clone();
    }

    /// The connection that calls come by.
    pub fn connection(&self) -> ConnectionRef {
        self.connection.borrow().clone()
    }

    /// A call message of version 4.
    pub fn message(&self, procedure: u32, arguments: &impl Encode) -> Vec<u8> {
        self.xid.set(self.xid.get() + 1);
        let credential = match self.user.get() {
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
            program: 100_003,
            version: 4,
            procedure,
            credential,
            verifier: OpaqueAuth::NONE,
        };
        let mut bytes = vec![0; 3 << 20];
        let mut out = Encoder::new(&mut bytes);
        header.encode(&mut out).unwrap();
        arguments.encode(&mut out).unwrap();
        let length = out.position();
        bytes.truncate(length);
        bytes
    }

    /// The call message of a COMPOUND.
    pub fn compound_message(&self, operations: &[Operation<'_>]) -> Vec<u8> {
        let compound = Compound {
            minor_version: self.minor_version.get(),
            operations,
            ..Compound::default()
        };
        self.message(COMPOUND, &compound)
    }

    /// Sends a call message, and returns the reply message with its data in place, and where that
    /// stood.
    pub fn send(
        &self,
        message: &[u8],
        bulk: &[BulkArgument],
        chunks: &mut Chunks<'_>,
    ) -> (Answer, Vec<u8>, BulkResults) {
        ready(self.exchange(message, bulk, chunks))
    }

    /// The same, for calls that wait. As transports do, it tries first whether the call need not.
    pub async fn exchange(
        &self,
        message: &[u8],
        bulk: &[BulkArgument],
        chunks: &mut Chunks<'_>,
    ) -> (Answer, Vec<u8>, BulkResults) {
        let connection = self.connection();
        let mut call = call(&connection, message, bulk);
        call.fetched = chunks.fetched(bulk);
        if bulk.is_empty() || call.fetched.is_some() {
            let mut reply = self.reply();
            if let Some(answer) = self.programs.serve_at_once(call, &mut reply) {
                return Self::replied(answer, reply);
            }
            call.is_authenticated = reply.is_authenticated();
        }
        let mut reply = self.reply();
        let answer = self.programs.serve(call, chunks, &mut reply).await;
        Self::replied(answer, reply)
    }

    /// Sends a call message whose call is answered at once, if it is.
    pub fn send_at_once(&self, message: &[u8]) -> Option<(Answer, Vec<u8>, BulkResults)> {
        self.try_at_once(message, &[], None)
    }

    /// The same with data in a chunk, which has been fetched or not.
    pub fn try_at_once(
        &self,
        message: &[u8],
        bulk: &[BulkArgument],
        fetched: Option<&[u8]>,
    ) -> Option<(Answer, Vec<u8>, BulkResults)> {
        let mut reply = self.reply();
        let connection = self.connection();
        let call = Call {
            fetched,
            ..call(&connection, message, bulk)
        };
        let answer = self.programs.serve_at_once(call, &mut reply)?;
        Some(Self::replied(answer, reply))
    }

    /// Sends a call message whose call is not tried at once.
    pub fn send_in_task(&self, message: &[u8]) -> (Answer, Vec<u8>, BulkResults) {
        ready(self.exchange_in_task(message))
    }

    /// The same, for calls that wait.
    pub async fn exchange_in_task(&self, message: &[u8]) -> (Answer, Vec<u8>, BulkResults) {
        let (mut reply, mut chunks) = (self.reply(), Chunks::default());
        let connection = self.connection();
        let call = call(&connection, message, &[]);
        let answer = self.programs.serve(call, &mut chunks, &mut reply).await;
        Self::replied(answer, reply)
    }

    fn reply(&self) -> Reply {
        let buffer = self.pool.try_acquire(Class::Control).unwrap();
        Reply::new(&self.pool, buffer, self.limits.get(), Vec::new())
    }

    fn replied(answer: Answer, reply: Reply) -> (Answer, Vec<u8>, BulkResults) {
        let parts = reply.into_parts();
        let mut data = Vec::new();
        for slice in &parts.slices {
            let start = data.len();
            data.resize(start + slice.len(), 0);
            slice.copy_to(0, &mut data[start..]);
        }
        if answer != Answer::Send {
            return (answer, Vec::new(), BulkResults::new());
        }
        let (mut whole, mut at, mut data) = (Vec::new(), 0, &data[..]);
        let encoded = &parts.buffer[parts.message];
        for item in &parts.bulk {
            whole.extend_from_slice(&encoded[at..item.position]);
            let (this, rest) = data.split_at(item.length);
            whole.extend_from_slice(this);
            whole.resize(whole.len().next_multiple_of(4), 0);
            (at, data) = (item.position, rest);
        }
        whole.extend_from_slice(&encoded[at..]);
        (answer, whole, parts.bulk)
    }

    /// Sends a message that waits for something, has that done, and returns the results.
    pub fn results_after(&self, message: &[u8], meanwhile: impl FnOnce()) -> Results4 {
        let mut chunks = Chunks::default();
        let mut exchange = pin!(self.exchange(message, &[], &mut chunks));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(exchange.as_mut().poll(context).is_pending());
        meanwhile();
        let (answer, message, items) = ready(exchange);
        assert_eq!(answer, Answer::Send);
        Results4 {
            bytes: results(&message).to_vec(),
            items,
        }
    }

    /// The turns that a message takes.
    pub fn turns(&self, message: &[u8]) -> u32 {
        let mut chunks = Chunks::default();
        let mut exchange = pin!(self.exchange(message, &[], &mut chunks));
        let context = &mut Context::from_waker(Waker::noop());
        let mut turns = 1;
        while exchange.as_mut().poll(context).is_pending() {
            turns += 1;
        }
        turns
    }

    /// Sends a message that deserves results.
    pub fn results(&self, message: &[u8]) -> Results4 {
        self.results_with(message, &[], &mut Chunks::default())
    }

    /// The same with data in chunks.
    pub fn results_with(
        &self,
        message: &[u8],
        bulk: &[BulkArgument],
        chunks: &mut Chunks<'_>,
    ) -> Results4 {
        let (answer, message, items) = self.send(message, bulk, chunks);
        assert_eq!(answer, Answer::Send);
        Results4 {
            bytes: results(&message).to_vec(),
            items,
        }
    }

    /// Executes a COMPOUND as it is.
    pub fn compound(&self, operations: &[Operation<'_>]) -> Results4 {
        self.results(&self.compound_message(operations))
    }

    /// The next SEQUENCE of slot 0.
    pub fn next_sequence(&self) -> Operation<'static> {
        self.sequence.set(self.sequence.get() + 1);
        self.this_sequence()
    }

    /// The same SEQUENCE once more.
    pub fn this_sequence(&self) -> Operation<'static> {
        Operation::Sequence(SequenceOperation {
            session: self.session.get(),
            sequence: self.sequence.get(),
            slot: 0,
            highest_slot: 0,
            cache_this: self.cache_this.get(),
        })
    }

    /// Executes operations behind a SEQUENCE.
    pub fn run(&self, operations: &[Operation<'_>]) -> Results4 {
        let mut all = vec![self.next_sequence()];
        all.extend_from_slice(operations);
        self.compound(&all)
    }

    /// The status of each operation behind a SEQUENCE.
    pub fn statuses(&self, operations: &[Operation<'_>]) -> Vec<OperationStatus> {
        let results = self.run(operations);
        let (_, all) = results.read();
        all.iter()
            .map(millrace_wire::nfs4::HasStatus::status)
            .collect()
    }

    /// The handle at a path from the root.
    pub fn walk(&self, path: &str) -> Vec<u8> {
        self.try_walk(path).unwrap()
    }

    /// The same, or the status of the first operation that failed.
    pub fn try_walk(&self, path: &str) -> Result<Vec<u8>, OperationStatus> {
        let mut operations = vec![Operation::Putrootfh(())];
        let names = path.split('/').filter(|name| !name.is_empty());
        operations.extend(names.map(|name| Operation::Lookup(name.as_bytes())));
        operations.push(Operation::Getfh(()));
        let results = self.run(&operations);
        match results.status() {
            OperationStatus::Ok => Ok(results.handle()),
            status => Err(status),
        }
    }

    /// Attributes of an object.
    pub fn getattr(&self, handle: &[u8], wanted: Bitmap) -> Results4 {
        self.run(&[put(handle), Operation::Getattr(wanted)])
    }
}

fn call<'c>(
    connection: &'c ConnectionRef,
    message: &'c [u8],
    bulk: &'c [BulkArgument],
) -> Call<'c> {
    Call {
        connection,
        arrived: Instant::now(),
        message,
        bulk,
        fetched: None,
        padding: Padding::default(),
        is_authenticated: false,
    }
}

/// PUTFH.
pub fn put(handle: &[u8]) -> Operation<'_> {
    Operation::Putfh(handle_bytes(handle))
}

pub fn handle_bytes(handle: &[u8]) -> HandleBytes<'_> {
    millrace_wire::xdr::BoundedBytes(handle)
}

/// CREATE of a directory.
pub fn make_directory(name: &[u8]) -> Operation<'_> {
    create(NewObject::Directory, name, Attributes::NONE)
}

pub fn create<'a>(
    object: NewObject<'a>,
    name: &'a [u8],
    attributes: Attributes<'a>,
) -> Operation<'a> {
    Operation::Create(CreateOperation {
        object,
        name,
        attributes,
    })
}

/// SETATTR with the anonymous stateid.
pub fn set(attributes: Attributes<'_>) -> Operation<'_> {
    Operation::Setattr(SetattrOperation {
        state: StateId::ANONYMOUS,
        attributes,
    })
}

/// READDIR from the beginning.
pub fn list(attributes: Bitmap) -> ReaddirOperation {
    ReaddirOperation {
        cookie: 0,
        verifier: [0; 8],
        dircount: 0,
        maxcount: 8192,
        attributes,
    }
}

impl<H: StateSeam> Bench4<H> {
    /// A regular file, made by the store.
    pub fn file(&self, name: &[u8], mode: u32) -> Vec<u8> {
        let set = millrace_store::SetAttributes {
            mode: Some(mode),
            ..Default::default()
        };
        let how = millrace_store::CreateHow::Guarded(set);
        let store = &self.stores[0];
        let (caller, root) = (Caller::SUPERUSER, store.root());
        let done = ready(store.create(&caller, root, name, &how));
        let (object, _) = done.result.unwrap();
        let exports = self.exports.table();
        let export = exports
            .iter()
            .find(|export| export.store.is(store))
            .unwrap();
        let key = HandleKey::new(&SECRET);
        key.seal(export.id.0, object).as_bytes().to_vec()
    }
}
