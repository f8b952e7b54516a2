//! RPC-over-RDMA version two: headers, errors and optional operations, row by row.

mod common;

use common::headers::{CREDITS, XID, encode_one, read, walk, with_word, written};
use common::{Source, hex, pool};
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version2::{ErrorCode, Kind, OPTIONAL_LENGTH, encode_optional};
use millrace_wire::rpcrdma::*;
use millrace_wire::xdr::{Encoder, Error};
use proptest::prelude::*;

const NO_CHUNKS: &str =
    "11223344 00000002 00000020 00000000 00000000 00000000 00000000 00000000 00000000";
const CANNOT_REPLY: &str =
    "11223344 00000002 00000020 00000004 00000003 00000001 00000003 00011170";
const INVALID_OPTION: &str = "11223344 00000002 00000020 00000004 00000005";
const OPTIONAL: &str =
    "11223344 00000002 00000020 00000005 00000000 00000009 00000005 61626364 65000000";
const CALL: &str = "11223344 00000000";
const REPLY: &str = "11223344 00000001";

const WORDS: FirstWords = FirstWords {
    xid: XID,
    version: 2,
    credits: 1,
    kind: 0,
};

fn message(header: &str, more: &str) -> Vec<u8> {
    hex(&format!("{header} {more}"))
}

fn parse(bytes: &[u8]) -> Result<Header<'_>, Fault> {
    Header::parse_call(bytes, &Rules::default())
}

#[track_caller]
fn refusal(bytes: &[u8]) -> Refusal {
    match parse(bytes) {
        Err(Fault::Refuse { words, refusal }) => {
            assert_eq!((words.xid, words.version), (XID, 2));
            refusal
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// The answer to a message that is refused.
#[track_caller]
fn answer(bytes: &[u8]) -> Vec<u8> {
    let fault = parse(bytes).unwrap_err();
    written(|out| {
        let answered = fault.answer(CREDITS, Versions::BOTH, out)?;
        assert!(answered, "{fault}");
        Ok(())
    })
}

/// An error without words of its own.
fn short_error(code: ErrorCode) -> Vec<u8> {
    with_word(hex(INVALID_OPTION), 16, code.number())
}

fn outgoing(inline: bool) -> Outgoing {
    Outgoing {
        version: Version::Two,
        xid: XID,
        credits: CREDITS,
        inline,
        direction: MessageType::Call,
        invalidate: 0,
    }
}

fn call(inline: bool, chunks: &CallChunks<'_>) -> Vec<u8> {
    written(|out| {
        encode_header(out, &outgoing(inline), chunks)?;
        out.raw(if inline {
            &[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0]
        } else {
            &[]
        })
    })
}

#[test]
fn rr2_hdr_01_two_words_stand_before_the_lists() {
    let bytes = message(NO_CHUNKS, CALL);
    assert_eq!(bytes.len() - 8, version2::SHORTEST);
    assert_eq!(call(true, &CallChunks::default()), bytes);
    let header = parse(&bytes).unwrap();
    assert_eq!(header.version, Version::Two);
    assert_eq!(header.direction, Some(MessageType::Call));
    assert_eq!(header.direction(), header.direction);
    assert_eq!(header.invalidate, 0);
    assert!(header.lists().is_empty());
    let Body::Message {
        message: rpc,
        padding: None,
        ..
    } = header.body
    else {
        panic!("{header:?}")
    };
    assert_eq!(rpc, hex(CALL));

    // The words that only this version has, in a reply.
    let reply = Outgoing {
        direction: MessageType::Reply,
        invalidate: 0xabcd,
        ..outgoing(true)
    };
    let bytes = written(|out| {
        encode_header(out, &reply, &CallChunks::default())?;
        out.raw(&hex(REPLY))
    });
    let wanted = with_word(with_word(message(NO_CHUNKS, REPLY), 16, 1), 20, 0xabcd);
    assert_eq!(bytes, wanted);
    let header = Header::parse(&bytes, &Rules::default()).unwrap();
    assert_eq!(
        (header.direction(), header.invalidate),
        (Some(MessageType::Reply), 0xabcd)
    );
}

#[test]
fn rr2_hdr_02_types_of_version_one_do_not_exist() {
    for kind in [2, 3, 6, 0x8000_0000, u32::MAX] {
        let bytes = with_word(message(NO_CHUNKS, CALL), 12, kind);
        assert_eq!(refusal(&bytes), Refusal::Procedure);
        assert_eq!(answer(&bytes), short_error(ErrorCode::InvalidProcedure));
        // Not even their shortest are any shorter.
        assert_eq!(parse(&bytes[..27]), Err(Fault::Drop));
    }
}

#[test]
fn rr2_hdr_03_a_message_follows_its_header() {
    for more in ["", "11223344"] {
        let bytes = message(NO_CHUNKS, more);
        assert_eq!(refusal(&bytes), Refusal::Header(Reason::Truncated));
        assert_eq!(answer(&bytes), short_error(ErrorCode::BadXdr));
    }
}

#[test]
fn rr2_hdr_04_no_message_follows_a_header_without() {
    let reads = [read(0, 1, 4000, 0)];
    let chunks = CallChunks {
        reads: &reads,
        ..CallChunks::default()
    };
    let bytes = call(false, &chunks);
    assert_eq!(bytes.len(), version2::SHORTEST + 24);
    let header = parse(&bytes).unwrap();
    assert!(matches!(header.body, Body::NoMessage { .. }));
    assert_eq!(header.direction(), Some(MessageType::Call));
    assert!(header.lists().reads.iter().eq(reads));
    let both = [&bytes[..], &hex(CALL)].concat();
    assert_eq!(refusal(&both), Refusal::Header(Reason::PositionZero));
    // Nor is there one without any chunk at position zero.
    let none = with_word(hex(NO_CHUNKS), 12, Kind::NoMessage.number());
    assert_eq!(refusal(&none), Refusal::Header(Reason::PositionZero));
}

#[test]
fn rr2_hdr_05_nothing_follows_an_error() {
    let length = |refusal: Refusal| {
        written(|out| refusal.encode(&WORDS, CREDITS, Versions::BOTH, out)).len()
    };
    assert_eq!(length(Refusal::Header(Reason::Truncated)), 20);
    assert_eq!(length(Refusal::Procedure), 20);
    assert_eq!(length(Refusal::Option), 20);
    assert_eq!(length(Refusal::Version), 28);
    let cannot = Refusal::CannotReply {
        processed: true,
        segment: 3,
        needed: 70_000,
    };
    assert_eq!(length(cannot), ERROR_MAX);
    assert_eq!(ERROR_MAX, 32);
}

#[test]
fn rr2_hdr_06_lists_are_those_of_version_one() {
    let reads = [read(120, 0xa1, 5, 0x1000), read(120, 0xa2, 6, 0x2000)];
    let segments = [reads[0].segment, reads[1].segment];
    let chunks = CallChunks {
        reads: &reads,
        writes: &[&segments, &segments[..1], &[]],
        reply: Some(&segments),
    };
    let two = call(true, &chunks);
    let one = written(|out| {
        encode_one(out, true, &chunks)?;
        out.raw(&hex(CALL))
    });
    assert_eq!(
        two[Version::Two.before_lists()..],
        one[Version::One.before_lists()..]
    );
    let lists = |bytes| {
        Header::parse_call(bytes, &Rules::default())
            .unwrap()
            .lists()
    };
    assert_eq!(lists(&two), lists(&one));

    // What is wrong with a list is wrong in both: whatever word of it becomes whatever.
    let reason = |bytes: &[u8]| match Header::parse_call(bytes, &Rules::default()) {
        Err(Fault::Refuse {
            refusal: Refusal::Header(reason),
            ..
        }) => Some(reason),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let mut faults = 0;
    for at in (16..one.len() - 8).step_by(4) {
        for word in [0, 1, 2, 3, 0x1000_0000, u32::MAX] {
            let bad_one = reason(&with_word(one.clone(), at, word));
            let bad_two = reason(&with_word(two.clone(), at + 8, word));
            // A list cut short leaves bytes that are no message; only version two looks at its
            // direction here.
            if bad_two != Some(Reason::Direction) {
                assert_eq!(bad_one, bad_two, "{word:#x} at {at}");
            }
            faults += usize::from(bad_one.is_some());
        }
    }
    assert!(faults > 20);
    for end in 36..two.len() - 8 {
        assert_eq!(reason(&two[..end]), Some(Reason::Truncated), "{end} bytes");
    }
}

#[test]
fn rr2_hdr_10_a_direction_is_a_call_or_a_reply() {
    for word in [2, 0x100, u32::MAX] {
        let bytes = with_word(message(NO_CHUNKS, CALL), 16, word);
        assert_eq!(refusal(&bytes), Refusal::Header(Reason::Direction));
        assert_eq!(answer(&bytes), short_error(ErrorCode::BadXdr));
        let bytes = with_word(hex(OPTIONAL), 16, word);
        assert_eq!(refusal(&bytes), Refusal::Header(Reason::Direction));
    }
}

#[test]
fn rr2_hdr_11_presence_words_are_strict() {
    for at in [24, 28, 32] {
        let bytes = with_word(message(NO_CHUNKS, CALL), at, 2);
        assert_eq!(refusal(&bytes), Refusal::Header(Reason::Presence));
        assert_eq!(answer(&bytes), short_error(ErrorCode::BadXdr));
    }
    // A word more between the lists and the message is no part of either.
    let bytes = message(NO_CHUNKS, &format!("00000000 {CALL}"));
    assert!(matches!(refusal(&bytes), Refusal::Header(_)));
}

/// What the version two draft gives numbers to, and the order of the words, in a table of our own.
#[test]
fn rr2_hdr_13_numbers_and_order_of_words() {
    let numbers = [
        (Version::Two.number(), 2),
        (version2::VERSION, 2),
        (MessageType::Call.number(), 0),
        (MessageType::Reply.number(), 1),
        (Kind::Message.number(), 0),
        (Kind::NoMessage.number(), 1),
        (Kind::Error.number(), 4),
        (Kind::Optional.number(), 5),
        (ErrorCode::Version.number(), 1),
        (ErrorCode::BadXdr.number(), 2),
        (ErrorCode::CannotReply.number(), 3),
        (ErrorCode::InvalidProcedure.number(), 4),
        (ErrorCode::InvalidOption.number(), 5),
    ];
    for (number, wanted) in numbers {
        assert_eq!(number, wanted);
    }
    assert_eq!((Kind::ALL.len(), ErrorCode::ALL.len()), (4, 5));

    let segment = |from: u32| Segment {
        handle: from,
        length: from + 1,
        offset: u64::from(from + 2) << 32 | u64::from(from + 3),
    };
    let header = Outgoing {
        version: Version::Two,
        xid: 100,
        credits: 102,
        inline: true,
        direction: MessageType::Reply,
        invalidate: 105,
    };
    let chunks = CallChunks {
        reads: &[ReadSegment {
            position: 107,
            segment: segment(108),
        }],
        writes: &[&[segment(115), segment(119)]],
        reply: Some(&[segment(126)]),
    };
    let bytes = written(|out| encode_header(out, &header, &chunks));
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    let wanted: [&[u32]; 8] = [
        // XID, version, credits, message type, direction, key to invalidate.
        &[100, 2, 102, 0, 1, 105],
        // An entry of the read list: position, handle, length, offset.
        &[1, 107, 108, 109, 110, 111],
        &[0],
        // An entry of the write list: segments, and of each handle, length, offset.
        &[1, 2, 115, 116, 117, 118],
        &[119, 120, 121, 122],
        &[0],
        // The reply chunk, without a next one.
        &[1, 1],
        &[126, 127, 128, 129],
    ];
    assert_eq!(words, wanted.concat());

    // An error: code, then processed, segment, length; a version error: lowest, highest.
    let cannot = Refusal::CannotReply {
        processed: true,
        segment: 3,
        needed: 70_000,
    };
    let bytes = written(|out| cannot.encode(&WORDS, CREDITS, Versions::BOTH, out));
    assert_eq!(bytes, hex(CANNOT_REPLY));
    // An optional message: direction, operation, counted bytes.
    let optional = Optional {
        direction: MessageType::Call,
        kind: 9,
        opaque: b"abcde",
        payload: &[],
    };
    assert_eq!(
        written(|out| encode_optional(out, XID, CREDITS, &optional)),
        hex(OPTIONAL)
    );
}

#[test]
fn rr2_err_02_version_errors_are_the_same_in_both() {
    let bytes = "11223344 00000002 00000020 00000004 00000001 00000001 00000001";
    let bytes = hex(bytes);
    for versions in [Versions::ONE, Versions::TWO, Versions::BOTH] {
        for version in [1, 2, 7] {
            let rules = Rules {
                versions,
                ..Rules::default()
            };
            let bytes = with_word(bytes.clone(), 4, version);
            let header = Header::parse(&bytes, &rules).unwrap();
            assert_eq!(
                header.body,
                Body::Error(ErrorBody::Version { low: 1, high: 1 })
            );
        }
    }
    let refused = written(|out| Refusal::Version.encode(&WORDS, CREDITS, Versions::ONE, out));
    assert_eq!(refused, bytes);
    // Served or not, the version decides before the type and the lists.
    let rules = Rules {
        versions: Versions::ONE,
        ..Rules::default()
    };
    let fault = Header::parse_call(&message(NO_CHUNKS, CALL), &rules).unwrap_err();
    assert!(matches!(
        fault,
        Fault::Refuse {
            refusal: Refusal::Version,
            ..
        }
    ));
}

#[test]
fn rr2_err_12_faulty_replies_have_no_answer() {
    let reply = with_word(message(NO_CHUNKS, REPLY), 16, 1);
    assert!(parse(&reply).is_ok());
    for at in [24, 28, 32] {
        assert_eq!(parse(&with_word(reply.clone(), at, 2)), Err(Fault::Drop));
    }
    // A call that calls itself a reply.
    assert_eq!(parse(&with_word(reply, 40, 0)), Err(Fault::Drop));
    // A reply that calls itself a call is a faulty call.
    let call = message(NO_CHUNKS, REPLY);
    assert_eq!(refusal(&call), Refusal::Header(Reason::Direction));
    let optional = with_word(with_word(hex(OPTIONAL), 16, 1), 24, 400);
    assert_eq!(parse(&optional), Err(Fault::Drop));
}

#[test]
fn rr2_err_13_broken_errors_have_no_answer() {
    let bytes = hex(CANNOT_REPLY);
    for end in 0..bytes.len() {
        assert_eq!(parse(&bytes[..end]), Err(Fault::Drop), "{end} bytes");
    }
    // A truth value that is none.
    assert_eq!(parse(&with_word(bytes, 20, 2)), Err(Fault::Drop));
}

#[test]
fn rr2_err_15_every_error_code_is_told_apart() {
    let body = |bytes: &[u8]| match Header::parse(bytes, &Rules::default()).unwrap().body {
        Body::Error(body) => format!("{body:?}"),
        other => panic!("{other:?}"),
    };
    let wanted = ErrorBody::CannotReply {
        processed: true,
        segment: 3,
        needed: 70_000,
    };
    assert_eq!(body(&hex(CANNOT_REPLY)), format!("{wanted:?}"));
    for (code, wanted) in [
        (ErrorCode::BadXdr, ErrorBody::BadXdr),
        (ErrorCode::InvalidProcedure, ErrorBody::InvalidProcedure),
        (ErrorCode::InvalidOption, ErrorBody::InvalidOption),
    ] {
        assert_eq!(body(&short_error(code)), format!("{wanted:?}"));
        assert_eq!(wanted.code(), code.number());
        let written = written(|out| encode_error(out, &WORDS, CREDITS, &wanted));
        assert_eq!(written, short_error(code));
    }
    for code in [0, 6, 99, u32::MAX] {
        let bytes = with_word(hex(INVALID_OPTION), 16, code);
        let wanted = ErrorBody::Unknown { code, words: &[] };
        assert_eq!(body(&bytes), format!("{wanted:?}"));
    }
    // Codes of this version are unknown ones in version one.
    let one = with_word(hex(CANNOT_REPLY), 4, 1);
    let unknown = ErrorBody::Unknown {
        code: 3,
        words: &hex(CANNOT_REPLY)[20..],
    };
    assert_eq!(body(&one), format!("{unknown:?}"));
}

#[test]
fn rr2_opt_01_optional_messages() {
    for (opaque, text) in [
        (&b""[..], "00000000"),
        (b"a", "00000001 61000000"),
        (b"abcd", "00000004 61626364"),
        (b"abcde", "00000005 61626364 65000000"),
    ] {
        let head = "11223344 00000002 00000020 00000005 00000000 00000009";
        for more in ["", CALL, "01020304"] {
            let payload = hex(more);
            let optional = Optional {
                direction: MessageType::Call,
                kind: 9,
                opaque,
                payload: &payload,
            };
            let bytes = written(|out| encode_optional(out, XID, CREDITS, &optional));
            assert_eq!(bytes, hex(&format!("{head} {text} {more}")));
            let padded = opaque.len().next_multiple_of(4);
            assert_eq!(bytes.len(), OPTIONAL_LENGTH + padded + payload.len());
            let header = parse(&bytes).unwrap();
            assert_eq!(header.body, Body::Optional(optional));
            assert_eq!(header.direction(), Some(MessageType::Call));
        }
    }
}

#[test]
fn rr2_opt_03_payload_goes_where_its_direction_says() {
    let reply = hex(REPLY);
    let wrong = Optional {
        direction: MessageType::Call,
        kind: 9,
        opaque: &[],
        payload: &reply,
    };
    let mut out = [0; 64];
    let mut out = Encoder::new(&mut out);
    assert_eq!(
        encode_optional(&mut out, XID, CREDITS, &wrong),
        Err(Error::Value)
    );
    let right = Optional {
        direction: MessageType::Reply,
        ..wrong
    };
    let bytes = written(|out| encode_optional(out, XID, CREDITS, &right));
    assert!(parse(&bytes).is_ok());
    let bytes = with_word(bytes, 16, 0);
    assert_eq!(refusal(&bytes), Refusal::Header(Reason::Direction));
    assert_eq!(answer(&bytes), short_error(ErrorCode::BadXdr));
    // A part that does not begin with the XID is the operation's own affair.
    let bytes = with_word(bytes, 28, 5);
    assert!(parse(&bytes).is_ok());
}

#[test]
fn rr2_opt_09_opaque_bytes_end_in_the_message() {
    for length in [6, 9, 0x7fff_ffff, u32::MAX] {
        let bytes = with_word(hex(OPTIONAL), 24, length);
        let expected = if length <= 8 { Ok(()) } else { Err(()) };
        assert_eq!(
            parse(&bytes).map(|_| ()).map_err(|_| ()),
            expected,
            "{length}"
        );
        if expected.is_err() {
            assert_eq!(refusal(&bytes), Refusal::Header(Reason::Truncated));
            assert_eq!(answer(&bytes), short_error(ErrorCode::BadXdr));
        }
    }
    // Its round-up belongs to it.
    let bytes = hex(OPTIONAL);
    assert_eq!(refusal(&bytes[..33]), Refusal::Header(Reason::Truncated));
    let unknown = Fault::Refuse {
        words: FirstWords { kind: 5, ..WORDS },
        refusal: Refusal::Option,
    };
    let answer = written(|out| unknown.answer(CREDITS, Versions::BOTH, out).map(|_| ()));
    assert_eq!(answer, hex(INVALID_OPTION));
}

#[test]
fn versions_are_ranges() {
    let both = Versions::new(Version::Two, Version::One);
    assert_eq!(both, Versions::default());
    assert_eq!((both.low(), both.high()), (Version::One, Version::Two));
    assert_eq!(both.find(2), Some(Version::Two));
    assert_eq!(
        (Versions::ONE.find(2), both.find(0), both.find(3)),
        (None, None, None)
    );
    assert!(Versions::TWO.serves(Version::Two) && !Versions::TWO.serves(Version::One));
    assert_eq!(
        (Version::One.min_inline(), Version::Two.min_inline()),
        (1024, 4096)
    );
}

proptest! {
    #[test]
    fn any_header_round_trips(
        pool in pool(), reply: bool, invalidate: u32, at in any::<prop::sample::Index>(), with in 1u8..,
    ) {
        let mut source = Source::new(&pool);
        let reads: Vec<ReadSegment> =
            (0..source.below(8)).map(|_| ReadSegment { position: 4, ..source.draw() }).collect();
        let segments: Vec<Segment> = (0..source.below(5)).map(|_| source.draw()).collect();
        let writes: Vec<&[Segment]> = (0..source.below(4)).map(|_| &segments[..]).collect();
        let chunks = CallChunks {
            reads: &reads,
            writes: &writes,
            reply: source.draw::<bool>().then_some(&segments),
        };
        let direction = if reply { MessageType::Reply } else { MessageType::Call };
        let header = Outgoing { direction, invalidate, ..outgoing(true) };
        let mut bytes = written(|out| {
            encode_header(out, &header, &chunks)?;
            out.u32(XID)?;
            out.u32(direction.number())
        });
        {
            let parsed = Header::parse(&bytes, &Rules::default()).unwrap();
            prop_assert_eq!(parsed.direction(), Some(direction));
            prop_assert_eq!(parsed.invalidate, invalidate);
            let lists = parsed.lists();
            prop_assert!(lists.reads.iter().eq(reads.iter().copied()));
            prop_assert!(lists.writes.iter().all(|chunk| chunk.iter().eq(segments.iter().copied())));
            prop_assert_eq!(lists.writes.len(), writes.len());
            prop_assert_eq!(lists.reply.map(|chunk| chunk.len()), chunks.reply.map(<[_]>::len));
        }
        for end in 0..bytes.len() {
            prop_assert!(Header::parse(&bytes[..end], &Rules::default()).is_err());
        }
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        walk(&bytes);
    }

    #[test]
    fn any_optional_message_round_trips(
        kind: u32,
        opaque in prop::collection::vec(any::<u8>(), 0..40),
        payload in prop::collection::vec(any::<u8>(), 0..40),
        reply: bool,
    ) {
        let direction = if reply { MessageType::Reply } else { MessageType::Call };
        let optional = Optional { direction, kind, opaque: &opaque, payload: &payload };
        let mut bytes = [0; 128];
        let mut out = Encoder::new(&mut bytes);
        // What a payload happens to begin with may be refused, and nothing else.
        if encode_optional(&mut out, XID, CREDITS, &optional).is_ok() {
            let parsed = parse(out.written()).map(|header| header.body);
            prop_assert_eq!(parsed, Ok(Body::Optional(optional)));
        } else {
            prop_assert_eq!(&payload[..4], &XID.to_be_bytes());
        }
    }

    #[test]
    fn any_error_round_trips(code in 0_u32..8, words in any::<[u32; 3]>(), truth: bool) {
        let words: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let tail = [&code.to_be_bytes()[..], &u32::from(truth).to_be_bytes(), &words[..]].concat();
        let bytes = [&hex(INVALID_OPTION)[..16], &tail].concat();
        let header = Header::parse(&bytes, &Rules::default()).unwrap();
        let Body::Error(body) = header.body else { panic!("{header:?}") };
        let again = written(|out| encode_error(out, &header.words, header.words.credits, &body));
        prop_assert_eq!(&again[..], &bytes[..again.len()]);
        prop_assert_eq!(Header::parse(&again, &Rules::default()), Ok(header));
    }

    #[test]
    fn any_bytes_of_version_two(mut bytes in prop::collection::vec(0u8..3, 36..200), kind in 0u32..8) {
        bytes[4..8].copy_from_slice(&2_u32.to_be_bytes());
        bytes[12..16].copy_from_slice(&kind.to_be_bytes());
        walk(&bytes);
    }
}
