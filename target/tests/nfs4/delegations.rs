//! Delegations: grants, conflicts, recalls and revocation.

use std::time::Duration;

use millrace::call::{Answer, Call, Reply, Serve};
use millrace::nfs3::Nfs3;
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace::rpc::dispatch::Dispatcher;
use millrace::rpc::reverse::ReverseError;
use millrace_mempool::Class;
use millrace_wire::nfs3::{self as v3, Procedure, Stability, Status};
use millrace_wire::nfs4::{
    Attribute, Attributes, CloseOperation, LockType, LocktOperation, OpenClaim, OpenOperation,
    Operation, OperationResults, OperationStatus, ReadOperation, RenameOperation, StateId,
    StateOwner, WriteOperation, sequence_flags, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk, Encode, Padding};

use crate::support::callback_client::{
    CallbackClient, CallbackWorld, OpenedFile, SessionWish, callback_user,
};
use crate::support::nfs4::{put, set};
use crate::support::{Chunks, LIMITS, message, ready, results};

const READ: u32 = share::READ | share::WANT_READ;
const WRITE: u32 = share::BOTH | share::WANT_WRITE;
const DELAY: OperationStatus = OperationStatus::Delay;
const OK: OperationStatus = OperationStatus::Ok;

/// A client with a delegation of a file, and another client.
struct DelegatedWorld {
    world: CallbackWorld,
    holder: CallbackClient,
    file: OpenedFile,
    other: CallbackClient,
}

impl DelegatedWorld {
    fn new(access: u32) -> Self {
        let world = CallbackWorld::new();
        let (holder, other) = (world.client(b"holder"), world.client(b"other"));
        let file = world.open(&holder, b"file", access).unwrap();
        assert_eq!(
            file.delegation.map(|(_, writes)| writes),
            Some(access == WRITE)
        );
        Self {
            world,
            holder,
            file,
            other,
        }
    }

    /// Returns the delegation.
    fn give_back(&self, state: StateId) -> OperationStatus {
        let operations = [put(&self.file.handle), Operation::Delegreturn(state)];
        self.world.status(&self.holder, &operations)
    }

    /// The other client runs operations.
    fn of_other(&self, operations: &[Operation<'_>]) -> OperationStatus {
        self.world.status(&self.other, operations)
    }
}

/// Attributes to set.
fn given(list: &[Attribute<'_>]) -> Attributes<'static> {
    // A few bytes, for the time of the test.
    Attributes::build(list, Box::leak(Box::new([0; 64]))).unwrap()
}

fn write(state: StateId) -> Operation<'static> {
    Operation::Write(WriteOperation {
        state,
        offset: 0,
        stable: Stability::Unstable,
        data: Bulk::inline(b"data"),
    })
}

fn read(state: StateId) -> Operation<'static> {
    Operation::Read(ReadOperation {
        state,
        offset: 0,
        count: 4,
    })
}

fn in_export(operation: Operation<'static>) -> Vec<Operation<'static>> {
    vec![
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        operation,
    ]
}

#[test]
fn v4_deleg_01_and_05_the_first_open_gets_what_it_wants_if_the_client_can_be_called() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let kinds = [
        (READ, Some(false)),
        (WRITE, Some(true)),
        (share::READ | share::WANT_ANY, Some(false)),
        (share::BOTH | share::WANT_ANY, Some(true)),
        (share::BOTH | share::WANT_NONE, None),
        (share::BOTH | share::WANT_CANCEL, None),
        (share::READ, None),
        (share::BOTH, Some(true)),
    ];
    for (index, (access, writes)) in kinds.into_iter().enumerate() {
        let name = [b'a' + index as u8];
        let file = world.open(&client, &name, access).unwrap();
        assert_eq!(file.delegation.map(|(_, writes)| writes), writes, "{index}");
    }
    let deaf = world.client_with(b"deaf", SessionWish::linux(&[]));
    let file = world.open(&deaf, b"other", READ).unwrap();
    assert_eq!(file.delegation, None);
    // Without connection for callbacks there is none either.
    let old = client.link.replace(world.connect());
    old.connection.end();
    world.turn();
    let file = world.open(&client, b"another", READ).unwrap();
    assert_eq!(file.delegation, None);
}

#[test]
fn v4_deleg_04_a_file_is_delegated_for_reading_with_the_second_open() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    assert_eq!(
        world.open(&one, b"file", share::READ).unwrap().delegation,
        None
    );
    let file = world.open(&two, b"file", share::READ).unwrap();
    assert!(matches!(file.delegation, Some((_, false))));
}

#[test]
fn v4_deleg_04_a_recalled_file_waits_before_it_is_delegated_again() {
    let world = DelegatedWorld::new(READ);
    for wait in [30, 60, 120] {
        assert_eq!(
            world.of_other(&[put(&world.file.handle), write(StateId::ANONYMOUS)]),
            DELAY
        );
        let call = world.holder.callback();
        call.answer(OK);
        assert_eq!(world.give_back(call.recall().0), OK);
        let open = || world.world.open(&world.holder, b"file", READ).unwrap();
        world.world.pass(Duration::from_secs(wait - 1));
        assert_eq!(open().delegation, None);
        world.world.pass(Duration::from_secs(2));
        assert!(open().delegation.is_some(), "{wait}");
        world.world.flags(&world.other);
    }
}

#[test]
fn v4_deleg_off_none_is_granted() {
    let world = CallbackWorld::with(false);
    let client = world.client(b"client");
    let file = world.open(&client, b"file", READ).unwrap();
    assert_eq!(file.delegation, None);
}

#[test]
fn v4_deleg_02_and_03_others_who_have_the_file_open_prevent_delegations() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    let plain = |client, name: &[u8], access| {
        world.open(client, name, access | share::WANT_NONE).unwrap();
    };
    plain(&one, b"read", share::READ);
    plain(&one, b"written", share::WRITE);
    let wanted = |name: &[u8], access| {
        let file = world.open(&two, name, access).unwrap();
        file.delegation.map(|(_, writes)| writes)
    };
    assert_eq!(wanted(b"written", READ), None);
    assert_eq!(wanted(b"read", WRITE), None);
    plain(&one, b"read too", share::READ);
    assert_eq!(wanted(b"read too", READ), Some(false));
    // Two clients may read under delegations.
    let file = world.open(&one, b"read too", READ).unwrap();
    assert!(matches!(file.delegation, Some((_, false))));
}

#[test]
fn v4_deleg_07_and_26_the_holder_does_not_recall_its_own_delegation() {
    let world = DelegatedWorld::new(WRITE);
    let link = world.world.connect();
    world.world.bench.call_by(&link.connection);
    let security = [callback_user()];
    let id = (world.holder.id, 2);
    let second = world
        .world
        .create_session(id, SessionWish::linux(&security));
    let second = CallbackClient {
        id: world.holder.id,
        session: second.session,
        sequence: Default::default(),
        link: link.into(),
    };
    let handle = put(&world.file.handle);
    let size = [Attribute::Size(3)];
    // An open grows with each OPEN of its owner.
    let open = StateId {
        sequence: 0,
        ..world.file.state
    };
    for client in [&world.holder, &second] {
        for state in [StateId::ANONYMOUS, open, world.file.delegated()] {
            let operations = [handle, read(state), write(state)];
            assert_eq!(world.world.status(client, &operations), OK);
        }
        let resize = set(given(&size));
        assert_eq!(world.world.status(client, &[handle, resize]), OK);
        assert!(world.world.open(client, b"file", share::BOTH).is_ok());
        assert!(client.callbacks().is_empty());
    }
}

/// What recalls delegations of a file, besides OPEN.
fn conflicts(handle: &[u8]) -> Vec<(&'static str, Vec<Operation<'_>>)> {
    let mode: &'static [Attribute<'static>] = &[Attribute::Mode(0o600)];
    let size: &'static [Attribute<'static>] = &[Attribute::Size(1)];
    let rename = |from: &'static [u8], to: &'static [u8]| {
        vec![
            Operation::Putrootfh(()),
            Operation::Lookup(b"export"),
            Operation::Savefh(()),
            Operation::Rename(RenameOperation { from, to }),
        ]
    };
    vec![
        ("write", vec![put(handle), write(StateId::ANONYMOUS)]),
        ("size", vec![put(handle), set(given(size))]),
        ("mode", vec![put(handle), set(given(mode))]),
        ("remove", in_export(Operation::Remove(b"file"))),
        ("rename", rename(b"file", b"new")),
        ("rename onto", rename(b"other", b"file")),
        (
            "link",
            vec![
                put(handle),
                Operation::Savefh(()),
                Operation::Putrootfh(()),
                Operation::Lookup(b"export"),
                Operation::Link(b"second"),
            ],
        ),
    ]
}

#[test]
fn v4_deleg_08_and_10_changes_by_others_recall_a_delegation_and_go_on_after_its_return() {
    let count = conflicts(&[]).len();
    for index in 0..count {
        let world = DelegatedWorld::new(READ);
        world
            .world
            .open(&world.other, b"other", share::BOTH | share::WANT_NONE)
            .unwrap();
        let all = conflicts(&world.file.handle);
        let (what, operations) = &all[index];
        assert_eq!(world.of_other(operations), DELAY, "{what}");
        // Once only.
        assert_eq!(world.of_other(operations), DELAY, "{what}");
        let call = world.holder.callback();
        let (state, handle, truncates) = call.recall();
        assert_eq!(state, world.file.delegated());
        assert_eq!((handle, truncates), (world.file.handle.clone(), false));
        call.answer(OK);
        assert_eq!(world.give_back(state), OK);
        assert_eq!(world.of_other(operations), OK, "{what}");
    }
}

#[test]
fn v4_deleg_09_a_delegation_for_writing_is_recalled_by_who_reads() {
    for access in [READ, WRITE] {
        let world = DelegatedWorld::new(access);
        let recalls = access == WRITE;
        let expected = if recalls { DELAY } else { OK };
        let handle = put(&world.file.handle);
        for state in [StateId::ANONYMOUS, StateId::READ_BYPASS] {
            assert_eq!(world.of_other(&[handle, read(state)]), expected);
        }
        let test = Operation::Lockt(LocktOperation {
            kind: LockType::Read,
            offset: 0,
            length: 1,
            owner: StateOwner {
                client: world.other.id,
                owner: BoundedBytes(b"locker"),
            },
        });
        assert_eq!(world.of_other(&[handle, test]), expected);
        let opened = world.world.open(&world.other, b"file", share::READ);
        assert_eq!(opened.err(), recalls.then_some(DELAY));
        assert_eq!(world.holder.callbacks().len(), usize::from(recalls));
    }
}

#[test]
fn v4_deleg_08_and_15_opens_of_others_recall_a_delegation_for_reading() {
    let world = DelegatedWorld::new(READ);
    let open = |access| world.world.open(&world.other, b"file", access);
    assert!(open(share::READ | share::WANT_NONE).is_ok());
    assert!(world.holder.callbacks().is_empty());
    assert_eq!(open(share::WRITE).err(), Some(DELAY));
    let call = world.holder.callback();
    call.answer(OK);
    assert_eq!(world.give_back(call.recall().0), OK);
    assert!(open(share::WRITE).is_ok());
}

#[test]
fn v4_deleg_16_a_recall_refers_to_the_open_that_the_delegation_came_with() {
    let world = DelegatedWorld::new(READ);
    let sequence = world.holder.sequence.get();
    world.world.flags(&world.holder);
    assert_eq!(
        world.of_other(&[put(&world.file.handle), write(StateId::ANONYMOUS)]),
        DELAY
    );
    world.holder.callback().sequence(|one| {
        let lists: Vec<_> = one.referring.iter().collect();
        assert_eq!(lists.len(), 1);
        assert_eq!(lists[0].session, world.holder.session);
        let calls: Vec<_> = lists[0].calls.iter().collect();
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].slot, calls[0].sequence), (0, sequence));
    });
}

#[test]
fn v4_deleg_17_a_client_that_asks_for_time_is_called_again() {
    let world = DelegatedWorld::new(READ);
    let conflict = [put(&world.file.handle), write(StateId::ANONYMOUS)];
    assert_eq!(world.of_other(&conflict), DELAY);
    world.holder.callback().answer(DELAY);
    world.world.turn();
    world.world.pass(Duration::from_millis(101));
    let again = world.holder.callback();
    assert_eq!(again.recall().0, world.file.delegated());
    assert_eq!(again.slot(), (0, 2));
    again.answer(OperationStatus::BadHandle);
    world.world.pass(Duration::from_secs(20));
    assert!(world.holder.callbacks().is_empty());
    assert_eq!(world.of_other(&conflict), DELAY);
}

#[test]
fn v4_deleg_18_a_delegation_that_is_not_returned_is_revoked() {
    let world = DelegatedWorld::new(READ);
    let conflict = [put(&world.file.handle), write(StateId::ANONYMOUS)];
    assert_eq!(world.of_other(&conflict), DELAY);
    world.holder.callback().answer(OK);
    let shown = || world.world.flags(&world.holder) & sequence_flags::RECALLABLE_REVOKED != 0;
    for _ in 0..3 {
        world.world.pass(Duration::from_secs(30));
        assert!(!shown());
        assert_eq!(world.of_other(&conflict), DELAY);
    }
    world.world.pass(Duration::from_secs(1));
    assert_eq!(world.of_other(&conflict), OK);
    assert!(shown());
    let state = world.file.delegated();
    let handle = put(&world.file.handle);
    let status = |operation| world.world.status(&world.holder, &[handle, operation]);
    assert_eq!(status(read(state)), OperationStatus::DelegationRevoked);
    assert_eq!(world.give_back(state), OperationStatus::DelegationRevoked);
    assert!(shown());
    assert_eq!(status(Operation::FreeStateid(state)), OK);
    assert!(!shown());
    assert_eq!(status(read(state)), OperationStatus::BadStateId);
}

#[test]
fn v4_deleg_19_a_client_that_writes_back_has_up_to_two_leases() {
    let world = DelegatedWorld::new(WRITE);
    let open = || world.world.open(&world.other, b"file", share::READ).err();
    assert_eq!(open(), Some(DELAY));
    world.holder.callback().answer(OK);
    let state = world.file.delegated();
    let write_back = [put(&world.file.handle), write(state)];
    for _ in 0..3 {
        world.world.pass(Duration::from_secs(60));
        assert_eq!(world.world.status(&world.holder, &write_back), OK);
        assert_eq!(open(), Some(DELAY));
    }
    world.world.pass(Duration::from_secs(1));
    assert_eq!(open(), None);
}

#[test]
fn v4_deleg_20_a_delegation_is_returned_once() {
    let world = DelegatedWorld::new(READ);
    let state = world.file.delegated();
    let other = world
        .world
        .open(&world.holder, b"other", share::READ | share::WANT_NONE)
        .unwrap();
    let elsewhere = [put(&other.handle), Operation::Delegreturn(state)];
    let status = world.world.status(&world.holder, &elsewhere);
    assert_eq!(status, OperationStatus::BadStateId);
    let foreign = [put(&world.file.handle), Operation::Delegreturn(state)];
    assert_eq!(world.of_other(&foreign), OperationStatus::BadStateId);
    let early = StateId {
        sequence: state.sequence + 1,
        ..state
    };
    assert_eq!(world.give_back(early), OperationStatus::BadStateId);
    assert_eq!(
        world.give_back(world.file.state),
        OperationStatus::BadStateId
    );
    assert_eq!(world.give_back(state), OK);
    assert_eq!(world.give_back(state), OperationStatus::BadStateId);
    let conflict = [put(&world.file.handle), write(StateId::ANONYMOUS)];
    assert_eq!(world.of_other(&conflict), OK);
}

#[test]
fn v4_open_04_opens_made_under_a_delegation_become_opens_while_it_is_recalled() {
    let world = DelegatedWorld::new(WRITE);
    let open = || world.world.open(&world.other, b"file", share::READ).err();
    assert_eq!(open(), Some(DELAY));
    let claim = |delegation| {
        let claim = Operation::Open(OpenOperation {
            sequence: 0,
            access: share::BOTH,
            deny: 0,
            owner: StateOwner {
                client: world.holder.id,
                owner: BoundedBytes(b"another owner"),
            },
            create: None,
            claim: OpenClaim::DelegatedFile(delegation),
        });
        let operations = [put(&world.file.handle), claim];
        let results = world.world.run(&world.holder, &operations);
        let (header, all) = results.read();
        match all.last() {
            Some(OperationResults::Open(Ok(reply))) => Ok(reply.open),
            _ => Err(header.status),
        }
    };
    assert_eq!(
        claim(world.file.state).err(),
        Some(OperationStatus::BadStateId)
    );
    let state = claim(world.file.delegated()).unwrap();
    assert_eq!(world.give_back(world.file.delegated()), OK);
    let write = [put(&world.file.handle), write(state)];
    assert_eq!(world.world.status(&world.holder, &write), OK);
    assert_eq!(open(), None);
    assert_eq!(
        claim(world.file.delegated()).err(),
        Some(OperationStatus::BadStateId)
    );
}

#[test]
fn v4_deleg_15_a_recall_says_whether_the_file_is_truncated() {
    let world = DelegatedWorld::new(READ);
    let size = [Attribute::Size(0)];
    let truncate = Operation::Open(OpenOperation {
        sequence: 0,
        access: share::BOTH,
        deny: 0,
        owner: StateOwner {
            client: world.other.id,
            owner: BoundedBytes(b"owner"),
        },
        create: Some(millrace_wire::nfs4::CreateMode::Unchecked(given(&size))),
        claim: OpenClaim::Name(b"file"),
    });
    let operations = [
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        truncate,
    ];
    assert_eq!(world.of_other(&operations), DELAY);
    let (_, _, truncates) = world.holder.callback().recall();
    assert!(truncates);
}

#[test]
fn v4_deleg_23_a_recall_is_sent_again_by_the_new_connection_and_its_time_goes_on() {
    let world = DelegatedWorld::new(READ);
    let conflict = [put(&world.file.handle), write(StateId::ANONYMOUS)];
    assert_eq!(world.of_other(&conflict), DELAY);
    let call = world.holder.callback();
    let old = world.holder.link.replace(world.world.connect());
    old.connection.end();
    call.fail(ReverseError::ConnectionLost { xid: 4 });
    world.world.pass(Duration::from_secs(60));
    world.world.flags(&world.holder);
    world
        .world
        .bench
        .call_by(&world.holder.link.borrow().connection);
    let bind = Operation::BindConnToSession(millrace_wire::nfs4::ConnectionBinding {
        session: world.holder.session,
        direction: 3,
        rdma_mode: false,
    });
    assert_eq!(world.world.bench.compound(&[bind]).status(), OK);
    world.world.turn();
    let again = world.holder.callback();
    assert_eq!((again.slot(), again.repeats), ((0, 1), Some(4)));
    world.world.pass(Duration::from_secs(31));
    assert_eq!(world.of_other(&conflict), OK);
}

#[test]
fn v4_lease_06_a_delegation_of_a_silent_client_gives_way_at_once() {
    let world = DelegatedWorld::new(READ);
    world.world.pass(Duration::from_secs(60));
    world.world.flags(&world.other);
    world.world.pass(Duration::from_secs(31));
    let conflict = [put(&world.file.handle), write(StateId::ANONYMOUS)];
    assert_eq!(world.of_other(&conflict), OK);
    assert!(world.holder.callbacks().is_empty());
}

/// The status of a call of version 3 over the same exports.
fn call_v3(world: &CallbackWorld, procedure: Procedure, arguments: &impl Encode) -> u32 {
    let bench = &world.bench;
    let program = Nfs3::new(std::rc::Rc::clone(&bench.exports));
    program.respect(bench.state.delegations());
    let replay = ReplayCache::new(ReplayLimits::default());
    let programs = Dispatcher::over((program, ()), replay);
    let buffer = bench.pool.try_acquire(Class::Control).unwrap();
    let mut reply = Reply::new(&bench.pool, buffer, LIMITS, Vec::new());
    let connection = bench.connection();
    let call = Call {
        connection: &connection,
        arrived: world.clock.now(),
        message: &message::nfs(1, procedure, arguments),
        bulk: &[],
        fetched: None,
        padding: Padding::default(),
        is_authenticated: false,
    };
    let answer = ready(programs.serve(call, &mut Chunks::default(), &mut reply));
    assert_eq!(answer, Answer::Send);
    world.turn();
    let parts = reply.into_parts();
    let results = results(&parts.buffer[parts.message]);
    u32::from_be_bytes(results[..4].try_into().unwrap())
}

#[test]
fn v4_deleg_11_calls_of_version_3_conflict_like_those_of_another_client() {
    let name = |world: &CallbackWorld, name: &'static [u8]| v3::EntryArguments {
        directory: v3::FileHandle::new(&world.bench.walk("/export")).unwrap(),
        name,
    };
    let read = |world: &CallbackWorld, file: v3::FileHandle| {
        let arguments = v3::ReadArguments {
            file,
            offset: 0,
            count: 4,
        };
        call_v3(world, Procedure::Read, &arguments)
    };
    let write = |world: &CallbackWorld, file: v3::FileHandle| {
        let arguments = v3::WriteArguments {
            file,
            offset: 0,
            count: 4,
            stable: Stability::Unstable,
            data: Bulk::inline(b"data"),
        };
        call_v3(world, Procedure::Write, &arguments)
    };
    let remove = |world: &CallbackWorld, _: v3::FileHandle| {
        call_v3(world, Procedure::Remove, &name(world, b"file"))
    };
    let rename = |world: &CallbackWorld, _: v3::FileHandle| {
        let arguments = v3::RenameArguments {
            from: name(world, b"file"),
            to: name(world, b"new"),
        };
        call_v3(world, Procedure::Rename, &arguments)
    };
    let link = |world: &CallbackWorld, file: v3::FileHandle| {
        let entry = name(world, b"new");
        call_v3(
            world,
            Procedure::Link,
            &v3::LinkArguments {
                object: file,
                entry,
            },
        )
    };
    type Conflict<'a> = &'a dyn Fn(&CallbackWorld, v3::FileHandle) -> u32;
    let conflicts: [(u32, Conflict<'_>); 6] = [
        (READ, &write),
        (READ, &remove),
        (READ, &rename),
        (READ, &link),
        (WRITE, &read),
        (WRITE, &write),
    ];
    for (index, (access, conflict)) in conflicts.into_iter().enumerate() {
        let world = DelegatedWorld::new(access);
        let file = v3::FileHandle::new(&world.file.handle).unwrap();
        if access == READ {
            assert_eq!(read(&world.world, file), Status::Ok as u32);
        }
        let again = || {
            let bench = &world.world.bench;
            // The walk to the directory is the other client's.
            bench.session.set(world.other.session);
            bench.sequence.set(world.other.sequence.get());
            let status = conflict(&world.world, file);
            world.other.sequence.set(bench.sequence.get());
            status
        };
        assert_eq!(again(), Status::Jukebox as u32, "{index}");
        let call = world.holder.callback();
        call.answer(OK);
        assert_eq!(world.give_back(call.recall().0), OK);
        assert_eq!(again(), Status::Ok as u32, "{index}");
    }
}

#[test]
fn v4_data_10_versions_see_each_others_changes_at_once() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let plain = share::BOTH | share::WANT_NONE;
    let opened = world.open(&client, b"file", plain).unwrap();
    let file = v3::FileHandle::new(&opened.handle).unwrap();
    let write = v3::WriteArguments {
        file,
        offset: 0,
        count: 4,
        stable: Stability::Unstable,
        data: Bulk::inline(b"new!"),
    };
    assert_eq!(call_v3(&world, Procedure::Write, &write), Status::Ok as u32);
    let found = world.run(&client, &[put(&opened.handle), read(opened.state)]);
    assert_eq!(found.data(), (b"new!".to_vec(), true));
    let remove = in_export(Operation::Remove(b"file"));
    assert_eq!(world.status(&client, &remove), OK);
    let read = v3::ReadArguments {
        file,
        offset: 0,
        count: 4,
    };
    // It is open still.
    assert_eq!(call_v3(&world, Procedure::Read, &read), Status::Ok as u32);
    let close = Operation::Close(CloseOperation {
        sequence: 0,
        open: opened.state,
    });
    let closing = [put(&opened.handle), close];
    assert_eq!(world.status(&client, &closing), OK);
    assert_eq!(
        call_v3(&world, Procedure::Read, &read),
        Status::Stale as u32
    );
}
