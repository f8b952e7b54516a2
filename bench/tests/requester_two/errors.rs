//! RDMA2_ERROR, and second tries.

use millrace_bench::requester::{Call, CallError, RequesterState, Settings};
use millrace_reactor::fabric::testing::deferring;
use millrace_wire::nfs3::{Procedure, ReaddirArguments};
use millrace_wire::rpcrdma::{Segment, Versions};

use crate::chunk::{pattern, read_arguments};
use crate::support::{
    Peer, Raw, Seen, Step, bytes, front, handle, message, settings, stale, success,
};

fn readdir(count: u32) -> Call<'static, ReaddirArguments> {
    let arguments = ReaddirArguments {
        directory: handle(),
        cookie: 0,
        verifier: [0; 8],
        count,
    };
    Call::nfs3(1, Procedure::Readdir, arguments, count)
}

/// CANT_REPLY.
fn no_room(raw: &mut Raw, call: &Seen, processed: bool, segment: u32, needed: u32) -> CallError {
    raw.answer_error(call.xid, 8, &[3, u32::from(processed), segment, needed]);
    CallError::CannotReply {
        processed,
        segment,
        needed,
    }
}

fn lengths(chunk: Option<&Vec<Segment>>) -> Vec<u32> {
    chunk
        .expect("offered")
        .iter()
        .map(|segment| segment.length)
        .collect()
}

#[test]
fn rr2_err_02_err_vers_means_the_same_with_the_words_of_both_versions() {
    for (versions, first) in [(Versions::ONE, 1), (Versions::TWO, 2)] {
        for word in [1, 2] {
            let mine = Settings {
                versions,
                ..settings()
            };
            let mut raw = Raw::bare(mine, Peer::default());
            if versions == Versions::TWO {
                let call = raw.next();
                raw.answer(&call, 8, &());
            }
            raw.getattr(1);
            let call = raw.next();
            assert_eq!(call.version, first);
            raw.send(&bytes(&[call.xid, word, 8, 4, 1, 3, 9]));
            let error = CallError::Version { low: 3, high: 9 };
            assert_eq!(raw.done[0].result, Err(error));
        }
    }
}

#[test]
fn rr2_err_03_inval_proc_ends_the_call() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    raw.answer_error(call.xid, 8, &[4]);
    assert_eq!(raw.done[0].result, Err(CallError::InvalidProcedure));
    assert!(raw.inbox.is_empty(), "not sent again");
}

#[test]
fn rr2_err_04_bad_xdr_ends_the_call() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    raw.answer_error(call.xid, 8, &[2]);
    assert_eq!(raw.done[0].result, Err(CallError::BadXdr));
    assert!(raw.inbox.is_empty(), "not sent again");
}

#[test]
fn rr2_err_09_one_more_try_with_the_room_that_was_asked_for() {
    for processed in [false, true] {
        let mine = Settings {
            reply_segments: 3,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        raw.submit(&readdir(32_768));
        let first = raw.next();
        let before = lengths(first.reply.as_ref());
        no_room(&mut raw, &first, processed, 2, 50_001);
        assert!(raw.done.is_empty());
        let second = raw.next();
        assert_eq!((second.xid, &second.rpc), (first.xid, &first.rpc));
        assert_eq!(
            lengths(second.reply.as_ref()),
            [before[0], 50_004, before[2]],
            "larger where it was asked for, in whole words"
        );
        // Other memory than before, and the old keys are dead.
        let old: Vec<u32> = first.reply.iter().flatten().map(|s| s.handle).collect();
        let new: Vec<u32> = second.reply.iter().flatten().map(|s| s.handle).collect();
        assert!(new.iter().all(|key| !old.contains(key)));
        let steps = raw.steps();
        for key in old {
            assert!(
                steps
                    .iter()
                    .any(|step| matches!(step, Step::Revoke(dead) if dead.0 == key))
            );
        }
        let rpc = success(second.xid, &pattern(60_000).as_slice());
        let filled = raw.place_all(&second.reply.clone().expect("offered"), &rpc);
        raw.send(&message(second.xid, 8, &[], Some(&filled), None));
        assert_eq!(raw.done[0].result.clone().expect("a reply").0, rpc);
        assert_eq!(raw.connection.counters().retried, 1);
    }
}

#[test]
fn rr2_err_09_a_reply_chunk_is_offered_where_there_was_none() {
    for segment in [0, 1] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        raw.getattr(1);
        let first = raw.next();
        assert!(first.reply.is_none());
        no_room(&mut raw, &first, true, segment, 9_000);
        let second = raw.next();
        assert_eq!(second.xid, first.xid);
        assert_eq!(lengths(second.reply.as_ref()), [9_000]);
        raw.answer(&second, 8, &stale());
        assert_eq!(raw.tokens(), [1]);
    }
}

#[test]
fn rr2_err_09_there_is_no_third_try() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&readdir(32_768));
    let first = raw.next();
    no_room(&mut raw, &first, false, 1, 50_000);
    let second = raw.next();
    let error = no_room(&mut raw, &second, false, 1, 60_000);
    assert_eq!(raw.done[0].result, Err(error));
    assert!(raw.inbox.is_empty());
    // The next call in the same place has its own try.
    raw.submit(&readdir(32_768));
    let third = raw.next();
    assert_eq!(lengths(third.reply.as_ref()), lengths(first.reply.as_ref()));
    no_room(&mut raw, &third, false, 1, 50_000);
    assert_eq!(raw.next().xid, third.xid);
}

#[test]
fn rr2_err_09_what_cannot_be_helped_is_given_up() {
    // Neither segment nor length; less than there is; more than a chunk may have; no such segment.
    for (segment, needed) in [
        (0, 0),
        (1, 0),
        (0, 100),
        (1, 100),
        (1, 2 << 20),
        (1, u32::MAX),
        (0, u32::MAX),
        (2, 50_000),
        (u32::MAX, 50_000),
    ] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        raw.submit(&readdir(32_768));
        let call = raw.next();
        let error = no_room(&mut raw, &call, false, segment, needed);
        assert_eq!(raw.done[0].result, Err(error), "{segment} {needed}");
        assert!(raw.inbox.is_empty(), "{segment} {needed}");
        assert_eq!(raw.connection.state(), &RequesterState::Ready);
    }
}

#[test]
fn rr2_err_09_the_callers_own_room_is_the_callers_to_enlarge() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = [raw.memory(8192), raw.memory(8192)];
    let call = Call::nfs3(1, Procedure::Read, read_arguments(16384), 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    let error = no_room(&mut raw, &call, false, 2, 9000);
    assert_eq!(
        raw.done[0].result,
        Err(error),
        "told, with segment and bytes"
    );
    assert!(raw.inbox.is_empty());
}

#[test]
fn rr2_err_09_a_second_try_waits_for_its_keys_and_its_credit() {
    let _network = deferring();
    let mut raw = Raw::open(settings(), Peer::default(), 1);
    raw.submit(&readdir(32_768));
    raw.getattr(2);
    let first = raw.next();
    assert!(raw.inbox.is_empty(), "one credit");
    raw.answer_error(first.xid, 1, &[3, 0, 1, 40_000]);
    // It has the oldest claim once its keys are dead; one of the two is out, not both.
    assert_eq!(raw.inbox.len(), 1);
    raw.answer_all(1);
    let mut tokens = raw.tokens();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2]);
    assert_eq!(raw.connection.counters().retried, 1);
}

#[test]
fn rr2_err_09_a_second_try_survives_the_connection() {
    let keep = Settings {
        keep_calls: true,
        ..settings()
    };
    let mut raw = Raw::open(keep, Peer::default(), 8);
    raw.submit(&readdir(32_768));
    let first = raw.next();
    no_room(&mut raw, &first, true, 1, 50_000);
    raw.inbox.clear();
    raw.break_off();
    raw.reconnect();
    let again = raw.next();
    assert_eq!(
        (again.xid, lengths(again.reply.as_ref())),
        (first.xid, vec![50_000])
    );
}

#[test]
fn rr2_err_12_a_broken_reply_is_dropped_without_an_answer() {
    let mine = Settings {
        reverse_credits: 2,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    let receives = raw.connection.receives();
    for lists in [&[0, 1, 9][..], &[0, 2, 0], &[1, 3, 7, 7, 7, 7], &[0]] {
        raw.send(&bytes(&front(call.xid, 8, 0, lists)));
    }
    assert!(raw.inbox.is_empty() && raw.done.is_empty());
    assert_eq!(raw.connection.counters().dropped, 4);
    assert_eq!(raw.connection.receives(), receives);
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_err_13_no_error_is_answered() {
    let mine = Settings {
        reverse_credits: 2,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    // Cut short, of no call, with a wrong boolean.
    raw.send(&bytes(&[call.xid, 2, 8, 4]));
    raw.send(&bytes(&[call.xid, 2, 8, 4, 1, 1]));
    raw.send(&bytes(&[call.xid, 2, 8, 4, 3, 2, 0, 0]));
    raw.send(&bytes(&[call.xid ^ 0x0100_0000, 2, 8, 4, 2]));
    assert!(raw.inbox.is_empty() && raw.done.is_empty());
    assert_eq!(raw.connection.counters().dropped, 4);
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}

#[test]
fn rr2_err_14_credits_of_an_error_are_no_first_grant() {
    let mine = Settings {
        versions: Versions::BOTH,
        ..settings()
    };
    let mut raw = Raw::bare(mine, Peer::default());
    for token in 0..5 {
        raw.getattr(token);
    }
    let first = raw.next();
    raw.send(&bytes(&[first.xid, 2, 100, 4, 1, 1, 1]));
    assert_eq!(raw.connection.window().limit(), 1);
    assert_eq!(raw.inbox.len(), 1, "one at a time still");
}

#[test]
fn rr2_err_15_unknown_codes_end_the_call_for_good() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for code in [0, 6, 99, u32::MAX] {
        for words in [0, 1, 8] {
            raw.getattr(1);
            let call = raw.next();
            let mut error = vec![code];
            error.resize(1 + words, 5);
            raw.answer_error(call.xid, 8, &error);
            let done = raw.done.pop().expect("ended");
            assert_eq!(done.result, Err(CallError::UnknownError(code)));
            assert!(raw.inbox.is_empty(), "not sent again");
        }
    }
}
