//! Messages of a requester, word for word.

use std::cell::Cell;

use millrace_wire::nfs3;
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, MessageType, OpaqueAuth};
use millrace_wire::rpcrdma::version1::Kind;
use millrace_wire::rpcrdma::{
    Body, CallChunks, Header, ReadSegment, Rules, Segment, Version, WriteChunk,
};
use millrace_wire::xdr::{Encode, Encoder};

/// The credits that requests wish for.
pub const WISH: u32 = 16;

/// A program that nobody serves, or that a script does.
pub const PROGRAM: (u32, u32, u32) = (0x2000_0000, 1, 7);

pub fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    loop {
        let mut out = Encoder::new(&mut bytes);
        if value.encode(&mut out).is_ok() {
            let length = out.position();
            bytes.truncate(length);
            return bytes;
        }
        assert!(
            bytes.len() < 4 << 20,
            "too long for any test, or no value at all"
        );
        bytes = vec![0; 8 * bytes.len()];
    }
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(*bytes[4 * index..].first_chunk().unwrap())
}

/// An RPC call of the super-user.
pub fn rpc(xid: u32, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
    let header = CallHeader {
        xid,
        program,
        version,
        procedure,
        credential: Credential::Sys(AuthSys {
            stamp: 0,
            machine: b"client",
            uid: 0,
            gid: 0,
            gids: Groups::new(),
        }),
        verifier: OpaqueAuth::NONE,
    };
    [encoded(&header), arguments.to_vec()].concat()
}

/// An RPC call of a procedure of NFS version 3.
pub fn nfs(xid: u32, procedure: nfs3::Procedure, arguments: &impl Encode) -> Vec<u8> {
    let program = (nfs3::PROGRAM, nfs3::VERSION, procedure.number());
    rpc(xid, program, &encoded(arguments))
}

pub fn null(xid: u32) -> Vec<u8> {
    nfs(xid, nfs3::Procedure::Null, &())
}

thread_local! {
    static SPOKEN: Cell<Version> = const { Cell::new(FIRST) };
}

/// The tests of the program `rr2` speak version two.
const FIRST: Version = match env!("CARGO_CRATE_NAME").as_bytes() {
    [b'r', b'r', b'2', ..] => Version::Two,
    _ => Version::One,
};

/// The version that messages are written and expected in.
pub fn version() -> Version {
    SPOKEN.get()
}

/// Speaks another version from here on.
pub fn speak(version: Version) {
    SPOKEN.set(version);
}

/// Bytes of a header without chunks.
pub fn header_length() -> usize {
    version().before_lists() + 12
}

/// A transport header of any type of message that has lists.
pub fn header(xid: u32, kind: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    nominating(xid, kind, 0, chunks)
}

/// The same with a key that the reply may invalidate, which version one has no word for.
pub fn nominating(xid: u32, kind: u32, key: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    let mut header = words(&[xid, version().number(), WISH, kind]);
    if version() == Version::Two {
        header.extend(words(&[0, key]));
    }
    [header, encoded(chunks)].concat()
}

/// RDMA_MSG: the transport header's XID is that of the RPC message.
pub fn inline(chunks: &CallChunks<'_>, rpc: &[u8]) -> Vec<u8> {
    let xid = word(rpc, 0);
    [header(xid, Kind::Message.number(), chunks), rpc.to_vec()].concat()
}

/// RDMA2_MSG that nominates a key.
pub fn nominate(key: u32, chunks: &CallChunks<'_>, rpc: &[u8]) -> Vec<u8> {
    let kind = Kind::Message.number();
    [nominating(word(rpc, 0), kind, key, chunks), rpc.to_vec()].concat()
}

/// RDMA2_OPTIONAL.
pub fn optional(xid: u32, reply: bool, kind: u32, opaque: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(opaque.len()).unwrap();
    let words = words(&[xid, 2, WISH, 5, u32::from(reply), kind, length]);
    let pad = &[0; 3][..opaque.len().wrapping_neg() % 4];
    [&words, opaque, pad, payload].concat()
}

/// Checks that a message is an error of version two: its code and what follows that.
#[track_caller]
pub fn check_error(bytes: &[u8], xid: u32, expected: &[u32]) {
    let (credits, length) = (word(bytes, 2), bytes.len() / 4);
    assert!(credits >= 1);
    let found: Vec<u32> = (4..length).map(|at| word(bytes, at)).collect();
    let words = [0, 1, 3].map(|at| word(bytes, at));
    assert_eq!((words, &found[..]), ([xid, 2, 4], expected), "{bytes:02x?}");
}

/// RDMA2_ERR_BAD_XDR.
pub const BAD_XDR: &[u32] = &[2];
/// RDMA2_ERR_INVAL_PROC.
pub const INVALID_PROCEDURE: &[u32] = &[4];
/// RDMA2_ERR_INVAL_OPTION.
pub const INVALID_OPTION: &[u32] = &[5];

/// RDMA_MSG without chunks.
pub fn plain(rpc: &[u8]) -> Vec<u8> {
    inline(&CallChunks::default(), rpc)
}

/// A call that wishes for credits.
pub fn wishing(xid: u32, wish: u32) -> Vec<u8> {
    asking(&rpc(xid, PROGRAM, &[]), wish)
}

/// RDMA_MSG without chunks that wishes for credits.
pub fn asking(rpc: &[u8], wish: u32) -> Vec<u8> {
    let mut message = plain(rpc);
    message[8..12].copy_from_slice(&wish.to_be_bytes());
    message
}

/// RDMA_NOMSG.
pub fn long(xid: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    header(xid, Kind::NoMessage.number(), chunks)
}

/// The entries of a read chunk.
pub fn reads(position: usize, segments: &[Segment]) -> Vec<ReadSegment> {
    let position = u32::try_from(position).unwrap();
    let entry = |&segment: &Segment| ReadSegment { position, segment };
    segments.iter().map(entry).collect()
}

/// A reply, taken apart.
#[derive(Debug)]
pub struct Parsed {
    pub xid: u32,
    pub credits: u32,
    /// RDMA_MSG, else RDMA_NOMSG.
    pub inline: bool,
    pub reads: usize,
    /// What is to be fetched, with its position.
    pub chunks: Vec<ReadSegment>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
    pub message: Vec<u8>,
    /// The key that the call nominated.
    pub invalidate: u32,
}

/// Parses a reply that is no error.
#[track_caller]
pub fn parse(bytes: &[u8]) -> Parsed {
    let header = Header::parse(bytes, &Rules::default()).expect("a sound header");
    assert_eq!(header.words.version, version().number());
    let direction = (version() == Version::Two).then_some(MessageType::Reply);
    assert_eq!(header.direction, direction);
    let lists = header.lists();
    let segments = |chunk: WriteChunk<'_>| chunk.iter().collect::<Vec<_>>();
    let (inline, message) = match header.body {
        Body::Message {
            message, padding, ..
        } => {
            assert_eq!(padding, None);
            (true, message.to_vec())
        }
        Body::NoMessage { .. } => (false, Vec::new()),
        other => panic!("no reply: {other:?}"),
    };
    Parsed {
        invalidate: header.invalidate,
        xid: header.words.xid,
        credits: header.words.credits,
        inline,
        reads: lists.reads.len(),
        chunks: lists.reads.iter().collect(),
        writes: lists.writes.iter().map(segments).collect(),
        reply: lists.reply.map(segments),
        message,
    }
}

/// The lengths of segments.
pub fn lengths(segments: &[Segment]) -> Vec<u32> {
    segments.iter().map(|segment| segment.length).collect()
}

/// Checks that a message is an ERR_CHUNK for a call, or what version two has for that: BAD_XDR or
/// CANT_REPLY.
#[track_caller]
pub fn check_chunk_error(bytes: &[u8], xid: u32) {
    assert!(is_chunk_error(bytes), "{bytes:02x?}");
    let (spoken, credits) = (word(bytes, 1), word(bytes, 2));
    assert_eq!((word(bytes, 0), spoken), (xid, version().number()));
    assert!(credits >= 1);
}

/// Whether a message is an error as [`check_chunk_error`] expects it.
pub fn is_chunk_error(bytes: &[u8]) -> bool {
    let is = |length, code| bytes.len() == length && (word(bytes, 3), word(bytes, 4)) == (4, code);
    is(20, 2) || (version() == Version::Two && is(32, 3))
}

/// The accept status of an RPC reply message.
#[track_caller]
pub fn accepted(message: &[u8]) -> u32 {
    // XID, reply, accepted, an empty verifier.
    assert_eq!(
        [1, 2, 3, 4].map(|index| word(message, index)),
        [1, 0, 0, 0],
        "not accepted: {message:02x?}"
    );
    word(message, 5)
}

pub const SUCCESS: u32 = 0;
pub const GARBAGE_ARGUMENTS: u32 = 4;
