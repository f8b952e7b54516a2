//! Replies with read chunks of any make.

use millrace_bench::requester::{Call, CallError, RequesterState};
use millrace_wire::rpcrdma::{ReadSegment, Segment};
use proptest::prelude::*;

use crate::support::{Peer, Raw, bytes, classic, settings, stale, success, unbound};

/// Entries of a read list: position, handle (there is one that can be read), length, offset.
fn entries() -> impl Strategy<Value = Vec<(u32, bool, u32, u64)>> {
    let position = prop_oneof![
        4 => (0_u32..40).prop_map(|words| words * 4),
        1 => (0_u32..(u32::MAX / 4)).prop_map(|words| words * 4),
    ];
    let length = prop_oneof![6 => 0_u32..3000, 1 => any::<u32>()];
    let offset = prop_oneof![9 => Just(0_u64), 1 => any::<u64>()];
    let good = prop::bool::weighted(0.95);
    prop::collection::vec((position, good, length, offset), 1..6)
}

proptest! {
    // Each case sets up a whole connection.
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever a server names in its read list: the call ends, exactly one RDMA_DONE goes unless
    /// the connection has ended, and nothing is written beside the memory that was given.
    #[test]
    fn rr1_done_03_rr1_done_04_any_read_list_ends_in_one_done(
        entries in entries(),
        inline in any::<bool>(),
        sinks in prop::collection::vec(1_usize..2000, 0..3),
        words in prop::collection::vec(prop_oneof![0_u32..3000, any::<u32>()], 0..20),
        used in prop::collection::vec(0_u32..3000, 0..3),
    ) {
        let mut raw = Raw::open(settings(), Peer::default(), 8);
        let whole = raw.memory(64 << 10);
        whole.fill_zero(0..whole.len());
        let mut at = 8;
        let rooms: Vec<_> = sinks
            .iter()
            .map(|&length| {
                let room = [whole.slice(at..at + length)];
                at += length + 8;
                room
            })
            .collect();
        let sinks: Vec<&[_]> = rooms.iter().map(|room| &room[..]).collect();
        raw.submit(&Call {
            sinks: &sinks,
            ..unbound((), 4000)
        });
        let call = raw.next();
        let readable = raw.reveal(&[0xee; 4096]);
        let reads: Vec<_> = entries
            .iter()
            .map(|&(position, good, length, offset)| ReadSegment {
                position,
                segment: Segment {
                    handle: if good { readable.handle } else { !readable.handle },
                    length,
                    offset: if offset == 0 { readable.offset } else { offset },
                },
            })
            .collect();
        let writes: Vec<_> = call
            .writes
            .iter()
            .zip(&used)
            .map(|(chunk, &length)| vec![Segment { length, ..chunk[0] }])
            .collect();
        let mut rpc = success(call.xid, &());
        rpc.extend(bytes(&words));
        let rpc = inline.then_some(rpc.as_slice());
        let mut reply = classic(call.xid, 8, &reads, &writes, None, rpc);
        reply.truncate(4096);
        raw.send(&reply);
        let ready = raw.connection.state() == &RequesterState::Ready;
        let dones = raw.inbox.iter().filter(|seen| seen.kind == 3).count();
        if raw.done.is_empty() {
            // The header itself was of no use, as where a segment wraps around.
            prop_assert!(ready && dones == 0);
            raw.answer(&call, 8, &stale());
        } else if ready {
            prop_assert_eq!(dones, 1);
            raw.getattr(2);
            prop_assert_eq!(raw.connection.window().in_flight(), 1);
        } else {
            // The only way out of a Read that was refused.
            prop_assert_eq!(&raw.done[0].result, &Err(CallError::Disconnected));
        }
        prop_assert!(!raw.connection.is_fetching());
        prop_assert_eq!(raw.done.len(), 1);
        // Between the rooms nothing has changed.
        let mut contents = vec![0; whole.len()];
        whole.copy_to(0, &mut contents);
        for room in &rooms {
            let from = room[0].as_ptr() as usize - whole.as_ptr() as usize;
            contents[from..from + room[0].len()].fill(0);
        }
        prop_assert!(contents.iter().all(|&byte| byte == 0));
    }
}
