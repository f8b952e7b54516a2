//! RPCSEC_GSS under a context: what a server does with calls that are signed (`target/wire/GSS.md`).
//! Their bodies are not protected.

use millrace_gss::{ContextFlags, Initiator, Protection, Side};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::{GssInitResults, GssProcedure, RPCSEC_GSS};
use millrace_wire::xdr::from_bytes;

use crate::conformance::message::{GARBAGE_ARGS, PROC_UNAVAIL, accepted, parse, plain, words};
use crate::conformance::peer::Peer;
use crate::conformance::probe::{GssProbe, Probe};
use crate::conformance::verdict::{Done, Stop, ensure, fail, fail_by, skip, word};

use super::gss::{
    CREDENTIAL_PROBLEM, GssBody, NO_VERIFIER, answer, call, denied, needs_gss, opaque,
};
use super::{Question, case};

/// RPCSEC_GSS_CTXPROBLEM.
const CONTEXT_PROBLEM: u32 = 14;
/// Sequence numbers are below this (RFC 2203 section 5.3.3.3).
const MAX_SEQUENCE: u32 = 0x8000_0000;
/// Bytes of a MIC token at most.
const MIC_MAX: usize = 64;
/// A procedure that NFS version 3 does not have.
const NO_PROCEDURE: u32 = 99;

pub(super) const CASES: &[Question] = &[
    case(
        "GSS-CTX-05",
        "a new context is proved by the MIC of its window",
        creation,
    ),
    case(
        "GSS-CRED-05",
        "every accepted reply is proved by the MIC of its number",
        verifiers,
    ),
    case(
        "GSS-CRED-03",
        "a wrong MIC is a credential problem, and the context lives",
        wrong_mics,
    ),
    case("GSS-SEQ-01", "sequence numbers have an end", last_numbers),
    case(
        "GSS-SEQ-02",
        "numbers in the window are taken in any order",
        window,
    ),
    case(
        "GSS-SEQ-03",
        "numbers below the window, and those seen, are dropped",
        repetitions,
    ),
    case("GSS-CTX-15", "a context that was ended is unknown", ending),
];

/// Makes a context, unless there is one.
fn context(probe: &mut Probe) -> Result<GssProbe, Stop> {
    needs_gss(probe)?;
    if let Some(context) = &probe.gss {
        return Ok(context.clone());
    }
    let Some(principal) = probe.principal.clone() else {
        return Err(skip("--principal names no service to have a ticket for"));
    };
    let no_ticket = |error| fail(format!("no ticket for {principal}: {error}"));
    let initiator = Initiator::new(None, &principal, ContextFlags::MUTUAL);
    let mut initiator = initiator.map_err(no_ticket)?;
    let token = initiator.step(&[]).map_err(no_ticket)?.token;
    let body = GssBody::new(GssProcedure::Init.number(), &[]);
    let message = answer(probe, &body, &opaque(&token))?;
    let (_, results) = accepted(&message)?;
    let not = || fail_by("the results of a creation expected, not", results);
    let made: GssInitResults<'_> = from_bytes(results).map_err(|_| not())?;
    ensure(
        made.major == 0,
        format!("gss_major 0 expected, not {:#x}", made.major),
    )?;
    let step = initiator.step(made.token).map_err(no_ticket)?;
    ensure(
        step.is_complete,
        "the server's token does not complete the context",
    )?;
    let (keys, _) = initiator.into_keys().map_err(no_ticket)?;
    let protection = Protection::new(&keys, Side::Initiator).ok_or_else(|| fail("no key"))?;
    let context = GssProbe {
        handle: made.handle.to_vec(),
        window: made.window,
        proved: protection.verify_mic(&made.window.to_be_bytes(), verifier(&message)?),
        protection,
        sequence: 0,
    };
    probe.gss = Some(context.clone());
    Ok(context)
}

/// The verifier of a reply.
fn verifier(message: &[u8]) -> Result<&[u8], Stop> {
    let not = || fail_by("a verifier of RPCSEC_GSS expected, not", message);
    if word(message, 3) != Some(RPCSEC_GSS) {
        return Err(not());
    }
    let length = word(message, 4).ok_or_else(not)? as usize;
    message.get(20..20 + length).ok_or_else(not)
}

/// The next number that no call had yet.
fn next(probe: &mut Probe) -> Result<u32, Stop> {
    context(probe)?;
    let context = probe.gss.as_mut().ok_or_else(|| fail("no context"))?;
    context.sequence += 1;
    Ok(context.sequence)
}

/// A signed call of a procedure by its number, as it goes out.
fn signed(
    probe: &mut Probe,
    (kind, sequence): (GssProcedure, u32),
    procedure: u32,
    arguments: &[u8],
) -> Result<Vec<u8>, Stop> {
    let context = context(probe)?;
    let body = GssBody::new(kind.number(), &context.handle).numbered(sequence);
    let unsigned = call(probe, procedure, (&body.bytes(), NO_VERIFIER), &[]);
    // Without the verifier's two words.
    let covered = &unsigned[..unsigned.len() - 8];
    let mut mic = [0; MIC_MAX];
    let length = context.protection.sign(covered, &mut mic);
    let verifier = [words(&[RPCSEC_GSS]), opaque(&mic[..length])].concat();
    Ok([covered, &verifier, arguments].concat())
}

/// A signed NULL call.
fn null(probe: &mut Probe, sequence: u32) -> Result<Vec<u8>, Stop> {
    let procedure = Procedure::Null.number();
    signed(probe, (GssProcedure::Data, sequence), procedure, &[])
}

/// Passes if a call is answered with this accept status, and proved for its number.
fn proved(
    probe: &mut Probe,
    peer: &mut Peer,
    (call, sequence): (&[u8], u32),
    expected: u32,
) -> Done {
    let reply = parse(&peer.exchange(&plain(call))?)?;
    let (status, _) = accepted(&reply.message)?;
    ensure(
        status == expected,
        format!("accept status {expected} expected, not {status}"),
    )?;
    let context = context(probe)?;
    let mic = verifier(&reply.message)?;
    let is_good = context.protection.verify_mic(&sequence.to_be_bytes(), mic);
    ensure(is_good, "the verifier is not the MIC of the call's number")
}

/// Passes if a call is dropped: a call without security is the next that is answered.
fn dropped(probe: &mut Probe, peer: &mut Peer, call: &[u8]) -> Done {
    peer.send(&plain(call))?;
    probe.lives(peer)
}

fn creation(probe: &mut Probe) -> Done {
    let context = context(probe)?;
    ensure(context.proved, "the verifier is not the MIC of the window")
}

fn verifiers(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for (procedure, arguments, status) in [
        (Procedure::Null.number(), &[][..], 0),
        (NO_PROCEDURE, &[], PROC_UNAVAIL),
        (Procedure::Getattr.number(), &[0, 0, 0, 9], GARBAGE_ARGS),
    ] {
        let sequence = next(probe)?;
        let call = signed(probe, (GssProcedure::Data, sequence), procedure, arguments)?;
        proved(probe, &mut peer, (&call, sequence), status)?;
    }
    Ok(())
}

fn wrong_mics(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let sequence = next(probe)?;
    let call = null(probe, sequence)?;
    for byte in [call.len() - 1, call.len() - 12] {
        let mut wrong = call.clone();
        wrong[byte] ^= 1;
        let reply = parse(&peer.exchange(&plain(&wrong))?)?;
        denied(&reply.message, CREDENTIAL_PROBLEM)?;
    }
    // The number is not used up (RFC 2203 section 7.2.1).
    proved(probe, &mut peer, (&call, sequence), 0)
}

fn last_numbers(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for sequence in [MAX_SEQUENCE, u32::MAX] {
        let call = null(probe, sequence)?;
        let reply = parse(&peer.exchange(&plain(&call))?)?;
        denied(&reply.message, CONTEXT_PROBLEM)?;
    }
    let sequence = next(probe)?;
    let call = null(probe, sequence)?;
    proved(probe, &mut peer, (&call, sequence), 0)
}

/// The lowest number of a window whose highest one has been used.
fn moved_window(probe: &mut Probe, peer: &mut Peer) -> Result<(u32, u32), Stop> {
    let window = context(probe)?.window;
    let lowest = next(probe)?;
    let highest = lowest + window - 1;
    let call = null(probe, highest)?;
    proved(probe, peer, (&call, highest), 0)?;
    if let Some(context) = &mut probe.gss {
        context.sequence = highest;
    }
    Ok((lowest, highest))
}

fn window(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let (lowest, highest) = moved_window(probe, &mut peer)?;
    for sequence in [highest - 1, lowest, lowest.midpoint(highest)] {
        let call = null(probe, sequence)?;
        proved(probe, &mut peer, (&call, sequence), 0)?;
    }
    Ok(())
}

fn repetitions(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let (lowest, highest) = moved_window(probe, &mut peer)?;
    for sequence in [highest, lowest - 1] {
        let call = null(probe, sequence)?;
        dropped(probe, &mut peer, &call)?;
    }
    Ok(())
}

fn ending(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let sequence = next(probe)?;
    let procedure = Procedure::Null.number();
    let call = signed(probe, (GssProcedure::Destroy, sequence), procedure, &[])?;
    proved(probe, &mut peer, (&call, sequence), 0)?;
    let after = null(probe, sequence + 1)?;
    let reply = parse(&peer.exchange(&plain(&after))?)?;
    probe.gss = None;
    denied(&reply.message, CREDENTIAL_PROBLEM)
}
