//! The requester and the project's own responder, on one thread and an in-memory network.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::dispatch::Service;
use millrace::exports::{Exports, Flavor, Rules, Squash};
use millrace::handle::HandleKey;
use millrace::mount3::Clients;
use millrace::rdma::{self, FabricSlot, Responder, Shared};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_bench::requester::{
    Alignment, Call, CallError, Ccp, Completion, Connection, Identity, Reply, Settings,
};
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::Clock;
use millrace_reactor::fabric::loopback::{Loopback, Network};
use millrace_reactor::fabric::{Provider, QueuePairLimits};
use millrace_store::Store;
use millrace_store::memory::{MemoryConfig, MemoryStore};
use millrace_wire::ccp;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, Entry, FileHandle, Procedure, ReadArguments,
    ReadResults, ReaddirArguments, ReaddirResults, SetAttributes, Stability, WriteArguments,
    WriteResults,
};
use millrace_wire::xdr::{Bulk, Decode, Encode};

const SECRET: [u8; 16] = *b"a secret of test";

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn pool(registry: &Registry) -> Pool {
    Pool::new(registry, PoolConfig { bytes: 16 << 20 }).expect("memory")
}

/// How a call ended: the message, and the bytes of the results that came apart.
type Outcome = Result<(Vec<u8>, Vec<Option<u32>>), CallError>;

struct World {
    client: Loopback,
    connection: Connection,
    pool: Pool,
    /// One turn of the responder.
    responder: Box<dyn FnMut(Instant) -> usize>,
    now: Instant,
    root: FileHandle,
    done: Vec<(u64, Outcome)>,
}

fn service(registry: &Registry) -> (Service<MemoryStore>, FileHandle) {
    let config = MemoryConfig {
        size_bytes: 16 << 20,
        inodes: None,
        file_system: 1,
        epoch: 1,
        root_mode: 0o777,
        root_uid: 0,
        root_gid: 0,
    };
    let store = MemoryStore::new(registry, config).expect("a store");
    let rules = Rules {
        path: "/export".to_owned(),
        clients: ["0.0.0.0/0", "::/0"]
            .map(|network| network.parse().expect("a network"))
            .to_vec(),
        read_only: false,
        flavor: Flavor::None,
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
    };
    let exports = Exports::new([(rules, store.clone())]).expect("exports");
    let export = exports.iter().next().expect("one").id.0;
    let key = HandleKey::new(&SECRET);
    let root = FileHandle::new(&key.seal(export, store.root())).expect("a handle");
    let replay = ReplayCache::new(ReplayLimits::default());
    (Service::new(exports, key, replay, Clients::default()), root)
}

impl World {
    /// A responder in classic mode or not, and a connection to it.
    fn new(classic: bool, settings: Settings) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let now = Instant::now();
        let network = Network::new();
        let (service, root) = service(&registry);
        let inner = rdma::Settings::new(4096, 32, 1 << 20, true).configuring(rdma::Ccp {
            program: ccp::PROGRAM,
            anonymous: false,
        });
        let shared = Shared::new(service, pool(&registry), Clock::new(now), inner);
        let mut fabric = network.provider();
        let limits = QueuePairLimits {
            send_depth: 1024,
            receive_depth: 4096,
            ird: if classic { 16 } else { 0 },
            ord: 16,
            exposures: if classic { 1024 } else { 0 },
            receive_size: u32::try_from(inner.receive_size()).expect("small"),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = fabric.listen(anywhere, limits, false).expect("a free port");
        let address = fabric.listener_address(listener).expect("listens");
        let fabric: Box<dyn Provider> = Box::new(fabric);
        let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), limits, Some(listener));
        let mut responder = Responder::new(Rc::new(shared), vec![slot], rdma::work, None);
        let mut client = network.provider();
        let pool = pool(&registry);
        let connection =
            Connection::connect(&mut client, &pool, address, settings, now).expect("begins");
        let mut world = Self {
            client,
            connection,
            pool,
            responder: Box::new(move |now| {
                let work = responder.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
                work + responder.run() + responder.flush(now)
            }),
            now,
            root,
            done: Vec::new(),
        };
        world.settle();
        world
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            let done = &mut self.done;
            let mut sink = |completion: Completion<'_>| {
                let result = completion.result;
                let result = result.map(|reply| (reply.message.to_vec(), reply.written.to_vec()));
                done.push((completion.token, result));
            };
            let mut events = Vec::with_capacity(64);
            let mut work = self.client.poll(self.now, &mut events);
            for event in events {
                self.connection
                    .handle(&mut self.client, event, self.now, &mut sink);
            }
            work += self.connection.pump(&mut self.client, &mut sink);
            work += self.client.flush(self.now);
            work += (self.responder)(self.now);
            if work == 0 {
                return;
            }
        }
        panic!("never comes to rest");
    }

    fn memory(&self, length: usize) -> Slice {
        let class = Class::for_size(length).expect("not too large");
        let mut buffer = self.pool.try_acquire(class).expect("free");
        buffer[..length].copy_from_slice(&pattern(length));
        buffer.into_slice(0..length)
    }

    /// Makes a call and waits for its end.
    fn call<A: Encode>(&mut self, call: &Call<'_, A>) -> Outcome {
        self.connection.submit(call, self.now).expect("taken");
        self.settle();
        self.done.pop().expect("ended").1
    }

    fn create(&mut self, name: &[u8]) -> FileHandle {
        let entry = Entry {
            directory: self.root,
            name,
        };
        let attributes = SetAttributes {
            mode: Some(0o666),
            ..SetAttributes::default()
        };
        let arguments = CreateArguments {
            entry,
            how: CreateHow::Guarded(attributes),
        };
        let outcome = self.call(&Call::nfs3(1, Procedure::Create, arguments, 0));
        let created = results::<CreateResults>(&outcome);
        created.expect("made").object.expect("a handle")
    }

    fn write(&mut self, file: FileHandle, length: usize) {
        let data = [self.memory(length)];
        let arguments = WriteArguments {
            file,
            offset: 0,
            count: length as u32,
            stable: Stability::FileSync,
            data: Bulk::apart(length as u32),
        };
        let call = Call::nfs3(1, Procedure::Write, arguments, 0);
        let outcome = self.call(&call.with_data(&data));
        let written = results::<WriteResults>(&outcome);
        assert_eq!(written.expect("written").count as usize, length);
    }

    /// The content of a file, wherever it came to, and whether it came apart from the reply.
    fn read(&mut self, file: FileHandle, length: usize) -> (Vec<u8>, bool) {
        let room = [self.memory(length)];
        room[0].fill_zero(0..length);
        let arguments = ReadArguments {
            file,
            offset: 0,
            count: length as u32,
        };
        let call = Call::nfs3(1, Procedure::Read, arguments, 0);
        let outcome = self.call(&call.with_sinks(&[&room]));
        let (message, written) = outcome.expect("a reply");
        let reply = Reply {
            message: &message,
            written: &written,
        };
        let read = reply.results::<ReadResults<'_>>().expect("decodes");
        let read = read.expect("success");
        match read.data.as_inline() {
            Some(data) => (data.to_vec(), false),
            None => {
                let mut bytes = vec![0; read.count as usize];
                room[0].copy_to(0, &mut bytes);
                (bytes, true)
            }
        }
    }
}

/// What the reply of a call holds.
fn results<T: for<'a> Decode<'a>>(outcome: &Outcome) -> T {
    let (message, written) = outcome.as_ref().expect("a reply");
    let reply = Reply { message, written };
    reply.results().expect("results")
}

fn bare() -> Settings {
    Settings {
        credits: 16,
        calls: 16,
        settle: Duration::ZERO,
        offer_results: false,
        ..Settings::default()
    }
}

#[test]
fn rr1_done_03_reads_and_listings_come_by_read_chunks_of_our_own_server() {
    let mut world = World::new(true, bare());
    let file = world.create(b"file");
    for length in [1, 1000, 3900, 5001, 65_536, 1 << 20] {
        world.write(file, length);
        let before = world.connection.counters().dones;
        let (bytes, apart) = world.read(file, length);
        assert!(bytes == pattern(length), "{length} bytes");
        let dones = world.connection.counters().dones - before;
        assert_eq!(dones, u64::from(length > 4000));
        assert_eq!(apart, length > 4000);
    }
    for number in 0..150 {
        world.create(format!("a name that is not short at all {number:03}").as_bytes());
    }
    let arguments = ReaddirArguments {
        directory: world.root,
        cookie: 0,
        verifier: [0; 8],
        count: 32_768,
    };
    let before = *world.connection.counters();
    let outcome = world.call(&Call::nfs3(1, Procedure::Readdir, arguments, 32_768));
    let (message, written) = outcome.expect("a reply");
    let reply = Reply {
        message: &message,
        written: &written,
    };
    let listed = reply.results::<ReaddirResults<'_>>().expect("decodes");
    let entries = listed.expect("listed").entries.iter().count();
    // With the directory itself, its parent, and the file.
    assert_eq!(entries, 153);
    let after = *world.connection.counters();
    assert_eq!(after.read_chunk_replies, before.read_chunk_replies + 1);
    assert_eq!(after.dones, after.read_chunk_replies);
    assert!(!world.connection.is_fetching());
}

#[test]
fn rr1_cred_15_many_replies_with_read_chunks_at_once() {
    let mut world = World::new(true, bare());
    let file = world.create(b"file");
    world.write(file, 50_000);
    let rooms: Vec<_> = (0..16).map(|_| [world.memory(50_000)]).collect();
    for round in 0..10 {
        for (token, room) in rooms.iter().enumerate() {
            room[0].fill_zero(0..50_000);
            let arguments = ReadArguments {
                file,
                offset: 0,
                count: 50_000,
            };
            let call = Call::nfs3(token as u64, Procedure::Read, arguments, 0);
            let sinks: [&[Slice]; 1] = [room];
            let call = call.with_sinks(&sinks);
            world.connection.submit(&call, world.now).expect("taken");
        }
        world.settle();
        assert_eq!(world.done.len(), 16, "round {round}");
        for (_, outcome) in world.done.drain(..) {
            assert_eq!(outcome.expect("a reply").1, [Some(50_000)]);
        }
        for room in &rooms {
            let mut bytes = vec![0; 50_000];
            room[0].copy_to(0, &mut bytes);
            assert!(bytes == pattern(50_000));
        }
    }
    assert_eq!(world.connection.counters().dones, 160);
}

#[test]
fn rr1_done_16_in_ordinary_mode_nothing_is_fetched() {
    let ordinary = Settings {
        offer_results: true,
        ..bare()
    };
    for classic in [false, true] {
        let mut world = World::new(classic, ordinary.clone());
        let file = world.create(b"file");
        world.write(file, 50_000);
        let (bytes, apart) = world.read(file, 50_000);
        assert!(apart && bytes == pattern(50_000));
        let counters = world.connection.counters();
        assert_eq!((counters.reads, counters.dones), (0, 0));
    }
}

#[test]
fn a_server_in_ordinary_mode_shortens_what_has_no_room() {
    let mut world = World::new(false, bare());
    let file = world.create(b"file");
    world.write(file, 50_000);
    let (bytes, apart) = world.read(file, 50_000);
    assert!(!apart && bytes.len() < 4096);
    assert!(bytes == pattern(bytes.len()));
    assert_eq!(world.connection.counters().dones, 0);
}

#[test]
fn rr1_pad_20_padded_writes_are_executed_by_our_own_server() {
    for align in [4, 64, 100, 512, 1024] {
        let mine = Settings {
            alignment: Alignment::Fixed {
                align,
                threshold: 100,
            },
            offer_results: true,
            ..bare()
        };
        let mut world = World::new(false, mine);
        let file = world.create(b"file");
        for length in [500, 1001, 2000, 3000] {
            let before = world.connection.counters().padded;
            world.write(file, length);
            let padded = world.connection.counters().padded - before;
            assert_eq!(padded, 1, "{length} bytes");
            assert!(world.read(file, length).0 == pattern(length));
        }
    }
}

#[test]
fn rr1_ccp_01_limits_and_alignment_are_learnt_from_our_own_server() {
    let mine = Settings {
        private_data: None,
        ccp: Some(Ccp::default()),
        alignment: Alignment::Learnt { threshold: 512 },
        offer_results: true,
        ..bare()
    };
    let mut world = World::new(false, mine);
    let limits = world.connection.configured().expect("told");
    assert!(limits.call_size > 1024 && limits.call_size <= 4096);
    assert!(limits.alignment >= 64 && limits.reads > 0);
    assert_eq!(world.connection.limits().send, limits.call_size as usize);
    let file = world.create(b"file");
    for length in [600, 2000, 3001, 10_000] {
        let before = *world.connection.counters();
        world.write(file, length);
        let after = *world.connection.counters();
        let padded = u64::from(length < 4000);
        assert_eq!(after.padded - before.padded, padded, "{length} bytes");
        assert!(world.read(file, length).0 == pattern(length));
    }
}

#[test]
fn rr1_ccp_14_our_own_server_is_not_asked_by_nobody() {
    let nobody = Settings {
        private_data: None,
        ccp: Some(Ccp::default()),
        identity: Identity::none(),
        ..bare()
    };
    let mut world = World::new(false, nobody);
    assert_eq!(world.connection.configured(), None);
    let outcome = world.call(&Call::nfs3(1, Procedure::Null, (), 0));
    assert!(outcome.is_ok());
    assert_eq!(world.connection.limits().send, 1024);
}
