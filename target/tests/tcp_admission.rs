//! Who finds room for a TCP connection, whatever others hold. The server is turned by hand, and so
//! is its clock.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use millrace::exports::{Exports, Rules};
use millrace::rpc::Transport;
use millrace::service::ReactorPrograms;
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_store::memory::MemoryStore;

/// Turns after which nothing more happens.
const TURNS: usize = 100_000;

const FULL: usize = 128;

struct World {
    server: TcpServer<ReactorPrograms<MemoryStore>>,
    service: ReactorPrograms<MemoryStore>,
    store: MemoryStore,
    address: SocketAddr,
    now: Instant,
}

/// Rules that admit these networks.
fn rules(networks: &[&str]) -> Rules {
    Rules {
        clients: networks.iter().map(|one| one.parse().unwrap()).collect(),
        ..support::rules("/export")
    }
}

/// The host 127.0.0.`last`.
fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// A NULL call of a program.
fn null_call(program: u32) -> Vec<u8> {
    let words = [1 << 31 | 40, 7, 0, 2, program, 3, 0, 0, 0, 0, 0];
    words
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect()
}

impl World {
    /// A server that listens at `address` and admits 127.0.0.0/28.
    fn at(address: &str) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
        let store = support::memory_store(&registry);
        let service = support::service([(rules(&["127.0.0.0/28"]), store.clone())]);
        let config = TcpConfig {
            connections: FULL,
            ..TcpConfig::default()
        };
        let flow = support::flow(&pool);
        let mut server = TcpServer::new(config, &pool, service.clone(), &flow, None).unwrap();
        let address = server.listen(address.parse().unwrap()).unwrap();
        Self {
            server,
            service,
            store,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
            now: Instant::now(),
        }
    }

    fn new() -> Self {
        Self::at("127.0.0.1:0")
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.server.poll(self.now);
    }

    /// Turns the server until something holds.
    #[track_caller]
    fn turn_until<T>(&mut self, mut holds: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..TURNS {
            // Sockets are asked no more often than this.
            self.pass(Duration::from_micros(20));
            if let Some(value) = holds(self) {
                return value;
            }
        }
        panic!("it never came to that");
    }

    /// A connection from a host that the server has taken in or refused.
    fn connect(&mut self, from: Ipv4Addr) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let counters = self.server.counters();
        let decided = || counters.accepted.get() + counters.refused.get();
        let before = decided();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        self.turn_until(|_| (decided() > before).then_some(()));
        stream
    }

    /// Whether the server answers a call.
    fn answers(&mut self, stream: &mut TcpStream, program: u32) -> bool {
        // A connection that the server has closed may fail here already.
        if stream.write_all(&null_call(program)).is_err() {
            return false;
        }
        let mut reply = [0; 28];
        self.turn_until(|_| match stream.read(&mut reply) {
            Ok(length) => Some(length == 28),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(_) => Some(false),
        })
    }
}

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Whether the server has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn open(streams: &mut [TcpStream]) -> usize {
    streams
        .iter_mut()
        .map(is_closed)
        .filter(|closed| !closed)
        .count()
}

#[test]
fn idle_connections_of_one_client_lock_nobody_out() {
    let mut world = World::new();
    let mut idle: Vec<_> = (0..FULL).map(|_| world.connect(host(2))).collect();
    world.pass(Duration::from_secs(5));
    assert_eq!(open(&mut idle), FULL, "there is room for them");
    let mut mount = world.connect(host(1));
    assert!(world.answers(&mut mount, MOUNT));
    drop(mount);
    let mut clients: Vec<_> = (3..11).map(|last| world.connect(host(last))).collect();
    for client in &mut clients {
        assert!(world.answers(client, NFS));
    }
    let left = open(&mut idle);
    assert!((FULL - 9..FULL - 7).contains(&left), "{left} are left");
    // More of the same client's take the place of its own.
    let more: Vec<_> = (0..20).map(|_| world.connect(host(2))).collect();
    assert_eq!(open(&mut clients), 8);
    drop(more);
}

#[test]
fn a_client_that_mounted_keeps_its_idle_connection() {
    let mut world = World::new();
    let mut mounted = world.connect(host(1));
    assert!(world.answers(&mut mounted, NFS));
    let mut silent = world.connect(host(3));
    world.pass(Duration::from_secs(61));
    assert!(is_closed(&mut silent), "it never sent a call");
    world.pass(Duration::from_secs(24 * 3600));
    let mut others: Vec<_> = (0..FULL + 20).map(|_| world.connect(host(2))).collect();
    assert!(world.answers(&mut mounted, NFS));
    assert_eq!(open(&mut others), FULL - 1);
}

#[test]
fn addresses_that_no_export_admits_have_few_connections_for_a_short_time() {
    let mut world = World::new();
    let mut own: Vec<_> = (0..10).map(|_| world.connect(host(100))).collect();
    assert_eq!(open(&mut own), 2, "of one address");
    // They are answered, so that they can be told that they are not admitted.
    assert!(world.answers(&mut own[0], MOUNT));
    let mut others: Vec<_> = (101..131).map(|last| world.connect(host(last))).collect();
    assert_eq!(open(&mut own) + open(&mut others), 8, "in all");
    let mut clients: Vec<_> = (0..FULL).map(|_| world.connect(host(1))).collect();
    assert_eq!(open(&mut clients), FULL);
    assert_eq!(open(&mut own) + open(&mut others), 0);
    let mut refused = world.connect(host(131));
    assert!(is_closed(&mut refused), "not in the place of others");
    drop(clients.split_off(FULL / 2));
    world.turn_until(|world| (world.server.connections() == FULL / 2).then_some(()));
    let mut late = world.connect(host(132));
    assert!(world.answers(&mut late, MOUNT));
    world.pass(Duration::from_secs(9));
    assert!(!is_closed(&mut late));
    world.pass(Duration::from_secs(2));
    assert!(is_closed(&mut late), "calls or not");
    assert_eq!(world.server.counters().misbehaved.get(), 0);
}

#[test]
fn changes_of_exports_hold_for_connections_that_are_open() {
    let mut world = World::new();
    let mut known = world.connect(host(1));
    let mut unknown = world.connect(host(100));
    assert!(world.answers(&mut known, NFS));
    let exports = [(rules(&["127.0.0.100/32"]), world.store.clone())];
    world
        .service
        .replace_exports(Exports::new(exports).unwrap());
    world.pass(Duration::from_secs(9));
    assert!(world.answers(&mut unknown, NFS));
    for _ in 0..5 {
        world.pass(Duration::from_secs(11));
        assert!(world.answers(&mut known, NFS), "it is cut only when idle");
    }
    world.pass(Duration::from_secs(3600));
    assert!(world.answers(&mut unknown, NFS));
    assert!(is_closed(&mut known), "no export admits it any more");
}

#[test]
fn a_listener_for_both_families_knows_mapped_addresses() {
    let mut world = World::at("[::]:0");
    let mut streams: Vec<_> = (0..20).map(|_| world.connect(host(1))).collect();
    assert_eq!(open(&mut streams), 20);
    let mut others: Vec<_> = (0..20).map(|_| world.connect(host(100))).collect();
    assert_eq!(open(&mut others), 2);
}

#[test]
fn calls_in_flight_are_the_most_at_once_although_they_are_answered_in_their_turn() {
    let mut world = World::new();
    let mut stream = world.connect(host(2));
    let calls = null_call(100_003).repeat(8);
    stream.write_all(&calls).unwrap();
    let mut left = 8 * 28;
    world.turn_until(|_| {
        let mut reply = [0; 28];
        left -= stream.read(&mut reply).unwrap_or(0);
        (left == 0).then_some(())
    });
    let in_flight = |world: &World| {
        let mut reports = Vec::new();
        world.server.report(world.now, &mut reports);
        reports.first().map(|report| report.in_service)
    };
    assert_eq!(world.server.open_work().in_flight, 0);
    assert_eq!(in_flight(&world), Some(8));
    world.pass(Duration::from_secs(2));
    assert_eq!(in_flight(&world), Some(0));
}
