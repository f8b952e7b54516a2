//! Headers of version two, as the requester writes and reads them.

use millrace_bench::requester::{Call, CallError, RequesterState, Settings};
use millrace_wire::nfs3::{NameInDirectory, Procedure, ReaddirArguments};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::MessageType;

use crate::chunk::{chunky, pattern, read_arguments, write_arguments};
use crate::support::{
    Peer, Raw, Seen, bytes, front, handle, message, settings, small_sizes, stale, success, unbound,
};

fn quiet() -> (Settings, Peer) {
    let mine = Settings {
        private_data: None,
        ..settings()
    };
    let peer = Peer {
        private_data: None,
        ..Peer::default()
    };
    (mine, peer)
}

/// Calls of every form, each answered before the next.
pub fn mixed_run(raw: &mut Raw, rounds: u64) -> Vec<Seen> {
    let mut seen = Vec::new();
    for round in 0..rounds {
        raw.getattr(round);
        seen.push(raw.next());
        raw.answer(&seen[seen.len() - 1].clone(), 8, &stale());

        let data = [raw.memory(5001), raw.memory(999)];
        let call = Call::nfs3(round, Procedure::Write, write_arguments(6000), 0);
        raw.submit(&call.with_data(&data));
        seen.push(raw.next());
        raw.answer(&seen[seen.len() - 1].clone(), 8, &stale());

        let room = [raw.memory(8192), raw.memory(8192)];
        let call = Call::nfs3(round, Procedure::Read, read_arguments(16384), 0);
        raw.submit(&call.with_sinks(&[&room]));
        seen.push(raw.next());
        raw.answer(&seen[seen.len() - 1].clone(), 8, &stale());

        let arguments = ReaddirArguments {
            directory: handle(),
            cookie: 0,
            verifier: [0; 8],
            count: 32768,
        };
        raw.submit(&Call::nfs3(round, Procedure::Readdir, arguments, 32768));
        seen.push(raw.next());
        raw.answer(&seen[seen.len() - 1].clone(), 8, &stale());

        let name = [b'x'; 5000];
        let entry = NameInDirectory {
            directory: handle(),
            name: &name,
        };
        raw.submit(&Call::nfs3(round, Procedure::Remove, entry, 0));
        seen.push(raw.next());
        raw.answer(&seen[seen.len() - 1].clone(), 8, &stale());
    }
    assert!(raw.done.drain(..).all(|done| done.result.is_ok()));
    seen
}

#[test]
fn rr2_hdr_02_only_types_0_and_1_are_sent_and_unknown_ones_are_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let kinds: Vec<_> = mixed_run(&mut raw, 1)
        .iter()
        .map(|call| call.kind)
        .collect();
    assert_eq!(kinds, [0, 0, 0, 0, 1]);
    raw.getattr(1);
    let call = raw.next();
    let dropped = raw.connection.counters().dropped;
    for kind in [2, 3, 6, u32::MAX] {
        let words = bytes(&front(call.xid, 8, kind, &[0, 0, 0]));
        raw.send(&[words, success(call.xid, &stale())].concat());
    }
    assert_eq!(raw.connection.counters().dropped, dropped + 4);
    assert!(raw.inbox.is_empty() && raw.done.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_hdr_04_nothing_follows_the_header_of_a_long_call_or_reply() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let arguments = pattern(9000);
    let call = unbound(arguments.as_slice(), 6000);
    raw.submit(&call);
    let call = raw.next();
    // Direction, key, one read entry, no writes, one segment for the reply.
    let header = 24 + (24 + 4) + 4 + (4 + 4 + 16);
    assert_eq!((call.kind, call.bytes.len()), (1, header));
    assert!(raw.fetch_all(&call.read_segments()).ends_with(&arguments));
    let rpc = success(call.xid, &pattern(5900).as_slice());
    let reply = raw.place_all(&call.reply.clone().expect("offered"), &rpc);
    raw.send(&message(call.xid, 8, &[], Some(&reply), None));
    assert_eq!(raw.done[0].result.clone().expect("a reply").0, rpc);
}

#[test]
fn rr2_hdr_05_errors_are_read_in_each_of_their_lengths() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = CallError::CannotReply {
        processed: true,
        segment: 0,
        needed: 0,
    };
    for (words, length, error) in [
        (&[2][..], 20, CallError::BadXdr),
        (&[4], 20, CallError::InvalidProcedure),
        (&[5], 20, CallError::InvalidOption),
        (&[1, 1, 2], 28, CallError::Version { low: 1, high: 2 }),
        (&[3, 1, 0, 0], 32, room),
    ] {
        raw.getattr(1);
        let call = raw.next();
        assert_eq!(16 + 4 * words.len(), length);
        // One word less is no error.
        if length > 20 {
            raw.answer_error(call.xid, 8, &words[..words.len() - 1]);
            assert!(raw.done.is_empty(), "{words:?}");
        }
        raw.answer_error(call.xid, 8, words);
        assert_eq!(raw.done.pop().expect("ended").result, Err(error));
    }
}

#[test]
fn rr2_hdr_06_chunks_pads_and_long_messages_are_those_of_version_one() {
    // The modules beside this one run all the tests of version one; here is one call of each kind.
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    let data = [raw.memory(5001)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(5001), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    assert_eq!(call.positions(), [call.rpc.len() as u32]);
    assert_eq!(
        raw.fetch_all(&call.read_segments()),
        pattern(5001),
        "without its pad"
    );
    raw.answer(&call, 8, &stale());

    let room = [raw.memory(5001)];
    let call = Call::nfs3(2, Procedure::Read, read_arguments(5001), 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    let filled = raw.place_all(&call.writes[0], &pattern(5001));
    let rpc = success(call.xid, &crate::chunk::read_ok(5001));
    raw.send(&message(call.xid, 8, &[filled], None, Some(&rpc)));
    assert_eq!(raw.done[1].result.clone().expect("a reply").1, [Some(5001)]);
}

#[test]
fn rr2_hdr_07_a_reply_of_4096_bytes_is_taken() {
    let (mine, peer) = quiet();
    let mut raw = Raw::open(mine, peer, 8);
    for length in [4092, 4096] {
        raw.getattr(1);
        let call = raw.next();
        let rest = vec![7_u8; length - 36 - 24 - 4];
        let rpc = success(call.xid, &rest.as_slice());
        let reply = message(call.xid, 8, &[], None, Some(&rpc));
        assert_eq!(reply.len(), length);
        raw.send(&reply);
        assert_eq!(
            raw.done.pop().expect("ended").result.expect("a reply").0,
            rpc
        );
    }
    assert_eq!(raw.connection.state(), &RequesterState::Ready);
}

#[test]
fn rr2_hdr_08_without_other_knowledge_4000_bytes_go_inline_and_4200_do_not() {
    let (mine, peer) = quiet();
    let mut raw = Raw::open(mine, peer, 8);
    for (length, kind) in [(4000, 0), (4096, 0), (4100, 1), (4200, 1)] {
        // Transport header, RPC header with its credential, count.
        let arguments = pattern(length - 36 - 72 - 4);
        let call = unbound(arguments.as_slice(), 32);
        raw.submit(&call);
        let call = raw.next();
        assert_eq!(call.kind, kind, "{length} bytes");
        if kind == 0 {
            assert_eq!(call.bytes.len(), length);
        }
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr2_hdr_09_calls_and_replies_have_a_threshold_each() {
    let told = |send_size, receive_size| {
        Some(PrivateData {
            remote_invalidation: true,
            send_size,
            receive_size,
        })
    };
    for (ours, peers, send, receive) in [
        (told(4096, 1024), told(4096, 4096), 4096, 1024),
        (told(2048, 4096), told(3072, 4096), 2048, 3072),
    ] {
        let mine = Settings {
            private_data: ours,
            ..settings()
        };
        let peer = Peer {
            private_data: peers,
            ..Peer::default()
        };
        let raw = Raw::open(mine, peer, 8);
        let limits = raw.connection.limits();
        assert_eq!((limits.send, limits.receive), (send, receive));
    }
}

#[test]
fn rr2_hdr_10_any_other_direction_word_is_a_fault() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    for direction in [2, 3, u32::MAX] {
        let words = bytes(&[call.xid, 2, 8, 0, direction, 0, 0, 0, 0]);
        raw.send(&[words, success(call.xid, &stale())].concat());
        // An extension's message as well.
        raw.send(&bytes(&[call.xid, 2, 8, 5, direction, 9, 0]));
    }
    assert!(
        raw.done.is_empty() && raw.inbox.is_empty(),
        "no reply, and no answer"
    );
    assert_eq!(raw.connection.counters().dropped, 6);
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr2_hdr_12_keys_are_of_one_call_and_one_right_and_die_with_the_call() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let data = [raw.memory(8192)];
    let call = Call::nfs3(1, Procedure::Write, write_arguments(8192), 0);
    raw.submit(&call.with_data(&data));
    let call = raw.next();
    let segment = call.read_segments()[0];
    assert_eq!(raw.fetch(&segment).expect("readable"), pattern(8192));
    raw.answer(&call, 8, &stale());
    assert!(raw.fetch(&segment).is_err(), "dead, and the server's fault");

    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = [raw.memory(8192)];
    let call = Call::nfs3(1, Procedure::Read, read_arguments(8192), 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    assert!(raw.fetch(&call.writes[0][0]).is_err(), "for writing only");
}

#[test]
fn rr2_hdr_15_grants_of_version_two_bound_the_calls_that_are_out() {
    let mut raw = Raw::open(settings(), Peer::default(), 3);
    for token in 0..10 {
        raw.getattr(token);
    }
    for left in (0..10_usize).rev() {
        assert_eq!(raw.inbox.len(), 3.min(left + 1));
        let call = raw.next();
        assert_eq!(call.credits, 16, "the wish is in each call");
        raw.answer(&call, 3, &stale());
    }
    assert_eq!(raw.done.len(), 10);
}

#[test]
fn rr2_dir_02_direction_words_are_those_of_the_rpc_messages() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    for call in mixed_run(&mut raw, 1) {
        assert_eq!(call.direction, Some(MessageType::Call));
        if call.kind == 0 {
            assert_eq!(call.rpc[4..8], [0; 4], "CALL");
        }
    }
    // A reply that says it is a call, and the other way round.
    raw.getattr(1);
    let call = raw.next();
    let reply = success(call.xid, &stale());
    let as_call = bytes(&[call.xid, 2, 8, 0, 0, 0, 0, 0, 0]);
    raw.send(&[as_call, reply].concat());
    let mut request = bytes(&front(call.xid, 8, 0, &[0, 0, 0]));
    request.extend(bytes(&[call.xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]));
    raw.send(&request);
    assert!(raw.done.is_empty() && raw.inbox.is_empty(), "both dropped");
    // A long reply whose message is a call.
    raw.answer(&call, 8, &stale());
    let arguments = ReaddirArguments {
        directory: handle(),
        cookie: 0,
        verifier: [0; 8],
        count: 32768,
    };
    raw.submit(&Call::nfs3(2, Procedure::Readdir, arguments, 32768));
    let call = raw.next();
    let request = bytes(&[call.xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
    let chunk = raw.place_all(&call.reply.clone().expect("offered"), &request);
    raw.send(&message(call.xid, 8, &[], Some(&chunk), None));
    assert_eq!(raw.done[1].result, Err(CallError::BadReply));
}

#[test]
fn rr2_dir_02_a_call_of_the_servers_with_the_other_direction_inside_is_bad_xdr() {
    let mine = Settings {
        reverse_credits: 2,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    let words = bytes(&[7, 2, 1, 0, 0, 0, 0, 0, 0]);
    raw.send(&[words, success(7, &())].concat());
    assert_eq!(raw.next().words(), [7, 2, 1, 4, 2]);
}

#[test]
fn small_sizes_told_by_both_sides_hold_in_version_two() {
    let mine = Settings {
        private_data: small_sizes(),
        ..settings()
    };
    let limits = Raw::open(mine, Peer::default(), 8).connection.limits();
    assert_eq!((limits.send, limits.receive), (1024, 1024));
}
