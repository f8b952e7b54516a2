//! The responder and messages that are too long for a Send (RFC 5666 section 5).

use millrace_wire::nfs3::{LookupResults, NameInDirectory, Procedure};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment, Version};
use millrace_wire::xdr::{Bulk, from_bytes};

use crate::support;
use crate::support::fetch::{done, fetch};
use crate::support::message::{
    self, GARBAGE_ARGUMENTS, PROGRAM, SUCCESS, accepted, check_chunk_error, encoded, inline,
    is_chunk_error, lengths, long, null, parse, plain, reads, rpc, word, words,
};
use crate::support::raw::{Memory, Options, Stated, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::{Nfs, read_results, status, write};
use crate::support::trace::Trace;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 253) as u8 + 1).collect()
}

fn with_reads(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

fn nfs_message(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    rpc(xid, (100_003, 3, procedure.number()), arguments)
}

/// A long call of `rpc` in segments of these lengths, with a Reply chunk if there is one.
fn long_call(source: &Memory, rpc: &[u8], cut: &[u32], reply: Option<&Memory>) -> Vec<u8> {
    let entries = reads(0, &source.cut(cut));
    let reply = reply.map(|memory| [memory.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        reply: reply.as_ref().map(|segments| &segments[..]),
        ..CallChunks::default()
    };
    long(word(rpc, 0), &chunks)
}

#[test]
fn rr1_long_02_rr1_long_03_rr1_long_19_a_call_at_position_zero_in_any_cut() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"found");
    let entry = NameInDirectory {
        directory: nfs.root,
        name: b"found",
    };
    // It would have fitted inline.
    let call = nfs_message(0x42, Procedure::Lookup, &encoded(&entry));
    let source = nfs.world.source(0, &call);
    let length = call.len() as u32;
    for count in [1, 2, 16, 64] {
        // Cut in the middle of words.
        let mut cut = vec![1; count - 1];
        cut.push(length - count as u32 + 1);
        let reply = parse(
            &nfs.world
                .exchange(0, &long_call(&source, &call, &cut, None)),
        );
        let found = from_bytes::<LookupResults>(support::results(&reply.message)).unwrap();
        assert_eq!(found.unwrap().object, file);
    }
    let call = null(0x43);
    let source = nfs.world.source(0, &call);
    let message = long_call(&source, &call, &[source.exposure.length], None);
    let reply = parse(&nfs.world.exchange(0, &message));
    assert_eq!(accepted(&reply.message), SUCCESS);
    nfs.world.check_clean();
}

#[test]
fn rr1_long_03_sixteen_entries_cut_inside_words_are_joined() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let call = rpc(7, PROGRAM, &pattern(300));
    let source = world.source(0, &call);
    for count in [1, 2, 16] {
        let mut cut = vec![13; count - 1];
        cut.push(call.len() as u32 - 13 * (count as u32 - 1));
        world.exchange(0, &long_call(&source, &call, &cut, None));
        assert_eq!(script.seen().remove(0).message, call, "{count} entries");
    }
    world.check_clean();
}

#[test]
fn rr1_long_19_a_call_that_would_fit_inline_may_be_long() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let call = rpc(8, PROGRAM, &[]);
    let source = world.source(0, &call);
    let length = source.exposure.length;
    let reply = parse(&world.exchange(0, &long_call(&source, &call, &[length], None)));
    assert!(reply.inline);
    assert_eq!(script.seen().remove(0).message, call);
    world.check_clean();
}

#[test]
fn rr1_long_04_positions_beside_a_long_call_are_in_its_stream() {
    let mut nfs = Nfs::new();
    let file = nfs.create(b"f");
    let data = pattern(3000);
    let (rpc, position) = nfs.write_message(file, 3000);
    let (source, item) = (nfs.world.source(0, &rpc), nfs.world.source(0, &data));
    let entries = [
        reads(0, &source.cut(&[10, source.exposure.length - 10])),
        reads(position, &item.cut(&[1000, 2000])),
    ]
    .concat();
    let reply = parse(
        &nfs.world
            .exchange(0, &long(word(&rpc, 0), &with_reads(&entries))),
    );
    assert_eq!(accepted(&reply.message), SUCCESS);
    assert_eq!(nfs.content(file), data);
    // An item that is put back.
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let whole = rpc_of(7, &pattern(40));
    let at = whole.len() - 20;
    let reduced = [&whole[..at], &whole[at + 8..]].concat();
    let (source, item) = (
        world.source(0, &reduced),
        world.source(0, &whole[at..at + 8]),
    );
    let entries = [reads(at, &[item.whole()]), reads(0, &[source.whole()])].concat();
    assert!(!is_chunk_error(
        &world.exchange(0, &long(7, &with_reads(&entries)))
    ));
    assert_eq!(script.seen().remove(0).message, whole);
    world.check_clean();
    nfs.world.check_clean();
}

fn rpc_of(xid: u32, arguments: &[u8]) -> Vec<u8> {
    rpc(xid, PROGRAM, arguments)
}

#[test]
fn rr1_long_06_an_inline_call_has_no_position_zero() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let source = world.source(0, &pattern(100));
    let entries = reads(0, &[source.whole()]);
    let message = inline(&with_reads(&entries), &rpc_of(5, &[]));
    check_chunk_error(&world.exchange(0, &message), 5);
    assert!(script.seen().is_empty());
    assert!(!world.trace().iter().any(|t| matches!(t, Trace::Read(..))));
}

#[test]
fn rr1_long_07_rr1_long_11_a_reply_that_fits_is_inline_and_its_chunk_empty() {
    let (mut world, script) = scripted(CallScript::of_length(100), Options::default());
    let sink = world.sink(0, 8000);
    for (length, inline_reply) in [(100, true), (5000, false)] {
        script.plan(CallScript {
            length,
            ..CallScript::default()
        });
        let chunks = CallChunks {
            reply: Some(&sink.cut(&[3000, 5000])),
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &inline(&chunks, &rpc_of(5, &[]))));
        assert_eq!(reply.inline, inline_reply);
        let expected = if inline_reply { [0, 0] } else { [3000, 2000] };
        assert_eq!(lengths(&reply.reply.unwrap()), expected);
    }
    world.check_clean();
}

#[test]
fn rr1_long_08_a_long_reply_is_written_from_its_xid_on() {
    let mut nfs = Nfs::new();
    for number in 0..200 {
        nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
    }
    let sink = nfs.world.sink(0, 32_768);
    let arguments = [encoded(&nfs.root), words(&[0, 0, 0, 0, 30_000])].concat();
    let call = nfs_message(0x99, Procedure::Readdir, &arguments);
    let chunks = CallChunks {
        reply: Some(&sink.cut(&[10_000, 10_000, 12_768])),
        ..CallChunks::default()
    };
    nfs.world.trace();
    let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &call)));
    assert!(!reply.inline);
    let written = lengths(&reply.reply.unwrap());
    let total: u32 = written.iter().sum();
    assert_eq!(written[0], 10_000);
    assert!(total > 10_000);
    let message = &sink.bytes()[..total as usize];
    assert_eq!(word(message, 0), 0x99);
    assert_eq!(status(support::results(message)), 0);
    assert!(message.windows(3).any(|window| window == b"199"));
    let traced: usize = nfs
        .world
        .trace()
        .iter()
        .map(|trace| match trace {
            Trace::Write(_, length) => *length,
            _ => 0,
        })
        .sum();
    assert_eq!(traced, total as usize);
    assert!(
        sink.bytes()[total as usize..]
            .iter()
            .all(|&byte| byte == 0xee)
    );
    nfs.world.check_clean();
}

#[test]
fn rr1_long_09_bulk_goes_to_the_write_list_first() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &pattern(4000));
    let (sink, whole) = (nfs.world.sink(0, 4000), nfs.world.sink(0, 8000));
    let rpc = nfs.read_message(file, 4000);
    let (write, reply_chunk) = (sink.cut(&[4000]), [whole.whole()]);
    let chunks = CallChunks {
        writes: &[&write],
        reply: Some(&reply_chunk),
        ..CallChunks::default()
    };
    // The reduced rest fits.
    let reply = parse(&nfs.world.exchange(0, &inline(&chunks, &rpc)));
    assert!(reply.inline);
    assert_eq!(lengths(&reply.writes[0]), [4000]);
    assert_eq!(lengths(&reply.reply.unwrap()), [0]);
    // And where it does not, both are used.
    let narrow = nfs.world.connect_with(Stated {
        inline: Some(1024),
        ..Stated::default()
    });
    let (sink, whole) = (nfs.world.sink(narrow, 4000), nfs.world.sink(narrow, 8000));
    let (write, filler) = (sink.cut(&[4000]), sink.cut(&[0; 52]));
    let chunks = CallChunks {
        writes: &[&write, &filler],
        reply: Some(&[whole.whole()]),
        ..CallChunks::default()
    };
    let reply = parse(&nfs.world.exchange(narrow, &inline(&chunks, &rpc)));
    assert!(!reply.inline);
    assert_eq!(lengths(&reply.writes[0]), [4000]);
    assert_eq!(sink.bytes(), pattern(4000));
    let written = lengths(&reply.reply.unwrap())[0] as usize;
    let message = whole.bytes()[..written].to_vec();
    let (length, _, rest) = read_results(support::results(&message));
    assert_eq!((length, rest.len()), (4000, 0));
    nfs.world.check_clean();
}

#[test]
fn rr1_long_13_no_reply_exceeds_what_the_client_receives() {
    // The fabric ends a connection whose receive is too short.
    for stated in [None, Some(1024), Some(2048), Some(4096)] {
        let (mut world, script) = scripted(CallScript::default(), Options::default());
        let client = world.connect_with(Stated {
            inline: stated,
            ..Stated::default()
        });
        let limit = stated.unwrap_or(message::version().min_inline());
        let sink = world.sink(client, 8192);
        for around in (-24..=24).step_by(4) {
            for offered in [false, true] {
                let reply_chunk = [sink.whole()];
                let header = message::header_length() as i64 + if offered { 20 } else { 0 };
                let length = usize::try_from(limit as i64 - header + around).unwrap();
                script.plan(CallScript {
                    length,
                    ..CallScript::default()
                });
                let chunks = CallChunks {
                    reply: offered.then_some(&reply_chunk[..]),
                    ..CallChunks::default()
                };
                let answer = world.exchange(client, &inline(&chunks, &rpc_of(3, &[])));
                assert!(answer.len() <= limit);
                if around <= 0 {
                    assert_eq!(answer.len() as i64, limit as i64 + around);
                    assert_eq!(parse(&answer).message, Script::reply(3, length));
                } else if offered {
                    assert!(!parse(&answer).inline);
                    assert_eq!(sink.bytes()[..length], Script::reply(3, length));
                } else {
                    check_chunk_error(&answer, 3);
                }
            }
        }
        world.check_clean();
    }
}

#[test]
fn rr1_long_14_a_reply_chunk_that_will_not_do_is_a_read_chunk_where_switched_on() {
    if message::version() == Version::Two {
        return; // It has no RDMA_DONE, so there is nothing to switch on.
    }
    let script = Script::default();
    script.plan(CallScript::of_length(5000));
    let mut world = World::new(script, Options::classic());
    world.connect();
    let sink = world.sink(0, 8000);
    for cut in [None, Some(&[][..]), Some(&[4999]), Some(&[2000, 2000])] {
        let segments = cut.map(|cut| sink.cut(cut));
        let chunks = CallChunks {
            reply: segments.as_deref(),
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &inline(&chunks, &rpc_of(3, &[]))));
        assert!(!reply.inline);
        // It comes back unused.
        let unused = cut.map(|cut| vec![0; cut.len()]);
        assert_eq!(reply.reply.as_deref().map(lengths), unused);
        assert_eq!(
            fetch(&mut world, 0, &reply).unwrap(),
            Script::reply(3, 5000)
        );
        world.send(0, &done(3));
    }
    assert_eq!(sink.bytes(), [0xee; 8000]);
    // One that will do is used.
    let chunks = CallChunks {
        reply: Some(&sink.cut(&[5000])),
        ..CallChunks::default()
    };
    let reply = parse(&world.exchange(0, &inline(&chunks, &rpc_of(3, &[]))));
    assert_eq!(
        (reply.reads, lengths(&reply.reply.unwrap())),
        (0, vec![5000])
    );
    world.check_clean();
}

#[test]
fn rr1_long_14_to_16_a_reply_chunk_too_small_or_of_nothing() {
    let (mut world, script) = scripted(CallScript::of_length(5000), Options::default());
    let sink = world.sink(0, 8000);
    for (cut, fits) in [
        (&[][..], false),
        (&[4999], false),
        (&[0, 0], false),
        (&[5000], true),
        (&[2500, 2000, 500, 3000], true),
        (&[5000, 1], true),
    ] {
        let segments = sink.cut(cut);
        let chunks = CallChunks {
            reply: Some(&segments),
            ..CallChunks::default()
        };
        let answer = world.exchange(0, &inline(&chunks, &rpc_of(3, &[])));
        if !fits {
            check_chunk_error(&answer, 3);
            continue;
        }
        let mut left = 5000;
        let expected: Vec<u32> = cut
            .iter()
            .map(|&length| {
                let part = length.min(left);
                left -= part;
                part
            })
            .collect();
        assert_eq!(lengths(&parse(&answer).reply.unwrap()), expected);
        assert_eq!(sink.bytes()[..5000], Script::reply(3, 5000));
        assert_eq!(sink.bytes()[5000..], [0xee; 3000]);
    }
    // With a short reply the empty chunk comes back as it was.
    script.plan(CallScript::default());
    let chunks = CallChunks {
        reply: Some(&[]),
        ..CallChunks::default()
    };
    let reply = parse(&world.exchange(0, &inline(&chunks, &rpc_of(3, &[]))));
    assert_eq!(reply.reply, Some(Vec::new()));
    world.check_clean();
}

#[test]
fn rr1_long_17_a_write_with_its_data_at_position_zero() {
    let mut nfs = Nfs::new();
    // Beyond 64 KiB the data is fetched straight to where it shall live.
    for length in [5, 4000, 60_000, 70_001, 1_000_000] {
        let file = nfs.create(format!("f{length}").as_bytes());
        let data = pattern(length);
        let arguments = encoded(&write(file, 0, Bulk::inline(&data)));
        let call = nfs_message(nfs.xid(), Procedure::Write, &arguments);
        let source = nfs.world.source(0, &call);
        let total = call.len() as u32;
        let message = long_call(&source, &call, &[101, total - 101], None);
        let reply = parse(&nfs.world.exchange(0, &message));
        assert_eq!(accepted(&reply.message), SUCCESS, "{length}");
        assert_eq!(status(support::results(&reply.message)), 0);
        let sink = nfs.world.sink(0, length);
        nfs.read_into(file, length as u32, &sink, &[length as u32]);
        assert!(sink.bytes() == data, "{length}");
    }
    // What is too long for anything else, or has a wrong length word, is not executed.
    let file = nfs.create(b"untouched");
    let arguments = encoded(&write(file, 0, Bulk::inline(&pattern(70_000))));
    let call = nfs_message(nfs.xid(), Procedure::Write, &arguments);
    let source = nfs.world.source(0, &[&call[..], &[0; 8]].concat());
    for total in [call.len() - 4, call.len() + 8] {
        let message = long_call(&source, &call, &[total as u32], None);
        let reply = parse(&nfs.world.exchange(0, &message));
        assert_eq!(accepted(&reply.message), GARBAGE_ARGUMENTS);
    }
    let lookup = [
        &nfs_message(5, Procedure::Lookup, &[0, 0, 1, 0])[..],
        &pattern(70_000),
    ]
    .concat();
    let source = nfs.world.source(0, &lookup);
    let message = long_call(&source, &lookup, &[source.exposure.length], None);
    let reply = parse(&nfs.world.exchange(0, &message));
    assert_eq!(accepted(&reply.message), GARBAGE_ARGUMENTS);
    assert_eq!(nfs.content(file), b"");
    nfs.world.check_clean();
}

#[test]
fn rr1_long_18_a_call_long_in_both_directions() {
    let (mut world, script) = scripted(CallScript::of_length(6000), Options::default());
    let call = rpc_of(8, &pattern(20_000));
    let (source, sink) = (world.source(0, &call), world.sink(0, 6000));
    let length = call.len() as u32;
    let message = long_call(&source, &call, &[7000, length - 7000], Some(&sink));
    let reply = parse(&world.exchange(0, &message));
    assert!(!reply.inline);
    assert_eq!(sink.bytes(), Script::reply(8, 6000));
    assert_eq!(script.seen().remove(0).message, call);
    world.check_clean();
}

#[test]
fn rr1_long_20_a_call_beyond_the_limit_starts_no_read() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let limit = world.shared.settings.get().rules.read_bytes;
    let source = world.source(0, &pattern(100));
    let mut segment = source.whole();
    segment.length = u32::try_from(limit + 4).unwrap();
    let entries = reads(0, &[segment]);
    check_chunk_error(&world.exchange(0, &long(4, &with_reads(&entries))), 4);
    assert!(!world.trace().iter().any(|t| matches!(t, Trace::Read(..))));
    assert!(world.is_open(0));
}

#[test]
fn rr1_long_21_a_long_call_that_cannot_be_read_is_not_executed() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let other = world.connect();
    let call = rpc_of(8, &pattern(2000));
    let source = world.source(0, &call);
    let message = long_call(&source, &call, &[1000, 1000], None);
    world.revoke(0, &source);
    world.send(0, &message);
    assert!(!world.is_open(0));
    assert!(script.seen().is_empty());
    assert!(!is_chunk_error(
        &world.exchange(other, &plain(&rpc_of(1, &[])))
    ));
    world.check_clean();
}

#[test]
fn rr1_long_22_the_xid_of_a_long_call_is_that_of_its_header() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let call = rpc_of(8, &pattern(2000));
    let source = world.source(0, &call);
    let entries = reads(0, &[source.whole()]);
    check_chunk_error(&world.exchange(0, &long(9, &with_reads(&entries))), 9);
    // Nor is anything shorter than a call taken for one.
    for length in [0, 4, 7] {
        let entries = reads(0, &[source.segment(0, length)]);
        check_chunk_error(&world.exchange(0, &long(8, &with_reads(&entries))), 8);
    }
    assert!(script.seen().is_empty());
    world.check_clean();
}
