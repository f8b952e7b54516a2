//! RR2-ERR: errors of version two that depend on a call.

use millrace_wire::nfs3::{Procedure, ReadArguments, ReaddirArguments};
use millrace_wire::rpcrdma::CallChunks;

use super::{Question, case};
use crate::conformance::message::{header_two, inline_two, kind, parse, results};
use crate::conformance::peer::Peer;
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{
    Done, Stop, Want, begins_with, consists_of, ensure, fail_by, word,
};

pub(super) const CASES: &[Question] = &[
    case(
        "RR2-ERR-01",
        "errors repeat XID and version, and end where they end",
        repeated,
    ),
    case("RR2-ERR-05", "no room for the reply is CANT_REPLY", no_room),
    case(
        "RR2-ERR-08",
        "a repeat with the length that CANT_REPLY asks for succeeds",
        asked_for,
    ),
];

mod code {
    pub const CANT_REPLY: u32 = 3;
    pub const INVAL_PROC: u32 = 4;
}

fn error(answer: &[u8], xid: u32, code: u32) -> Done {
    consists_of(
        answer,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(2)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::ERROR)),
            ("rdma_err", Want::Is(code)),
        ],
    )
}

/// Passes if a NULL call of version two is the next thing that is answered.
pub(super) fn lives(probe: &mut Probe, peer: &mut Peer) -> Done {
    let call = probe.null();
    let answer = peer.exchange(&inline_two(0, &CallChunks::default(), &call))?;
    if word(&answer, 0) != word(&call, 0) {
        return Err(fail_by(
            "nothing expected but the reply to NULL, not",
            &answer,
        ));
    }
    results(&parse(&answer)?.message).map(|_| ())
}

/// Connects, and lets the first call pass.
fn open(probe: &mut Probe) -> Result<Peer, Stop> {
    probe.needs_two()?;
    let mut peer = probe.peer()?;
    lives(probe, &mut peer)?;
    Ok(peer)
}

fn repeated(probe: &mut Probe) -> Done {
    let mut peer = open(probe)?;
    let xid = probe.xid();
    let message = header_two(xid, 9, 0, &CallChunks::default());
    error(&peer.exchange(&message)?, xid, code::INVAL_PROC)
}

/// A READ into a write chunk of so many bytes.
fn read_into(
    probe: &mut Probe,
    peer: &mut Peer,
    room: u32,
    xid: Option<u32>,
) -> Result<(u32, Vec<u8>), Stop> {
    let file = probe.fixture()?.file;
    let arguments = ReadArguments {
        file,
        offset: 0,
        count: 1000,
    };
    let mut call = probe.call(Procedure::Read, &arguments);
    if let Some(xid) = xid {
        call[..4].copy_from_slice(&xid.to_be_bytes());
    }
    let sink = peer.sink(4096)?;
    let segments = [sink.segment(0, room)];
    let chunks = CallChunks {
        writes: &[&segments],
        ..CallChunks::default()
    };
    let answer = peer.exchange(&inline_two(0, &chunks, &call))?;
    Ok((word(&call, 0).unwrap_or(0), answer))
}

fn cannot_reply(answer: &[u8], xid: u32) -> Done {
    consists_of(
        answer,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(2)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::ERROR)),
            ("rdma_err", Want::Is(code::CANT_REPLY)),
            ("rdma_processed", Want::Any),
            ("rdma_segment_index", Want::Any),
            ("rdma_length_needed", Want::Any),
        ],
    )?;
    ensure(
        word(answer, 5) <= Some(1),
        "rdma_processed is neither TRUE nor FALSE",
    )
}

fn no_room(probe: &mut Probe) -> Done {
    let mut peer = open(probe)?;
    let directory = probe.fixture()?.directory;
    let arguments = ReaddirArguments {
        directory,
        cookie: 0,
        verifier: [0; 8],
        count: 8000,
    };
    let call = probe.call(Procedure::Readdir, &arguments);
    let answer = peer.exchange(&inline_two(0, &CallChunks::default(), &call))?;
    if let Ok(parsed) = parse(&answer)
        && results(&parsed.message).is_ok()
    {
        // A listing may be shorter than requested.
        return ensure(answer.len() <= 4096, "a reply that does not fit");
    }
    cannot_reply(&answer, word(&call, 0).unwrap_or(0))?;
    lives(probe, &mut peer)
}

fn asked_for(probe: &mut Probe) -> Done {
    let mut peer = open(probe)?;
    let (xid, answer) = read_into(probe, &mut peer, 100, None)?;
    if let Ok(parsed) = parse(&answer)
        && results(&parsed.message).is_ok()
    {
        // A short READ.
        return Ok(());
    }
    cannot_reply(&answer, xid)?;
    begins_with(
        &answer[24..],
        &[
            ("rdma_segment_index", Want::Is(1)),
            ("rdma_length_needed", Want::AtLeast(1000)),
        ],
    )?;
    let needed = word(&answer, 7).unwrap_or(0).min(4096);
    let (_, answer) = read_into(probe, &mut peer, needed, Some(xid))?;
    results(&parse(&answer)?.message).map(|_| ())
}
