//! Keys that replies invalidate (version two draft sections 3 and 5.2.3).

use std::time::Duration;

use millrace_bench::requester::{Call, CallError, RequesterState, Settings};
use millrace_reactor::fabric::testing::{deferring, loopback};
use millrace_reactor::fabric::{Access, DataPath, Key};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpcrdma::Segment;

use crate::chunk::{pattern, read_arguments};
use crate::layout::mixed_run;
use crate::support::{Peer, Raw, Seen, Step, message, settings, stale, success};

/// The keys in a call's lists.
fn keys(call: &Seen) -> Vec<u32> {
    let reads = call.reads.iter().map(|entry| entry.segment.handle);
    let writes = call.writes.iter().flatten().map(|segment| segment.handle);
    let reply = call.reply.iter().flatten().map(|segment| segment.handle);
    reads.chain(writes).chain(reply).collect()
}

/// A READ into two pieces of memory.
fn read(raw: &mut Raw, token: u64) -> Seen {
    let room = [raw.memory(8192), raw.memory(8192)];
    let call = Call::nfs3(token, Procedure::Read, read_arguments(16384), 0);
    raw.submit(&call.with_sinks(&[&room]));
    raw.next()
}

fn reply_to(call: &Seen) -> Vec<u8> {
    let rpc = success(call.xid, &stale());
    message(call.xid, 8, &call.writes, None, Some(&rpc))
}

#[test]
fn rr2_inv_01_a_key_of_the_call_is_nominated() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for call in mixed_run(&mut raw, 5) {
        let keys = keys(&call);
        assert_eq!(keys.is_empty(), call.invalidate == 0);
        assert!(keys.is_empty() || keys.contains(&call.invalidate));
    }
}

#[test]
fn rr2_inv_02_calls_without_chunks_nominate_nothing() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for token in 0..10 {
        raw.getattr(token);
        let call = raw.next();
        assert_eq!(call.invalidate, 0);
        raw.answer(&call, 8, &stale());
        // Right after a call that had some, in the same place.
        let call = read(&mut raw, token);
        assert_ne!(call.invalidate, 0);
        raw.send_with(&reply_to(&call), Some(Key(call.invalidate)));
    }
    assert_eq!(raw.done.len(), 20);
}

#[test]
fn rr2_inv_07_only_keys_made_for_the_call_are_nominated_never_lasting_ones() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    // Memory that the application itself has registered on the connection, for good.
    let lasting = raw.memory(4096);
    let queue_pair = raw.connection.queue_pair();
    let local = std::iter::once(lasting).collect();
    let exposed = raw
        .client
        .inner
        .expose(queue_pair, local, Access::RemoteRead);
    let exposed = exposed.expect("room");
    let segment = Segment {
        handle: exposed.key.0,
        length: exposed.length,
        offset: exposed.offset,
    };
    for round in 0..10 {
        let before = raw.steps().len();
        let call = read(&mut raw, round);
        let made: Vec<Key> = raw.steps()[before..]
            .iter()
            .filter_map(|step| match step {
                Step::Expose(key, ..) => Some(*key),
                _ => None,
            })
            .collect();
        assert!(made.contains(&Key(call.invalidate)));
        raw.send_with(&reply_to(&call), Some(Key(call.invalidate)));
    }
    assert_eq!(raw.done.len(), 10);
    assert_eq!(raw.fetch(&segment).expect("alive"), pattern(4096));
}

#[test]
fn rr2_inv_08_nothing_is_nominated_if_settings_or_provider_do_not_allow_it() {
    let mine = Settings {
        remote_invalidation: false,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    assert!(
        mixed_run(&mut raw, 2)
            .iter()
            .all(|call| call.invalidate == 0)
    );

    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.client.invalidates = false;
    assert!(
        mixed_run(&mut raw, 2)
            .iter()
            .all(|call| call.invalidate == 0)
    );
    raw.client.invalidates = true;
    assert!(
        mixed_run(&mut raw, 1)
            .iter()
            .any(|call| call.invalidate != 0)
    );
}

#[test]
fn rr2_inv_09_the_right_key_or_none_is_taken_and_the_others_die_before_the_end() {
    let _network = deferring();
    for invalidated in [false, true] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let call = read(&mut raw, 1);
        let key = Key(call.invalidate);
        raw.send_with(&reply_to(&call), invalidated.then_some(key));
        let end = raw.done[0].step;
        assert!(raw.done[0].result.is_ok());
        for key in keys(&call) {
            let steps = raw.steps();
            let revoked = steps
                .iter()
                .position(|step| matches!(step, Step::Revoke(dead) if dead.0 == key));
            assert!(revoked.expect("fetched or revoked") < end);
        }
        assert_eq!(
            raw.connection.counters().invalidated,
            u64::from(invalidated)
        );
        assert!(raw.place(&call.writes[0][1], &[1]).is_err(), "dead");
    }
}

#[test]
fn rr2_inv_09_a_key_that_was_not_nominated_closes_the_connection() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    // Another key of the same call, and the one of another call.
    for other_call in [false, true] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let (first, second) = (read(&mut raw, 1), read(&mut raw, 2));
        let wrong = if other_call {
            second.invalidate
        } else {
            let mut keys = keys(&first).into_iter();
            keys.find(|&key| key != first.invalidate)
                .expect("two segments")
        };
        raw.send_with(&reply_to(&first), Some(Key(wrong)));
        assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
        assert_eq!(raw.connection.counters().surprises, 1);
        let results: Vec<_> = raw.done.iter().map(|done| done.result.clone()).collect();
        assert_eq!(results, vec![Err(CallError::Disconnected); 2]);
    }
}

#[test]
fn rr2_inv_09_a_key_invalidated_by_what_is_no_reply_closes_the_connection() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let call = read(&mut raw, 1);
    let stranger = call.xid ^ 0x0100_0000;
    let rpc = success(stranger, &stale());
    let reply = message(stranger, 8, &[], None, Some(&rpc));
    raw.send_with(&reply, Some(Key(call.invalidate)));
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
    assert_eq!(raw.connection.counters().surprises, 1);
}

/// A READ that its owner gives up, by cancelling or by time, while its reply is owed.
fn given_up(raw: &mut Raw, cancelled: bool) -> Seen {
    let room = [raw.memory(16384)];
    let call = Call::nfs3(1, Procedure::Read, read_arguments(16384), 0);
    let id = raw.submit(&call.with_sinks(&[&room]));
    let slow = raw.next();
    if cancelled {
        assert!(raw.cancel(id));
    } else {
        raw.advance(Duration::from_secs(10));
    }
    let ended = raw.done.pop().expect("told").result;
    assert!(matches!(
        ended,
        Err(CallError::Cancelled | CallError::TimedOut)
    ));
    slow
}

fn hasty() -> Settings {
    Settings {
        timeout: Duration::from_secs(10),
        ..settings()
    }
}

#[test]
fn rr2_inv_12_a_nominated_key_is_not_given_out_again_before_the_reply() {
    // One rest after the other is looked at.
    let _network = loopback();
    for cancelled in [true, false] {
        let mut raw = Raw::open(hasty(), Peer::default(), 8);
        let slow = given_up(&mut raw, cancelled);
        for call in mixed_run(&mut raw, 5) {
            assert!(!keys(&call).contains(&slow.invalidate));
        }
        // Even if the provider comes up with the same number again.
        raw.client.next_key = Some(Key(slow.invalidate));
        let room = [raw.memory(16384)];
        let call = Call::nfs3(2, Procedure::Read, read_arguments(16384), 0);
        raw.submit(&call.with_sinks(&[&room]));
        assert_eq!(raw.client.next_key, None, "it was tried");
        assert!(raw.inbox.is_empty(), "and taken back");
        raw.settle();
        let call = raw.next();
        assert!(!keys(&call).contains(&slow.invalidate));
        raw.answer(&call, 8, &stale());
        assert!(raw.done.pop().expect("ended").result.is_ok());
        // The reply, late and as a plain Send, ends the matter.
        raw.answer(&slow, 8, &stale());
        assert_eq!(raw.connection.pending(), 0);
        assert_eq!(raw.connection.state(), &RequesterState::Ready);
        raw.client.next_key = Some(Key(slow.invalidate));
        let call = read(&mut raw, 3);
        assert!(keys(&call).contains(&slow.invalidate), "free again");
    }
}

#[test]
fn rr2_inv_12_a_late_reply_that_invalidates_harms_no_other_call() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let keep = Settings {
        keep_calls: true,
        ..hasty()
    };
    let mut raw = Raw::open(keep, Peer::default(), 8);
    let slow = given_up(&mut raw, true);
    let other = read(&mut raw, 2);
    raw.send_with(&reply_to(&slow), Some(Key(slow.invalidate)));
    // The key was dead: the provider ends the connection, and the other call goes out again.
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
    assert!(raw.done.is_empty());
    raw.reconnect();
    let again = raw.next();
    assert_eq!(again.xid, other.xid);
    raw.send_with(&reply_to(&again), Some(Key(again.invalidate)));
    assert_eq!(raw.tokens(), [2]);
    assert!(raw.done[0].result.is_ok());
}

#[test]
fn rr2_inv_12_a_call_sent_again_on_a_new_connection_nominates_a_new_key() {
    let _network = loopback(); // Not every device lets peers invalidate keys.
    let mine = Settings {
        keep_calls: true,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    let before = read(&mut raw, 1);
    raw.break_off();
    raw.reconnect();
    let after = raw.next();
    assert_eq!(after.xid, before.xid);
    assert_ne!(after.invalidate, before.invalidate);
    assert!(keys(&after).contains(&after.invalidate));
}
