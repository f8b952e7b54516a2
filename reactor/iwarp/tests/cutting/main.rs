//! However TCP cuts the stream, it means the same.

mod memory;
mod script;

use millrace_iwarp::mpa::{Negotiated, Role, RtrKinds, StartGate};
use millrace_iwarp::{
    Access, Endpoint, Fault, Limits, Operation, Parameters, Request, Staging, Stop,
};
use proptest::prelude::*;

use memory::{Range, Vectors};
use script::{SINK, Step};

/// All that can be seen of a stream after its bytes have gone in.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stop: Option<Stop>,
    messages: Vec<(Vec<u8>, Option<u32>)>,
    completions: Vec<(u64, bool)>,
    exposed: Vec<u8>,
    read: Vec<u8>,
    frames: u64,
    sent: Vec<u8>,
}

const EXPOSED: usize = 70_000;

/// One end in mid-stream: an exposure for Writes, one for Reads, receives, and open Reads.
struct Stand {
    endpoint: Endpoint<Vectors>,
    exposed: Range,
    read: Range,
    keys: [u32; 2],
    sent: Vec<u8>,
}

impl Stand {
    fn new(role: Role, crc: bool) -> Self {
        let limits = Limits {
            send_depth: 8,
            receive_depth: 16,
            receive_size: 4096,
            exposures: 4,
        };
        let mut endpoint = Endpoint::new(limits, 0x1357);
        let negotiated = Negotiated {
            role,
            revision: 2,
            enhanced: true,
            crc,
            send_markers: false,
            ird: 16,
            ord: 4,
            peer: None,
            peer_to_peer: false,
            rtr_to_send: None,
            rtr_expected: RtrKinds::NONE,
            private_data: Vec::new(),
        };
        endpoint.start(Parameters {
            gate: StartGate::new(&negotiated),
            ..Parameters::new(&negotiated)
        });
        let exposed = Range::new(EXPOSED, 0);
        let source = Range::new(1000, 3);
        let keys = [
            (exposed.clone(), Access::RemoteWrite, 0x1111_0000),
            (source, Access::RemoteRead, 0x2222_0000),
        ]
        .map(|(range, access, random)| endpoint.expose(range, access, random).unwrap().key);
        for _ in 0..16 {
            endpoint.post_receive(vec![0; 4096]).unwrap();
        }
        let read = Range::new(40_000, 0);
        // The second Read fills four pieces, one of them empty, the third of one byte.
        let pieces = [
            (0, 0, 20_000),
            (1, 0, 9_000),
            (1, 9_000, 0),
            (1, 9_000, 1),
            (1, 9_001, 10_999),
        ];
        for (token, start, length) in pieces {
            let read_of = Operation::Read {
                key: 1,
                offset: 0,
                sink: SINK + token,
            };
            let request = Request {
                token: token.into(),
                operation: if start == 0 {
                    read_of
                } else {
                    Operation::ReadMore
                },
                local: read.part(token as usize * 20_000 + start, length),
                signalled: start + length == 20_000,
            };
            assert!(endpoint.post(request).is_ok());
        }
        let mut stand = Self {
            endpoint,
            exposed,
            read,
            keys,
            sent: Vec::new(),
        };
        // The Reads of an initiator are open before the peer's first byte; a responder's gate
        // opens with the peer's first message, an empty Write.
        if role == Role::Responder {
            let opener = script::bytes(&[Step::Write(0, 0)], keys, crc);
            stand.endpoint.receive(&opener).unwrap();
        }
        stand.send();
        stand.sent.clear();
        stand
    }

    fn send(&mut self) {
        self.endpoint.lend(Staging::new());
        loop {
            self.endpoint.stage();
            let mut bytes = Vec::new();
            self.endpoint.gather(|chunk| {
                memory::append(&mut bytes, &chunk);
                std::ops::ControlFlow::Continue(())
            });
            if bytes.is_empty() {
                break;
            }
            self.endpoint.accepted(bytes.len());
            self.sent.extend(bytes);
        }
        self.endpoint.reclaim();
    }

    /// Takes bytes as a socket would give them: with `direct` straight into memory where allowed.
    fn feed(&mut self, bytes: &[u8], direct: bool) {
        let mut taken = 0;
        if direct && let Some(target) = self.endpoint.direct() {
            taken = target.length.min(bytes.len());
            memory::put(target, &bytes[..taken]);
            self.endpoint.placed(taken);
        }
        // The outcome shows how it went.
        let _ = self.endpoint.receive(&bytes[taken..]);
    }

    fn outcome(mut self) -> Outcome {
        self.send();
        let stop = self.endpoint.stop();
        let frames = self.endpoint.counters().frames_in;
        self.endpoint.flush();
        let mut messages = Vec::new();
        while let Some(delivery) = self.endpoint.take_delivery() {
            let mut bytes = delivery.receive;
            bytes.truncate(delivery.length as usize);
            messages.push((bytes, delivery.invalidated));
        }
        let mut completions = Vec::new();
        while let Some(completion) = self.endpoint.take_completion() {
            completions.push((completion.token, completion.result.is_ok()));
        }
        // What a refused or damaged FPDU has placed before it was refused counts for nothing.
        let whole = stop.is_none();
        let seen = |range: &Range| if whole { range.bytes() } else { Vec::new() };
        Outcome {
            stop,
            messages,
            completions,
            exposed: seen(&self.exposed),
            read: seen(&self.read),
            frames,
            sent: self.sent,
        }
    }
}

/// The outcome with these lengths of pieces, over and over.
fn outcome(role: Role, crc: bool, bytes: &[u8], pieces: &[usize], direct: bool) -> Outcome {
    let mut stand = Stand::new(role, crc);
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(rest.len().min(*piece));
        stand.feed(now, direct);
        rest = later;
    }
    stand.outcome()
}

fn recorded(keys: [u32; 2], crc: bool) -> Vec<u8> {
    let steps = [
        Step::Send(5),
        Step::Write(10, 60_000),
        Step::Response(0, 0, 12_000, false),
        Step::Send(0),
        Step::Response(0, 12_000, 8_000, true),
        Step::ReadOf(0, 1000),
        Step::LongSend(4000, 1333),
        Step::Write(69_999, 1),
        Step::ReadOf(999, 1),
        Step::Response(1, 0, 20_000, true),
        Step::Write(0, 0),
        Step::Invalidate,
        Step::Send(4096),
    ];
    script::bytes(&steps, keys, crc)
}

#[test]
fn a_recorded_session_gives_the_same_byte_by_byte() {
    for role in [Role::Initiator, Role::Responder] {
        for crc in [false, true] {
            let keys = Stand::new(role, crc).keys;
            let bytes = recorded(keys, crc);
            let whole = outcome(role, crc, &bytes, &[bytes.len()], false);
            assert_eq!(whole.stop, None);
            assert_eq!(whole.completions, [(0, true), (1, true)]);
            assert_eq!(whole.messages.len(), 5);
            assert_eq!(whole.messages[3].1, Some(keys[0]));
            let answers = [(12_000, 0), (8_000, 12_000), (20_000, 0)];
            let answers = answers.map(|(length, seed)| script::pattern(length, seed));
            assert!(whole.read == answers.concat());
            for (pieces, direct) in [(1, false), (1, true), (2, true), (3, false), (1449, true)] {
                assert_eq!(
                    outcome(role, crc, &bytes, &[pieces], direct),
                    whole,
                    "{pieces}"
                );
            }
        }
    }
}

/// The three ways of a damaged length: too short for headers, within the FPDU, beyond it.
#[test]
fn rr1_hdr_32_a_damaged_length_is_a_wrong_check_value_however_it_is_cut() {
    let keys = Stand::new(Role::Responder, true).keys;
    let good = script::bytes(&[Step::Send(64)], keys, true);
    for length in 0..84_u8 {
        let mut bytes = good.clone();
        if bytes[1] == length {
            continue;
        }
        bytes[1] = length;
        bytes.resize(200, 0);
        for pieces in [200, 1, 2, 3, 4, 5, 7] {
            let found = outcome(Role::Responder, true, &bytes, &[pieces], false);
            assert_eq!(
                found.stop,
                Some(Stop::Fault(Fault::Crc)),
                "{length} {pieces}"
            );
        }
    }
}

/// A fault of this side's own after the reply: the last FPDU of all, and no second one.
#[test]
fn mpa_err_02_a_setup_error_without_a_code_leaves_as_the_golden_code_five() {
    let mut stand = Stand::new(Role::Initiator, false);
    stand.endpoint.fail(Fault::SetupCatastrophic);
    stand.endpoint.fail(Fault::ReadDepth);
    stand.send();
    assert!(stand.endpoint.is_terminate_sent());
    let mut golden = vec![0, 22, 0x41, 0x47];
    golden.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
    golden.extend([0x20, 5, 0, 0, 0, 0, 0, 0]);
    assert_eq!(stand.sent, golden);
    let outcome = stand.outcome();
    assert_eq!(outcome.sent, golden, "sent once");
    assert!(outcome.completions.iter().all(|(_, is_ok)| !is_ok));
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4096_usize).prop_map(Step::Send),
        (1..4096_usize, 1..4000_usize).prop_map(|(length, cut)| Step::LongSend(length, cut)),
        (0..EXPOSED, 0..2000_usize).prop_map(|(at, length)| Step::Write(at, length)),
        (0..1000_u32, 0..1000_u32).prop_map(|(at, length)| Step::ReadOf(at, length)),
        Just(Step::Invalidate),
        (0..2_u32, 0..40_usize, any::<bool>())
            .prop_map(|(number, length, last)| Step::Response(number, 0, length, last)),
        (0..20_u8).prop_map(Step::Short),
        any::<u8>().prop_map(Step::Terminate),
        Just(Step::Reserved),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Good or bad, what a peer sends means the same in every cutting.
    #[test]
    fn mpa_req_16_cuttings_of_the_stream_change_nothing(
        steps in prop::collection::vec(step(), 1..12),
        crc in any::<bool>(),
        flip in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        pieces in prop::collection::vec(1..3000_usize, 1..30),
        direct in any::<bool>(),
        initiator in any::<bool>(),
    ) {
        let role = if initiator { Role::Initiator } else { Role::Responder };
        let keys = Stand::new(role, crc).keys;
        let mut bytes = script::bytes(&steps, keys, crc);
        if let Some(flip) = flip {
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let whole = outcome(role, crc, &bytes, &[bytes.len()], false);
        let cut = outcome(role, crc, &bytes, &pieces, direct);
        prop_assert_eq!(cut, whole);
    }
}
