//! Sessions find their version before they are given out.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_bench::requester::session::Error;
use millrace_bench::requester::{CallError, RequesterState, Session, Settings};
use millrace_mempool::{Class, Pool, PoolConfig};
use millrace_reactor::fabric::testing::{Wire, Wired, registry};
use millrace_reactor::fabric::{
    ConnectParameters, ControlPath, DataPath, Event, Operation, WorkRequest,
};
use millrace_wire::rpcrdma::{Version, Versions};

use crate::support::{LIMITS, Trace, Traced, bytes, settings};

/// What a server does about a first message of version two.
#[derive(Clone, Copy)]
enum Habit {
    /// Closes the connection.
    Closes,
    /// Answers ERR_VERS with this range.
    Refuses(u32, u32),
}

struct Server {
    provider: Wired,
    pool: Pool,
    habit: Habit,
    /// Versions of the first messages.
    seen: Rc<RefCell<Vec<u32>>>,
}

impl Server {
    fn turn(&mut self, now: Instant) {
        let mut events = Vec::with_capacity(16);
        self.provider.poll(now, &mut events);
        for event in events {
            match event {
                Event::ConnectRequest { queue_pair, .. } => {
                    let buffer = self.pool.try_acquire(Class::Control).expect("free");
                    let posted = self.provider.post_receive(queue_pair, buffer);
                    posted.expect("room");
                    let parameters = ConnectParameters {
                        limits: LIMITS,
                        private_data: Default::default(),
                    };
                    self.provider.accept(queue_pair, parameters).expect("asked");
                }
                Event::Received {
                    queue_pair,
                    mut buffer,
                    ..
                } => {
                    let word =
                        |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
                    let (xid, version) = (word(0), word(4));
                    self.seen.borrow_mut().push(version);
                    let (low, high) = match self.habit {
                        Habit::Closes => {
                            self.provider.abort(queue_pair);
                            continue;
                        }
                        Habit::Refuses(low, high) => (low, high),
                    };
                    let error = bytes(&[xid, version, 1, 4, 1, low, high]);
                    buffer[..error.len()].copy_from_slice(&error);
                    let local = std::iter::once(buffer.into_slice(0..error.len())).collect();
                    let mut chain = vec![WorkRequest {
                        token: 0,
                        operation: Operation::Send {
                            invalidate: None,
                            solicited: false,
                        },
                        local,
                        signalled: false,
                    }];
                    self.provider.post(queue_pair, &mut chain).expect("room");
                }
                _ => {}
            }
        }
        self.provider.flush(now);
    }
}

/// A session with such a server, and the versions that it saw.
fn session(habit: Habit, versions: Versions) -> (Result<Session, Error>, Vec<u32>) {
    let wire = Wire::new();
    let registry = registry();
    let pool = || Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
    let mut provider = wire.provider();
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = provider.listen(anywhere, LIMITS, false).expect("a port");
    let address = provider.listener_address(listener).expect("listening");
    let seen = Rc::default();
    let mut server = Server {
        provider,
        pool: pool(),
        habit,
        seen: Rc::clone(&seen),
    };
    let client = Traced {
        inner: wire.provider(),
        trace: Trace::default(),
        holds_on: false,
        full: false,
        invalidates: true,
        next_key: None,
        meanwhile: Some(Box::new(move || server.turn(Instant::now()))),
    };
    let mine = Settings {
        versions,
        settle: Duration::ZERO,
        ..settings()
    };
    let session = Session::connect(Box::new(client), &pool(), address, mine);
    let seen = seen.borrow().clone();
    (session, seen)
}

#[test]
fn rr2_neg_07_a_session_connects_again_with_version_one() {
    let (session, seen) = session(Habit::Closes, Versions::BOTH);
    let session = session.expect("connected");
    assert_eq!(session.connection().version(), Some(Version::One));
    assert_eq!(seen, [2], "tried once");
}

#[test]
fn rr2_neg_05_a_session_takes_version_one_over_the_same_connection() {
    let (session, seen) = session(Habit::Refuses(1, 1), Versions::BOTH);
    let session = session.expect("connected");
    assert_eq!(session.connection().version(), Some(Version::One));
    assert_eq!(seen, [2]);
}

#[test]
fn rr2_neg_06_a_session_without_a_common_version_says_so() {
    let (session, _) = session(Habit::Refuses(3, 4), Versions::BOTH);
    let error = match session {
        Err(Error::Connect(RequesterState::NoVersion(error))) => error,
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert_eq!(error, CallError::Version { low: 3, high: 4 });
    let told = Error::Connect(RequesterState::NoVersion(error)).to_string();
    assert!(told.contains("versions 3 to 4"), "{told}");
}
