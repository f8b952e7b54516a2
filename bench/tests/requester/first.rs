//! What differs in version one alone: a connection begins with a call of its owner's, and private
//! data lets the server invalidate any key.

use millrace_bench::requester::{Call, Settings, State};
use millrace_wire::nfs3::{Procedure, ReadArguments};

use crate::support::{Peer, Raw, handle, message, settings, stale, success};

#[test]
fn rr1_cred_12_one_call_of_at_most_1024_bytes_until_the_first_reply() {
    let mut raw = Raw::new(settings(), Peer::default());
    let data = [raw.memory(1500)];
    let arguments = crate::chunk::write_arguments(1500);
    let call = Call::nfs3(0, Procedure::Write, arguments, 0);
    raw.submit(&call.with_data(&data));
    for token in 1..10 {
        raw.getattr(token);
    }
    assert_eq!(raw.inbox.len(), 1);
    let call = raw.next();
    assert!(call.bytes.len() <= 1024);
    assert_eq!(call.reads.len(), 1, "the data went into a chunk");
    raw.answer(&call, 5, &stale());
    assert_eq!(raw.inbox.len(), 5);
}

#[test]
fn rr1_cred_13_an_error_as_first_answer_opens_nothing() {
    let mut raw = Raw::new(settings(), Peer::default());
    for token in 0..5 {
        raw.getattr(token);
    }
    let call = raw.next();
    raw.answer_error(call.xid, 50, &[2]);
    assert_eq!(raw.inbox.len(), 1);
    let call = raw.next();
    raw.answer(&call, 50, &stale());
    assert_eq!(raw.inbox.len(), 3);
}

#[test]
fn rr1_cred_28_a_new_connection_begins_with_one_call() {
    let keep = Settings {
        keep_calls: true,
        ..settings()
    };
    let mut raw = Raw::open(keep, Peer::default(), 16);
    raw.break_off();
    raw.reconnect();
    for token in 0..5 {
        raw.getattr(token);
    }
    assert_eq!(raw.inbox.len(), 1);
    let call = raw.next();
    raw.answer(&call, 2, &stale());
    assert_eq!(raw.inbox.len(), 2);
}

#[test]
fn remote_invalidation_of_any_key_or_none_is_coped_with() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for invalidate in [None, Some(0), Some(1)] {
        let room = [raw.memory(8192), raw.memory(8192)];
        let arguments = ReadArguments {
            file: handle(),
            offset: 0,
            count: 16384,
        };
        let call = Call::nfs3(1, Procedure::Read, arguments, 0);
        raw.submit(&call.with_sinks(&[&room]));
        let call = raw.next();
        let segments = call.writes[0].clone();
        let key = invalidate.map(|at: usize| millrace_reactor::fabric::Key(segments[at].handle));
        let reply = message(
            call.xid,
            8,
            &call.writes,
            None,
            Some(&success(call.xid, &stale())),
        );
        raw.send_with(&reply, key);
        assert_eq!(raw.done.len(), 1);
        raw.done.clear();
        drop(room);
    }
    assert_eq!(raw.connection.counters().invalidated, 2);
    assert_eq!(raw.connection.state(), &State::Ready);
}
