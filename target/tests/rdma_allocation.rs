//! Steady calls over RDMA take no memory from the heap, from the receive to the reply: through the
//! responder and the software iWARP provider, over TCP on this host, on one thread; or through RDMA
//! devices, where `MILLRACE_TEST_FABRIC=verbs:ADDRESS` names an address of one. There each call
//! makes do with one or two lists of work requests, and nothing is registered for it.

mod support;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;

use millrace::handle::HandleKey;
use millrace::rdma::{FabricSlot, Responder, ResponderShared, Settings, work};
use millrace_mempool::{Class, Pool, PoolConfig, Slice};
use millrace_reactor::Clock;
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_reactor::fabric::testing::registry;
use millrace_reactor::fabric::{
    Access, AnyProvider, ConnectParameters, ControlPath, Event, Exposure, Operation, Provider,
    QueuePairId, QueuePairLimits, WorkRequest,
};
use millrace_store::Store;
use millrace_testing::allocation::{CountingAllocator, allocations};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, SetAttributes,
};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::{CallChunks, Segment, Version};
use millrace_wire::xdr::{Bulk, from_bytes};
use support::message::{inline, nfs, parse, plain, reads, speak};
use support::served::{status, write};
use support::{SECRET, memory_store, results, rules, service};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 1024,
    receive_depth: 64,
    ird: 16,
    ord: 16,
    exposures: 16,
    receive_size: 4096,
};

/// Calls of each kind that are counted.
const ROUNDS: u64 = 50;

/// What carries the calls: an address, the server's provider and the client's, and what the server
/// has done, where that is counted.
struct Fabric {
    host: IpAddr,
    server: AnyProvider,
    client: Box<dyn Provider>,
    done: Option<Box<dyn Fn() -> Done>>,
}

/// What a provider on devices has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    /// Lists of sends and of receives handed to the device.
    lists: [u64; 2],
    /// What takes the kernel: memory registered, windows bound, queues armed, connections.
    kernel: [u64; 4],
}

impl Fabric {
    fn new() -> Self {
        #[cfg(feature = "verbs")]
        if let Some((devices, address)) = millrace_reactor::fabric::testing::devices() {
            return Self::on(&devices, address.into());
        }
        let provider = || Iwarp::new(IwarpConfig::default()).unwrap();
        Self {
            host: Ipv4Addr::LOCALHOST.into(),
            server: AnyProvider::Iwarp(Box::new(provider())),
            client: Box::new(provider()),
            done: None,
        }
    }

    #[cfg(feature = "verbs")]
    fn on(devices: &millrace_reactor::fabric::verbs::Devices, host: IpAddr) -> Self {
        use millrace_reactor::fabric::verbs::{Verbs, VerbsConfig};

        let provider = || Verbs::new(devices, VerbsConfig::default()).unwrap();
        let (server, client) = (provider(), provider());
        let counters = server.counters();
        let done = move || Done {
            lists: [&counters.send_doorbells, &counters.receive_doorbells]
                .map(millrace_primitives::Counter::get),
            kernel: [
                &counters.registrations,
                &counters.windows_bound,
                &counters.armed,
                &counters.connection_events,
            ]
            .map(millrace_primitives::Counter::get),
        };
        Self {
            host,
            server: AnyProvider::Verbs(Box::new(server)),
            client: Box::new(client),
            done: Some(Box::new(done)),
        }
    }
}

/// The requester, and the responder's turn that is counted.
struct Both<T> {
    client: Box<dyn Provider>,
    pool: Pool,
    queue_pair: QueuePairId,
    events: Vec<Event>,
    turn: T,
    /// Allocations in all turns.
    allocated: u64,
}

impl<T: FnMut(Instant)> Both<T> {
    fn turn(&mut self) {
        let now = Instant::now();
        self.client.flush(now);
        self.client.poll(now, &mut self.events);
        self.allocated += allocations(|| (self.turn)(now));
    }

    fn established(&mut self) {
        while !matches!(self.events.pop(), Some(Event::Established { .. })) {
            self.turn();
        }
    }

    fn exchange(&mut self, message: &[u8]) -> Vec<u8> {
        let mut buffer = self.pool.try_acquire(Class::Control).unwrap();
        buffer[..message.len()].copy_from_slice(message);
        let operation = Operation::Send {
            invalidate: None,
            solicited: false,
        };
        let mut chain = vec![WorkRequest {
            token: 0,
            operation,
            local: std::iter::once(buffer.into_slice(0..message.len())).collect(),
            signalled: false,
        }];
        self.client.post(self.queue_pair, &mut chain).unwrap();
        loop {
            match self.events.pop() {
                None => self.turn(),
                Some(Event::Received { buffer, length, .. }) => {
                    let received = buffer[..length as usize].to_vec();
                    let posted = self.client.post_receive(self.queue_pair, buffer);
                    posted.map_err(|(error, _)| error).unwrap();
                    return received;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    fn expose(&mut self, access: Access) -> (Slice, Exposure) {
        let slice = self.pool.try_acquire(Class::Large).unwrap();
        let slice = slice.into_slice(0..1 << 20);
        let local = std::iter::once(slice.clone()).collect();
        let exposed = self.client.expose(self.queue_pair, local, access);
        (slice, exposed.map_err(|(error, _)| error).unwrap())
    }
}

fn segments(exposure: &Exposure, lengths: &[u32]) -> Vec<Segment> {
    let mut offset = exposure.offset;
    let mut next = |&length: &u32| {
        let segment = Segment {
            handle: exposure.key.0,
            length,
            offset,
        };
        offset += u64::from(length);
        segment
    };
    lengths.iter().map(&mut next).collect()
}

fn write_call(file: FileHandle, source: &Exposure, cut: &[u32]) -> Vec<u8> {
    let length = cut.iter().sum();
    let rpc = nfs(1, Procedure::Write, &write(file, 0, Bulk::apart(length)));
    let chunks = CallChunks {
        reads: &reads(rpc.len(), &segments(source, cut)),
        ..CallChunks::default()
    };
    inline(&chunks, &rpc)
}

fn read_call(file: FileHandle, count: u32, sink: Option<(&Exposure, &[u32])>) -> Vec<u8> {
    let arguments = ReadArguments {
        file,
        offset: 0,
        count,
    };
    let rpc = nfs(2, Procedure::Read, &arguments);
    match sink {
        None => plain(&rpc),
        Some((sink, cut)) => {
            let chunks = CallChunks {
                writes: &[&segments(sink, cut)],
                ..CallChunks::default()
            };
            inline(&chunks, &rpc)
        }
    }
}

#[test]
fn steady_calls_over_rdma_allocate_nothing() {
    let registry = registry();
    let pool = || Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).unwrap();
    let store = memory_store(&registry);
    let programs = service([(rules("/export"), store.clone())]);
    let export = programs.exports().iter().next().unwrap().id.0;
    let root = HandleKey::new(&SECRET).seal(export, store.root());
    let settings = Settings::new(4096, 32, 1 << 20, true);
    let shared = Rc::new(ResponderShared::new(
        programs,
        pool(),
        Clock::new(Instant::now()),
        settings,
    ));

    let Fabric {
        host,
        mut server,
        mut client,
        done,
    } = Fabric::new();
    let anywhere = SocketAddr::from((host, 0));
    let listener = server.listen(anywhere, LIMITS, false).unwrap();
    let address = server.listener_address(listener).unwrap();
    let slot = FabricSlot::new(Rc::new(RefCell::new(server)), LIMITS, Some(listener));
    let mut responder = Responder::new(Rc::clone(&shared), vec![slot], work, None);

    let private_data = PrivateData {
        remote_invalidation: false,
        send_size: 4096,
        receive_size: 4096,
    };
    let parameters = ConnectParameters {
        limits: LIMITS,
        private_data: private_data.to_bytes().into_iter().collect(),
    };
    let queue_pair = client.connect(address, parameters, Instant::now()).unwrap();
    let client_pool = pool();
    for _ in 0..8 {
        let buffer = client_pool.try_acquire(Class::Control).unwrap();
        let posted = client.post_receive(queue_pair, buffer);
        posted.map_err(|(error, _)| error).unwrap();
    }
    let mut both = Both {
        allocated: 0,
        client,
        pool: client_pool,
        queue_pair,
        events: Vec::with_capacity(64),
        turn: |now| {
            responder.poll(now, |_, _| unreachable!("nothing is handed over"));
            responder.run();
            responder.flush(now);
        },
    };
    both.established();

    let entry = NameInDirectory {
        directory: root,
        name: b"file",
    };
    let how = CreateHow::Guarded(SetAttributes::default());
    let create = nfs(3, Procedure::Create, &CreateArguments { entry, how });
    let created = parse(&both.exchange(&plain(&create)));
    let created = from_bytes::<CreateResults>(results(&created.message)).unwrap();
    let file = created.unwrap().object.unwrap();
    let ((source, source_exposure), (sink, sink_exposure)) = (
        both.expose(Access::RemoteRead),
        both.expose(Access::RemoteWrite),
    );
    let data: Vec<u8> = (0..1_usize << 20)
        .map(|index| (index % 251) as u8)
        .collect();
    source.copy_from(0, &data);

    let quarter: &[u32] = &[1 << 18; 4];
    let small = write(file, 0, Bulk::inline(&data[..1000]));
    let calls = || {
        [
            write_call(file, &source_exposure, quarter),
            write_call(file, &source_exposure, &[4096]),
            plain(&nfs(4, Procedure::Write, &small)),
            read_call(file, 1 << 20, Some((&sink_exposure, quarter))),
            read_call(file, 4096, Some((&sink_exposure, &[4096]))),
            read_call(file, 3000, None),
            plain(&nfs(5, Procedure::Getattr, &file)),
        ]
    };
    for version in [Version::One, Version::Two] {
        speak(version);
        let calls = calls();
        // The loop grows its lists while it warms up.
        for _ in 0..20 {
            for call in &calls {
                let reply = parse(&both.exchange(call));
                assert_eq!(status(results(&reply.message)), 0);
            }
        }
        assert!(both.allocated > 0, "what warms up is counted");
        for (number, call) in calls.iter().enumerate() {
            let before = (both.allocated, done.as_ref().map(|done| done()));
            for _ in 0..ROUNDS {
                both.exchange(call);
            }
            let allocated = both.allocated - before.0;
            assert_eq!(allocated, 0, "call {number} of version {version:?}");
            let Some((before, after)) = before.1.zip(done.as_ref().map(|done| done())) else {
                continue;
            };
            assert_eq!(after.kernel, before.kernel, "call {number}");
            let [sends, receives] = [0, 1].map(|at| after.lists[at] - before.lists[at]);
            // One list for Reads, one for the reply with the Writes before it; and the receive
            // goes back.
            let most = if number < 2 { 2 } else { 1 };
            assert!(
                (ROUNDS..=most * ROUNDS).contains(&sends),
                "call {number}: {sends} lists"
            );
            assert!(
                receives <= ROUNDS + 1,
                "call {number}: {receives} lists of receives"
            );
            println!("call {number} of version {version:?}: {sends} + {receives} lists");
        }
    }
    let mut arrived = vec![0; data.len()];
    sink.copy_to(0, &mut arrived);
    assert!(arrived == data);
}
