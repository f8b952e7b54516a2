//! Credits of RDMA_DONE.

use millrace_bench::requester::Settings;

use crate::support::{Peer, Raw, Seen, at, classic, settings, stale, success};

/// A server that posts exactly as many receives as it grants, and one more for an RDMA_DONE.
fn exact(grant: usize) -> Peer {
    Peer {
        receives: grant + 1,
        ..Peer::default()
    }
}

/// Answers a call by a reply of no use in a read chunk.
fn answer_classic(raw: &mut Raw, call: &Seen, credits: u32) {
    let rpc = success(call.xid, &stale());
    let chunk = raw.reveal(&rpc);
    let reads = at(0, &[chunk]);
    raw.send(&classic(call.xid, credits, &reads, &[], None, None));
}

fn kinds(raw: &Raw) -> Vec<u32> {
    raw.inbox.iter().map(|seen| seen.kind).collect()
}

#[test]
fn rr1_cred_15_one_credit_serves_calls_and_dones_in_turn() {
    let mut raw = Raw::open(settings(), exact(1), 1);
    for token in 0..5 {
        raw.getattr(token);
    }
    for _ in 0..5 {
        assert_eq!(kinds(&raw), [0], "one call at a time");
        let call = raw.next();
        answer_classic(&mut raw, &call, 1);
        raw.expect_done(call.xid);
    }
    assert_eq!(raw.tokens(), [0, 1, 2, 3, 4]);
    assert_eq!(raw.disconnects, 0);
}

#[test]
fn rr1_cred_15_a_call_waits_until_the_done_before_it_is_sent() {
    let mut raw = Raw::open(settings(), exact(1), 1);
    raw.getattr(1);
    raw.getattr(2);
    let call = raw.next();
    let rpc = success(call.xid, &stale());
    let chunk = raw.reveal(&rpc);
    raw.post_send(&classic(call.xid, 1, &at(0, &[chunk]), &[], None, None));
    while raw.connection.counters().reads == 0 {
        raw.client_turn();
        raw.server_turn();
    }
    // The reply gave its credit back, and the RDMA_DONE to come has it.
    assert_eq!(raw.connection.window().in_flight(), 0);
    assert!(!raw.connection.window().has_room());
    raw.settle();
    assert_eq!(kinds(&raw), [3, 0]);
}

#[test]
fn rr1_cred_15_with_two_credits_one_is_kept_for_the_done() {
    let mut raw = Raw::open(settings(), exact(2), 2);
    for token in 0..6 {
        raw.getattr(token);
    }
    // Nothing is known of this server yet.
    assert_eq!(kinds(&raw), [0, 0]);
    let (first, second) = (raw.next(), raw.next());
    answer_classic(&mut raw, &first, 2);
    // The RDMA_DONE takes the credit that came back, until the next reply.
    raw.expect_done(first.xid);
    assert!(raw.inbox.is_empty());
    raw.answer(&second, 2, &stale());
    // From now on one credit is kept back.
    assert_eq!(kinds(&raw), [0]);
    for _ in 0..3 {
        let call = raw.next();
        answer_classic(&mut raw, &call, 2);
        raw.expect_done(call.xid);
        assert_eq!(kinds(&raw), [0]);
    }
    let call = raw.next();
    raw.answer(&call, 2, &stale());
    assert_eq!(raw.done.len(), 6);
    assert_eq!(raw.disconnects, 0);
}

#[test]
fn rr1_cred_15_room_is_kept_from_the_start_if_that_is_set() {
    for (expect_read_chunks, calls) in [(false, 4), (true, 3)] {
        let mine = Settings {
            expect_read_chunks,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 4);
        for token in 0..6 {
            raw.getattr(token);
        }
        assert_eq!(raw.inbox.len(), calls);
    }
}

#[test]
fn rr1_cred_15_a_done_waits_where_the_grant_has_fallen() {
    let mut raw = Raw::open(settings(), Peer::default(), 3);
    for token in 0..3 {
        raw.getattr(token);
    }
    let calls = [raw.next(), raw.next(), raw.next()];
    // Two calls are out, which is all that is granted.
    answer_classic(&mut raw, &calls[0], 2);
    assert_eq!(raw.tokens(), [0], "the caller does not wait for the credit");
    assert!(raw.inbox.is_empty());
    raw.answer(&calls[1], 2, &stale());
    raw.expect_done(calls[0].xid);
    raw.answer(&calls[2], 2, &stale());
    assert_eq!(raw.done.len(), 3);
}
