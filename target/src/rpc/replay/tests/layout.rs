//! Tests of slots, torn at every byte.

use proptest::prelude::*;

use std::time::Duration;

use super::super::layout::{
    Begin, Fault, Header, JournalSlot, PAGE, REPLY_MAX, SLOT, Sealer, Shape,
};
use super::super::{CallKey, Left};

prop_compose! {
    fn begins()(
        address in any::<std::net::IpAddr>(),
        xid in any::<u32>(),
        program in any::<(u32, u32, u32)>(),
        length in any::<usize>(),
        checksum in any::<u64>(),
        times in any::<(u64, u64, u64)>(),
        targets in any::<[u64; 2]>(),
        contested in any::<bool>(),
    ) -> Begin {
        Begin {
            key: CallKey {
                address: address.to_canonical(),
                xid,
                program,
                length,
                checksum,
            },
            began: times.0,
            wall: times.1,
            evicted: times.2,
            targets,
            contested,
        }
    }
}

fn replies() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=REPLY_MAX)
}

proptest! {
    #[test]
    fn what_is_written_is_read(begin in begins(), reply in replies(), place: u64, key: [u8; 16]) {
        let sealer = Sealer::new(&key);
        let mut slot = [0; SLOT];
        prop_assert_eq!(sealer.read(&slot, place).0, JournalSlot::Empty);
        sealer.begin(&mut slot, place, 7, &begin);
        prop_assert_eq!(sealer.read(&slot, place), (JournalSlot::Begun(begin), 7));
        prop_assert!(sealer.done(&mut slot, place, 7, 99, &reply));
        let done = JournalSlot::Done { begin, ended: 99, reply: reply.into() };
        prop_assert_eq!(sealer.read(&slot, place), (done, 7));
        prop_assert_eq!(sealer.read(&slot, place ^ 1).0, JournalSlot::Empty, "at home in its place only");
        sealer.void(&mut slot, place, 7);
        prop_assert_eq!(sealer.read(&slot, place).0, JournalSlot::Empty);
    }

    /// A slot that another call had before: after any partial write, in order or in pieces, the
    /// result was true at some time, and a call is read as begun or done only if it was.
    #[test]
    fn a_slot_torn_at_every_byte_never_lies(
        old in begins(),
        new in begins(),
        replies in (replies(), replies()),
        piece in 1_usize..64,
    ) {
        let sealer = Sealer::new(&[3; 16]);
        let before = {
            let mut slot = [0; SLOT];
            sealer.begin(&mut slot, 5, 1, &old);
            sealer.done(&mut slot, 5, 1, 50, &replies.0);
            slot
        };
        let mut begun = before;
        sealer.begin(&mut begun, 5, 2, &new);
        let mut done = begun;
        sealer.done(&mut done, 5, 2, 60, &replies.1);
        let was = JournalSlot::Done { begin: old, ended: 50, reply: replies.0.into() };
        let is = JournalSlot::Done { begin: new, ended: 60, reply: replies.1.into() };
        for end in 0..=SLOT {
            for (from, to, allowed) in [
                // Not executed yet: the one before, or nothing.
                (&before, &begun, [&was, &JournalSlot::Empty, &JournalSlot::Begun(new)]),
                // Executed: begun at least.
                (&begun, &done, [&JournalSlot::Begun(new), &JournalSlot::Begun(new), &is]),
            ] {
                let mut torn = *from;
                torn[..end].copy_from_slice(&to[..end]);
                let found = sealer.read(&torn, 5).0;
                prop_assert!(allowed.contains(&&found), "up to {}: {:?}", end, found);
                // Every other piece, as stores may land in any order.
                for (index, at) in (end..SLOT).step_by(piece).enumerate().filter(|(n, _)| n % 2 == 1) {
                    let _ = index;
                    let stop = (at + piece).min(SLOT);
                    torn[at..stop].copy_from_slice(&to[at..stop]);
                }
                let found = sealer.read(&torn, 5).0;
                prop_assert!(allowed.contains(&&found), "from {}: {:?}", end, found);
            }
        }
    }

    #[test]
    fn any_bytes_are_no_slot(bytes in prop::collection::vec(any::<u8>(), SLOT), place: u64) {
        prop_assert_eq!(Sealer::new(&[9; 16]).read(&bytes, place).0, JournalSlot::Empty);
    }
}

#[test]
fn a_reply_longer_than_a_slot_leaves_the_call_begun() {
    let sealer = Sealer::new(&[1; 16]);
    let mut slot = [0xee; SLOT];
    let before = slot;
    assert!(!sealer.done(&mut slot, 0, 1, 1, &[0; REPLY_MAX + 1]));
    assert_eq!(slot, before);
    assert!(sealer.done(&mut slot, 0, 1, 1, &[0; REPLY_MAX]));
}

#[test]
fn headers_that_are_not_whole_are_told_apart() {
    let shape = Shape {
        carried: 8,
        regions: 2,
        slots: 16,
    };
    let header = Header {
        shape,
        boot: [1; 16],
        key: [2; 16],
    };
    let page = header.encode();
    assert_eq!(shape.length(), (PAGE + 40 * SLOT) as u64);
    assert_eq!(Header::decode(&page, shape.length()), Ok(header));
    assert_eq!(
        Header::decode(&page, shape.length() - 1),
        Err(Fault::Length {
            found: shape.length() - 1,
            expected: shape.length()
        })
    );
    for length in 0..PAGE {
        let short = Header::decode(&page[..length], length as u64);
        assert_eq!(short, Err(Fault::Foreign));
    }
    for at in 0..72 {
        let mut damaged = page;
        damaged[at] ^= 0x40;
        let fault = Header::decode(&damaged, shape.length()).unwrap_err();
        let expected = match at {
            8..12 => matches!(fault, Fault::Version(_)),
            _ => fault == Fault::Foreign,
        };
        assert!(expected, "byte {at}: {fault}");
    }
}

/// The seed of the fuzz target: slots of each kind under the key that it uses. A change of the
/// layout shows here; `MILLRACE_WRITE_SEEDS=1` writes the seed anew.
#[test]
fn the_seed_of_the_fuzz_target_is_of_this_layout() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../bench/fuzz/corpus/replay_journal/slots"
    );
    let sealer = Sealer::new(&[0; 16]);
    let mut slots = vec![0; PAGE];
    for (place, slot) in (0..4).zip(slots.chunks_exact_mut(SLOT)) {
        let begin = Begin {
            key: CallKey {
                address: std::net::IpAddr::from([192, 0, 2, 1]),
                xid: place as u32,
                program: (100_003, 3, 8),
                length: 100,
                checksum: 5,
            },
            began: 1000 + place,
            wall: 2000,
            evicted: 0,
            targets: [7, place],
            contested: false,
        };
        sealer.begin(slot, place, 1, &begin);
        match place {
            0 | 1 => assert!(sealer.done(slot, place, 1, 1500, b"a reply")),
            2 => sealer.void(slot, place, 1),
            _ => {}
        }
    }
    if std::env::var_os("MILLRACE_WRITE_SEEDS").is_some() {
        std::fs::write(path, &slots).unwrap();
    }
    assert_eq!(std::fs::read(path).unwrap(), slots);
    let left = Left::read(&Left::whole(&slots, [3; 16]), &[3; 16], Duration::MAX).unwrap();
    assert_eq!((left.done(), left.begun()), (2, 1));
}
