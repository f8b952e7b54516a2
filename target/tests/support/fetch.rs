//! The requester's side of replies with read chunks (RFC 5666 section 3.8).

use millrace::call::Serve;
use millrace_reactor::fabric::WorkError;
use millrace_wire::rpcrdma::Segment;

use super::message::{Parsed, WISH, words};
use super::raw::World;

/// RDMA_DONE for a reply.
pub fn done(xid: u32) -> Vec<u8> {
    words(&[xid, 1, WISH, 3])
}

/// The segments of a reply's read list.
pub fn segments(reply: &Parsed) -> Vec<Segment> {
    reply.chunks.iter().map(|entry| entry.segment).collect()
}

/// Fetches a reply's read chunk; the whole RPC message, round-up included.
pub fn fetch(
    world: &mut World<impl Serve>,
    client: usize,
    reply: &Parsed,
) -> Result<Vec<u8>, WorkError> {
    let data = world.fetch(client, segments(reply))?;
    let position = reply.chunks[0].position as usize;
    let one = |entry: &millrace_wire::rpcrdma::ReadSegment| entry.position as usize == position;
    assert!(reply.chunks.iter().all(one), "one chunk");
    assert_eq!(reply.inline, position > 0, "a long message is at zero");
    let (before, after) = reply.message.split_at(position);
    let pad = if position > 0 {
        data.len().next_multiple_of(4) - data.len()
    } else {
        0
    };
    Ok([before, &data, &[0; 3][..pad], after].concat())
}
