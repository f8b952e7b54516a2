//! One rule broken at a time: the fault, and the Terminate message that reports it.

use millrace_iwarp::mpa::{Negotiated, Role};
use millrace_iwarp::{Access, Fault, Operation, Request, Revocation, Stop, Terminate, WorkFault};

use crate::support::raw::{self, DDP, LAST, TAGGED};
use crate::support::{End, completions, end, negotiated, send_all, shared};

/// A responder with two receives of 100 bytes, memory to read and memory to write of 1000 bytes
/// each, and a Read of 50 bytes of its own that waits.
struct Victim {
    end: End,
    readable: u32,
    writable: u32,
}

const SINK: u32 = 0x5151_5151;

fn victim(crc: bool) -> Victim {
    let mut end = end(
        &Negotiated {
            crc,
            ..negotiated(Role::Responder)
        },
        65_000,
    );
    for _ in 0..2 {
        end.post_receive(vec![0; 100]).unwrap();
    }
    let memory = || shared(vec![7; 1000]);
    let readable = end
        .expose(memory(), Access::RemoteRead, 0xabcd_ef01)
        .unwrap()
        .key;
    let writable = end
        .expose(memory(), Access::RemoteWrite, 0x1234_5678)
        .unwrap()
        .key;
    let operation = Operation::Read {
        key: 1,
        offset: 0,
        sink: SINK,
    };
    let local = shared(vec![0; 50]);
    end.post(Request {
        token: 1,
        operation,
        local,
        signalled: true,
    })
    .unwrap();
    // The first message opens the way for the own Read.
    end.receive(&raw::fpdu(&raw::write(0, 0, &[]), crc))
        .unwrap();
    assert_eq!(send_all(&mut end).len(), 52);
    Victim {
        end,
        readable,
        writable,
    }
}

/// Feeds a bad ULPDU, once in one piece and once byte by byte, and checks the fault, the Terminate
/// message and that it is the last word.
fn expect(fault: Fault, before: &[Vec<u8>], make: impl Fn(&Victim) -> Vec<u8>) {
    for crc in [false, true] {
        for piece in [usize::MAX, 1, 7] {
            let mut victim = victim(crc);
            for good in before {
                assert_eq!(victim.end.receive(&raw::fpdu(good, crc)), Ok(()));
            }
            let ulpdu = make(&victim);
            let mut stopped = Ok(());
            for bytes in raw::fpdu(&ulpdu, crc).chunks(piece) {
                stopped = victim.end.receive(bytes);
            }
            assert_eq!(
                stopped,
                Err(Stop::Fault(fault)),
                "crc {crc}, pieces of {piece}"
            );
            check_terminate(&mut victim.end, fault, &ulpdu);
            assert_eq!(
                victim.end.receive(&raw::fpdu(&raw::send(1, b"more"), crc)),
                Err(Stop::Fault(fault))
            );
            assert!(send_all(&mut victim.end).is_empty());
            victim.end.flush();
            let flushed = completions(&mut victim.end);
            assert_eq!(flushed.len(), 1);
            assert_eq!(flushed[0].result, Err(WorkFault::Flushed));
        }
    }
}

fn check_terminate(end: &mut End, fault: Fault, offender: &[u8]) {
    let ulpdus = raw::ulpdus(&send_all(end));
    let terminate = ulpdus.last().expect("a Terminate message");
    assert!(end.is_terminate_sent());
    assert_eq!(
        terminate[..18],
        [0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]
    );
    let Terminate { layer, kind, code } = fault.terminate();
    assert_eq!(terminate[18..20], [layer << 4 | kind, code]);
    assert_eq!(terminate[21], 0);
    let tagged = offender
        .first()
        .is_some_and(|control| control & TAGGED != 0);
    let ddp_bytes = if tagged { 14 } else { 18 };
    let returned = &terminate[22..];
    match terminate[20] {
        0 => assert!(returned.is_empty()),
        0xc0 => {
            assert_eq!(returned[..2], (offender.len() as u16).to_be_bytes());
            assert_eq!(returned[2..], offender[..ddp_bytes]);
        }
        0xe0 => {
            assert_eq!(returned[..2], (offender.len() as u16).to_be_bytes());
            assert_eq!(returned[2..], offender[..18 + 28]);
        }
        bits => panic!("header bits {bits:#x}"),
    }
    // RFC 5040 figure 10.
    let expected = match (layer, kind) {
        (2, _) => 0,
        (0, 1) if offender[1] & 0x0f == 1 => 0xe0,
        _ if offender.len() < ddp_bytes => 0,
        _ => 0xc0,
    };
    assert_eq!(terminate[20], expected);
}

#[test]
fn versions_and_opcodes() {
    expect(Fault::TaggedVersion, &[], |_| {
        raw::tagged(TAGGED | LAST, 0x40, 0, 0, &[])
    });
    expect(Fault::TaggedVersion, &[], |_| {
        raw::tagged(TAGGED | LAST | 2, 0x40, 0, 0, &[1])
    });
    expect(Fault::UntaggedVersion, &[], |_| {
        raw::untagged(LAST | 3, 0x43, 0, [0, 1, 0], &[])
    });
    expect(Fault::Version, &[], |_| {
        raw::untagged(LAST | DDP, 0x03, 0, [0, 1, 0], &[])
    });
    expect(Fault::Version, &[], |_| {
        raw::tagged(TAGGED | LAST | DDP, 0x80, 0, 0, &[])
    });
    // Tagged and untagged mixed up.
    expect(Fault::Opcode, &[], |_| {
        raw::tagged(TAGGED | LAST | DDP, 0x43, 0, 0, &[1])
    });
    expect(Fault::Opcode, &[], |_| {
        raw::untagged(LAST | DDP, 0x40, 0, [0, 1, 0], &[1])
    });
}

#[test]
fn operations_of_rfc_7306_are_refused() {
    for opcode in 8..16 {
        for queue in 0..4 {
            expect(Fault::Opcode, &[], |_| {
                raw::untagged(LAST | DDP, 0x40 | opcode, 0, [queue, 1, 0], &[0; 28])
            });
        }
        expect(Fault::Opcode, &[], |_| {
            raw::tagged(TAGGED | LAST | DDP, 0x40 | opcode, 0, 0, &[0; 8])
        });
    }
}

#[test]
fn queues_and_sequences() {
    expect(Fault::Queue, &[], |_| {
        raw::untagged(LAST | DDP, 0x43, 0, [3, 1, 0], &[1])
    });
    expect(Fault::Queue, &[], |_| {
        raw::untagged(LAST | DDP, 0x43, 0, [1, 1, 0], &[1])
    });
    expect(Fault::Queue, &[], |_| {
        raw::untagged(LAST | DDP, 0x41, 0, [0, 1, 0], &[0; 28])
    });
    expect(Fault::Queue, &[], |_| {
        raw::untagged(LAST | DDP, 0x47, 0, [0, 1, 0], &[0; 4])
    });
    for sequence in [0, 2, u32::MAX] {
        expect(Fault::Sequence, &[], |_| raw::send(sequence, b"x"));
        expect(Fault::Sequence, &[], |victim| {
            raw::read(sequence, (1, 0), 1, (victim.readable, 0))
        });
    }
    expect(Fault::Sequence, &[raw::send(1, b"x")], |_| {
        raw::send(1, b"again")
    });
}

#[test]
fn sends_that_do_not_fit() {
    expect(Fault::TooLong, &[], |_| raw::send(1, &[0; 101]));
    let first = raw::untagged(DDP, 0x43, 0, [0, 1, 0], &[1; 60]);
    let part =
        |offset, length| raw::untagged(LAST | DDP, 0x43, 0, [0, 1, offset], &vec![1; length]);
    expect(Fault::TooLong, std::slice::from_ref(&first), |_| {
        part(60, 41)
    });
    for offset in [0, 59, 61, u32::MAX] {
        expect(Fault::MessageOffset, std::slice::from_ref(&first), |_| {
            part(offset, 10)
        });
    }
    expect(Fault::MessageOffset, &[], |_| part(1, 10));
    let both = [raw::send(1, b"one"), raw::send(2, b"two")];
    expect(Fault::NoBuffer, &both, |_| raw::send(3, b"three"));
}

#[test]
fn rr1_sec_10_writes_outside_what_is_exposed() {
    expect(Fault::TaggedKey, &[], |victim| {
        raw::write(victim.writable ^ 0x8000_0000, 0, &[1])
    });
    expect(Fault::TaggedKey, &[], |victim| {
        raw::write(victim.writable ^ 1, 0, &[1])
    });
    expect(Fault::TaggedKey, &[], |victim| {
        raw::write(victim.readable, 0, &[1])
    });
    expect(Fault::TaggedBounds, &[], |victim| {
        raw::write(victim.writable, 1000, &[1])
    });
    expect(Fault::TaggedBounds, &[], |victim| {
        raw::write(victim.writable, 999, &[1, 2])
    });
    expect(Fault::TaggedBounds, &[], |victim| {
        raw::write(victim.writable, 1 << 40, &[1])
    });
    expect(Fault::TaggedWrap, &[], |victim| {
        raw::write(victim.writable, u64::MAX, &[1])
    });
    // The sink of a Read opens nothing for Writes.
    expect(Fault::TaggedKey, &[], |_| raw::write(SINK, 0, &[1]));
}

#[test]
fn rr1_sec_10_reads_outside_what_is_exposed() {
    let read = |length, source| raw::read(1, (9, 0), length, source);
    expect(Fault::ReadKey, &[], |victim| {
        read(1, (victim.readable ^ 0x100_0000, 0))
    });
    expect(Fault::ReadRights, &[], |victim| {
        read(1, (victim.writable, 0))
    });
    expect(Fault::ReadBounds, &[], |victim| {
        read(1001, (victim.readable, 0))
    });
    expect(Fault::ReadBounds, &[], |victim| {
        read(1, (victim.readable, 1000))
    });
    expect(Fault::ReadBounds, &[], |victim| {
        read(u32::MAX, (victim.readable, 0))
    });
    expect(Fault::ReadWrap, &[], |victim| {
        read(2, (victim.readable, u64::MAX - 1))
    });
    expect(Fault::ReadWrap, &[], |victim| {
        raw::read(1, (9, u64::MAX), 2, (victim.readable, 0))
    });
}

#[test]
fn read_requests_of_wrong_length() {
    expect(Fault::Unspecified, &[], |_| {
        raw::untagged(LAST | DDP, 0x41, 0, [1, 1, 0], &[0; 27])
    });
    expect(Fault::TooLong, &[], |_| {
        raw::untagged(LAST | DDP, 0x41, 0, [1, 1, 0], &[0; 29])
    });
    expect(Fault::Unspecified, &[], |_| {
        raw::untagged(DDP, 0x41, 0, [1, 1, 0], &[0; 28])
    });
    expect(Fault::MessageOffset, &[], |_| {
        raw::untagged(LAST | DDP, 0x41, 0, [1, 1, 4], &[0; 28])
    });
}

#[test]
fn mpa_ird_14_one_read_too_many() {
    // Depth four; none is answered, since nothing is sent between them.
    let reads: Vec<_> = (1..=4)
        .map(|sequence| raw::read(sequence, (9, 0), 0, (0, 0)))
        .collect();
    expect(Fault::NoBuffer, &reads, |_| raw::read(5, (9, 0), 0, (0, 0)));
}

#[test]
fn read_responses_that_nobody_asked_for() {
    expect(Fault::TaggedKey, &[], |_| {
        raw::response(SINK ^ 1, 0, &[1; 50])
    });
    expect(Fault::TaggedBounds, &[], |_| {
        raw::response(SINK, 1, &[1; 49])
    });
    expect(Fault::TaggedBounds, &[], |_| {
        raw::response(SINK, 0, &[1; 51])
    });
    expect(Fault::Unspecified, &[], |_| {
        raw::response(SINK, 0, &[1; 49])
    });
    // Behind a first half there is room for the second one only.
    let half = raw::tagged(TAGGED | DDP, 0x42, SINK, 0, &[1; 25]);
    expect(Fault::TaggedBounds, &[half], |_| {
        raw::tagged(TAGGED | DDP, 0x42, SINK, 25, &[1; 26])
    });
    let mut victim = victim(false);
    assert_eq!(
        victim
            .end
            .receive(&raw::fpdu(&raw::response(SINK, 0, &[1; 50]), false)),
        Ok(())
    );
    let again = victim
        .end
        .receive(&raw::fpdu(&raw::response(SINK, 0, &[1; 50]), false));
    assert_eq!(again, Err(Stop::Fault(Fault::TaggedKey)));
    assert_eq!(completions(&mut victim.end)[0].local.borrow()[..], [1; 50]);
}

#[test]
fn read_responses_of_nothing_may_name_anything() {
    // Where there is no payload, tag and offset are not looked at (RFC 5041 section 5.2).
    let mut victim = victim(false);
    for (last, offset) in [(0, 0), (LAST, 25)] {
        let nothing = raw::tagged(TAGGED | DDP, 0x42, SINK ^ 1, 7, &[]);
        let half = raw::tagged(TAGGED | DDP | last, 0x42, SINK, offset, &[1; 25]);
        for ulpdu in [nothing, half] {
            assert_eq!(victim.end.receive(&raw::fpdu(&ulpdu, false)), Ok(()));
        }
    }
    assert_eq!(completions(&mut victim.end)[0].local.borrow()[..], [1; 50]);
}

#[test]
fn invalidation_of_what_is_not_exposed() {
    let send = |key| raw::untagged(LAST | DDP, 0x44, key, [0, 1, 0], b"bye");
    expect(Fault::Invalidate, &[], |victim| {
        send(victim.readable ^ 0x4000_0000)
    });
    expect(Fault::Invalidate, &[], |_| send(SINK));
    // Not while the peer reads it, either.
    let mut victim = victim(false);
    let read = raw::read(1, (9, 0), 100, (victim.readable, 0));
    victim.end.receive(&raw::fpdu(&read, false)).unwrap();
    let stopped = victim
        .end
        .receive(&raw::fpdu(&send(victim.readable), false));
    assert_eq!(stopped, Err(Stop::Fault(Fault::Invalidate)));
}

#[test]
fn segments_shorter_than_their_headers() {
    let headers = [
        raw::write(1, 2, &[]),
        raw::send(1, &[]),
        raw::read(1, (1, 1), 1, (1, 1)),
    ];
    for header in headers {
        let ddp_bytes = header.len().min(18);
        for length in 0..ddp_bytes {
            expect(Fault::Stream, &[], |_| header[..length].to_vec());
        }
    }
}

#[test]
fn mpa_err_03_a_damaged_fpdu_is_reported_as_such() {
    let good = raw::fpdu(&raw::send(1, &[0x55; 98]), true);
    for bit in 0..8 * good.len() {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        for piece in [usize::MAX, 5] {
            let mut victim = victim(true);
            let mut stopped = Ok(());
            for bytes in bad.chunks(piece) {
                stopped = victim.end.receive(bytes);
            }
            // A longer length is waited for; it is found damaged when more has come.
            for _ in 0..1024 {
                if stopped.is_err() {
                    break;
                }
                stopped = victim.end.receive(&[0x11; 64]);
            }
            let length_hit = bit < 16;
            match stopped {
                Err(Stop::Fault(Fault::Crc)) => {
                    assert_eq!(victim.end.counters().crc_errors, 1);
                    assert!(victim.end.take_delivery().is_none());
                    check_terminate(&mut victim.end, Fault::Crc, &good[2..]);
                }
                Err(Stop::Fault(Fault::Stream)) if length_hit => {}
                other => panic!("bit {bit}: {other:?}"),
            }
        }
    }
}

#[test]
fn rr1_sec_07_a_revoked_exposure_takes_no_more_bytes_of_a_segment_under_way() {
    let mut victim = victim(false);
    let bytes = raw::fpdu(&raw::write(victim.writable, 0, &[1; 900]), false);
    victim.end.receive(&bytes[..500]).unwrap();
    assert!(victim.end.direct().is_some());
    let Revocation::Now(memory) = victim.end.revoke(victim.writable) else {
        panic!("it is free")
    };
    let before = memory.borrow().clone();
    assert!(victim.end.direct().is_none());
    let stopped = victim.end.receive(&bytes[500..]);
    assert_eq!(stopped, Err(Stop::Fault(Fault::TaggedKey)));
    assert_eq!(*memory.borrow(), before);
}

#[test]
fn mpa_err_05_every_terminate_is_shown_as_it_came() {
    for control in [[0x11, 0x00], [0x20, 0x07], [0x01, 0x09], [0xff, 0xff]] {
        let mut victim = victim(false);
        let payload = [control[0], control[1], 0, 0];
        let terminate = raw::untagged(LAST | DDP, 0x47, 0, [2, 1, 0], &payload);
        let (layer, kind, code) = (control[0] >> 4, control[0] & 15, control[1]);
        assert_eq!(
            victim.end.receive(&raw::fpdu(&terminate, false)),
            Err(Stop::Terminated(Terminate { layer, kind, code }))
        );
        assert!(send_all(&mut victim.end).is_empty());
        victim.end.flush();
        let refused = (layer, kind) == (0, 1);
        let expected = if refused {
            WorkFault::RemoteAccess
        } else {
            WorkFault::Flushed
        };
        assert_eq!(completions(&mut victim.end)[0].result, Err(expected));
    }
}
