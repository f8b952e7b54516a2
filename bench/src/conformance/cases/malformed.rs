//! RR1-HDR and RR1-DONE: what no sound peer sends.

use super::{Question, case};
use crate::conformance::message::{WISH, kind, plain, words};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::Done;

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-HDR-18",
        "messages too short to be trusted are dropped",
        short_dropped,
    ),
    case("RR1-DONE-01", "replies have no read list", no_read_list),
    case(
        "RR1-DONE-07",
        "stray RDMA_DONEs are dropped in silence",
        stray_dones,
    ),
    case(
        "RR1-SEC-20",
        "no cut or flipped header harms more than its connection",
        any_bytes,
    ),
];

fn short_dropped(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    let full = |kind| words(&[0x5100_0000, 1, WISH, kind, 0, 0, 0]);
    for (kind, lengths) in [
        (kind::MSG, &[1, 4, 12, 15, 16, 20, 24, 27][..]),
        (kind::NOMSG, &[16, 27]),
        (kind::MSGP, &[16, 27]),
        (77, &[16, 27]),
        (kind::ERROR, &[15, 16, 19]),
        (kind::DONE, &[15, 16]),
    ] {
        for &length in lengths {
            peer.send(&full(kind)[..length])?;
            probe.lives(&mut peer)?;
        }
    }
    Ok(())
}

fn no_read_list(probe: &mut Probe) -> Done {
    use crate::conformance::message::parse;
    use crate::conformance::verdict::ensure;
    use millrace_wire::nfs3::Procedure;
    let fixture = probe.fixture()?;
    let mut peer = probe.peer()?;
    for call in [
        probe.null(),
        probe.call(Procedure::Getattr, &fixture.root),
        probe.call(Procedure::Fsinfo, &fixture.root),
    ] {
        let parsed = parse(&peer.exchange(&plain(&call))?)?;
        ensure(parsed.reads.is_empty(), "a reply has a read list")?;
    }
    Ok(())
}

fn stray_dones(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    probe.warm(&mut peer)?;
    for round in 0..100 {
        peer.send(&words(&[0x5200_0000 + round, 1, WISH, kind::DONE]))?;
        if round % 10 == 9 {
            probe.lives(&mut peer)?;
        }
    }
    probe.lives(&mut peer)
}

fn any_bytes(probe: &mut Probe) -> Done {
    let call = probe.null();
    let message = plain(&call);
    for bit in (0..8 * message.len()).step_by(37) {
        let mut flipped = message.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let mut peer = probe.peer()?;
        peer.send(&flipped)?;
        drop(peer);
    }
    let mut peer = probe.peer()?;
    probe.lives(&mut peer)
}
