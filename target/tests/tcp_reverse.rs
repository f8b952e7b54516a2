//! Calls from the server to a client, by the TCP connection that the client made. The server is
//! turned by hand.

#[path = "support/initiator.rs"]
mod initiator;
mod support;

use std::cell::RefCell;
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace::call::{Answer, Bulk, Call, Reply, Serve};
use millrace::rpc::ConnectionRef;
use millrace::rpc::Transport;
use millrace::rpc::reverse::{ReverseCall, ReverseError, ReverseProtection};
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_gss::Enctype;
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_wire::rpc::GssService;

use initiator::{Initiator, user};

/// Turns after which what has not happened never does.
const TURNS: usize = 100_000;

/// Keeps the connection of the latest call, which it does not answer.
#[derive(Clone, Default)]
struct Keeper(Rc<RefCell<Option<ConnectionRef>>>);

impl Serve for Keeper {
    async fn serve<B: Bulk>(&self, call: Call<'_>, _: &mut B, _: &mut Reply) -> Answer {
        self.0.replace(Some(call.connection.clone()));
        Answer::Silent
    }
}

type Outcome = Result<Vec<u8>, ReverseError>;
type Calling = Pin<Box<dyn Future<Output = Outcome>>>;

struct World {
    server: TcpServer<Keeper>,
    client: TcpStream,
    connection: ConnectionRef,
    now: Instant,
}

/// A call or reply message with this XID.
fn message(xid: u32, kind: u32) -> Vec<u8> {
    let words = [xid, kind, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn record(message: &[u8]) -> Vec<u8> {
    let mark = 1 << 31 | u32::try_from(message.len()).unwrap();
    [&mark.to_be_bytes()[..], message].concat()
}

fn poll(calling: &mut Calling) -> Poll<Outcome> {
    calling
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

impl World {
    /// A client that has called.
    fn new() -> Self {
        Self::with(TcpConfig::default())
    }

    fn with(config: TcpConfig) -> Self {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
        let (flow, keeper) = (support::flow(&pool), Keeper::default());
        let mut server = TcpServer::new(config, &pool, keeper.clone(), &flow, None).unwrap();
        let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(&record(&message(1, 0))).unwrap();
        let mut now = Instant::now();
        for _ in 0..TURNS {
            now += Duration::from_micros(20);
            server.poll(now);
            if let Some(connection) = keeper.0.take() {
                return Self {
                    server,
                    client,
                    connection,
                    now,
                };
            }
        }
        panic!("the call was not served");
    }

    fn call(&self, repeats: Option<u32>) -> Calling {
        self.call_under(None, repeats)
    }

    fn call_under(&self, protection: Option<ReverseProtection>, repeats: Option<u32>) -> Calling {
        let (connection, deadline) = (self.connection.clone(), self.now + Duration::from_secs(1));
        Box::pin(async move {
            let message = &message(0, 0);
            let call = ReverseCall {
                message,
                protection: protection.as_ref(),
                repeats,
                deadline,
            };
            connection.call_client(call).await
        })
    }

    #[track_caller]
    fn turn_until<T>(&mut self, mut holds: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..TURNS {
            self.now += Duration::from_micros(1);
            self.server.poll(self.now);
            if let Some(value) = holds(self) {
                return value;
            }
        }
        panic!("it never came to that");
    }

    /// The XID of the call that the client receives next.
    fn received(&mut self) -> u32 {
        let bytes = self.receive(44);
        let xid = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(bytes, record(&message(xid, 0)));
        xid
    }

    /// The next bytes that the client receives.
    fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.turn_until(|world| {
            let mut part = vec![0; length - bytes.len()];
            match world.client.read(&mut part) {
                Ok(length) => bytes.extend_from_slice(&part[..length]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            (bytes.len() == length).then_some(())
        });
        bytes
    }

    fn outcome(&mut self, calling: &mut Calling) -> Outcome {
        self.turn_until(|_| match poll(calling) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    }

    fn reply(&mut self, xid: u32) {
        self.client.write_all(&record(&message(xid, 1))).unwrap();
    }
}

#[test]
fn v4_bc_15_a_client_is_called_by_the_connection_that_it_made() {
    let mut world = World::new();
    assert_eq!(
        poll(&mut world.call(None)),
        Poll::Ready(Err(ReverseError::NotReady))
    );
    world.connection.allow_reverse();
    let (mut first, mut second) = (world.call(None), world.call(Some(7)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    let (one, two) = (world.received(), world.received());
    assert!(one != two && two == 7);
    // Replies come in any order, and those to calls that nobody made change nothing.
    for xid in [two, one.wrapping_add(1), one] {
        world.reply(xid);
    }
    assert_eq!(world.outcome(&mut second), Ok(message(two, 1)));
    assert_eq!(world.outcome(&mut first), Ok(message(one, 1)));
    // None of these counts as a call of the client's.
    assert_eq!(world.server.open_work().in_flight, 0);
}

#[test]
fn a_call_to_a_client_ends_with_the_connection_or_at_its_deadline() {
    let mut world = World::new();
    world.connection.allow_reverse();
    let mut late = world.call(None);
    assert!(poll(&mut late).is_pending());
    let xid = world.received();
    // A reply of this length is none.
    let long = [message(xid, 1), vec![0; 64 << 10]].concat();
    world.client.write_all(&record(&long)).unwrap();
    let counters = world.server.counters();
    world.turn_until(|_| (counters.records.get() == 2).then_some(()));
    assert!(poll(&mut late).is_pending());
    world.now += Duration::from_secs(2);
    world.server.poll(world.now);
    assert_eq!(
        poll(&mut late),
        Poll::Ready(Err(ReverseError::TimedOut { xid }))
    );
    let mut lost = world.call(Some(9));
    assert!(poll(&mut lost).is_pending());
    world.server.close_all();
    let expected = ReverseError::ConnectionLost { xid: 9 };
    assert_eq!(poll(&mut lost), Poll::Ready(Err(expected)));
    assert!(world.connection.has_ended());
}

#[test]
fn replies_that_wait_for_their_callers_are_charged_to_the_client() {
    let mut world = World::with(TcpConfig {
        bytes: 1024,
        ..TcpConfig::default()
    });
    world.connection.allow_reverse();
    let mut calling = world.call(None);
    assert!(poll(&mut calling).is_pending());
    let xid = world.received();
    let reply = [message(xid, 1), vec![0; 2048]].concat();
    world.client.write_all(&record(&reply)).unwrap();
    world.client.write_all(&record(&message(2, 0))).unwrap();
    let counters = world.server.counters();
    world.turn_until(|_| (counters.held.get() == 1).then_some(()));
    assert_eq!(counters.records.get(), 1, "the client has no room for more");
    assert_eq!(poll(&mut calling), Poll::Ready(Ok(reply)));
    // A reactor that would sleep has to turn once more.
    assert!(world.server.next_deadline() <= Some(world.now));
    world.turn_until(|_| (counters.records.get() == 2).then_some(()));
}

#[test]
fn gss_sec_08_v4_bc_15_each_transmission_is_signed_under_its_xid() {
    for service in [GssService::None, GssService::Integrity, GssService::Privacy] {
        let mut world = World::new();
        world.connection.allow_reverse();
        let contexts = initiator::contexts();
        let client = Initiator::new(&contexts, user(0), Enctype::Aes128Sha256);
        for (number, repeats) in [(1, None), (2, Some(7)), (3, Some(7))] {
            let context = contexts.context(&client.handle, Instant::now()).unwrap();
            let protection = ReverseProtection::new(context, service, b"of client").unwrap();
            let mut calling = world.call_under(Some(protection), repeats);
            assert!(poll(&mut calling).is_pending());
            let mark = world.receive(4);
            let length = u32::from_be_bytes(mark.try_into().unwrap()) & !(1 << 31);
            let call = world.receive(length as usize);
            let (plain, sequence) = client.opened_call(service, b"of client", &call);
            let xid = u32::from_be_bytes(plain[..4].try_into().unwrap());
            assert_eq!((plain, sequence), (message(xid, 0), number));
            assert!(repeats.is_none_or(|repeats| repeats == xid));
            // A reply with the words of an accepted one, and results.
            let reply = [xid, 1, 0, 0, 0, 0, 5, 6].map(u32::to_be_bytes).concat();
            let (signed, expected) = match number {
                3 => (&reply, Err(ReverseError::Unverified)),
                _ => (&client.reply(service, sequence, &reply), Ok(reply.clone())),
            };
            world.client.write_all(&record(signed)).unwrap();
            assert_eq!(world.outcome(&mut calling), expected);
        }
        // What cannot be protected as a whole is not sent.
        let tokens = match service {
            GssService::None => 1,
            GssService::Integrity | GssService::Privacy => 2,
        };
        for made in 0..tokens {
            let context = contexts.context(&client.handle, Instant::now()).unwrap();
            context.limit_tokens(made);
            let protection = ReverseProtection::new(context, service, b"of client").unwrap();
            let mut calling = world.call_under(Some(protection), None);
            let refused = Err(ReverseError::Unprotected);
            assert_eq!(poll(&mut calling), Poll::Ready(refused));
        }
    }
}
