//! Check values and markers on a live stream: MPA-REQ-11 (RFC 5044 sections 4.3, 4.4 and 7.1),
//! RR1-HDR-31 and -32.

use millrace_reactor::fabric::iwarp::{CrcPolicy, IwarpConfig};
use millrace_reactor::fabric::{
    Access, DataPath, Ended, Key, Operation, QueuePairId, RemoteAddress, Terminate,
};

use crate::stand::{LIMITS, SEND, Stand, content};
use crate::support::Peer;
use crate::support::fpdu::{Segment, opcode};
use crate::support::frames::{self, CRC, ENHANCED, MARKERS};
use crate::support::markers;

fn policy(crc: bool) -> IwarpConfig {
    IwarpConfig {
        crc: if crc {
            CrcPolicy::Required
        } else {
            CrcPolicy::Off
        },
        ..IwarpConfig::default()
    }
}

/// A connection in either role with the peer's flags; `peer.crc` says what was agreed.
fn connected(own: bool, flags: u8, serving: bool) -> (Stand, Peer, QueuePairId) {
    let mut stand = Stand::new(policy(own));
    let data = frames::data(0, 4, 4);
    let wished = if own { CRC } else { 0 };
    if serving {
        let address = stand.listen();
        let request = frames::request(ENHANCED | flags, 2, &data);
        let (mut peer, here) = stand.caller(address, &request);
        let reply = stand.accept(&mut peer, here);
        assert_eq!(reply.flags, ENHANCED | wished | flags & CRC);
        return (stand, peer, here);
    }
    let (mut peer, here, request, _) = stand.dial(LIMITS);
    assert_eq!(request.flags, ENHANCED | wished);
    peer.send(&frames::reply(ENHANCED | flags, 2, &data));
    stand.until(|s| s.established(here));
    peer.crc = (wished | flags) & CRC != 0;
    (stand, peer, here)
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 7 + i / 251 + seed) as u8)
        .collect()
}

/// All combinations of the peer's M and C, our C and the role.
#[test]
fn mpa_req_11_crc_and_markers_in_all_combinations() {
    for combination in 0..16_u8 {
        let [own, serving] = [1, 2].map(|bit| combination & bit != 0);
        let flags = combination << 4 & (MARKERS | CRC);
        let (mut stand, mut peer, here) = connected(own, flags, serving);
        assert_eq!(peer.crc, own || flags & CRC != 0);
        stand.post_receives(here, 2);
        // Markers never come to us; a CRC where none is agreed is not looked at.
        let mut first = Segment::send(1, b"first").fpdu(peer.crc);
        if !peer.crc {
            *first.last_mut().unwrap() = 0x5a;
        }
        peer.send(&first);
        assert_eq!(stand.until(|s| s.received(here)), b"first");
        let sent = traffic(&mut stand, here);
        let crc = peer.crc;
        let (found, seen) = stand.until(|_| {
            let done = markers_or_plain(peer.inbox(), flags & MARKERS != 0, crc)?;
            (payload(&done.0) == sent).then_some(done)
        });
        assert_eq!(seen > 0, flags & MARKERS != 0);
        assert!(
            found
                .iter()
                .all(|s| s.opcode == opcode::SEND || s.opcode == opcode::WRITE)
        );
        if !crc {
            let zero = |fpdu: &[u8]| fpdu.ends_with(&[0; 4]);
            assert!(zero(peer.inbox()), "an unused check value is zero");
        }
    }
}

/// Posts messages of many lengths; says all payload bytes in order.
fn traffic(stand: &mut Stand, here: QueuePairId) -> Vec<u8> {
    let remote = RemoteAddress {
        key: Key(3),
        offset: 1 << 33,
    };
    let mut sent = Vec::new();
    let lengths = [
        0, 1, 2, 3, 4, 100, 484, 485, 486, 490, 511, 512, 513, 2000, 70_000, 200_000,
    ];
    for (token, length) in lengths.into_iter().enumerate() {
        let content = bytes(length, token);
        let write = token % 2 == 1;
        let operation = if write {
            Operation::Write(remote)
        } else {
            SEND
        };
        stand.post(here, token as u64, operation, &content);
        sent.extend_from_slice(&content);
    }
    sent
}

fn payload(segments: &[Segment]) -> Vec<u8> {
    segments.iter().flat_map(|s| s.payload.clone()).collect()
}

fn markers_or_plain(stream: &[u8], with: bool, crc: bool) -> Option<(Vec<Segment>, usize)> {
    if with {
        return markers::segments(stream, crc);
    }
    let mut found = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (length, segment) = Segment::parse(rest, crc)?;
        rest = &rest[length..];
        found.push(segment);
    }
    Some((found, 0))
}

/// RFC 5044 figure 5: a Send of 24 octets of zeros behind the first marker.
#[test]
fn mpa_req_11_the_marker_parser_takes_the_example_of_rfc_5044() {
    let mut stream = [0; 0x34];
    stream[5] = 0x2a;
    stream[6..8].copy_from_slice(&[0x41, 0x43]);
    stream[0x13] = 1;
    stream[0x30..].copy_from_slice(&[0x52, 0x23, 0x99, 0x83]);
    let (found, markers) = markers::segments(&stream, true).unwrap();
    assert_eq!(found, [Segment::send(1, &[0; 24])]);
    assert_eq!(markers, 1);
}

#[test]
fn mpa_req_11_reads_are_served_with_markers() {
    let (mut stand, mut peer, here) = connected(true, MARKERS | CRC, true);
    let source = bytes(150_000, 9);
    let memory = [stand.slice(&source)].into_iter().collect();
    let exposure = stand.provider.expose(here, memory, Access::RemoteRead);
    let key = exposure.unwrap().key.0;
    peer.send_segment(&Segment::read_request(1, (8, 100), 150_000, (key, 0)));
    let (found, _) = stand.until(|_| {
        markers::segments(peer.inbox(), true)
            .filter(|(found, _)| found.last().is_some_and(|s| s.last))
    });
    assert_eq!(payload(&found), source);
    assert!(found.iter().all(|s| s.opcode == opcode::READ_RESPONSE));
}

/// Any one bit of any FPDU behind the length field, however the FPDU is cut.
#[test]
fn rr1_hdr_32_a_flipped_bit_ends_the_connection_with_code_two() {
    let good = Segment::send(1, b"the payload is protected").fpdu(true);
    for bit in 16..good.len() * 8 {
        let mut spoilt = good.clone();
        spoilt[bit / 8] ^= 1 << (bit % 8);
        refuses(
            &spoilt,
            if bit % 3 == 0 {
                good.len()
            } else {
                bit % good.len()
            },
        );
    }
}

/// A length that is damaged shows when as many bytes have come as it says.
#[test]
fn rr1_hdr_32_a_flipped_bit_of_the_length_is_found_too() {
    for bit in 0..16 {
        let mut spoilt = Segment::send(1, b"the payload is protected").fpdu(true);
        spoilt[bit / 8] ^= 1 << (bit % 8);
        spoilt.resize(70_000, 0);
        for first in [spoilt.len(), 1, 3, 4, 5, 21, 40] {
            refuses(&spoilt, first);
        }
    }
}

/// The bytes, cut after the first of them, are refused for their CRC.
fn refuses(spoilt: &[u8], first: usize) {
    let (mut stand, mut peer, here) = connected(true, CRC, true);
    stand.post_receives(here, 4);
    for part in [&spoilt[..first], &spoilt[first..]] {
        peer.send(part);
        stand.turn();
        stand.turn();
    }
    let expected = Terminate {
        layer: 2,
        kind: 0,
        code: 2,
    };
    let reason = stand.until(|s| s.ended(here));
    assert_eq!(reason, Ended::TerminateSent(expected));
    assert!(stand.received(here).is_none(), "nothing is delivered");
    let last = stand.until(|_| peer.take_segment());
    assert_eq!(last, Segment::terminate(2, 0, 2));
}

/// The same for memory of the peer's: no Write or answer to a Read that is damaged counts.
#[test]
fn rr1_hdr_32_a_damaged_read_response_fails_its_read() {
    let (mut stand, mut peer, here) = connected(true, CRC, false);
    let remote = RemoteAddress {
        key: Key(1),
        offset: 0,
    };
    stand.post(here, 1, Operation::Read(remote), &[0; 64]);
    let request = stand.until(|_| peer.take_segment());
    let ((key, offset), ..) = request.read_of().unwrap();
    let mut response = Segment::read_response(key, offset, &[7; 64]).fpdu(true);
    response[30] ^= 0x10;
    peer.send(&response);
    stand.until(|s| s.ended(here));
    assert_eq!(stand.completed(here), Some((1, false)));
}

#[test]
fn rr1_hdr_31_messages_of_any_cutting_arrive_in_order_with_their_lengths() {
    let (mut stand, mut peer, here) = connected(true, CRC, true);
    for sequence in 1..300_u32 {
        stand.post_receives(here, 1);
        let length = sequence as usize * 37 % 4096;
        let message = bytes(length, sequence as usize);
        let cut = length / 3;
        let mut head = Segment::send(sequence, &message[..cut]);
        let mut tail = Segment::send(sequence, &message[cut..]);
        head.last = false;
        tail.set_message_offset(cut);
        peer.send_segment(&head);
        if sequence % 2 == 0 {
            stand.turn();
        }
        peer.send_segment(&tail);
        assert_eq!(stand.until(|s| s.received(here)), message);
    }
}

#[test]
fn a_write_is_placed_where_it_says_and_nowhere_else() {
    let (mut stand, mut peer, here) = connected(false, 0, true);
    let memory = stand.slice(&[0xee; 64]);
    let exposure = stand
        .provider
        .expose(
            here,
            [memory.slice(16..48)].into_iter().collect(),
            Access::RemoteWrite,
        )
        .unwrap();
    stand.post_receives(here, 1);
    peer.send_segment(&Segment::write(exposure.key.0, exposure.offset + 30, b"xy"));
    peer.send_segment(&Segment::send(1, b""));
    stand.until(|s| s.received(here));
    let mut expected = vec![0xee; 64];
    expected[46..48].copy_from_slice(b"xy");
    assert_eq!(content(&memory), expected);
}
