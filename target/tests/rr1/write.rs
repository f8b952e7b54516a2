//! The responder and chunks (RFC 5666 sections 3.6 to 3.8): write chunks and their round-up.

use millrace_wire::nfs3::{FileHandle, Procedure};
use millrace_wire::rpcrdma::{CallChunks, Segment, Version};

use crate::support;
use crate::support::message::{
    self, SUCCESS, accepted, check_chunk_error, inline, is_chunk_error, lengths, nfs, parse, plain,
    word,
};
use crate::support::raw::{Memory, Options, Stated};
use crate::support::served::{Nfs, read_results, status};
use crate::support::trace::Trace;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8 + 1).collect()
}

/// The RDMA Writes of a trace: places in `memory` and lengths.
fn writes(trace: &[Trace], memory: &Memory) -> Vec<(u64, usize)> {
    trace
        .iter()
        .filter_map(|trace| match trace {
            Trace::Write(to, length) => {
                assert_eq!(to.key, memory.exposure.key);
                Some((to.offset - memory.exposure.offset, *length))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn rr1_chunk_16_an_offered_chunk_is_used_even_for_one_byte() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"abc");
    let sink = nfs.world.sink(0, 100);
    nfs.world.trace();
    let reply = nfs.read_into(file, 1, &sink, &[100]);
    assert_eq!(writes(&nfs.world.trace(), &sink), [(0, 1)]);
    assert_eq!(lengths(&reply.writes[0]), [1]);
    assert_eq!(sink.bytes()[..2], [b'a', 0xee]);
    let (length, _, rest) = read_results(support::results(&reply.message));
    assert_eq!((length, rest.len()), (1, 0));
}

#[test]
fn rr1_chunk_17_returns_the_same_segments_with_lengths_written() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"0123456789");
    let sink = nfs.world.sink(0, 100);
    let cut = [4, 4, 4, 4];
    let reply = nfs.read_into(file, 16, &sink, &cut);
    let mut offered = sink.cut(&cut);
    assert_eq!(lengths(&reply.writes[0]), [4, 4, 2, 0]);
    for (segment, length) in offered.iter_mut().zip([4, 4, 2, 0]) {
        segment.length = length;
    }
    assert_eq!(reply.writes, [offered]);
    assert_eq!(sink.bytes()[..12], *b"0123456789\xee\xee");
}

#[test]
fn rr1_chunk_18_segments_are_filled_in_order_without_gaps() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"012345678");
    let sink = nfs.world.sink(0, 100);
    // Not in the order of their addresses.
    let segments = [sink.segment(50, 3), sink.segment(10, 5), sink.segment(0, 1)];
    let rpc = nfs.read_message(file, 9);
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    nfs.world.trace();
    let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &rpc)));
    assert_eq!(lengths(&reply.writes[0]), [3, 5, 1]);
    assert_eq!(
        writes(&nfs.world.trace(), &sink),
        [(50, 3), (10, 5), (0, 1)]
    );
    let bytes = sink.bytes();
    assert_eq!(
        (&bytes[50..53], &bytes[10..15], bytes[0]),
        (&b"012"[..], &b"34567"[..], b'8')
    );
}

#[test]
fn rr1_chunk_20_an_unused_chunk_comes_back_with_zero_lengths() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"0123456789");
    let sink = nfs.world.sink(0, 100);
    let stale = FileHandle::new(&[7; 28]).unwrap();
    let segments = [sink.cut(&[40, 20]), sink.cut(&[1, 2, 3])];
    let chunks = CallChunks {
        writes: &[&segments[0], &segments[1]],
        ..CallChunks::default()
    };
    nfs.world.trace();
    let failed = nfs.read_message(stale, 60);
    let other = nfs_getattr(nfs.xid(), file);
    for rpc in [failed, other] {
        let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &rpc)));
        let returned: Vec<_> = reply.writes.iter().map(|chunk| lengths(chunk)).collect();
        assert_eq!(returned, [vec![0, 0], vec![0, 0, 0]]);
        assert_eq!(accepted(&reply.message), SUCCESS);
    }
    // The first chunk takes the result, the second is not used.
    let rpc = nfs.read_message(file, 60);
    let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &rpc)));
    let returned: Vec<_> = reply.writes.iter().map(|chunk| lengths(chunk)).collect();
    assert_eq!(returned, [vec![10, 0], vec![0, 0, 0]]);
    assert_eq!(writes(&nfs.world.trace(), &sink), [(0, 10)]);
}

fn nfs_getattr(xid: u32, object: FileHandle) -> Vec<u8> {
    nfs(xid, Procedure::Getattr, &object)
}

fn readlink(xid: u32, object: FileHandle) -> Vec<u8> {
    nfs(xid, Procedure::Readlink, &object)
}

#[test]
fn rr1_chunk_24_nothing_is_written_past_the_end_of_a_chunk() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &pattern(200));
    let sink = nfs.world.sink(0, 200);
    let reply = nfs.read_raw(file, 200, &sink, &[60, 40]);
    if message::version() == Version::Two {
        // The client is told what it lacks.
        check_chunk_error(&reply, word(&reply, 0));
        assert_eq!(sink.bytes(), [0xee; 200]);
    } else {
        let reply = parse(&reply);
        assert_eq!(lengths(&reply.writes[0]), [60, 40]);
        let (length, eof, _) = read_results(support::results(&reply.message));
        assert_eq!((length, eof), (100, false), "a short READ");
        assert_eq!(sink.bytes()[..100], pattern(100));
    }
    assert_eq!(sink.bytes()[100..], [0xee; 100]);
    // A text cannot be cut short: the call fails.
    let link = nfs.link(b"link", &[b'x'; 150]);
    let rpc = readlink(nfs.xid(), link);
    let chunk = sink.cut(&[100]);
    let chunks = CallChunks {
        writes: &[&chunk],
        ..CallChunks::default()
    };
    let reply = nfs.world.exchange(0, &inline(&chunks, &rpc));
    assert!(is_chunk_error(&reply) || status(support::results(&parse(&reply).message)) != 0);
    assert_eq!(sink.bytes()[100..], [0xee; 100]);
    assert!(nfs.world.is_open(0));
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_26_without_chunks_the_result_is_inline_as_far_as_it_fits() {
    let mut nfs = Nfs::new();
    let content = pattern(10_000);
    let file = nfs.file(b"f", &content);
    for count in [1, 100, 3000, 4000, 10_000, 65_536] {
        let rpc = nfs.read_message(file, count);
        let bytes = nfs.world.exchange(0, &plain(&rpc));
        assert!(bytes.len() <= 4096);
        let reply = parse(&bytes);
        let (length, _, data) = read_results(support::results(&reply.message));
        assert!(length > 0 && length <= count as usize);
        assert!(length >= (count as usize).min(3800));
        assert_eq!(data[..length], content[..length]);
        assert_eq!(data.len(), length.next_multiple_of(4));
    }
    // A text of 4000 bytes has no room in an inline reply.
    let link = nfs.link(b"link", &[b'x'; 1000]);
    let narrow = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let rpc = readlink(nfs.xid(), link);
    let bytes = nfs.world.exchange(narrow, &plain(&rpc));
    assert!(is_chunk_error(&bytes) || status(support::results(&parse(&bytes).message)) != 0);
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_27_writes_are_posted_before_their_send() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &pattern(4000));
    let sink = nfs.world.sink(0, 4000);
    nfs.world.trace();
    nfs.read_into(file, 4000, &sink, &[1000; 4]);
    let trace = nfs.world.trace();
    let sent = trace
        .iter()
        .position(|trace| matches!(trace, Trace::Send { .. }))
        .unwrap();
    let last = trace
        .iter()
        .rposition(|trace| matches!(trace, Trace::Write(..)))
        .unwrap();
    assert!(last < sent);
    assert_eq!(
        writes(&trace, &sink)
            .iter()
            .map(|write| write.1)
            .sum::<usize>(),
        4000
    );
    assert_eq!(sink.bytes(), pattern(4000));
}

#[test]
fn a_write_chunk_without_segments_means_inline() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"0123456789");
    let sink = nfs.world.sink(0, 100);
    let second = sink.cut(&[100]);
    let rpc = nfs.read_message(file, 10);
    for writes_offered in [&[&[][..]][..], &[&[], &second]] {
        let chunks = CallChunks {
            writes: writes_offered,
            ..CallChunks::default()
        };
        let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &rpc)));
        let (length, _, data) = read_results(support::results(&reply.message));
        assert_eq!((length, &data[..10]), (10, &b"0123456789"[..]));
        assert_eq!(reply.writes.len(), writes_offered.len());
        assert!(
            reply
                .writes
                .iter()
                .flatten()
                .all(|segment| segment.length == 0)
        );
    }
    assert_eq!(sink.bytes(), [0xee; 100]);
}

#[test]
fn a_chunk_of_no_room_at_all_has_an_answer() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"0123456789");
    let sink = nfs.world.sink(0, 100);
    let rpc = nfs.read_message(file, 10);
    let segments = sink.cut(&[0, 0]);
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    let reply = nfs.world.exchange(0, &inline(&chunks, &rpc));
    if message::version() == Version::Two {
        return check_chunk_error(&reply, word(&rpc, 0));
    }
    let reply = parse(&reply);
    assert_eq!(lengths(&reply.writes[0]), [0, 0]);
    assert_ne!(status(support::results(&reply.message)), 0);
}

#[test]
fn a_reply_header_beyond_the_limit_is_refused_before_the_call_is_executed() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"0123456789");
    let narrow = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let reply = nfs.world.sink(narrow, 4096);
    let sink = nfs.world.sink(narrow, 4096);
    let rpc = nfs.read_message(file, 10);
    for (count, fits) in [(40, true), (60, true), (62, false), (64, false)] {
        let (writes, long) = (sink.cut(&vec![1; count]), [reply.whole()]);
        let chunks = CallChunks {
            writes: &[&writes],
            reply: Some(&long),
            ..CallChunks::default()
        };
        // The fabric would end the connection if the reply were too long for the receive.
        let answer = nfs.world.exchange(narrow, &inline(&chunks, &rpc));
        assert_eq!(is_chunk_error(&answer), !fits, "{count}");
        assert!(answer.len() <= 1024);
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_sec_12_invalidation_only_where_the_client_agreed_and_one_key_is_used() {
    for agreed in [false, true] {
        let mut nfs = Nfs::new();
        let file = nfs.file(b"f", b"0123456789");
        let client = nfs.world.connect_with(Stated {
            invalidation: agreed,
            ..Stated::default()
        });
        let (sink, pad) = (nfs.world.sink(client, 100), nfs.world.sink(client, 4));
        let read = |nfs: &mut Nfs, segments: &[Segment], handle| {
            let rpc = nfs.read_message(handle, 10);
            let chunks = CallChunks {
                writes: &[segments],
                ..CallChunks::default()
            };
            nfs.world.exchange(client, &inline(&chunks, &rpc))
        };
        // Linux keeps the key of its pad segment for the life of the connection.
        read(&mut nfs, &[sink.segment(0, 10), pad.whole()], file);
        assert_eq!(nfs.world.clients[client].invalidated, []);
        // An error is a plain Send.
        let mut wrapping = sink.whole();
        wrapping.offset = u64::MAX;
        assert!(is_chunk_error(&read(&mut nfs, &[wrapping], file)));
        assert_eq!(nfs.world.clients[client].invalidated, []);
        read(&mut nfs, &sink.cut(&[4, 6]), file);
        // In version two the call says which.
        let agreed = agreed && message::version() == Version::One;
        let expected: &[_] = if agreed { &[sink.exposure.key] } else { &[] };
        assert_eq!(nfs.world.clients[client].invalidated, expected);
        // Nor is there anything to invalidate without chunks.
        let xid = nfs.xid();
        nfs.world.exchange(client, &plain(&nfs_getattr(xid, file)));
        assert_eq!(nfs.world.clients[client].invalidated, expected);
        nfs.world.check_clean();
    }
}

#[test]
fn rr1_pad_08_rr1_pad_11_rr1_pad_12_no_pad_is_written_or_inline_and_lengths_are_exact() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"01234");
    let sink = nfs.world.sink(0, 16);
    nfs.world.trace();
    for (cut, returned) in [
        (&[16][..], &[5][..]),
        (&[5, 3], &[5, 0]),
        (&[8], &[5]),
        (&[5], &[5]),
        (&[4, 4], &[4, 1]),
    ] {
        let reply = nfs.read_into(file, 5, &sink, cut);
        assert_eq!(lengths(&reply.writes[0]), returned);
        let (length, _, rest) = read_results(support::results(&reply.message));
        // Nor does a pad stand inline.
        assert_eq!((length, rest.len()), (5, 0));
        assert_eq!(sink.bytes()[..6], *b"01234\xee");
        let written = writes(&nfs.world.trace(), &sink);
        assert_eq!(written.iter().map(|write| write.1).sum::<usize>(), 5);
    }
}

#[test]
fn rr1_pad_11_a_segment_for_the_pad_comes_back_unused() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"01234");
    let sink = nfs.world.sink(0, 16);
    let reply = nfs.read_into(file, 5, &sink, &[5, 3]);
    assert_eq!(lengths(&reply.writes[0]), [5, 0]);
    let reply = nfs.read_into(file, 5, &sink, &[5]);
    assert_eq!(lengths(&reply.writes[0]), [5]);
    assert_eq!(sink.bytes()[5..], [0xee; 11]);
}

#[test]
fn rr1_pad_12_no_pad_stands_inline_behind_a_result_in_a_chunk() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"01234");
    let sink = nfs.world.sink(0, 16);
    let reply = nfs.read_into(file, 5, &sink, &[5]);
    // The length word is the last of the message, which stays a multiple of four.
    let (length, _, rest) = read_results(support::results(&reply.message));
    assert_eq!((length, rest.len(), reply.message.len() % 4), (5, 0, 0));
}

#[test]
fn a_read_of_one_mebibyte_goes_to_its_segments() {
    let mut nfs = Nfs::with(Options::default());
    let content = pattern(1 << 20);
    let source = nfs.world.source(0, &content);
    let file = nfs.create(b"f");
    let reply = parse(&nfs.write_from(file, 1 << 20, &source, &[120 << 10; 8]));
    assert_ne!(accepted(&reply.message), SUCCESS, "eight are not enough");
    let mut cut = vec![120 << 10; 8];
    cut.push((1 << 20) - 8 * (120 << 10));
    let reply = parse(&nfs.write_from(file, 1 << 20, &source, &cut));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(word(support::results(&reply.message), 0), 0);
    let sink = nfs.world.sink(0, 1 << 20);
    let reply = nfs.read_into(file, 1 << 20, &sink, &cut);
    assert_eq!(lengths(&reply.writes[0]), cut);
    assert!(sink.bytes() == content);
    nfs.world.check_clean();
}
