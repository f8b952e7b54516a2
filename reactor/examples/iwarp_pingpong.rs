//! How fast software iWARP is, beside a raw TCP exchange of the same sizes.
//!
//! A client and a server thread, each on its own core, exchange requests and replies over
//! 127.0.0.1 with a number of them in flight:
//!
//! `cargo run --release -p millrace-reactor --example iwarp_pingpong -- SECONDS auto|crc BYTES`,
//! where each argument may be left out from the right.
//!
//! A reply is a Send of 128 bytes, and before it a Write of 0 bytes, 4 KiB or 1 MiB into the
//! client's memory; `BYTES` chooses one of them. Raw TCP carries the same bytes without any frames.
//! Both poll and never sleep.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_primitives::Counter;
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};
use millrace_reactor::fabric::{
    Access, ConnectParameters, ControlPath, DataPath, Event, Key, Operation, PrivateData,
    QueuePairId, QueuePairLimits, RemoteAddress, Slices, WorkRequest,
};

const MESSAGE: usize = 128;
const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 256,
    receive_depth: 128,
    ird: 16,
    ord: 16,
    exposures: 64,
    receive_size: 4096,
};

#[derive(Clone, Copy)]
struct Load {
    /// Bytes written before each reply.
    data: usize,
    in_flight: usize,
    span: Duration,
    crc: CrcPolicy,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments
        .next()
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(2.0);
    let crc = match arguments.next().as_deref() {
        Some("crc") => CrcPolicy::Required,
        _ => CrcPolicy::Auto,
    };
    let only: Option<usize> = arguments.next().and_then(|argument| argument.parse().ok());
    let span = Duration::from_secs_f64(seconds);
    for (name, data, in_flight) in [
        ("Send / Send", 0, 32),
        ("4 KiB Write + Send", 4096, 32),
        ("64 KiB Write + Send", 65_536, 16),
        ("1 MiB Write + Send", 1 << 20, 4),
    ] {
        if only.is_some_and(|only| only != data) {
            continue;
        }
        let load = Load {
            data,
            in_flight,
            span,
            crc,
        };
        let raw = raw(load);
        let iwarp = iwarp(load);
        println!(
            "{name:20} {in_flight:3} in flight: iwarp {iwarp:9.0}/s {:6.2} GB/s, \
             raw TCP {raw:9.0}/s {:6.2} GB/s, ratio {:.2}",
            rate(iwarp, data),
            rate(raw, data),
            iwarp / raw
        );
    }
}

fn rate(per_second: f64, data: usize) -> f64 {
    per_second * (data + MESSAGE) as f64 / 1e9
}

/// Puts this thread on a core of its own.
fn pin(core: usize) {
    if !core_affinity::set_for_current(core_affinity::CoreId { id: core }) {
        eprintln!("core {core} is not to be had: the numbers mean little");
    }
}

/// Replies each second.
fn iwarp(load: Load) -> f64 {
    let (send_address, address) = mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(1);
            serve(load, &send_address);
        });
        let client = scope.spawn(move || {
            pin(0);
            drive(load, address.recv().expect("a listener"))
        });
        let rate = client.join().expect("the client");
        server.join().expect("the server");
        rate
    })
}

struct Node {
    provider: Iwarp,
    pool: Pool,
    chain: Vec<WorkRequest>,
}

impl Node {
    fn new(crc: CrcPolicy) -> Self {
        let registry = Registry::new(HugepagePolicy::Auto);
        let config = IwarpConfig {
            crc,
            ..IwarpConfig::default()
        };
        Self {
            provider: Iwarp::new(config).expect("a provider"),
            pool: Pool::new(&registry, PoolConfig { bytes: 64 << 20 }).expect("memory"),
            chain: Vec::with_capacity(256),
        }
    }

    fn slice(&self, length: usize) -> Slice {
        let class = Class::for_size(length).expect("a class");
        self.pool
            .try_acquire(class)
            .expect("a free buffer")
            .into_slice(0..length)
    }

    fn receives(&mut self, queue_pair: QueuePairId) {
        for _ in 0..LIMITS.receive_depth {
            let buffer = self
                .pool
                .try_acquire(Class::Control)
                .expect("a free buffer");
            self.provider
                .post_receive(queue_pair, buffer)
                .expect("room");
        }
    }
}

fn request(operation: Operation, slice: &Slice) -> WorkRequest {
    let local = Slices::from_iter([slice.clone()]);
    WorkRequest {
        token: 0,
        operation,
        local,
        signalled: false,
    }
}

const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

fn serve(load: Load, address: &mpsc::Sender<SocketAddr>) {
    let mut node = Node::new(load.crc);
    let any = "127.0.0.1:0".parse().expect("an address");
    let listener = node
        .provider
        .listen(any, LIMITS, false)
        .expect("a listener");
    address
        .send(node.provider.listener_address(listener).expect("bound"))
        .expect("a client");
    let data = node.slice(load.data.max(1));
    let reply = node.slice(MESSAGE);
    let mut events = Vec::with_capacity(256);
    loop {
        let now = Instant::now();
        node.provider.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest { queue_pair, .. } => {
                    node.receives(queue_pair);
                    node.provider
                        .accept(queue_pair, parameters())
                        .expect("accepted");
                }
                Event::Received {
                    queue_pair, buffer, ..
                } => {
                    if load.data > 0 {
                        let remote = remote_address(&buffer);
                        node.chain.push(request(Operation::Write(remote), &data));
                    }
                    node.provider
                        .post_receive(queue_pair, buffer)
                        .expect("room");
                    node.chain.push(request(SEND, &reply));
                    node.provider
                        .post(queue_pair, &mut node.chain)
                        .expect("room");
                }
                Event::Disconnected { .. } => return,
                _ => {}
            }
        }
        node.provider.flush(now);
    }
}

fn remote_address(request: &[u8]) -> RemoteAddress {
    let (key, rest) = request.split_first_chunk().expect("a key");
    let (offset, _) = rest.split_first_chunk().expect("an offset");
    RemoteAddress {
        key: Key(u32::from_be_bytes(*key)),
        offset: u64::from_be_bytes(*offset),
    }
}

fn parameters() -> ConnectParameters {
    ConnectParameters {
        limits: LIMITS,
        private_data: PrivateData::new(),
    }
}

fn drive(load: Load, address: SocketAddr) -> f64 {
    let mut node = Node::new(load.crc);
    let queue_pair = node
        .provider
        .connect(address, parameters(), Instant::now())
        .expect("a connection");
    node.receives(queue_pair);
    let requests: Vec<Slice> = (0..load.in_flight)
        .map(|_| {
            let room = Slices::from_iter([node.slice(load.data.max(1))]);
            let exposure = node
                .provider
                .expose(queue_pair, room, Access::RemoteWrite)
                .expect("a free exposure");
            let message = node.slice(MESSAGE);
            message.copy_from(0, &exposure.key.0.to_be_bytes());
            message.copy_from(4, &exposure.offset.to_be_bytes());
            message
        })
        .collect();
    let (mut replies, mut next) = (0_u64, 0);
    let mut begun: Option<Instant> = None;
    let mut events = Vec::with_capacity(256);
    loop {
        let now = Instant::now();
        node.provider.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Established { .. } => {
                    begun = Some(now);
                    node.chain
                        .extend(requests.iter().map(|message| request(SEND, message)));
                }
                Event::Received { buffer, .. } => {
                    replies += 1;
                    node.provider
                        .post_receive(queue_pair, buffer)
                        .expect("room");
                    node.chain.push(request(SEND, &requests[next]));
                    next = (next + 1) % requests.len();
                }
                Event::Disconnected { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
        if !node.chain.is_empty() {
            node.provider
                .post(queue_pair, &mut node.chain)
                .expect("room");
        }
        node.provider.flush(now);
        if let Some(begun) = begun
            && now - begun >= load.span
        {
            report_calls(&node.provider, replies);
            return replies as f64 / (now - begun).as_secs_f64();
        }
    }
}

/// System calls of the client for each reply.
fn report_calls(provider: &Iwarp, replies: u64) {
    let counters = provider.counters();
    let each = |count: &Counter| count.get() as f64 / replies.max(1) as f64;
    eprintln!(
        "    client, each reply: {:.2} receiving calls, {:.2} sending calls, {:.2} FPDUs in, \
         {:.0} bytes straight into memory",
        each(&counters.receive_calls),
        each(&counters.send_calls),
        each(&counters.frames_in),
        each(&counters.bytes_direct)
    );
}

/// Replies each second, without any frames: all that has arrived is read at once, and all answers
/// to it are written at once.
fn raw(load: Load) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("bound");
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(1);
            let (socket, _) = listener.accept().expect("a connection");
            raw_serve(load, socket);
        });
        let client = scope.spawn(move || {
            pin(0);
            raw_drive(load, TcpStream::connect(address).expect("a connection"))
        });
        let rate = client.join().expect("the client");
        server.join().expect("the server");
        rate
    })
}

/// Reads what is there; `None` once the other side has gone.
fn read_some(socket: &mut TcpStream, buffer: &mut [u8]) -> Option<usize> {
    match socket.read(buffer) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Writes what the socket takes of `left` bytes.
fn write_some(socket: &mut TcpStream, bytes: &[u8], left: usize) -> usize {
    if left == 0 {
        return 0;
    }
    // Whether it would block or the other side has gone is found by reading.
    socket.write(&bytes[..left.min(bytes.len())]).unwrap_or(0)
}

fn raw_serve(load: Load, mut socket: TcpStream) {
    socket.set_nodelay(true).expect("a TCP option");
    socket.set_nonblocking(true).expect("a socket option");
    let answer = vec![1; (load.data + MESSAGE) * load.in_flight];
    let mut buffer = vec![0; 256 * 1024];
    let (mut arrived, mut left) = (0, 0);
    while let Some(count) = read_some(&mut socket, &mut buffer) {
        arrived += count;
        left += arrived / MESSAGE * (load.data + MESSAGE);
        arrived %= MESSAGE;
        left -= write_some(&mut socket, &answer, left);
    }
}

fn raw_drive(load: Load, mut socket: TcpStream) -> f64 {
    socket.set_nodelay(true).expect("a TCP option");
    socket.set_nonblocking(true).expect("a socket option");
    let requests = vec![2; MESSAGE * load.in_flight];
    let mut buffer = vec![0; (load.data + MESSAGE).clamp(256 * 1024, 1 << 20)];
    let (mut arrived, mut replies, mut left) = (0, 0_u64, requests.len());
    let begun = Instant::now();
    loop {
        left -= write_some(&mut socket, &requests, left);
        arrived += read_some(&mut socket, &mut buffer).expect("a living server");
        let complete = arrived / (load.data + MESSAGE);
        arrived %= load.data + MESSAGE;
        replies += complete as u64;
        left += complete * MESSAGE;
        if begun.elapsed() >= load.span {
            return replies as f64 / begun.elapsed().as_secs_f64();
        }
    }
}
