//! Long calls and long replies.

use millrace_bench::requester::plan::{CallLimits, Extent, Form, Shape};
use millrace_bench::requester::{Call, CallError, Settings, plan};
use millrace_reactor::fabric::SLICES_MAX;
use millrace_wire::nfs3::{NameInDirectory, Procedure, ReaddirArguments};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::Segment;

use crate::chunk::{chunky, pattern, read_arguments, write_arguments};
use crate::security::protected;
use crate::support::{
    Peer, Raw, SHORTEST, handle, message, settings, small_sizes, stale, success, unbound,
};

/// Settings of a client that takes 1024 bytes inline.
fn small() -> Settings {
    Settings {
        private_data: small_sizes(),
        ..settings()
    }
}

fn readdir(count: u32) -> Call<'static, ReaddirArguments> {
    let arguments = ReaddirArguments {
        directory: handle(),
        cookie: 0,
        verifier: [0; 8],
        count,
    };
    Call::nfs3(1, Procedure::Readdir, arguments, count)
}

#[test]
fn rr1_long_01_rr1_long_05_rr1_long_22_a_call_that_does_not_fit_is_one_chunk_at_position_zero() {
    let mut raw = Raw::open(small(), Peer::default(), 8);
    let name = [b'x'; 1000];
    let entry = NameInDirectory {
        directory: handle(),
        name: &name,
    };
    raw.submit(&Call::nfs3(1, Procedure::Remove, entry, 0));
    let call = raw.next();
    assert_eq!((call.kind, call.positions()), (1, vec![0]));
    assert!(call.rpc.is_empty(), "nothing inline");
    let rpc = raw.fetch_all(&call.read_segments());
    assert_eq!(rpc[..4], call.xid.to_be_bytes());
    assert!(rpc.ends_with(&name));
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}

#[test]
fn rr1_long_10_write_list_and_reply_chunk_together() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let room = [raw.memory(10_000)];
    let arguments: &[u8] = b"read and list";
    let call = Call {
        sinks: &[&room],
        ..unbound(arguments, 20_000)
    };
    raw.submit(&call);
    let call = raw.next();
    let writes = vec![raw.place_all(&call.writes[0], &pattern(9_999))];
    let list = pattern(15_000);
    let rpc = success(call.xid, &list.as_slice());
    let offered = call.reply.clone().expect("offered");
    let reply = raw.place_all(&offered, &rpc);
    raw.send(&message(call.xid, 8, &writes, Some(&reply), None));
    let (message, written) = raw.done[0].result.clone().expect("a reply");
    assert_eq!(message, rpc);
    assert_eq!(written, [Some(9_999)]);
    let mut bytes = vec![0; 9_999];
    room[0].copy_to(0, &mut bytes);
    assert_eq!(bytes, pattern(9_999));
}

#[test]
fn a_reply_chunk_of_several_segments_is_joined() {
    let mine = Settings {
        reply_segments: 5,
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    for length in [100, 8_000, 20_000] {
        raw.submit(&readdir(32_768));
        let call = raw.next();
        let offered = call.reply.clone().expect("offered");
        assert_eq!(offered.len(), 5);
        let list = pattern(length);
        let rpc = success(call.xid, &list.as_slice());
        let reply = raw.place_all(&offered, &rpc);
        raw.send(&message(call.xid, 8, &[], Some(&reply), None));
        let done = raw.done.pop().expect("ended");
        assert_eq!(done.result.expect("a reply").0, rpc);
    }
}

#[test]
fn rr1_long_11_an_inline_reply_is_taken_though_a_reply_chunk_was_offered() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&readdir(32_768));
    let call = raw.next();
    assert!(call.reply.is_some());
    raw.answer(&call, 8, &stale());
    assert!(raw.done[0].result.is_ok());
}

#[test]
fn rr1_long_12_every_procedure_has_room_for_its_largest_reply() {
    for private_data in [settings().private_data, small_sizes()] {
        let mine = Settings {
            private_data,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let limit = raw.connection.limits().receive;
        for &procedure in Procedure::ALL {
            for asked in [0, 512, 900, 4000, 65_536] {
                let call = Call::nfs3(1, procedure, handle(), asked);
                let largest = call.largest_reply;
                raw.submit(&call);
                let call = raw.next();
                let room = call.reply.as_ref().map(|chunk| {
                    let lengths = chunk.iter().map(|segment| segment.length as usize);
                    lengths.sum::<usize>()
                });
                match room {
                    Some(room) => assert!(room >= largest, "{procedure}"),
                    None => assert!(SHORTEST + largest <= limit, "{procedure}"),
                }
                raw.answer(&call, 8, &stale());
            }
        }
    }
}

#[test]
fn rr1_long_17_write_data_may_be_inside_position_zero() {
    // One segment per chunk and two pieces of data: only a copy of the whole fits.
    let mine = Settings {
        private_data: small_sizes(),
        segments: 1,
        identity: millrace_bench::requester::Identity::opaque(77, &[9; 400]).expect("short"),
        ..settings()
    };
    let mut raw = Raw::open(mine, Peer::default(), 8);
    let name = [b'x'; 600];
    let text = [raw.memory(3001), raw.memory(1000)];
    let arguments = millrace_wire::nfs3::SymlinkArguments {
        entry: NameInDirectory {
            directory: handle(),
            name: &name,
        },
        attributes: millrace_wire::nfs3::SetAttributes::default(),
        text: millrace_wire::xdr::Bulk::apart(4001),
    };
    raw.submit(&Call::nfs3(1, Procedure::Symlink, arguments, 0).with_data(&text));
    let call = raw.next();
    assert_eq!((call.kind, call.positions()), (1, vec![0]));
    let rpc = raw.fetch_all(&call.read_segments());
    let data = [pattern(3001), pattern(1000), vec![0; 3]].concat();
    assert!(rpc.ends_with(&data), "the data with its pad");
}

#[test]
fn rr1_long_18_a_call_may_be_long_both_ways() {
    let mut raw = Raw::open(small(), Peer::default(), 8);
    let arguments = pattern(5_000);
    let call = unbound(arguments.as_slice(), 6_000);
    raw.submit(&call);
    let call = raw.next();
    assert_eq!((call.kind, call.reads.len()), (1, 1));
    assert!(raw.fetch_all(&call.read_segments()).ends_with(&arguments));
    let rpc = success(call.xid, &pattern(5_900).as_slice());
    let reply = raw.place_all(&call.reply.clone().expect("offered"), &rpc);
    raw.send(&message(call.xid, 8, &[], Some(&reply), None));
    assert_eq!(raw.done[0].result.clone().expect("a reply").0, rpc);
}

#[test]
fn rr1_long_22_another_xid_in_the_reply_chunk_makes_a_bad_reply() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.submit(&readdir(32_768));
    let call = raw.next();
    let rpc = success(call.xid + 1, &());
    let reply = raw.place_all(&call.reply.clone().expect("offered"), &rpc);
    raw.send(&message(call.xid, 8, &[], Some(&reply), None));
    assert_eq!(raw.done[0].result, Err(CallError::BadReply));
}

#[test]
fn a_long_reply_that_was_not_offered_or_is_too_long_is_bad() {
    for (asked, length) in [(0, 100), (32_768, 100_000), (32_768, 0)] {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        raw.submit(&readdir(asked));
        let call = raw.next();
        let mut reply = call.reply.clone().unwrap_or_else(|| {
            vec![Segment {
                handle: 1,
                length: 0,
                offset: 0,
            }]
        });
        reply[0].length = length;
        raw.send(&message(call.xid, 8, &[], Some(&reply), None));
        assert_eq!(
            raw.done[0].result,
            Err(CallError::BadReply),
            "{asked} {length}"
        );
    }
}

#[test]
fn rr1_long_24_forms_are_tried_in_order() {
    let limits = CallLimits {
        shortest: SHORTEST,
        send: 1024,
        receive: 1024,
        segments: 16,
        reply_segments: 1,
        group: SLICES_MAX,
        chunk_above: usize::MAX,
        long_calls: false,
        whole: false,
        offer_results: true,
        read_chunks: true,
    };
    let form = |message, length| {
        let mut shape = Shape {
            message,
            largest_reply: 100,
            ..Shape::default()
        };
        if length > 0 {
            shape.items.push(Extent { length, pieces: 1 });
        }
        plan(&shape, &limits).map(|plan| plan.form)
    };
    // Without data: all inline up to the limit, then long.
    assert_eq!(form(1024 - SHORTEST, 0), Some(Form::Inline));
    assert_eq!(form(1025 - SHORTEST, 0), Some(Form::Long));
    // With data: inline with its pad, then in a chunk, then long.
    assert_eq!(form(1024 - SHORTEST - 96, 96), Some(Form::Inline));
    assert_eq!(form(1024 - SHORTEST - 96, 97), Some(Form::Chunked));
    assert_eq!(form(1024 - SHORTEST - 24, 97), Some(Form::Chunked));
    assert_eq!(form(1024 - SHORTEST - 23, 97), Some(Form::Long));
}

#[test]
fn rr1_long_24_the_forms_of_reads_and_writes_around_the_thresholds() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let mut last = None;
    for length in 3600..4096 {
        let data = [raw.memory(length)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        assert!(call.bytes.len() <= 4096);
        if call.reads.is_empty() {
            last = Some(length);
            assert_eq!(call.kind, 0);
        }
        raw.answer(&call, 8, &stale());
    }
    // The transport header, 72 of RPC header, 56 of arguments, and data to the limit.
    assert_eq!(last, Some(4096 - SHORTEST - 72 - 56));

    for (count, chunked) in [(3900, false), (4096, true)] {
        let room = [raw.memory(count)];
        let call = Call::nfs3(1, Procedure::Read, read_arguments(count as u32), 0);
        raw.submit(&call.with_sinks(&[&room]));
        let call = raw.next();
        assert_eq!(!call.writes.is_empty(), chunked);
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_long_05_no_message_is_in_two_places() {
    let told = |size| {
        Some(PrivateData {
            remote_invalidation: false,
            send_size: size,
            receive_size: size,
        })
    };
    for private_data in [None, told(2048), told(4096)] {
        for mine in [settings(), chunky(), protected()] {
            let mine = Settings {
                private_data,
                ..mine
            };
            let mut raw = Raw::open(mine, Peer::default(), 8);
            for length in (0..6000).step_by(333) {
                let data = [raw.memory(length)];
                let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
                raw.submit(&call.with_data(&data));
                let name = pattern(length.min(2000));
                let entry = NameInDirectory {
                    directory: handle(),
                    name: &name,
                };
                raw.submit(&Call::nfs3(2, Procedure::Remove, entry, 0));
                for _ in 0..2 {
                    let call = raw.next();
                    let at_zero = call.positions().contains(&0);
                    assert_eq!(at_zero, call.kind == 1);
                    assert_ne!(at_zero, call.rpc.starts_with(&call.xid.to_be_bytes()));
                    raw.answer(&call, 8, &stale());
                }
            }
        }
    }
}
