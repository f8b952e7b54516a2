//! RR1-PAD: round-up of chunks, and RDMA_MSGP.

use millrace_wire::nfs3::Procedure;
use millrace_wire::rpcrdma::CallChunks;

use super::bulk::{in_chunk, read};
use super::chunk::{content, with_reads, write_call, wrote};
use super::{Question, case};
use crate::conformance::message::{
    WISH, chunk_error, encoded, inline, is_chunk_error, kind, lengths, parse, results, words,
};
use crate::conformance::peer::entries;
use crate::conformance::probe::{Probe, pattern};
use crate::conformance::verdict::{Done, ensure, same, skip, word};

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-PAD-02",
        "a read chunk with its round-up is the same data",
        with_round_up,
    ),
    case(
        "RR1-PAD-03",
        "a read chunk of odd length needs no round-up",
        odd_length,
    ),
    case(
        "RR1-PAD-07",
        "bytes of the round-up are never looked at",
        any_pad,
    ),
    case(
        "RR1-PAD-08",
        "no round-up is written into a write chunk",
        exact_lengths,
    ),
    case(
        "RR1-PAD-11",
        "a segment for the round-up comes back empty",
        extra_segment,
    ),
    case(
        "RR1-PAD-15",
        "RDMA_MSGP is understood, or refused by ERR_CHUNK",
        padded_message,
    ),
    case(
        "RR1-PAD-18",
        "padding past the end is refused",
        padding_past_the_end,
    ),
    case(
        "OLD-05",
        "the round-up may stand in a segment of its own",
        own_segment,
    ),
];

fn write_padded(probe: &mut Probe, count: usize, cut: &[u32], pad: u8) -> Done {
    let file = probe.fixture()?.scratch;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let data = pattern(count);
    let mut memory = data.clone();
    memory.resize(cut.iter().sum::<u32>() as usize, pad);
    let source = peer.source(&memory)?;
    let length = u32::try_from(count).unwrap_or(0);
    let (call, position) = write_call(probe, file, 0, length);
    let reads = entries(position, &source.cut(cut));
    let answer = peer.exchange(&inline(&with_reads(&reads), &call))?;
    wrote(&answer, length)?;
    let found = content(probe, &mut peer, file, length)?;
    same("the file's content", &data, &found)
}

fn with_round_up(probe: &mut Probe) -> Done {
    for (count, length) in [(101, 104), (102, 104), (103, 104)] {
        write_padded(probe, count, &[length], 0)?;
    }
    Ok(())
}

fn odd_length(probe: &mut Probe) -> Done {
    for count in [97, 98, 99, 1] {
        write_padded(probe, count, &[u32::try_from(count).unwrap_or(0)], 0)?;
    }
    Ok(())
}

fn any_pad(probe: &mut Probe) -> Done {
    write_padded(probe, 101, &[104], 0xff)
}

fn own_segment(probe: &mut Probe) -> Done {
    write_padded(probe, 101, &[101, 3], 0xff)?;
    write_padded(probe, 99, &[50, 49, 1], 0)
}

fn exact_lengths(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    for count in [5_u32, 6, 7, 1001] {
        let mut peer = probe.peer()?;
        probe.warm(&mut peer)?;
        let sink = peer.sink(1024)?;
        let answer = read(probe, &mut peer, (file, 0, count), &[&[sink.whole()]], None)?;
        let parsed = parse(&answer)?;
        in_chunk(&parsed, count)?;
        let found = lengths(parsed.writes.first().map_or(&[][..], |chunk| chunk));
        ensure(
            found == [count],
            format!("length {count} expected in the write chunk, {found:?} came"),
        )?;
        let at = count as usize;
        same(
            "memory behind the data",
            &vec![0xee; 1024 - at],
            &sink.bytes()[at..],
        )?;
    }
    Ok(())
}

fn extra_segment(probe: &mut Probe) -> Done {
    let file = probe.fixture()?.file;
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    let sink = peer.sink(108)?;
    let segments = sink.cut(&[101, 4]);
    let answer = read(probe, &mut peer, (file, 0, 101), &[&segments], None)?;
    let parsed = parse(&answer)?;
    let found = lengths(parsed.writes.first().map_or(&[][..], |chunk| chunk));
    ensure(
        found == [101, 0],
        format!("lengths [101, 0] expected in the write chunk, {found:?} came"),
    )?;
    same("memory behind the data", &[0xee; 7], &sink.bytes()[101..])
}

/// An RDMA_MSGP of a NULL call.
fn padded(probe: &mut Probe, align: u32, threshold: u32) -> (u32, Vec<u8>) {
    let call = probe.call(Procedure::Null, &());
    let xid = word(&call, 0).unwrap_or(0);
    let lists = encoded(&CallChunks::default());
    let head = words(&[xid, 1, WISH, kind::MSGP, align, threshold]);
    (xid, [head, lists, call].concat())
}

fn padded_message(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let (xid, message) = padded(probe, 512, 1024);
    let answer = peer.exchange(&message)?;
    if is_chunk_error(&answer) {
        chunk_error(&answer, xid)?;
        probe.lives(&mut peer)?;
        return Err(skip("the server refuses RDMA_MSGP, as RFC 8166 has it"));
    }
    results(&parse(&answer)?.message).map(|_| ())
}

fn padding_past_the_end(probe: &mut Probe) -> Done {
    for (align, threshold) in [(0, 0), (u32::MAX, 0), (1 << 20, 0), (3, 1)] {
        let mut peer = probe.peer()?;
        let (xid, message) = padded(probe, align, threshold);
        let answer = peer.exchange(&message)?;
        if word(&answer, 0) != Some(xid) {
            return Err(crate::conformance::verdict::fail_by(
                "an answer for the call expected, not",
                &answer,
            ));
        }
        probe.lives(&mut peer)?;
    }
    Ok(())
}
