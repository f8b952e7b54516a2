//! The responder calling its clients (version two draft sections 4.2 and 5.2.2, RFC 8167). The
//! provider under watch checks at every Send that receives cover the client's grant and the replies
//! to all calls from here.

use std::future::Future;
use std::iter;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millrace::rdma::RdmaConnection;
use millrace::rdma::reverse::CALLS_MAX;
use millrace::rpc::reverse::{ReverseCall, ReverseError};
use millrace_mempool::Class;
use millrace_wire::rpcrdma::Version;

use crate::support;
use crate::support::message::{
    PROGRAM, check_error, parse, plain, rpc, speak, version, word, words,
};
use crate::support::raw::{Options, Stated, World};
use crate::support::script::{CallScript, Script};

const SECOND: Duration = Duration::from_secs(1);

type Outcome = Result<Vec<u8>, ReverseError>;

/// A call from the responder.
struct Callback {
    future: Pin<Box<dyn Future<Output = Outcome>>>,
}

impl Callback {
    fn poll(&mut self) -> Option<Outcome> {
        let mut context = Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

fn scripted() -> (World<Script>, Script) {
    let script = Script::default();
    (World::new(script.clone(), Options::default()), script)
}

/// The responder's end of a client's connection; the only one, or that of the latest client.
fn end(world: &World<Script>) -> Rc<RdmaConnection> {
    world.connections().pop().unwrap()
}

/// A client that has called and takes calls itself.
fn ready(stated: Stated) -> (World<Script>, Script, Rc<RdmaConnection>) {
    let (mut world, script) = scripted();
    world.connect_with(stated);
    world.exchange(0, &plain(&rpc(1, PROGRAM, &[])));
    let connection = end(&world);
    connection.identity().allow_reverse();
    world.trace();
    (world, script, connection)
}

fn call_again(
    world: &World<Script>,
    connection: &Rc<RdmaConnection>,
    arguments: usize,
    repeats: Option<u32>,
) -> Callback {
    let connection = connection.identity().clone();
    let message = rpc(0, PROGRAM, &vec![5; arguments]);
    let deadline = world.now + SECOND;
    let future = async move {
        let message = &message;
        let call = ReverseCall {
            message,
            protection: None,
            repeats,
            deadline,
        };
        connection.call_client(call).await
    };
    Callback {
        future: Box::pin(future),
    }
}

/// A call with arguments of so many bytes.
fn call(world: &World<Script>, connection: &Rc<RdmaConnection>, arguments: usize) -> Callback {
    call_again(world, connection, arguments, None)
}

/// Begins a call that leaves, and returns what the client received.
#[track_caller]
fn begin(world: &mut World<Script>, connection: &Rc<RdmaConnection>) -> (Callback, Vec<u8>) {
    let mut callback = call(world, connection, 0);
    assert_eq!(callback.poll(), None);
    world.settle();
    let mut received = world.received(0);
    assert_eq!(received.len(), 1);
    (callback, received.remove(0))
}

/// A client's reply to a call from the responder.
fn reply(xid: u32, credits: u32, length: usize) -> Vec<u8> {
    let mut header = words(&[xid, version().number(), credits, 0]);
    if version() == Version::Two {
        header.extend(words(&[1, 0]));
    }
    header.extend(words(&[0, 0, 0]));
    [header, Script::reply(xid, length)].concat()
}

#[test]
fn rr2_dir_01_a_client_is_called_and_its_reply_taken() {
    for spoken in [Version::Two, Version::One] {
        speak(spoken);
        let (mut world, script, connection) = ready(Stated::default());
        script.seen();
        for round in 0..5 {
            let (mut callback, received) = begin(&mut world, &connection);
            let xid = word(&received, 0);
            let direction: &[u32] = match spoken {
                Version::One => &[0, 0, 0],
                Version::Two => &[0, 0, 0, 0, 0],
            };
            let mut expected = words(&[xid, spoken.number(), CALLS_MAX, 0]);
            expected.extend(words(direction));
            expected.extend(rpc(xid, PROGRAM, &[]));
            assert_eq!(received, expected);
            world.send(0, &reply(xid, 4, 24 + round));
            assert_eq!(callback.poll(), Some(Ok(Script::reply(xid, 24 + round))));
            assert!(world.received(0).is_empty());
        }
        // No program of the responder's has seen anything of it.
        assert!(script.seen().is_empty());
        let counters = &world.shared.counters;
        assert_eq!(
            (counters.reverse_calls.get(), counters.reverse_replies.get()),
            (5, 5)
        );
        drop(connection);
        world.check_clean();
    }
}

#[test]
fn rr2_dir_02_the_direction_word_is_that_of_the_message() {
    let (mut world, script, connection) = ready(Stated::default());
    script.seen();
    let (mut callback, received) = begin(&mut world, &connection);
    let xid = word(&received, 0);
    assert_eq!((word(&received, 4), word(&received, 10)), (0, 0));
    // A call that is none, and a reply that is none.
    let mut message = reply(xid, 4, 24);
    message[19] = 0;
    check_error(&world.exchange(0, &message), xid, &[2]);
    let mut message = plain(&rpc(xid, PROGRAM, &[]));
    message[19] = 1;
    world.send(0, &message);
    assert!(world.received(0).is_empty());
    assert_eq!(callback.poll(), None);
    assert!(script.seen().is_empty());
    world.send(0, &reply(xid, 4, 24));
    assert!(callback.poll().unwrap().is_ok());
    // A long call whose message turns out to be a reply.
    let source = world.source(0, &Script::reply(9, 100));
    let entries = support::message::reads(0, &[source.whole()]);
    let chunks = millrace_wire::rpcrdma::CallChunks {
        reads: &entries,
        ..Default::default()
    };
    let error = world.exchange(0, &support::message::long(9, &chunks));
    check_error(&error, 9, &[2]);
    drop(connection);
    world.check_clean();
}

#[test]
fn rr2_dir_03_and_v4_bc_01_equal_xids_in_both_directions_do_not_meet() {
    for spoken in [Version::Two, Version::One] {
        speak(spoken);
        let (mut world, script, connection) = ready(Stated::default());
        script.plan(CallScript {
            hold: true,
            ..CallScript::default()
        });
        let (mut callback, received) = begin(&mut world, &connection);
        let xid = word(&received, 0);
        world.send(0, &plain(&rpc(xid, PROGRAM, &[])));
        assert_eq!(callback.poll(), None);
        world.send(0, &reply(xid, 4, 32));
        assert_eq!(callback.poll(), Some(Ok(Script::reply(xid, 32))));
        script.release(1);
        world.settle();
        let received = world.received(0);
        assert_eq!(parse(&received[0]).message, Script::reply(xid, 24));
        drop(connection);
        world.check_clean();
    }
}

#[test]
fn rr2_dir_04_credits_are_counted_in_each_direction() {
    let (mut world, _, connection) = ready(Stated::default());
    let (wish, granted, _) = connection.credits();
    assert_eq!(connection.reverse_credits(), (1, 0));
    // One until the client has granted more.
    let (mut first, received) = begin(&mut world, &connection);
    let mut others: Vec<Callback> = (0..5).map(|_| call(&world, &connection, 0)).collect();
    for other in &mut others {
        assert_eq!(other.poll(), None);
    }
    world.settle();
    assert!(world.received(0).is_empty());
    assert_eq!(connection.reverse_credits(), (1, 1));
    // A grant of three, in the word of the reply.
    world.send(0, &reply(word(&received, 0), 3, 24));
    assert!(first.poll().unwrap().is_ok());
    for other in &mut others {
        assert_eq!(other.poll(), None);
    }
    world.settle();
    let mut received = world.received(0);
    assert_eq!((received.len(), connection.reverse_credits()), (3, (3, 3)));
    // That is no wish: the client's own calls have what they had.
    assert_eq!(connection.credits(), (wish, granted, 0));
    let answer = world.exchange(0, &plain(&rpc(7, PROGRAM, &[])));
    assert_eq!(word(&answer, 2), granted);
    assert_eq!(connection.reverse_credits(), (3, 3));
    // The rest go as replies come, in their order; a grant of zero is one.
    let mut done = 0;
    while let Some(message) = received.pop() {
        world.send(0, &reply(word(&message, 0), 0, 24));
        others.retain_mut(|other| match other.poll() {
            Some(outcome) => {
                done += usize::from(outcome.is_ok());
                false
            }
            None => true,
        });
        // Who got its credit by that.
        for other in &mut others {
            assert_eq!(other.poll(), None);
        }
        world.settle();
        received.extend(world.received(0));
    }
    assert_eq!((done, connection.reverse_credits()), (5, (1, 0)));
    drop((others, connection));
    world.check_clean();
}

#[test]
fn rr2_dir_05_and_v4_bc_03_receives_cover_calls_and_replies_at_once() {
    let (mut world, script, connection) = ready(Stated::default());
    let mut wishing = plain(&rpc(1, PROGRAM, &[]));
    wishing[8..12].copy_from_slice(&32_u32.to_be_bytes());
    let granted = word(&world.exchange(0, &wishing), 2);
    assert_eq!(granted, 32);
    let (mut first, received) = begin(&mut world, &connection);
    world.send(0, &reply(word(&received, 0), 100, 24));
    assert!(first.poll().unwrap().is_ok());
    assert_eq!(connection.reverse_credits(), (CALLS_MAX, 0));
    let count = CALLS_MAX as usize;
    let mut calls: Vec<Callback> = (0..count).map(|_| call(&world, &connection, 0)).collect();
    for call in &mut calls {
        assert_eq!(call.poll(), None);
    }
    world.settle();
    let received = world.received(0);
    assert_eq!(received.len(), count);
    // The whole grant and all replies arrive before anything is given back.
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    for xid in 0..granted {
        let mut message = plain(&rpc(xid, PROGRAM, &[]));
        message[8..12].copy_from_slice(&32_u32.to_be_bytes());
        world.post(0, &message);
    }
    for message in &received {
        world.post(0, &reply(word(message, 0), 100, 24));
    }
    world.settle();
    assert!(world.is_open(0));
    for call in &mut calls {
        assert!(call.poll().unwrap().is_ok());
    }
    script.release(granted as usize);
    world.settle();
    assert_eq!(world.received(0).len(), granted as usize);
    // Receives that nobody needs any more go, one with each reply.
    script.plan(CallScript::default());
    for _ in 0..100 {
        world.exchange(0, &plain(&rpc(1, PROGRAM, &[])));
    }
    let (_, granted, _) = connection.credits();
    assert_eq!(connection.posted(), granted + 2);
    drop((calls, connection));
    world.check_clean();
}

#[test]
fn rr2_dir_05_a_call_waits_for_memory_for_the_receive_of_its_reply() {
    let (mut world, _, connection) = ready(Stated::default());
    let pool = world.shared.pool.clone();
    let taken: Vec<_> = iter::from_fn(|| pool.try_acquire(Class::Control)).collect();
    let mut waiting = call(&world, &connection, 0);
    assert_eq!(waiting.poll(), None);
    world.settle();
    assert!(world.received(0).is_empty());
    drop(taken);
    assert_eq!(waiting.poll(), None);
    world.settle();
    let received = world.received(0);
    assert_eq!(received.len(), 1);
    world.send(0, &reply(word(&received[0], 0), 1, 24));
    assert!(waiting.poll().unwrap().is_ok());
    drop((waiting, connection));
    world.check_clean();
    world.check_accounts(Stated::default().source);
}

#[test]
fn rr2_dir_06_no_call_before_the_client_is_ready() {
    let (mut world, _) = scripted();
    world.connect();
    let connection = end(&world);
    // Neither before anything was said, nor before the client has called.
    assert_eq!(
        call(&world, &connection, 0).poll(),
        Some(Err(ReverseError::NotReady))
    );
    connection.identity().allow_reverse();
    assert_eq!(
        call(&world, &connection, 0).poll(),
        Some(Err(ReverseError::NotReady))
    );
    let other = world.connect();
    world.exchange(other, &plain(&rpc(1, PROGRAM, &[])));
    let other = end(&world);
    assert_eq!(
        call(&world, &other, 0).poll(),
        Some(Err(ReverseError::NotReady))
    );
    world.settle();
    assert!(world.received(0).is_empty());
    assert_eq!(world.shared.counters.reverse_calls.get(), 0);
    world.exchange(0, &plain(&rpc(1, PROGRAM, &[])));
    let (mut callback, received) = begin(&mut world, &connection);
    world.send(0, &reply(word(&received, 0), 1, 24));
    assert!(callback.poll().unwrap().is_ok());
    drop((connection, other));
    world.check_clean();
}

#[test]
fn rr2_dir_07_what_the_client_refuses_fails_its_call_only() {
    for (spoken, codes) in [(Version::Two, &[2, 3, 4, 99][..]), (Version::One, &[2, 99])] {
        speak(spoken);
        let (mut world, _, connection) = ready(Stated::default());
        for &code in codes {
            let (mut callback, received) = begin(&mut world, &connection);
            let xid = word(&received, 0);
            let error = words(&[xid, spoken.number(), 50, 4, code, 0, 0, 0]);
            // An error about nothing that was asked is none of its concern.
            let mut stray = error.clone();
            stray[3] ^= 1;
            world.send(0, &stray);
            assert_eq!(callback.poll(), None);
            world.send(0, &error);
            assert_eq!(callback.poll(), Some(Err(ReverseError::Refused { code })));
            assert!(world.received(0).is_empty());
            // Its credits are no grant.
            assert_eq!(connection.reverse_credits(), (1, 0));
        }
        drop(connection);
        world.check_clean();
    }
}

#[test]
fn rr2_dir_08_and_v4_bc_01_05_calls_from_here_and_their_replies_have_no_chunks() {
    let (mut world, _, connection) = ready(Stated::default());
    let (mut callback, received) = begin(&mut world, &connection);
    let xid = word(&received, 0);
    assert_eq!([6, 7, 8].map(|at| word(&received, at)), [0; 3]);
    // No place was offered, so what claims to have used one is no reply.
    let mut chunked = words(&[xid, 2, 4, 0, 1, 0, 0, 1, 1, 7, 8, 0, 0, 0, 0]);
    chunked.extend(Script::reply(xid, 24));
    let long = words(&[xid, 2, 4, 1, 1, 0, 0, 0, 1, 1, 7, 24, 0, 0]);
    for message in [chunked, long] {
        world.send(0, &message);
        assert!(world.received(0).is_empty());
        assert_eq!(callback.poll(), None);
    }
    world.send(0, &reply(xid, 4, 24));
    assert!(callback.poll().unwrap().is_ok());
    drop(connection);
    world.check_clean();
}

#[test]
fn rr2_dir_09_thresholds_are_those_of_the_other_direction() {
    for spoken in [Version::Two, Version::One] {
        speak(spoken);
        // The client takes 1024 bytes, the server 4096.
        let (mut world, _, connection) = ready(Stated {
            inline: Some(1024),
            ..Stated::default()
        });
        let header = support::message::header_length();
        let around = rpc(0, PROGRAM, &[]).len();
        let fits = 1024 - header - around;
        let most = 1024 - header;
        let too_long = Some(Err(ReverseError::TooLong { most }));
        assert_eq!(call(&world, &connection, fits + 4).poll(), too_long);
        let mut callback = call(&world, &connection, fits);
        assert_eq!(callback.poll(), None);
        world.settle();
        let received = world.received(0).remove(0);
        assert_eq!(received.len(), 1024);
        let message = reply(word(&received, 0), 1, 4096 - header);
        assert_eq!(message.len(), 4096);
        world.send(0, &message);
        assert_eq!(callback.poll().unwrap().unwrap().len(), 4096 - header);
        drop(connection);
        world.check_clean();
    }
}

#[test]
fn rr2_dir_10_version_two_has_longer_calls_to_clients() {
    let silent = Stated {
        inline: None,
        ..Stated::default()
    };
    let (mut world, _, connection) = ready(silent);
    let mut callback = call(&world, &connection, 3000);
    assert_eq!(callback.poll(), None);
    world.settle();
    let received = world.received(0).remove(0);
    assert!(received.len() > 3000);
    world.send(0, &reply(word(&received, 0), 1, 3000));
    assert_eq!(callback.poll().unwrap().unwrap().len(), 3000);
    drop(connection);
    world.check_clean();
    speak(Version::One);
    let (mut world, _, connection) = ready(silent);
    let too_long = ReverseError::TooLong { most: 1024 - 28 };
    assert_eq!(call(&world, &connection, 3000).poll(), Some(Err(too_long)));
    drop(connection);
    world.check_clean();
}

#[test]
fn rr2_dir_11_calls_have_the_version_that_the_client_calls_in() {
    let (mut world, _, connection) = ready(Stated::default());
    for spoken in [Version::Two, Version::One, Version::Two] {
        speak(spoken);
        world.exchange(0, &plain(&rpc(1, PROGRAM, &[])));
        let (mut callback, received) = begin(&mut world, &connection);
        assert_eq!(word(&received, 1), spoken.number());
        // A reply in the other version is none.
        let other = if spoken == Version::One {
            Version::Two
        } else {
            Version::One
        };
        speak(other);
        world.send(0, &reply(word(&received, 0), 1, 24));
        assert_eq!(callback.poll(), None);
        speak(spoken);
        world.send(0, &reply(word(&received, 0), 1, 24));
        assert!(callback.poll().unwrap().is_ok());
    }
    drop(connection);
    world.check_clean();
}

#[test]
fn rr2_dir_12_calls_pending_at_the_end_wait_for_the_next_connection() {
    let (mut world, _, connection) = ready(Stated::default());
    let (mut callback, received) = begin(&mut world, &connection);
    // One has been sent, one waits for a credit.
    let mut waiting = call(&world, &connection, 0);
    assert_eq!(waiting.poll(), None);
    world.abort(0);
    world.settle();
    let xid = word(&received, 0);
    let lost = ReverseError::ConnectionLost { xid };
    assert_eq!(callback.poll(), Some(Err(lost)));
    let outcome = waiting.poll();
    assert!(matches!(
        outcome,
        Some(Err(ReverseError::ConnectionLost { .. }))
    ));
    let mut late = call(&world, &connection, 0);
    assert!(matches!(
        late.poll(),
        Some(Err(ReverseError::ConnectionLost { .. }))
    ));
    drop((connection, callback, waiting, late));
    // Nobody connects but the client; then the call is repeated with its XID.
    let client = world.connect();
    world.exchange(client, &plain(&rpc(1, PROGRAM, &[])));
    let connection = end(&world);
    connection.identity().allow_reverse();
    let mut again = call_again(&world, &connection, 0, Some(xid));
    assert_eq!(again.poll(), None);
    world.settle();
    assert_eq!(world.received(client), [received]);
    world.send(client, &reply(xid, 1, 24));
    assert!(again.poll().unwrap().is_ok());
    drop((connection, again));
    world.check_clean();
}

#[test]
fn rr2_dir_12_a_call_without_a_reply_times_out_and_keeps_its_credit() {
    let (mut world, _, connection) = ready(Stated::default());
    let (mut callback, received) = begin(&mut world, &connection);
    let xid = word(&received, 0);
    let mut waiting = call(&world, &connection, 0);
    assert_eq!(waiting.poll(), None);
    world.pass(SECOND / 2);
    assert_eq!(callback.poll(), None);
    world.pass(SECOND);
    assert_eq!(callback.poll(), Some(Err(ReverseError::TimedOut { xid })));
    assert!(matches!(
        waiting.poll(),
        Some(Err(ReverseError::TimedOut { .. }))
    ));
    drop((callback, waiting));
    // The client may still be at it.
    assert_eq!(connection.reverse_credits(), (1, 1));
    let mut next = call(&world, &connection, 0);
    assert_eq!(next.poll(), None);
    world.settle();
    assert!(world.received(0).is_empty());
    // A late reply is no answer to anything, but gives the credit back.
    world.send(0, &reply(xid, 1, 24));
    assert_eq!(next.poll(), None);
    world.settle();
    let received = world.received(0).remove(0);
    assert_ne!(word(&received, 0), xid);
    world.send(0, &reply(word(&received, 0), 1, 24));
    assert!(next.poll().unwrap().is_ok());
    assert_eq!(connection.reverse_credits(), (1, 0));
    drop((connection, next));
    world.check_clean();
}

#[test]
fn rr1_cred_24_and_v4_bc_02_calls_to_clients_have_credits_of_their_own() {
    for spoken in [Version::One, Version::Two] {
        speak(spoken);
        let (mut world, script, connection) = ready(Stated::default());
        let granted = word(&world.exchange(0, &plain(&rpc(1, PROGRAM, &[]))), 2);
        // The client's grant is used up.
        script.plan(CallScript {
            hold: true,
            ..CallScript::default()
        });
        for xid in 0..granted {
            world.post(0, &plain(&rpc(xid, PROGRAM, &[])));
        }
        world.settle();
        assert_eq!(script.held(), granted as usize);
        let (mut callback, received) = begin(&mut world, &connection);
        world.send(0, &reply(word(&received, 0), 7, 24));
        assert!(callback.poll().unwrap().is_ok());
        assert_eq!(connection.reverse_credits(), (7, 0));
        script.release(granted as usize);
        world.settle();
        let replies = world.received(0);
        assert!(replies.iter().all(|reply| word(reply, 2) == granted));
        assert_eq!(replies.len(), granted as usize);
        // And the other way round: a call to the client that stays unanswered holds nothing up.
        script.plan(CallScript::default());
        let (callback, _) = begin(&mut world, &connection);
        for xid in 0..3 * granted {
            assert_eq!(
                parse(&world.exchange(0, &plain(&rpc(xid, PROGRAM, &[])))).xid,
                xid
            );
        }
        drop((connection, callback));
        world.check_clean();
    }
}

#[test]
fn what_is_no_call_is_not_sent_and_a_dropped_call_leaves_nothing() {
    let (mut world, _, connection) = ready(Stated::default());
    let deadline = world.now + SECOND;
    for message in [&[][..], &[0; 7], &Script::reply(1, 24)] {
        let call = ReverseCall {
            message,
            protection: None,
            repeats: None,
            deadline,
        };
        let outcome = support::ready(connection.identity().call_client(call));
        assert_eq!(outcome, Err(ReverseError::NotACall));
    }
    // Dropped while it waits for a credit, and while the client has it.
    let (callback, _) = begin(&mut world, &connection);
    let mut waiting = call(&world, &connection, 0);
    assert_eq!(waiting.poll(), None);
    drop((waiting, callback));
    assert_eq!(connection.reverse_credits(), (1, 1));
    drop(connection);
    world.check_clean();
}
