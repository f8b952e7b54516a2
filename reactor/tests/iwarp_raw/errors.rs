//! Terminate messages of the connection setup and of the check values: MPA-ERR (RFC 6581
//! section 8, RFC 5044 section 8).

use std::time::Duration;

use millrace_iwarp::mpa::{RtrKind, RtrKinds};
use millrace_reactor::fabric::iwarp::{CrcPolicy, IwarpConfig};
use millrace_reactor::fabric::{DataPath, Ended, Event, Terminate, WorkError};

use crate::stand::{LIMITS, SEND, Stand, plain};
use crate::support::Peer;
use crate::support::fpdu::{Segment, opcode};
use crate::support::frames::{self, ENHANCED, model};

fn terminate(layer: u8, kind: u8, code: u8) -> Terminate {
    Terminate { layer, kind, code }
}

/// Everything that comes until the end of the stream.
fn to_the_end(stand: &mut Stand, peer: &mut Peer) -> Vec<u8> {
    stand.until(|_| peer.is_closed().then_some(()));
    let count = peer.inbox().len();
    peer.take(count).unwrap()
}

/// The whole FPDU of a Terminate message without copied headers: queue 2, sequence 1.
fn golden(code: u8, crc: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![
        0, 22, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0,
    ];
    bytes.extend_from_slice(&[0x20, code, 0, 0]);
    bytes.extend_from_slice(&crc);
    bytes
}

#[test]
fn mpa_err_01_too_many_reads_wished_is_the_golden_code_six() {
    let mut stand = Stand::new(plain());
    let (mut peer, here, ..) = stand.dial(LIMITS);
    stand.post(here, 1, SEND, b"never leaves");
    peer.send(&frames::reply(ENHANCED, 2, &frames::data(0, 4, 16_000)));
    assert_eq!(to_the_end(&mut stand, &mut peer), golden(6, [0; 4]));
    let reason = stand.until(|s| s.ended(here));
    assert_eq!(reason, Ended::TerminateSent(terminate(2, 0, 6)));
    assert_eq!(stand.completed(here), Some((1, false)));
    assert_eq!(stand.established(here), None);
}

#[test]
fn mpa_err_01_no_common_indication_is_the_golden_code_seven() {
    let mut stand = Stand::new(IwarpConfig {
        peer_to_peer: true,
        indications: RtrKinds::only(RtrKind::Send),
        ..plain()
    });
    let (mut peer, here, ..) = stand.dial(LIMITS);
    let data = frames::data(model::A | model::D, 4, 4);
    peer.send(&frames::reply(ENHANCED, 2, &data));
    assert_eq!(to_the_end(&mut stand, &mut peer), golden(7, [0; 4]));
    let reason = stand.until(|s| s.ended(here));
    assert_eq!(reason, Ended::TerminateSent(terminate(2, 0, 7)));
}

#[test]
fn mpa_err_01_the_terminate_carries_a_crc_where_one_holds() {
    let mut stand = Stand::new(plain());
    let (mut peer, here, ..) = stand.dial(LIMITS);
    let data = frames::data(0, 4, 16_000);
    peer.send(&frames::reply(ENHANCED | frames::CRC, 2, &data));
    let expected = Segment::terminate(2, 0, 6).fpdu(true);
    let crc = expected[expected.len() - 4..].try_into().unwrap();
    assert_eq!(to_the_end(&mut stand, &mut peer), golden(6, crc));
    stand.until(|s| s.ended(here));
}

#[test]
fn mpa_err_03_a_bad_crc_is_code_two_and_nothing_is_delivered() {
    let required = IwarpConfig {
        crc: CrcPolicy::Required,
        ..IwarpConfig::default()
    };
    let mut stand = Stand::new(required);
    let address = stand.listen();
    let (mut peer, here) = stand.served(address, 4, 4);
    assert!(peer.crc);
    stand.post_receives(here, 2);
    peer.send_segment(&Segment::send(1, b"good"));
    assert_eq!(stand.until(|s| s.received(here)), b"good");
    let mut fpdu = Segment::send(2, b"spoilt").fpdu(true);
    *fpdu.last_mut().unwrap() ^= 1;
    peer.send(&fpdu);
    let reason = stand.until(|s| s.ended(here));
    assert_eq!(reason, Ended::TerminateSent(terminate(2, 0, 2)));
    assert_eq!(stand.received(here), None);
    let last = stand.until(|_| peer.take_segment());
    assert_eq!(last, Segment::terminate(2, 0, 2));
    assert_eq!(stand.count(|c| &c.crc_errors), 1);
}

#[test]
fn mpa_err_03_a_bad_startup_frame_closes_without_a_word() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let bad = [
        b"GET / HTTP/1.1\r\n".to_vec(),
        frames::reply(ENHANCED, 2, &frames::data(0, 4, 4)),
        frames::request(ENHANCED, 2, b"abc"),
        frames::request(0, 0, b""),
        frames::request(0, 1, &[0; 513]),
    ];
    for bytes in bad {
        let mut peer = Peer::connect(address);
        peer.send(&bytes);
        assert!(to_the_end(&mut stand, &mut peer).is_empty());
    }
    assert!(stand.events.is_empty());
    assert_eq!(stand.count(|c| &c.fabric.setups_failed), 5);
    // The connecting side reports it.
    let (mut peer, here, ..) = stand.dial(LIMITS);
    peer.send(&frames::request(ENHANCED, 2, &frames::data(0, 4, 4)));
    assert!(to_the_end(&mut stand, &mut peer).is_empty());
    assert!(matches!(stand.until(|s| s.ended(here)), Ended::Setup(_)));
}

#[test]
fn mpa_err_05_every_code_received_is_shown_and_work_is_flushed() {
    let mpa = (0..=8).map(|code| (2, 0, code));
    let known = [
        (0, 0, 0),
        (0, 1, 4),
        (0, 2, 7),
        (1, 0, 0),
        (1, 1, 1),
        (1, 2, 2),
    ];
    let unknown = [(3, 0, 0), (15, 15, 255), (2, 5, 9), (0, 7, 99)];
    for (layer, kind, code) in mpa.chain(known).chain(unknown) {
        let mut stand = Stand::new(plain());
        let (mut peer, here) = stand.dialled(LIMITS, frames::data(0, 0, 0));
        stand.post_receives(here, 3);
        // An indication is never answered here, so this Send stays unsent with the Read.
        let (mut other, there) = {
            let address = stand.listen();
            stand.served(address, 4, 4)
        };
        stand.post(there, 8, SEND, b"waits for the first FPDU");
        other.send_segment(&Segment::terminate(layer, kind, code));
        peer.send_segment(&Segment::terminate(layer, kind, code));
        for id in [here, there] {
            let reason = stand.until(|s| s.ended(id));
            let expected = terminate(layer, kind, code);
            assert_eq!(reason, Ended::TerminateReceived(expected));
        }
        let flushed = stand.take(|event| match event {
            Event::Completed {
                token: 8, result, ..
            } => Some(*result),
            _ => None,
        });
        assert_eq!(flushed, Some(Err(WorkError::Flushed)));
        for peer in [&mut peer, &mut other] {
            assert!(
                to_the_end(&mut stand, peer).is_empty(),
                "no Terminate answers one"
            );
        }
        assert_eq!(stand.count(|c| &c.terminates_received), 2);
        assert_eq!(stand.pool.gauges().in_use(), 0, "receives are free again");
    }
}

#[test]
fn mpa_err_06_a_terminate_is_sent_once_and_the_connection_closed_after_it() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (mut peer, here) = stand.served(address, 4, 4);
    let offence = Segment::send(7, b"out of turn").fpdu(false);
    peer.send(&offence);
    let reason = stand.until(|s| s.ended(here));
    assert_eq!(reason, Ended::TerminateSent(terminate(1, 2, 3)));
    // The peer ignores it and goes on; it neither gets another one nor keeps the connection.
    for _ in 0..3 {
        peer.send(&offence);
        stand.settle();
    }
    let bytes = to_the_end(&mut stand, &mut peer);
    let (length, only) = Segment::parse(&bytes, false).unwrap();
    assert_eq!((only.opcode, length), (opcode::TERMINATE, bytes.len()));
    assert_eq!(stand.count(|c| &c.terminates_sent), 1);
    assert_eq!(stand.connections(), 1, "until the peer has read it");
    stand.pass(Duration::from_secs(1));
    assert_eq!(stand.connections(), 0);
    assert!(stand.events.is_empty());
}

#[test]
fn mpa_err_06_a_peer_that_reads_nothing_does_not_keep_the_connection() {
    let mut stand = Stand::new(IwarpConfig {
        send_buffer: Some(4096),
        ..plain()
    });
    let address = stand.listen();
    let (mut peer, here) = stand.served(address, 4, 4);
    stand.post_receives(here, 1);
    peer.send_segment(&Segment::send(1, b"open the gate"));
    stand.until(|s| s.received(here));
    // More than both sockets hold, so that the Terminate message cannot leave.
    let block = vec![0; 1 << 20];
    for token in 0..3 {
        stand.post(here, token, SEND, &block);
    }
    stand.settle();
    peer.send_segment(&Segment::send(9, b""));
    stand.settle();
    assert_eq!(stand.ended(here), None);
    stand.pass(Duration::from_secs(1));
    assert!(matches!(stand.ended(here), Some(Ended::TerminateSent(_))));
    assert_eq!(stand.connections(), 0);
    assert!(stand.provider.next_deadline().is_none());
}
