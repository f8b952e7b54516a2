//! Memory that serves a client is charged to it, from when it is taken until the client has let go
//! of it; clients that let go of nothing are ended.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use millrace::call::{Answer, Bulk, BulkResult, Call, Reply, Serve, TransportKind};
use millrace::flow::{ClientTable, Flow};
use millrace::rdma::Settings;
use millrace::rpc::program::{ProcedureInfo, called};
use millrace::tcp::{TcpConfig, TcpServer};
use millrace::transfer::TransferLimits;
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::nfs3::{self, Procedure, Stability, WriteArguments};
use millrace_wire::rpcrdma::{CallChunks, Segment};
use millrace_wire::xdr::Bulk as Data;

use crate::support::message::{PROGRAM, encoded, inline, is_chunk_error, nfs, parse, reads, rpc};
use crate::support::raw::{Options, Stated, World};

/// Bytes of a message without its data.
const MESSAGE: usize = 24;

const READ: usize = 1 << 20;

/// A program whose data goes through memory of the pool, as that of folders does. A call with data
/// is a WRITE; any other a READ of as many bytes as it offers room for.
#[derive(Clone)]
struct Lender;

impl Serve for Lender {
    async fn serve<B: Bulk>(&self, call: Call<'_>, bulk: &mut B, reply: &mut Reply) -> Answer {
        let pool = reply.pool().clone();
        let mut length = 0;
        // Where there is no memory, the answer says so without data.
        if let Some(data) = call.bulk.first() {
            let bytes = data.length as usize;
            if let Ok(buffer) = pool.obtain_another(bytes).await {
                let sink = [buffer.into_slice(0..bytes)];
                if bulk.pull(0, &sink).await.is_err() {
                    return Answer::Broken;
                }
            }
        } else if let Some(room) = room(&call, reply)
            && let Ok(buffer) = pool.obtain_another(room).await
        {
            reply.add_slice(buffer.into_slice(0..room));
            length = room;
        }
        reply.room()[..MESSAGE].fill(0);
        reply.room()[..4].copy_from_slice(&call.message[..4]);
        reply.room()[7] = 1;
        reply.set_length(MESSAGE);
        if length > 0 {
            let position = MESSAGE;
            reply.set_bulk(std::iter::once(BulkResult { position, length }).collect());
        }
        Answer::Send
    }

    fn procedure(&self, message: &[u8]) -> Option<&'static ProcedureInfo> {
        millrace::nfs3::INFO.procedure(called(message)?)
    }
}

/// Bytes of the READ that a call is, if it is one. By TCP each that has arguments is.
fn room(call: &Call<'_>, reply: &Reply) -> Option<usize> {
    let tcp = call.connection.transport() == TransportKind::Tcp;
    let by_tcp = (tcp && call.message.ends_with(ASKS)).then_some(READ);
    reply.limits().apart[0].map(|room| room as usize).or(by_tcp)
}

/// What a READ by TCP ends with.
const ASKS: &[u8] = b"read";

const HOG: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

fn world() -> World<Lender> {
    World::new(
        Lender,
        Options {
            pool: 32 << 20,
            settings: Settings::new(4096, 128, 1 << 20, true),
            ..Options::default()
        },
    )
}

fn at(source: Ipv4Addr) -> Stated {
    Stated {
        source,
        receives: 128,
        ..Stated::default()
    }
}

/// Asks for a READ into a segment.
fn read(world: &mut World<Lender>, client: usize, xid: u32, sink: Segment) {
    let segments = [sink];
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    world.post(client, &inline(&chunks, &rpc(xid, PROGRAM, &[])));
}

/// Asks for a WRITE from a segment.
fn write(world: &mut World<Lender>, client: usize, xid: u32, source: Segment) {
    let arguments = WriteArguments {
        file: nfs3::FileHandle::new(&[7; 16]).unwrap(),
        offset: 0,
        count: source.length,
        stable: Stability::Unstable,
        data: Data::apart(source.length),
    };
    let rpc = nfs(xid, Procedure::Write, &arguments);
    let entries = reads(rpc.len(), &[source]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    world.post(client, &inline(&chunks, &rpc));
}

/// A READ into memory that the client looks at never: all into the same.
fn untaken_read(world: &mut World<Lender>, client: usize, xid: u32) {
    let mut segment = world.sink(client, 1).whole();
    segment.length = READ as u32;
    read(world, client, xid, segment);
}

/// A WRITE of data that the client does not have.
fn ungiven_write(world: &mut World<Lender>, client: usize, xid: u32) {
    let mut segment = world.source(client, &[0; 8]).whole();
    segment.length = READ as u32;
    write(world, client, xid, segment);
}

/// Checks that a client is served at once, READ and WRITE.
#[track_caller]
fn check_served(world: &mut World<Lender>, client: usize) {
    let sink = world.sink(client, READ);
    let source = world.source(client, &vec![1; READ]);
    for _ in 0..3 {
        read(world, client, 1, sink.whole());
        write(world, client, 2, source.whole());
        world.settle();
        let replies = world.received(client);
        assert_eq!(replies.len(), 2, "not served");
        assert!(replies.iter().all(|reply| !is_chunk_error(reply)));
        let written = parse(&replies[0]).writes;
        assert!(written.is_empty() || written[0][0].length as usize == READ);
    }
    world.revoke(client, &sink);
    world.revoke(client, &source);
}

/// Has four connections of one client ask for everything and take no notice of any answer.
fn flood(world: &mut World<Lender>, ask: impl Fn(&mut World<Lender>, usize, u32)) -> Vec<usize> {
    let hogs: Vec<usize> = (0..4).map(|_| world.connect_with(at(HOG))).collect();
    for &hog in &hogs {
        // Once in peace, for the whole grant.
        world.exchange(hog, &inline(&CallChunks::default(), &rpc(1, PROGRAM, &[])));
        world.clients[hog].silent = true;
    }
    for &hog in &hogs {
        for xid in 0..16 {
            ask(world, hog, xid);
        }
    }
    world.settle();
    hogs
}

fn charged(world: &World<Lender>, source: Ipv4Addr) -> u64 {
    world
        .shared
        .flow
        .client(source.into())
        .memory()
        .held_bytes()
}

/// Checks that the hog holds about half of the large buffers.
#[track_caller]
fn check_share(world: &World<Lender>) {
    let all = world.shared.pool.attainable(Class::Large) * Class::Large.size() as u64;
    let held = charged(world, HOG);
    assert!(held > all / 4 && held < all * 3 / 4, "{held} of {all}");
}

/// What operators see of that.
fn shown(world: &World<Lender>, source: Ipv4Addr) -> u64 {
    let usage = world.shared.flow.clients().usage();
    let of = usage.present.iter().filter(|one| one.address == source);
    of.map(|one| one.memory).sum()
}

/// Lets time pass in the steps of a reactor that looks around now and then.
fn seconds(world: &mut World<Lender>, count: u32) {
    for _ in 0..count {
        world.pass(Duration::from_secs(1));
    }
}

#[test]
fn a_client_that_takes_no_data_keeps_nobody_else_waiting_and_is_ended() {
    let _here = loopback();
    let mut world = world();
    let good = world.connect_with(at(Ipv4Addr::new(10, 0, 0, 1)));
    check_served(&mut world, good);
    let small = world.connect_with(at(HOG));
    let sink = world.sink(small, READ);
    let hogs = flood(&mut world, untaken_read);
    drop(sink);
    check_share(&world);
    assert_eq!(shown(&world, HOG), charged(&world, HOG));
    assert!(
        world
            .shared
            .flow
            .waiting()
            .iter()
            .any(|&(who, _)| who == HOG)
    );
    let newcomer = world.connect_with(at(Ipv4Addr::new(10, 0, 0, 2)));
    for second in 0..29 {
        check_served(&mut world, good);
        check_served(&mut world, newcomer);
        seconds(&mut world, 1);
        assert_eq!(world.connections().len(), 7, "second {second}");
    }
    seconds(&mut world, 4);
    let counters = world.shared.flow.counters().clone();
    assert_eq!(counters.stuck_sends.get(), 1);
    // Of the other connections some have got its memory meanwhile, others an answer without data.
    for _ in 0..hogs.len() {
        check_served(&mut world, good);
        seconds(&mut world, 32);
    }
    assert_eq!(counters.stuck_sends.get(), hogs.len() as u64);
    assert_eq!((charged(&world, HOG), world.connections().len()), (0, 3));
    assert_eq!(shown(&world, HOG), 0);
    check_served(&mut world, good);
    assert!(world.is_open(small));
    world.check_clean();
}

#[test]
fn a_client_that_gives_no_data_keeps_nobody_else_waiting_and_is_ended() {
    let _here = loopback();
    let mut world = world();
    let good = world.connect_with(at(Ipv4Addr::new(10, 0, 0, 1)));
    check_served(&mut world, good);
    let hogs = flood(&mut world, ungiven_write);
    check_share(&world);
    for _ in 0..29 {
        check_served(&mut world, good);
        seconds(&mut world, 1);
    }
    for _ in 0..hogs.len() {
        check_served(&mut world, good);
        seconds(&mut world, 32);
    }
    let counters = world.shared.flow.counters().clone();
    let (reads, sends) = (counters.stuck_reads.get(), counters.stuck_sends.get());
    assert!(reads > 0 && reads + sends == hogs.len() as u64);
    let open = world.connections();
    assert_eq!((charged(&world, HOG), open.len()), (0, 1));
    check_served(&mut world, good);
    world.check_clean();
}

#[test]
fn what_waits_for_memory_ends_with_its_connection() {
    let _here = loopback();
    let mut world = world();
    let hogs = flood(&mut world, untaken_read);
    let calls = world.calls();
    assert!(calls > 4, "{calls} calls wait");
    let accounts: Vec<_> = world
        .connections()
        .iter()
        .map(|connection| std::rc::Rc::clone(connection.memory()))
        .collect();
    assert!(accounts.iter().all(|account| account.held() > 0));
    // The first holds the whole share, for which calls of the others wait.
    let share = std::rc::Rc::clone(world.shared.flow.client(HOG.into()).memory());
    for &hog in hogs.iter().rev() {
        let (calls, waiting) = (world.calls(), share.waiting());
        world.abort(hog);
        world.settle();
        assert!(world.calls() < calls && share.waiting() < waiting);
    }
    assert_eq!((world.calls(), share.waiting()), (0, 0));
    assert!(accounts.iter().all(|account| account.held() == 0));
    assert_eq!(charged(&world, HOG), 0);
    world.check_clean();
}

#[test]
fn waiting_for_memory_has_an_end() {
    let _here = loopback();
    let mut world = world();
    let client = world.connect_with(at(HOG));
    let sink = world.sink(client, READ);
    // As others hold it who are in no account.
    let pool = world.shared.pool.clone();
    let taken: Vec<_> = std::iter::from_fn(|| pool.try_acquire(Class::Large)).collect();
    read(&mut world, client, 1, sink.whole());
    seconds(&mut world, 40);
    assert_eq!((world.calls(), world.received(client).len()), (1, 0));
    seconds(&mut world, 10);
    assert_eq!((world.calls(), charged(&world, HOG)), (0, 0));
    // An answer without data.
    let late = world.received(client);
    assert_eq!(parse(&late[0]).writes[0][0].length, 0);
    assert!(world.is_open(client));
    drop(taken);
    read(&mut world, client, 2, sink.whole());
    world.settle();
    assert_eq!(world.received(client).len(), 1);
    world.check_clean();
}

#[test]
fn a_slow_client_lives_while_it_takes_what_it_has_to() {
    let network = loopback();
    let mut world = world();
    let client = world.connect_with(at(HOG));
    let sink = world.sink(client, READ);
    world.exchange(
        client,
        &inline(&CallChunks::default(), &rpc(1, PROGRAM, &[])),
    );
    // Ten seconds each way: a reply is let go of after twenty.
    network.set_latency(Duration::from_secs(10));
    for xid in 0..6 {
        read(&mut world, client, xid, sink.whole());
        seconds(&mut world, 15);
    }
    seconds(&mut world, 60);
    assert!(world.is_open(client));
    assert_eq!(world.received(client).len(), 6);
    // The same is too slow by another rule.
    let mut settings = world.shared.settings.get();
    settings.transfers = TransferLimits {
        least: 1,
        window: Duration::from_secs(5),
    };
    world.shared.settings.set(settings);
    read(&mut world, client, 7, sink.whole());
    seconds(&mut world, 40);
    assert_eq!(world.shared.flow.counters().stuck_sends.get(), 1);
    network.set_latency(Duration::ZERO);
    world.settle();
    assert!(!world.is_open(client));
    assert_eq!(encoded(&()).len(), 0);
    world.check_clean();
}

/// A server by TCP, its clients, and a clock that is turned by hand.
struct TcpWorld {
    now: Instant,
    pool: Pool,
    clock: Clock,
    flow: Flow,
    server: TcpServer<Lender>,
    address: SocketAddr,
}

/// Turns after which what has not happened never does.
const TURNS: usize = 200_000;

impl TcpWorld {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).unwrap();
        let now = Instant::now();
        let clock = Clock::new(now);
        let flow = Flow::new(&ClientTable::new(1), 0, &pool, Class::Control, &clock);
        let config = TcpConfig::default();
        let mut server = TcpServer::new(config, &pool, Lender, &flow, None).unwrap();
        let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            now,
            pool,
            clock,
            flow,
            server,
            address,
        }
    }

    fn turn(&mut self) -> usize {
        self.now += Duration::from_micros(20);
        self.clock.turn(self.now);
        self.server.poll(self.now)
    }

    /// Lets the server do all that it can at this time.
    fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..TURNS {
            idle = if self.turn() == 0 { idle + 1 } else { 0 };
            if idle > 50 {
                return;
            }
        }
        panic!("the server never rests");
    }

    fn seconds(&mut self, count: u32) {
        for _ in 0..count {
            self.now += Duration::from_secs(1);
            self.settle();
        }
    }

    fn connect(&mut self, source: Ipv4Addr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((source, 0))).unwrap();
        connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        self.settle();
        stream
    }

    /// Reads once; none if there is nothing.
    fn try_read(stream: &mut TcpStream, bytes: &mut [u8]) -> Option<usize> {
        match stream.read(bytes) {
            Ok(length) => Some(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Has a READ served, whole.
    #[track_caller]
    fn check_served(&mut self, stream: &mut TcpStream) {
        stream.write_all(&tcp_read(1)).unwrap();
        let mut missing = 4 + MESSAGE + READ;
        let mut bytes = vec![0; 1 << 16];
        for _ in 0..TURNS {
            self.turn();
            missing -= Self::try_read(stream, &mut bytes).unwrap_or(0);
            if missing == 0 {
                return;
            }
        }
        panic!("{missing} bytes are missing");
    }
}

/// A record: a READ.
fn tcp_read(xid: u32) -> Vec<u8> {
    let call = rpc(xid, PROGRAM, ASKS);
    let mark = 1 << 31 | u32::try_from(call.len()).unwrap();
    [&mark.to_be_bytes(), &call[..]].concat()
}

#[test]
fn by_tcp_a_client_that_takes_no_data_keeps_nobody_else_waiting_and_is_ended() {
    let mut world = TcpWorld::new();
    let hog = Ipv4Addr::new(127, 0, 0, 66);
    let mut good = world.connect(Ipv4Addr::new(127, 0, 0, 2));
    world.check_served(&mut good);
    let mut hogs: Vec<TcpStream> = (0..4).map(|_| world.connect(hog)).collect();
    for stream in &mut hogs {
        for xid in 0..32 {
            stream.write_all(&tcp_read(xid)).unwrap();
        }
    }
    world.settle();
    let client = world.flow.client(hog.into());
    let all = world.pool.attainable(Class::Large);
    let held = u64::from(client.memory().held(Class::Large));
    assert!(held >= all / 4 && held <= all / 2 + 1, "{held} of {all}");
    for _ in 0..25 {
        world.check_served(&mut good);
        world.seconds(1);
    }
    assert_eq!(world.server.connections(), 5);
    let stuck = world.flow.counters().clone();
    for _ in 0..4 {
        world.check_served(&mut good);
        world.seconds(32);
    }
    // Each was ended, or has got answers without data that the kernel holds for it.
    assert!(stuck.stuck_sends.get() > 0);
    assert_eq!(client.memory().held_bytes(), 0);
    world.check_served(&mut good);
    drop(hogs);
    world.settle();
    assert_eq!(world.server.connections(), 1);
}

#[test]
fn by_tcp_bytes_now_and_then_keep_no_connection_alive() {
    let mut world = TcpWorld::new();
    let mut slow = world.connect(Ipv4Addr::new(127, 0, 0, 66));
    for xid in 0..32 {
        slow.write_all(&tcp_read(xid)).unwrap();
    }
    world.settle();
    let mut bytes = vec![0; 10_000];
    let mut seconds = 0;
    while world.server.connections() > 0 {
        seconds += 1;
        assert!(seconds < 120, "kept by a few bytes a second");
        assert!(TcpWorld::try_read(&mut slow, &mut bytes).is_some());
        world.seconds(1);
    }
    assert_eq!(world.flow.counters().stuck_sends.get(), 1);
    let client = world.flow.client(Ipv4Addr::new(127, 0, 0, 66).into());
    assert_eq!(client.memory().held_bytes(), 0);
    // At more than the least rate, one lives.
    let mut steady = world.connect(Ipv4Addr::new(127, 0, 0, 66));
    for xid in 0..32 {
        steady.write_all(&tcp_read(xid)).unwrap();
    }
    for _ in 0..150 {
        let mut left = 100_000;
        for _ in 0..TURNS {
            left -= TcpWorld::try_read(&mut steady, &mut bytes)
                .unwrap_or(0)
                .min(left);
            if left == 0 {
                break;
            }
            world.turn();
        }
        assert_eq!(left, 0, "there is more");
        world.seconds(1);
    }
    assert_eq!(world.server.connections(), 1);
}
