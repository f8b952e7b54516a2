//! A scripted server: it sees every byte, says what it is told to, and
//! can do RDMA Reads and Writes of its own. One thread, and a clock that only tests turn.

mod classic;
mod seen;
mod traced;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_bench::requester::{
    Call, CallError, CallId, Completion, Connection, Data, Identity, RequesterState, Settings,
    SubmitError,
};
use millrace_mempool::{Buffer, Class, Pool, PoolConfig, Slice};
use millrace_reactor::fabric::testing::{Wire, Wired, registry};
use millrace_reactor::fabric::{
    ConnectParameters, ControlPath, DataPath, Event, Key, Operation, QueuePairId, QueuePairLimits,
    RemoteAddress, WorkError, WorkRequest,
};
use millrace_wire::nfs3::{FileHandle, GetattrResults, Procedure, Status};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{Accepted, MessageType, answer_to};
use millrace_wire::rpcrdma::{
    CallChunks, Lists, Outgoing, Segment, Version, Versions, encode_header,
};
use millrace_wire::xdr::{Encode, Encoder};

use crate::VERSION;

pub use classic::{at, classic};
pub use seen::Seen;
pub use traced::{Step, Trace, Traced};

/// How a call ended, kept for the test to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub token: u64,
    pub result: Result<(Vec<u8>, Vec<Option<u32>>), CallError>,
    /// Steps that had been taken when the owner was told.
    pub step: usize,
}

/// What the server is like.
#[derive(Clone, Copy)]
pub struct Peer {
    pub private_data: Option<PrivateData>,
    /// Bytes of private data at least: zeros fill up, as where the network carries it in a field.
    pub padded: usize,
    pub receives: usize,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            private_data: Some(PrivateData {
                remote_invalidation: false,
                send_size: 4096,
                receive_size: 4096,
            }),
            padded: 0,
            receives: 64,
        }
    }
}

pub struct Raw {
    wire: Wire,
    pub client: Traced,
    pub server: Wired,
    pub connection: Connection,
    pub pool: Pool,
    server_pool: Pool,
    pub peer: Peer,
    /// The server's end of the newest connection.
    pub queue_pair: Option<QueuePairId>,
    pub inbox: VecDeque<Seen>,
    pub done: Vec<Done>,
    pub trace: Trace,
    pub now: Instant,
    /// Events of the server that are neither messages nor connections.
    pub work: Vec<(u64, Result<(), WorkError>)>,
    pub disconnects: usize,
    /// Bytes of private data of the newest connection's request.
    pub asked: usize,
    /// The call submitted last.
    pub last: Option<CallId>,
}

pub fn settings() -> Settings {
    Settings {
        versions: Versions::new(VERSION, VERSION),
        credits: 16,
        calls: 64,
        first_xid: Some(0x1000_0000),
        identity: Identity::system("client", 1, 2, &[3]),
        ..Settings::default()
    }
}

pub fn handle() -> FileHandle {
    FileHandle::new(&[7; 32]).expect("short")
}

impl Raw {
    /// As many calls as are in the connection's hands end, each answered with this grant.
    pub fn answer_all(&mut self, credits: u32) {
        while let Some(call) = self.inbox.pop_front() {
            self.answer(&call, credits, &stale());
        }
    }

    /// A connection that stands, its version agreed on.
    pub fn new(settings: Settings, peer: Peer) -> Self {
        let mut raw = Self::bare(settings, peer);
        raw.agree();
        raw
    }

    /// Answers the first message of version two, with a grant of one.
    fn agree(&mut self) {
        if VERSION == Version::Two {
            let call = self.next();
            self.answer(&call, 1, &());
        }
    }

    /// A connection that has begun, on which nothing was answered.
    pub fn bare(settings: Settings, peer: Peer) -> Self {
        let wire = Wire::new();
        let mut server = wire.provider();
        let registry = registry();
        let pool = || Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
        let (client_pool, server_pool) = (pool(), pool());
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = server.listen(anywhere, LIMITS, false).expect("a free port");
        let address = server.listener_address(listener).expect("listening");
        let trace = Trace::default();
        let mut client = Traced {
            inner: wire.provider(),
            trace: Rc::clone(&trace),
            invalidates: true,
            next_key: None,
            meanwhile: None,
            holds_on: false,
            full: false,
        };
        let now = Instant::now();
        let connection = Connection::connect(&mut client, &client_pool, address, settings, now)
            .expect("connects");
        let mut raw = Self {
            wire,
            client,
            server,
            connection,
            pool: client_pool,
            server_pool,
            peer,
            queue_pair: None,
            inbox: VecDeque::new(),
            done: Vec::new(),
            trace,
            now,
            work: Vec::new(),
            disconnects: 0,
            asked: 0,
            last: None,
        };
        raw.settle();
        raw
    }

    /// A connection whose window is open: one NULL was answered with this grant.
    pub fn open(settings: Settings, peer: Peer, grant: u32) -> Self {
        let mut raw = Self::new(settings, peer);
        raw.open_window(grant);
        raw
    }

    pub fn open_window(&mut self, grant: u32) {
        self.null(u64::MAX);
        let call = self.next();
        self.answer(&call, grant, &());
        assert_eq!(self.done.pop().map(|done| done.token), Some(u64::MAX));
    }

    /// What the client's side says when a call is cancelled.
    pub fn cancel(&mut self, id: CallId) -> bool {
        let done = RefCell::new(&mut self.done);
        let step = self.trace.borrow().len();
        let mut sink = |completion: Completion<'_>| {
            done.borrow_mut().push(Done {
                token: completion.token,
                result: completion.result.map(|_| (Vec::new(), Vec::new())),
                step,
            });
        };
        self.connection.cancel(&mut self.client, id, &mut sink)
    }

    /// Lets everything happen that can happen at this time.
    pub fn settle(&mut self) {
        let mut rest = self.wire.rest(10_000);
        while !rest.reached(self.client_turn() + self.server_turn()) {}
    }

    /// One pass of the client.
    pub fn client_turn(&mut self) -> usize {
        let done = RefCell::new(&mut self.done);
        let trace = Rc::clone(&self.trace);
        let mut sink = |completion: Completion<'_>| {
            done.borrow_mut().push(Done {
                token: completion.token,
                result: completion
                    .result
                    .map(|reply| (reply.message.to_vec(), reply.written.to_vec())),
                step: trace.borrow().len(),
            });
        };
        let mut events = Vec::with_capacity(64);
        let mut work = self.client.poll(self.now, &mut events);
        for event in events {
            self.connection
                .handle(&mut self.client, event, self.now, &mut sink);
        }
        self.connection
            .expire(&mut self.client, self.now, &mut sink);
        work += self.connection.pump(&mut self.client, &mut sink);
        work + self.client.flush(self.now)
    }

    /// One pass of the server.
    pub fn server_turn(&mut self) -> usize {
        let mut events = Vec::with_capacity(64);
        let work = self.server.poll(self.now, &mut events);
        for event in events {
            self.serve(event);
        }
        work + self.server.flush(self.now)
    }

    fn serve(&mut self, event: Event) {
        match event {
            Event::ConnectRequest {
                queue_pair,
                private_data,
                ..
            } => {
                self.queue_pair = Some(queue_pair);
                self.asked = private_data.len();
                for _ in 0..self.peer.receives {
                    self.post_receive();
                }
                let private_data = self.peer.private_data.map(|message| message.to_bytes());
                let told: Vec<u8> = private_data.iter().flatten().copied().collect();
                let pad = self.peer.padded.saturating_sub(told.len());
                let parameters = ConnectParameters {
                    limits: LIMITS,
                    private_data: told.into_iter().chain(vec![0; pad]).collect(),
                };
                self.server
                    .accept(queue_pair, parameters)
                    .expect("just asked");
            }
            Event::Received { buffer, length, .. } => {
                self.inbox.push_back(Seen::read(&buffer[..length as usize]));
                self.post_receive();
            }
            Event::Completed { token, result, .. } => self.work.push((token, result)),
            Event::Disconnected { .. } => {
                self.disconnects += 1;
                self.queue_pair = None;
            }
            _ => {}
        }
    }

    fn post_receive(&mut self) {
        let buffer = self.server_pool.try_acquire(Class::Control).expect("free");
        let queue_pair = self.queue_pair.expect("connected");
        // Of a connection that is ending, nothing more is expected.
        let _ = self.server.post_receive(queue_pair, buffer);
    }

    pub fn advance(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    pub fn try_submit<A: Encode>(&mut self, call: &Call<'_, A>) -> Result<CallId, SubmitError> {
        self.connection.submit(call, self.now)
    }

    /// Submits and lets things happen.
    pub fn submit<A: Encode>(&mut self, call: &Call<'_, A>) -> CallId {
        let id = self.try_submit(call).expect("taken");
        self.last = Some(id);
        self.settle();
        id
    }

    pub fn null(&mut self, token: u64) -> CallId {
        self.submit(&Call::nfs3(token, Procedure::Null, (), 0))
    }

    pub fn getattr(&mut self, token: u64) -> CallId {
        self.submit(&Call::nfs3(token, Procedure::Getattr, handle(), 0))
    }

    /// The oldest message that the server has not looked at.
    pub fn next(&mut self) -> Seen {
        self.inbox.pop_front().expect("a call arrived")
    }

    /// Memory of the client with a pattern in it.
    pub fn memory(&self, length: usize) -> Slice {
        let class = Class::for_size(length).expect("not too large");
        let mut buffer = self.pool.try_acquire(class).expect("free");
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = (index % 251) as u8;
        }
        buffer.into_slice(0..length)
    }

    /// Takes all memory that the client has left.
    pub fn hoard(&self) -> Vec<Buffer> {
        let take = || {
            Class::ALL
                .iter()
                .find_map(|&class| self.pool.try_acquire(class))
        };
        std::iter::from_fn(take).collect()
    }

    /// Sends bytes to the client.
    pub fn send_with(&mut self, message: &[u8], invalidate: Option<Key>) {
        self.post_message(message, invalidate);
        self.settle();
    }

    /// The same without letting anything happen yet.
    pub fn post_send(&mut self, message: &[u8]) {
        self.post_message(message, None);
    }

    fn post_message(&mut self, message: &[u8], invalidate: Option<Key>) {
        let class = Class::for_size(message.len()).expect("not too long");
        let mut buffer = self.server_pool.try_acquire(class).expect("free");
        buffer[..message.len()].copy_from_slice(message);
        let local = std::iter::once(buffer.into_slice(0..message.len())).collect();
        self.post(
            Operation::Send {
                invalidate,
                solicited: false,
            },
            local,
        );
    }

    pub fn send(&mut self, message: &[u8]) {
        self.send_with(message, None);
    }

    fn post(&mut self, operation: Operation, local: millrace_reactor::fabric::Slices) {
        let mut chain = vec![WorkRequest {
            token: 1,
            operation,
            local,
            signalled: true,
        }];
        let queue_pair = self.queue_pair.expect("connected");
        self.server.post(queue_pair, &mut chain).expect("room");
    }

    fn transfer(&mut self, operation: Operation, memory: &Slice) -> Result<(), WorkError> {
        self.work.clear();
        self.post(operation, std::iter::once(memory.clone()).collect());
        self.settle();
        self.work.pop().expect("signalled").1
    }

    /// RDMA Read of a segment.
    pub fn fetch(&mut self, segment: &Segment) -> Result<Vec<u8>, WorkError> {
        let length = segment.length as usize;
        let class = Class::for_size(length).expect("not too long");
        let memory = self.server_pool.try_acquire(class).expect("free");
        let memory = memory.into_slice(0..length);
        self.transfer(Operation::Read(address(segment)), &memory)?;
        let mut bytes = vec![0; length];
        memory.copy_to(0, &mut bytes);
        Ok(bytes)
    }

    /// RDMA Reads of segments, joined.
    pub fn fetch_all(&mut self, segments: &[Segment]) -> Vec<u8> {
        let parts = segments.iter().map(|segment| self.fetch(segment));
        parts
            .collect::<Result<Vec<_>, _>>()
            .expect("readable")
            .concat()
    }

    /// RDMA Write to the front of a segment.
    pub fn place(&mut self, segment: &Segment, bytes: &[u8]) -> Result<(), WorkError> {
        let class = Class::for_size(bytes.len()).expect("not too long");
        let mut memory = self.server_pool.try_acquire(class).expect("free");
        memory[..bytes.len()].copy_from_slice(bytes);
        let memory = memory.into_slice(0..bytes.len());
        self.transfer(Operation::Write(address(segment)), &memory)
    }

    /// RDMA Writes over segments, each filled before the next; returns the lengths written.
    pub fn place_all(&mut self, segments: &[Segment], mut bytes: &[u8]) -> Vec<Segment> {
        let mut filled = Vec::new();
        for segment in segments {
            let (now, later) = bytes.split_at(bytes.len().min(segment.length as usize));
            if !now.is_empty() {
                self.place(segment, now).expect("writable");
            }
            filled.push(Segment {
                length: now.len() as u32,
                ..*segment
            });
            bytes = later;
        }
        assert!(bytes.is_empty(), "more than was offered");
        filled
    }

    /// Answers a call inline, its write list and reply chunk returned empty.
    pub fn answer(&mut self, call: &Seen, credits: u32, results: &dyn Encode) {
        let rpc = success(call.xid, results);
        let writes: Vec<Vec<Segment>> = call.writes.iter().map(|chunk| emptied(chunk)).collect();
        let reply = call.reply.as_ref().map(|chunk| emptied(chunk));
        let version = Version::from_number(call.version).expect("known");
        self.send(&message_in(
            version,
            call.xid,
            credits,
            &writes,
            reply.as_deref(),
            Some(&rpc),
        ));
    }

    pub fn answer_error(&mut self, xid: u32, credits: u32, words: &[u32]) {
        let words = [&[xid, VERSION.number(), credits, 4], words].concat();
        self.send(&bytes(&words));
    }

    /// The connection breaks, from the server's side.
    pub fn break_off(&mut self) {
        let queue_pair = self.queue_pair.take().expect("connected");
        self.server.abort(queue_pair);
        self.settle();
    }

    pub fn reconnect(&mut self) {
        self.connection
            .reconnect(&mut self.client, self.now)
            .expect("connects");
        self.settle();
        if self.connection.state() == &RequesterState::Negotiating {
            self.agree();
        }
    }

    pub fn steps(&self) -> Vec<Step> {
        self.trace.borrow().clone()
    }

    pub fn tokens(&self) -> Vec<u64> {
        self.done.iter().map(|done| done.token).collect()
    }
}

/// Bytes of a header without chunks.
pub const SHORTEST: usize = VERSION.before_lists() + Lists::EMPTY_LENGTH;

/// How a call ends whose header the server cannot use.
pub const HEADER_ERROR: CallError = match VERSION {
    Version::One => CallError::Chunk,
    Version::Two => CallError::BadXdr,
};

pub const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 256,
    receive_depth: 256,
    ird: 16,
    ord: 16,
    exposures: 256,
    receive_size: 4096,
};

pub fn address(segment: &Segment) -> RemoteAddress {
    RemoteAddress {
        key: Key(segment.handle),
        offset: segment.offset,
    }
}

pub fn emptied(chunk: &[Segment]) -> Vec<Segment> {
    let empty = |segment: &Segment| Segment {
        length: 0,
        ..*segment
    };
    chunk.iter().map(empty).collect()
}

/// The words of a reply up to its lists, and what stands there.
pub fn front(xid: u32, credits: u32, kind: u32, lists: &[u32]) -> Vec<u32> {
    let first = [xid, VERSION.number(), credits, kind];
    let second: &[u32] = match VERSION {
        Version::One => &[],
        Version::Two => &[1, 0],
    };
    [&first, second, lists].concat()
}

/// What a client tells that takes 1024 bytes.
pub fn small_sizes() -> Option<PrivateData> {
    Some(PrivateData {
        remote_invalidation: true,
        send_size: 1024,
        receive_size: 1024,
    })
}

pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A call of a program that has no binding.
pub fn unbound<A>(arguments: A, largest_reply: usize) -> Call<'static, A> {
    Call {
        token: 1,
        program: 400_000,
        version: 1,
        procedure: 1,
        arguments,
        data: Data::None,
        sinks: &[],
        largest_reply,
    }
}

/// An RPC reply that succeeded, with these results.
pub fn success(xid: u32, results: &dyn Encode) -> Vec<u8> {
    let mut message = vec![0; 1 << 17];
    let mut out = Encoder::new(&mut message);
    answer_to(xid, Accepted::Success)
        .encode(&mut out)
        .expect("room");
    results.encode(&mut out).expect("room");
    let length = out.position();
    message.truncate(length);
    message
}

/// A whole message; without `rpc` an RDMA_NOMSG.
pub fn message(
    xid: u32,
    credits: u32,
    writes: &[Vec<Segment>],
    reply: Option<&[Segment]>,
    rpc: Option<&[u8]>,
) -> Vec<u8> {
    message_in(VERSION, xid, credits, writes, reply, rpc)
}

/// The same in a version.
pub fn message_in(
    version: Version,
    xid: u32,
    credits: u32,
    writes: &[Vec<Segment>],
    reply: Option<&[Segment]>,
    rpc: Option<&[u8]>,
) -> Vec<u8> {
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let chunks = CallChunks {
        reads: &[],
        writes: &writes,
        reply,
    };
    with_chunks(version, xid, credits, &chunks, rpc)
}

/// The same with all three lists.
pub fn with_chunks(
    version: Version,
    xid: u32,
    credits: u32,
    chunks: &CallChunks<'_>,
    rpc: Option<&[u8]>,
) -> Vec<u8> {
    let mut message = vec![0; 4096];
    let mut out = Encoder::new(&mut message);
    let header = Outgoing {
        version,
        xid,
        credits,
        inline: rpc.is_some(),
        direction: MessageType::Reply,
        invalidate: 0,
    };
    encode_header(&mut out, &header, chunks).expect("room");
    let length = out.position();
    message.truncate(length);
    message.extend_from_slice(rpc.unwrap_or_default());
    message
}

/// A GETATTR that fails: results of every procedure may be no more than a status.
pub fn stale() -> GetattrResults {
    Err(millrace_wire::nfs3::Failure {
        status: Status::Stale,
        detail: (),
    })
}
