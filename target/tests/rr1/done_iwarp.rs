//! Classic mode over the software provider and TCP: what a client may fetch, and when no more.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::rdma::{FabricSlot, Responder, ResponderShared, Settings, work};
use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::Clock;
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_reactor::fabric::{
    AnyProvider, ConnectParameters, ControlPath, DataPath, Ended, Event, Key, Operation,
    PrivateData, QueuePairId, QueuePairLimits, ReadDepths, RemoteAddress, Terminate, WorkError,
    WorkRequest,
};
use millrace_wire::rpcrdma::Segment;

use crate::support::fetch::{done, segments};
use crate::support::message::{PROGRAM, Parsed, parse, plain, rpc};
use crate::support::raw::gather;
use crate::support::script::{CallScript, Script};

/// Turns within which what one side sends arrives at the other, whatever the machine does.
const TURNS_MAX: usize = 10_000_000;

const LONG: usize = 5000;

/// A client on the software provider.
struct Client {
    provider: Iwarp,
    queue_pair: QueuePairId,
    pool: Pool,
    depths: Option<ReadDepths>,
    received: Vec<Vec<u8>>,
    fetched: Vec<Result<Vec<u8>, WorkError>>,
    ended: Option<Ended>,
}

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 4,
    ord: 4,
    exposures: 0,
    receive_size: 4096,
};

impl Client {
    fn connect(address: SocketAddr, pool: &Pool, now: Instant) -> Self {
        let mut provider = Iwarp::new(IwarpConfig::default()).unwrap();
        let parameters = ConnectParameters {
            limits: LIMITS,
            private_data: PrivateData::new(),
        };
        let queue_pair = provider.connect(address, parameters, now).unwrap();
        for _ in 0..16 {
            let buffer = pool.try_acquire(Class::Control).unwrap();
            provider.post_receive(queue_pair, buffer).unwrap();
        }
        Self {
            provider,
            queue_pair,
            pool: pool.clone(),
            depths: None,
            received: Vec::new(),
            fetched: Vec::new(),
            ended: None,
        }
    }

    fn post(&mut self, operation: Operation, bytes: &[u8]) {
        let mut buffer = self.pool.try_acquire(Class::Medium).unwrap();
        buffer[..bytes.len()].copy_from_slice(bytes);
        let mut chain = vec![WorkRequest {
            token: 0,
            operation,
            local: std::iter::once(buffer.into_slice(0..bytes.len())).collect(),
            signalled: matches!(operation, Operation::Read(_)),
        }];
        self.provider.post(self.queue_pair, &mut chain).unwrap();
    }

    fn send(&mut self, message: &[u8]) {
        let operation = Operation::Send {
            invalidate: None,
            solicited: false,
        };
        self.post(operation, message);
    }

    fn read(&mut self, segment: Segment) {
        let from = RemoteAddress {
            key: Key(segment.handle),
            offset: segment.offset,
        };
        self.post(Operation::Read(from), &vec![0; segment.length as usize]);
    }

    fn turn(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(16);
        self.provider.poll(now, &mut events);
        for event in events {
            match event {
                Event::Established { depths, .. } => self.depths = Some(depths),
                Event::Received { buffer, length, .. } => {
                    self.received.push(buffer[..length as usize].to_vec());
                }
                Event::Completed {
                    result: Err(WorkError::Flushed),
                    ..
                } if self.ended.is_some() => {}
                Event::Completed { result, local, .. } => {
                    self.fetched.push(result.map(|()| gather(&local)));
                }
                Event::Disconnected { reason, .. } => self.ended = Some(reason),
                other => panic!("{other:?}"),
            }
        }
        self.provider.flush(now);
    }
}

/// A responder in classic mode, and its clients.
struct DoneFixture<R> {
    turn: R,
    now: Instant,
    clients: Vec<Client>,
}

impl<R: FnMut(Instant)> DoneFixture<R> {
    /// Turns everybody until something holds.
    #[track_caller]
    fn until(&mut self, mut holds: impl FnMut(&mut Vec<Client>) -> bool) {
        for _ in 0..TURNS_MAX {
            if holds(&mut self.clients) {
                return;
            }
            (self.turn)(self.now);
            for client in &mut self.clients {
                client.turn(self.now);
            }
        }
        panic!("it never comes to be");
    }

    #[track_caller]
    fn exposed(&mut self, client: usize, xid: u32) -> Parsed {
        self.clients[client].send(&plain(&rpc(xid, PROGRAM, &[])));
        self.until(|clients| !clients[client].received.is_empty());
        let reply = parse(&self.clients[client].received.remove(0));
        assert_eq!((reply.xid, reply.inline), (xid, false));
        reply
    }

    #[track_caller]
    fn fetch(&mut self, client: usize, reply: &Parsed) -> Result<Vec<u8>, WorkError> {
        self.clients[client].read(segments(reply)[0]);
        self.until(|clients| !clients[client].fetched.is_empty());
        self.clients[client].fetched.remove(0)
    }
}

#[test]
fn rr1_done_11_a_late_read_ends_in_a_terminate_for_that_connection_only() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 32 << 20 }).unwrap();
    let script = Script::default();
    script.plan(CallScript::of_length(LONG));
    let mut now = Instant::now();
    let settings = Settings::new(4096, 32, 1 << 20, true);
    let shared = Rc::new(ResponderShared::new(
        script,
        pool.clone(),
        Clock::new(now),
        settings,
    ));
    let mut provider = Iwarp::new(IwarpConfig::default()).unwrap();
    let limits = QueuePairLimits {
        ird: 16,
        exposures: 64,
        ..LIMITS
    };
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = provider.listen(anywhere, limits, false).unwrap();
    let address = provider.listener_address(listener).unwrap();
    let fabric = AnyProvider::Iwarp(Box::new(provider));
    let slot = FabricSlot::new(Rc::new(RefCell::new(fabric)), limits, Some(listener));
    let mut responder = Responder::new(Rc::clone(&shared), vec![slot], work, None);
    let turn = |now| {
        responder.poll(now, |_, incoming| panic!("handed over: {incoming:?}"));
        responder.run();
        responder.flush(now);
    };
    let clients = (0..2)
        .map(|_| Client::connect(address, &pool, now))
        .collect();
    let mut fixture = DoneFixture { turn, now, clients };
    fixture.until(|clients| clients.iter().all(|client| client.depths.is_some()));
    // Reads that a client may open are agreed at the setup (RFC 6581 section 9).
    let depths = fixture.clients[0].depths.unwrap();
    assert_eq!(depths.ord, 4);

    // Fetched in time, and ended by RDMA_DONE.
    let reply = fixture.exposed(0, 1);
    assert_eq!(fixture.fetch(0, &reply), Ok(Script::reply(1, LONG)));
    fixture.clients[0].send(&done(1));
    let budget = Rc::clone(&shared);
    fixture.until(|_| budget.exposed.budget().now() == (0, 0, 0));

    // Not fetched within the window.
    let late = fixture.exposed(0, 2);
    now += Duration::from_secs(6);
    fixture.now = now;
    let other = fixture.exposed(1, 2);
    now += Duration::from_secs(6);
    fixture.now = now;
    fixture.until(|_| budget.exposed.budget().now().0 == 1);
    assert!(fixture.clients[0].ended.is_none());
    assert!(fixture.fetch(0, &late).is_err());
    fixture.until(|clients| clients[0].ended.is_some());
    // RDMAP, remote protection error, invalid steering tag (RFC 5040 section 4.8).
    let refused = Terminate {
        layer: 0,
        kind: 1,
        code: 0,
    };
    let ended = fixture.clients[0].ended.clone();
    assert_eq!(ended, Some(Ended::TerminateReceived(refused)));
    assert_eq!(fixture.fetch(1, &other), Ok(Script::reply(2, LONG)));
    assert!(fixture.clients[1].ended.is_none());
}
