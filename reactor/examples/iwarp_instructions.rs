//! The instructions that software iWARP executes for a call, without RPC, NFS and a store.
//!
//! A client and a server take turns on one thread, with 32 calls in flight, so that a count of
//! instructions is the same in every run. The functions `serve_turn` and `drive_turn` are one turn
//! of each side:
//!
//! `valgrind --tool=callgrind --toggle-collect='*serve_turn*' iwarp_instructions LOAD CALLS`
//!
//! `LOAD` is `getattr` (a Send and its reply), `read` (a 4 KiB Write before the reply) or `write`
//! (a 4 KiB Read before the reply). Two runs of different length give the instructions of a call.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{
    Class, HugepagePolicy, MemoryAccount, MemoryShare, Pool, PoolConfig, Registry, Slice,
};
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_reactor::fabric::{
    Access, ConnectParameters, ControlPath, DataPath, Event, Exposure, Key, Operation, PrivateData,
    QueuePairId, QueuePairLimits, RemoteAddress, Revoked, Slices, WorkRequest,
};

const MESSAGE: usize = 128;
const DATA: usize = 4096;
const IN_FLIGHT: usize = 32;
const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 256,
    receive_depth: 128,
    ird: 64,
    ord: 64,
    exposures: 64,
    receive_size: 4096,
};

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Getattr,
    Read,
    Write,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let load = match arguments.next().as_deref() {
        Some("getattr") => Load::Getattr,
        Some("read") => Load::Read,
        Some("write") => Load::Write,
        _ => panic!("the first argument is getattr, read or write"),
    };
    let calls = arguments.next().and_then(|count| count.parse().ok());
    let calls: u64 = calls.expect("the second argument is a number of calls");
    let mut server = Server {
        side: Side::new(),
        load,
        data: Vec::new(),
    };
    server.data = (0..IN_FLIGHT).map(|_| server.side.slice(DATA)).collect();
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = server.side.provider.listen(any, LIMITS, false);
    let address = server
        .side
        .provider
        .listener_address(listener.expect("a listener"));
    let mut client = Client::new(load, address.expect("bound"));
    let mut turns = 0_u64;
    while client.replies < calls {
        let now = Instant::now();
        serve_turn(&mut server, now);
        drive_turn(&mut client, now);
        turns += 1;
    }
    println!("{} calls in {turns} turns", client.replies);
    for provider in [&server.side.provider, &client.side.provider] {
        let counters = provider.counters();
        println!(
            "{} receiving calls, {} sending calls, {} polls, {} FPDUs in, {} out",
            counters.receive_calls.get(),
            counters.send_calls.get(),
            counters.ready_calls.get(),
            counters.frames_in.get(),
            counters.frames_out.get()
        );
    }
}

/// What both sides have.
struct Side {
    provider: Iwarp,
    pool: Pool,
    account: Rc<MemoryAccount>,
    chain: Vec<WorkRequest>,
    events: Vec<Event>,
}

impl Side {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        Self {
            provider: Iwarp::new(IwarpConfig::default()).expect("a provider"),
            pool: Pool::new(&registry, PoolConfig { bytes: 64 << 20 }).expect("memory"),
            account: MemoryAccount::new(&Rc::new(MemoryShare::new())),
            chain: Vec::with_capacity(256),
            events: Vec::with_capacity(256),
        }
    }

    fn slice(&self, length: usize) -> Slice {
        let buffer = self
            .pool
            .try_acquire(Class::for_size(length).expect("a class"));
        buffer.expect("a free buffer").into_slice(0..length)
    }

    fn receives(&mut self, queue_pair: QueuePairId) {
        for _ in 0..LIMITS.receive_depth {
            let buffer = self.pool.try_acquire(Class::Control).expect("a buffer");
            let posted = self.provider.post_receive(queue_pair, buffer);
            posted.expect("space for a receive");
        }
    }
}

fn request(token: u64, operation: Operation, slice: Slice, signalled: bool) -> WorkRequest {
    let mut local = Slices::new();
    local.push(slice);
    WorkRequest {
        token,
        operation,
        local,
        signalled,
    }
}

const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

fn parameters() -> ConnectParameters {
    ConnectParameters {
        limits: LIMITS,
        private_data: PrivateData::new(),
    }
}

struct Server {
    side: Side,
    load: Load,
    data: Vec<Slice>,
}

impl Server {
    fn reply(&mut self, queue_pair: QueuePairId, xid: u64) {
        let Side {
            provider,
            pool,
            account,
            chain,
            ..
        } = &mut self.side;
        let charging = pool.charging(account, false);
        let mut buffer = pool.try_obtain(Class::Control).expect("a free buffer");
        drop(charging);
        buffer[..8].copy_from_slice(&xid.to_be_bytes());
        chain.push(request(
            u64::MAX,
            SEND,
            buffer.into_slice(0..MESSAGE),
            false,
        ));
        provider.post(queue_pair, chain).expect("space for a reply");
    }

    fn call(&mut self, queue_pair: QueuePairId, buffer: &[u8]) {
        let (xid, rest) = buffer.split_first_chunk().expect("an XID");
        let xid = u64::from_be_bytes(*xid);
        let (key, rest) = rest.split_first_chunk().expect("a key");
        let (offset, _) = rest.split_first_chunk().expect("an offset");
        let remote = RemoteAddress {
            key: Key(u32::from_be_bytes(*key)),
            offset: u64::from_be_bytes(*offset),
        };
        let data = &self.data[xid as usize % IN_FLIGHT];
        match self.load {
            Load::Getattr => {}
            Load::Read => {
                let write = request(u64::MAX, Operation::Write(remote), data.clone(), false);
                self.side.chain.push(write);
            }
            Load::Write => {
                let read = request(xid, Operation::Read(remote), data.clone(), true);
                self.side.chain.push(read);
                let posted = self.side.provider.post(queue_pair, &mut self.side.chain);
                return posted.expect("space for a Read");
            }
        }
        self.reply(queue_pair, xid);
    }
}

#[inline(never)]
fn serve_turn(server: &mut Server, now: Instant) {
    let mut events = std::mem::take(&mut server.side.events);
    server.side.provider.poll(now, &mut events);
    for event in events.drain(..) {
        match event {
            Event::ConnectRequest { queue_pair, .. } => {
                server.side.receives(queue_pair);
                let accepted = server.side.provider.accept(queue_pair, parameters());
                accepted.expect("accepted");
            }
            Event::Received {
                queue_pair, buffer, ..
            } => {
                server.call(queue_pair, &buffer);
                let posted = server.side.provider.post_receive(queue_pair, buffer);
                posted.expect("space for a receive");
            }
            Event::Completed {
                queue_pair, token, ..
            } => {
                server.reply(queue_pair, token);
            }
            Event::Disconnected { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
    server.side.events = events;
    server.side.provider.flush(now);
}

struct Client {
    side: Side,
    load: Load,
    queue_pair: QueuePairId,
    data: Vec<Slice>,
    exposures: Vec<Option<Exposure>>,
    replies: u64,
}

impl Client {
    fn new(load: Load, address: SocketAddr) -> Self {
        let mut side = Side::new();
        let queue_pair = side.provider.connect(address, parameters(), Instant::now());
        let queue_pair = queue_pair.expect("a connection");
        side.receives(queue_pair);
        Self {
            load,
            queue_pair,
            data: (0..IN_FLIGHT).map(|_| side.slice(DATA)).collect(),
            exposures: vec![None; IN_FLIGHT],
            side,
            replies: 0,
        }
    }

    /// Queues a call, with memory exposed for it alone.
    fn call(&mut self, index: usize) {
        let access = match self.load {
            Load::Getattr => None,
            Load::Read => Some(Access::RemoteWrite),
            Load::Write => Some(Access::RemoteRead),
        };
        let mut buffer = self.side.pool.try_obtain(Class::Control).expect("a buffer");
        buffer[..8].copy_from_slice(&(index as u64).to_be_bytes());
        if let Some(access) = access {
            let mut local = Slices::new();
            local.push(self.data[index].clone());
            let exposed = self.side.provider.expose(self.queue_pair, local, access);
            let exposure = exposed.expect("a free exposure");
            buffer[8..12].copy_from_slice(&exposure.key.0.to_be_bytes());
            buffer[12..20].copy_from_slice(&exposure.offset.to_be_bytes());
            self.exposures[index] = Some(exposure);
        }
        let message = buffer.into_slice(0..MESSAGE);
        self.side
            .chain
            .push(request(u64::MAX, SEND, message, false));
    }

    fn answered(&mut self, xid: u64) {
        let index = xid as usize;
        if let Some(exposure) = self.exposures[index].take() {
            let revoked = self.side.provider.revoke(self.queue_pair, exposure.key);
            assert!(matches!(revoked, Revoked::Now(_)), "no Read is open");
        }
        self.replies += 1;
        self.call(index);
    }
}

#[inline(never)]
fn drive_turn(client: &mut Client, now: Instant) {
    let mut events = std::mem::take(&mut client.side.events);
    client.side.provider.poll(now, &mut events);
    for event in events.drain(..) {
        match event {
            Event::Established { .. } => (0..IN_FLIGHT).for_each(|index| client.call(index)),
            Event::Received { buffer, .. } => {
                let xid = buffer.first_chunk().expect("an XID");
                client.answered(u64::from_be_bytes(*xid));
                let posted = client.side.provider.post_receive(client.queue_pair, buffer);
                posted.expect("space for a receive");
            }
            Event::Disconnected { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
    client.side.events = events;
    if !client.side.chain.is_empty() {
        let Side {
            provider, chain, ..
        } = &mut client.side;
        provider.post(client.queue_pair, chain).expect("space");
    }
    client.side.provider.flush(now);
}
