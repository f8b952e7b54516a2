//! The scripted peer against itself and against golden bytes, so that what is tested with it can
//! be believed.

mod support;

use std::net::TcpListener;

use support::Peer;
use support::fpdu::{Header, Segment, crc32c, opcode, queue};

fn pair(crc: bool) -> (Peer, Peer) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = Peer::connect(listener.local_addr().unwrap());
    let mut there = Peer::accept(&listener);
    (here.crc, there.crc) = (crc, crc);
    (here, there)
}

/// Repeats until there is an answer. Each try yields, so the kernel delivers meanwhile.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_000_000 {
        if let Some(answer) = attempt() {
            return answer;
        }
        std::thread::yield_now();
    }
    panic!("it never came");
}

#[test]
fn terminate_message_is_the_golden_one() {
    // Layer 2, type 0, code 7 on queue 2, without copied headers.
    let golden = [
        0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x20, 0x07, 0, 0,
    ];
    let segment = Segment::terminate(2, 0, 7);
    assert_eq!(segment.ulpdu(), golden);
    assert_eq!(segment.termination(), Some((2, 0, 7)));
    let fpdu = segment.fpdu(false);
    assert_eq!(fpdu.len(), 28);
    assert_eq!(Segment::parse(&fpdu, false), Some((28, segment)));
}

#[test]
fn check_value_is_that_of_the_standard() {
    // RFC 3720 appendix B.4, which RFC 5044 uses: 32 bytes of zeros, of ones, of ascending values.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc32c(&ascending), 0x46dd_794e);
}

#[test]
fn segments_cross_a_connection() {
    for crc in [false, true] {
        let (mut here, mut there) = pair(crc);
        let script = [
            Segment::send(1, b""),
            Segment::send(2, b"hello"),
            Segment::write(0x1234_5678, u64::MAX - 1, b"abc"),
            Segment::read_request(1, (1, 2), 3, (4, 5)),
            Segment::terminate(2, 0, 5),
        ];
        for segment in &script {
            here.send_segment(segment);
        }
        for segment in &script {
            assert_eq!(until(|| there.take_segment()), *segment);
        }
        assert!(there.inbox().is_empty() && !there.is_closed());
        drop(here);
        until(|| there.is_closed().then_some(()));
    }
}

#[test]
fn headers_are_where_the_standard_has_them() {
    let write = Segment::write(0x0102_0304, 0x0506_0708_090a_0b0c, b"x");
    let expected = [0xc1, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, b'x'];
    assert_eq!(write.ulpdu(), expected);
    let read = Segment::read_request(9, (1, 2), 3, (4, 5)).ulpdu();
    assert_eq!(read.len(), 46);
    assert_eq!(read[..2], [0x41, 0x41]);
    assert_eq!(read[6..14], [0, 0, 0, 1, 0, 0, 0, 9]);
    let header = Header::Untagged {
        invalidate: 0,
        queue: queue::SEND,
        sequence: 7,
        offset: 0,
    };
    assert_eq!(Segment::send(7, b"").header, header);
    let response = Segment {
        opcode: opcode::READ_RESPONSE,
        ..write
    };
    assert_eq!(response.ulpdu()[..2], [0xc1, 0x42]);
}

#[test]
fn bytes_are_taken_as_they_come() {
    let (mut here, mut there) = pair(false);
    here.send(b"MPA ID");
    assert_eq!(until(|| there.take(6)), b"MPA ID");
    assert_eq!(there.take(1), None);
}
