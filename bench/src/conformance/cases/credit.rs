//! RR1-CRED as a client sees it, and what early clients rely on.

use std::collections::HashSet;

use super::{Question, case};
use crate::conformance::message::{WISH, kind, parse, plain, words};
use crate::conformance::peer::Stated;
use crate::conformance::probe::Probe;
use crate::conformance::verdict::{Done, ensure, fail_by, word};

pub(super) const CASES: &[Question] = &[
    case("RR1-CRED-01", "replies and errors grant credits", grants),
    case("RR1-CRED-03", "no grant is zero", never_zero),
    case(
        "RR1-CRED-04",
        "a connection that was idle takes a call",
        idle_connection,
    ),
    case(
        "RR1-CRED-08",
        "as many calls as were granted are served at once",
        whole_grant,
    ),
    case(
        "RR1-CRED-14",
        "more calls than granted harm no other connection",
        overrun,
    ),
    case(
        "RR1-CRED-25",
        "wishes of 0 and of all are granted within reason",
        odd_wishes,
    ),
    case(
        "RR1-CRED-26",
        "a message of exactly the agreed size is taken",
        exact_size,
    ),
    case(
        "RR1-CRED-28",
        "a new connection begins anew",
        new_connection,
    ),
    case(
        "OLD-09",
        "two calls before the first reply are served",
        two_at_once,
    ),
];

fn grants(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let credits = probe.warm(&mut peer)?;
    ensure(credits >= 1, "a reply grants nothing")?;
    let xid = probe.xid();
    let answer = peer.exchange(&words(&[xid, 1, WISH, 77, 0, 0, 0]))?;
    match word(&answer, 2) {
        Some(credits) if credits >= 1 => Ok(()),
        _ => Err(fail_by("an error grants nothing", &answer)),
    }
}

fn never_zero(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for _ in 0..50 {
        ensure(probe.warm(&mut peer)? >= 1, "a reply grants nothing")?;
    }
    Ok(())
}

fn idle_connection(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    probe.lives(&mut peer)?;
    std::thread::sleep(probe.options.settle);
    probe.lives(&mut peer)
}

fn whole_grant(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let granted = probe.warm(&mut peer)?.min(WISH);
    for _ in 0..4 {
        let calls: Vec<Vec<u8>> = (0..granted).map(|_| probe.null()).collect();
        for call in &calls {
            peer.send(&plain(call))?;
        }
        let mut open: HashSet<Option<u32>> = calls.iter().map(|call| word(call, 0)).collect();
        while !open.is_empty() {
            let answer = peer.answer()?;
            if !open.remove(&word(&answer, 0)) {
                return Err(fail_by("an answer that nobody waits for", &answer));
            }
        }
    }
    Ok(())
}

fn overrun(probe: &mut Probe) -> Done {
    let mut other = probe.peer()?;
    let mut peer = probe.peer()?;
    let granted = probe.warm(&mut peer)?;
    for _ in 0..(3 * granted).min(400) {
        if peer.send(&plain(&probe.null())).is_err() {
            break;
        }
    }
    probe.lives(&mut other)?;
    drop(peer);
    probe.lives(&mut other)
}

fn odd_wishes(probe: &mut Probe) -> Done {
    for wish in [0, 1, u32::MAX] {
        let mut peer = probe.peer()?;
        let call = probe.null();
        let mut message = plain(&call);
        message[8..12].copy_from_slice(&wish.to_be_bytes());
        let answer = peer.exchange(&message)?;
        let granted = parse(&answer)?.credits;
        ensure(
            (1..1 << 16).contains(&granted),
            format!("a wish of {wish} is granted {granted}"),
        )?;
    }
    Ok(())
}

fn exact_size(probe: &mut Probe) -> Done {
    for (inline, default) in [(Some(4096), 1024), (None, 1024)] {
        let stated = Stated {
            inline,
            ..Stated::default()
        };
        let mut peer = probe.peer_with(stated)?;
        // What both can: a server that states nothing takes the default.
        let agreed = match (inline, peer.terms()) {
            (Some(own), Some(terms)) => own.min(terms.receive_size),
            _ => default,
        };
        let call = probe.null();
        let mut message = plain(&call);
        // Words behind the arguments of NULL: whatever is answered, the message has arrived.
        message.resize(agreed, 0);
        let answer = peer.exchange(&message)?;
        if word(&answer, 0) != word(&call, 0) {
            return Err(fail_by("an answer for the call expected, not", &answer));
        }
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn new_connection(probe: &mut Probe) -> Done {
    let first = {
        let mut peer = probe.peer()?;
        probe.warm(&mut peer)?
    };
    let mut peer = probe.peer()?;
    let again = probe.warm(&mut peer)?;
    ensure(
        again >= 1 && (first >= 1),
        "a new connection has no credits",
    )?;
    probe.lives(&mut peer)
}

fn two_at_once(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let calls = [probe.null(), probe.null()];
    for call in &calls {
        peer.send(&plain(call))?;
    }
    for _ in &calls {
        let answer = peer.answer()?;
        let known = calls.iter().any(|call| word(call, 0) == word(&answer, 0));
        if !known || word(&answer, 3) != Some(kind::MSG) {
            return Err(fail_by(
                "the reply to one of two calls expected, not",
                &answer,
            ));
        }
    }
    Ok(())
}
