//! Questions to holders of delegations: CB_GETATTR, CB_RECALL_ANY and CB_RECALL_SLOT.

use std::time::Duration;

use millrace::state::StateConfig;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber, Bitmap, CallbackOperation, Operation, OperationResults,
    OperationStatus, StateId, recallable, share,
};

use crate::support::callback_client::{
    CallbackClient, CallbackWorld, OpenedFile, ReceivedCallback, SessionWish, callback_user,
};
use crate::support::nfs4::{Results4, list, put};

const DELAY: OperationStatus = OperationStatus::Delay;
const OK: OperationStatus = OperationStatus::Ok;
const READ: u32 = share::READ | share::WANT_READ;
const WRITE: u32 = share::BOTH | share::WANT_WRITE;

/// A client that has a file delegated for writing, and another one.
struct HeldFile {
    world: CallbackWorld,
    holder: CallbackClient,
    other: CallbackClient,
    file: OpenedFile,
}

fn wanted() -> Bitmap {
    Bitmap::of(&[
        AttributeNumber::Change,
        AttributeNumber::Size,
        AttributeNumber::TimeModify,
    ])
}

/// Change, size and time of the last write.
fn contents(results: &Results4) -> (u64, u64, (i64, u32)) {
    let Attribute::Change(change) = results.attribute(AttributeNumber::Change) else {
        panic!("no change")
    };
    let Attribute::Size(size) = results.attribute(AttributeNumber::Size) else {
        panic!("no size")
    };
    let Attribute::TimeModify(time) = results.attribute(AttributeNumber::TimeModify) else {
        panic!("no time")
    };
    (change, size, (time.seconds, time.nanoseconds))
}

impl HeldFile {
    fn new() -> Self {
        let world = CallbackWorld::new();
        let (holder, other) = (world.client(b"holder"), world.client(b"other"));
        let file = world.open(&holder, b"file", WRITE).unwrap();
        assert!(matches!(file.delegation, Some((_, true))));
        Self {
            world,
            holder,
            other,
            file,
        }
    }

    fn getattr(&self) -> [Operation<'_>; 2] {
        [put(&self.file.handle), Operation::Getattr(wanted())]
    }

    /// What the holder sees, who is not asked.
    fn own(&self) -> (u64, u64, (i64, u32)) {
        contents(&self.world.run(&self.holder, &self.getattr()))
    }

    /// What another client sees, when the holder answers so.
    fn seen(&self, answer: impl FnOnce(ReceivedCallback)) -> Results4 {
        let meanwhile = || answer(self.holder.callback());
        self.world
            .run_after(&self.other, &self.getattr(), meanwhile)
    }
}

#[test]
fn v4_deleg_21_who_holds_a_file_is_asked_for_its_size() {
    let held = HeldFile::new();
    let before = held.own();
    assert!(held.holder.callbacks().is_empty());
    let results = held.seen(|call| {
        call.operation(|operation| {
            let CallbackOperation::Getattr(asked) = operation else {
                panic!("{operation:?}")
            };
            assert_eq!(asked.handle.0, held.file.handle);
            let both = [AttributeNumber::Change, AttributeNumber::Size];
            assert_eq!(asked.attributes, Bitmap::of(&both));
        });
        // It has not changed the file.
        call.answer_attributes(before.0, before.1);
    });
    assert_eq!(contents(&results), before);
    let changed = contents(&held.seen(|call| call.answer_attributes(before.0 + 1, 12_345)));
    assert_eq!(changed.1, 12_345);
    assert!(changed.0 > before.0 && changed.2 >= before.2, "{changed:?}");
    let more = contents(&held.seen(|call| call.answer_attributes(before.0 + 1, 20_000)));
    assert_eq!(more.1, 20_000);
    assert!(more.0 > changed.0 && more.2 >= changed.2, "{more:?}");
    // Others than size, change and times are those of the file.
    let inode = Bitmap::of(&[AttributeNumber::FileId]);
    let operations = [put(&held.file.handle), Operation::Getattr(inode)];
    assert_eq!(held.world.status(&held.other, &operations), OK);
    assert!(held.holder.callbacks().is_empty());
}

#[test]
fn v4_deleg_22_a_holder_that_does_not_answer_loses_its_delegation() {
    for silent in [false, true] {
        let held = HeldFile::new();
        let results = held.seen(|call| match silent {
            true => held.world.pass(Duration::from_secs(1)),
            false => call.answer(OperationStatus::BadHandle),
        });
        assert_eq!(results.status(), DELAY);
        let mut recalls = held.holder.callbacks().into_iter().filter(|call| {
            call.operation(|operation| matches!(operation, CallbackOperation::Recall(_)))
        });
        let recall = recalls.next().expect("a recall");
        assert_eq!(held.world.status(&held.other, &held.getattr()), DELAY);
        recall.answer(OK);
        let give_back = Operation::Delegreturn(held.file.delegated());
        let returned = [put(&held.file.handle), give_back];
        assert_eq!(held.world.status(&held.holder, &returned), OK);
        assert_eq!(held.world.status(&held.other, &held.getattr()), OK);
    }
}

#[test]
fn v4_deleg_22_directories_are_listed_without_asking_holders() {
    let held = HeldFile::new();
    let operations = [
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        Operation::Readdir(list(wanted())),
    ];
    assert_eq!(held.world.status(&held.other, &operations), OK);
    assert!(held.holder.callbacks().is_empty());
}

#[test]
fn v4_bc_09_a_holder_that_was_asked_before_is_asked_anew() {
    let held = HeldFile::new();
    let results = held.seen(|call| {
        let first = call.slot();
        call.answer(OperationStatus::RetryUncached);
        held.world.turn();
        held.world.pass(Duration::from_millis(100));
        let call = held.holder.callback();
        assert_eq!(call.slot(), (first.0, first.1 + 1));
        call.answer_attributes(u64::MAX, 77);
    });
    assert_eq!(contents(&results).1, 77);
}

/// The delegations that a client may keep, as it is asked.
fn kept(call: &ReceivedCallback) -> Option<u32> {
    call.operation(|operation| match operation {
        CallbackOperation::RecallAny(any) => {
            assert!(any.types.contains(recallable::READ_DELEGATIONS));
            assert!(any.types.contains(recallable::WRITE_DELEGATIONS));
            Some(any.keep)
        }
        _ => None,
    })
}

#[test]
fn v4_deleg_24_short_of_memory_clients_are_asked_to_return_delegations() {
    let world = CallbackWorld::under(&StateConfig {
        states: 16,
        ..StateConfig::default()
    });
    let client = world.client(b"client");
    let opened: Vec<OpenedFile> = (0..7)
        .map(|number| world.open(&client, &[b'a' + number], READ).unwrap())
        .collect();
    assert!(opened.iter().all(|file| file.delegation.is_some()));
    world.pass(Duration::from_secs(1));
    assert!(client.callbacks().is_empty());
    world
        .open(&client, b"plain", share::READ | share::WANT_NONE)
        .unwrap();
    world.pass(Duration::from_secs(1));
    let call = client.callback();
    assert_eq!(kept(&call), Some(3));
    call.answer(OK);
    world.pass(Duration::from_secs(89));
    world.flags(&client);
    assert!(client.callbacks().is_empty());
    // Nothing was returned, so that the oldest are recalled.
    world.pass(Duration::from_secs(2));
    let recalls = client.callbacks();
    let recalled: Vec<StateId> = recalls.iter().map(|call| call.recall().0).collect();
    assert_eq!(recalled[0].other, opened[0].delegated().other);
    assert_eq!(recalls.len(), 7);
}

#[test]
fn v4_sess_60_a_client_that_loses_slots_is_told_at_once() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let link = world.bench.state.link();
    link.ask_here(|home, _| home.limit_slots(4));
    world.pass(Duration::from_secs(1));
    let call = client.callback();
    let wanted = call.operation(|operation| match operation {
        CallbackOperation::RecallSlot(slot) => *slot,
        other => panic!("{other:?}"),
    });
    assert_eq!(wanted, 3);
    call.answer(OK);
    world.pass(Duration::from_secs(1));
    assert!(client.callbacks().is_empty());
    // A session that cannot be called learns it by its requests.
    let security = [callback_user()];
    let deaf = SessionWish {
        flags: 0,
        ..SessionWish::linux(&security)
    };
    let deaf = world.client_with(b"deaf", deaf);
    link.ask_here(|home, _| home.limit_slots(2));
    world.pass(Duration::from_secs(1));
    assert!(deaf.callbacks().is_empty());
    let results = world.run(&deaf, &[Operation::Putrootfh(())]);
    let all = results.read().1;
    assert!(matches!(all[..], [OperationResults::Putrootfh(Ok(()))]));
}
