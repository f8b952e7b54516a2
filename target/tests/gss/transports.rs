//! The same calls over RDMA and TCP: one context on both, forms on the wire.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace::access::Security;
use millrace::exports::Rules;
use millrace::flow::{ClientTable, Flow};
use millrace::rpc::{GssAuthenticator, GssLimits};
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_gss::{Enctype, GssService as Contexts};
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, ReadResults, SetAttributes, Stability, WriteArguments, WriteResults,
};
use millrace_wire::rpc::{GssCredential, GssProcedure, GssService};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::{Bulk, Data, Decode, Decoder, from_bytes};

use super::initiator::{self, Initiator, user};
use super::{NULL, SERVICES, encoded, nfs};
use crate::support::fetch::{done, fetch, segments};
use crate::support::message::{inline, is_chunk_error, lengths, long, parse, plain, reads};
use crate::support::raw::{Options, World};
use crate::support::{self, SECRET};

const SLICE: GssLimits = GssLimits {
    token: 64 << 10,
    slice: 16 << 10,
};

fn rules() -> Rules {
    let mut rules = support::rules("/export");
    rules.security = [Security::Krb5p, Security::Krb5i, Security::Krb5].into();
    rules
}

/// A responder with a file, and a client with a context.
struct Rdma {
    world: World<millrace::service::ReactorPrograms<millrace_store::memory::MemoryStore>>,
    client: Initiator,
    contexts: Contexts,
    root: FileHandle,
}

impl Rdma {
    fn new() -> Self {
        Self::with(initiator::contexts())
    }

    fn with(contexts: Contexts) -> Self {
        Self::over(contexts, Options::default())
    }

    fn over(contexts: Contexts, options: Options) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let store = support::memory_store(&registry);
        let service = support::service([(rules(), store.clone())]);
        let gss = GssAuthenticator::new(&contexts, SLICE);
        let service = service.with_gss(gss);
        let export = service.exports().iter().next().unwrap().id;
        let key = millrace::handle::HandleKey::new(&SECRET);
        let root = key.seal(export.0, millrace_store::Store::root(&store));
        let mut world = World::new(service, options);
        world.connect();
        let client = Initiator::new(&contexts, user(0), Enctype::Aes256Sha1);
        Self {
            world,
            client,
            contexts,
            root,
        }
    }

    fn create(&mut self) -> FileHandle {
        let arguments = encoded(&CreateArguments {
            entry: NameInDirectory {
                directory: self.root,
                name: b"file",
            },
            how: CreateHow::Unchecked(SetAttributes::default()),
        });
        let call = self
            .client
            .call(1, nfs(Procedure::Create), GssService::None, &arguments);
        let reply = parse(&self.world.exchange(0, &plain(&call)));
        let sequence = self.client.sequence.get();
        let results = self
            .client
            .results(GssService::None, sequence, &reply.message)
            .unwrap();
        let created = from_bytes::<CreateResults>(&results).unwrap().unwrap();
        created.object.unwrap()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + index / 251) as u8)
        .collect()
}

fn write(file: FileHandle, data: &[u8]) -> Vec<u8> {
    encoded(&WriteArguments {
        file,
        offset: 0,
        count: data.len() as u32,
        stable: Stability::FileSync,
        data: Bulk::inline(data),
    })
}

fn read(file: FileHandle, count: usize) -> Vec<u8> {
    encoded(&ReadArguments {
        file,
        offset: 0,
        count: count as u32,
    })
}

#[test]
fn gss_rdma_01_without_protection_data_moves_by_chunks() {
    let mut rdma = Rdma::new();
    let file = rdma.create();
    let data = pattern(100_000);
    // The data in a read chunk, behind its length.
    let (client, world) = (&rdma.client, &mut rdma.world);
    let arguments = write(file, &data);
    let head = arguments.len() - data.len();
    let call = client.call(
        2,
        nfs(Procedure::Write),
        GssService::None,
        &arguments[..head],
    );
    let source = world.source(0, &data);
    let entries = reads(call.len(), &[source.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    let reply = parse(&world.exchange(0, &inline(&chunks, &call)));
    let results = client.results(GssService::None, client.sequence.get(), &reply.message);
    let written = from_bytes::<WriteResults>(&results.unwrap()).unwrap();
    assert_eq!(written.unwrap().count, 100_000);
    // And into a write chunk.
    let sink = world.sink(0, data.len());
    let segments = [sink.whole()];
    let writes = [&segments[..]];
    let chunks = CallChunks {
        writes: &writes,
        ..CallChunks::default()
    };
    let call = client.call(
        3,
        nfs(Procedure::Read),
        GssService::None,
        &read(file, data.len()),
    );
    let reply = parse(&world.exchange(0, &inline(&chunks, &call)));
    assert!(reply.inline);
    assert_eq!(sink.bytes(), data);
    let results = client
        .results(GssService::None, client.sequence.get(), &reply.message)
        .unwrap();
    assert!(results.len() < 200, "no data in the message");
    world.check_clean();
}

#[test]
fn gss_rdma_02_and_03_rr1_sec_02_protected_calls_and_replies_are_long_both_ways() {
    let mut rdma = Rdma::new();
    let file = rdma.create();
    for service in [GssService::Integrity, GssService::Privacy] {
        let data = pattern(983_040);
        let (client, world) = (&rdma.client, &mut rdma.world);
        let call = client.call(2, nfs(Procedure::Write), service, &write(file, &data));
        let sequence = client.sequence.get();
        let source = world.source(0, &call);
        let third = (call.len() as u32 / 3) & !3;
        let entries = reads(
            0,
            &source.cut(&[third, third, call.len() as u32 - 2 * third]),
        );
        // Room for a long reply in the same header.
        let room = world.sink(0, 4096);
        let room = [room.whole()];
        let chunks = CallChunks {
            reads: &entries,
            reply: Some(&room),
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &long(2, &chunks)));
        assert!(reply.inline);
        let results = client.results(service, sequence, &reply.message).unwrap();
        let written = from_bytes::<WriteResults>(&results).unwrap().unwrap();
        assert_eq!(written.count as usize, data.len());
        // The reply with the data in the Reply chunk; a write chunk comes back unused.
        let (sink, unused) = (world.sink(0, data.len() + 4096), world.sink(0, data.len()));
        let length = data.len() as u32;
        let reply_chunk = sink.cut(&[208, length, 4096 - 208]);
        let segments = [unused.whole()];
        let writes = [&segments[..]];
        let chunks = CallChunks {
            writes: &writes,
            reply: Some(&reply_chunk),
            ..CallChunks::default()
        };
        let call = client.call(3, nfs(Procedure::Read), service, &read(file, data.len()));
        let sequence = client.sequence.get();
        let reply = parse(&world.exchange(0, &inline(&chunks, &call)));
        assert!(!reply.inline);
        let bytes = sink.bytes();
        let whole: usize = reply
            .reply
            .iter()
            .flatten()
            .map(|segment| segment.length as usize)
            .sum();
        let results = client.results(service, sequence, &bytes[..whole]).unwrap();
        let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
        assert!(found.data.data == Data::Inline(&data));
        assert!(unused.bytes().iter().all(|byte| *byte == 0xee));
    }
    rdma.world.check_clean();
}

#[test]
fn gss_rdma_07_protected_replies_are_fetched_as_they_are_sent() {
    let mut rdma = Rdma::over(initiator::contexts(), Options::classic());
    let file = rdma.create();
    let data = pattern(100_000);
    let (client, world) = (&rdma.client, &mut rdma.world);
    let call = client.call(
        2,
        nfs(Procedure::Write),
        GssService::Privacy,
        &write(file, &data),
    );
    let source = world.source(0, &call);
    let entries = reads(0, &[source.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    world.exchange(0, &long(2, &chunks));
    for (xid, service) in [(3, GssService::Integrity), (4, GssService::Privacy)] {
        let call = client.call(xid, nfs(Procedure::Read), service, &read(file, data.len()));
        let sequence = client.sequence.get();
        let reply = parse(&world.exchange(0, &plain(&call)));
        // The whole reply is one chunk: a protected result cannot stand apart.
        assert!(!reply.inline && reply.message.is_empty());
        let exposed: usize = lengths(&segments(&reply))
            .iter()
            .map(|length| *length as usize)
            .sum();
        let message = fetch(world, 0, &reply).unwrap();
        assert_eq!(message.len(), exposed);
        let results = client.results(service, sequence, &message).unwrap();
        let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
        assert!(found.data.data == Data::Inline(&data));
        let shows = |part: &[u8]| message.windows(part.len()).any(|window| window == part);
        assert_eq!(shows(&data[1000..1032]), service == GssService::Integrity);
        // The same call again is not served, and exposes nothing, however long the first reply is
        // kept.
        world.send(0, &plain(&call));
        assert!(world.received(0).is_empty());
        world.send(0, &done(xid));
        world.settle();
        assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
    }
    world.check_clean();
}

#[test]
fn gss_rdma_02_an_item_of_a_protected_call_is_put_back_and_judged_by_its_checksum() {
    let mut rdma = Rdma::new();
    let file = rdma.create();
    let (client, world) = (&rdma.client, &mut rdma.world);
    let data = pattern(1000);
    let call = client.call(
        2,
        nfs(Procedure::Write),
        GssService::Integrity,
        &write(file, &data),
    );
    let sequence = client.sequence.get();
    // Data, and the checksum behind it.
    let at = call.len() - 32 - data.len();
    let source = world.source(0, &call[at..at + data.len()]);
    let entries = reads(at, &[source.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    let short = [&call[..at], &call[at + data.len()..]].concat();
    let reply = world.exchange(0, &inline(&chunks, &short));
    assert!(!is_chunk_error(&reply));
    let reply = parse(&reply);
    let results = client.results(GssService::Integrity, sequence, &reply.message);
    let written = from_bytes::<WriteResults>(&results.unwrap()).unwrap();
    assert_eq!(written.unwrap().count, 1000);
    world.check_clean();
}

#[test]
fn gss_rdma_08_calls_of_nobody_are_fetched_into_memory_of_their_client() {
    let mut rdma = Rdma::new();
    let file = rdma.create();
    let data = pattern(983_040);
    // A context that is unknown here: nobody is known from the call.
    let client = Initiator::new(&initiator::contexts(), user(0), Enctype::Aes256Sha1);
    let call = client.call(
        2,
        nfs(Procedure::Write),
        GssService::Privacy,
        &write(file, &data),
    );
    let world = &mut rdma.world;
    let source = world.source(0, &call);
    let entries = reads(0, &[source.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    // It serves no RDMA Reads for now.
    world.clients[0].silent = true;
    let record = world.shared.flow.client(Ipv4Addr::LOCALHOST.into());
    let memory = record.memory();
    for xid in 2..14 {
        world.post(0, &long(xid, &chunks));
        world.settle();
        for class in [Class::Medium, Class::Large] {
            let taken = world.shared.pool.gauges().class(class).in_use();
            assert_eq!(u64::from(memory.held(class)), taken, "all is charged");
        }
    }
    assert_eq!(memory.held(Class::Medium), 12, "one for each call");
    world.clients[0].silent = false;
    world.settle();
    assert_eq!(world.received(0).len(), 12);
    assert_eq!(
        [Class::Medium, Class::Large].map(|class| memory.held(class)),
        [0, 0]
    );
    world.check_clean();
}

#[test]
fn gss_seq_07_drops_keep_credits_and_connection() {
    let mut rdma = Rdma::new();
    let (client, world) = (&rdma.client, &mut rdma.world);
    let call = client.call(2, NULL, GssService::None, &[]);
    let sequence = client.sequence.get();
    let reply = parse(&world.exchange(0, &plain(&call)));
    assert!(
        client
            .results(GssService::None, sequence, &reply.message)
            .is_ok()
    );
    let count = if world.wire.is_real() { 100 } else { 10_000 };
    for _ in 0..count {
        world.send(0, &plain(&call));
    }
    assert!(world.received(0).is_empty() && world.is_open(0));
    let call = client.call(3, NULL, GssService::None, &[]);
    let sequence = client.sequence.get();
    let reply = parse(&world.exchange(0, &plain(&call)));
    assert!(
        client
            .results(GssService::None, sequence, &reply.message)
            .is_ok()
    );
    let counters = rdma.contexts.all_call_counters();
    assert_eq!(counters[0].dropped_seen.get(), count);
}

#[test]
fn gss_lim_06_a_hundred_wrong_verifiers_in_a_row_end_the_connection() {
    let mut rdma = Rdma::new();
    let (mut tcp, _) = Server::start(&rdma.contexts);
    let client = &rdma.client;
    let forged = || {
        let mut call = client.call(2, NULL, GssService::None, &[]);
        *call.last_mut().unwrap() ^= 1;
        call
    };
    for round in 0..2 {
        for _ in 0..99 {
            assert!(
                client
                    .results(GssService::None, 0, &tcp.exchange(&forged()))
                    .is_err()
            );
            let reply = parse(&rdma.world.exchange(0, &plain(&forged())));
            assert!(client.results(GssService::None, 0, &reply.message).is_err());
        }
        if round == 0 {
            // A good one begins the count anew.
            let call = client.call(3, NULL, GssService::None, &[]);
            let sequence = client.sequence.get();
            let reply = tcp.exchange(&call);
            assert!(client.results(GssService::None, sequence, &reply).is_ok());
            let call = client.call(3, NULL, GssService::None, &[]);
            let sequence = client.sequence.get();
            let reply = parse(&rdma.world.exchange(0, &plain(&call)));
            assert!(
                client
                    .results(GssService::None, sequence, &reply.message)
                    .is_ok()
            );
        }
    }
    rdma.world.send(0, &plain(&forged()));
    assert!(!rdma.world.is_open(0));
    assert!(tcp.try_exchange(&forged()).is_err());
}

#[test]
fn gss_rdma_04_rr1_sec_04_a_long_token_comes_as_a_long_call_and_goes_in_no_chunk() {
    let accept = |token: &[u8]| {
        assert_eq!(token.len(), 12 << 10);
        millrace_gss::Accepted::Failed(millrace_gss::Failure {
            major: millrace_gss::status::FAILURE,
            minor: 5,
            reason: millrace_gss::FailureReason::Other,
            text: "not in this test".to_owned(),
        })
    };
    let contexts = initiator::contexts_with(millrace_gss::Settings::default(), Box::new(accept));
    let mut rdma = Rdma::with(contexts);
    let credential = GssCredential {
        procedure: GssProcedure::Init,
        handle: &[],
        ..rdma.client.credential(GssService::None, 0)
    };
    let sealed = rdma.client.header(7, NULL, &credential);
    let token = vec![7; 12 << 10];
    let head = &sealed[..sealed.len() - 36];
    let call = [head, &[0; 8], &(12_u32 << 10).to_be_bytes(), &token].concat();
    let world = &mut rdma.world;
    let source = world.source(0, &call);
    let entries = reads(0, &[source.whole()]);
    // A write chunk is of no use to what the mechanism answers.
    let unused = world.sink(0, 4096);
    let segments = [unused.whole()];
    let chunks = CallChunks {
        reads: &entries,
        writes: &[&segments[..]],
        ..CallChunks::default()
    };
    world.send(0, &long(7, &chunks));
    // Another thread judges it.
    let mut received = world.received(0);
    while received.is_empty() {
        std::thread::yield_now();
        world.settle();
        received = world.received(0);
    }
    let reply = parse(&received[0]);
    let results = reply.message[24..].to_vec();
    let made = from_bytes::<millrace_wire::rpc::GssInitResults<'_>>(&results).unwrap();
    assert_eq!((made.major, made.minor), (millrace_gss::status::FAILURE, 5));
    assert!(unused.bytes().iter().all(|byte| *byte == 0xee));
    rdma.world.check_clean();
}

/// A server over TCP on a thread of its own.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    stream: TcpStream,
}

impl Server {
    /// Serves an export with these contexts. Returns its root too.
    fn start(contexts: &Contexts) -> (Self, FileHandle) {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let (stopped, contexts) = (Arc::clone(&stop), contexts.clone());
        let thread = std::thread::spawn(move || {
            let registry = Registry::new(HugepagePolicy::Off);
            let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
            let store = support::memory_store(&registry);
            let clock = Clock::new(Instant::now());
            let clients = ClientTable::new(1);
            let flow = Flow::new(&clients, 0, &pool, Class::Control, &clock);
            let service = support::service([(rules(), store.clone())]).with_flow(&flow);
            let service = service.with_gss(GssAuthenticator::new(&contexts, SLICE));
            let export = service.exports().iter().next().unwrap().id;
            let key = millrace::handle::HandleKey::new(&SECRET);
            let root = key.seal(export.0, millrace_store::Store::root(&store));
            let config = TcpConfig::default();
            let mut server = TcpServer::new(config, &pool, service, &flow, None).unwrap();
            let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            sender.send((address, root)).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                let now = Instant::now();
                clock.turn(now);
                if server.poll(now) == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        });
        let (address, root) = receiver.recv().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        let server = Self {
            stop,
            thread: Some(thread),
            stream,
        };
        (server, root)
    }

    fn exchange(&mut self, message: &[u8]) -> Vec<u8> {
        self.try_exchange(message).unwrap()
    }

    fn try_exchange(&mut self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        let mark = 0x8000_0000 | u32::try_from(message.len()).unwrap();
        let record = [&mark.to_be_bytes(), message].concat();
        self.stream.write_all(&record)?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut reply = vec![0; length as usize];
        self.stream.read_exact(&mut reply)?;
        Ok(reply)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join();
        assert!(outcome.is_ok() || std::thread::panicking());
    }
}

#[test]
fn gss_ctx_14_rr1_sec_01_a_context_holds_over_both_transports() {
    let mut rdma = Rdma::new();
    let (mut tcp, root) = Server::start(&rdma.contexts);
    let client = &rdma.client;
    // By turns, with one sequence of numbers.
    for xid in 10..20 {
        for service in SERVICES {
            let call = client.call(xid, NULL, service, &[]);
            let sequence = client.sequence.get();
            let reply = tcp.exchange(&call);
            assert_eq!(client.results(service, sequence, &reply), Ok(Vec::new()));
            // Seen by another reactor, it is seen here.
            rdma.world.send(0, &plain(&call));
            assert!(rdma.world.received(0).is_empty());
            let call = client.call(xid, NULL, service, &[]);
            let sequence = client.sequence.get();
            let reply = parse(&rdma.world.exchange(0, &plain(&call)));
            let results = client.results(service, sequence, &reply.message);
            assert_eq!(results, Ok(Vec::new()));
        }
    }
    let arguments = encoded(&CreateArguments {
        entry: NameInDirectory {
            directory: root,
            name: b"file",
        },
        how: CreateHow::Unchecked(SetAttributes::default()),
    });
    let mut exchange = |procedure, service, arguments: &[u8]| {
        let call = client.call(99, nfs(procedure), service, arguments);
        let reply = tcp.exchange(&call);
        client
            .results(service, client.sequence.get(), &reply)
            .unwrap()
    };
    let made = exchange(Procedure::Create, GssService::Privacy, &arguments);
    let file = from_bytes::<CreateResults>(&made)
        .unwrap()
        .unwrap()
        .object
        .unwrap();
    for service in SERVICES {
        let data = pattern(900_000);
        let written = exchange(Procedure::Write, service, &write(file, &data));
        let written = from_bytes::<WriteResults>(&written).unwrap().unwrap();
        assert_eq!(written.count as usize, data.len());
        let found = exchange(Procedure::Read, service, &read(file, data.len()));
        let found = ReadResults::decode(&mut Decoder::new(&found)).unwrap();
        assert!(
            found.unwrap().data.data == Data::Inline(&data),
            "{service:?}"
        );
    }
    // Ended over RDMA, it is unknown over TCP.
    let credential = GssCredential {
        procedure: GssProcedure::Destroy,
        ..client.credential(GssService::None, client.next())
    };
    let destroy = client.header(5, NULL, &credential);
    let reply = parse(&rdma.world.exchange(0, &plain(&destroy)));
    let sequence = client.sequence.get();
    assert!(
        client
            .results(GssService::None, sequence, &reply.message)
            .is_ok()
    );
    let call = client.call(6, NULL, GssService::None, &[]);
    assert!(
        client
            .results(GssService::None, 0, &tcp.exchange(&call))
            .is_err()
    );
}
