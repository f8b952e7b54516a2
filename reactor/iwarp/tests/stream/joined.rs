//! Two ends joined by byte queues with random cutting: random work, compared memory.

use std::collections::VecDeque;

use millrace_iwarp::mpa::{Negotiated, Role, RtrKind};
use millrace_iwarp::{Access, Operation, Request, Revocation};
use proptest::prelude::*;

use crate::framing::without_markers;
use crate::support::{
    End, Shared, completions, end, negotiated, pattern, peer_to_peer, raw, receive_straight,
    send_all, send_some, shared,
};

#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Write(usize),
    Read(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let length = prop_oneof![0..20_usize, 0..5000_usize, 0..200_000_usize];
    (0..3, length).prop_map(|(kind, length)| match kind {
        0 => Act::Send(length),
        1 => Act::Write(length),
        _ => Act::Read(length),
    })
}

/// What must have happened at the end.
#[derive(Default)]
struct Expected {
    messages: VecDeque<Vec<u8>>,
    /// Memory of the peer's and the content that it must have, guards and all.
    written: Vec<(u32, Vec<u8>)>,
    tokens: VecDeque<u64>,
    /// Sinks and what must be in them.
    sinks: Vec<(Shared, Vec<u8>)>,
}

const GUARD: usize = 13;

fn perform(act: &Act, token: u64, from: &mut End, to: &mut End, expected: &mut Expected) {
    let seed = token as u32;
    let random = seed.wrapping_mul(0x9e37_79b9);
    let (operation, local) = match *act {
        Act::Send(length) => {
            to.post_receive(vec![0; 200_000]).unwrap();
            expected.messages.push_back(pattern(length, seed));
            let operation = Operation::Send {
                invalidate: None,
                solicited: token.is_multiple_of(2),
            };
            (operation, shared(pattern(length, seed)))
        }
        Act::Write(length) => {
            let room = shared(vec![0; length + 2 * GUARD]);
            let exposed = to.expose(room, Access::RemoteWrite, random).unwrap();
            let mut content = vec![0; length + 2 * GUARD];
            content[GUARD..GUARD + length].copy_from_slice(&pattern(length, seed));
            expected.written.push((exposed.key, content));
            let offset = exposed.offset + GUARD as u64;
            (
                Operation::Write {
                    key: exposed.key,
                    offset,
                },
                shared(pattern(length, seed)),
            )
        }
        Act::Read(length) => {
            let source = pattern(length + 2 * GUARD, seed);
            let content = source[GUARD..GUARD + length].to_vec();
            let exposed = to
                .expose(shared(source), Access::RemoteRead, random)
                .unwrap();
            // Every second Read fills several pieces, some of them without bytes.
            let pieces = if token.is_multiple_of(2) { 1 } else { 3 };
            let step = length / pieces;
            let offset = exposed.offset + GUARD as u64;
            let mut operation = Operation::Read {
                key: exposed.key,
                offset,
                sink: random ^ 0x55,
            };
            for start in (1..pieces).map(|number| (number - 1) * step) {
                let sink = shared(vec![0; step]);
                let part = content[start..start + step].to_vec();
                expected.sinks.push((sink.clone(), part));
                let request = Request {
                    token,
                    operation: std::mem::replace(&mut operation, Operation::ReadMore),
                    local: sink,
                    signalled: false,
                };
                from.post(request).unwrap();
            }
            let rest = content[(pieces - 1) * step..].to_vec();
            let sink = shared(vec![0; rest.len()]);
            expected.sinks.push((sink.clone(), rest));
            (operation, sink)
        }
    };
    let signalled = !token.is_multiple_of(3);
    if signalled {
        expected.tokens.push_back(token);
    }
    from.post(Request {
        token,
        operation,
        local,
        signalled,
    })
    .unwrap();
}

fn check(from: &mut End, to: &mut End, expected: &mut Expected) {
    while let Some(delivery) = to.take_delivery() {
        let message = expected.messages.pop_front().expect("a message was sent");
        assert!(delivery.receive[..delivery.length as usize] == message);
        assert_eq!(delivery.invalidated, None);
    }
    for completion in completions(from) {
        assert_eq!(Some(completion.token), expected.tokens.pop_front());
        assert_eq!(completion.result, Ok(()));
    }
}

fn finish(to: &mut End, expected: &Expected) {
    assert!(expected.messages.is_empty() && expected.tokens.is_empty());
    for (key, content) in &expected.written {
        let Revocation::Now(memory) = to.revoke(*key) else {
            panic!("nothing reads it")
        };
        assert!(*memory.borrow() == *content);
    }
    for (sink, content) in &expected.sinks {
        assert!(*sink.borrow() == *content);
    }
}

/// A small generator for the cutting.
struct Cuts(u64);

impl Cuts {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn length(&mut self) -> usize {
        match self.below(4) {
            0 => 1 + self.below(8),
            1 => 1 + self.below(200),
            2 => 1 + self.below(5000),
            _ => 1 + self.below(300_000),
        }
    }
}

/// Moves some bytes from one end to the other; `true` if there were any.
fn carry(from: &mut End, to: &mut End, wire: &mut VecDeque<u8>, cuts: &mut Cuts) -> bool {
    let sent = send_some(from, cuts.length());
    let moved = !sent.is_empty() || !wire.is_empty();
    wire.extend(sent);
    let count = cuts.length().min(wire.len());
    let bytes: Vec<u8> = wire.drain(..count).collect();
    let straight = if cuts.below(2) == 0 {
        receive_straight(to, &bytes)
    } else {
        0
    };
    to.receive(&bytes[straight..]).expect("a good stream");
    moved
}

fn run(acts: &[(bool, Act)], crc: bool, ulpdu: usize, seed: u64, kind: Option<RtrKind>) {
    let setup = |role| {
        let agreed = kind.map_or_else(|| negotiated(role), |kind| peer_to_peer(role, kind));
        Negotiated { crc, ..agreed }
    };
    let mut here = end(&setup(Role::Initiator), ulpdu);
    let mut there = end(&setup(Role::Responder), ulpdu);
    let (mut forth, mut back) = (VecDeque::new(), VecDeque::new());
    let (mut ours, mut theirs) = (Expected::default(), Expected::default());
    let mut cuts = Cuts(seed | 1);
    // In the client-server model nothing flows before the client's first message.
    perform(&Act::Send(10), 1, &mut here, &mut there, &mut ours);
    let mut acts = acts.iter().zip(2..);
    let mut more = true;
    loop {
        if more && cuts.below(3) == 0 {
            match acts.next() {
                Some(((true, act), token)) => {
                    perform(act, token, &mut here, &mut there, &mut ours);
                }
                Some(((false, act), token)) => {
                    perform(act, token, &mut there, &mut here, &mut theirs);
                }
                None => more = false,
            }
        }
        let moved = carry(&mut here, &mut there, &mut forth, &mut cuts)
            | carry(&mut there, &mut here, &mut back, &mut cuts);
        check(&mut here, &mut there, &mut ours);
        check(&mut there, &mut here, &mut theirs);
        if !moved && !more {
            break;
        }
    }
    assert!(here.is_drained() && there.is_drained());
    assert!(here.is_at_boundary() && there.is_at_boundary());
    finish(&mut there, &ours);
    finish(&mut here, &theirs);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_work_arrives_whole_in_any_cutting(
        acts in prop::collection::vec((any::<bool>(), act()), 1..40),
        crc: bool,
        ulpdu in prop_oneof![Just(65_520_usize), 128..2000_usize],
        seed: u64,
        kind in prop::option::of(prop_oneof![
            Just(RtrKind::Send), Just(RtrKind::Write), Just(RtrKind::Read)
        ]),
    ) {
        run(&acts, crc, ulpdu, seed, kind);
    }

    #[test]
    fn markers_change_nothing_but_the_stream(
        lengths in prop::collection::vec(0..70_000_usize, 1..12),
        crc: bool,
    ) {
        let agreed = Negotiated { crc, send_markers: true, ..negotiated(Role::Initiator) };
        let mut here = end(&agreed, 65_520);
        let mut there = end(&Negotiated { crc, ..negotiated(Role::Responder) }, 65_520);
        let mut expected = Expected::default();
        let mut stream = Vec::new();
        for (token, length) in (1_u64..).zip(&lengths) {
            let act = if token.is_multiple_of(2) { Act::Write(*length) } else { Act::Send(*length) };
            perform(&act, token, &mut here, &mut there, &mut expected);
            loop {
                let some = send_some(&mut here, 999);
                if some.is_empty() {
                    break;
                }
                stream.extend(some);
            }
        }
        there.receive(&without_markers(&stream, crc)).expect("a good stream");
        check(&mut here, &mut there, &mut expected);
        finish(&mut there, &expected);
    }
}

/// Where the next bytes of a payload go, of which the last eight are missing: offset, length, and
/// bytes that may follow.
fn missing(end: &mut End, ulpdu: &[u8]) -> (usize, usize, usize) {
    let bytes = raw::fpdu(ulpdu, false);
    // Behind the payload: no pad, and the CRC.
    let (front, rest) = bytes.split_at(bytes.len() - 4 - 8);
    end.receive(front).unwrap();
    let direct = end.direct().expect("memory for the rest");
    let found = (direct.offset, direct.length, direct.behind);
    end.receive(rest).unwrap();
    found
}

#[test]
fn behind_a_payload_is_the_rest_of_its_exposure_or_read() {
    const SINK: u32 = 7;
    let agreed = Negotiated {
        crc: false,
        ..negotiated(Role::Responder)
    };
    let mut end = end(&agreed, 65_000);
    let exposed = end.expose(shared(vec![0; 1000]), Access::RemoteWrite, 1);
    let exposed = exposed.unwrap();
    let write = raw::write(exposed.key, exposed.offset + 100, &[1; 300]);
    assert_eq!(missing(&mut end, &write), (392, 8, 600));

    // A Read that fills two pieces of memory.
    let read = Operation::Read {
        key: 1,
        offset: 0,
        sink: SINK,
    };
    for (operation, length) in [(read, 32), (Operation::ReadMore, 40)] {
        let request = Request {
            token: 1,
            operation,
            local: shared(vec![0; length]),
            signalled: true,
        };
        end.post(request).unwrap();
    }
    assert!(!send_all(&mut end).is_empty());
    let mut response = raw::response(SINK, 0, &[1; 24]);
    // Not the last segment.
    response[0] &= !raw::LAST;
    assert_eq!(missing(&mut end, &response), (16, 8, 48));
    let response = raw::response(SINK, 24, &[1; 48]);
    let bytes = missing(&mut end, &response);
    assert_eq!(bytes, (32, 8, 0), "in the second piece");
}
