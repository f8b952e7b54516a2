//! Calls as a storage server has them, between two providers of one kind, with every allocation
//! of this thread counted.

use std::net::SocketAddr;
use std::time::Instant;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::fabric::chain::{Direction, RemoteSegment, transfer};
use millrace_reactor::fabric::{
    Access, ConnectParameters, Event, Operation, PrivateData, Provider, QueuePairId,
    QueuePairLimits, RemoteAddress, Revoked, Slices, WorkRequest,
};
use millrace_testing::allocation::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 16,
    ird: 4,
    ord: 4,
    exposures: 8,
    receive_size: 4096,
};

const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

/// One provider with its memory.
pub struct Node<P> {
    provider: P,
    pool: Pool,
    events: Vec<Event>,
    chain: Vec<WorkRequest>,
    queue_pair: Option<QueuePairId>,
}

impl<P: Provider> Node<P> {
    /// A node whose provider is made for its memory.
    pub fn new(provider: impl FnOnce(&Registry) -> P) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
        Self {
            provider: provider(&registry),
            pool,
            events: Vec::with_capacity(16),
            chain: Vec::with_capacity(16),
            queue_pair: None,
        }
    }

    fn slice(&self, length: usize) -> Slice {
        let class = Class::for_size(length).unwrap();
        self.pool.try_acquire(class).unwrap().into_slice(0..length)
    }

    fn turn(&mut self) {
        let now = Instant::now();
        self.provider.poll(now, &mut self.events);
        self.provider.flush(now);
    }

    fn post_receives(&mut self, queue_pair: QueuePairId) {
        for _ in 0..LIMITS.receive_depth {
            let buffer = self.pool.try_acquire(Class::Control).unwrap();
            self.provider.post_receive(queue_pair, buffer).unwrap();
        }
    }

    fn push(&mut self, operation: Operation, slice: Slice, signalled: bool) {
        let mut local = Slices::new();
        local.push(slice);
        self.chain.push(WorkRequest {
            token: 0,
            operation,
            local,
            signalled,
        });
    }
}

fn parameters() -> ConnectParameters {
    ConnectParameters {
        limits: LIMITS,
        private_data: PrivateData::new(),
    }
}

fn connect<P: Provider>(mut nodes: [Node<P>; 2], any: SocketAddr) -> [Node<P>; 2] {
    let listener = nodes[1].provider.listen(any, LIMITS, false).unwrap();
    let address = nodes[1].provider.listener_address(listener).unwrap();
    // Receives are there before the peer can send.
    let asking = nodes[0]
        .provider
        .connect(address, parameters(), Instant::now())
        .unwrap();
    nodes[0].post_receives(asking);
    while nodes.iter().any(|node| node.queue_pair.is_none()) {
        for node in &mut nodes {
            node.turn();
            for event in std::mem::take(&mut node.events) {
                match event {
                    Event::ConnectRequest { queue_pair, .. } => {
                        node.post_receives(queue_pair);
                        node.provider.accept(queue_pair, parameters()).unwrap();
                    }
                    Event::Established { queue_pair, .. } => {
                        node.queue_pair = Some(queue_pair);
                    }
                    other => panic!("{other:?}"),
                }
            }
            node.events.reserve_exact(16);
        }
        std::thread::yield_now();
    }
    nodes
}

/// One exchange as a storage server has it: the client exposes memory to read and to write and
/// calls; the server reads the one, writes the other, and replies.
fn exchange<P: Provider>([client, server]: &mut [Node<P>; 2]) {
    let (here, there) = (client.queue_pair.unwrap(), server.queue_pair.unwrap());
    let expose = |client: &mut Node<P>, access| {
        let mut local = Slices::new();
        local.push(client.slice(60_000));
        client.provider.expose(here, local, access).unwrap()
    };
    let source = expose(client, Access::RemoteRead);
    let sink = expose(client, Access::RemoteWrite);
    let call = client.slice(100);
    client.push(SEND, call, false);
    client.provider.post(here, &mut client.chain).unwrap();
    let (mut replied, mut fetched) = (false, None);
    while !replied {
        client.turn();
        server.turn();
        while let Some(event) = server.events.pop() {
            match event {
                Event::Received { buffer, .. } => {
                    server.provider.post_receive(there, buffer).unwrap();
                    let segment = RemoteSegment {
                        address: RemoteAddress {
                            key: source.key,
                            offset: source.offset,
                        },
                        length: 60_000,
                    };
                    // In more pieces than one work request holds.
                    let memory = server.slice(60_000);
                    let pieces: [Slice; 10] =
                        std::array::from_fn(|n| memory.slice(n * 6000..(n + 1) * 6000));
                    let slices = server.provider.read_slices(there);
                    let direction = Direction::FromPeer { slices };
                    transfer(direction, &pieces, [segment], &mut server.chain);
                    server.chain.last_mut().unwrap().signalled = true;
                    fetched = Some(memory);
                }
                Event::Completed { result, .. } => {
                    result.unwrap();
                    let write = Operation::Write(RemoteAddress {
                        key: sink.key,
                        offset: sink.offset,
                    });
                    let memory = fetched.take().unwrap();
                    server.push(write, memory, false);
                    let reply = server.slice(100);
                    server.push(SEND, reply, false);
                }
                other => panic!("{other:?}"),
            }
            server.provider.post(there, &mut server.chain).unwrap();
        }
        while let Some(event) = client.events.pop() {
            let Event::Received { buffer, .. } = event else {
                panic!("{event:?}");
            };
            client.provider.post_receive(here, buffer).unwrap();
            replied = true;
        }
        std::thread::yield_now();
    }
    let mut dying = 0;
    for key in [source.key, sink.key] {
        match client.provider.revoke(here, key) {
            Revoked::Now(_) => {}
            Revoked::Later => dying += 1,
            Revoked::Unknown => panic!("it was exposed"),
        }
    }
    while dying > 0 {
        client.turn();
        server.turn();
        while let Some(event) = client.events.pop() {
            assert!(matches!(event, Event::Revoked { .. }), "{event:?}");
            dying -= 1;
        }
        std::thread::yield_now();
    }
}

/// Connects two nodes, the second listening at a port of this address, and lets them work, a while
/// to warm up and then so many times. Returns what was allocated in that time.
pub fn allocations<P: Provider>(nodes: [Node<P>; 2], any: SocketAddr, calls: u32) -> u64 {
    let mut nodes = connect(nodes, any);
    for _ in 0..100 {
        exchange(&mut nodes);
    }
    allocation::allocations(|| (0..calls).for_each(|_| exchange(&mut nodes)))
}
