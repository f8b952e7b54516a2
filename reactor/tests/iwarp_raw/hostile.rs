//! Peers that break the rules of DDP and RDMAP: RR1-SEC-05, -06 and -10, every code of RFC 5040
//! section 4.8 and RFC 5041 section 8 that a peer can provoke.

use std::collections::HashSet;

use millrace_mempool::Slice;
use millrace_reactor::fabric::chain::{Direction, RemoteSegment, transfer};
use millrace_reactor::fabric::{Access, DataPath, Ended, QueuePairId, Revoked, Terminate};

use crate::stand::{LIMITS, SEND, Stand, content, plain};
use crate::support::Peer;
use crate::support::fpdu::{Header, Segment};

const GUARD: u8 = 0xa5;

/// One connection and the memory that it exposes: bytes 64 to 192 of guarded memory.
struct Party {
    peer: Peer,
    here: QueuePairId,
    readable: u32,
    writable: u32,
    memory: [Slice; 2],
}

impl Party {
    fn new(stand: &mut Stand, address: std::net::SocketAddr) -> Self {
        let (mut peer, here) = stand.served(address, 4, 2);
        stand.post_receives(here, 2);
        let memory = [stand.slice(&[GUARD; 256]), stand.slice(&[GUARD; 256])];
        let [readable, writable] = [Access::RemoteRead, Access::RemoteWrite].map(|access| {
            let slice = &memory[usize::from(access == Access::RemoteWrite)];
            let local = [slice.slice(64..192)].into_iter().collect();
            stand.provider.expose(here, local, access).unwrap().key.0
        });
        peer.send_segment(&Segment::send(1, b"hello"));
        assert_eq!(stand.until(|s| s.received(here)), b"hello");
        Self {
            peer,
            here,
            readable,
            writable,
            memory,
        }
    }

    fn is_untouched(&self) -> bool {
        self.memory
            .iter()
            .all(|memory| content(memory) == [GUARD; 256])
    }
}

/// What it is, the FPDUs that are sent, and layer, type and code of the answer.
type Offence = (&'static str, Vec<Vec<u8>>, (u8, u8, u8));

/// Offences after a first Send.
fn offences(own: &Party, other: &Party) -> Vec<Offence> {
    let payload = [0; 16];
    let one = |segment: Segment| vec![segment.fpdu(false)];
    let read = |length, source| one(Segment::read_request(1, (1, 0), length, source));
    let write = |key, offset| one(Segment::write(key, offset, &payload));
    let send = |header: Header, payload: &[u8]| {
        one(Segment {
            header,
            ..Segment::send(2, payload)
        })
    };
    let untagged = |queue, sequence, offset, invalidate| Header::Untagged {
        invalidate,
        queue,
        sequence,
        offset,
    };
    let invalidating = |key| {
        one(Segment {
            opcode: 4,
            header: untagged(0, 2, 0, key),
            ..Segment::send(2, b"invalidate")
        })
    };
    let patched = |segment: Segment, at: usize, value: u8| {
        let mut fpdu = segment.fpdu(false);
        fpdu[at] = value;
        vec![fpdu]
    };
    let several = |count: u32, opcode_from: u32| -> Vec<Vec<u8>> {
        (opcode_from..opcode_from + count)
            .map(|msn| Segment::send(msn, b"message").fpdu(false))
            .collect()
    };
    let reads = (1..=3)
        .flat_map(|msn| Segment::read_request(msn, (1, 0), 8, (own.readable, 0)).fpdu(false))
        .collect();
    let (readable, writable) = (own.readable, own.writable);
    vec![
        (
            "write, no such key",
            write(writable ^ 0x4000_0000, 0),
            (1, 1, 0),
        ),
        ("write, key of another", write(other.writable, 0), (1, 1, 0)),
        ("write, no right", write(readable, 0), (1, 1, 0)),
        ("write past the end", write(writable, 113), (1, 1, 1)),
        ("write far outside", write(writable, 1 << 40), (1, 1, 1)),
        ("write that wraps", write(writable, u64::MAX - 3), (1, 1, 3)),
        (
            "read, no such key",
            read(8, (readable ^ 0x4000_0000, 0)),
            (0, 1, 0),
        ),
        (
            "read, key of another",
            read(8, (other.readable, 0)),
            (0, 1, 0),
        ),
        ("read, no right", read(8, (writable, 0)), (0, 1, 2)),
        ("read past the end", read(129, (readable, 0)), (0, 1, 1)),
        ("read of 4 GiB", read(u32::MAX, (readable, 0)), (0, 1, 1)),
        (
            "read that wraps",
            read(8, (readable, u64::MAX - 3)),
            (0, 1, 4),
        ),
        (
            "read whose answer wraps",
            one(Segment::read_request(
                1,
                (1, u64::MAX - 3),
                8,
                (readable, 0),
            )),
            (0, 1, 4),
        ),
        (
            "invalidate, no such key",
            invalidating(readable ^ 0x4000_0000),
            (0, 1, 9),
        ),
        (
            "invalidate, key of another",
            invalidating(other.readable),
            (0, 1, 9),
        ),
        (
            "queue that is none",
            send(untagged(3, 2, 0, 0), b"q"),
            (1, 2, 1),
        ),
        (
            "queue of Terminate",
            send(untagged(2, 1, 0, 0), b"q"),
            (1, 2, 1),
        ),
        (
            "queue of Reads",
            send(untagged(1, 1, 0, 0), b"q"),
            (1, 2, 1),
        ),
        (
            "sequence skipped",
            send(untagged(0, 3, 0, 0), b"s"),
            (1, 2, 3),
        ),
        (
            "sequence repeated",
            send(untagged(0, 1, 0, 0), b"s"),
            (1, 2, 3),
        ),
        (
            "offset in the message",
            send(untagged(0, 2, 4, 0), b"o"),
            (1, 2, 4),
        ),
        ("no receive", several(2, 2), (1, 2, 2)),
        ("too long", one(Segment::send(2, &[1; 4097])), (1, 2, 5)),
        ("read beyond the depth", vec![reads], (1, 2, 2)),
        (
            "read out of sequence",
            one(Segment::read_request(2, (1, 0), 8, (readable, 0))),
            (1, 2, 3),
        ),
        (
            "reserved opcode",
            patched(Segment::send(2, b""), 3, 0x48),
            (0, 2, 6),
        ),
        (
            "atomic opcode",
            patched(Segment::send(2, b""), 3, 0x4a),
            (0, 2, 6),
        ),
        (
            "tagged Send",
            patched(Segment::write(writable, 0, b"x"), 3, 0x43),
            (0, 2, 6),
        ),
        (
            "untagged Write",
            patched(Segment::send(2, b"x"), 3, 0x40),
            (0, 2, 6),
        ),
        (
            "RDMAP version 0",
            patched(Segment::send(2, b""), 3, 0x03),
            (0, 2, 5),
        ),
        (
            "RDMAP version 2",
            patched(Segment::send(2, b""), 3, 0x83),
            (0, 2, 5),
        ),
        (
            "DDP version, untagged",
            patched(Segment::send(2, b""), 2, 0x42),
            (1, 2, 6),
        ),
        (
            "DDP version, tagged",
            patched(Segment::write(writable, 0, b"x"), 2, 0xc0),
            (1, 1, 4),
        ),
        (
            "answer to no Read",
            one(Segment::read_response(writable, 0, b"x")),
            (1, 1, 0),
        ),
        (
            "too short for a header",
            vec![vec![0, 2, 0x41, 0x43, 0, 0, 0, 0]],
            (0, 2, 7),
        ),
        ("empty FPDU", vec![vec![0; 8]], (0, 2, 7)),
    ]
}

#[test]
fn rr1_sec_10_every_offence_ends_its_connection_only() {
    let count = {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let [one, two] = [(); 2].map(|()| Party::new(&mut stand, address));
        offences(&one, &two).len()
    };
    for index in 0..count {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let mut bystander = Party::new(&mut stand, address);
        let mut attacker = Party::new(&mut stand, address);
        let in_use = stand.pool.gauges().in_use();
        let (name, bytes, (layer, kind, code)) = offences(&attacker, &bystander).swap_remove(index);
        for fpdu in bytes {
            attacker.peer.send(&fpdu);
        }
        let reason = stand.until(|s| s.ended(attacker.here));
        let expected = Terminate { layer, kind, code };
        assert_eq!(reason, Ended::TerminateSent(expected), "{name}");
        let last = stand.until(|_| attacker.peer.take_segment().filter(|s| s.opcode != 2));
        assert_eq!(last.termination(), Some((layer, kind, code)), "{name}");
        assert!(
            attacker.is_untouched() && bystander.is_untouched(),
            "{name}"
        );
        // Posted receives are free; the exposures' memory is still held by the test.
        stand.events.clear();
        assert_eq!(stand.pool.gauges().in_use(), in_use - 1, "{name}");
        goes_on(&mut stand, &mut bystander, name);
        drop(attacker);
        assert_eq!(stand.pool.gauges().in_use(), 3, "{name}");
    }
}

/// The other connection sends, receives and serves its memory as before.
fn goes_on(stand: &mut Stand, party: &mut Party, name: &str) {
    party.peer.send_segment(&Segment::send(2, b"still here"));
    let message = stand.until(|s| s.received(party.here));
    assert_eq!(message, b"still here", "{name}");
    stand.post_receives(party.here, 1);
    let source = (party.readable, 0);
    party
        .peer
        .send_segment(&Segment::read_request(1, (1, 0), 128, source));
    let response = stand.until(|_| party.peer.take_segment());
    assert_eq!(
        response,
        Segment::read_response(1, 0, &[GUARD; 128]),
        "{name}"
    );
    stand.post(party.here, 1, SEND, b"reply");
    assert_eq!(
        stand.until(|_| party.peer.take_segment()),
        Segment::send(1, b"reply")
    );
    assert_eq!(stand.until(|s| s.completed(party.here)), (1, true));
}

/// Answers to Reads that do not fit the Read.
#[test]
fn rr1_sec_10_a_read_takes_no_more_than_it_asked_for() {
    type Make = fn(u32, u64) -> Segment;
    let offences: [(Make, (u8, u8, u8)); 5] = [
        (|key, _| Segment::read_response(key, 0, &[1; 9]), (1, 1, 1)),
        (|key, _| Segment::read_response(key, 1, &[1; 7]), (1, 1, 1)),
        (
            |key, _| Segment::read_response(key ^ 1, 0, &[1; 8]),
            (1, 1, 0),
        ),
        (
            |key, _| Segment::read_response(key, 0, &[1; 7]),
            (0, 2, 0xff),
        ),
        (|key, _| Segment::write(key, 0, &[1; 8]), (1, 1, 0)),
    ];
    for (make, (layer, kind, code)) in offences {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let mut party = Party::new(&mut stand, address);
        let sink = stand.slice(&[GUARD; 64]);
        let remote = millrace_reactor::fabric::RemoteAddress {
            key: millrace_reactor::fabric::Key(5),
            offset: 0,
        };
        let mut chain = vec![millrace_reactor::fabric::WorkRequest {
            token: 3,
            operation: millrace_reactor::fabric::Operation::Read(remote),
            local: [sink.slice(16..24)].into_iter().collect(),
            signalled: true,
        }];
        stand.provider.post(party.here, &mut chain).unwrap();
        let request = stand.until(|_| party.peer.take_segment());
        let ((key, offset), ..) = request.read_of().unwrap();
        party.peer.send_segment(&make(key, offset));
        let reason = stand.until(|s| s.ended(party.here));
        let expected = Terminate { layer, kind, code };
        assert_eq!(reason, Ended::TerminateSent(expected));
        assert_eq!(stand.completed(party.here), Some((3, false)));
        let after = content(&sink);
        assert_eq!(
            (&after[..16], &after[24..]),
            (&[GUARD; 16][..], &[GUARD; 40][..])
        );
        assert!(party.is_untouched());
    }
}

/// The same for a Read that fills several pieces, of several work requests: what lies between them
/// and behind them stays as it is, whatever the peer answers.
#[test]
fn rr1_sec_10_a_read_into_pieces_takes_no_more_than_it_asked_for() {
    // Eight pieces of eight bytes, each with eight bytes of others behind it.
    const PIECES: usize = 8;
    let full = [1; 8 * PIECES];
    let half = &full[..4 * PIECES];
    type Make<'a> = Box<dyn Fn(u32) -> Vec<Segment> + 'a>;
    let part = |key, offset, bytes: &[u8], last| {
        let mut segment = Segment::read_response(key, offset, bytes);
        segment.last = last;
        segment
    };
    let long: Vec<u8> = vec![1; 8 * PIECES + 1];
    let offences: [(&str, Make, (u8, u8, u8)); 6] = [
        (
            "too long at once",
            Box::new(|key| vec![part(key, 0, &long, true)]),
            (1, 1, 1),
        ),
        (
            "too long in two",
            Box::new(|key| vec![part(key, 0, half, false), part(key, 32, &long[..33], true)]),
            (1, 1, 1),
        ),
        (
            "short by a piece",
            Box::new(|key| vec![part(key, 0, &full[8..], true)]),
            (0, 2, 0xff),
        ),
        (
            "over bytes that have come",
            Box::new(|key| vec![part(key, 0, half, false), part(key, 24, half, true)]),
            (1, 1, 1),
        ),
        (
            "with a gap of a piece",
            Box::new(|key| vec![part(key, 0, half, false), part(key, 40, &full[..24], true)]),
            (1, 1, 1),
        ),
        (
            "again after the end",
            Box::new(|key| vec![part(key, 0, &full, true), part(key, 0, &full, true)]),
            (1, 1, 0),
        ),
    ];
    for (name, make, (layer, kind, code)) in offences {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let mut party = Party::new(&mut stand, address);
        let memory = stand.slice(&[GUARD; 16 * PIECES]);
        let pieces: Vec<_> = (0..PIECES)
            .map(|n| memory.slice(n * 16..n * 16 + 8))
            .collect();
        let segment = RemoteSegment {
            address: millrace_reactor::fabric::RemoteAddress {
                key: millrace_reactor::fabric::Key(5),
                offset: 0,
            },
            length: 8 * PIECES as u32,
        };
        let slices = stand.provider.read_slices(party.here);
        let mut chain = Vec::new();
        transfer(
            Direction::FromPeer { slices },
            &pieces,
            [segment],
            &mut chain,
        );
        assert_eq!(chain.len(), 2, "four pieces in each work request");
        chain[1].signalled = true;
        stand.provider.post(party.here, &mut chain).unwrap();
        let request = stand.until(|_| party.peer.take_segment());
        let ((key, _), length, _) = request.read_of().unwrap();
        assert_eq!(length, 8 * PIECES as u32, "one Read asks for all");
        for segment in make(key) {
            party.peer.send_segment(&segment);
        }
        let reason = stand.until(|s| s.ended(party.here));
        let expected = Terminate { layer, kind, code };
        assert_eq!(reason, Ended::TerminateSent(expected), "{name}");
        for (number, bytes) in content(&memory).chunks(8).enumerate() {
            assert!(
                number % 2 == 0 || bytes == [GUARD; 8],
                "{name}: behind {number}"
            );
        }
        assert!(party.is_untouched(), "{name}");
    }
}

/// A key works for the peer that it was made for, while the connections live side by side.
#[test]
fn rr1_sec_05_a_key_works_on_its_own_connection_only() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let mut owner = Party::new(&mut stand, address);
    for number in 0..8 {
        let mut thief = Party::new(&mut stand, address);
        assert_ne!(
            (thief.readable, thief.writable),
            (owner.readable, owner.writable)
        );
        let segment = if number % 2 == 0 {
            Segment::write(owner.writable, 0, b"stolen")
        } else {
            Segment::read_request(1, (1, 0), 8, (owner.readable, 0))
        };
        thief.peer.send_segment(&segment);
        assert!(matches!(
            stand.until(|s| s.ended(thief.here)),
            Ended::TerminateSent(_)
        ));
        assert!(owner.is_untouched());
    }
    owner
        .peer
        .send_segment(&Segment::write(owner.writable, 0, &[1; 128]));
    goes_on(&mut stand, &mut owner, "owner");
    assert_eq!(content(&owner.memory[1])[64..192], [1; 128]);
    assert_eq!(content(&owner.memory[1])[..64], [GUARD; 64]);
    assert_eq!(content(&owner.memory[1])[192..], [GUARD; 64]);
}

#[test]
fn rr1_sec_05_a_revoked_key_is_dead() {
    for access in [Access::RemoteRead, Access::RemoteWrite] {
        let mut stand = Stand::new(plain());
        let address = stand.listen();
        let mut party = Party::new(&mut stand, address);
        let write = access == Access::RemoteWrite;
        let key = if write {
            party.writable
        } else {
            party.readable
        };
        let key = millrace_reactor::fabric::Key(key);
        assert!(matches!(
            stand.provider.revoke(party.here, key),
            Revoked::Now(_)
        ));
        let segment = if write {
            Segment::write(key.0, 0, b"late")
        } else {
            Segment::read_request(1, (1, 0), 8, (key.0, 0))
        };
        party.peer.send_segment(&segment);
        assert!(matches!(
            stand.until(|s| s.ended(party.here)),
            Ended::TerminateSent(_)
        ));
        assert!(party.is_untouched());
    }
}

#[test]
fn rr1_sec_06_keys_cannot_be_foretold() {
    let mut stand = Stand::new(plain());
    let address = stand.listen();
    let (_peer, here) = stand.served(address, 4, 4);
    let memory = stand.slice(&[0; 8]);
    let mut seen = Vec::new();
    let mut strides = HashSet::new();
    for _ in 0..10_000 {
        let local = [memory.clone()].into_iter().collect();
        let exposure = stand
            .provider
            .expose(here, local, Access::RemoteRead)
            .unwrap();
        let key = exposure.key.0;
        let recent = seen.iter().rev().take(LIMITS.exposures as usize);
        assert!(
            !recent.copied().any(|other: u32| other == key),
            "reused at once"
        );
        strides.insert(key.wrapping_sub(seen.last().copied().unwrap_or(0)));
        seen.push(key);
        stand.provider.revoke(here, exposure.key);
    }
    assert!(strides.len() > 9_900, "{} strides", strides.len());
    assert!(seen.iter().collect::<HashSet<_>>().len() > 9_900);
}
