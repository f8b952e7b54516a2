//! RR1-CHUNK: write chunks, for the data of READ.

use millrace_wire::nfs3::{FileHandle, Procedure, ReadArguments, ReadResults, Status};
use millrace_wire::rpcrdma::{CallChunks, Segment};
use millrace_wire::xdr::from_bytes;

use super::{Question, case};
use crate::conformance::message::{Parsed, inline, is_chunk_error, lengths, parse, plain, results};
use crate::conformance::peer::{Memory, Peer};
use crate::conformance::probe::{Probe, pattern};
use crate::conformance::verdict::{Done, Stop, ensure, fail, fail_by, same, skip};

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-CHUNK-16",
        "the data of READ goes to the write chunk, even when small",
        small_read,
    ),
    case(
        "RR1-CHUNK-17",
        "the write list comes back with what was written",
        list_returned,
    ),
    case(
        "RR1-CHUNK-18",
        "segments are filled in order, without gaps",
        in_order,
    ),
    case(
        "RR1-CHUNK-20",
        "a chunk that is not used comes back empty",
        unused,
    ),
    case(
        "RR1-CHUNK-24",
        "nothing is written past the end of a chunk",
        too_small,
    ),
    case(
        "RR1-CHUNK-26",
        "without a write list the data comes inline",
        inline_read,
    ),
    case(
        "RR1-CHUNK-27",
        "all data is there when the reply comes",
        data_first,
    ),
    case(
        "RR1-SEC-12",
        "no key is invalidated that was not offered for it",
        no_invalidation,
    ),
];

/// A READ into write chunks.
pub(super) fn read(
    probe: &mut Probe,
    peer: &mut Peer,
    (file, offset, count): (FileHandle, u64, u32),
    writes: &[&[Segment]],
    reply: Option<&[Segment]>,
) -> Result<Vec<u8>, Stop> {
    let arguments = ReadArguments {
        file,
        offset,
        count,
    };
    let call = probe.call(Procedure::Read, &arguments);
    let chunks = CallChunks {
        reads: &[],
        writes,
        reply,
    };
    peer.exchange(&inline(&chunks, &call))
}

/// Passes if a READ succeeded with this many bytes, all of them in the chunk.
pub(super) fn in_chunk(parsed: &Parsed, count: u32) -> Done {
    let results = results(&parsed.message)?;
    // Status, attributes, count, end of file, length of the data, and no data.
    let attributes = if results.get(7) == Some(&1) { 84 } else { 0 };
    let expected = 8 + attributes + 12;
    ensure(results.get(..4) == Some(&[0; 4]), "READ did not succeed")?;
    if results.len() != expected {
        return Err(fail_by(
            format!(
                "{expected} bytes of results inline expected, {} came",
                results.len()
            ),
            results,
        ));
    }
    let at = 8 + attributes;
    same("count", &count.to_be_bytes(), &results[at..at + 4])?;
    same("length of data", &count.to_be_bytes(), &results[at + 8..])
}

fn read_into(probe: &mut Probe, length: u32, cut: &[u32]) -> Result<(Parsed, Memory), Stop> {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(cut.iter().sum::<u32>() as usize)?;
    let segments = sink.cut(cut);
    let answer = read(probe, &mut peer, (file, 0, length), &[&segments], None)?;
    let parsed = parse(&answer)?;
    ensure(parsed.inline, "the reduced reply is RDMA_MSG")?;
    in_chunk(&parsed, length)?;
    let returned = parsed
        .writes
        .first()
        .ok_or_else(|| fail("no write list in the reply"))?;
    let places = |segments: &[Segment]| -> Vec<(u32, u64)> {
        segments.iter().map(|s| (s.handle, s.offset)).collect()
    };
    ensure(
        places(returned) == places(&segments),
        "handles and offsets of the write chunk changed",
    )?;
    Ok((parsed, sink))
}

fn small_read(probe: &mut Probe) -> Done {
    let (_, sink) = read_into(probe, 8, &[512])?;
    same("the chunk's memory", &pattern(8), &sink.bytes()[..8])?;
    same("memory behind the data", &[0xee; 504], &sink.bytes()[8..])
}

fn expect_lengths(parsed: &Parsed, expected: &[u32]) -> Done {
    let found = lengths(&parsed.writes[0]);
    ensure(
        found == expected,
        format!("lengths {expected:?} expected in the write chunk, {found:?} came"),
    )
}

fn list_returned(probe: &mut Probe) -> Done {
    let (parsed, _) = read_into(probe, 1000, &[400, 400, 400, 400])?;
    ensure(parsed.writes.len() == 1, "one write chunk was offered")?;
    expect_lengths(&parsed, &[400, 400, 200, 0])
}

fn in_order(probe: &mut Probe) -> Done {
    let (parsed, sink) = read_into(probe, 3000, &[1000, 4, 1996, 1000])?;
    expect_lengths(&parsed, &[1000, 4, 1996, 0])?;
    same("the chunk's memory", &pattern(3000), &sink.bytes()[..3000])?;
    same(
        "memory behind the data",
        &[0xee; 1000],
        &sink.bytes()[3000..],
    )
}

fn unused(probe: &mut Probe) -> Done {
    let directory = probe.fixture()?.directory;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(512)?;
    let segments = sink.cut(&[256, 256]);
    // A directory cannot be read.
    let answer = read(probe, &mut peer, (directory, 0, 512), &[&segments], None)?;
    let parsed = parse(&answer)?;
    let found: ReadResults<'_> = from_bytes(results(&parsed.message)?)
        .map_err(|_| fail_by("results of READ expected, not", &answer))?;
    let status = found.err().map(|failure| failure.status);
    ensure(
        matches!(status, Some(Status::IsDirectory | Status::Invalid)),
        format!("READ of a directory ended in {status:?}"),
    )?;
    ensure(parsed.writes.len() == 1, "the write chunk is not repeated")?;
    expect_lengths(&parsed, &[0, 0])?;
    same("memory of the unused chunk", &[0xee; 512], &sink.bytes())
}

fn too_small(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(1024)?;
    let segments = [sink.segment(0, 512)];
    let answer = read(probe, &mut peer, (file, 0, 1000), &[&segments], None)?;
    same(
        "memory behind the chunk",
        &[0xee; 512],
        &sink.bytes()[512..],
    )?;
    if is_chunk_error(&answer) {
        return probe.lives(&mut peer);
    }
    let parsed = parse(&answer)?;
    let written: u32 = parsed.writes.iter().flatten().map(|s| s.length).sum();
    ensure(written <= 512, format!("{written} bytes claimed in 512"))?;
    if results(&parsed.message).is_ok_and(|results| results.get(..4) == Some(&[0; 4])) {
        // A short READ is as good.
        in_chunk(&parsed, written)?;
    }
    probe.lives(&mut peer)
}

fn inline_read(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let found = super::chunk::content(probe, &mut peer, file, 600)?;
    same("data of READ", &pattern(600), &found)?;
    // What does not fit inline fails alone.
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: 8000,
    };
    let call = probe.call(Procedure::Read, &arguments);
    let answer = peer.exchange(&plain(&call))?;
    ensure(
        answer.len() <= 4096,
        format!("a reply of {} bytes for 4096", answer.len()),
    )?;
    if !is_chunk_error(&answer) {
        let parsed = parse(&answer)?;
        if !parsed.reads.is_empty() {
            return Err(skip("the server answers by read chunks: see RR1-DONE-02"));
        }
        let found: ReadResults<'_> = from_bytes(results(&parsed.message)?)
            .map_err(|_| fail_by("results of READ expected, not", &answer))?;
        // A short READ is allowed, an NFS error as well.
        if let Ok(found) = found {
            let data = found.data.as_inline().unwrap_or_default();
            same("data of READ", &pattern(data.len()), data)?;
        }
    }
    probe.lives(&mut peer)
}

fn data_first(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    for _ in 0..20 {
        let sink = peer.sink(16_000)?;
        let answer = read(
            probe,
            &mut peer,
            (file, 0, 16_000),
            &[&[sink.whole()]],
            None,
        )?;
        in_chunk(&parse(&answer)?, 16_000)?;
        same("the chunk's memory", &pattern(16_000), &sink.bytes())?;
    }
    Ok(())
}

fn no_invalidation(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    for _ in 0..4 {
        let sink = peer.sink(512)?;
        read(probe, &mut peer, (file, 0, 512), &[&[sink.whole()]], None)?;
    }
    ensure(
        peer.invalidated.is_empty(),
        "the server invalidated a key of a client that does not know remote invalidation",
    )
}
