//! A responder and requesters that send it any bytes: all on one thread, on a fabric that does not
//! matter, with a clock that is turned by hand.

use std::cell::RefCell;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::call::Serve;
use millrace::rdma::{
    FabricSlot, Inline, RdmaConnection, Responder, ResponderShared, Settings, work,
};
use millrace::rpc::Transport;
use millrace_mempool::{Class, Pool, PoolConfig, Slice};
use millrace_reactor::Clock;
use millrace_reactor::fabric::testing::{Wire, Wired, registry};
use millrace_reactor::fabric::{
    Access, AnyProvider, ConnectParameters, ControlPath, DataPath, Ended, Event, Exposure, Key,
    Operation, PrivateData, QueuePairId, QueuePairLimits, RemoteAddress, Slices, WorkError,
    WorkRequest,
};
use millrace_wire::private_data;
use millrace_wire::rpcrdma::Segment;

use super::message;
use super::trace::{Notes, Recorder, Trace};

/// The token of a requester's RDMA Reads.
const READ: u64 = 1;

/// Rounds after which two sides that still have something to say to each other never stop.
const ROUNDS_MAX: usize = 100_000;

/// The bytes in slices.
pub fn gather(slices: &[Slice]) -> Vec<u8> {
    let mut all = Vec::new();
    for slice in slices {
        let start = all.len();
        all.resize(start + slice.len(), 0);
        slice.copy_to(0, &mut all[start..]);
    }
    all
}

/// A responder whatever its futures are.
trait Turned: Transport {
    fn turn(&mut self, now: Instant) -> usize;
    fn connections(&self) -> Vec<Rc<RdmaConnection>>;
    fn is_idle(&self) -> bool;
}

impl<S: Serve, F: Future<Output = ()>> Turned for Responder<S, F> {
    fn turn(&mut self, now: Instant) -> usize {
        let work = self.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
        work + self.run() + self.flush(now)
    }

    fn connections(&self) -> Vec<Rc<RdmaConnection>> {
        Self::connections(self).cloned().collect()
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }
}

/// What a world is made of.
#[derive(Clone, Copy)]
pub struct Options {
    /// Bytes of the responder's pool.
    pub pool: usize,
    pub settings: Settings,
    pub send_depth: u32,
    /// RDMA Reads that the responder opens at once.
    pub ord: u16,
    /// Keys that a connection of the responder's may have; with any it is in classic mode.
    pub exposures: u32,
    /// Whether the responder's provider can invalidate keys of the requester's.
    pub invalidates: bool,
    /// The time within a turn of the responder; none passes without.
    pub moments: Option<fn() -> Instant>,
}

impl Options {
    /// Classic mode: replies may have read chunks.
    pub fn classic() -> Self {
        Self {
            exposures: 1024,
            ..Self::default()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool: 16 << 20,
            settings: Settings::new(4096, 32, 1 << 20, true),
            send_depth: 1024,
            ord: 16,
            exposures: 0,
            invalidates: true,
            moments: None,
        }
    }
}

/// What a requester states when it connects.
#[derive(Clone, Copy)]
pub struct Stated {
    /// Its receive size in private data; none: no private data.
    pub inline: Option<usize>,
    /// Bytes of private data at least: zeros fill up, as where the network carries it in a field.
    pub padded: usize,
    /// Bytes of its receives, where they are not what it states.
    pub takes: Option<usize>,
    pub invalidation: bool,
    /// Where it connects from.
    pub source: Ipv4Addr,
    /// Receives it posts.
    pub receives: usize,
    /// RDMA Reads that it serves at once.
    pub ird: u16,
}

impl Default for Stated {
    fn default() -> Self {
        Self {
            inline: Some(4096),
            padded: 0,
            takes: None,
            invalidation: false,
            source: Ipv4Addr::LOCALHOST,
            receives: 256,
            ird: 16,
        }
    }
}

/// One connection of a requester.
pub struct Requester {
    provider: Wired,
    queue_pair: QueuePairId,
    pool: Pool,
    /// Messages received and not taken yet.
    pub received: Vec<Vec<u8>>,
    /// Keys that were invalidated by the responder.
    pub invalidated: Vec<Key>,
    /// The private data of the answer.
    pub private_data: PrivateData,
    pub established: bool,
    pub ended: Option<Ended>,
    /// Sends, but takes no notice of anything: serves no RDMA Reads and takes no replies.
    pub silent: bool,
    /// What RDMA Reads brought, one by one.
    fetched: Vec<Result<Vec<u8>, WorkError>>,
}

/// Memory of a requester's that the responder may reach.
#[derive(Clone, Debug)]
pub struct Memory {
    pub exposure: Exposure,
    slice: Slice,
}

impl Memory {
    /// What it holds.
    pub fn bytes(&self) -> Vec<u8> {
        gather(std::slice::from_ref(&self.slice))
    }

    /// Changes it.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.slice.copy_from(at as usize, bytes);
    }

    /// A segment of it.
    pub fn segment(&self, at: u64, length: u32) -> Segment {
        Segment {
            handle: self.exposure.key.0,
            length,
            offset: self.exposure.offset + at,
        }
    }

    /// The whole of it as one segment.
    pub fn whole(&self) -> Segment {
        self.segment(0, self.exposure.length)
    }

    /// Cut into consecutive segments.
    pub fn cut(&self, lengths: &[u32]) -> Vec<Segment> {
        let mut at = 0;
        let mut next = |&length: &u32| {
            let segment = self.segment(at, length);
            at += u64::from(length);
            segment
        };
        lengths.iter().map(&mut next).collect()
    }
}

/// A responder and its requesters.
pub struct World<S> {
    pub wire: Wire,
    pub now: Instant,
    pub shared: Rc<ResponderShared<S>>,
    pub clients: Vec<Requester>,
    pub notes: Rc<RefCell<Notes>>,
    responder: Box<dyn Turned>,
    address: SocketAddr,
    /// The memory of all requesters.
    memory: Pool,
}

impl<S: Serve> World<S> {
    /// A responder that serves `programs`.
    pub fn new(programs: S, options: Options) -> Self {
        let registry = registry();
        let bytes = options.pool;
        let pool = Pool::new(&registry, PoolConfig { bytes }).unwrap();
        let bytes = 32 << 20;
        let memory = Pool::new(&registry, PoolConfig { bytes }).unwrap();
        let settings = options.settings;
        let clock = match options.moments {
            Some(read) => Clock::reading(read),
            None => Clock::new(Instant::now()),
        };
        let shared = Rc::new(ResponderShared::new(programs, pool, clock, settings));
        let wire = Wire::new();
        let notes = Rc::new(RefCell::default());
        let mut recorder = Recorder {
            inner: wire.provider(),
            notes: Rc::clone(&notes),
            invalidates: options.invalidates,
        };
        let limits = QueuePairLimits {
            send_depth: options.send_depth,
            receive_depth: 4096,
            ird: if options.exposures > 0 { 16 } else { 0 },
            ord: options.ord,
            exposures: options.exposures,
            receive_size: u32::try_from(settings.receive_size()).unwrap(),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = recorder.listen(anywhere, limits, false).unwrap();
        let address = recorder.listener_address(listener).unwrap();
        let fabric = AnyProvider::Dynamic(Box::new(recorder));
        let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), limits, Some(listener));
        let responder = Responder::new(Rc::clone(&shared), vec![slot], work, None);
        Self {
            wire,
            now: Instant::now(),
            shared,
            clients: Vec::new(),
            notes,
            responder: Box::new(responder),
            address,
            memory,
        }
    }

    /// A connection with the usual statements; its number.
    pub fn connect(&mut self) -> usize {
        self.connect_with(Stated::default())
    }

    /// A connection, whether it comes to stand or not.
    pub fn connect_with(&mut self, stated: Stated) -> usize {
        let mut provider = self.wire.provider_at(stated.source);
        let least = message::version().min_inline();
        let size = stated.takes.or(stated.inline).unwrap_or(least);
        let private_data = stated.inline.map(|size| private_data::PrivateData {
            remote_invalidation: stated.invalidation,
            send_size: size,
            receive_size: size,
        });
        let limits = QueuePairLimits {
            send_depth: 4096,
            receive_depth: 4096,
            ird: stated.ird,
            ord: 16,
            exposures: 1024,
            receive_size: u32::try_from(size).unwrap(),
        };
        let told = private_data.map(|message| message.to_bytes().to_vec());
        let told = told.unwrap_or_default();
        let pad = stated.padded.saturating_sub(told.len());
        let parameters = ConnectParameters {
            limits,
            private_data: told.into_iter().chain(vec![0; pad]).collect(),
        };
        let queue_pair = provider
            .connect(self.address, parameters, self.now)
            .unwrap();
        let pool = self.memory.clone();
        for _ in 0..stated.receives {
            let buffer = pool.try_acquire(Class::for_size(size).unwrap()).unwrap();
            provider.post_receive(queue_pair, buffer).unwrap();
        }
        self.clients.push(Requester {
            provider,
            queue_pair,
            pool,
            received: Vec::new(),
            invalidated: Vec::new(),
            private_data: PrivateData::new(),
            established: false,
            ended: None,
            silent: false,
            fetched: Vec::new(),
        });
        self.settle();
        self.clients.len() - 1
    }

    /// One turn of everybody. Returns the work done.
    pub fn turn(&mut self) -> usize {
        let mut work = 0;
        let alive = |client: &&mut Requester| client.ended.is_none();
        for client in self.clients.iter_mut().filter(alive) {
            work += client.provider.flush(self.now);
        }
        work += self.responder.turn(self.now);
        let hears = |client: &&mut Requester| client.ended.is_none() && !client.silent;
        for client in self.clients.iter_mut().filter(hears) {
            work += client.poll(self.now);
        }
        work
    }

    /// How far those cases of a long list are apart that are tried: an emulated device takes too
    /// long for all of them.
    pub fn stride(&self) -> usize {
        if self.wire.is_real() { 23 } else { 1 }
    }

    /// Turns until nothing more happens at this time.
    pub fn settle(&mut self) {
        let mut rest = self.wire.rest(ROUNDS_MAX);
        while !rest.reached(self.turn()) {}
    }

    /// Lets time pass, then settles.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// Lets the time pass that a reactor without other work would sleep, then settles.
    pub fn sleep(&mut self) {
        let due = self.responder.next_deadline();
        self.now = self.now.max(due.expect("something to wake for"));
        self.settle();
    }

    /// Posts a Send of these bytes.
    pub fn post(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].post(bytes);
    }

    /// Sends a message and settles.
    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        self.post(client, bytes);
        self.settle();
    }

    /// Takes what a requester received.
    pub fn received(&mut self, client: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.clients[client].received)
    }

    /// Sends a message that has exactly one answer.
    #[track_caller]
    pub fn exchange(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.send(client, bytes);
        let mut received = self.received(client);
        assert_eq!(received.len(), 1, "answers: {received:02x?}");
        received.remove(0)
    }

    /// Memory that the responder may read.
    pub fn source(&mut self, client: usize, bytes: &[u8]) -> Memory {
        let memory = self.clients[client].expose(bytes.len(), Access::RemoteRead);
        memory.slice.copy_from(0, bytes);
        memory
    }

    /// Memory that the responder may write, filled with 0xee.
    pub fn sink(&mut self, client: usize, length: usize) -> Memory {
        let memory = self.clients[client].expose(length, Access::RemoteWrite);
        memory.slice.copy_from(0, &vec![0xee; length]);
        memory
    }

    /// Posts an RDMA Read of the responder's memory.
    pub fn post_read(&mut self, client: usize, segment: Segment) {
        self.clients[client].read(segment);
    }

    /// Fetches the responder's memory, segment by segment.
    pub fn fetch(
        &mut self,
        client: usize,
        segments: impl IntoIterator<Item = Segment>,
    ) -> Result<Vec<u8>, WorkError> {
        for segment in segments {
            self.post_read(client, segment);
        }
        self.settle();
        let fetched = std::mem::take(&mut self.clients[client].fetched);
        fetched
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map(|all| all.concat())
    }

    /// Ends a requester's memory.
    pub fn revoke(&mut self, client: usize, memory: &Memory) {
        let requester = &mut self.clients[client];
        let key = memory.exposure.key;
        drop(requester.provider.revoke(requester.queue_pair, key));
    }

    /// Breaks a connection from the requester's side.
    pub fn abort(&mut self, client: usize) {
        let requester = &mut self.clients[client];
        requester.provider.abort(requester.queue_pair);
    }

    /// Closes a connection in order from the requester's side.
    pub fn close(&mut self, client: usize) {
        let requester = &mut self.clients[client];
        requester.provider.close(requester.queue_pair);
        self.settle();
    }

    pub fn is_open(&self, client: usize) -> bool {
        let client = &self.clients[client];
        client.established && client.ended.is_none()
    }

    /// What the responder's provider was asked since the last time.
    pub fn trace(&mut self) -> Vec<Trace> {
        self.notes.borrow_mut().take()
    }

    pub fn calls(&self) -> usize {
        self.responder.calls()
    }

    pub fn connections(&self) -> Vec<Rc<RdmaConnection>> {
        self.responder.connections()
    }

    pub fn refuse(&mut self) {
        self.responder.refuse(self.now);
    }

    /// Whether the responder could end without harm to any call.
    pub fn is_idle(&self) -> bool {
        self.responder.is_idle()
    }

    /// Bytes of the responder's pool in use, receives included.
    pub fn in_use(&self) -> u64 {
        self.shared.pool.gauges().in_use()
    }

    /// Ends all connections and checks that nothing of them is left.
    #[track_caller]
    pub fn check_clean(&mut self) {
        for client in 0..self.clients.len() {
            self.abort(client);
        }
        self.settle();
        assert_eq!(self.calls(), 0, "tasks are left");
        assert_eq!(self.connections().len(), 0);
        assert_eq!(self.shared.completions.pending(), 0, "tasks wait");
        for class in Class::ALL {
            let in_use = self.shared.pool.gauges().class(class).in_use();
            assert_eq!(in_use, 0, "{class:?} buffers are left");
        }
    }

    /// Checks that no call and no receive stands in the accounts of a client, once all its
    /// connections and calls have ended.
    #[track_caller]
    pub fn check_accounts(&self, source: Ipv4Addr) {
        let flow = &self.shared.flow;
        assert_eq!(flow.counters().used.get(), 0, "calls in service");
        let client = flow.client(source.into());
        assert_eq!((client.held(), client.waiting()), (0, 0), "receives held");
        assert_eq!(client.memory().held_bytes(), 0, "memory charged");
    }
}

impl Requester {
    fn post(&mut self, bytes: &[u8]) {
        let class = Class::for_size(bytes.len()).unwrap();
        let mut buffer = self.pool.try_acquire(class).unwrap();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let mut chain = vec![WorkRequest {
            token: 0,
            operation: Operation::Send {
                invalidate: None,
                solicited: false,
            },
            local: std::iter::once(buffer.into_slice(0..bytes.len())).collect(),
            signalled: false,
        }];
        // A connection that has ended takes nothing any more.
        let _ = self.provider.post(self.queue_pair, &mut chain);
    }

    fn read(&mut self, segment: Segment) {
        let length = segment.length as usize;
        let buffer = self.pool.try_acquire(Class::for_size(length).unwrap());
        let mut chain = vec![WorkRequest {
            token: READ,
            operation: Operation::Read(RemoteAddress {
                key: Key(segment.handle),
                offset: segment.offset,
            }),
            local: std::iter::once(buffer.unwrap().into_slice(0..length)).collect(),
            signalled: true,
        }];
        if self.provider.post(self.queue_pair, &mut chain).is_err() {
            self.fetched.push(Err(WorkError::Flushed));
        }
    }

    fn expose(&mut self, length: usize, access: Access) -> Memory {
        let buffer = self.pool.try_acquire(Class::for_size(length).unwrap());
        let slice = buffer.unwrap().into_slice(0..length);
        let local: Slices = std::iter::once(slice.clone()).collect();
        let exposed = self.provider.expose(self.queue_pair, local, access);
        let exposure = exposed.map_err(|(error, _)| error).unwrap();
        Memory { exposure, slice }
    }

    fn poll(&mut self, now: Instant) -> usize {
        let mut events = Vec::with_capacity(64);
        let work = self.provider.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { private_data, .. } => {
                    self.established = true;
                    self.private_data = private_data;
                }
                Event::Received {
                    buffer,
                    length,
                    invalidated,
                    ..
                } => {
                    self.received.push(buffer[..length as usize].to_vec());
                    self.invalidated.extend(invalidated);
                    // The connection may have ended meanwhile.
                    let _ = self.provider.post_receive(self.queue_pair, buffer);
                }
                Event::Disconnected { reason, .. } => self.ended = Some(reason),
                Event::Rejected { .. } => self.ended = Some(Ended::Peer),
                Event::Completed {
                    token: READ,
                    result,
                    local,
                    ..
                } => self.fetched.push(result.map(|()| gather(&local))),
                Event::Completed { .. } | Event::Revoked { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        work
    }
}

/// What the responder made of a requester's private data.
pub fn inline_of(world: &World<impl Serve>) -> Inline {
    world.connections()[0].inline()
}
