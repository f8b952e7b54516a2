//! Headers, errors and matching.

use millrace_bench::requester::{CallError, RequesterState, Settings};
use millrace_reactor::fabric::Access;
use millrace_reactor::fabric::testing::deferring;
use millrace_wire::nfs3::{Procedure, ReadArguments, ReaddirArguments};
use millrace_wire::private_data::PrivateData;

use crate::VERSION;
use crate::chunk::chunky;
use crate::security::everything;
use crate::support::{
    HEADER_ERROR, Peer, Raw, SHORTEST, Seen, Step, bytes, front, handle, message, settings, stale,
    success,
};
use millrace_bench::requester::Call;

fn getattr_reply(call: &Seen) -> Vec<u8> {
    success(call.xid, &stale())
}

#[test]
fn rr1_hdr_01_rr1_hdr_02_rr1_hdr_04_words_are_xid_version_credits_type_and_the_xid_again() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    let word = |at: usize| u32::from_be_bytes(call.bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(4), word(8), word(12)), (VERSION.number(), 16, 0));
    assert_eq!(&call.bytes[..4], &call.rpc[..4]);
    assert_eq!(call.header(), SHORTEST);
}

#[test]
fn rr1_hdr_03_a_reply_with_another_inner_xid_is_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    let other = success(call.xid + 1, &stale());
    raw.send(&message(call.xid, 4, &[], None, Some(&other)));
    assert!(raw.done.is_empty());
    raw.answer(&call, 4, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_hdr_07_an_error_is_understood_whatever_its_version_word_says() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    for version in [1, 2, 77] {
        raw.getattr(u64::from(version));
        let call = raw.next();
        raw.send(&bytes(&[call.xid, version, 4, 4, 1, 2, 3]));
        let done = raw.done.pop().expect("ended");
        assert_eq!(done.result, Err(CallError::Version { low: 2, high: 3 }));
    }
}

#[test]
fn rr1_hdr_14_unknown_error_codes_fail_the_call_for_good() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    for words in [0, 1, 8] {
        raw.getattr(words);
        let call = raw.next();
        let mut error = vec![77];
        error.resize(1 + words as usize, 5);
        raw.answer_error(call.xid, 4, &error);
        let done = raw.done.pop().expect("ended");
        assert_eq!(done.result, Err(CallError::UnknownError(77)));
        assert!(raw.inbox.is_empty(), "not sent again");
    }
}

#[test]
fn rr1_hdr_15_a_faulty_reply_is_dropped_without_an_answer() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    let receives = raw.connection.receives();
    // A write list that ends inside a chunk.
    raw.send(&bytes(&front(call.xid, 4, 0, &[0, 1, 9])));
    // Presence word 2.
    let words = bytes(&front(call.xid, 4, 0, &[0, 2, 0]));
    raw.send(&[words, getattr_reply(&call)].concat());
    assert!(raw.done.is_empty() && raw.inbox.is_empty());
    assert_eq!(raw.connection.receives(), receives);
    raw.answer(&call, 4, &stale());
    assert_eq!(raw.tokens(), [1]);
    raw.getattr(2);
    let call = raw.next();
    raw.answer(&call, 4, &stale());
    assert_eq!(raw.tokens(), [1, 2]);
}

#[test]
fn rr1_hdr_17_an_error_ends_its_call_after_its_memory_is_revoked() {
    let mut raw = Raw::open(settings(), Peer::default(), 1);
    let room = [raw.memory(65536)];
    let arguments = ReadArguments {
        file: handle(),
        offset: 0,
        count: 65536,
    };
    let call = Call::nfs3(1, Procedure::Read, arguments, 0);
    raw.submit(&call.with_sinks(&[&room]));
    raw.getattr(2);
    let call = raw.next();
    assert!(raw.inbox.is_empty(), "one credit");
    raw.answer_error(call.xid, 1, &[2]);
    let done = raw.done.first().expect("ended").clone();
    assert_eq!(done.result, Err(HEADER_ERROR));
    let key = call.writes[0][0].handle;
    let revoked = raw
        .steps()
        .iter()
        .position(|step| matches!(step, Step::Revoke(revoked) if revoked.0 == key));
    assert!(revoked.expect("revoked") < done.step);
    assert!(
        raw.place(&call.writes[0][0], &[1]).is_err(),
        "the key is dead"
    );
}

#[test]
fn rr1_hdr_17_the_credit_of_a_failed_call_is_free_again() {
    let mut raw = Raw::open(settings(), Peer::default(), 1);
    raw.getattr(1);
    raw.getattr(2);
    let first = raw.next();
    assert!(raw.inbox.is_empty());
    raw.answer_error(first.xid, 1, &[2]);
    assert_ne!(raw.next().xid, first.xid);
}

#[test]
fn rr1_hdr_18_messages_too_short_for_their_type_are_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    for kind in [0, 1, 2, 3, 4, 5, 0x8000_0000] {
        for length in 0..=40_usize {
            let whole = matches!(kind, 4) && length >= 20;
            if whole {
                continue;
            }
            let mut message = bytes(&[call.xid, VERSION.number(), 4, kind, 2]);
            message.resize(40, 0);
            raw.send(&message[..length]);
            assert!(raw.done.is_empty(), "type {kind}, {length} bytes");
        }
    }
    raw.answer_error(call.xid, 4, &[2]);
    assert_eq!(raw.tokens(), [1]);
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}

#[test]
fn rr1_hdr_19_counts_beyond_the_message_are_refused() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    let mut reply = bytes(&front(call.xid, 4, 0, &[0, 1, u32::MAX]));
    reply.resize(60, 0);
    raw.send(&reply);
    assert!(raw.done.is_empty());
    raw.answer(&call, 4, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_hdr_21_header_and_message_leave_in_one_send() {
    let mut raw = Raw::open(settings(), Peer::default(), 4);
    let before = raw.steps().len();
    raw.getattr(1);
    let call = raw.next();
    let sends: Vec<_> = raw.steps()[before..]
        .iter()
        .filter_map(|step| match step {
            Step::Send { bytes, .. } => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(sends, [call.bytes.len()]);
}

#[test]
fn rr1_hdr_22_no_record_mark_stands_before_the_xid() {
    let mut raw = Raw::new(settings(), Peer::default());
    raw.null(1);
    let call = raw.next();
    assert_eq!(&call.bytes[..4], &call.xid.to_be_bytes());
    assert_eq!(call.xid & 0xf000_0000, 0x1000_0000);
}

#[test]
fn rr1_hdr_24_lost_calls_are_sent_again_with_their_xids_and_new_keys() {
    let keep = Settings {
        keep_calls: true,
        ..settings()
    };
    let mut raw = Raw::open(keep, Peer::default(), 8);
    let room: Vec<_> = (0..8).map(|_| raw.memory(16384)).collect();
    for (token, room) in room.iter().enumerate() {
        let arguments = ReadArguments {
            file: handle(),
            offset: token as u64,
            count: 16384,
        };
        let call = Call::nfs3(token as u64, Procedure::Read, arguments, 0);
        raw.submit(&call.with_sinks(&[std::slice::from_ref(room)]));
    }
    let before: Vec<_> = raw.inbox.drain(..).collect();
    assert_eq!(before.len(), 8);
    raw.break_off();
    assert!(raw.done.is_empty());
    assert!(matches!(raw.connection.state(), RequesterState::Down(_)));
    raw.reconnect();
    let mut after = Vec::new();
    while let Some(call) = raw.inbox.pop_front() {
        raw.answer(&call, 8, &stale());
        after.push(call);
    }
    let xids = |calls: &[Seen]| calls.iter().map(|call| call.xid).collect::<Vec<_>>();
    assert_eq!(xids(&before), xids(&after));
    for (before, after) in before.iter().zip(&after) {
        assert_ne!(before.writes[0][0], after.writes[0][0]);
        assert_eq!(before.rpc, after.rpc);
    }
    assert_eq!(raw.tokens(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn rr1_hdr_24_without_the_setting_lost_calls_fail() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    raw.getattr(2);
    raw.break_off();
    let results: Vec<_> = raw.done.iter().map(|done| done.result.clone()).collect();
    assert_eq!(
        results,
        [Err(CallError::Disconnected), Err(CallError::Disconnected)]
    );
    assert_eq!(raw.connection.pending(), 0);
}

#[test]
fn rr1_hdr_26_rpc_errors_are_replies() {
    use millrace_bench::requester::{Reply, RpcError};
    use millrace_wire::rpc::{Accepted, answer_to};
    use millrace_wire::xdr;

    let mut raw = Raw::open(settings(), Peer::default(), 4);
    raw.getattr(1);
    let call = raw.next();
    let mut rpc = [0; 64];
    let length = xdr::to_bytes(&answer_to(call.xid, Accepted::ProgramUnavailable), &mut rpc);
    let rpc = &rpc[..length.expect("room")];
    raw.send(&message(call.xid, 4, &[], None, Some(rpc)));
    let (reply, _) = raw.done[0].result.clone().expect("a reply");
    let reply = Reply {
        message: &reply,
        written: &[],
    };
    assert_eq!(
        reply.results::<()>(),
        Err(RpcError::Failed(Accepted::ProgramUnavailable))
    );
}

#[test]
fn rr1_hdr_27_replies_match_in_any_order_and_strangers_are_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for token in 0..4 {
        raw.getattr(token);
    }
    let calls: Vec<_> = raw.inbox.drain(..).collect();
    let stranger = calls[0].xid ^ 0x0100_0000;
    let receives = raw.connection.receives();
    raw.send(&message(
        stranger,
        8,
        &[],
        None,
        Some(&success(stranger, &())),
    ));
    assert_eq!(raw.connection.receives(), receives);
    for call in calls.iter().rev() {
        raw.answer(call, 8, &stale());
    }
    assert_eq!(raw.tokens(), [3, 2, 1, 0]);
    assert_eq!(raw.connection.counters().dropped, 1);
    // A second reply to a call that has ended.
    raw.answer(&calls[0], 8, &stale());
    assert_eq!(raw.done.len(), 4);
}

#[test]
fn rr1_hdr_28_a_reverse_call_with_the_xid_of_a_pending_call_is_no_reply() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    let reverse = bytes(&[call.xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
    raw.send(&message(call.xid, 8, &[], None, Some(&reverse)));
    assert!(raw.done.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn keys_that_die_later_hold_the_result_back() {
    let _network = deferring();
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = [raw.memory(16384)];
    let arguments = ReadArguments {
        file: handle(),
        offset: 0,
        count: 16384,
    };
    let call = Call::nfs3(1, Procedure::Read, arguments, 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
    let [room] = room;
    room.try_into_buffer()
        .expect("nobody else holds the memory");
}

#[test]
fn sizes_come_from_both_sides_private_data() {
    let told = |size| {
        Some(PrivateData {
            remote_invalidation: false,
            send_size: size,
            receive_size: size,
        })
    };
    for (ours, peers, both) in [
        (told(4096), told(4096), 4096),
        (told(4096), told(2048), 2048),
        (told(1024), told(4096), 1024),
        (None, told(4096), VERSION.min_inline()),
        (told(4096), None, VERSION.min_inline()),
    ] {
        let mine = Settings {
            private_data: ours,
            ..settings()
        };
        // InfiniBand and RoCE pass on all 196 bytes of the field in an answer.
        for padded in [0, 196] {
            let peer = Peer {
                private_data: peers,
                padded,
                ..Peer::default()
            };
            let raw = Raw::open(mine.clone(), peer, 8);
            let limits = raw.connection.limits();
            assert_eq!((limits.send, limits.receive), (both, both));
            assert!(
                raw.asked <= 56,
                "there is no more room in a request of theirs"
            );
        }
    }
}

#[test]
fn rr1_chunk_37_memory_is_exposed_before_the_call_with_one_right_each() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = [raw.memory(16384)];
    let before = raw.steps().len();
    let arguments = ReadArguments {
        file: handle(),
        offset: 0,
        count: 16384,
    };
    let call = Call::nfs3(1, Procedure::Read, arguments, 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    let steps = raw.steps().split_off(before);
    assert!(matches!(
        steps[..],
        [Step::Expose(key, Access::RemoteWrite, 16384), Step::Send { .. }]
            if key.0 == call.writes[0][0].handle
    ));
    assert!(raw.fetch(&call.writes[0][0]).is_err(), "not for reading");
}

#[test]
fn rr1_hdr_04_every_message_says_its_version() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    for token in 0..20 {
        everything(&mut raw, token);
        raw.getattr(token);
        let arguments = ReaddirArguments {
            directory: handle(),
            cookie: 0,
            verifier: [0; 8],
            count: 8192,
        };
        raw.submit(&Call::nfs3(token, Procedure::Readdir, arguments, 8192));
        while let Some(call) = raw.inbox.pop_front() {
            assert_eq!(call.bytes[4..8], VERSION.number().to_be_bytes());
            raw.answer(&call, 8, &stale());
        }
    }
    assert_eq!(raw.done.len(), 60);
}
