//! Read depths on a live stream: MPA-IRD (RFC 6581 sections 4.1 and 9.1).

use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Ended, Event, Key, Operation, QueuePairId, QueuePairLimits,
    RemoteAddress, Terminate, WorkError,
};

use crate::stand::{LIMITS, SEND, Stand, plain};
use crate::support::Peer;
use crate::support::fpdu::{Header, Segment, opcode};
use crate::support::frames;

/// A Read of the peer's memory under some key.
fn read(offset: u64) -> Operation {
    Operation::Read(RemoteAddress {
        key: Key(0x77),
        offset,
    })
}

/// Takes all Read Requests that have come; nothing else may have.
fn requests(stand: &mut Stand, peer: &mut Peer) -> Vec<Segment> {
    stand.settle();
    let found: Vec<Segment> = std::iter::from_fn(|| peer.take_segment()).collect();
    assert!(found.iter().all(|segment| segment.read_of().is_some()));
    found
}

fn answer(peer: &mut Peer, request: &Segment, content: &[u8]) {
    let ((key, offset), length, _) = request.read_of().unwrap();
    assert_eq!(length as usize, content.len());
    peer.send_segment(&Segment::read_response(key, offset, content));
}

#[test]
fn mpa_ird_06_never_more_reads_open_than_the_reply_grants() {
    let mut stand = Stand::new(plain());
    let limits = QueuePairLimits {
        ird: 1,
        ord: 8,
        ..LIMITS
    };
    let (mut peer, here) = stand.dialled(limits, frames::data(0, 2, 3));
    for token in 0..5 {
        stand.post(here, token, read(token), &[0; 3]);
    }
    let mut open = requests(&mut stand, &mut peer);
    assert_eq!(open.len(), 2);
    for token in 0..5 {
        let request = open.remove(0);
        assert_eq!(request.read_of().unwrap().2, (0x77, token));
        answer(&mut peer, &request, &[token as u8; 3]);
        assert_eq!(stand.until(|s| s.completed(here)), (token, true));
        open.extend(requests(&mut stand, &mut peer));
        assert_eq!(open.len() as u64, 2.min(4 - token));
    }
}

#[test]
fn mpa_ird_06_the_initiator_serves_what_the_responder_wishes() {
    for (wished, served) in [(3, true), (4, false)] {
        let mut stand = Stand::new(plain());
        let limits = QueuePairLimits { ird: 1, ..LIMITS };
        let (mut peer, here) = stand.dialled(limits, frames::data(0, 2, 3));
        let memory = stand.slice(b"0123456789");
        let exposure = stand
            .provider
            .expose(here, [memory].into_iter().collect(), Access::RemoteRead)
            .unwrap();
        let source = (exposure.key.0, exposure.offset);
        let burst: Vec<u8> = (1..=wished)
            .flat_map(|msn| Segment::read_request(msn, (9, u64::from(msn)), 10, source).fpdu(false))
            .collect();
        peer.send(&burst);
        if served {
            for msn in 1..=u64::from(wished) {
                let response = stand.until(|_| peer.take_segment());
                assert_eq!(response, Segment::read_response(9, msn, b"0123456789"));
            }
        } else {
            assert_eq!(stand.until(|s| s.ended(here)), NO_BUFFER);
        }
    }
}

const NO_BUFFER: Ended = Ended::TerminateSent(Terminate {
    layer: 1,
    kind: 2,
    code: 2,
});

#[test]
fn old_13_local_memory_needs_no_key() {
    let mut stand = Stand::new(plain());
    let limits = QueuePairLimits {
        exposures: 0,
        ..LIMITS
    };
    let (mut peer, here) = stand.dialled(limits, frames::data(0, 4, 0));
    let remote = RemoteAddress {
        key: Key(0x77),
        offset: 5,
    };
    stand.post(here, 1, Operation::Write(remote), b"placed");
    stand.post(here, 2, read(9), &[0; 6]);
    stand.post(here, 3, SEND, b"sent");
    stand.settle();
    assert_eq!(
        peer.take_segment(),
        Some(Segment::write(0x77, 5, b"placed"))
    );
    let request = peer.take_segment().unwrap();
    // The tag of the sink, which RDMAP asks for, is the provider's own affair.
    answer(&mut peer, &request, b"theirs");
    assert_eq!(peer.take_segment(), Some(Segment::send(1, b"sent")));
    for token in 1..=3 {
        assert_eq!(stand.until(|s| s.completed(here)), (token, true));
    }
}

#[test]
fn rr1_ccp_08_reads_are_held_to_the_number_that_the_peer_gave() {
    let mut stand = Stand::new(plain());
    let (mut peer, here) = stand.dialled(LIMITS, frames::data(0, 4, 0));
    stand.provider.limit_reads(here, 2);
    for token in 0..6 {
        stand.post(here, token, read(token), &[0; 3]);
    }
    let mut open = requests(&mut stand, &mut peer);
    assert_eq!(open.len(), 2);
    // A larger number lets more go at once, up to what the setup gave.
    stand.provider.limit_reads(here, 100);
    open.extend(requests(&mut stand, &mut peer));
    assert_eq!(open.len(), 4);
    // A smaller one is kept from the next Read on.
    stand.provider.limit_reads(here, 1);
    for token in 0..6 {
        let request = open.remove(0);
        answer(&mut peer, &request, &[token as u8; 3]);
        assert_eq!(stand.until(|s| s.completed(here)), (token, true));
        open.extend(requests(&mut stand, &mut peer));
        let wanted = [3, 2, 1, 1, 1, 0];
        assert_eq!(open.len(), wanted[token as usize]);
    }
}

#[test]
fn rr1_ccp_09_where_the_peer_serves_no_reads_they_end_at_once() {
    let mut stand = Stand::new(plain());
    let (mut peer, here) = stand.dialled(LIMITS, frames::data(0, 1, 0));
    stand.post(here, 1, read(1), &[0; 3]);
    stand.post(here, 2, read(2), &[0; 3]);
    let first = requests(&mut stand, &mut peer).remove(0);
    stand.provider.limit_reads(here, 0);
    answer(&mut peer, &first, b"abc");
    assert_eq!(stand.until(|s| s.completed(here)), (1, true));
    assert_eq!(stand.until(|s| s.completed(here)), (2, false));
    stand.post(here, 3, SEND, b"on");
    stand.settle();
    assert_eq!(peer.take_segment(), Some(Segment::send(1, b"on")));
}

#[test]
fn mpa_ird_13_reads_wait_in_the_queue_with_all_behind_them() {
    let mut stand = Stand::new(plain());
    let (mut peer, here) = stand.dialled(LIMITS, frames::data(0, 1, 0));
    stand.post(here, 1, read(1), &[0; 4]);
    stand.post(here, 2, SEND, b"between");
    stand.post(here, 3, read(3), &[0; 4]);
    stand.post(here, 4, SEND, b"behind");
    stand.settle();
    let first = peer.take_segment().unwrap();
    assert_eq!(first.read_of().unwrap().2, (0x77, 1));
    assert_eq!(peer.take_segment(), Some(Segment::send(1, b"between")));
    stand.settle();
    assert!(
        peer.inbox().is_empty(),
        "the second Read waits, and the Send"
    );
    assert_eq!(stand.completed(here), None);
    answer(&mut peer, &first, b"abcd");
    stand.settle();
    let second = peer.take_segment().unwrap();
    assert_eq!(second.read_of().unwrap().2, (0x77, 3));
    let sequence = Header::Untagged {
        invalidate: 0,
        queue: 1,
        sequence: 2,
        offset: 0,
    };
    assert_eq!(second.header, sequence);
    assert_eq!(peer.take_segment(), Some(Segment::send(2, b"behind")));
    answer(&mut peer, &second, b"efgh");
    stand.settle();
    let done: Vec<_> = std::iter::from_fn(|| stand.completed(here)).collect();
    assert_eq!(done, [(1, true), (2, true), (3, true), (4, true)]);
}

#[test]
fn mpa_ird_14_a_read_beyond_the_depth_ends_the_stream() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.served(address, 0, 4);
    let exposure = exposed(&mut stand, here);
    let burst = |from: u32, count: u32| -> Vec<u8> {
        (from..from + count)
            .flat_map(|msn| Segment::read_request(msn, (5, 0), 4, (exposure, 0)).fpdu(false))
            .collect()
    };
    // Places are free again once the answers have gone.
    for from in [1, 5] {
        peer.send(&burst(from, 4));
        for _ in 0..4 {
            let response = stand.until(|_| peer.take_segment());
            assert_eq!(response, Segment::read_response(5, 0, b"read"));
        }
    }
    peer.send(&burst(9, 5));
    assert_eq!(stand.until(|s| s.ended(here)), NO_BUFFER);
    let last = stand.until(|_| peer.take_segment().filter(|s| s.termination().is_some()));
    assert_eq!(last.termination(), Some((1, 2, 2)));
}

fn exposed(stand: &mut Stand, here: QueuePairId) -> u32 {
    let memory = [stand.slice(b"read")].into_iter().collect();
    let exposure = stand.provider.expose(here, memory, Access::RemoteRead);
    exposure.unwrap().key.0
}

#[test]
fn mpa_ird_15_a_depth_of_zero_fails_local_reads_at_once() {
    let mut stand = Stand::new(plain());
    let (mut peer, here) = stand.dialled(LIMITS, frames::data(0, 0, 0));
    stand.post(here, 1, read(0), &[0; 4]);
    stand.post(here, 2, SEND, b"goes on");
    let result = stand.until(|stand| {
        stand.take(|event| match event {
            Event::Completed {
                token: 1, result, ..
            } => Some(*result),
            _ => None,
        })
    });
    assert_eq!(result, Err(WorkError::NoReads));
    assert_eq!(stand.until(|s| s.completed(here)), (2, true));
    let only = stand.until(|_| peer.take_segment());
    assert_eq!(
        (only.opcode, &only.payload[..]),
        (opcode::SEND, &b"goes on"[..])
    );
    assert_eq!(stand.ended(here), None);
}

#[test]
fn mpa_ird_15_a_depth_of_zero_serves_no_read() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.served(address, 0, 0);
    let key = exposed(&mut stand, here);
    peer.send_segment(&Segment::read_request(1, (5, 0), 4, (key, 0)));
    assert_eq!(stand.until(|s| s.ended(here)), NO_BUFFER);
}
