//! Golden headers of version one, and ways to make and read others.

#![allow(dead_code)] // Each test file uses its part.

use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version1::Kind;
use millrace_wire::rpcrdma::{
    CallChunks, Fault, Header, Outgoing, ReadSegment, Reason, Refusal, Rules, Segment, Version,
    encode_header,
};
use millrace_wire::xdr::{Encode, Encoder, Error};

use super::hex;

pub const XID: u32 = 0x1122_3344;
pub const CREDITS: u32 = 32;

pub const NO_CHUNKS: &str = "11223344 00000001 00000020 00000000 00000000 00000000 00000000";
pub const DONE: &str = "11223344 00000001 00000020 00000003";
pub const VERSION_ERROR: &str = "11223344 00000007 00000020 00000004 00000001 00000001 00000002";
pub const CHUNK_ERROR: &str = "11223344 00000001 00000020 00000004 00000002";
pub const READS: &str = "11223344 00000001 00000020 00000000 00000001 00000078 000000a1 00000005
    00000000 00001000 00000001 00000078 000000a2 00000006 00000000 00002000 00000000 00000000
    00000000";
pub const WRITES: &str = "11223344 00000001 00000020 00000000 00000000 00000001 00000002 000000b1
    00001000 00000000 00000000 000000b2 00001000 00000000 00007000 00000000 00000001 00000001
    000000c1 00002000 00000000 00009000";
pub const PADDED: &str =
    "11223344 00000001 00000020 00000002 00000200 00000400 00000000 00000000 00000000";

/// The first words of an RPC message: the XID and the direction of a call.
pub const RPC: &str = "11223344 00000000";

pub fn written(fill: impl FnOnce(&mut Encoder<'_>) -> Result<(), Error>) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    let mut out = Encoder::new(&mut bytes);
    fill(&mut out).unwrap();
    out.written().to_vec()
}

pub fn message(header: &str, more: &str) -> Vec<u8> {
    hex(&format!("{header} {more}"))
}

/// Replaces the word that stands at a byte offset.
pub fn with_word(mut message: Vec<u8>, at: usize, word: u32) -> Vec<u8> {
    message[at..at + 4].copy_from_slice(&word.to_be_bytes());
    message
}

pub fn parse(bytes: &[u8]) -> Result<Header<'_>, Fault> {
    Header::parse_call(bytes, &Rules::default())
}

pub fn refusal(bytes: &[u8]) -> Refusal {
    match parse(bytes) {
        Err(Fault::Refuse { refusal, words }) => {
            assert_eq!(words.xid, XID);
            refusal
        }
        other => panic!("not refused: {other:?}"),
    }
}

pub fn reason(bytes: &[u8]) -> Reason {
    match refusal(bytes) {
        Refusal::Header(reason) => reason,
        other => panic!("not a bad header: {other}"),
    }
}

pub fn read(position: u32, handle: u32, length: u32, offset: u64) -> ReadSegment {
    ReadSegment {
        position,
        segment: Segment {
            handle,
            length,
            offset,
        },
    }
}

/// Appends a header of version one.
pub fn encode_one(out: &mut Encoder<'_>, inline: bool, chunks: &impl Encode) -> Result<(), Error> {
    let header = Outgoing {
        version: Version::One,
        xid: XID,
        credits: CREDITS,
        inline,
        direction: MessageType::Call,
        invalidate: 0,
    };
    encode_header(out, &header, chunks)
}

pub fn call(kind: Kind, chunks: &CallChunks<'_>) -> Vec<u8> {
    written(|out| {
        encode_one(out, kind == Kind::Message, chunks)?;
        out.raw(&hex(RPC))
    })
}

/// Reads all that there is to read: nothing may panic.
pub fn walk(bytes: &[u8]) {
    let Ok(header) = parse(bytes) else { return };
    let lists = header.lists();
    assert_eq!(lists.reads.iter().count(), lists.reads.len());
    assert_eq!(lists.writes.iter().count(), lists.writes.len());
    for chunk in lists.writes.iter().chain(lists.reply) {
        assert_eq!(chunk.filled(chunk.total()).count(), chunk.len());
    }
    for chunk in lists.reads.chunks() {
        assert!(chunk.segments().count() > 0);
    }
    let _ = header.direction();
}
