//! XDR round-up.

use millrace_bench::requester::{Call, Reply, Settings};
use millrace_wire::nfs3::{Procedure, ReadResults};
use millrace_wire::rpcrdma::Segment;

use crate::VERSION;
use crate::chunk::{chunky, pattern, read_arguments, read_ok, write_arguments};
use crate::support::{Peer, Raw, bytes, message, settings, small_sizes, stale, success};

#[test]
fn rr1_pad_01_rr1_pad_04_pads_are_neither_in_the_chunk_nor_inline() {
    let mut raw = Raw::open(chunky(), Peer::default(), 8);
    for length in [1, 2, 3, 5, 6, 7, 4097] {
        let data = [raw.memory(length)];
        let call = Call::nfs3(1, Procedure::Write, write_arguments(length as u32), 0);
        raw.submit(&call.with_data(&data));
        let call = raw.next();
        assert_eq!(call.read_segments()[0].length as usize, length);
        assert!(call.rpc.ends_with(&(length as u32).to_be_bytes()));
        raw.answer(&call, 8, &stale());
    }
}

#[test]
fn rr1_pad_07_pads_of_any_value_are_skipped() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    let memory = raw.memory(8);
    let call = Call::nfs3(1, Procedure::Read, read_arguments(8), 0);
    raw.submit(&call.with_sinks(&[&[memory]]));
    let call = raw.next();
    // No attributes, five bytes, end of file, the data with a pad of ones.
    let mut rpc = success(call.xid, &());
    rpc.extend(bytes(&[0, 0, 5, 1, 5]));
    rpc.extend(b"hello\xff\xff\xff");
    raw.send(&message(call.xid, 8, &[], None, Some(&rpc)));
    let (reply, _) = raw.done[0].result.clone().expect("a reply");
    let reply = Reply {
        message: &reply,
        written: &[],
    };
    let results = reply
        .results::<ReadResults<'_>>()
        .expect("decodes")
        .expect("success");
    assert_eq!(results.data.as_inline(), Some(&b"hello"[..]));
}

#[test]
fn rr1_pad_09_a_returned_length_with_the_pad_is_accepted() {
    for returned in [5, 8] {
        let mine = Settings {
            chunk_above: 0,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let memory = raw.memory(5);
        let call = Call::nfs3(1, Procedure::Read, read_arguments(5), 0);
        raw.submit(&call.with_sinks(&[&[memory]]));
        let call = raw.next();
        raw.place(&call.writes[0][0], b"hello").expect("writable");
        let writes = vec![Segment {
            length: returned,
            ..call.writes[0][0]
        }];
        let rpc = success(call.xid, &read_ok(5));
        raw.send(&message(call.xid, 8, &[writes], None, Some(&rpc)));
        let (reply, written) = raw.done[0].result.clone().expect("a reply");
        let reply = Reply {
            message: &reply,
            written: &written,
        };
        let results = reply.results::<ReadResults<'_>>().expect("decodes");
        assert_eq!(results.expect("success").data.length, 5);
    }
}

#[test]
fn rr1_pad_10_room_for_the_pad_is_offered_if_wanted() {
    for (room_for_pad, offered) in [(false, 4097), (true, 4100)] {
        let mine = Settings {
            room_for_pad,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let memory = raw.memory(4097);
        let call = Call::nfs3(1, Procedure::Read, read_arguments(4097), 0);
        raw.submit(&call.with_sinks(&[&[memory]]));
        let call = raw.next();
        let room: u32 = call.writes[0].iter().map(|segment| segment.length).sum();
        assert_eq!(room, offered);
        // An old server fills all of it.
        let mut data = pattern(4097);
        data.resize(offered as usize, 0);
        let filled = raw.place_all(&call.writes[0], &data);
        let rpc = success(call.xid, &read_ok(4097));
        raw.send(&message(call.xid, 8, &[filled], None, Some(&rpc)));
        let (reply, written) = raw.done[0].result.clone().expect("a reply");
        let reply = Reply {
            message: &reply,
            written: &written,
        };
        assert!(reply.results::<ReadResults<'_>>().expect("decodes").is_ok());
    }
}

#[test]
fn rr1_pad_13_rr1_pad_14_long_calls_contain_their_pads_counted_from_the_xid() {
    // Inline in 4096 bytes, and long in 1024: the same stream.
    let mut streams = Vec::new();
    for private_data in [settings().private_data, small_sizes()] {
        let mine = Settings {
            private_data,
            segments: 1,
            ..settings()
        };
        let mut raw = Raw::open(mine, Peer::default(), 8);
        let name = [b'n'; 901];
        let text = [raw.memory(1001)];
        let arguments = millrace_wire::nfs3::SymlinkArguments {
            entry: millrace_wire::nfs3::NameInDirectory {
                directory: crate::support::handle(),
                name: &name,
            },
            attributes: millrace_wire::nfs3::SetAttributes::default(),
            text: millrace_wire::xdr::Bulk::apart(1001),
        };
        raw.submit(&Call::nfs3(1, Procedure::Symlink, arguments, 0).with_data(&text));
        let call = raw.next();
        streams.push(match call.kind {
            0 => call.rpc.clone(),
            _ => {
                assert_eq!(call.positions(), [0]);
                raw.fetch_all(&call.read_segments())
            }
        });
    }
    assert_eq!(streams[0].len() % 4, 0);
    assert_eq!(streams[0], streams[1]);
}

#[test]
fn rr1_pad_21_padded_replies_are_dropped() {
    let mut raw = Raw::open(settings(), Peer::default(), 8);
    raw.getattr(1);
    let call = raw.next();
    let mut reply = bytes(&[call.xid, VERSION.number(), 8, 2, 0, 0, 0, 0, 0]);
    reply.extend(success(call.xid, &stale()));
    raw.send(&reply);
    assert!(raw.done.is_empty());
    raw.answer(&call, 8, &stale());
    assert_eq!(raw.tokens(), [1]);
}
