//! Messages of a requester, word for word, and replies taken apart.

use millrace_wire::nfs3;
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, OpaqueAuth};
use millrace_wire::rpcrdma::{Body, CallChunks, Header, ReadSegment, Rules, Segment, WriteChunk};
use millrace_wire::xdr::{Encode, Encoder};

use super::verdict::{Done, Stop, Want, consists_of, fail, fail_by, word};

/// The credits that messages wish for.
pub(crate) const WISH: u32 = 16;

/// Message types of version one, and of version two as far as they exist there.
pub(crate) mod kind {
    pub const MSG: u32 = 0;
    pub const NOMSG: u32 = 1;
    pub const MSGP: u32 = 2;
    pub const DONE: u32 = 3;
    pub const ERROR: u32 = 4;
}

/// Program, version and procedure.
pub(crate) type Target = (u32, u32, u32);

/// A program that no server has.
pub(crate) const NOBODY: Target = (0x2000_0000, 1, 7);

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
}

pub(crate) fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut bytes = vec![0; 8 << 10];
    loop {
        let mut out = Encoder::new(&mut bytes);
        if value.encode(&mut out).is_ok() {
            let length = out.position();
            bytes.truncate(length);
            return bytes;
        }
        bytes = vec![0; 8 * bytes.len()];
    }
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An RPC call with a credential of AUTH_SYS.
pub(crate) fn rpc(caller: Caller, xid: u32, target: Target, arguments: &[u8]) -> Vec<u8> {
    let credential = Credential::Sys(AuthSys {
        stamp: 0,
        machine: b"probe",
        uid: caller.uid,
        gid: caller.gid,
        gids: Groups::new(),
    });
    rpc_as(credential, xid, target, arguments)
}

/// An RPC call with any credential.
pub(crate) fn rpc_as(
    credential: Credential<'_>,
    xid: u32,
    (program, version, procedure): Target,
    arguments: &[u8],
) -> Vec<u8> {
    let header = CallHeader {
        xid,
        program,
        version,
        procedure,
        credential,
        verifier: OpaqueAuth::NONE,
    };
    [encoded(&header), arguments.to_vec()].concat()
}

/// A procedure of NFS version 3.
pub(crate) fn nfs(procedure: nfs3::Procedure) -> Target {
    (nfs3::PROGRAM, nfs3::VERSION, procedure.number())
}

/// A transport header of version one of any type.
pub(crate) fn header(xid: u32, kind: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    [words(&[xid, 1, WISH, kind]), encoded(chunks)].concat()
}

/// RDMA_MSG.
pub(crate) fn inline(chunks: &CallChunks<'_>, rpc: &[u8]) -> Vec<u8> {
    let xid = word(rpc, 0).unwrap_or(0);
    [header(xid, kind::MSG, chunks), rpc.to_vec()].concat()
}

/// RDMA_MSG without chunks.
pub(crate) fn plain(rpc: &[u8]) -> Vec<u8> {
    inline(&CallChunks::default(), rpc)
}

/// RDMA_NOMSG.
pub(crate) fn long(xid: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    header(xid, kind::NOMSG, chunks)
}

/// A header of version two with lists: direction CALL.
pub(crate) fn header_two(xid: u32, kind: u32, invalidate: u32, chunks: &CallChunks<'_>) -> Vec<u8> {
    [words(&[xid, 2, WISH, kind, 0, invalidate]), encoded(chunks)].concat()
}

/// RDMA2_MSG.
pub(crate) fn inline_two(invalidate: u32, chunks: &CallChunks<'_>, rpc: &[u8]) -> Vec<u8> {
    let xid = word(rpc, 0).unwrap_or(0);
    [header_two(xid, kind::MSG, invalidate, chunks), rpc.to_vec()].concat()
}

/// A reply, taken apart.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub xid: u32,
    pub version: u32,
    pub credits: u32,
    /// RDMA_MSG, else RDMA_NOMSG.
    pub inline: bool,
    /// The word of version two.
    pub invalidate: u32,
    pub reads: Vec<ReadSegment>,
    pub writes: Vec<Vec<Segment>>,
    pub reply: Option<Vec<Segment>>,
    pub message: Vec<u8>,
}

/// Parses a reply that is no error.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Stop> {
    let header = Header::parse(bytes, &Rules::default())
        .map_err(|_| fail_by("the reply's header cannot be parsed", bytes))?;
    let lists = header.lists();
    let segments = |chunk: WriteChunk<'_>| chunk.iter().collect::<Vec<_>>();
    let (inline, message) = match header.body {
        Body::Message { message, .. } => (true, message.to_vec()),
        Body::NoMessage { .. } => (false, Vec::new()),
        _ => return Err(fail_by("a reply expected, not", bytes)),
    };
    Ok(Parsed {
        xid: header.words.xid,
        version: header.words.version,
        credits: header.words.credits,
        inline,
        invalidate: header.invalidate,
        reads: lists.reads.iter().collect(),
        writes: lists.writes.iter().map(segments).collect(),
        reply: lists.reply.map(segments),
        message,
    })
}

/// The lengths of segments.
pub(crate) fn lengths(segments: &[Segment]) -> Vec<u32> {
    segments.iter().map(|segment| segment.length).collect()
}

/// Passes if a message is the ERR_CHUNK for a call.
pub(crate) fn chunk_error(bytes: &[u8], xid: u32) -> Done {
    consists_of(
        bytes,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(1)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::ERROR)),
            ("rdma_err", Want::Is(2)),
        ],
    )
}

/// Whether a message is an ERR_CHUNK.
pub(crate) fn is_chunk_error(bytes: &[u8]) -> bool {
    bytes.len() == 20 && (word(bytes, 3), word(bytes, 4)) == (Some(kind::ERROR), Some(2))
}

/// Accept status and results of an RPC reply.
pub(crate) fn accepted(message: &[u8]) -> Result<(u32, &[u8]), Stop> {
    let not = || fail_by("an accepted RPC reply expected, not", message);
    if (word(message, 1), word(message, 2)) != (Some(1), Some(0)) {
        return Err(not());
    }
    let verifier = word(message, 4).ok_or_else(not)? as usize;
    let at = 20 + verifier.next_multiple_of(4);
    let status = message.get(at..at + 4).ok_or_else(not)?;
    let status = u32::from_be_bytes(status.try_into().map_err(|_| not())?);
    Ok((status, &message[at + 4..]))
}

/// The results of a call that succeeded on the level of RPC.
pub(crate) fn results(message: &[u8]) -> Result<&[u8], Stop> {
    let (status, results) = accepted(message)?;
    if status == 0 {
        Ok(results)
    } else {
        Err(fail(format!("RPC answered with accept status {status}")))
    }
}

/// Accept status of RPC.
pub(crate) const PROG_UNAVAIL: u32 = 1;
pub(crate) const PROG_MISMATCH: u32 = 2;
pub(crate) const PROC_UNAVAIL: u32 = 3;
pub(crate) const GARBAGE_ARGS: u32 = 4;
