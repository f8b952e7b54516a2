//! No bytes make an end panic, or hand out memory that was not exposed.

use millrace_iwarp::mpa::{Negotiated, Role};
use millrace_iwarp::{Access, Operation, Request};
use proptest::prelude::*;

use crate::support::{LIMITS, end, negotiated, raw, receive_straight, send_some, shared};

/// A segment that is nearly right.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    let small = || prop_oneof![0..4_u32, any::<u32>()];
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        (
            any::<u8>(),
            any::<u8>(),
            any::<u32>(),
            any::<u64>(),
            payload.clone()
        )
            .prop_map(|(a, b, key, offset, payload)| raw::tagged(a, b, key, offset, &payload)),
        (
            any::<u8>(),
            any::<u8>(),
            small(),
            [small(), small(), small()],
            payload.clone()
        )
            .prop_map(|(a, b, key, words, payload)| raw::untagged(a, b, key, words, &payload)),
        (1..4_u32, payload.clone()).prop_map(|(sequence, payload)| raw::send(sequence, &payload)),
        (0..900_u64, payload.clone())
            .prop_map(|(offset, payload)| raw::write(KEY, offset, &payload)),
        (0..60_u64, payload).prop_map(|(offset, payload)| raw::response(77, offset, &payload)),
        (1..4_u32, 0..1200_u32, 0..1200_u64).prop_map(|(sequence, length, offset)| raw::read(
            sequence,
            (1, 2),
            length,
            (KEY, offset)
        )),
        prop::collection::vec(any::<u8>(), 0..80),
    ]
}

/// Stands for the key of the exposure, which is not known before the test runs.
const KEY: u32 = 0x4b45_5921;

fn with_key(mut segment: Vec<u8>, readable: u32, writable: u32) -> Vec<u8> {
    let tagged = segment
        .first()
        .is_some_and(|control| control & raw::TAGGED != 0);
    let key = if tagged { writable } else { readable };
    for at in [2, 18 + 16] {
        if let Some(place) = segment.get_mut(at..at + 4)
            && *place == KEY.to_be_bytes()
        {
            place.copy_from_slice(&key.to_be_bytes());
        }
    }
    segment
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_stream_panics(
        segments in prop::collection::vec(segment(), 1..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in 1..400_usize,
        crc: bool,
        straight: bool,
    ) {
        let mut victim = end(&Negotiated { crc, ..negotiated(Role::Responder) }, 300);
        for _ in 0..3 {
            victim.post_receive(vec![0; 200]).unwrap();
        }
        let readable = victim.expose(shared(vec![1; 1000]), Access::RemoteRead, 5).unwrap().key;
        let memory = shared(vec![1; 1000]);
        let writable = victim.expose(memory, Access::RemoteWrite, 6).unwrap().key;
        for token in 0..3 {
            let operation = Operation::Read { key: 1, offset: 0, sink: 77 };
            let local = shared(vec![0; 60]);
            victim.post(Request { token, operation, local, signalled: true }).unwrap();
        }
        let mut stream: Vec<u8> = segments
            .into_iter()
            .flat_map(|segment| raw::fpdu(&with_key(segment, readable, writable), crc))
            .collect();
        for (index, flip) in flips {
            let at = index.index(stream.len());
            stream[at] ^= flip;
        }
        for bytes in stream.chunks(cut) {
            let taken = if straight { receive_straight(&mut victim, bytes) } else { 0 };
            let done = victim.receive(&bytes[taken..]);
            send_some(&mut victim, cut);
            while victim.take_delivery().is_some() {}
            while victim.take_completion().is_some() {}
            if done.is_err() {
                break;
            }
        }
        victim.flush();
        while victim.take_completion().is_some() {}
        prop_assert_eq!(victim.send_room(), LIMITS.send_depth);
    }
}
