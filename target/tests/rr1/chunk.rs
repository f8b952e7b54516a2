//! The responder and chunks (RFC 5666 sections 3.4 to 3.8): read chunks.

use std::time::Duration;

use millrace_reactor::fabric::testing::loopback;
use millrace_wire::nfs3::{FileHandle, LookupResults, NameInDirectory, Procedure};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment, Segment};
use millrace_wire::xdr::{Bulk, from_bytes};

use crate::support;
use crate::support::message::{
    GARBAGE_ARGUMENTS, PROGRAM, SUCCESS, accepted, check_chunk_error, inline, is_chunk_error, long,
    nfs, null, parse, plain, reads, rpc, word,
};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script};
use crate::support::served::{Nfs, status, write};
use crate::support::trace::Trace;

fn with_reads(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8 + 1).collect()
}

#[test]
fn rr1_chunk_08_entries_of_one_position_are_joined_in_order() {
    let mut nfs = Nfs::new();
    let data = pattern(4096);
    let source = nfs.world.source(0, &data);
    for count in [1, 2, 16, 64] {
        let file = nfs.create(format!("file{count}").as_bytes());
        // Odd lengths, the rest in the last.
        let mut cut = vec![13; count - 1];
        cut.push(4096 - 13 * (count as u32 - 1));
        let reply = parse(&nfs.write_from(file, 4096, &source, &cut));
        assert_eq!(accepted(&reply.message), SUCCESS);
        assert_eq!(nfs.content(file), data, "{count} entries");
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_11_length_word_and_chunk_must_agree() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let source = nfs.world.source(0, &pattern(6000));
    let mut refuse = |told: u32, lengths: [u32; 6]| {
        for length in lengths {
            let reply = parse(&nfs.write_from(file, told, &source, &[length]));
            assert_eq!(accepted(&reply.message), GARBAGE_ARGUMENTS, "{length}");
            assert_eq!(nfs.content(file), b"before");
        }
        let trace = nfs.world.trace();
        trace.iter().any(|step| matches!(step, Trace::Read(..)))
    };
    assert!(!refuse(5000, [4996, 5004, 4999, 5001, 0, 6000]), "no read");
    // Little data may be fetched before the call is looked at.
    refuse(100, [96, 104, 99, 101, 0, 200]);
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_12_rr1_chunk_30_chunks_at_several_positions_in_any_order() {
    let script = Script::default();
    let mut world = World::new(script.clone(), Options::default());
    world.connect();
    let data = pattern(64);
    let source = world.source(0, &data);
    let whole = rpc(1, PROGRAM, &pattern(120));
    // Two items of 8 and 5 bytes are taken out of the whole stream.
    let at = whole.len() - 100;
    let reduced = [&whole[..at], &whole[at + 8..at + 20], &whole[at + 28..]].concat();
    let first = reads(at, &[source.segment(0, 3), source.segment(3, 5)]);
    let second = reads(at + 20, &[source.segment(30, 5)]);
    for entries in [
        [&first[..], &second].concat(),
        [&second[..], &first].concat(),
    ] {
        let reply = world.exchange(0, &inline(&with_reads(&entries), &reduced));
        assert!(!is_chunk_error(&reply));
        let seen = script.seen().remove(0).message;
        assert_eq!(seen[..at], whole[..at]);
        assert_eq!(seen[at..at + 8], data[..8]);
        assert_eq!(seen[at + 8..at + 20], whole[at + 8..at + 20]);
        assert_eq!(seen[at + 20..at + 25], data[30..35]);
        assert_eq!(seen[at + 25..at + 28], [0; 3], "the round-up is there");
        assert_eq!(seen[at + 28..], whole[at + 28..]);
    }
    world.check_clean();
}

#[test]
fn rr1_chunk_13_rr1_chunk_14_data_is_used_and_answered_only_after_the_read() {
    let network = loopback();
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let source = nfs.world.source(0, &pattern(1000));
    let (rpc, position) = nfs.write_message(file, 1000);
    let entries = reads(position, &source.cut(&[500, 500]));
    nfs.world.trace();
    network.set_latency(Duration::from_millis(1));
    nfs.world.post(0, &inline(&with_reads(&entries), &rpc));
    nfs.world.settle();
    nfs.world.pass(Duration::from_millis(1));
    let trace = nfs.world.trace();
    assert!(matches!(
        trace[..],
        [Trace::Received, Trace::Read(..), Trace::Read(..)]
    ));
    // The requests arrive, the answers are under way.
    nfs.world.pass(Duration::from_micros(1500));
    assert_eq!(nfs.world.trace(), []);
    assert_eq!(nfs.world.calls(), 1);
    nfs.world.pass(Duration::from_millis(1));
    let trace = nfs.world.trace();
    assert_eq!(trace[0], Trace::Completed(true));
    assert!(matches!(
        trace[1..],
        [Trace::PostReceive, Trace::Send { .. }]
    ));
    network.set_latency(Duration::ZERO);
    nfs.world.pass(Duration::from_millis(1));
    assert_eq!(nfs.world.received(0).len(), 1);
    assert_eq!(nfs.content(file), pattern(1000));
}

#[test]
fn rr1_chunk_14_errors_too_come_after_all_reads() {
    let mut nfs = Nfs::new();
    let source = nfs.world.source(0, &pattern(1000));
    // A long call with the wrong XID, and chunks of which the second lies inside the first.
    let call = null(1);
    let wrong = nfs.world.source(0, &call);
    let zero = reads(0, &[wrong.whole()]);
    let inside = [
        reads(20, &[source.segment(0, 100)]),
        reads(40, &[source.segment(0, 8)]),
    ];
    for message in [
        long(2, &with_reads(&zero)),
        inline(&with_reads(&inside.concat()), &nfs_lookup(3)),
    ] {
        nfs.world.trace();
        assert!(is_chunk_error(&nfs.world.exchange(0, &message)));
        let trace = nfs.world.trace();
        let place = |wanted: fn(&Trace) -> bool| trace.iter().rposition(wanted);
        let sent = place(|trace| matches!(trace, Trace::Send { .. })).unwrap();
        assert!(place(|trace| matches!(trace, Trace::Read(..))) < Some(sent));
        assert!(place(|trace| matches!(trace, Trace::Completed(true))) < Some(sent));
    }
}

fn nfs_lookup(xid: u32) -> Vec<u8> {
    rpc(xid, (100_003, 3, 3), &pattern(60))
}

#[test]
fn rr1_chunk_41_a_program_without_a_binding_has_long_messages_only() {
    let mut nfs = Nfs::new();
    let call = rpc(1, PROGRAM, &pattern(100_000));
    let source = nfs.world.source(0, &call);
    let entries = reads(0, &[source.whole()]);
    let reply = nfs.world.exchange(0, &long(1, &with_reads(&entries)));
    assert_eq!(accepted(&parse(&reply).message), 1, "PROG_UNAVAIL");
    // A write chunk is for nothing that such a program could answer.
    let sink = nfs.world.sink(0, 64);
    let chunk = [sink.whole()];
    let chunks = CallChunks {
        writes: &[&chunk],
        ..CallChunks::default()
    };
    let reply = parse(
        &nfs.world
            .exchange(0, &inline(&chunks, &rpc(2, PROGRAM, &[]))),
    );
    assert_eq!(accepted(&reply.message), 1, "PROG_UNAVAIL");
    let lengths: Vec<u32> = reply.writes[0].iter().map(|s| s.length).collect();
    assert_eq!(lengths, [0]);
    assert_eq!(sink.bytes(), [0xee; 64]);
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_28_positions_are_multiples_of_four() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let source = nfs.world.source(0, &pattern(100));
    let (rpc, position) = nfs.write_message(file, 100);
    for off in [1, 2, 3] {
        let entries = reads(position + off, &[source.whole()]);
        let answer = nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc));
        check_chunk_error(&answer, word(&rpc, 0));
    }
}

#[test]
fn rr1_chunk_29_positions_never_reached_execute_nothing() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let source = nfs.world.source(0, &pattern(100));
    let (rpc, position) = nfs.write_message(file, 100);
    let data = reads(position, &[source.whole()]);
    let at = |position: usize| reads(position, &[source.segment(0, 8)]);
    // Before the data, inside it and behind the end, each alone or beside the data.
    let behind = position + 100;
    for other in [position - 4, 4, position + 4, behind + 4, 1 << 20, behind] {
        for entries in [at(other), [data.clone(), at(other)].concat()] {
            let answer = nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc));
            if !is_chunk_error(&answer) {
                let parsed = parse(&answer);
                let refused = word(&parsed.message, 2) == 1 // denied: the chunk is in the header
                    || accepted(&parsed.message) != SUCCESS;
                // Behind the data nothing more is decoded: bytes left over are no error.
                assert!(refused || other == behind, "{other}");
            }
            if other != behind {
                assert_eq!(nfs.content(file), b"before", "{other}");
            }
        }
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_31_rr1_chunk_32_other_items_are_put_back_exactly() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"findme", b"x");
    for name in [&b"findme"[..], b"absent"] {
        let source = nfs.world.source(0, name);
        let xid = nfs.xid();
        let directory = nfs.root;
        let whole = nfs_call(xid, Procedure::Lookup, &NameInDirectory { directory, name });
        // The name and its round-up are the last eight bytes.
        let position = whole.len() - 8;
        let entries = reads(position, &source.cut(&[2, 4]));
        let message = inline(&with_reads(&entries), &whole[..position]);
        let reply = parse(&nfs.world.exchange(0, &message));
        assert_eq!(reply.reads, 0);
        let results = from_bytes::<LookupResults>(support::results(&reply.message)).unwrap();
        match results {
            Ok(found) => assert_eq!((name, found.object), (&b"findme"[..], file)),
            Err(failure) => assert_eq!((name, failure.status as u32), (&b"absent"[..], 2)),
        }
    }
    // A handle, which precedes the name.
    let xid = nfs.xid();
    let entry = NameInDirectory {
        directory: nfs.root,
        name: b"findme",
    };
    let whole = nfs_call(xid, Procedure::Lookup, &entry);
    let handle = whole.len() - 12 - nfs.root.as_bytes().len();
    let source = nfs.world.source(0, nfs.root.as_bytes());
    let entries = reads(handle, &[source.whole()]);
    let reduced = [&whole[..handle], &whole[whole.len() - 12..]].concat();
    let reply = parse(
        &nfs.world
            .exchange(0, &inline(&with_reads(&entries), &reduced)),
    );
    assert_eq!(status(support::results(&reply.message)), 0);
    nfs.world.check_clean();
}

fn nfs_call(xid: u32, procedure: Procedure, entry: &NameInDirectory<'_>) -> Vec<u8> {
    nfs(xid, procedure, entry)
}

#[test]
fn rr1_chunk_34_rr1_chunk_42_sixteen_segments_everywhere_and_a_limit() {
    let script = Script::default();
    script.plan(CallScript::of_length(5000));
    let mut world = World::new(script.clone(), Options::default());
    world.connect();
    let call = rpc(4, PROGRAM, &pattern(108));
    let (head, rest) = call.split_at(call.len() - 32);
    let zero = world.source(0, &[head, &rest[16..]].concat());
    let item = world.source(0, &rest[..16]);
    let (sink, reply) = (world.sink(0, 160), world.sink(0, 8000));
    let mut lengths = vec![4; 15];
    lengths.push(zero.exposure.length - 60);
    let entries = [
        reads(0, &zero.cut(&lengths)),
        reads(head.len(), &item.cut(&[1; 16])),
    ]
    .concat();
    let chunks = CallChunks {
        reads: &entries,
        writes: &[&sink.cut(&[10; 16])],
        reply: Some(&reply.cut(&[500; 16])),
    };
    let answer = parse(&world.exchange(0, &long(4, &chunks)));
    assert_eq!(script.seen().remove(0).message, call);
    assert!(!answer.inline);
    assert_eq!(answer.writes[0].len(), 16);
    assert_eq!(reply.bytes()[..5000], Script::reply(4, 5000));

    // The limit counts segments per chunk and distinct positions.
    script.plan(CallScript::default());
    let rules = world.shared.settings.get().rules;
    let plain = rpc(5, PROGRAM, &pattern(200));
    let many = |count: usize| {
        let segments = vec![item.segment(0, 1); count];
        reads(plain.len(), &segments)
    };
    let allowed = inline(&with_reads(&many(rules.segments_per_chunk)), &plain);
    assert!(!is_chunk_error(&world.exchange(0, &allowed)));
    let over = inline(&with_reads(&many(rules.segments_per_chunk + 1)), &plain);
    check_chunk_error(&world.exchange(0, &over), 5);
    let positions = |count: usize| {
        let each = |index| reads(plain.len() - 100 + 8 * index, &[item.segment(0, 4)]);
        (0..count).flat_map(each).collect::<Vec<_>>()
    };
    let allowed = inline(&with_reads(&positions(rules.read_chunks)), &plain);
    assert!(!is_chunk_error(&world.exchange(0, &allowed)));
    let over = inline(&with_reads(&positions(rules.read_chunks + 1)), &plain);
    check_chunk_error(&world.exchange(0, &over), 5);
    world.check_clean();
}

#[test]
fn rr1_chunk_35_empty_segments_are_skipped_and_none_wraps() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let source = nfs.world.source(0, &pattern(100));
    nfs.world.trace();
    let reply = parse(&nfs.write_from(file, 100, &source, &[0, 60, 0, 40, 0]));
    assert_eq!(accepted(&reply.message), SUCCESS);
    let trace = nfs.world.trace();
    let read = |trace: &&Trace| matches!(trace, Trace::Read(..));
    assert_eq!(trace.iter().filter(read).count(), 2);
    assert_eq!(nfs.content(file), pattern(100));
    // A chunk of no bytes at all.
    let reply = parse(&nfs.write_from(file, 0, &source, &[0, 0]));
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(nfs.content(file), pattern(100));
    let wrap = Segment {
        offset: u64::MAX - 7,
        length: 16,
        handle: source.exposure.key.0,
    };
    let (rpc, position) = nfs.write_message(file, 16);
    let entries = reads(position, &[wrap]);
    let chunk = [wrap];
    for chunks in [
        with_reads(&entries),
        CallChunks {
            writes: &[&chunk],
            ..CallChunks::default()
        },
        CallChunks {
            reply: Some(&chunk),
            ..CallChunks::default()
        },
    ] {
        let answer = nfs.world.exchange(0, &inline(&chunks, &rpc));
        check_chunk_error(&answer, word(&rpc, 0));
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_36_great_claims_are_refused_before_memory_is_taken() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let source = nfs.world.source(0, &pattern(100));
    let claim = Segment {
        length: u32::MAX,
        ..source.whole()
    };
    let (rpc, position) = nfs.write_message(file, u32::MAX);
    let in_use = nfs.world.in_use();
    for entries in [
        reads(position, &[claim]),
        reads(position, &[claim; 2]),
        reads(position, &[claim; 64]),
    ] {
        let answer = nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc));
        check_chunk_error(&answer, word(&rpc, 0));
    }
    let zero = reads(0, &[claim]);
    check_chunk_error(&nfs.world.exchange(0, &long(9, &with_reads(&zero))), 9);
    assert!(
        !nfs.world
            .trace()
            .iter()
            .any(|t| matches!(t, Trace::Read(..)))
    );
    assert!(nfs.world.in_use() <= in_use + (32 + 2) * 4096);
    nfs.world.check_clean();
}

#[test]
fn rr1_chunk_38_no_memory_is_registered_per_call() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let source = nfs.world.source(0, &pattern(4000));
    for _ in 0..20 {
        nfs.write_from(file, 4000, &source, &[4000]);
    }
    assert!(!nfs.world.trace().contains(&Trace::Expose));
}

#[test]
fn chunks_without_reads_at_the_client_are_refused_by_an_answer() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let deaf = nfs.world.connect_with(support::raw::Stated {
        ird: 0,
        ..support::raw::Stated::default()
    });
    let source = nfs.world.source(deaf, &pattern(100));
    let (rpc, position) = nfs.write_message(file, 100);
    let entries = reads(position, &[source.whole()]);
    let answer = nfs
        .world
        .exchange(deaf, &inline(&with_reads(&entries), &rpc));
    check_chunk_error(&answer, word(&rpc, 0));
    let zero = reads(0, &[source.whole()]);
    let answer = nfs.world.exchange(deaf, &long(8, &with_reads(&zero)));
    check_chunk_error(&answer, 8);
    assert!(nfs.world.is_open(deaf));
    nfs.world.check_clean();
}

#[test]
fn rr1_sec_05_rr1_sec_17_memory_of_another_connection_ends_its_user_only() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", b"before");
    let thief = nfs.world.connect();
    let source = nfs.world.source(0, &pattern(100));
    let (rpc, position) = nfs.write_message(file, 100);
    let entries = reads(position, &[source.whole()]);
    nfs.world.send(thief, &inline(&with_reads(&entries), &rpc));
    assert!(!nfs.world.is_open(thief));
    assert!(nfs.world.received(thief).is_empty());
    // The victim goes on, with the same memory.
    assert!(nfs.world.is_open(0));
    assert_eq!(nfs.content(file), b"before");
    let reply = parse(&nfs.write_from(file, 100, &source, &[100]));
    assert_eq!(accepted(&reply.message), SUCCESS);
    // A chunk that vanished with other calls in progress.
    let (rpc, position) = nfs.write_message(file, 100);
    let entries = reads(position, &[source.whole()]);
    nfs.world.revoke(0, &source);
    for _ in 0..5 {
        let other = null(nfs.xid());
        nfs.world.post(0, &plain(&other));
    }
    nfs.world.send(0, &inline(&with_reads(&entries), &rpc));
    assert!(!nfs.world.is_open(0));
    assert_eq!(nfs.world.calls(), 0);
    nfs.world.check_clean();
}

/// Reads of a trace, and that none of few bytes crosses a page of the requester's: Linux's software
/// iWARP answers such Reads with wrong bytes.
#[track_caller]
fn good_reads(trace: &[Trace]) -> Vec<(u64, usize)> {
    let reads = trace.iter().filter_map(|trace| match trace {
        Trace::Read(from, bytes) => Some((from.offset, *bytes)),
        _ => None,
    });
    let reads: Vec<_> = reads.collect();
    for (offset, bytes) in &reads {
        let left = 4096 - (offset % 4096) as usize;
        assert!(
            *bytes > 64 || *bytes <= left,
            "{bytes} bytes at {offset:#x}"
        );
    }
    reads
}

/// The RPC message of a WRITE at an offset without its data, and where the data belongs.
fn write_at(nfs: &mut Nfs, file: FileHandle, offset: u64, length: u32) -> (Vec<u8>, usize) {
    let arguments = write(file, offset, Bulk::apart(length));
    let rpc = support::message::nfs(nfs.xid(), Procedure::Write, &arguments);
    let position = rpc.len();
    (rpc, position)
}

#[test]
fn an_unaligned_write_makes_one_read_for_each_segment() {
    // Each Read fills as many slices as it may there.
    let _network = loopback();
    let mut nfs = Nfs::new();
    let data = pattern(300_000);
    let source = nfs.world.source(0, &data);
    for (number, (offset, cut)) in [
        (7, &[65_537_u32][..]),
        (4089, &[65_537]),
        (65_529, &[15]),
        (65_529, &[200_000]),
        (1, &[100_000, 65_537, 1, 40]),
    ]
    .into_iter()
    .enumerate()
    {
        let file = nfs.create(format!("file{number}").as_bytes());
        let length = cut.iter().sum::<u32>();
        let (rpc, position) = write_at(&mut nfs, file, offset, length);
        let entries = reads(position, &source.cut(cut));
        nfs.world.trace();
        let reply = parse(&nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc)));
        assert_eq!(accepted(&reply.message), SUCCESS);
        let lengths: Vec<_> = good_reads(&nfs.world.trace())
            .into_iter()
            .map(|(_, bytes)| bytes as u32)
            .collect();
        if cut.iter().all(|length| *length > 64) {
            assert_eq!(lengths, cut, "at {offset}");
        }
        assert_eq!(lengths.iter().sum::<u32>(), length);
        let content = nfs.content(file);
        assert!(content[..offset as usize].iter().all(|byte| *byte == 0));
        assert!(content[offset as usize..] == data[..length as usize]);
    }
    nfs.world.check_clean();
}

/// The work requests of one Read go into the send queue together, however short that is.
#[test]
fn a_read_into_many_slices_fits_a_short_send_queue() {
    let _network = loopback();
    for send_depth in [2, 3, 4, 5] {
        let mut nfs = Nfs::with(Options {
            send_depth,
            ..Options::default()
        });
        let data = pattern(65_537);
        let source = nfs.world.source(0, &data);
        let file = nfs.create(b"f");
        let (rpc, position) = write_at(&mut nfs, file, 7, 65_537);
        let entries = reads(position, &source.cut(&[30_000, 35_537]));
        nfs.world.trace();
        let reply = parse(&nfs.world.exchange(0, &inline(&with_reads(&entries), &rpc)));
        assert_eq!(accepted(&reply.message), SUCCESS, "{send_depth}");
        let lengths = good_reads(&nfs.world.trace());
        assert!(lengths.len() >= 2, "{lengths:?}");
        assert!(nfs.content(file)[7..] == data);
        nfs.world.check_clean();
    }
}

#[test]
fn no_small_read_crosses_a_page_of_the_requester() {
    let script = Script::default();
    let mut world = World::new(script.clone(), Options::default());
    world.connect();
    let data = pattern(3 * 4096);
    let source = world.source(0, &data);
    let calls = world.source(0, &data);
    // Where the second page of the requester's begins in its memory.
    let second_page = |memory: &support::raw::Memory| {
        let offset = memory.exposure.offset;
        offset.next_multiple_of(4096) - offset + 4096
    };
    let mut parted = 0;
    for place in 0..70 {
        let start = second_page(&source) - place;
        for lengths in [&[60_u32][..], &[64], &[65], &[7, 40, 17]] {
            let count: u32 = lengths.iter().sum();
            let mut at = start;
            let segments: Vec<_> = lengths
                .iter()
                .map(|length| {
                    at += u64::from(*length);
                    source.segment(at - u64::from(*length), *length)
                })
                .collect();
            let bytes = &data[start as usize..][..count as usize];
            // An item that is put back into the stream, and a message that is in a chunk whole.
            let item = rpc(1, PROGRAM, &pattern(16));
            let entries = reads(item.len(), &segments);
            world.trace();
            world.exchange(0, &inline(&with_reads(&entries), &item));
            let seen = script.seen().remove(0).message;
            assert_eq!(&seen[item.len()..][..bytes.len()], bytes);
            let found = good_reads(&world.trace());
            parted += found.len() - lengths.len();
            assert_eq!(found.iter().map(|read| read.1).sum::<usize>(), bytes.len());

            let message = rpc(2, PROGRAM, &pattern(200));
            let (front, tail) = message.split_at(message.len() - count as usize);
            let start = second_page(&calls) - place;
            calls.put(0, front);
            calls.put(start, tail);
            let zero = [
                calls.segment(0, front.len() as u32),
                calls.segment(start, count),
            ];
            world.exchange(0, &long(2, &with_reads(&reads(0, &zero))));
            assert_eq!(script.seen().remove(0).message, message);
            let is_parted = count <= 64 && (1..u64::from(count)).contains(&place);
            let found = good_reads(&world.trace());
            assert_eq!(found.len(), 2 + usize::from(is_parted));
        }
    }
    assert!(parted > 3 * 50, "{parted}");
    world.check_clean();
}
