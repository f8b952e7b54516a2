//! RR1-LONG: messages that are too long for a Send.

use millrace_wire::nfs3::{Procedure, ReaddirArguments, ReaddirplusArguments};
use millrace_wire::rpcrdma::{CallChunks, Segment};

use super::chunk::with_reads;
use super::{Question, case};
use crate::conformance::message::{
    Parsed, chunk_error, inline, is_chunk_error, lengths, long, parse, results,
};
use crate::conformance::peer::{Memory, Peer, Stated, entries};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{Done, Stop, ensure, fail, fail_by, same, skip, word};

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-LONG-02",
        "a call at position zero is served",
        at_position_zero,
    ),
    case(
        "RR1-LONG-03",
        "position zero may consist of several segments",
        several_segments,
    ),
    case(
        "RR1-LONG-06",
        "RDMA_MSG with an entry at position zero is ERR_CHUNK",
        both_forms,
    ),
    case(
        "RR1-LONG-07",
        "the Reply chunk of an inline reply comes back empty",
        reply_unused,
    ),
    case(
        "RR1-LONG-08",
        "a long reply is in the Reply chunk, from its XID on",
        long_reply,
    ),
    case(
        "RR1-LONG-13",
        "inline replies keep to what the client stated",
        inline_limit,
    ),
    case(
        "RR1-LONG-14",
        "a long reply without room for it is an error",
        no_room,
    ),
    case(
        "RR1-LONG-15",
        "segments of a Reply chunk are filled in order",
        reply_segments,
    ),
    case(
        "RR1-LONG-16",
        "a Reply chunk without segments counts as absent",
        empty_reply_chunk,
    ),
    case(
        "RR1-LONG-18",
        "one call may be long in both directions",
        both_directions,
    ),
    case(
        "RR1-LONG-22",
        "another XID inside a long call is ERR_CHUNK",
        other_xid,
    ),
];

fn long_call(probe: &mut Probe, cut: &[u32]) -> Done {
    let root = probe.fixture()?.root;
    let call = probe.call(Procedure::Getattr, &root);
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&call)?;
    let rest = u32::try_from(call.len()).unwrap_or(0) - cut.iter().sum::<u32>();
    let cut = [cut, &[rest]].concat();
    let reads = entries(0, &source.cut(&cut));
    let xid = word(&call, 0).unwrap_or(0);
    let answer = peer.exchange(&long(xid, &with_reads(&reads)))?;
    let parsed = parse(&answer)?;
    same("rdma_xid", &xid.to_be_bytes(), &parsed.xid.to_be_bytes())?;
    let results = results(&parsed.message)?;
    same(
        "status of GETATTR",
        &[0; 4],
        results.get(..4).unwrap_or(&[]),
    )
}

fn at_position_zero(probe: &mut Probe) -> Done {
    long_call(probe, &[])
}

fn several_segments(probe: &mut Probe) -> Done {
    long_call(probe, &[4, 20, 1, 7])
}

fn both_forms(probe: &mut Probe) -> Done {
    let call = probe.null();
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&call)?;
    let reads = entries(0, &[source.whole()]);
    let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
    chunk_error(&answer, word(&call, 0).unwrap_or(0))?;
    probe.lives(&mut peer)
}

/// Offers a Reply chunk with a call.
fn with_reply<'c>(reply: &'c [Segment]) -> CallChunks<'c> {
    CallChunks {
        reply: Some(reply),
        ..CallChunks::default()
    }
}

fn reply_unused(probe: &mut Probe) -> Done {
    let call = probe.null();
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(512)?;
    let segments = sink.cut(&[256, 256]);
    let parsed = parse(&peer.exchange(&inline(&with_reply(&segments), &call))?)?;
    if !parsed.inline {
        return Err(skip(
            "the server uses a Reply chunk wherever one is offered",
        ));
    }
    let found = parsed
        .reply
        .ok_or_else(|| fail("the Reply chunk is not repeated"))?;
    ensure(
        lengths(&found) == [0, 0],
        format!("an empty Reply chunk expected, not {:?}", lengths(&found)),
    )?;
    same("memory of the unused chunk", &[0xee; 512], &sink.bytes())
}

/// A listing that does not fit inline.
fn listing(probe: &mut Probe, count: u32) -> Result<Vec<u8>, Stop> {
    let directory = probe.fixture()?.directory;
    let arguments = ReaddirArguments {
        directory,
        cookie: 0,
        verifier: [0; 8],
        count,
    };
    Ok(probe.call(Procedure::Readdir, &arguments))
}

/// The message in the Reply chunk.
fn from_chunk(parsed: &Parsed, sink: &Memory) -> Result<Vec<u8>, Stop> {
    ensure(!parsed.inline, "RDMA_NOMSG expected")?;
    let chunk = parsed
        .reply
        .as_ref()
        .ok_or_else(|| fail("no Reply chunk"))?;
    let length: u32 = lengths(chunk).iter().sum();
    let bytes = sink.bytes();
    let message = bytes.get(..length as usize);
    let message = message.ok_or_else(|| fail("more claimed than there is room"))?;
    same(
        "memory behind the reply",
        &vec![0xee; bytes.len() - message.len()],
        &bytes[message.len()..],
    )?;
    Ok(message.to_vec())
}

/// Passes if this is the successful reply to a READDIR that is too long for 4096 bytes.
fn long_listing(call: &[u8], message: &[u8]) -> Done {
    same(
        "xid in the Reply chunk",
        &call[..4],
        message.get(..4).unwrap_or(&[]),
    )?;
    let results = results(message)?;
    same(
        "status of READDIR",
        &[0; 4],
        results.get(..4).unwrap_or(&[]),
    )?;
    ensure(
        message.len() > 4096,
        format!("the listing has only {} bytes", message.len()),
    )
}

fn list_into(probe: &mut Probe, cut: &[u32]) -> Result<(Vec<u8>, Parsed, Memory), Stop> {
    let call = listing(probe, 8000)?;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(cut.iter().sum::<u32>() as usize)?;
    let segments = sink.cut(cut);
    let answer = peer.exchange(&inline(&with_reply(&segments), &call))?;
    if is_chunk_error(&answer) {
        return Err(fail_by("a long reply expected, not ERR_CHUNK", &answer));
    }
    Ok((call, parse(&answer)?, sink))
}

fn long_reply(probe: &mut Probe) -> Done {
    let (call, parsed, sink) = list_into(probe, &[16_384])?;
    long_listing(&call, &from_chunk(&parsed, &sink)?)
}

fn reply_segments(probe: &mut Probe) -> Done {
    let (call, parsed, sink) = list_into(probe, &[1000, 4, 3000, 8000, 500])?;
    let message = from_chunk(&parsed, &sink)?;
    long_listing(&call, &message)?;
    let found = lengths(parsed.reply.as_deref().unwrap_or(&[]));
    let rest = u32::try_from(message.len()).unwrap_or(0) - 4004;
    let expected = [1000, 4, 3000, rest, 0];
    ensure(
        found == expected,
        format!("lengths {expected:?} expected in the Reply chunk, {found:?} came"),
    )
}

fn inline_limit(probe: &mut Probe) -> Done {
    // Whatever is asked for, nothing longer comes than was agreed.
    for (inline_size, most) in [(None, 1024), (Some(1024), 1024), (Some(4096), 4096)] {
        let stated = Stated {
            inline: inline_size,
            ..Stated::default()
        };
        let mut peer = probe.peer_with(stated)?;
        probe.warm(&mut peer)?;
        for count in [700, 900, 1100, 3000, 3900, 4200, 8000] {
            let call = listing(probe, count)?;
            let answer = peer.exchange(&inline(&CallChunks::default(), &call))?;
            ensure(
                answer.len() <= most,
                format!(
                    "a reply of {} bytes where {most} were agreed ({})",
                    answer.len(),
                    inline_size.map_or("without private data".to_owned(), |size| format!(
                        "the client stated {size}"
                    )),
                ),
            )?;
        }
    }
    Ok(())
}

/// Passes if the answer is an error of the transport, or one that fits.
fn no_listing(peer: &mut Peer, call: &[u8], chunks: &CallChunks<'_>) -> Done {
    let answer = peer.exchange(&inline(chunks, call))?;
    if is_chunk_error(&answer) {
        return chunk_error(&answer, word(call, 0).unwrap_or(0));
    }
    let parsed = parse(&answer)?;
    if !parsed.reads.is_empty() {
        return Err(skip("the server answers by read chunks: see RR1-DONE-02"));
    }
    ensure(
        parsed.inline && answer.len() <= 4096,
        "a reply that does not fit",
    )
}

fn no_room(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let call = listing(probe, 8000)?;
    no_listing(&mut peer, &call, &CallChunks::default())?;
    probe.lives(&mut peer)?;
    let sink = peer.sink(2048)?;
    let call = listing(probe, 8000)?;
    no_listing(&mut peer, &call, &with_reply(&[sink.segment(0, 512)]))?;
    same(
        "memory behind the chunk",
        &[0xee; 1536],
        &sink.bytes()[512..],
    )?;
    probe.lives(&mut peer)
}

fn empty_reply_chunk(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let call = probe.null();
    let parsed = parse(&peer.exchange(&inline(&with_reply(&[]), &call))?)?;
    ensure(parsed.inline, "a reply that fits is inline")?;
    let returned = parsed.reply.map_or(0, |chunk| chunk.len());
    ensure(returned == 0, "segments came back that were not offered")
}

fn both_directions(probe: &mut Probe) -> Done {
    let directory = probe.fixture()?.directory;
    let arguments = ReaddirplusArguments {
        directory,
        cookie: 0,
        verifier: [0; 8],
        dircount: 8000,
        maxcount: 16_000,
    };
    let call = probe.call(Procedure::Readdirplus, &arguments);
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&call)?;
    let sink = peer.sink(20_000)?;
    let reads = entries(0, &[source.whole()]);
    let reply = [sink.whole()];
    let chunks = CallChunks {
        reads: &reads,
        writes: &[],
        reply: Some(&reply),
    };
    let answer = peer.exchange(&long(word(&call, 0).unwrap_or(0), &chunks))?;
    let parsed = parse(&answer)?;
    long_listing(&call, &from_chunk(&parsed, &sink)?)
}

fn other_xid(probe: &mut Probe) -> Done {
    let call = probe.null();
    let xid = probe.xid();
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&call)?;
    let reads = entries(0, &[source.whole()]);
    let answer = peer.exchange(&long(xid, &with_reads(&reads)))?;
    chunk_error(&answer, xid)?;
    probe.lives(&mut peer)
}
