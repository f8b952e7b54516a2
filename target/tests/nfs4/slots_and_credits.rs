//! Two limits of one client: credits of its connection, and slots of its sessions.

use std::collections::VecDeque;

use millrace::rdma::Settings;
use millrace_wire::nfs4::{
    ChannelAttributes, CreateSessionOperation, Operation, OperationResults, OperationStatus,
    SequenceOperation, SessionId,
};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::Array;

use crate::support;
use crate::support::callback_client::CallbackWorld;
use crate::support::message::{inline, parse};
use crate::support::nfs4::{make_directory, put};
use crate::support::raw::{Options, World};

/// Requests of each slot.
const ROUNDS: u32 = 3;

/// The word of a transport header that wishes for credits.
const WISH: std::ops::Range<usize> = 8..12;

/// A slot, and the requests that were sent in it.
struct UsedSlot {
    session: SessionId,
    slot: u32,
    sequence: u32,
}

fn create_session(world: &CallbackWorld, client: u64, sequence: u32, slots: u32) -> SessionId {
    let channel = ChannelAttributes {
        header_padding: 0,
        request_size: 1 << 20,
        response_size: 1 << 20,
        cached_size: 4096,
        operations: 8,
        requests: slots,
        rdma_ird: None,
    };
    let create = Operation::CreateSession(CreateSessionOperation {
        client,
        sequence,
        flags: 0,
        fore: channel,
        back: channel,
        callback_program: 0x4000_0000,
        security: Array::new(&[]),
    });
    match world.bench.compound(&[create]).read().1[..] {
        [OperationResults::CreateSession(Ok(reply))] => {
            assert_eq!(reply.fore.requests, slots, "whatever the credits are");
            reply.session
        }
        ref other => panic!("{other:?}"),
    }
}

/// Has a client with sessions of so many slots make directories, each in a slot of its own, over a
/// connection with so many credits; it uses all that it may at any time. Returns the most requests
/// that were in flight.
fn used_fully(credits: u32, sessions: u32, slots: u32) -> usize {
    let state = CallbackWorld::new();
    let bench = &state.bench;
    let client = state.client(b"client");
    state.switch_to(&client);
    let folder = bench.walk("/export");
    let mut free: VecDeque<UsedSlot> = (0..sessions)
        .map(|number| create_session(&state, client.id, 2 + number, slots))
        .flat_map(|session| {
            (0..slots).map(move |slot| UsedSlot {
                session,
                slot,
                sequence: 0,
            })
        })
        .collect();

    let settings = Settings::new(4096, credits, 1 << 20, true);
    let mut transport = World::new(
        bench.programs.clone(),
        Options {
            settings,
            ..Options::default()
        },
    );
    let connection = transport.connect();
    let (mut granted, mut most, mut made) = (1, 0, 0);
    while !free.is_empty() {
        let mut flying = VecDeque::new();
        while flying.len() < granted
            && let Some(mut used) = free.pop_front()
        {
            used.sequence += 1;
            let sequence = Operation::Sequence(SequenceOperation {
                session: used.session,
                sequence: used.sequence,
                slot: used.slot,
                highest_slot: slots - 1,
                cache_this: false,
            });
            let name = format!("directory {made}");
            made += 1;
            let call =
                bench.compound_message(&[sequence, put(&folder), make_directory(name.as_bytes())]);
            let mut message = inline(&CallChunks::default(), &call);
            message[WISH].copy_from_slice(&credits.to_be_bytes());
            transport.post(connection, &message);
            flying.push_back(used);
        }
        most = most.max(flying.len());
        transport.settle();
        let replies = transport.received(connection);
        assert_eq!(replies.len(), flying.len(), "each has its reply");
        for reply in replies {
            let reply = parse(&reply);
            granted = reply.credits as usize;
            let status = support::results(&reply.message)[..4].try_into().unwrap();
            assert_eq!(u32::from_be_bytes(status), OperationStatus::Ok.number());
        }
        let done = |used: &UsedSlot| used.sequence == ROUNDS;
        free.extend(flying.into_iter().filter(|used| !done(used)));
    }
    assert_eq!(made, sessions * slots * ROUNDS);
    for number in 0..made {
        bench.session.set(client.session);
        bench.walk(&format!("/export/directory {number}"));
    }
    transport.check_clean();
    most
}

#[test]
fn v4_ulb_15_credits_and_slots_are_limits_of_their_own() {
    assert_eq!(used_fully(8, 1, 64), 8);
    assert_eq!(used_fully(64, 1, 8), 8);
    assert_eq!(used_fully(64, 8, 8), 64);
}
