//! MPA-IRD and MPA-RTR: read depths and ready-to-receive indications.

use std::time::Duration;

use super::{Question, case};
use crate::conformance::fpdu::{self, opcode};
use crate::conformance::probe::Probe;
use crate::conformance::stream::{ReplyFrame, Stream, data, enhanced, model};
use crate::conformance::verdict::{Done, Stop, ensure, fail_by, skip};

/// Leaves a depth to the application.
const OPEN: u32 = 0x3fff;

pub(super) const CASES: &[Question] = &[
    case(
        "MPA-IRD-02",
        "the server's ORD never exceeds the client's IRD",
        ord_within_ird,
    ),
    case(
        "MPA-IRD-03",
        "the server's IRD is stated as it is",
        ird_stated,
    ),
    case(
        "MPA-IRD-04",
        "an indication by Read gets a place to be served in",
        ird_for_indication,
    ),
    case(
        "MPA-IRD-09",
        "an ORD of all ones is answered by an IRD of all ones",
        open_ord,
    ),
    case(
        "MPA-IRD-10",
        "an IRD of all ones is answered by an ORD of all ones",
        open_ird,
    ),
    case("MPA-IRD-15", "depths of zero are legal", zero),
    case(
        "MPA-RTR-02",
        "the connection model of the request is repeated",
        model_repeated,
    ),
    case(
        "MPA-RTR-03",
        "kinds mean nothing without the peer-to-peer model",
        kinds_ignored,
    ),
    case(
        "MPA-RTR-05",
        "a common kind of indication is named if there is one",
        common_kind,
    ),
    case(
        "MPA-RTR-07",
        "some kind is named, even if none was asked for",
        some_kind,
    ),
    case(
        "MPA-RTR-12",
        "the server is silent before the first FPDU",
        silent,
    ),
    case(
        "MPA-RTR-14",
        "every kind of indication that was agreed opens the stream",
        every_kind,
    ),
    case(
        "MPA-RTR-17",
        "an indication by Read is answered by an empty response",
        read_answered,
    ),
];

fn ask(probe: &Probe, flags: u32, ird: u32, ord: u32) -> Result<(Stream, ReplyFrame), Stop> {
    let mut stream = Stream::connect(probe)?;
    let reply = stream.ask(&enhanced(data(flags, ird, ord)))?;
    Ok((stream, reply))
}

fn ord_within_ird(probe: &mut Probe) -> Done {
    for ird in [1, 2, 4, 16] {
        let (_, reply) = ask(probe, 0, ird, 16)?;
        if reply.is_rejected() {
            continue;
        }
        let (_, ord) = reply.depths()?;
        ensure(ord <= ird, format!("an ORD of {ord} for an IRD of {ird}"))?;
    }
    Ok(())
}

fn ird_stated(probe: &mut Probe) -> Done {
    for ord in [1, 16, 0x3ffe] {
        let (_, reply) = ask(probe, 0, 16, ord)?;
        let (ird, _) = reply.depths()?;
        ensure(
            !reply.is_rejected() && ird != OPEN,
            format!("an IRD of {ird} for an ORD of {ord}"),
        )?;
    }
    Ok(())
}

fn ird_for_indication(probe: &mut Probe) -> Done {
    let (_, reply) = ask(probe, model::A | model::D, 16, 0)?;
    let (ird, _) = reply.depths()?;
    if reply.data()? & model::D == 0 {
        return Err(skip("the server knows no indication by Read"));
    }
    ensure(ird >= 1, "an IRD of 0 beside an indication by Read")
}

fn open_ord(probe: &mut Probe) -> Done {
    let (_, reply) = ask(probe, 0, 16, OPEN)?;
    let (ird, _) = reply.depths()?;
    ensure(ird == OPEN, format!("IRD 3fff expected, {ird:04x} came"))
}

fn open_ird(probe: &mut Probe) -> Done {
    let (_, reply) = ask(probe, 0, OPEN, 16)?;
    let (_, ord) = reply.depths()?;
    ensure(ord == OPEN, format!("ORD 3fff expected, {ord:04x} came"))
}

fn zero(probe: &mut Probe) -> Done {
    let (mut stream, reply) = ask(probe, 0, 0, 0)?;
    if reply.is_rejected() {
        return Err(skip(
            "the server needs reads of the client's, and says so by rejecting",
        ));
    }
    let (_, ord) = reply.depths()?;
    ensure(ord == 0, format!("an ORD of {ord} for an IRD of 0"))?;
    stream.settle();
    stream.serves(probe)
}

fn model_repeated(probe: &mut Probe) -> Done {
    for flags in [0, model::A | model::KINDS] {
        let (_, reply) = ask(probe, flags, 16, 16)?;
        if (reply.data()? ^ flags) & model::A != 0 {
            return Err(fail_by("another connection model in", &reply.bytes));
        }
    }
    Ok(())
}

fn kinds_ignored(probe: &mut Probe) -> Done {
    let (mut stream, reply) = ask(probe, model::KINDS, 16, 16)?;
    if reply.data()? & (model::A | model::KINDS) != 0 {
        return Err(fail_by("kinds of indications in", &reply.bytes));
    }
    stream.settle();
    stream.serves(probe)
}

/// The kinds of indications that the server supports.
fn known(probe: &Probe) -> Result<u32, Stop> {
    let (_, reply) = ask(probe, model::A | model::KINDS, 16, 16)?;
    let known = reply.data()? & model::KINDS;
    ensure(known != 0, "no kind of indication is known")?;
    Ok(known)
}

fn common_kind(probe: &mut Probe) -> Done {
    let known = known(probe)?;
    for kinds in [
        model::B,
        model::C,
        model::D,
        model::B | model::C,
        model::B | model::D,
        model::C | model::D,
        model::KINDS,
    ] {
        let (_, reply) = ask(probe, model::A | kinds, 16, 16)?;
        let named = reply.data()? & model::KINDS;
        if kinds & known != 0 && kinds & named == 0 {
            return Err(fail_by("no common kind is named in", &reply.bytes));
        }
    }
    Ok(())
}

fn some_kind(probe: &mut Probe) -> Done {
    let (_, reply) = ask(probe, model::A, 16, 16)?;
    if reply.data()? & model::KINDS == 0 {
        return Err(fail_by("no kind is named in", &reply.bytes));
    }
    Ok(())
}

fn silent(probe: &mut Probe) -> Done {
    let (mut stream, _) = ask(probe, 0, 16, 16)?;
    stream.stays_silent(Duration::from_millis(500))?;
    stream.serves(probe)
}

fn every_kind(probe: &mut Probe) -> Done {
    let known = known(probe)?;
    for kind in [model::B, model::C, model::D] {
        if kind & known == 0 {
            continue;
        }
        let (mut stream, reply) = ask(probe, model::A | kind, 16, 16)?;
        if reply.data()? & kind == 0 {
            return Err(fail_by("a known kind is not named in", &reply.bytes));
        }
        stream.settle();
        match kind {
            model::B => stream.send_empty(),
            model::C => stream.send(&fpdu::empty_write()),
            _ => {
                stream.send(&fpdu::empty_read(1));
                stream.segment()?;
            }
        }
        stream.serves(probe)?;
    }
    Ok(())
}

fn read_answered(probe: &mut Probe) -> Done {
    let (mut stream, reply) = ask(probe, model::A | model::D, 16, 16)?;
    if reply.data()? & model::D == 0 {
        return Err(skip("the server knows no indication by Read"));
    }
    stream.settle();
    stream.send(&fpdu::empty_read(1));
    let arrived = stream.segment()?;
    ensure(
        arrived.opcode == opcode::READ_RESPONSE && arrived.payload.is_empty() && arrived.last,
        format!(
            "an empty read response expected, opcode {} came",
            arrived.opcode
        ),
    )?;
    stream.serves(probe)
}
