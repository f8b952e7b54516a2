//! RR1-DONE: replies by read chunks, if the server makes them (RFC 5666 section 3.8).

use millrace_wire::nfs3::{Procedure, ReadArguments};
use millrace_wire::rpcrdma::Segment;

use super::{Question, case};
use crate::conformance::message::{WISH, is_chunk_error, kind, parse, plain, words};
use crate::conformance::peer::Peer;
use crate::conformance::probe::{Probe, pattern};
use crate::conformance::verdict::{Done, Stop, ensure, fail, same, skip};

/// Bytes to read, too many for an inline reply.
const COUNT: usize = 8000;

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-DONE-02",
        "a reply without room is returned by read chunks",
        fetched,
    ),
    case("RR1-DONE-05", "RDMA_DONE gets no answer", no_answer),
    case(
        "RR1-DONE-06",
        "memory of a reply is dead after its RDMA_DONE",
        dead_after_done,
    ),
];

/// A READ without any chunks, answered by a read list.
fn exposed(probe: &mut Probe, peer: &mut Peer) -> Result<(u32, Vec<Segment>), Stop> {
    let file = probe.fixture()?.file;
    probe.warm(peer)?;
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: COUNT as u32,
    };
    let call = probe.call(Procedure::Read, &arguments);
    let not = "the server does not answer by read chunks, as RFC 8166 has it";
    // Whatever else it does instead is the business of RR1-CHUNK-26.
    let Ok(answer) = peer.exchange(&plain(&call)) else {
        return Err(skip(not));
    };
    if is_chunk_error(&answer) {
        return Err(skip(not));
    }
    let parsed = parse(&answer)?;
    if parsed.reads.is_empty() {
        return Err(skip(not));
    }
    let segments = parsed.reads.iter().map(|entry| entry.segment).collect();
    Ok((parsed.xid, segments))
}

/// Fetches all of it.
fn fetch(peer: &mut Peer, segments: &[Segment]) -> Result<Vec<u8>, Stop> {
    let mut bytes = Vec::new();
    for segment in segments {
        let piece = peer.fetch(segment)?;
        bytes.extend(piece.map_err(|error| fail(format!("an RDMA Read failed: {error}")))?);
    }
    Ok(bytes)
}

fn done(xid: u32) -> Vec<u8> {
    words(&[xid, 1, WISH, kind::DONE])
}

fn fetched(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let (xid, segments) = exposed(probe, &mut peer)?;
    let bytes = fetch(&mut peer, &segments)?;
    let data = bytes
        .get(bytes.len().saturating_sub(COUNT)..)
        .unwrap_or_default();
    same("data in the read chunks", &pattern(COUNT), data)?;
    peer.send(&done(xid))?;
    probe.lives(&mut peer)
}

fn no_answer(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for _ in 0..5 {
        let (xid, segments) = exposed(probe, &mut peer)?;
        fetch(&mut peer, &segments)?;
        peer.send(&done(xid))?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn dead_after_done(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let (xid, segments) = exposed(probe, &mut peer)?;
    fetch(&mut peer, &segments)?;
    peer.send(&done(xid))?;
    // When this is answered, the message before it has been seen to.
    probe.lives(&mut peer)?;
    let late = peer.fetch(&segments[0])?;
    ensure(late.is_err(), "memory can be read after its RDMA_DONE")?;
    let mut fresh = probe.peer()?;
    probe.lives(&mut fresh)
}
