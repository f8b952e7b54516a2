//! RR2: version two, if the server has it.

use millrace_wire::nfs3::{Procedure, ReadArguments};
use millrace_wire::rpcrdma::CallChunks;

use super::bulk::in_chunk;
use super::{Question, case};
use crate::conformance::message::{
    Parsed, WISH, header_two, inline_two, is_chunk_error, kind, parse, plain, results, words,
};
use crate::conformance::peer::{Peer, Stated};
use crate::conformance::probe::{Probe, pattern};
use crate::conformance::verdict::{
    Done, Stop, Want, consists_of, ensure, fail_by, same, skip, word,
};

pub(super) const CASES: &[Question] = &[
    case(
        "RR2-HDR-01",
        "RDMA2_MSG has direction, handle, and three lists",
        layout,
    ),
    case("RR2-HDR-06", "chunks are those of version one", chunks),
    case(
        "RR2-HDR-07",
        "a message of 4096 bytes is taken",
        large_message,
    ),
    case("RR2-HDR-15", "replies grant credits", credits),
    case(
        "RR2-NEG-03",
        "a call of version two is answered in version two",
        answered_in_two,
    ),
    case(
        "RR2-NEG-04",
        "a server of version one answers ERR_VERS",
        version_one_only,
    ),
    case(
        "RR2-NEG-10",
        "a reply has the version of its call",
        version_of_its_call,
    ),
    case(
        "RR2-NEG-11",
        "ERR_VERS says which versions there are",
        versions_said,
    ),
    case(
        "RR2-INV-03",
        "a reply repeats the handle of its call",
        handle_repeated,
    ),
    case(
        "RR2-INV-04",
        "without a handle nothing is invalidated",
        nothing_invalidated,
    ),
    case(
        "RR2-INV-05",
        "no other handle than the named one is invalidated",
        named_handle,
    ),
    case(
        "RR2-INV-06",
        "a handle that the call does not have is not invalidated",
        unknown_handle,
    ),
];

/// A NULL call of version two, taken.
fn null_two(probe: &mut Probe, peer: &mut Peer) -> Result<(u32, Vec<u8>), Stop> {
    let call = probe.null();
    let answer = peer.exchange(&inline_two(0, &CallChunks::default(), &call))?;
    Ok((word(&call, 0).unwrap_or(0), answer))
}

fn layout(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    let (xid, answer) = null_two(probe, &mut peer)?;
    consists_of(
        &answer,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(2)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::MSG)),
            ("rdma_direction", Want::Is(1)),
            ("rdma_inv_handle", Want::Is(0)),
            ("read list", Want::Is(0)),
            ("write list", Want::Is(0)),
            ("Reply chunk", Want::Is(0)),
            ("xid", Want::Is(xid)),
            ("mtype", Want::Is(1)),
            ("reply_stat", Want::Is(0)),
            ("verifier flavor", Want::Is(0)),
            ("verifier length", Want::Is(0)),
            ("accept_stat", Want::Is(0)),
        ],
    )
}

/// A READ of version two into a write chunk of the given handle.
fn read_two(
    probe: &mut Probe,
    peer: &mut Peer,
    invalidate: impl FnOnce(u32) -> u32,
) -> Result<(Vec<u8>, u32), Stop> {
    let file = probe.fixture()?.file;
    let sink = peer.sink(1000)?;
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: 1000,
    };
    let call = probe.call(Procedure::Read, &arguments);
    let segments = sink.cut(&[600, 400]);
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    let handle = invalidate(sink.key());
    let answer = peer.exchange(&inline_two(handle, &chunks, &call))?;
    if let Ok(parsed) = parse(&answer)
        && results(&parsed.message).is_ok()
    {
        same("the chunk's memory", &pattern(1000), &sink.bytes())?;
    }
    Ok((answer, sink.key()))
}

fn two(answer: &[u8]) -> Result<Parsed, Stop> {
    let parsed = parse(answer)?;
    if parsed.version == 2 {
        Ok(parsed)
    } else {
        Err(fail_by("a reply of version two expected, not", answer))
    }
}

fn chunks(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    null_two(probe, &mut peer)?;
    let (answer, _) = read_two(probe, &mut peer, |_| 0)?;
    let parsed = two(&answer)?;
    in_chunk(&parsed, 1000)?;
    let found = parsed.writes.first().map(|chunk| {
        let lengths: Vec<u32> = chunk.iter().map(|segment| segment.length).collect();
        lengths
    });
    ensure(
        found.as_deref() == Some(&[600, 400]),
        format!("lengths [600, 400] expected in the write chunk, {found:?} came"),
    )
}

fn large_message(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    for inline in [Some(4096), None] {
        let stated = Stated {
            inline,
            ..Stated::default()
        };
        let mut peer = probe.peer_with(stated)?;
        // The first message must not be longer than what version one takes.
        null_two(probe, &mut peer)?;
        let call = probe.null();
        let mut message = inline_two(0, &CallChunks::default(), &call);
        message.resize(4096, 0);
        let answer = peer.exchange(&message)?;
        if word(&answer, 0) != word(&call, 0) {
            return Err(fail_by("an answer for the call expected, not", &answer));
        }
    }
    Ok(())
}

fn credits(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    for _ in 0..10 {
        let (_, answer) = null_two(probe, &mut peer)?;
        ensure(two(&answer)?.credits >= 1, "a reply grants nothing")?;
    }
    Ok(())
}

fn answered_in_two(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    let (xid, answer) = null_two(probe, &mut peer)?;
    let parsed = two(&answer)?;
    same("rdma_xid", &xid.to_be_bytes(), &parsed.xid.to_be_bytes())?;
    results(&parsed.message).map(|_| ())
}

fn version_one_only(probe: &mut Probe) -> Done {
    if matches!(probe.versions(), Ok((_, high)) if high >= 2) {
        return Err(skip("the server has version two"));
    }
    let mut peer = probe.peer()?;
    let (xid, answer) = null_two(probe, &mut peer)?;
    consists_of(
        &answer,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Any),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::ERROR)),
            ("rdma_err", Want::Is(1)),
            ("rdma_vers_low", Want::Is(1)),
            ("rdma_vers_high", Want::Is(1)),
        ],
    )?;
    probe.lives(&mut peer)
}

fn version_of_its_call(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    for _ in 0..3 {
        let (_, answer) = null_two(probe, &mut peer)?;
        two(&answer)?;
        let call = probe.null();
        let answer = peer.exchange(&plain(&call))?;
        let version = parse(&answer)?.version;
        ensure(
            version == 1,
            format!("version {version} answers version one"),
        )?;
    }
    Ok(())
}

fn versions_said(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let xid = probe.xid();
    let answer = probe
        .peer()?
        .exchange(&words(&[xid, 3, WISH, kind::MSG, 0, 0, 0]))?;
    let range = (word(&answer, 5), word(&answer, 6));
    if range != (Some(1), Some(2)) {
        return Err(fail_by("versions 1 to 2 expected in", &answer));
    }
    // Both are really served.
    let mut peer = probe.peer()?;
    probe.lives(&mut peer)?;
    let (_, answer) = null_two(probe, &mut peer)?;
    two(&answer).map(|_| ())
}

fn handle_repeated(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    null_two(probe, &mut peer)?;
    let (answer, key) = read_two(probe, &mut peer, |key| key)?;
    let parsed = two(&answer)?;
    same(
        "rdma_inv_handle",
        &key.to_be_bytes(),
        &parsed.invalidate.to_be_bytes(),
    )
}

fn nothing_invalidated(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    null_two(probe, &mut peer)?;
    read_two(probe, &mut peer, |_| 0)?;
    ensure(peer.invalidated.is_empty(), "a key was invalidated unasked")
}

fn named_handle(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    null_two(probe, &mut peer)?;
    for _ in 0..4 {
        let before = peer.invalidated.len();
        let (_, key) = read_two(probe, &mut peer, |key| key)?;
        let others = peer.invalidated[before..]
            .iter()
            .any(|found| found.0 != key);
        ensure(!others, "another key than the named one was invalidated")?;
    }
    if peer.invalidated.is_empty() {
        return Err(skip("the server invalidates nothing, as it may"));
    }
    Ok(())
}

fn unknown_handle(probe: &mut Probe) -> Done {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    null_two(probe, &mut peer)?;
    let (answer, _) = read_two(probe, &mut peer, |key| key ^ 0x55aa_5500)?;
    ensure(
        !is_chunk_error(&answer),
        "ERR_CHUNK is no error of version two",
    )?;
    ensure(
        peer.invalidated.is_empty(),
        "a key was invalidated that was not named",
    )?;
    // The error or the reply, either is right; the connection goes on.
    let xid = probe.xid();
    let message = header_two(xid, 9, 0, &CallChunks::default());
    let answer = peer.exchange(&message)?;
    ensure(
        word(&answer, 0) == Some(xid),
        "the connection does not go on",
    )
}
