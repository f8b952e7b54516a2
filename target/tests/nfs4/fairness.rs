//! Clients that open without end, and others beside them.

use std::net::Ipv4Addr;

use millrace::rdma::Settings;
use millrace_wire::nfs4::{
    CloseOperation, OpenClaim, OpenOperation, Operation, OperationStatus, ReadOperation,
    SequenceOperation, SessionId, StateId, StateOwner, share,
};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::BoundedBytes;

use crate::support;
use crate::support::callback_client::{CallbackWorld, SessionWish, callback_user};
use crate::support::message::{inline, parse};
use crate::support::nfs4::put;
use crate::support::raw::{Options, Stated, World};

/// Calls that the flood has in flight.
const FLOOD: u32 = 64;
/// The word of a transport header that wishes for credits.
const WISH: std::ops::Range<usize> = 8..12;

fn sequence(session: SessionId, slot: u32, sequence: u32) -> Operation<'static> {
    Operation::Sequence(SequenceOperation {
        session,
        sequence,
        slot,
        highest_slot: slot,
        cache_this: false,
    })
}

#[test]
fn v4_perf_09_a_flood_of_opens_delays_no_read_of_others() {
    let state = CallbackWorld::new();
    let bench = &state.bench;
    let security = [callback_user()];
    let wish = SessionWish {
        slots: FLOOD,
        ..SessionWish::linux(&security)
    };
    let (flood, reader) = (state.client_with(b"flood", wish), state.client(b"reader"));
    state.switch_to(&reader);
    let (folder, file) = (bench.walk("/export"), bench.file(b"file", 0o644));
    let settings = Settings::new(4096, FLOOD, 1 << 20, true);
    let options = Options {
        settings,
        ..Options::default()
    };
    let mut transport = World::new(bench.programs.clone(), options);
    let [opening, reading] = [1, 2].map(|host| {
        transport.connect_with(Stated {
            source: Ipv4Addr::new(10, 0, host, 1),
            ..Stated::default()
        })
    });
    let call = |operations: &[Operation<'_>]| {
        let mut message = inline(&CallChunks::default(), &bench.compound_message(operations));
        message[WISH].copy_from_slice(&FLOOD.to_be_bytes());
        message
    };
    let open = |slot: u32, number: u32| {
        let owner = slot.to_be_bytes();
        let open = Operation::Open(OpenOperation {
            sequence: 0,
            access: share::BOTH | share::WANT_NONE,
            deny: 0,
            owner: StateOwner {
                client: flood.id,
                owner: BoundedBytes(&owner),
            },
            create: None,
            claim: OpenClaim::Name(b"file"),
        });
        let close = Operation::Close(CloseOperation {
            sequence: 0,
            open: StateId::CURRENT,
        });
        call(&[
            sequence(flood.session, slot, number),
            put(&folder),
            open,
            close,
        ])
    };
    let read = Operation::Read(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count: 100,
    });
    let succeeded = |reply: &[u8]| {
        let message = parse(reply).message;
        let status = support::results(&message)[..4].try_into().unwrap();
        assert_eq!(u32::from_be_bytes(status), OperationStatus::Ok.number());
        parse(reply).credits
    };
    let mut used = [0; FLOOD as usize];
    used[0] = flood.sequence.get();
    let (mut granted, mut turns, mut most) = (1, Vec::new(), 0);
    let first = bench.sequence.get();
    for round in 1..=8 {
        // The first time the reader is alone.
        let opens = if round == 1 { 0 } else { granted };
        for slot in 0..opens {
            used[slot as usize] += 1;
            transport.post(opening, &open(slot, used[slot as usize]));
        }
        let number = first + round;
        transport.post(
            reading,
            &call(&[sequence(reader.session, 0, number), put(&file), read]),
        );
        let mut taken = 0;
        let replies = loop {
            transport.turn();
            taken += 1;
            assert!(taken < 100, "no answer to the READ of round {round}");
            let replies = transport.received(reading);
            if !replies.is_empty() {
                break replies;
            }
        };
        turns.push(taken);
        assert_eq!(replies.len(), 1);
        succeeded(&replies[0]);
        transport.settle();
        let opened = transport.received(opening);
        assert_eq!(opened.len(), opens as usize, "each OPEN has its reply");
        most = most.max(opens);
        for reply in opened {
            granted = succeeded(&reply);
        }
    }
    assert_eq!(most, FLOOD, "the flood uses all of its credits");
    assert_eq!(
        turns,
        vec![turns[0]; turns.len()],
        "turns until the READ was answered"
    );
    transport.check_clean();
}
