//! A connecting and an accepting provider of one kind, advanced in turn, and tests that hold for
//! every kind.

#![allow(dead_code, reason = "each kind of provider uses its own part")]

pub mod ending;
pub mod soak;
pub mod transfer;

use std::net::SocketAddr;
use std::time::Instant;

use millrace_mempool::{Buffer, Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::fabric::{
    ConnectParameters, Ended, Event, Key, ListenerId, Operation, PrivateData, Provider,
    QueuePairId, QueuePairLimits, Revoked, Slices, WorkRequest,
};

pub const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 8,
    ord: 8,
    exposures: 16,
    receive_size: 4096,
};

/// Turns after which nothing is expected to come any more. Devices that software pretends, on an
/// emulated machine, take long.
pub const TURNS: u32 = 4_000_000;

/// One provider with its memory and what it has reported.
pub struct Side<P> {
    pub provider: P,
    pub pool: Pool,
    pub events: Vec<Event>,
    fresh: Vec<Event>,
}

impl<P: Provider> Side<P> {
    /// A side whose provider is made for its memory.
    pub fn new(provider: impl FnOnce(&Registry) -> P) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).expect("memory");
        Self {
            provider: provider(&registry),
            pool,
            events: Vec::new(),
            fresh: Vec::with_capacity(32),
        }
    }

    pub fn turn(&mut self) {
        let now = Instant::now();
        self.provider.poll(now, &mut self.fresh);
        self.events.append(&mut self.fresh);
        self.provider.flush(now);
    }

    /// The pool, once the events are dropped, and the provider if it still has memory.
    pub fn into_pool(self, with_provider: bool) -> Pool {
        let Self {
            provider,
            pool,
            events,
            ..
        } = self;
        drop(events);
        if with_provider {
            drop(provider);
        } else {
            assert_eq!(pool.gauges().in_use(), 0, "the provider has memory");
        }
        pool
    }

    pub fn buffer(&self, class: Class) -> Buffer {
        self.pool.try_acquire(class).expect("a free buffer")
    }

    pub fn slice(&self, class: Class, length: usize) -> Slice {
        self.buffer(class).into_slice(0..length)
    }

    /// A slice with recognizable content.
    pub fn pattern(&self, length: usize, seed: usize) -> Slice {
        let slice = self.slice(Class::for_size(length).expect("a class"), length);
        slice.copy_from(0, &pattern(length, seed));
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

    pub fn post(&mut self, queue_pair: QueuePairId, requests: Vec<WorkRequest>) {
        let mut chain = requests;
        self.provider
            .post(queue_pair, &mut chain)
            .expect("room for the chain");
        assert!(chain.is_empty());
    }

    /// Takes the first event that `wanted` accepts.
    pub fn take<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let (position, found) = self
            .events
            .iter()
            .enumerate()
            .find_map(|(position, event)| wanted(event).map(|found| (position, found)))?;
        self.events.remove(position);
        Some(found)
    }
}

pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8)
        .collect()
}

pub fn read(slice: &Slice) -> Vec<u8> {
    let mut bytes = vec![0; slice.len()];
    slice.copy_to(0, &mut bytes);
    bytes
}

pub fn local(slices: impl IntoIterator<Item = Slice>) -> Slices {
    slices.into_iter().collect()
}

pub fn request(token: u64, operation: Operation, local: Slices) -> WorkRequest {
    WorkRequest {
        token,
        operation,
        local,
        signalled: true,
    }
}

pub const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

/// Two connected queue pairs.
pub struct Pair<P> {
    pub client: Side<P>,
    pub server: Side<P>,
    pub listener: ListenerId,
    /// The client's queue pair.
    pub here: QueuePairId,
    /// The server's queue pair.
    pub there: QueuePairId,
}

impl<P: Provider> Pair<P> {
    /// Connects two sides, the server listening at a port of this address.
    pub fn connected(
        mut client: Side<P>,
        mut server: Side<P>,
        any: SocketAddr,
        limits: QueuePairLimits,
    ) -> Self {
        let listener = server
            .provider
            .listen(any, limits, false)
            .expect("a listener");
        let address = server
            .provider
            .listener_address(listener)
            .expect("its address");
        let here = client
            .provider
            .connect(address, parameters(limits, b"hello"), Instant::now())
            .expect("a connect");
        let mut pair = Self {
            client,
            server,
            listener,
            here,
            there: here,
        };
        let (there, private_data) = pair.until(|pair| {
            pair.server.take(|event| match event {
                Event::ConnectRequest {
                    queue_pair,
                    private_data,
                    ..
                } => Some((*queue_pair, private_data.clone())),
                _ => None,
            })
        });
        assert!(is_padded(&private_data, b"hello"));
        pair.there = there;
        pair.server.post_receives(there, 32);
        pair.client.post_receives(here, 32);
        pair.server
            .provider
            .accept(there, parameters(limits, b"welcome"))
            .expect("accepted");
        pair.until(|pair| {
            pair.server
                .take(|event| matches!(event, Event::Established { .. }).then_some(()))
        });
        let private_data = pair.until(|pair| {
            pair.client.take(|event| match event {
                Event::Established { private_data, .. } => Some(private_data.clone()),
                _ => None,
            })
        });
        assert!(is_padded(&private_data, b"welcome"));
        pair
    }

    /// Ends an exposure of the client's: its memory.
    pub fn revoked(&mut self, key: Key) -> Slices {
        let memory = match self.client.provider.revoke(self.here, key) {
            Revoked::Now(memory) => memory,
            Revoked::Later => self.until(|pair| {
                pair.client.take(|event| match event {
                    Event::Revoked {
                        key: dead, local, ..
                    } if *dead == key => Some(local.clone()),
                    _ => None,
                })
            }),
            Revoked::Unknown => panic!("it was exposed"),
        };
        assert!(matches!(
            self.client.provider.revoke(self.here, key),
            Revoked::Unknown
        ));
        memory
    }

    /// Advances both sides until there is an answer.
    pub fn until<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..TURNS {
            self.client.turn();
            self.server.turn();
            if let Some(answer) = attempt(self) {
                return answer;
            }
            std::thread::yield_now();
        }
        panic!(
            "it never came: {:?} {:?}",
            self.client.events, self.server.events
        );
    }
}

/// Whether private data is this, which some fabrics fill up with zeros.
pub fn is_padded(found: &[u8], expected: &[u8]) -> bool {
    let rest = found.strip_prefix(expected);
    rest.is_some_and(|rest| rest.iter().all(|&byte| byte == 0))
}

pub fn parameters(limits: QueuePairLimits, private_data: &[u8]) -> ConnectParameters {
    ConnectParameters {
        limits,
        private_data: PrivateData::try_from(private_data).expect("fits"),
    }
}

/// Why a connection ended.
pub fn disconnected(event: &Event) -> Option<Ended> {
    match event {
        Event::Disconnected { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

/// The token and result of a completion, with its memory.
pub fn completed(event: &Event) -> Option<(u64, bool)> {
    match event {
        Event::Completed { token, result, .. } => Some((*token, result.is_ok())),
        _ => None,
    }
}

/// The bytes of a message.
pub fn received(event: &Event) -> Option<Vec<u8>> {
    match event {
        Event::Received { buffer, length, .. } => Some(buffer[..*length as usize].to_vec()),
        _ => None,
    }
}
