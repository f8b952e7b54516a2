//! The responder and version one's headers (RFC 5666 sections 4.1 and 4.2).

use std::time::Duration;

use millrace_reactor::fabric::testing::loopback;
use millrace_wire::nfs3::{FileHandle, NameInDirectory, Procedure};
use millrace_wire::rpcrdma::version1::Kind;
use millrace_wire::rpcrdma::{Body, CallChunks, Header, Rules, Segment};

use crate::support;
use crate::support::message::{
    GARBAGE_ARGUMENTS, PROGRAM, accepted, check_chunk_error, header, inline, is_chunk_error, long,
    null, parse, plain, reads, rpc, word, words,
};
use crate::support::raw::{Memory, Options, Stated, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::Nfs;
use crate::support::trace::Trace;

#[test]
fn rr1_hdr_01_first_words_stand_at_their_places_in_every_message() {
    let mut nfs = Nfs::new();
    let reply = nfs.world.exchange(0, &plain(&null(0xa1a2_a3a4)));
    assert_eq!([0, 1, 3].map(|at| word(&reply, at)), [0xa1a2_a3a4, 1, 0]);
    assert!(word(&reply, 2) >= 1);
    let mut garbage = words(&[7, 9, 16, 0x7777_7777]);
    garbage.extend([0xff; 40]);
    let error = nfs.world.exchange(0, &garbage);
    assert_eq!([0, 1, 3, 4].map(|at| word(&error, at)), [7, 9, 4, 1]);
    nfs.world.check_clean();
}

#[test]
fn rr1_hdr_22_no_record_mark_stands_before_a_message() {
    let mut nfs = Nfs::new();
    let call = plain(&null(0x8000_0028));
    let reply = nfs.world.exchange(0, &call);
    assert_eq!(word(&reply, 0), 0x8000_0028, "byte 0 is the XID");
    // A mark before a message is taken for its XID, and the XID for a version.
    let mark = 0x8000_0000 | call.len() as u32;
    let marked = [words(&[mark]), call].concat();
    let error = nfs.world.exchange(0, &marked);
    let expected = [mark, 0x8000_0028, 4, 1];
    assert_eq!([0, 1, 3, 4].map(|at| word(&error, at)), expected);
    nfs.world.check_clean();
}

#[test]
fn rr1_hdr_02_rr1_hdr_04_xid_and_version_of_every_reply() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[7; 5000]);
    assert_eq!(nfs.content(file).len(), 5000);
    for trace in nfs.world.trace() {
        let Trace::Send { bytes, .. } = trace else {
            continue;
        };
        let parsed = parse(&bytes);
        assert_eq!(word(&parsed.message, 0), parsed.xid);
        assert_eq!((word(&bytes, 1), word(&bytes, 3)), (1, 0));
        // No record mark before or inside (RR1-HDR-22).
        assert_eq!(word(&bytes, 0), parsed.xid);
    }
}

#[test]
fn rr1_hdr_04_replies_and_errors_of_version_one_say_so() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[7; 500]);
    assert_eq!(nfs.content(file).len(), 500);
    nfs.world.exchange(0, &header(5, 9, &CallChunks::default()));
    let sink = nfs.world.sink(0, 500);
    nfs.read_into(file, 500, &sink, &[500]);
    let sent = nfs
        .world
        .trace()
        .into_iter()
        .filter_map(|trace| match trace {
            Trace::Send { bytes, .. } => Some(word(&bytes, 1)),
            _ => None,
        });
    let versions: Vec<u32> = sent.collect();
    assert!(versions.len() >= 5);
    assert!(versions.iter().all(|&version| version == 1), "{versions:?}");
}

#[test]
fn rr1_hdr_03_different_xids_are_refused_with_the_outer_one() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let mut message = header(5, Kind::Message.number(), &CallChunks::default());
    message.extend(rpc(6, PROGRAM, &[]));
    check_chunk_error(&world.exchange(0, &message), 5);
    assert!(script.seen().is_empty());
    assert!(world.is_open(0));
}

#[test]
fn rr1_hdr_03_a_reply_with_different_xids_is_dropped() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let mut message = header(5, Kind::Message.number(), &CallChunks::default());
    message.extend(Script::reply(6, 24));
    world.send(0, &message);
    assert!(world.received(0).is_empty());
    assert!(script.seen().is_empty());
    assert_eq!(world.shared.counters.dropped.get(), 1);
    world.check_clean();
}

/// Headers that are sound, of all kinds, over memory of a requester that can be reached.
fn sound(nfs: &mut Nfs, file: FileHandle, client: usize, number: usize) -> (Vec<u8>, Vec<Memory>) {
    let source = nfs.world.source(client, &[5; 4096]);
    let sink = nfs.world.sink(client, 4096);
    let whole = nfs.world.source(client, &null(0x55));
    let reply = [sink.segment(2048, 2048)];
    let zero = reads(0, &whole.cut(&[whole.exposure.length - 4, 4]));
    let message = match number {
        0 => plain(&null(0x50)),
        1 => {
            let (write, position) = nfs.write_message(file, 8);
            let chunks = CallChunks {
                reads: &reads(position, &source.cut(&[5, 3])),
                ..CallChunks::default()
            };
            inline(&chunks, &write)
        }
        2 => {
            let chunks = CallChunks {
                writes: &[&sink.cut(&[10, 100])],
                reply: Some(&reply),
                ..CallChunks::default()
            };
            inline(&chunks, &nfs.read_message(file, 64))
        }
        _ => {
            let chunks = CallChunks {
                reads: &zero,
                reply: Some(&reply),
                ..CallChunks::default()
            };
            long(0x55, &chunks)
        }
    };
    (message, vec![source, sink, whole])
}

#[test]
fn rr1_hdr_08_every_truncation_has_one_answer_or_is_too_short() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"sound", &[9; 100]);
    for number in 0..4 {
        let (message, _memory) = sound(&mut nfs, file, 0, number);
        for length in (0..message.len()).step_by(nfs.world.stride()) {
            nfs.world.send(0, &message[..length]);
            let answers = nfs.world.received(0);
            assert_eq!(answers.len(), usize::from(length >= 28), "at {length}");
            for answer in answers {
                assert_eq!(answer[..4], message[..4]);
            }
            assert!(nfs.world.is_open(0), "at {length}");
        }
    }
    nfs.world.check_clean();
}

#[test]
fn rr1_hdr_08_every_bit_flip_has_one_answer_or_ends_its_connection_only() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"sound", &[9; 100]);
    for number in 0..4 {
        let mut client = nfs.world.connect();
        let (mut message, mut memory) = sound(&mut nfs, file, client, number);
        let mut ended = 0;
        for bit in (0..8 * message.len()).step_by(nfs.world.stride()) {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            nfs.world.send(client, &flipped);
            let answers = nfs.world.received(client);
            if nfs.world.is_open(client) {
                let expected = usize::from(!is_silent(&flipped));
                assert_eq!(answers.len(), expected, "message {number}, bit {bit}");
                for answer in answers {
                    assert_eq!(answer[..4], flipped[..4]);
                }
            } else {
                // A handle or an offset that is nobody's memory. The requester goes with its queues:
                // thousands of them would not fit into a guest with devices.
                ended += 1;
                memory.clear();
                nfs.world.clients.pop();
                client = nfs.world.connect();
                (message, memory) = sound(&mut nfs, file, client, number);
            }
        }
        assert_eq!(ended > 0, number > 0, "message {number}");
        assert!(nfs.world.is_open(0));
    }
    nfs.world.check_clean();
}

/// RDMA_DONE, RDMA_ERROR and RPC replies have no answer.
fn is_silent(message: &[u8]) -> bool {
    if word(message, 3) == 4 {
        return true;
    }
    let parsed = Header::parse_call(message, &Rules::default());
    match parsed.map(|header| header.body) {
        Ok(Body::Done) => true,
        Ok(Body::Message { message, .. }) => word(message, 1) == 1,
        _ => false,
    }
}

#[test]
fn rr1_hdr_09_bad_lists_are_chunk_errors_and_bad_arguments_garbage() {
    let mut nfs = Nfs::new();
    let mut cut = header(3, 0, &CallChunks::default());
    cut.truncate(16);
    cut.extend(words(&[1, 0, 1, 2]));
    check_chunk_error(&nfs.world.exchange(0, &cut), 3);
    // LOOKUP without a name.
    let rpc = nfs_call(4, Procedure::Lookup, &[0, 0, 0, 8, 1, 2, 3, 4]);
    let reply = parse(&nfs.world.exchange(0, &plain(&rpc)));
    assert_eq!(accepted(&reply.message), GARBAGE_ARGUMENTS);
}

fn nfs_call(xid: u32, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
    rpc(xid, (100_003, 3, procedure.number()), arguments)
}

#[test]
fn rr1_hdr_10_an_error_is_about_its_call_only() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    world.send(0, &plain(&rpc(1, PROGRAM, &[])));
    let mut bad = plain(&rpc(2, PROGRAM, &[]));
    bad[16..20].copy_from_slice(&[0, 0, 0, 2]);
    check_chunk_error(&world.exchange(0, &bad), 2);
    script.release(1);
    world.settle();
    let received = world.received(0);
    assert_eq!(parse(&received[0]).xid, 1);
    world.check_clean();
}

#[test]
fn rr1_hdr_12_a_reply_is_its_lists_and_then_the_message() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let reply = world.exchange(0, &plain(&rpc(0x99, PROGRAM, &[])));
    let mut expected = words(&[0x99, 1, word(&reply, 2), 0, 0, 0, 0]);
    expected.extend(Script::reply(0x99, 24));
    assert_eq!(reply, expected);
}

#[test]
fn rr1_hdr_18_messages_too_short_are_dropped_by_type() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    for kind in 0..6 {
        for length in 0..=40 {
            let mut message = words(&[1, 1, 16, kind, 0, 0, 0, 0, 0, 0]);
            message.truncate(length);
            world.send(0, &message);
            let answers = world.received(0);
            let silent = length < 28 || kind == 3 || kind == 4;
            assert_eq!(answers.len(), usize::from(!silent), "{kind} of {length}");
            assert!(answers.iter().all(|answer| is_chunk_error(answer)));
        }
    }
    let connection = world.connections()[0].clone();
    assert_eq!(connection.credits().2, 0, "no call is in service");
    assert_eq!(
        parse(&world.exchange(0, &plain(&rpc(8, PROGRAM, &[])))).xid,
        8
    );
    world.check_clean();
}

#[test]
fn rr1_hdr_21_header_and_message_leave_in_one_send_within_the_limit() {
    for inline_limit in [1024, 4096] {
        let script = Script::default();
        let mut world = World::new(script.clone(), Options::default());
        world.connect_with(Stated {
            inline: Some(inline_limit),
            ..Stated::default()
        });
        world.trace();
        for around in -8_i64..=8 {
            let length = (inline_limit as i64 - 28 + around) as usize;
            script.plan(CallScript {
                length,
                ..CallScript::default()
            });
            let reply = world.exchange(0, &plain(&rpc(1, PROGRAM, &[])));
            assert_eq!(is_chunk_error(&reply), around > 0, "{around}");
            let sends = world.trace();
            let sends: Vec<_> = sends
                .iter()
                .filter(|trace| matches!(trace, Trace::Send { .. }))
                .collect();
            assert_eq!(sends.len(), 1);
            assert!(reply.len() <= inline_limit);
        }
    }
}

#[test]
fn rr1_hdr_25_a_call_repeated_on_a_new_connection_is_not_executed_twice() {
    let network = loopback();
    let mut nfs = Nfs::new();
    nfs.create(b"gone");
    let entry = NameInDirectory {
        directory: nfs.root,
        name: b"gone",
    };
    let xid = nfs.xid();
    let remove = plain(&support::message::nfs(xid, Procedure::Remove, &entry));
    // Executed, but the reply finds nobody.
    nfs.world.post(0, &remove);
    network.set_latency(Duration::from_millis(1));
    nfs.world.settle();
    nfs.world.pass(Duration::from_millis(1));
    assert!(nfs.world.received(0).is_empty());
    nfs.world.abort(0);
    network.set_latency(Duration::ZERO);
    nfs.world.pass(Duration::from_millis(1));
    let again = nfs.world.connect();
    let reply = parse(&nfs.world.exchange(again, &remove));
    assert_eq!(support::served::status(support::results(&reply.message)), 0);
    // Another call finds that the file is gone.
    let xid = nfs.xid();
    let other = plain(&support::message::nfs(xid, Procedure::Remove, &entry));
    let reply = parse(&nfs.world.exchange(again, &other));
    assert_eq!(support::served::status(support::results(&reply.message)), 2);
    nfs.world.check_clean();
}

#[test]
fn rr1_hdr_26_errors_of_rpc_are_ordinary_replies() {
    let mut nfs = Nfs::new();
    // PROG_UNAVAIL for the programs that Linux probes, PROG_MISMATCH, PROC_UNAVAIL.
    for (program, status) in [
        ((100_227, 3, 0), 1),
        ((400_122, 1, 0), 1),
        ((100_021, 4, 0), 1),
        ((100_003, 2, 0), 2),
        ((100_003, 3, 22), 3),
    ] {
        let reply = nfs.world.exchange(0, &plain(&rpc(7, program, &[])));
        assert_eq!(accepted(&parse(&reply).message), status);
    }
    let mut mismatch = plain(&null(7));
    mismatch[28 + 11] = 3;
    let denied = parse(&nfs.world.exchange(0, &mismatch));
    assert_eq!([1, 2, 3].map(|at| word(&denied.message, at)), [1, 1, 0]);
}

#[test]
fn rr1_hdr_29_long_replies_need_a_reply_chunk() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    for length in [100, 4068, 4072, 10_000] {
        script.plan(CallScript {
            length,
            ..CallScript::default()
        });
        let reply = world.exchange(0, &plain(&rpc(7, PROGRAM, &[])));
        assert_ne!(word(&reply, 3), Kind::NoMessage.number());
        assert_eq!(is_chunk_error(&reply), length > 4068);
    }
}

#[test]
fn rr1_hdr_30_a_call_that_broke_a_connection_is_refused_on_the_next() {
    let nowhere = [Segment {
        handle: 0x1234_5678,
        length: 64,
        offset: 0,
    }];
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[3; 4000]);
    let (write, position) = nfs.write_message(file, 64);
    let read = nfs.read_message(file, 64);
    let entries = reads(position, &nowhere);
    let source = nfs.world.source(0, &[1; 32]);
    let mixed = reads(position, &[nowhere[0], source.segment(0, 32)]);
    let mut mixed = mixed;
    mixed[0].segment.length = 32;
    let zero = reads(0, &nowhere);
    let calls = [
        // A read chunk, of one segment or more, a long call, a write chunk, a Reply chunk.
        inline(
            &CallChunks {
                reads: &entries,
                ..CallChunks::default()
            },
            &write,
        ),
        long(
            0x77,
            &CallChunks {
                reads: &zero,
                ..CallChunks::default()
            },
        ),
        inline(
            &CallChunks {
                writes: &[&nowhere],
                ..CallChunks::default()
            },
            &read,
        ),
        {
            let (write, position) = nfs.write_message(file, 64);
            mixed.iter_mut().for_each(|entry| {
                entry.position = u32::try_from(position).unwrap();
            });
            inline(
                &CallChunks {
                    reads: &mixed,
                    ..CallChunks::default()
                },
                &write,
            )
        },
    ];
    for (number, call) in calls.iter().enumerate() {
        let client = nfs.world.connect();
        nfs.world.send(client, call);
        assert!(!nfs.world.is_open(client), "call {number}");
        let client = nfs.world.connect();
        let answer = nfs.world.exchange(client, call);
        check_chunk_error(&answer, word(call, 0));
        assert!(nfs.world.is_open(client), "call {number}");
    }
    assert!(nfs.world.is_open(0), "another connection goes on");
    assert_eq!(nfs.content(file), [3; 4000]);
    nfs.world.check_clean();
}

#[test]
fn an_rpc_reply_or_other_direction_is_not_executed() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let mut reply = plain(&rpc(3, PROGRAM, &[]));
    reply[28 + 7] = 1;
    let mut nfs = Nfs::new();
    nfs.world.send(0, &reply);
    assert!(nfs.world.received(0).is_empty());
    reply[28 + 7] = 2;
    check_chunk_error(&nfs.world.exchange(0, &reply), 3);
    drop(script.seen());
    world.check_clean();
    nfs.world.check_clean();
}

#[test]
fn rr1_sec_11_nothing_is_exposed_and_rr1_sec_12_no_key_is_invalidated_by_default() {
    let mut nfs = Nfs::new();
    let file = nfs.file(b"f", &[3; 4000]);
    let sink = nfs.world.sink(0, 4000);
    nfs.read_into(file, 4000, &sink, &[4000]);
    for trace in nfs.world.trace() {
        assert_ne!(trace, Trace::Expose);
        assert!(!matches!(
            trace,
            Trace::Send {
                invalidate: Some(_),
                ..
            }
        ));
    }
    assert!(nfs.world.clients[0].invalidated.is_empty());
}
