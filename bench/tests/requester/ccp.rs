//! The connection configuration protocol.

use std::time::Duration;

use millrace_bench::requester::{Alignment, Call, CallError, Ccp, Completion, Identity, Settings};
use millrace_wire::ccp::{self, Limits, Wish};
use millrace_wire::nfs3::{Procedure, ReaddirArguments};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpc::{
    AUTH_NONE, AUTH_SYS, Accepted, CallHeader, CallOutcome, Credential, ReplyHeader, answer_to,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

use crate::chunk::{pattern, read_arguments, write_arguments};
use crate::support::{
    Peer, Raw, Seen, at, classic, handle, message, settings, stale, success, unbound,
};

/// Settings that ask for limits, without private data.
fn asking() -> Settings {
    Settings {
        ccp: Some(Ccp::default()),
        private_data: None,
        ..settings()
    }
}

fn quiet() -> Peer {
    Peer {
        private_data: None,
        ..Peer::default()
    }
}

/// What a message asks for, if it is a call of the protocol.
fn wish(call: &Seen, program: u32) -> Option<(Wish, u32)> {
    let mut input = Decoder::new(&call.rpc);
    let header = CallHeader::decode(&mut input).expect("a call");
    let same = (header.program, header.version, header.procedure) == (program, 1, 1);
    let flavor = match header.credential {
        Credential::Sys(_) => AUTH_SYS,
        Credential::Other(auth) => auth.flavor,
        _ => AUTH_NONE,
    };
    same.then(|| (Wish::decode(&mut input).expect("three words"), flavor))
}

/// Answers the exchange with these limits.
fn configure(raw: &mut Raw, call_size: u32, alignment: u32, reads: u32) {
    let call = raw.next();
    assert!(wish(&call, ccp::PROGRAM).is_some());
    let limits = Limits {
        call_size,
        alignment,
        reads,
    };
    raw.answer(&call, 8, &limits);
}

fn write(raw: &mut Raw, token: u64, length: usize) {
    let data = [raw.memory(length)];
    let call = Call::nfs3(token, Procedure::Write, write_arguments(length as u32), 0);
    raw.submit(&call.with_data(&data));
}

#[test]
fn rr1_ccp_01_limits_are_exchanged_on_the_connection_itself() {
    let mut raw = Raw::new(asking(), quiet());
    let call = raw.next();
    let (wish, _) = wish(&call, 100_417).expect("the protocol's call");
    let expected = Wish {
        call_size: 4096,
        reply_size: 4096,
        reads: 128,
    };
    assert_eq!(wish, expected);
    assert_eq!((call.kind, call.header()), (0, 28));
    let limits = Limits {
        call_size: 2048,
        alignment: 512,
        reads: 3,
    };
    raw.answer(&call, 8, &limits);
    assert_eq!(raw.connection.configured(), Some(limits));
    assert!(raw.done.is_empty(), "nobody's call");
    assert_eq!(raw.connection.pending(), 0);
}

#[test]
fn rr1_ccp_04_inline_calls_keep_to_the_returned_size() {
    for (returned, most) in [(2048, 2048), (1500, 1500), (4096, 4096), (1 << 20, 4096)] {
        let mut raw = Raw::new(asking(), quiet());
        configure(&mut raw, returned, 0, 16);
        for length in (500..6000).step_by(100) {
            write(&mut raw, 1, length);
            let call = raw.next();
            assert!(call.bytes.len() <= most, "{length} bytes");
            // 28 bytes of transport header, 72 of RPC header, 56 of arguments.
            assert_eq!(
                call.reads.is_empty(),
                156 + length <= most,
                "{length} bytes"
            );
            raw.answer(&call, 8, &stale());
        }
    }
}

#[test]
fn rr1_ccp_05_the_size_does_not_limit_what_is_at_position_zero() {
    let mut raw = Raw::new(asking(), quiet());
    configure(&mut raw, 1024, 0, 16);
    let arguments = pattern(100_000);
    let call = unbound(arguments.as_slice(), 32);
    raw.submit(&call);
    let call = raw.next();
    assert_eq!((call.kind, call.positions()), (1, vec![0]));
    assert!(raw.fetch_all(&call.read_segments()).ends_with(&arguments));
}

#[test]
fn rr1_ccp_08_no_more_reads_than_the_server_serves() {
    for reads in [1, 2, 5] {
        let mut raw = Raw::new(asking(), quiet());
        configure(&mut raw, 4096, 0, reads);
        let count = 32_768;
        let arguments = ReaddirArguments {
            directory: handle(),
            cookie: 0,
            verifier: [0; 8],
            count,
        };
        raw.submit(&Call::nfs3(1, Procedure::Readdir, arguments, count));
        let call = raw.next();
        let rpc = success(call.xid, &pattern(20_000).as_slice());
        let chunk = raw.reveal_in(
            &rpc,
            &[[2000; 9].as_slice(), &[rpc.len() - 18_000]].concat(),
        );
        raw.post_send(&classic(call.xid, 8, &at(0, &chunk), &[], None, None));
        // Every pass of the client posts what it may, and completes what the server served.
        let mut most = 0;
        while raw.done.is_empty() {
            let before = raw.connection.counters().reads;
            raw.client_turn();
            most = most.max(raw.connection.counters().reads - before);
            raw.server_turn();
        }
        assert_eq!(most, u64::from(reads));
        assert_eq!(raw.done[0].result.clone().expect("a reply").0, rpc);
    }
}

#[test]
fn rr1_ccp_09_nothing_that_needs_a_read_goes_to_a_server_without_reads() {
    let mut raw = Raw::new(asking(), quiet());
    configure(&mut raw, 2048, 0, 0);
    write(&mut raw, 1, 3000);
    assert_eq!(
        raw.done.pop().expect("at once").result,
        Err(CallError::TooLong)
    );
    assert!(raw.inbox.is_empty(), "fails here");
    let chunky = Settings {
        chunk_above: 0,
        ..asking()
    };
    let mut chunked = Raw::new(chunky, quiet());
    configure(&mut chunked, 4096, 0, 0);
    write(&mut chunked, 1, 100);
    assert_eq!(chunked.done[0].result, Err(CallError::TooLong));
    // What fits inline goes, and results may be written.
    write(&mut raw, 2, 1000);
    let call = raw.next();
    assert!(call.reads.is_empty());
    raw.answer(&call, 8, &stale());
    let room = [raw.memory(8192)];
    let call = Call::nfs3(3, Procedure::Read, read_arguments(8192), 0);
    raw.submit(&call.with_sinks(&[&room]));
    let call = raw.next();
    assert_eq!((call.reads.len(), call.writes.len()), (0, 1));
}

#[test]
fn rr1_ccp_10_the_alignment_told_is_that_of_padded_calls_and_zero_is_none() {
    let learn = Settings {
        alignment: Alignment::Learnt { threshold: 512 },
        ..asking()
    };
    for alignment in [0, 1, 4, 64, 1000, 1024, 100_000] {
        let mut raw = Raw::new(learn.clone(), quiet());
        configure(&mut raw, 4096, alignment, 16);
        write(&mut raw, 1, 2000);
        let call = raw.next();
        // Where pads would take more than there is, the call goes as it is.
        let padded = (2..=1024).contains(&alignment);
        assert_eq!(call.kind, if padded { 2 } else { 0 }, "{alignment}");
        if padded {
            assert_eq!(call.bytes[16..20], alignment.to_be_bytes());
        }
    }
}

#[test]
fn rr1_ccp_11_the_exchange_is_one_short_message_alone() {
    let large = Settings {
        identity: Identity::opaque(390, &[7; 400]).expect("short"),
        ..asking()
    };
    for mine in [asking(), large] {
        let mut raw = Raw::new(mine, quiet());
        for token in 0..5 {
            raw.getattr(token);
        }
        assert_eq!(raw.inbox.len(), 1, "one message until its reply");
        assert!(raw.inbox[0].bytes.len() <= 1024);
        configure(&mut raw, 4096, 0, 16);
        assert_eq!(raw.inbox.len(), 5);
    }
}

#[test]
fn rr1_ccp_12_without_exchange_and_private_data_all_sends_are_short() {
    let none = Settings {
        private_data: None,
        ..settings()
    };
    let mut raw = Raw::open(none, quiet(), 8);
    for length in (0..5000).step_by(97) {
        write(&mut raw, 1, length);
        let call = raw.next();
        assert!(call.bytes.len() <= 1024);
        raw.answer(&call, 8, &stale());
        // A reply that may be longer has its own chunk.
        let room = [raw.memory(length)];
        let call = Call::nfs3(1, Procedure::Read, read_arguments(length as u32), 0);
        raw.submit(&call.with_sinks(&[&room]));
        let call = raw.next();
        let inline = 28 + 24 + 4 + 88 + 12 + length;
        assert!(inline <= 1024 || !call.writes.is_empty() || call.reply.is_some());
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_ccp_13_a_server_without_the_protocol_leaves_the_defaults() {
    let refusals: [&dyn Fn(u32) -> ReplyHeader<'static>; 6] = [
        &|xid| answer_to(xid, Accepted::ProgramUnavailable),
        &|xid| answer_to(xid, Accepted::ProgramMismatch { low: 2, high: 3 }),
        &|xid| answer_to(xid, Accepted::ProcedureUnavailable),
        &|xid| answer_to(xid, Accepted::GarbageArguments),
        &|xid| answer_to(xid, Accepted::SystemError),
        &too_weak,
    ];
    for refusal in refusals {
        let mut raw = Raw::new(asking(), quiet());
        let call = raw.next();
        let rpc = encoded(&refusal(call.xid));
        raw.send(&message(call.xid, 8, &[], None, Some(&rpc)));
        check_defaults(&mut raw);
    }
    // Results that are too short, and an RDMA_ERROR.
    let mut raw = Raw::new(asking(), quiet());
    let call = raw.next();
    raw.answer(&call, 8, &4096_u32);
    check_defaults(&mut raw);
    let mut raw = Raw::new(asking(), quiet());
    let call = raw.next();
    raw.answer_error(call.xid, 8, &[2]);
    check_defaults(&mut raw);
}

fn too_weak(xid: u32) -> ReplyHeader<'static> {
    use millrace_wire::rpc::{AuthStatus, Denied};
    ReplyHeader {
        xid,
        outcome: CallOutcome::Denied(Denied::Auth(AuthStatus::TooWeak)),
    }
}

fn encoded(header: &ReplyHeader<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let mut out = Encoder::new(&mut bytes);
    header.encode(&mut out).expect("room");
    let length = out.position();
    bytes.truncate(length);
    bytes
}

fn check_defaults(raw: &mut Raw) {
    assert_eq!(raw.connection.configured(), None);
    write(raw, 1, 3000);
    let call = raw.next();
    assert!(call.bytes.len() <= 1024);
    assert_eq!(call.reads.len(), 1);
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_ccp_13_a_silent_server_is_given_up_and_asked_no_more() {
    let keep = Settings {
        keep_calls: true,
        negotiation: Duration::from_secs(10),
        ..asking()
    };
    let mut raw = Raw::new(keep, quiet());
    raw.getattr(1);
    assert!(wish(&raw.next(), ccp::PROGRAM).is_some());
    raw.advance(Duration::from_secs(9));
    assert_eq!(raw.disconnects, 0);
    raw.advance(Duration::from_secs(2));
    raw.settle();
    assert_eq!(raw.disconnects, 1);
    raw.reconnect();
    let call = raw.next();
    assert!(wish(&call, ccp::PROGRAM).is_none());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_ccp_14_who_asks_says_who_it_is() {
    let mut raw = Raw::new(asking(), quiet());
    let (_, flavor) = wish(&raw.next(), ccp::PROGRAM).expect("asked");
    assert_eq!(flavor, AUTH_SYS);
    // Nobody asks for nothing.
    let nobody = Settings {
        identity: Identity::none(),
        ..asking()
    };
    let mut raw = Raw::new(nobody, quiet());
    assert!(raw.inbox.is_empty());
    raw.getattr(1);
    let call = raw.next();
    assert!(wish(&call, ccp::PROGRAM).is_none());
    assert_eq!(call.rpc[24..28], AUTH_NONE.to_be_bytes());
}

#[test]
fn rr1_ccp_17_what_was_agreed_is_void_on_the_next_connection() {
    let mut raw = Raw::new(asking(), quiet());
    configure(&mut raw, 4096, 0, 16);
    write(&mut raw, 1, 3000);
    let call = raw.next();
    assert!(call.reads.is_empty());
    raw.answer(&call, 8, &stale());
    raw.break_off();
    raw.reconnect();
    assert_eq!(raw.connection.configured(), None);
    write(&mut raw, 2, 3000);
    let call = raw.next();
    let rpc = encoded(&answer_to(call.xid, Accepted::ProgramUnavailable));
    raw.send(&message(call.xid, 8, &[], None, Some(&rpc)));
    let call = raw.next();
    assert!(call.bytes.len() <= 1024);
    assert_eq!(call.reads.len(), 1);
}

#[test]
fn rr1_ccp_18_the_exchange_replaces_what_private_data_told() {
    let told = |receive_size| PrivateData {
        remote_invalidation: false,
        send_size: 4096,
        receive_size,
    };
    for (private, returned) in [(4096, 2048), (2048, 4096)] {
        let mine = Settings {
            ccp: Some(Ccp::default()),
            ..settings()
        };
        let peer = Peer {
            private_data: Some(told(private)),
            ..Peer::default()
        };
        let mut raw = Raw::new(mine, peer);
        assert_eq!(raw.connection.limits().receive, 4096);
        configure(&mut raw, returned, 0, 16);
        assert_eq!(raw.connection.limits().send, returned as usize);
        write(&mut raw, 1, 3000);
        assert_eq!(raw.next().reads.is_empty(), returned == 4096);
    }
    // Where the protocol is not served, private data holds.
    let mine = Settings {
        ccp: Some(Ccp::default()),
        ..settings()
    };
    let mut raw = Raw::new(mine, Peer::default());
    let call = raw.next();
    let rpc = encoded(&answer_to(call.xid, Accepted::ProgramUnavailable));
    raw.send(&message(call.xid, 8, &[], None, Some(&rpc)));
    assert_eq!(raw.connection.limits().send, 4096);
}

#[test]
fn old_08_the_program_number_is_a_setting() {
    let mine = Settings {
        ccp: Some(Ccp {
            program: 0x2000_0417,
            ..Ccp::default()
        }),
        ..asking()
    };
    let mut raw = Raw::new(mine, quiet());
    assert!(wish(&raw.next(), 0x2000_0417).is_some());
    assert_eq!(Ccp::default().program, 100_417);
}

#[test]
fn limits_that_never_come_end_the_connection_at_their_deadline() {
    let mut raw = Raw::bare(asking(), quiet());
    assert_eq!(raw.inbox.len(), 1);
    raw.now = raw.connection.next_deadline().expect("waits");
    // Whoever has slept until now has nothing to handle.
    let mut sink = |_: Completion<'_>| panic!("there are no calls");
    raw.connection.expire(&mut raw.client, raw.now, &mut sink);
    raw.settle();
    assert_eq!(raw.disconnects, 1);
}

#[test]
fn limits_that_could_not_be_asked_for_are_asked_for_on_the_next_connection() {
    let mut raw = Raw::bare(asking(), quiet());
    assert_eq!(raw.inbox.len(), 1);
    raw.client.full = true;
    configure(&mut raw, 2000, 0, 0);
    raw.break_off();
    raw.reconnect();
    assert!(raw.inbox.is_empty(), "the send queue is full");
    raw.break_off();
    raw.client.full = false;
    raw.advance(Duration::from_secs(3600));
    raw.reconnect();
    configure(&mut raw, 1500, 0, 0);
    assert_eq!(
        raw.connection.configured().map(|limits| limits.call_size),
        Some(1500)
    );
}
