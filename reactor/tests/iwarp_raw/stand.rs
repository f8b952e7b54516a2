//! One provider under test, its memory, its time and what it reported.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use millrace_mempool::{Buffer, Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};
use millrace_reactor::fabric::{
    ConnectParameters, ControlPath, DataPath, Ended, Event, Operation, PrivateData, QueuePairId,
    QueuePairLimits, Slices, WorkRequest,
};

use crate::support::Peer;
use crate::support::frames::{self, ENHANCED, Frame};

pub const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 32,
    receive_depth: 32,
    ird: 4,
    ord: 4,
    exposures: 8,
    receive_size: 4096,
};

pub const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

/// Without CRCs of its own wish.
pub fn plain() -> IwarpConfig {
    IwarpConfig {
        crc: CrcPolicy::Off,
        ..IwarpConfig::default()
    }
}

pub struct Stand {
    pub provider: Iwarp,
    pub pool: Pool,
    pub now: Instant,
    pub events: Vec<Event>,
    fresh: Vec<Event>,
}

impl Stand {
    pub fn new(config: IwarpConfig) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        Self {
            provider: Iwarp::new(config).expect("a provider"),
            pool: Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory"),
            now: Instant::now(),
            events: Vec::new(),
            fresh: Vec::with_capacity(64),
        }
    }

    pub fn poll(&mut self) {
        self.provider.poll(self.now, &mut self.fresh);
        self.events.append(&mut self.fresh);
    }

    pub fn turn(&mut self) {
        self.poll();
        self.provider.flush(self.now);
    }

    /// Turns until all that can happen has happened: the kernel hands over between two sockets of
    /// one machine within the sending call.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            self.turn();
        }
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.settle();
    }

    /// Turns until there is an answer.
    pub fn until<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..100_000 {
            self.turn();
            if let Some(answer) = attempt(self) {
                return answer;
            }
            std::thread::yield_now();
        }
        panic!("it never came: {:?}", self.events);
    }

    /// Takes the first event that `wanted` accepts.
    pub fn take<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let mut events = self.events.iter().enumerate();
        let (at, found) = events.find_map(|(at, event)| Some((at, wanted(event)?)))?;
        self.events.remove(at);
        Some(found)
    }

    pub fn listen(&mut self) -> SocketAddr {
        self.listen_with(LIMITS)
    }

    pub fn listen_with(&mut self, limits: QueuePairLimits) -> SocketAddr {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = self.provider.listen(any, limits, false).expect("a port");
        let address = self.provider.listener_address(listener);
        address.expect("a bound address")
    }

    /// The queue pair of the next connection request.
    pub fn requested(&mut self) -> QueuePairId {
        self.until(|stand| {
            stand.take(|event| match event {
                Event::ConnectRequest { queue_pair, .. } => Some(*queue_pair),
                _ => None,
            })
        })
    }

    /// A peer that has sent a request which the application knows of.
    pub fn caller(&mut self, address: SocketAddr, request: &[u8]) -> (Peer, QueuePairId) {
        let mut peer = Peer::connect(address);
        peer.send(request);
        let queue_pair = self.requested();
        (peer, queue_pair)
    }

    /// Accepts; the peer has the reply.
    pub fn accept(&mut self, peer: &mut Peer, queue_pair: QueuePairId) -> Frame {
        self.provider
            .accept(queue_pair, parameters(LIMITS))
            .expect("a request");
        self.until(|stand| stand.established(queue_pair));
        let reply = self.until(|_| peer.take_frame());
        assert!(reply.is_reply && reply.flags & 0x20 == 0, "{reply:?}");
        peer.crc = reply.flags & frames::CRC != 0;
        reply
    }

    /// A client-server connection from a peer that allows `ird` and wishes `ord` reads.
    pub fn served(&mut self, address: SocketAddr, ird: u32, ord: u32) -> (Peer, QueuePairId) {
        let request = frames::request(ENHANCED, 2, &frames::data(0, ird, ord));
        let (mut peer, queue_pair) = self.caller(address, &request);
        self.accept(&mut peer, queue_pair);
        (peer, queue_pair)
    }

    /// Begins to connect to a peer, which has the request.
    pub fn dial(&mut self, limits: QueuePairLimits) -> (Peer, QueuePairId, Frame, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("a bound address");
        let queue_pair = self
            .provider
            .connect(address, parameters(limits), self.now)
            .expect("a connect");
        let mut peer = Peer::accept(&listener);
        let request = self.until(|_| peer.take_frame());
        assert!(!request.is_reply);
        (peer, queue_pair, request, listener)
    }

    /// A connection to a peer that answers with this connection data.
    pub fn dialled(&mut self, limits: QueuePairLimits, data: [u8; 4]) -> (Peer, QueuePairId) {
        let (mut peer, queue_pair, ..) = self.dial(limits);
        peer.send(&frames::reply(ENHANCED, 2, &data));
        self.until(|stand| stand.established(queue_pair));
        (peer, queue_pair)
    }

    pub fn established(&mut self, of: QueuePairId) -> Option<()> {
        self.take(|event| match event {
            Event::Established { queue_pair, .. } if *queue_pair == of => Some(()),
            _ => None,
        })
    }

    /// Why a connection ended.
    pub fn ended(&mut self, of: QueuePairId) -> Option<Ended> {
        self.take(|event| match event {
            Event::Disconnected { queue_pair, reason } if *queue_pair == of => Some(reason.clone()),
            _ => None,
        })
    }

    pub fn received(&mut self, of: QueuePairId) -> Option<Vec<u8>> {
        self.take(|event| match event {
            Event::Received {
                queue_pair,
                buffer,
                length,
                ..
            } if *queue_pair == of => Some(buffer[..*length as usize].to_vec()),
            _ => None,
        })
    }

    /// Token and outcome of the next completion.
    pub fn completed(&mut self, of: QueuePairId) -> Option<(u64, bool)> {
        self.take(|event| match event {
            Event::Completed {
                queue_pair,
                token,
                result,
                ..
            } if *queue_pair == of => Some((*token, result.is_ok())),
            _ => None,
        })
    }

    pub fn buffer(&self, class: Class) -> Buffer {
        self.pool.try_acquire(class).expect("a free buffer")
    }

    pub fn slice(&self, content: &[u8]) -> Slice {
        let class = Class::for_size(content.len()).expect("a class");
        let slice = self.buffer(class).into_slice(0..content.len());
        slice.copy_from(0, content);
        slice
    }

    pub fn post_receives(&mut self, queue_pair: QueuePairId, count: usize) {
        for _ in 0..count {
            let buffer = self.buffer(Class::Control);
            self.provider
                .post_receive(queue_pair, buffer)
                .expect("room");
        }
    }

    /// Posts one signalled request with this content.
    pub fn post(&mut self, of: QueuePairId, token: u64, operation: Operation, content: &[u8]) {
        let mut local = Slices::new();
        if !content.is_empty() {
            local.push(self.slice(content));
        }
        let mut chain = vec![WorkRequest {
            token,
            operation,
            local,
            signalled: true,
        }];
        self.provider.post(of, &mut chain).expect("room");
    }

    /// Connections that the provider has.
    pub fn connections(&self) -> u64 {
        self.provider.counters().fabric.connections.get()
    }

    pub fn count(
        &self,
        of: fn(
            &millrace_reactor::fabric::iwarp::IwarpCounters,
        ) -> &millrace_reactor::primitives::Counter,
    ) -> u64 {
        of(&self.provider.counters()).get()
    }
}

pub fn parameters(limits: QueuePairLimits) -> ConnectParameters {
    ConnectParameters {
        limits,
        private_data: PrivateData::new(),
    }
}

pub fn content(slice: &Slice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len()];
    slice.copy_to(0, &mut bytes);
    bytes
}
