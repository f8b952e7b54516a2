//! FPDUs on the wire: golden bytes, markers, segment sizes.

use millrace_iwarp::mpa::{Negotiated, Role};
use millrace_iwarp::{Operation, Request};

use crate::support::{end, negotiated, pattern, raw, send_all, shared};

const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

fn post(end: &mut crate::support::End, operation: Operation, bytes: Vec<u8>) {
    let request = Request {
        token: 0,
        operation,
        local: shared(bytes),
        signalled: false,
    };
    end.post(request).unwrap();
}

/// Takes the markers out of a stream and checks them; gives the FPDUs without them, whose check
/// values are replaced by ones that fit.
pub fn without_markers(bytes: &[u8], crc: bool) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        if at % 512 == 0 {
            assert_eq!(bytes[at..at + 4], [0; 4], "marker between two FPDUs");
            at += 4;
        }
        let start = at;
        let length = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let mut fpdu = Vec::new();
        while fpdu.len() < (2 + length).next_multiple_of(4) || at % 512 == 0 {
            if at % 512 == 0 && at != start {
                let [high, low] = ((at - start) as u16).to_be_bytes();
                assert_eq!(
                    bytes[at..at + 4],
                    [0, 0, high, low],
                    "marker within an FPDU"
                );
                at += 4;
                continue;
            }
            fpdu.push(bytes[at]);
            at += 1;
        }
        let check = if crc {
            crc32c::crc32c(&bytes[begin..at])
        } else {
            0
        };
        assert_eq!(bytes[at..at + 4], check.to_le_bytes(), "check value");
        at += 4;
        let check = if crc { crc32c::crc32c(&fpdu) } else { 0 };
        plain.extend(fpdu);
        plain.extend(check.to_le_bytes());
    }
    plain
}

#[test]
fn golden_fpdus_of_rfc_5044_with_markers() {
    let negotiated = Negotiated {
        crc: true,
        send_markers: true,
        ..negotiated(Role::Initiator)
    };
    let mut initiator = end(&negotiated, 65_000);
    // Figure 5: the first FPDU of a stream, a Send of 24 zeros.
    post(&mut initiator, SEND, vec![0; 24]);
    let first = send_all(&mut initiator);
    assert_eq!(first.len(), 0x34);
    assert_eq!(first[..10], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43, 0, 0]);
    assert_eq!(first[0x30..], [0x52, 0x23, 0x99, 0x83]);
    // Figure 6: the second FPDU, which begins at octet 492, so that a marker falls into it.
    let mut initiator = end(&negotiated, 65_000);
    post(&mut initiator, SEND, vec![0; 492 - 4 - 2 - 18 - 4]);
    assert_eq!(send_all(&mut initiator).len(), 492);
    post(&mut initiator, SEND, vec![0; 24]);
    let second = send_all(&mut initiator);
    assert_eq!(second[0x14..0x18], [0, 0, 0, 0x14]);
    assert_eq!(second[0x30..], [0x84, 0x92, 0x58, 0x98]);
}

#[test]
fn every_length_is_framed_right_with_and_without_markers() {
    for crc in [false, true] {
        for send_markers in [false, true] {
            let negotiated = Negotiated {
                crc,
                send_markers,
                ..negotiated(Role::Initiator)
            };
            let mut initiator = end(&negotiated, 65_000);
            let mut stream = Vec::new();
            for length in (0..700).chain([5000, 61_000, 65_000, 70_000, 200_000]) {
                post(&mut initiator, SEND, pattern(length, length as u32));
                stream.extend(send_all(&mut initiator));
            }
            let plain = if send_markers {
                without_markers(&stream, crc)
            } else {
                stream
            };
            let mut messages: Vec<Vec<u8>> = Vec::new();
            let mut starts = true;
            for ulpdu in raw::ulpdus(&plain) {
                if starts {
                    messages.push(Vec::new());
                }
                messages.last_mut().unwrap().extend(&ulpdu[18..]);
                starts = ulpdu[0] & raw::LAST != 0;
            }
            let lengths = (0..700).chain([5000, 61_000, 65_000, 70_000, 200_000]);
            for (message, length) in messages.iter().zip(lengths) {
                assert!(
                    *message == pattern(length, length as u32),
                    "length {length}"
                );
            }
            assert_eq!(messages.len(), 705);
        }
    }
}

#[test]
fn segments_respect_the_ulpdu_and_only_the_last_says_so() {
    let mut initiator = end(&negotiated(Role::Initiator), 1000);
    post(
        &mut initiator,
        Operation::Write {
            key: 7,
            offset: 100,
        },
        pattern(5000, 1),
    );
    let ulpdus = raw::ulpdus(&send_all(&mut initiator));
    assert_eq!(ulpdus.len(), 6);
    let mut offset = 100;
    for (index, ulpdu) in ulpdus.iter().enumerate() {
        assert!(ulpdu.len() <= 1000);
        assert_eq!(ulpdu[0], if index == 5 { 0xc1 } else { 0x81 });
        assert_eq!(ulpdu[1], 0x40);
        assert_eq!(ulpdu[6..14], u64::to_be_bytes(offset));
        offset += ulpdu.len() as u64 - 14;
    }
}

#[test]
fn a_stream_may_end_between_two_fpdus_only() {
    for crc in [false, true] {
        let mut end = end(
            &Negotiated {
                crc,
                ..negotiated(Role::Responder)
            },
            65_000,
        );
        end.post_receive(vec![0; 100]).unwrap();
        let fpdu = raw::fpdu(&raw::send(1, b"hello"), crc);
        assert!(end.is_at_boundary());
        for left in (0..fpdu.len()).rev() {
            let byte = fpdu.len() - left - 1;
            end.receive(&fpdu[byte..=byte]).unwrap();
            assert_eq!(end.is_at_boundary(), left == 0, "{left} bytes are missing");
        }
    }
}
