//! RR1-HDR: the four words, versions and XIDs.

use millrace_wire::nfs3::Procedure;
use millrace_wire::rpcrdma::CallChunks;

use super::{Question, case};
use crate::conformance::message::{
    GARBAGE_ARGS, NOBODY, PROC_UNAVAIL, PROG_MISMATCH, PROG_UNAVAIL, WISH, accepted, chunk_error,
    header, is_chunk_error, kind, nfs, parse, plain, rpc, rpc_as, words,
};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{
    Done, Want, begins_with, consists_of, ensure, fail_by, same, skip, word,
};
use millrace_wire::rpc::Credential;

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-HDR-01",
        "the first four words are judged before anything else",
        first_words,
    ),
    case(
        "RR1-HDR-02",
        "the XID of a reply's header is that of its RPC message",
        xids_agree,
    ),
    case(
        "RR1-HDR-03",
        "two different XIDs in a call are ERR_CHUNK",
        xids_differ,
    ),
    case(
        "RR1-HDR-04",
        "the version of replies is one",
        version_of_replies,
    ),
    case(
        "RR1-HDR-05",
        "other versions are ERR_VERS with the versions served",
        other_versions,
    ),
    case(
        "RR1-HDR-09",
        "arguments that do not decode are GARBAGE_ARGS",
        garbage,
    ),
    case(
        "RR1-HDR-10",
        "a faulty call fails alone, by its XID",
        fails_alone,
    ),
    case("RR1-HDR-11", "errors end where they end", sizes_of_errors),
    case(
        "RR1-HDR-12",
        "RDMA_MSG is three lists and then the message",
        layout,
    ),
    case(
        "RR1-HDR-22",
        "no record mark stands before a message",
        no_record_mark,
    ),
    case(
        "RR1-HDR-26",
        "errors of RPC travel as ordinary replies",
        rpc_errors,
    ),
];

fn version_error(xid: u32, version: u32) -> [(&'static str, Want); 7] {
    [
        ("rdma_xid", Want::Is(xid)),
        ("rdma_vers", Want::Is(version)),
        ("rdma_credit", Want::AtLeast(1)),
        ("rdma_proc", Want::Is(kind::ERROR)),
        ("rdma_err", Want::Is(1)),
        ("rdma_vers_low", Want::AtLeast(1)),
        ("rdma_vers_high", Want::AtLeast(1)),
    ]
}

fn first_words(probe: &mut Probe) -> Done {
    let xid = probe.xid();
    let mut message = words(&[xid, 9, WISH, 0]);
    message.extend([0xff; 41]);
    let answer = probe.peer()?.exchange(&message)?;
    begins_with(&answer, &version_error(xid, 9))
}

fn xids_agree(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for _ in 0..3 {
        let call = probe.null();
        let answer = peer.exchange(&plain(&call))?;
        let parsed = parse(&answer)?;
        same("rdma_xid", &call[..4], &parsed.xid.to_be_bytes())?;
        same("xid", &call[..4], parsed.message.get(..4).unwrap_or(&[]))?;
    }
    Ok(())
}

fn xids_differ(probe: &mut Probe) -> Done {
    let xid = probe.xid();
    let call = probe.null();
    let message = [header(xid, kind::MSG, &CallChunks::default()), call].concat();
    let answer = probe.peer()?.exchange(&message)?;
    chunk_error(&answer, xid)
}

fn version_of_replies(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for _ in 0..3 {
        let call = probe.null();
        let answer = peer.exchange(&plain(&call))?;
        begins_with(
            &answer,
            &[("rdma_xid", Want::Any), ("rdma_vers", Want::Is(1))],
        )?;
    }
    Ok(())
}

fn other_versions(probe: &mut Probe) -> Done {
    for version in [0, 3, 9, u32::MAX] {
        let xid = probe.xid();
        let message = words(&[xid, version, WISH, kind::MSG, 0, 0, 0]);
        let answer = probe.peer()?.exchange(&message)?;
        consists_of(&answer, &version_error(xid, version)).or_else(|stop| {
            // The version word has a row of its own.
            let mut lenient = version_error(xid, version);
            lenient[1].1 = Want::Any;
            consists_of(&answer, &lenient).map_err(|_| stop)
        })?;
        let (low, high) = (word(&answer, 5), word(&answer, 6));
        if low > Some(1) || high < Some(1) || high >= Some(9) {
            return Err(fail_by("the versions served do not include one", &answer));
        }
    }
    Ok(())
}

fn garbage(probe: &mut Probe) -> Done {
    let (caller, xid) = (probe.caller, probe.xid());
    let call = rpc(caller, xid, nfs(Procedure::Getattr), &words(&[64, 1]));
    let answer = probe.peer()?.exchange(&plain(&call))?;
    expect_status(&answer, GARBAGE_ARGS)
}

/// Passes if a message is a reply with this accept status.
fn expect_status(answer: &[u8], status: u32) -> Done {
    let parsed = parse(answer)?;
    let (found, _) = accepted(&parsed.message)?;
    if found == status {
        return Ok(());
    }
    Err(fail_by(
        format!("accept_stat {status} expected, {found} came"),
        answer,
    ))
}

fn fails_alone(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    if probe.warm(&mut peer)? < 2 {
        return Err(skip("only one credit is granted"));
    }
    let bad = probe.xid();
    let good = probe.null();
    peer.send(&header(bad, 77, &CallChunks::default()))?;
    peer.send(&plain(&good))?;
    let answers = [peer.answer()?, peer.answer()?];
    let of = |xid: Option<u32>| answers.iter().find(|answer| word(answer, 0) == xid);
    let missing = || {
        fail_by(
            "the two answers do not belong to the two calls",
            &answers[0],
        )
    };
    chunk_error(of(Some(bad)).ok_or_else(missing)?, bad)?;
    expect_status(of(word(&good, 0)).ok_or_else(missing)?, 0)
}

fn sizes_of_errors(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let xid = probe.xid();
    let answer = peer.exchange(&words(&[xid, 9, WISH, kind::MSG, 0, 0, 0]))?;
    ensure(
        answer.len() == 28,
        format!("ERR_VERS has 28 bytes, not {}", answer.len()),
    )?;
    let xid = probe.xid();
    let answer = peer.exchange(&header(xid, 77, &CallChunks::default()))?;
    chunk_error(&answer, xid)
}

fn layout(probe: &mut Probe) -> Done {
    let call = probe.null();
    let xid = word(&call, 0).unwrap_or(0);
    let answer = probe.peer()?.exchange(&plain(&call))?;
    consists_of(
        &answer,
        &[
            ("rdma_xid", Want::Is(xid)),
            ("rdma_vers", Want::Is(1)),
            ("rdma_credit", Want::AtLeast(1)),
            ("rdma_proc", Want::Is(kind::MSG)),
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

fn no_record_mark(probe: &mut Probe) -> Done {
    let call = probe.null();
    let answer = probe.peer()?.exchange(&plain(&call))?;
    same("bytes 0 to 3", &call[..4], answer.get(..4).unwrap_or(&[]))
}

fn rpc_errors(probe: &mut Probe) -> Done {
    let caller = probe.caller;
    let mut peer = probe.peer()?;
    for (target, status) in [
        (NOBODY, PROG_UNAVAIL),
        ((100_003, 77, 0), PROG_MISMATCH),
        ((100_003, 3, 77), PROC_UNAVAIL),
    ] {
        let call = rpc(caller, probe.xid(), target, &[]);
        let answer = peer.exchange(&plain(&call))?;
        expect_status(&answer, status)?;
    }
    // A version of RPC that does not exist is denied in an ordinary reply.
    let mut call = rpc_as(Credential::None, probe.xid(), (100_003, 3, 0), &[]);
    call[8..12].copy_from_slice(&9_u32.to_be_bytes());
    let answer = peer.exchange(&plain(&call))?;
    if is_chunk_error(&answer) {
        return Err(fail_by("RPC_MISMATCH expected, not ERR_CHUNK", &answer));
    }
    let parsed = parse(&answer)?;
    let denied = [
        ("xid", Want::Any),
        ("mtype", Want::Is(1)),
        ("reply_stat", Want::Is(1)),
        ("reject_stat", Want::Is(0)),
    ];
    begins_with(&parsed.message, &denied)
}
