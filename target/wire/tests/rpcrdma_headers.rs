//! RPC-over-RDMA version one: headers and errors, row by row.

mod common;

use common::headers::*;
use common::hex;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version1::{Kind, VERSION, encode_done, encode_padded_header};
use millrace_wire::rpcrdma::*;
use millrace_wire::xdr::{Encoder, Padding};

#[test]
fn rr1_hdr_01_first_four_words_in_every_version() {
    for text in [NO_CHUNKS, DONE, CHUNK_ERROR, READS, WRITES, PADDED] {
        let bytes = hex(text);
        let words = FirstWords::read(&bytes).unwrap();
        assert_eq!(
            (words.xid, words.version, words.credits),
            (XID, VERSION, CREDITS)
        );
        assert_eq!(words.kind, u32::from(bytes[15]));
    }
    let garbage = message(
        "11223344 00000009 00000020 00000000",
        "ffffffff ffffffff ffffffff",
    );
    let fault = parse(&garbage).unwrap_err();
    let answer = written(|out| {
        fault
            .answer(7, Versions::BOTH, out)
            .map(|answered| assert!(answered))
    });
    assert_eq!(
        answer,
        hex("11223344 00000009 00000007 00000004 00000001 00000001 00000002"),
    );
    assert_eq!(FirstWords::read(&garbage[..15]), None);
}

#[test]
fn rr1_hdr_03_inner_xid_must_be_the_outer() {
    let bytes = message(NO_CHUNKS, "11223345 00000000");
    assert_eq!(reason(&bytes), Reason::Xid);
    assert!(
        Header::parse(&bytes, &Rules::default()).is_ok(),
        "a requester judges by itself"
    );
    assert!(
        Header::parse_call(
            &bytes,
            &Rules {
                same_xid: false,
                ..Rules::default()
            }
        )
        .is_ok()
    );
    assert_eq!(reason(&message(NO_CHUNKS, "11223344")), Reason::Truncated);
}

#[test]
fn rr1_hdr_05_unsupported_versions() {
    for version in [0, 3, 7, u32::MAX] {
        let fault = parse(&with_word(message(READS, RPC), 4, version)).unwrap_err();
        let Fault::Refuse {
            words,
            refusal: Refusal::Version,
        } = fault
        else {
            panic!("{fault:?}")
        };
        assert_eq!(words.version, version);
        let answer = written(|out| fault.answer(CREDITS, Versions::BOTH, out).map(|_| ()));
        assert_eq!(answer.len(), 28);
        let header = Header::parse(&answer, &Rules::default()).unwrap();
        assert_eq!(
            header.body,
            Body::Error(ErrorBody::Version { low: 1, high: 2 })
        );
    }
}

#[test]
fn rr1_hdr_06_version_error_repeats_the_version() {
    let words = FirstWords {
        xid: XID,
        version: 7,
        credits: 1,
        kind: 0,
    };
    assert_eq!(
        written(|out| encode_error(
            out,
            &words,
            CREDITS,
            &ErrorBody::Version { low: 1, high: 2 }
        )),
        hex(VERSION_ERROR),
    );
}

#[test]
fn rr1_hdr_07_errors_of_any_version_are_understood() {
    for version in [1, 2, 7, 0] {
        let bytes = with_word(hex(VERSION_ERROR), 4, version);
        let header = Header::parse(&bytes, &Rules::default()).unwrap();
        assert_eq!(
            header.body,
            Body::Error(ErrorBody::Version { low: 1, high: 2 })
        );
        let bytes = with_word(hex(CHUNK_ERROR), 4, version);
        let rules = Rules {
            versions: Versions::ONE,
            ..Rules::default()
        };
        let header = Header::parse(&bytes, &rules).unwrap();
        assert_eq!(header.body, Body::Error(ErrorBody::Chunk));
    }
}

#[test]
fn rr1_hdr_08_every_flipped_bit_gets_one_answer() {
    for text in [NO_CHUNKS, READS, WRITES, PADDED] {
        let bytes = message(text, RPC);
        for bit in 0..8 * bytes.len() {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Err(fault) = parse(&bytes) {
                let mut answer = [0; 28];
                let mut out = Encoder::new(&mut answer);
                let answered = fault.answer(CREDITS, Versions::ONE, &mut out).unwrap();
                // Long enough to be trusted, unless the type became that of an error.
                let error = FirstWords::read(&bytes).unwrap().kind == RDMA_ERROR;
                assert!(answered || error, "bit {bit}: {fault}");
                assert_eq!(out.written()[..4], bytes[..4]);
            }
        }
    }
}

#[test]
fn rr1_hdr_09_structure_errors_answer_err_chunk() {
    let bytes = message(READS, RPC);
    for end in 28..76 {
        assert_eq!(reason(&bytes[..end]), Reason::Truncated, "{end} bytes");
        let fault = parse(&bytes[..end]).unwrap_err();
        let answer = written(|out| fault.answer(CREDITS, Versions::ONE, out).map(|_| ()));
        assert_eq!(answer, hex(CHUNK_ERROR));
    }
}

#[test]
fn rr1_hdr_11_errors_and_done_end_where_they_end() {
    assert_eq!(written(|out| encode_done(out, XID, CREDITS)), hex(DONE));
    let words = FirstWords {
        xid: XID,
        version: 1,
        credits: 1,
        kind: 0,
    };
    assert_eq!(
        written(|out| encode_error(out, &words, CREDITS, &ErrorBody::Chunk)),
        hex(CHUNK_ERROR)
    );
    let bytes = hex(DONE);
    assert_eq!(parse(&bytes).map(|header| header.body), Ok(Body::Done));
}

#[test]
fn rr1_hdr_12_layout_of_each_type() {
    let bytes = message(NO_CHUNKS, RPC);
    let Ok(Header {
        body:
            Body::Message {
                lists,
                message: rpc,
                padding: None,
            },
        ..
    }) = parse(&bytes)
    else {
        panic!()
    };
    assert!(lists.is_empty());
    assert_eq!(rpc, hex(RPC));
    assert_eq!(call(Kind::Message, &CallChunks::default()), bytes);

    let align = Padding {
        align: 512,
        threshold: 1024,
    };
    let bytes = message(PADDED, RPC);
    assert_eq!(bytes.len(), 36 + 8);
    let Ok(Header {
        body:
            Body::Message {
                message: rpc,
                padding,
                ..
            },
        ..
    }) = parse(&bytes)
    else {
        panic!()
    };
    assert_eq!((rpc, padding), (&hex(RPC)[..], Some(align)));
    let encoded =
        written(|out| encode_padded_header(out, XID, CREDITS, align, &CallChunks::default()));
    assert_eq!(encoded, hex(PADDED));

    let reads = [read(0, 1, 4000, 0)];
    let chunks = CallChunks {
        reads: &reads,
        ..Default::default()
    };
    let bytes = written(|out| encode_one(out, false, &chunks));
    assert_eq!(bytes.len(), 28 + 24);
    let header = parse(&bytes).unwrap();
    assert!(matches!(header.body, Body::NoMessage { .. }));
    assert!(header.lists().reads.iter().eq(reads));
}

#[test]
fn rr1_hdr_13_unknown_types_answer_err_chunk() {
    for kind in [5, 0x8000_0000, u32::MAX] {
        let bytes = with_word(message(NO_CHUNKS, RPC), 12, kind);
        assert_eq!(refusal(&bytes), Refusal::Procedure);
        let fault = parse(&bytes).unwrap_err();
        let answer = written(|out| fault.answer(CREDITS, Versions::BOTH, out).map(|_| ()));
        assert_eq!(answer, hex(CHUNK_ERROR));
    }
}

#[test]
fn rr1_hdr_14_unknown_error_codes_carry_up_to_eight_words() {
    for words in [0, 1, 8, 11] {
        let mut bytes = with_word(hex(CHUNK_ERROR), 16, 77);
        bytes.extend(vec![9; 4 * words]);
        let Ok(Header {
            body: Body::Error(ErrorBody::Unknown { code, words: extra }),
            ..
        }) = Header::parse(&bytes, &Rules::default())
        else {
            panic!()
        };
        assert_eq!((code, extra.len()), (77, 4 * words.min(8)));
    }
}

#[test]
fn rr1_hdr_16_undecodable_errors_are_dropped() {
    let bytes = hex(VERSION_ERROR);
    for end in 20..28 {
        assert_eq!(parse(&bytes[..end]), Err(Fault::Drop));
    }
}

#[test]
fn rr1_hdr_18_short_messages_are_dropped() {
    for (kind, shortest) in [
        (0, 28),
        (1, 28),
        (2, 28),
        (3, 16),
        (4, 20),
        (5, 28),
        (99, 28),
    ] {
        let mut bytes = with_word(hex(NO_CHUNKS), 12, kind);
        // A code that needs nothing behind it.
        bytes = with_word(bytes, 16, if kind == 4 { 2 } else { 0 });
        bytes.resize(41, 0);
        for length in 0..=40 {
            let dropped = parse(&bytes[..length]) == Err(Fault::Drop);
            assert_eq!(dropped, length < shortest, "type {kind}, {length} bytes");
            let mut none = [];
            if dropped {
                let answered = Fault::Drop.answer(1, Versions::ONE, &mut Encoder::new(&mut none));
                assert_eq!(answered, Ok(false));
            }
        }
    }
}

#[test]
fn rr1_hdr_19_presence_words_and_counts() {
    for at in [16, 20, 24] {
        assert_eq!(
            reason(&with_word(message(NO_CHUNKS, RPC), at, 2)),
            Reason::Presence
        );
    }
    let mut bytes = message(WRITES, RPC);
    let more = Rules::default().segments_per_chunk as u32 + 1;
    for count in [u32::MAX, 0x1000_0000, 0x0fff_ffff, more] {
        bytes = with_word(bytes, 24, count);
        assert_eq!(reason(&bytes), Reason::Truncated);
    }
}

#[test]
fn rr1_hdr_20_no_message_without_chunks() {
    let bytes = with_word(hex(NO_CHUNKS), 12, 1);
    assert_eq!(reason(&bytes), Reason::PositionZero);
    // A write list or a reply chunk does not bring the call either.
    assert_eq!(reason(&with_word(hex(WRITES), 12, 1)), Reason::PositionZero);
    // As a reply, the second is a good one.
    assert!(Header::parse(&with_word(hex(WRITES), 12, 1), &Rules::default()).is_ok());
}

#[test]
fn rr1_hdr_28_direction_is_known_before_the_xid() {
    let rules = Rules::default();
    for (word, kind) in [
        ("00000000", MessageType::Call),
        ("00000001", MessageType::Reply),
    ] {
        let bytes = message(NO_CHUNKS, &format!("11223344 {word}"));
        assert_eq!(
            Header::parse(&bytes, &rules).unwrap().direction(),
            Some(kind)
        );
    }
}

#[test]
fn rr1_pad_21_padded_messages_can_be_refused() {
    let rules = Rules {
        padding: false,
        ..Rules::default()
    };
    let fault = Header::parse_call(&message(PADDED, RPC), &rules)
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(
        fault,
        Fault::Refuse {
            refusal: Refusal::Procedure,
            ..
        }
    ));
}

#[test]
fn plain_headers_have_the_length_that_their_version_states() {
    for (version, length) in [(Version::One, 28), (Version::Two, 36)] {
        assert_eq!(version.shortest(), length);
        let bytes = written(|out| {
            encode_plain_header(out, version, XID, CREDITS, MessageType::Call)?;
            out.raw(&hex(RPC))
        });
        assert_eq!(bytes.len(), length + hex(RPC).len());
        let header = parse(&bytes).unwrap();
        let words = header.words;
        assert_eq!(
            (words.xid, words.version, words.credits),
            (XID, version.number(), CREDITS)
        );
        assert_eq!(header.reverse_message(&Rules::default()), Ok(&hex(RPC)[..]));
    }
}

#[test]
fn rr1_chunk_17_the_only_result_is_returned_like_any_other() {
    let one = Segment {
        handle: 7,
        length: 4096,
        offset: 0x1_0000_0002,
    };
    let writes: &[&[Segment]] = &[&[one]];
    let single = CallChunks {
        writes,
        ..CallChunks::default()
    };
    for version in [Version::One, Version::Two] {
        let outgoing = |direction| Outgoing {
            version,
            xid: XID,
            credits: CREDITS,
            inline: true,
            direction,
            invalidate: 0,
        };
        let bytes = written(|out| {
            encode_header(out, &outgoing(MessageType::Call), &single)?;
            out.raw(&hex(RPC))
        });
        let lists = parse(&bytes).unwrap().lists();
        assert_eq!(lists.only_result(), Some(one));
        assert_eq!(lists.writes.iter().next().unwrap().total(), 4096);
        for bytes in [1, 4095, 4096] {
            let reply = ReplyChunks {
                reads: &[],
                call: &lists,
                written: &[bytes],
                reply_written: 0,
            };
            let any = written(|out| encode_header(out, &outgoing(MessageType::Reply), &reply));
            let length = bytes as u32;
            let segment = Segment { length, ..one };
            let same = written(|out| encode_result_header(out, version, XID, CREDITS, segment));
            assert_eq!(same, any);
        }
    }
    let reads = [read(40, 6, 1, 0)];
    for other in [
        CallChunks::default(),
        CallChunks {
            writes: &[&[one, one]],
            ..single
        },
        CallChunks {
            writes: &[&[], &[one]],
            ..single
        },
        CallChunks {
            writes: &[&[]],
            ..single
        },
        CallChunks {
            reads: &reads,
            ..single
        },
        CallChunks {
            reply: Some(&[one]),
            ..single
        },
    ] {
        let bytes = written(|out| {
            encode_one(out, true, &other)?;
            out.raw(&hex(RPC))
        });
        assert_eq!(parse(&bytes).unwrap().lists().only_result(), None);
    }
}

#[test]
fn reverse_messages_are_inline_and_have_no_chunks_or_pads() {
    let rules = Rules::default();
    let reverse = |bytes: &[u8]| {
        let header = Header::parse(bytes, &rules).unwrap();
        header.reverse_message(&rules).map(<[u8]>::to_vec)
    };
    assert_eq!(reverse(&message(NO_CHUNKS, RPC)), Ok(hex(RPC)));
    for header in [READS, WRITES, PADDED] {
        assert_eq!(reverse(&message(header, RPC)), Err(Reason::TooMany));
    }
    assert_eq!(reverse(&hex(DONE)), Err(Reason::TooMany));
    let other = message(NO_CHUNKS, "11223345 00000000");
    assert_eq!(reverse(&other), Err(Reason::Xid));
}
