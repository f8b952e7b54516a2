//! RR1-CHUNK: read chunks of calls.

use millrace_wire::nfs3::{
    FileHandle, LookupResults, NameInDirectory, Procedure, ReadArguments, ReadResults, Stability,
    WriteArguments, WriteResults,
};
use millrace_wire::rpcrdma::{CallChunks, ReadSegment};
use millrace_wire::xdr::{Bulk, from_bytes};

use super::{Question, case};
use crate::conformance::message::{
    accepted, chunk_error, inline, is_chunk_error, nfs, parse, plain, results, rpc, words,
};
use crate::conformance::peer::{Peer, entries};
use crate::conformance::probe::{Probe, pattern};
use crate::conformance::verdict::{Done, Stop, ensure, fail, fail_by, same, word};

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-CHUNK-08",
        "segments of one position are joined in list order",
        joined,
    ),
    case(
        "RR1-CHUNK-10",
        "the length word stays inline, the data is in the chunk",
        written,
    ),
    case(
        "RR1-CHUNK-11",
        "length word and chunk disagree: nothing is executed",
        disagree,
    ),
    case(
        "RR1-CHUNK-28",
        "positions that are no multiple of four are ERR_CHUNK",
        odd_positions,
    ),
    case(
        "RR1-CHUNK-29",
        "positions behind the end execute nothing",
        unreachable,
    ),
    case(
        "RR1-CHUNK-32",
        "an item that is not eligible is put back or refused",
        not_eligible,
    ),
    case(
        "RR1-CHUNK-34",
        "sixteen segments in a chunk are served",
        sixteen,
    ),
    case(
        "RR1-CHUNK-35",
        "segments of no bytes are legal and skipped",
        empty_segments,
    ),
    case(
        "RR1-CHUNK-36",
        "a claim of 4 GiB is refused without harm",
        huge_claim,
    ),
    case(
        "RR1-SEC-17",
        "a chunk with a wrong key harms its connection only",
        wrong_key,
    ),
];

/// The lists of a call with a read list.
pub(super) fn with_reads(reads: &[ReadSegment]) -> CallChunks<'_> {
    CallChunks {
        reads,
        ..CallChunks::default()
    }
}

/// A WRITE whose data is elsewhere, and the position of the data.
pub(super) fn write_call(
    probe: &mut Probe,
    file: FileHandle,
    offset: u64,
    count: u32,
) -> (Vec<u8>, usize) {
    let arguments = WriteArguments {
        file,
        offset,
        count,
        stable: Stability::FileSync,
        data: Bulk::apart(count),
    };
    let call = probe.call(Procedure::Write, &arguments);
    let position = call.len();
    (call, position)
}

/// Passes if the answer is a WRITE that took this many bytes.
pub(super) fn wrote(answer: &[u8], count: u32) -> Done {
    let parsed = parse(answer)?;
    let done: WriteResults = from_bytes(results(&parsed.message)?)
        .map_err(|_| fail_by("results of WRITE expected, not", answer))?;
    let done = done.map_err(|failure| fail(format!("WRITE: {:?}", failure.status)))?;
    ensure(
        done.count == count,
        format!("{count} bytes to write, {} written", done.count),
    )
}

/// The beginning of a file, read inline.
pub(super) fn content(
    probe: &mut Probe,
    peer: &mut Peer,
    file: FileHandle,
    length: u32,
) -> Result<Vec<u8>, Stop> {
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: length,
    };
    let call = probe.call(Procedure::Read, &arguments);
    let parsed = parse(&peer.exchange(&plain(&call))?)?;
    let read: ReadResults<'_> = from_bytes(results(&parsed.message)?)
        .map_err(|_| fail_by("results of READ expected, not", &parsed.message))?;
    let read = read.map_err(|failure| fail(format!("READ: {:?}", failure.status)))?;
    let data = read.data.as_inline().unwrap_or_default();
    Ok(data.to_vec())
}

/// Writes a pattern through a read chunk cut in this way, and reads it back.
fn write_cut(probe: &mut Probe, cut: &[u32]) -> Done {
    let file = probe.fixture()?.scratch;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let count: u32 = cut.iter().sum();
    let mut data = pattern(count as usize);
    // Not what an earlier case wrote.
    data.iter_mut().for_each(|byte| *byte ^= cut.len() as u8);
    let source = peer.source(&data)?;
    let (call, position) = write_call(probe, file, 0, count);
    let reads = entries(position, &source.cut(cut));
    let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
    wrote(&answer, count)?;
    let found = content(probe, &mut peer, file, count)?;
    same("the file's content", &data, &found)
}

fn joined(probe: &mut Probe) -> Done {
    write_cut(probe, &[100, 200, 44, 156])
}

fn written(probe: &mut Probe) -> Done {
    write_cut(probe, &[1000])
}

fn sixteen(probe: &mut Probe) -> Done {
    write_cut(probe, &[32; 16])
}

fn empty_segments(probe: &mut Probe) -> Done {
    write_cut(probe, &[0, 100, 0, 200, 0])
}

/// Passes if the call was refused in whichever way.
fn refused(answer: &[u8]) -> Done {
    if is_chunk_error(answer) {
        return Ok(());
    }
    let parsed = parse(answer)?;
    if word(&parsed.message, 2) == Some(1) || accepted(&parsed.message)?.0 != 0 {
        return Ok(());
    }
    let results = accepted(&parsed.message)?.1;
    if word(results, 0) == Some(0) {
        return Err(fail_by("the call was executed", answer));
    }
    Ok(())
}

fn disagree(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.scratch;
    for length in [8, 100, 96, 108] {
        let mut peer = probe.peer()?;
        probe.warm(&mut peer)?;
        let before = content(probe, &mut peer, file, 200)?;
        let source = peer.source(&[0xdd; 200])?;
        let (call, position) = write_call(probe, file, 0, 104);
        let reads = entries(position, &[source.segment(0, length)]);
        let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
        refused(&answer)?;
        let after = content(probe, &mut peer, file, 200)?;
        same("the file's content", &before, &after)?;
    }
    Ok(())
}

fn odd_positions(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.scratch;
    for off in [1, 2, 3] {
        let mut peer = probe.peer()?;
        probe.warm(&mut peer)?;
        let source = peer.source(&[0xdd; 100])?;
        let (call, position) = write_call(probe, file, 0, 100);
        let reads = entries(position + off, &[source.whole()]);
        let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
        chunk_error(&answer, word(&call, 0).unwrap_or(0))?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn unreachable(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.scratch;
    for behind in [4, 64, 1 << 20] {
        let mut peer = probe.peer()?;
        probe.warm(&mut peer)?;
        let before = content(probe, &mut peer, file, 200)?;
        let source = peer.source(&[0xdd; 100])?;
        let (call, position) = write_call(probe, file, 0, 100);
        let reads = entries(position + behind, &[source.whole()]);
        let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
        refused(&answer)?;
        let after = content(probe, &mut peer, file, 200)?;
        same("the file's content", &before, &after)?;
    }
    Ok(())
}

fn not_eligible(probe: &mut Probe) -> Done {
    let fixture = probe.fixture()?;
    let entry = NameInDirectory {
        directory: fixture.directory,
        name: b"data",
    };
    let call = probe.call(Procedure::Lookup, &entry);
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    // The name of a LOOKUP, with the round-up behind it left inline by no one: it is 4 bytes long.
    let at = call.len() - 4;
    let source = peer.source(&call[at..])?;
    let reads = entries(at, &[source.whole()]);
    let answer = peer.exchange(&inline(&with_reads(&reads), &call[..at]))?;
    if is_chunk_error(&answer) {
        return probe.lives(&mut peer);
    }
    let parsed = parse(&answer)?;
    let (status, results) = accepted(&parsed.message)?;
    if status != 0 {
        return probe.lives(&mut peer);
    }
    let found: LookupResults =
        from_bytes(results).map_err(|_| fail_by("results of LOOKUP expected, not", &answer))?;
    match found {
        Ok(found) => ensure(found.object == fixture.file, "LOOKUP found another file"),
        Err(failure) => Err(fail(format!(
            "bytes went missing: LOOKUP of a file that is there: {:?}",
            failure.status
        ))),
    }
}

fn huge_claim(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.scratch;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&[0xdd; 100])?;
    let (call, position) = write_call(probe, file, 0, u32::MAX);
    let mut segment = source.whole();
    segment.length = u32::MAX;
    let reads = entries(position, &[segment]);
    peer.send(&inline(&with_reads(&reads), &call))?;
    match peer.answer() {
        Ok(answer) => refused(&answer)?,
        // Ending this connection is a refusal, too.
        Err(_) if peer.ended.is_some() => {}
        Err(stop) => return Err(stop),
    }
    let mut other = probe.peer()?;
    probe.lives(&mut other)
}

fn wrong_key(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.scratch;
    let mut other = probe.peer()?;
    probe.warm(&mut other)?;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let source = peer.source(&[0xdd; 100])?;
    let (call, position) = write_call(probe, file, 0, 100);
    let mut segment = source.whole();
    segment.handle ^= 0x5a5a_5a00;
    let reads = entries(position, &[segment]);
    peer.send(&inline(&with_reads(&reads), &call))?;
    if let Ok(answer) = peer.answer() {
        refused(&answer)?;
    }
    probe.lives(&mut other)?;
    let mut fresh = probe.peer()?;
    let caller = probe.caller;
    let call = rpc(caller, probe.xid(), nfs(Procedure::Null), &words(&[]));
    parse(&fresh.exchange(&plain(&call))?).map(|_| ())
}
