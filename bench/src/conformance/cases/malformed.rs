//! RR1-HDR and RR1-DONE: what no sound peer sends.

use millrace_wire::rpcrdma::CallChunks;

use super::{Question, case};
use crate::conformance::message::{WISH, chunk_error, header, kind, plain, words};
use crate::conformance::probe::Probe;
use crate::conformance::verdict::Done;

pub(super) const CASES: &[Question] = &[
    case(
        "RR1-HDR-08",
        "truncated chunk lists are ERR_CHUNK",
        truncated,
    ),
    case(
        "RR1-HDR-16",
        "an RDMA_ERROR to a server is dropped",
        errors_dropped,
    ),
    case(
        "RR1-HDR-18",
        "messages too short to be trusted are dropped",
        short_dropped,
    ),
    case(
        "RR1-HDR-19",
        "presence words are 0 or 1, and counts are bounded",
        presence,
    ),
    case(
        "RR1-HDR-20",
        "RDMA_NOMSG without any list is ERR_CHUNK",
        nothing_at_all,
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

fn truncated(probe: &mut Probe) -> Done {
    for lists in [
        // A read entry that ends in its offset.
        words(&[1, 120, 0xa1, 5, 0]),
        // A read list that never ends.
        words(&[1, 120, 0xa1, 5, 0, 0x1000]),
        // A write chunk without its segments.
        words(&[0, 1, 2]),
        // A Reply chunk cut off in its segment.
        words(&[0, 0, 1, 1, 0xc1]),
        // No Reply chunk's presence word.
        words(&[0, 1, 1, 0xb1, 0x1000, 0, 0, 0]),
    ] {
        let xid = probe.xid();
        let mut peer = probe.peer()?;
        let message = [words(&[xid, 1, WISH, kind::MSG]), lists].concat();
        // Shorter ones are dropped instead.
        if message.len() < 28 {
            continue;
        }
        chunk_error(&peer.exchange(&message)?, xid)?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn errors_dropped(probe: &mut Probe) -> Done {
    let mut peer = probe.peer()?;
    for error in [&[2][..], &[1, 1, 1], &[77], &[77, 1, 2, 3, 4, 5, 6, 7, 8]] {
        let xid = probe.xid();
        let message = [words(&[xid, 1, WISH, kind::ERROR]), words(error)].concat();
        peer.send(&message)?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

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

fn presence(probe: &mut Probe) -> Done {
    for lists in [
        &[2, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 2, 0, 0, 0],
        &[0, 0, 2, 0, 0],
        &[0, 0, u32::MAX],
        // Counts that no message can hold.
        &[0, 1, u32::MAX, 0, 0, 0, 0, 0, 0],
        &[0, 0, 1, u32::MAX, 0, 0, 0, 0],
    ] {
        let xid = probe.xid();
        let mut peer = probe.peer()?;
        let message = [words(&[xid, 1, WISH, kind::MSG]), words(lists)].concat();
        chunk_error(&peer.exchange(&message)?, xid)?;
        probe.lives(&mut peer)?;
    }
    Ok(())
}

fn nothing_at_all(probe: &mut Probe) -> Done {
    let xid = probe.xid();
    let mut peer = probe.peer()?;
    let message = header(xid, kind::NOMSG, &CallChunks::default());
    chunk_error(&peer.exchange(&message)?, xid)?;
    probe.lives(&mut peer)
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
