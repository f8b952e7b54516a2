//! State of an expired client that is given to another one while I/O with it goes on.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millrace::call::{Answer, BulkArgument};
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    CompoundReplyHeader, LockOperation, LockType, Locker, NewLockOwner, Operation,
    OperationResults, OperationStatus as Status, ReadOperation, StateId, StateOwner,
    WriteOperation, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk, Decode, Decoder};

use crate::support::callback_client::{CallbackClient, CallbackWorld, OpenedFile};
use crate::support::nfs4::put;
use crate::support::{Chunks, results};

const DATA: [u8; 600] = [7; 600];

fn write(state: StateId) -> Operation<'static> {
    Operation::Write(WriteOperation {
        state,
        offset: 0,
        stable: Stability::Unstable,
        data: Bulk::apart(DATA.len() as u32),
    })
}

fn lock(client: &CallbackClient, open: StateId) -> Operation<'static> {
    Operation::Lock(LockOperation {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(NewLockOwner {
            open_sequence: 0,
            open,
            lock_sequence: 0,
            owner: StateOwner {
                client: client.id,
                owner: BoundedBytes(b"locker"),
            },
        }),
    })
}

/// The status of a COMPOUND.
fn status((answer, message): (Answer, Vec<u8>)) -> Status {
    assert_eq!(answer, Answer::Send);
    let mut input = Decoder::new(results(&message));
    CompoundReplyHeader::decode(&mut input).unwrap().status
}

/// Has a client write with a stateid. While the data is on its way the client's lease ends, and
/// another one asks for something that is granted only when the write is over.
fn takes_over(
    world: &CallbackWorld,
    (holder, file, state): (&CallbackClient, &OpenedFile, StateId),
    other: &CallbackClient,
    wanted: &[Operation<'_>],
) {
    let bench = &world.bench;
    world.switch_to(holder);
    let next = bench.next_sequence();
    let message = bench.compound_message(&[next, put(&file.handle), write(state)]);
    let bulk = [BulkArgument {
        position: message.len() as u32,
        length: DATA.len() as u32,
    }];
    let context = &mut Context::from_waker(Waker::noop());
    let taken: Cell<Option<Pin<Box<dyn Future<Output = Status> + '_>>>> = Cell::default();
    let mut chunks = Chunks {
        chunks: vec![&DATA],
        meanwhile: Some(Box::new(|| {
            world.pass(Duration::from_secs(200));
            world.switch_to(other);
            let mut all = vec![bench.next_sequence()];
            all.extend_from_slice(wanted);
            let message = bench.compound_message(&all);
            let mut asked: Pin<Box<dyn Future<Output = Status>>> = Box::pin(async move {
                let mut none = Chunks::default();
                let (answer, message, _) = bench.exchange(&message, &[], &mut none).await;
                status((answer, message))
            });
            let context = &mut Context::from_waker(Waker::noop());
            for _ in 0..3 {
                assert!(asked.as_mut().poll(context).is_pending());
                bench.state.link().end_waits();
            }
            taken.set(Some(asked));
        })),
        ..Chunks::default()
    };
    let (answer, written, _) = bench.send(&message, &bulk, &mut chunks);
    drop(chunks);
    assert_eq!(status((answer, written)), Status::Ok);
    bench.state.link().end_waits();
    let mut taken = taken.take().expect("it was asked for");
    assert_eq!(taken.as_mut().poll(context), Poll::Ready(Status::Ok));
    // Later I/O is refused before its data is fetched.
    world.switch_to(holder);
    let next = bench.next_sequence();
    let message = bench.compound_message(&[next, put(&file.handle), write(state)]);
    let mut chunks = Chunks::default();
    let (answer, refused, _) = bench.send(&message, &bulk, &mut chunks);
    let refused = status((answer, refused));
    assert!(
        matches!(refused, Status::Expired | Status::DelegationRevoked),
        "{refused:?}"
    );
    assert_eq!(chunks.pulls, 0);
}

#[test]
fn v4_lock_24_a_lock_of_an_expired_client_is_given_on_when_its_writes_are_over() {
    let world = CallbackWorld::with(false);
    let (holder, other) = (world.client(b"holder"), world.client(b"other"));
    let access = share::BOTH | share::WANT_NONE;
    let file = world.open(&holder, b"file", access).unwrap();
    let same = world.open(&other, b"file", access).unwrap();
    let locked = world.run(&holder, &[put(&file.handle), lock(&holder, file.state)]);
    let OperationResults::Lock(Ok(state)) = locked.last() else {
        panic!("the file is free")
    };
    let wanted = [put(&same.handle), lock(&other, same.state)];
    takes_over(&world, (&holder, &file, state), &other, &wanted);
}

#[test]
fn v4_deleg_27_a_delegation_of_an_expired_client_ends_when_its_writes_are_over() {
    let world = CallbackWorld::new();
    let (holder, other) = (world.client(b"holder"), world.client(b"other"));
    let file = world
        .open(&holder, b"file", share::BOTH | share::WANT_WRITE)
        .unwrap();
    let state = file.delegated();
    let read = Operation::Read(ReadOperation {
        state: StateId::ANONYMOUS,
        offset: 0,
        count: 10,
    });
    takes_over(
        &world,
        (&holder, &file, state),
        &other,
        &[put(&file.handle), read],
    );
}
