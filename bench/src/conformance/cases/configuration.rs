//! RR1-CCP: the connection configuration protocol, if the server offers it.

use millrace_wire::ccp;
use millrace_wire::rpc::Credential;

use super::{Question, case};
use crate::conformance::message::{
    GARBAGE_ARGS, PROC_UNAVAIL, PROG_MISMATCH, Target, accepted, parse, plain, results, rpc,
    rpc_as, words,
};
use crate::conformance::peer::{Peer, Stated};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{Done, Stop, ensure, fail_by, word};

const CONFIGURE: Target = (ccp::PROGRAM, ccp::VERSION, 1);

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-CCP-01",
        "program 100417 does nothing by procedure 0",
        does_nothing,
    ),
    case("RR1-CCP-02", "the result is three words", three_words),
    case(
        "RR1-CCP-03",
        "any wish for the size of calls has an answer",
        any_wish,
    ),
    case(
        "RR1-CCP-07",
        "a call of the announced size is taken",
        announced_size,
    ),
    case("RR1-CCP-14", "AUTH_NONE is refused", weak_flavor),
    case(
        "RR1-CCP-15",
        "what is wrong is answered as RPC has it",
        wrong_calls,
    ),
    case(
        "RR1-CCP-17",
        "the result holds for its connection only",
        own_connection,
    ),
];

fn configure(probe: &mut Probe, peer: &mut Peer, wish: [u32; 3]) -> Result<[u32; 3], Stop> {
    let (caller, xid) = (probe.caller, probe.xid());
    let call = rpc(caller, xid, CONFIGURE, &words(&wish));
    let parsed = parse(&peer.exchange(&plain(&call))?)?;
    let found = results(&parsed.message)?;
    match (word(found, 0), word(found, 1), word(found, 2), found.len()) {
        (Some(size), Some(alignment), Some(reads), 12) => Ok([size, alignment, reads]),
        _ => Err(fail_by("three words expected, not", found)),
    }
}

fn without_private_data() -> Stated {
    Stated {
        inline: None,
        ..Stated::default()
    }
}

fn does_nothing(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let (caller, xid) = (probe.caller, probe.xid());
    let call = rpc(caller, xid, (ccp::PROGRAM, ccp::VERSION, 0), &[]);
    let parsed = parse(&probe.peer()?.exchange(&plain(&call))?)?;
    ensure(
        results(&parsed.message)?.is_empty(),
        "procedure 0 has no results",
    )
}

fn three_words(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let mut peer = probe.peer_with(without_private_data())?;
    let [size, _, _] = configure(probe, &mut peer, [4096, 4096, 16])?;
    ensure(size >= 1024, format!("a call size of {size} bytes"))
}

fn any_wish(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    for wish in [0, 1024, 1 << 20, u32::MAX] {
        let mut peer = probe.peer_with(without_private_data())?;
        let [size, _, _] = configure(probe, &mut peer, [wish, 4096, 16])?;
        ensure(
            (1024..1 << 24).contains(&size),
            format!("a wish of {wish} bytes is granted {size}"),
        )?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn announced_size(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let mut peer = probe.peer_with(without_private_data())?;
    let [size, _, _] = configure(probe, &mut peer, [4096, 4096, 16])?;
    let call = probe.null();
    let mut message = plain(&call);
    message.resize((size as usize).min(1 << 16), 0);
    let answer = peer.exchange(&message)?;
    if word(&answer, 0) != word(&call, 0) {
        return Err(fail_by("an answer for the call expected, not", &answer));
    }
    probe.lives(&mut peer)
}

fn weak_flavor(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let mut peer = probe.peer()?;
    let call = rpc_as(
        Credential::None,
        probe.xid(),
        CONFIGURE,
        &words(&[4096, 4096, 16]),
    );
    let answer = peer.exchange(&plain(&call))?;
    let message = parse(&answer)?.message;
    // Denied, by an authentication error, for it is too weak.
    let denied = [1, 1, 1, 5].map(Some);
    if [1, 2, 3, 4].map(|index| word(&message, index)) != denied {
        return Err(fail_by("AUTH_TOOWEAK expected, not", &message));
    }
    Ok(())
}

fn wrong_calls(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let caller = probe.caller;
    let mut peer = probe.peer()?;
    for (target, arguments, status) in [
        ((ccp::PROGRAM, 1, 2), &[][..], PROC_UNAVAIL),
        ((ccp::PROGRAM, 2, 1), &[], PROG_MISMATCH),
        ((ccp::PROGRAM, 1, 1), &[4096, 4096], GARBAGE_ARGS),
    ] {
        let call = rpc(caller, probe.xid(), target, &words(arguments));
        let parsed = parse(&peer.exchange(&plain(&call))?)?;
        let (found, detail) = accepted(&parsed.message)?;
        if found != status {
            return Err(fail_by(
                format!("accept_stat {status} expected, {found} came"),
                &parsed.message,
            ));
        }
        if status == PROG_MISMATCH {
            ensure(
                (word(detail, 0), word(detail, 1)) == (Some(1), Some(1)),
                "PROG_MISMATCH does not say 1 to 1",
            )?;
        }
    }
    probe.lives(&mut peer)
}

fn own_connection(probe: &mut Probe) -> Done {
    probe.needs_ccp()?;
    let mut first = probe.peer_with(without_private_data())?;
    configure(probe, &mut first, [4096, 4096, 16])?;
    // On another connection nothing was agreed: replies keep to 1024 bytes.
    let mut peer = probe.peer_with(without_private_data())?;
    let root = probe.fixture()?.directory;
    let arguments = millrace_wire::nfs3::ReaddirArguments {
        directory: root,
        cookie: 0,
        verifier: [0; 8],
        count: 3000,
    };
    let call = probe.call(millrace_wire::nfs3::Procedure::Readdir, &arguments);
    let answer = peer.exchange(&plain(&call))?;
    ensure(
        answer.len() <= 1024,
        format!("a reply of {} bytes where 1024 are agreed", answer.len()),
    )
}
