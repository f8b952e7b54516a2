//! Transport headers, as a responder and as a requester read them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_wire::rpcrdma::version1::{Body, Fault, Header, encode_header};
use millrace_wire::rpcrdma::{FirstWords, RDMA_ERROR, ReadSegment, ReplyChunks, Rules};
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
    if !matches!(header.body, Body::Message { .. } | Body::NoMessage { .. }) {
        return;
    }
    let lists = header.lists();
    let taken: Vec<Taken> = lists
        .reads
        .chunks()
        .filter_map(|chunk| chunk.taken())
        .collect();
    assert!(taken.is_sorted_by(|one, next| one.position < next.position));

    // What a responder returns parses, and has the same shape.
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
    encode_header(&mut out, header.words.xid, 1, true, &chunks).expect("room for the same lists");
    let returned = Header::parse(out.written(), &rules)
        .expect("own headers parse")
        .lists();
    assert!(returned.reads.iter().eq(reads));
    assert_eq!(returned.writes.len(), lists.writes.len());
    for ((back, sent), written) in returned.writes.iter().zip(&lists.writes).zip(written) {
        assert_eq!((back.len(), back.total()), (sent.len(), written));
    }
    assert_eq!(
        returned.reply.map(|chunk| chunk.len()),
        lists.reply.map(|chunk| chunk.len())
    );
});

/// Every message has an answer, but those that are too short and those that are errors.
fn check_answer(message: &[u8], fault: &Fault) {
    let mut bytes = [0; 28];
    let mut out = Encoder::new(&mut bytes);
    let answered = fault
        .answer(1, (1, 2), &mut out)
        .expect("room for every answer");
    match FirstWords::read(message) {
        Some(words) if answered => {
            let answer = FirstWords::read(out.written()).expect("an answer has first words");
            assert_eq!((answer.xid, answer.version), (words.xid, words.version));
        }
        Some(words) => assert!(message.len() < 28 || words.kind == RDMA_ERROR),
        None => assert!(!answered),
    }
}
