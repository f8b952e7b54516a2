//! What differs in version one alone: a connection begins with a call of its owner's, and private
//! data lets the server invalidate any key.

use std::collections::HashSet;

use millrace_bench::requester::{Call, Settings};
use millrace_reactor::fabric::Key;
use millrace_wire::nfs3::Procedure;

use crate::chunk::chunky;
use crate::security::{everything, segments};
use crate::support::{Peer, Raw, Step, message, settings, stale, success};

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
fn rr1_sec_13_none_or_any_handle_of_the_call_may_be_invalidated() {
    for which in 0..4_usize {
        let mut raw = Raw::open(chunky(), Peer::default(), 8);
        everything(&mut raw, 1);
        let call = raw.next();
        let offered = segments(&call);
        assert_eq!(offered.len(), 3);
        let invalidated = which.checked_sub(1).map(|at| Key(offered[at].handle));
        let rpc = success(call.xid, &stale());
        let reply = message(call.xid, 8, &[], None, Some(&rpc));
        raw.send_with(&reply, invalidated);
        assert!(raw.done[0].result.is_ok(), "{which}");
        assert_eq!(raw.connection.counters().invalidated, u64::from(which > 0));
        // The others were not left to the server.
        let revoked: HashSet<_> = raw
            .steps()
            .iter()
            .filter_map(|step| match step {
                Step::Revoke(key) => Some(key.0),
                _ => None,
            })
            .collect();
        for segment in &offered {
            assert!(revoked.contains(&segment.handle));
        }
        raw.getattr(2);
        let call = raw.next();
        raw.answer(&call, 8, &stale());
        assert_eq!(raw.tokens(), [1, 2]);
    }
}
