//! Transport headers of both versions, as a responder and as a requester read them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{
    Body, ERROR_MAX, Fault, FirstWords, Header, Outgoing, RDMA_ERROR, ReadSegment, ReplyChunks,
    Rules, Version, Versions, encode_header, version2,
};
use millrace_wire::xdr::{Encoder, Taken};

fuzz_target!(|message: &[u8]| {
    let rules = Rules {
        segments_per_chunk: 16,
        ..Rules::default()
    };
    let header = match Header::parse_call(message, &rules) {
        Ok(header) => header,
        Err(fault) => return check_answer(message, &fault),
    };
    match header.body {
        Body::Message { .. } | Body::NoMessage { .. } => check_lists(message, &header, &rules),
        Body::Optional(optional) => {
            let mut bytes = vec![0; message.len() + 4];
            let mut out = Encoder::new(&mut bytes);
            let FirstWords { xid, credits, .. } = header.words;
            version2::encode_optional(&mut out, xid, credits, &optional)
                .expect("room for the same message");
            let returned = Header::parse_call(out.written(), &rules).expect("own messages parse");
            assert_eq!(returned.body, header.body);
        }
        Body::Done | Body::Error(_) => {}
    }
});

/// What a responder returns parses, and has the same shape.
fn check_lists(message: &[u8], header: &Header<'_>, rules: &Rules) {
    let lists = header.lists();
    let taken: Vec<Taken> = lists
        .reads
        .chunks()
        .filter_map(|chunk| chunk.taken())
        .collect();
    assert!(taken.is_sorted_by(|one, next| one.position < next.position));

    let reads: Vec<ReadSegment> = lists.reads.iter().collect();
    let written: Vec<u64> = lists.writes.iter().map(|chunk| chunk.total() / 2).collect();
    let reply_written = lists.reply.map_or(0, |chunk| chunk.total());
    let chunks = ReplyChunks {
        reads: &reads,
        call: &lists,
        written: &written,
        reply_written,
    };
    let mut bytes = vec![0; message.len() + 64];
    let mut out = Encoder::new(&mut bytes);
    let outgoing = Outgoing {
        version: header.version,
        xid: header.words.xid,
        credits: 1,
        inline: false,
        direction: MessageType::Reply,
        invalidate: header.invalidate,
    };
    encode_header(&mut out, &outgoing, &chunks).expect("room for the same lists");
    let returned = Header::parse(out.written(), rules).expect("own headers parse");
    assert_eq!(
        (returned.version, returned.invalidate),
        (header.version, header.invalidate)
    );
    if header.version == Version::Two {
        assert_eq!(returned.direction(), Some(MessageType::Reply));
    }
    let returned = returned.lists();
    assert!(returned.reads.iter().eq(reads));
    assert_eq!(returned.writes.len(), lists.writes.len());
    for ((back, sent), written) in returned.writes.iter().zip(&lists.writes).zip(written) {
        assert_eq!((back.len(), back.total()), (sent.len(), written));
    }
    assert_eq!(
        returned.reply.map(|chunk| chunk.len()),
        lists.reply.map(|chunk| chunk.len())
    );
}

/// Every message has an answer, but those that are too short, those that are errors, and those of
/// version two that call themselves replies.
fn check_answer(message: &[u8], fault: &Fault) {
    let mut bytes = [0; ERROR_MAX];
    let mut out = Encoder::new(&mut bytes);
    let answered = fault
        .answer(1, Versions::BOTH, &mut out)
        .expect("room for every answer");
    match FirstWords::read(message) {
        Some(words) if answered => {
            let answer = Header::parse(out.written(), &Rules::default()).expect("an answer parses");
            assert_eq!(answer.words.kind, RDMA_ERROR);
            assert_eq!(
                (answer.words.xid, answer.words.version),
                (words.xid, words.version)
            );
        }
        Some(words) => {
            let reply = words.version == 2 && message.get(16..20) == Some(&[0, 0, 0, 1]);
            assert!(message.len() < 28 || words.kind == RDMA_ERROR || reply);
        }
        None => assert!(!answered),
    }
}
