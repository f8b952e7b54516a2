//! RPC-over-RDMA version one: segments and chunk lists, row by row.

mod common;

use common::headers::*;
use common::{Sample, Source, encode, hex, pool};
use millrace_wire::rpcrdma::version1::Kind;
use millrace_wire::rpcrdma::*;
use millrace_wire::xdr::{Encode, Encoder, Error};
use proptest::prelude::*;

#[test]
fn rr1_chunk_01_segment_is_handle_length_offset() {
    let segment = Segment {
        handle: 0xa1,
        length: 5,
        offset: 0x0102_0304_0506_0708,
    };
    assert_eq!(encode(&segment), hex("000000a1 00000005 01020304 05060708"));
    let zero = Segment {
        handle: 0xa1,
        length: 5,
        offset: 0,
    };
    assert_eq!(encode(&zero), hex("000000a1 00000005 00000000 00000000"));
}

#[test]
fn rr1_chunk_02_read_list_is_linked() {
    let reads = [read(120, 0xa1, 5, 0x1000), read(120, 0xa2, 6, 0x2000)];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reads: &reads,
            ..Default::default()
        },
    );
    assert_eq!(bytes, message(READS, RPC));
    let list = parse(&bytes).unwrap().lists().reads;
    assert!(list.iter().eq(reads));
    assert_eq!((list.len(), list.total()), (2, 11));
    assert_eq!(list.chunk(120).unwrap().length(), 11);

    for count in [0, 1, 3] {
        let reads: Vec<_> = (0..count).map(|at| read(4 * at, at, at, 0)).collect();
        let chunks = CallChunks {
            reads: &reads,
            ..Default::default()
        };
        let bytes = call(Kind::NoMessage, &chunks);
        assert_eq!(bytes.len(), 28 + 24 * reads.len() + 8);
        let header = Header::parse(&bytes, &Rules::default()).unwrap();
        assert!(header.lists().reads.iter().eq(reads));
    }
}

#[test]
fn rr1_chunk_03_write_list_is_linked_arrays() {
    let segments = [1, 2, 3, 4].map(|handle| Segment {
        handle,
        length: 10,
        offset: 0,
    });
    let writes: [&[Segment]; 2] = [&segments[..1], &segments[1..]];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            writes: &writes,
            ..Default::default()
        },
    );
    let expected = "11223344 00000001 00000020 00000000 00000000
        00000001 00000001 00000001 0000000a 00000000 00000000
        00000001 00000003 00000002 0000000a 00000000 00000000
        00000003 0000000a 00000000 00000000 00000004 0000000a 00000000 00000000
        00000000 00000000";
    assert_eq!(bytes, message(expected, RPC));
    let list = parse(&bytes).unwrap().lists().writes;
    assert_eq!(list.len(), 2);
    for (chunk, segments) in list.iter().zip(writes) {
        assert!(chunk.iter().eq(segments.iter().copied()));
    }
}

#[test]
fn rr1_chunk_04_reply_chunk_has_no_end_word() {
    let writes = [
        Segment {
            handle: 0xb1,
            length: 0x1000,
            offset: 0,
        },
        Segment {
            handle: 0xb2,
            length: 0x1000,
            offset: 0x7000,
        },
    ];
    let reply = [Segment {
        handle: 0xc1,
        length: 0x2000,
        offset: 0x9000,
    }];
    let chunks = CallChunks {
        reads: &[],
        writes: &[&writes],
        reply: Some(&reply),
    };
    let bytes = call(Kind::Message, &chunks);
    assert_eq!(bytes, message(WRITES, RPC));
    let Body::Message { lists, message, .. } = parse(&bytes).unwrap().body else {
        panic!()
    };
    assert_eq!(message, hex(RPC));
    assert!(lists.reply.unwrap().iter().eq(reply));
}

#[test]
fn rr1_chunk_05_order_of_the_lists() {
    let segments = [7, 8].map(|handle| Segment {
        handle,
        length: 1,
        offset: 0,
    });
    let chunks = CallChunks {
        reads: &[read(40, 6, 1, 0)],
        writes: &[&segments[..1]],
        reply: Some(&segments[1..]),
    };
    let handles: Vec<u8> = call(Kind::Message, &chunks)
        .into_iter()
        .skip(16)
        .filter(|byte| (6..9).contains(byte))
        .collect();
    assert_eq!(handles, [6, 7, 8]);
}

#[test]
fn lists_are_empty_only_where_all_three_are() {
    let segments = [Segment {
        handle: 7,
        length: 1,
        offset: 0,
    }];
    let (none, reads) = (CallChunks::default(), [read(40, 6, 1, 0)]);
    let one_each = [
        CallChunks {
            reads: &reads,
            ..none
        },
        CallChunks {
            writes: &[&segments],
            ..none
        },
        CallChunks {
            reply: Some(&segments),
            ..none
        },
    ];
    for chunks in &one_each {
        assert!(
            !parse(&call(Kind::Message, chunks))
                .unwrap()
                .lists()
                .is_empty()
        );
    }
    assert!(
        parse(&call(Kind::Message, &none))
            .unwrap()
            .lists()
            .is_empty()
    );
}

#[test]
fn lists_and_chunks_tell_before_they_are_walked_how_many_they_have() {
    let segments = [7, 8].map(|handle| Segment {
        handle,
        length: 4,
        offset: 0,
    });
    let chunks = CallChunks {
        reads: &[read(40, 6, 1, 0), read(40, 5, 1, 0), read(44, 4, 1, 0)],
        writes: &[&segments, &[]],
        reply: Some(&segments),
    };
    let bytes = call(Kind::Message, &chunks);
    let lists = parse(&bytes).unwrap().lists();
    let mut writes = lists.writes.iter();
    assert_eq!((lists.reads.iter().len(), writes.len()), (3, 2));
    let (filled, empty) = (writes.next().unwrap(), writes.next().unwrap());
    assert_eq!(writes.len(), 0);
    assert!(!filled.is_empty() && empty.is_empty());
    assert_eq!((filled.iter().len(), filled.filled(8).len()), (2, 2));
    assert_eq!((empty.iter().len(), empty.filled(8).len()), (0, 0));
}

#[test]
fn rr1_chunk_08_equal_positions_join_in_list_order() {
    let most = Rules::default().segments_per_chunk as u32;
    for count in [1, 2, 16, most] {
        let reads: Vec<_> = (0..count).map(|at| read(40, at, 3, 0)).collect();
        let bytes = call(
            Kind::Message,
            &CallChunks {
                reads: &reads,
                ..Default::default()
            },
        );
        let chunk = parse(&bytes).unwrap().lists().reads.chunk(40).unwrap();
        assert!(chunk.segments().map(|segment| segment.handle).eq(0..count));
        assert_eq!(chunk.taken().unwrap().length, 3 * count);
    }
}

#[test]
fn rr1_chunk_17_returns_same_segments_with_lengths_written() {
    let segments = [1, 2, 3, 4].map(|handle| Segment {
        handle,
        length: 4,
        offset: 100,
    });
    let unused = [Segment {
        handle: 9,
        length: 50,
        offset: 0,
    }];
    let chunks = CallChunks {
        writes: &[&segments, &unused],
        reply: Some(&unused),
        ..Default::default()
    };
    let bytes = call(Kind::Message, &chunks);
    let lists = parse(&bytes).unwrap().lists();
    let mut reply = ReplyChunks {
        reads: &[],
        call: &lists,
        written: &[10],
        reply_written: 0,
    };
    let encoded = written(|out| encode_one(out, true, &reply));
    assert_eq!(encoded.len(), 16 + lists.reply_length());
    let returned = Header::parse(&encoded, &Rules::default()).unwrap().lists();
    let lengths: Vec<Vec<u32>> = returned
        .writes
        .iter()
        .map(|chunk| chunk.iter().map(|segment| segment.length).collect())
        .collect();
    assert_eq!(lengths, [vec![4, 4, 2, 0], vec![0]]);
    for (back, out) in returned.writes.iter().zip(&lists.writes) {
        assert!(back.iter().zip(&out).all(|(b, o)| b
            == Segment {
                length: b.length,
                ..o
            }));
    }
    assert_eq!(returned.reply.unwrap().total(), 0);

    // All the room there is, and one byte more.
    let mut room = [0; 512];
    reply.written = &[16, 50, 0];
    assert_eq!(reply.encode(&mut Encoder::new(&mut room)), Ok(()));
    reply.written = &[17];
    assert_eq!(
        reply.encode(&mut Encoder::new(&mut room)),
        Err(Error::Value)
    );
    reply.written = &[16, 50, 1];
    assert_eq!(
        reply.encode(&mut Encoder::new(&mut room)),
        Err(Error::Value)
    );
    reply = ReplyChunks {
        written: &[],
        reply_written: 51,
        ..reply
    };
    assert_eq!(
        reply.encode(&mut Encoder::new(&mut room)),
        Err(Error::Value)
    );
    // No room at all.
    let none = Lists::default();
    for (reply_written, outcome) in [(0, Ok(())), (1, Err(Error::Value))] {
        let reply = ReplyChunks {
            call: &none,
            reply_written,
            ..reply
        };
        assert_eq!(reply.encode(&mut Encoder::new(&mut room)), outcome);
    }
}

#[test]
fn rr1_chunk_18_segments_fill_in_order() {
    let segments = [3, 5, 1].map(|length| Segment {
        handle: length,
        length,
        offset: 0,
    });
    let bytes = call(
        Kind::Message,
        &CallChunks {
            writes: &[&segments],
            ..Default::default()
        },
    );
    let chunk = parse(&bytes).unwrap().lists().writes.iter().next().unwrap();
    for (written, lengths) in [
        (0, [0, 0, 0]),
        (2, [2, 0, 0]),
        (4, [3, 1, 0]),
        (9, [3, 5, 1]),
        (99, [3, 5, 1]),
    ] {
        assert!(
            chunk
                .filled(written)
                .map(|segment| segment.length)
                .eq(lengths)
        );
    }
}

#[test]
fn rr1_chunk_28_positions_are_multiples_of_four() {
    for position in [41, 1, 2, 3, u32::MAX] {
        let reads = [read(position, 1, 4, 0)];
        let bytes = call(
            Kind::Message,
            &CallChunks {
                reads: &reads,
                ..Default::default()
            },
        );
        assert_eq!(reason(&bytes), Reason::Position);
    }
}

#[test]
fn rr1_chunk_30_positions_in_any_order() {
    let reads = [
        read(80, 1, 8, 0),
        read(40, 2, 4, 0),
        read(80, 3, 8, 0),
        read(60, 4, 4, 0),
    ];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reads: &reads,
            ..Default::default()
        },
    );
    let list = parse(&bytes).unwrap().lists().reads;
    let chunks: Vec<_> = list
        .chunks()
        .map(|chunk| (chunk.position, chunk.length()))
        .collect();
    assert_eq!(chunks, [(40, 4), (60, 4), (80, 16)]);
    assert!(
        list.chunk(80)
            .unwrap()
            .segments()
            .map(|segment| segment.handle)
            .eq([1, 3])
    );
    assert!(list.chunk(44).is_none());
}

#[test]
fn rr1_chunk_34_limits_are_exact() {
    let rules = Rules {
        segments_per_chunk: 16,
        read_chunks: 2,
        write_chunks: 1,
        ..Rules::default()
    };
    let parse = |bytes: &[u8]| Header::parse(bytes, &rules).map(|_| ());
    let segments = [Segment {
        handle: 1,
        length: 1,
        offset: 0,
    }; 17];
    let sixteen: &[Segment] = &segments[..16];
    let reads: Vec<_> = [0, 40]
        .into_iter()
        .flat_map(|at| (0..16).map(move |_| read(at, 1, 1, 0)))
        .collect();
    let full = CallChunks {
        reads: &reads,
        writes: &[sixteen],
        reply: Some(sixteen),
    };
    assert_eq!(parse(&call(Kind::NoMessage, &full)), Ok(()));

    let too_many = |chunks: CallChunks<'_>| {
        let bytes = call(Kind::NoMessage, &chunks);
        let fault = parse(&bytes).unwrap_err();
        assert!(
            matches!(
                fault,
                Fault::Refuse {
                    refusal: Refusal::Header(Reason::TooMany),
                    ..
                }
            ),
            "{fault}"
        );
    };
    too_many(CallChunks {
        reply: Some(&segments),
        ..full
    });
    too_many(CallChunks {
        writes: &[&segments],
        ..full
    });
    too_many(CallChunks {
        writes: &[sixteen, sixteen],
        ..full
    });
    // A single segment is no exception.
    let (argument, result) = ([read(40, 1, 1, 0)], &[&segments[..1]][..]);
    for (reads, writes) in [(&argument[..], &[][..]), (&[][..], result)] {
        let reply = None;
        let bytes = call(
            Kind::Message,
            &CallChunks {
                reads,
                writes,
                reply,
            },
        );
        let limited = |segments_per_chunk, chunks| {
            let rules = Rules {
                segments_per_chunk,
                read_chunks: chunks,
                write_chunks: chunks,
                ..rules
            };
            Header::parse(&bytes, &rules).is_ok()
        };
        assert!(limited(1, 1) && !limited(0, 1) && !limited(1, 0));
    }
    let seventeen: Vec<_> = (0..17).map(|_| read(40, 1, 1, 0)).collect();
    too_many(CallChunks {
        reads: &seventeen,
        ..full
    });
    let mut third = reads.clone();
    third[31].position = 80;
    too_many(CallChunks {
        reads: &third,
        ..full
    });
}

#[test]
fn rr1_chunk_35_zero_lengths_and_wrapping_offsets() {
    let reads = [read(40, 1, 0, u64::MAX), read(40, 2, 8, 0)];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reads: &reads,
            ..Default::default()
        },
    );
    assert_eq!(
        parse(&bytes)
            .unwrap()
            .lists()
            .reads
            .chunk(40)
            .unwrap()
            .length(),
        8
    );

    let wraps = Segment {
        handle: 1,
        length: 16,
        offset: u64::MAX - 7,
    };
    let reads = [ReadSegment {
        position: 40,
        segment: wraps,
    }];
    for chunks in [
        CallChunks {
            reads: &reads,
            ..Default::default()
        },
        CallChunks {
            writes: &[&[wraps]],
            ..Default::default()
        },
        CallChunks {
            reply: Some(&[wraps]),
            ..Default::default()
        },
    ] {
        assert_eq!(reason(&call(Kind::Message, &chunks)), Reason::Wrap);
    }
}

#[test]
fn rr1_chunk_36_the_bound_is_for_all_segments_together() {
    let rules = Rules {
        read_bytes: 1000,
        ..Rules::default()
    };
    let parsed = |reads: &[ReadSegment]| {
        let chunks = CallChunks {
            reads,
            ..Default::default()
        };
        Header::parse_call(&call(Kind::Message, &chunks), &rules).map(|_| ())
    };
    // No segment alone exceeds the bound: in one chunk, and over several positions.
    for positions in [[40, 40, 40], [40, 400, 800]] {
        let list = |lengths: [u32; 3]| {
            let entry = |(position, length)| read(position, 1, length, 0);
            positions
                .into_iter()
                .zip(lengths)
                .map(entry)
                .collect::<Vec<_>>()
        };
        assert!(parsed(&list([400, 300, 300])).is_ok());
        assert!(parsed(&list([1000, 0, 0])).is_ok());
        assert!(parsed(&list([400, 300, 301])).is_err());
        assert!(parsed(&list([1000, 1, 0])).is_err());
        assert!(parsed(&list([1, 999, 1])).is_err());
        // Nor does the sum come round to a small number.
        assert!(parsed(&list([u32::MAX, 1, 1])).is_err());
    }
}

#[test]
fn rr1_chunk_36_read_bytes_are_bounded() {
    let reads = [read(40, 1, u32::MAX, 0)];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reads: &reads,
            ..Default::default()
        },
    );
    assert_eq!(reason(&bytes), Reason::TooLarge);
    let rules = Rules {
        read_bytes: u64::from(u32::MAX),
        ..Rules::default()
    };
    assert!(Header::parse_call(&bytes, &rules).is_ok());
}

#[test]
fn rr1_chunk_42_limit_counts_positions_not_entries() {
    let rules = Rules {
        read_chunks: 1,
        ..Rules::default()
    };
    let reads = [read(40, 1, 4, 0); 16];
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reads: &reads,
            ..Default::default()
        },
    );
    assert!(Header::parse_call(&bytes, &rules).is_ok());
}

#[test]
fn rr1_long_06_message_with_position_zero() {
    let reads = [read(0, 1, 100, 0)];
    let chunks = CallChunks {
        reads: &reads,
        ..Default::default()
    };
    assert_eq!(reason(&call(Kind::Message, &chunks)), Reason::PositionZero);
    assert!(parse(&call(Kind::NoMessage, &chunks)).is_ok());
}

#[test]
fn rr1_long_15_reply_chunk_is_filled_in_order() {
    let segments = [1, 2, 3].map(|handle| Segment {
        handle,
        length: 100,
        offset: 0,
    });
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reply: Some(&segments),
            ..Default::default()
        },
    );
    let lists = parse(&bytes).unwrap().lists();
    let reply = ReplyChunks {
        reads: &[],
        call: &lists,
        written: &[],
        reply_written: 150,
    };
    let encoded = written(|out| encode_one(out, false, &reply));
    let returned = Header::parse(&encoded, &Rules::default())
        .unwrap()
        .lists()
        .reply
        .unwrap();
    assert!(
        returned
            .iter()
            .map(|segment| segment.length)
            .eq([100, 50, 0])
    );
}

#[test]
fn rr1_long_16_reply_chunk_without_segments_is_returned() {
    let bytes = call(
        Kind::Message,
        &CallChunks {
            reply: Some(&[]),
            ..Default::default()
        },
    );
    let lists = parse(&bytes).unwrap().lists();
    assert_eq!(
        lists.reply.map(|chunk| (chunk.len(), chunk.total())),
        Some((0, 0))
    );
    let reply = ReplyChunks {
        reads: &[],
        call: &lists,
        written: &[],
        reply_written: 0,
    };
    let encoded = written(|out| encode_one(out, true, &reply));
    assert_eq!(encoded[16..], hex("00000000 00000000 00000001 00000000"));
}

fn draw_all<'p, T: Sample<'p>>(source: &mut Source<'p>, below: usize) -> Vec<T> {
    (0..source.below(below)).map(|_| source.draw()).collect()
}

proptest! {
    #[test]
    fn any_chunks_round_trip(pool in pool(), at in any::<prop::sample::Index>(), with in 1u8..) {
        let mut source = Source::new(&pool);
        let reads: Vec<ReadSegment> = draw_all(&mut source, 8);
        let writes: Vec<Vec<Segment>> =
            (0..source.below(5)).map(|_| draw_all(&mut source, 5)).collect();
        let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
        let reply: Option<Vec<Segment>> =
            source.draw::<bool>().then(|| draw_all(&mut source, 5));
        let chunks = CallChunks { reads: &reads, writes: &writes, reply: reply.as_deref() };
        let mut bytes = call(Kind::Message, &chunks);
        {
            let lists = Header::parse(&bytes, &Rules::default()).unwrap().lists();
            prop_assert!(lists.reads.iter().eq(reads.iter().copied()));
            let received: Vec<Vec<Segment>> =
                lists.writes.iter().map(|chunk| chunk.iter().collect()).collect();
            prop_assert_eq!(received, &writes[..]);
            prop_assert_eq!(lists.reply.map(|chunk| chunk.iter().collect::<Vec<_>>()), reply.clone());
            let joined: usize = lists.reads.chunks().map(|chunk| chunk.segments().count()).sum();
            prop_assert_eq!(joined, reads.len());
        }
        for end in 0..bytes.len() - 8 {
            prop_assert!(Header::parse(&bytes[..end], &Rules::default()).is_err());
        }
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        walk(&bytes);
    }

    #[test]
    fn any_bytes_at_all(bytes in prop::collection::vec(0u8..3, 0..200)) {
        walk(&bytes);
    }
}
