//! Fairness between connections over sockets in the turns of a provider.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::poll::IDLE_POLLS_MAX;
use super::slots::SlotState;
use super::stream::BYTES_TURN_SHORT;
use super::{Iwarp, IwarpConfig};
use crate::fabric::service::EVENTS_SHARED;
use crate::fabric::{
    ConnectParameters, ControlPath, DataPath, Event, Operation, PrivateData, QueuePairId,
    QueuePairLimits, WorkRequest,
};

/// Messages of each connection.
const MESSAGES: usize = 40;

/// The capacity of a turn in events.
const ROOM: usize = 256;

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 1,
    ord: 1,
    exposures: 0,
    receive_size: 4096,
};

fn parameters() -> ConnectParameters {
    ConnectParameters {
        limits: LIMITS,
        private_data: PrivateData::new(),
    }
}

/// Whether an event is a message of this connection.
fn is_message_of(connection: QueuePairId) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Received { queue_pair, .. } if *queue_pair == connection)
}

/// A host with connections to the server.
struct Host {
    address: IpAddr,
    provider: Iwarp,
    connections: Vec<QueuePairId>,
}

impl Host {
    fn new(last: u8) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let config = IwarpConfig {
            source: Some(address),
            ..IwarpConfig::default()
        };
        Self {
            address,
            provider: Iwarp::new(config).unwrap(),
            connections: Vec::new(),
        }
    }

    /// Bytes sent so far.
    fn sent(&self) -> u64 {
        let counters = self.provider.counters();
        counters.bytes_out.get()
    }

    fn request(message: &Slice) -> WorkRequest {
        WorkRequest {
            token: 0,
            operation: Operation::Send {
                invalidate: None,
                solicited: false,
            },
            local: [message.clone()].into_iter().collect(),
            signalled: true,
        }
    }

    /// Sends the messages of all connections, and waits until the kernel has them.
    fn send(&mut self, message: &Slice) {
        let mut chain = Vec::new();
        for &connection in &self.connections {
            for _ in 0..MESSAGES {
                chain.push(Self::request(message));
            }
            self.provider.post(connection, &mut chain).unwrap();
        }
        let mut completed = 0;
        let mut events = Vec::with_capacity(256);
        while completed < MESSAGES * self.connections.len() {
            self.provider.flush(Instant::now());
            self.provider.poll(Instant::now(), &mut events);
            let is_done = |event: &Event| matches!(event, Event::Completed { result: Ok(()), .. });
            completed += events.drain(..).filter(is_done).count();
        }
    }
}

struct Server {
    provider: Iwarp,
    pool: Pool,
    address: SocketAddr,
    events: Vec<Event>,
}

impl Server {
    fn new() -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 64 << 20 }).unwrap();
        let mut provider = Iwarp::new(IwarpConfig::default()).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = provider.listen(any, LIMITS, false).unwrap();
        let address = provider.listener_address(listener).unwrap();
        Self {
            provider,
            pool,
            address,
            events: Vec::with_capacity(ROOM),
        }
    }

    /// Connects a host. Returns the identifiers here.
    fn connect(&mut self, host: &mut Host, count: usize) -> Vec<QueuePairId> {
        for _ in 0..count {
            let now = Instant::now();
            let made = host.provider.connect(self.address, parameters(), now);
            host.connections.push(made.unwrap());
        }
        let (mut here, mut there) = (Vec::new(), 0);
        let mut events = Vec::with_capacity(ROOM);
        while here.len() < count || there < count {
            host.provider.poll(Instant::now(), &mut events);
            host.provider.flush(Instant::now());
            let stands = |event: &Event| matches!(event, Event::Established { .. });
            there += events.drain(..).filter(stands).count();
            self.provider.poll(Instant::now(), &mut self.events);
            for event in std::mem::take(&mut self.events) {
                match event {
                    Event::ConnectRequest {
                        queue_pair, peer, ..
                    } => {
                        assert_eq!(peer.ip(), host.address);
                        for _ in 0..MESSAGES {
                            let buffer = self.pool.try_acquire(Class::Control).unwrap();
                            let posted = self.provider.post_receive(queue_pair, buffer);
                            assert!(posted.is_ok(), "room for a receive");
                        }
                        self.provider.accept(queue_pair, parameters()).unwrap();
                    }
                    Event::Established { queue_pair, .. } => here.push(queue_pair),
                    _ => {}
                }
            }
            self.events.reserve_exact(ROOM);
            self.provider.flush(Instant::now());
        }
        here
    }

    /// Bytes waiting in the sockets of these connections.
    fn waiting(&mut self, connections: &[QueuePairId]) -> u64 {
        let waiting = connections.iter().map(|id| {
            let SlotState::Live(connection) = self.provider.slots.state(id.index) else {
                panic!("a connection has ended");
            };
            rustix::io::ioctl_fionread(&connection.socket).unwrap()
        });
        waiting.sum()
    }
}

#[test]
fn a_client_with_200_connections_gets_no_more_of_a_turn_than_one_with_one() {
    let mut server = Server::new();
    let (mut many, mut one) = (Host::new(1), Host::new(2));
    let theirs = server.connect(&mut many, 200);
    let own = server.connect(&mut one, 1);
    let message = server.pool.try_acquire(Class::Control).unwrap();
    let message = message.into_slice(0..100);
    let before = many.sent() + one.sent();
    many.send(&message);
    one.send(&message);
    let sent = many.sent() + one.sent() - before;
    while server.waiting(&theirs) + server.waiting(&own) < sent {
        std::thread::yield_now();
    }

    let mut received = vec![0; theirs.len()];
    let (mut of_many, mut of_one) = (0, 0);
    let mut turns = 0;
    while of_many < MESSAGES * theirs.len() {
        server.provider.poll(Instant::now(), &mut server.events);
        for event in server.events.drain(..) {
            let Event::Received { queue_pair, .. } = event else {
                continue;
            };
            match theirs.iter().position(|id| *id == queue_pair) {
                Some(position) => {
                    of_many += 1;
                    received[position] += 1;
                }
                None => of_one += 1,
            }
        }
        turns += 1;
        let part = turns * EVENTS_SHARED;
        assert!(
            of_many <= part && of_one == part.min(MESSAGES),
            "turn {turns}: {of_many} messages of 200 connections, {of_one} of the other client"
        );
        let (least, most) = (received.iter().min(), received.iter().max());
        let ahead = most.unwrap() - least.unwrap();
        assert!(ahead <= 32, "turn {turns}: {ahead} messages ahead");
    }
    assert_eq!(of_one, MESSAGES);
}

/// What a server sends in bulk: messages, as many as it may have in flight.
const BULK: u32 = LIMITS.send_depth;
/// Bytes of them that the server may send before it sees a request of another client.
const BULK_MOST: u64 = 600_000;

#[test]
fn a_client_with_bulk_data_delays_a_request_of_an_idle_one_by_little_data() {
    let mut server = Server::new();
    let (mut bulk, mut idle) = (Host::new(1), Host::new(2));
    let [theirs] = server.connect(&mut bulk, 1)[..] else {
        panic!("one connection");
    };
    let [own] = server.connect(&mut idle, 1)[..] else {
        panic!("one connection");
    };
    // The idle connection's socket is no longer read without polling, the other one's is.
    for _ in 0..2 * IDLE_POLLS_MAX {
        server.provider.poll(Instant::now(), &mut server.events);
    }
    let message = server.pool.try_acquire(Class::Control).unwrap();
    bulk.send(&message.into_slice(0..100));
    let mut received = 0;
    while received < MESSAGES {
        server.provider.poll(Instant::now(), &mut server.events);
        received += server
            .events
            .drain(..)
            .filter(is_message_of(theirs))
            .count();
    }
    let message = server.pool.try_acquire(Class::Control).unwrap();
    let message = message.into_slice(0..100);
    idle.send(&message);
    while server.waiting(&[own]) < MESSAGES as u64 * 100 {
        std::thread::yield_now();
    }

    let large = server.pool.try_acquire(Class::Medium).unwrap();
    let large = large.into_slice(0..Class::Medium.size());
    let mut chain = (0..BULK).map(|_| Host::request(&large)).collect();
    server.provider.post(theirs, &mut chain).unwrap();
    let counters = server.provider.counters();
    let before = counters.bytes_out.get();
    server.provider.polls = 0;
    let mut found = 0;
    while found == 0 {
        server.provider.flush(Instant::now());
        server.provider.poll(Instant::now(), &mut server.events);
        found = server.events.drain(..).filter(is_message_of(own)).count();
        let sent = counters.bytes_out.get() - before;
        assert!(sent < BULK_MOST, "{sent} bytes were sent meanwhile");
    }
    // From now on it counts as active, and turns are shorter.
    let before = counters.bytes_out.get();
    server.provider.flush(Instant::now());
    let sent = counters.bytes_out.get() - before;
    let most = BYTES_TURN_SHORT as u64;
    assert!((1..=most).contains(&sent), "{sent} bytes in one turn");
}

/// A connection from a host that sends nothing.
fn silent(from: [u8; 4], to: SocketAddr) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    socket
}

/// Whether the other side has closed it.
fn is_closed(socket: &OwnedFd) -> bool {
    let flags = rustix::net::RecvFlags::DONTWAIT;
    let received = rustix::net::recv(socket, &mut [0; 1], flags);
    received.map(|(_, length)| length) != Err(rustix::io::Errno::AGAIN)
}

#[test]
fn connections_that_say_nothing_make_room_by_address() {
    let config = IwarpConfig {
        half_open_max: 4,
        ..IwarpConfig::default()
    };
    let mut provider = Iwarp::new(config).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = provider.listen(any, LIMITS, false).unwrap();
    let address = provider.listener_address(listener).unwrap();
    let mut events = Vec::with_capacity(ROOM);
    // Sockets are not polled in every turn.
    let mut settle = |provider: &mut Iwarp| {
        for _ in 0..1000 {
            provider.poll(Instant::now(), &mut events);
        }
    };
    let own = [2, 3].map(|last| silent([127, 0, 0, last], address));
    settle(&mut provider);
    assert_eq!(provider.connections(), 2);
    let others: Vec<_> = (0..20).map(|_| silent([127, 0, 0, 1], address)).collect();
    settle(&mut provider);
    assert_eq!(provider.connections(), 4);
    assert!(!own.iter().any(is_closed), "they are the oldest");
    let left = others.iter().filter(|one| !is_closed(one)).count();
    assert_eq!(left, 2);
}

#[test]
fn what_was_received_does_not_end_the_next_sleep() {
    let mut server = Server::new();
    let mut host = Host::new(1);
    server.connect(&mut host, 1);
    let message = server.pool.try_acquire(Class::Control).unwrap();
    host.send(&message.into_slice(0..100));
    let mut received = 0;
    while received < MESSAGES {
        server.provider.poll(Instant::now(), &mut server.events);
        let is_call = |event: &Event| matches!(event, Event::Received { .. });
        received += server.events.drain(..).filter(is_call).count();
    }
    assert!(!server.provider.arm(), "changes are left that are none");
    server.provider.poll(Instant::now(), &mut server.events);
    assert!(server.provider.arm());
    let epoll = &server.provider.shared.epoll;
    let mut descriptors = [PollFd::new(epoll, PollFlags::IN)];
    let at_once = Some(&Timespec::default());
    assert_eq!(poll(&mut descriptors, at_once), Ok(0));
}
