//! Clients and sessions over several connections, addresses and users.

use millrace::call::{Peer, TransportKind};
use millrace_wire::nfs4::{
    Bitmap, ChannelAttributes, ClientOwner, ConnectionBinding, CreateSessionOperation,
    CreateSessionReply, ExchangeIdOperation, LockOperation, LockType, Locker, LockuOperation,
    NewLockOwner, Operation, OperationResults, OperationStatus, ProtectedOperations,
    ProtectionOffer, ReadOperation, SequenceOperation, SsvOffer, StateId, StateOwner,
    channel_direction, exchange_flags, sequence_flags, share,
};
use millrace_wire::xdr::{Array, BoundedBytes};

use crate::support;
use crate::support::callback_client::{CallbackClient, CallbackWorld, SessionWish, callback_user};
use crate::support::connection;
use crate::support::nfs4::put;

const OK: OperationStatus = OperationStatus::Ok;
const PLAIN: u32 = share::BOTH | share::WANT_NONE;

pub fn exchange<'a>(owner: &'a [u8], flags: u32, protection: ProtectionOffer<'a>) -> Operation<'a> {
    Operation::ExchangeId(ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [1; 8],
            owner: BoundedBytes(owner),
        },
        flags,
        protection,
        implementation: None,
    })
}

/// Client ID, owner of the server and scope, as EXCHANGE_ID tells them.
fn identity(world: &CallbackWorld, owner: &[u8]) -> (u64, u64, Vec<u8>, Vec<u8>) {
    let operation = exchange(owner, 0, ProtectionOffer::Unprotected);
    match world.bench.compound(&[operation]).read().1[..] {
        [OperationResults::ExchangeId(Ok(reply))] => (
            reply.client,
            reply.owner.minor,
            reply.owner.major.0.to_vec(),
            reply.scope.0.to_vec(),
        ),
        ref other => panic!("{other:?}"),
    }
}

pub fn create(client: u64, sequence: u32) -> Operation<'static> {
    let limits = ChannelAttributes {
        header_padding: 0,
        request_size: 1 << 20,
        response_size: 1 << 20,
        cached_size: 4096,
        operations: 8,
        requests: 16,
        rdma_ird: None,
    };
    Operation::CreateSession(CreateSessionOperation {
        client,
        sequence,
        flags: 0,
        fore: limits,
        back: limits,
        callback_program: 0x4000_0000,
        security: Array::new(&[]),
    })
}

fn lock(client: &CallbackClient, open: StateId) -> Operation<'static> {
    Operation::Lock(LockOperation {
        kind: LockType::WriteWait,
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

/// Has `waiter` denied a lock that is free then, so that it is called.
fn call(world: &CallbackWorld, waiter: &CallbackClient, name: &[u8]) {
    let holder = world.client(name);
    let held = world.open(&holder, name, PLAIN).unwrap();
    let waiting = world.open(waiter, name, PLAIN).unwrap();
    let locked = world.run(&holder, &[put(&held.handle), lock(&holder, held.state)]);
    let OperationResults::Lock(Ok(state)) = locked.last() else {
        panic!("not locked")
    };
    let denied = world.status(waiter, &[put(&waiting.handle), lock(waiter, waiting.state)]);
    assert_eq!(denied, OperationStatus::Denied);
    let unlock = Operation::Locku(LockuOperation {
        kind: LockType::Write,
        sequence: 0,
        lock: state,
        offset: 0,
        length: 10,
    });
    assert_eq!(world.status(&holder, &[put(&held.handle), unlock]), OK);
}

#[test]
fn v4_sess_18_and_v4_sec_02_a_client_is_known_by_owner_and_user_on_all_listeners() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let first = identity(&world, b"client");
    assert_eq!(first.0, client.id);
    assert_eq!(first.1, 0);
    for (address, transport) in [
        ("198.51.100.7:700", TransportKind::Tcp),
        ("192.0.2.9:1", TransportKind::Rdma),
    ] {
        let peer = Peer::new(address.parse().unwrap(), transport);
        world.bench.call_by(&connection(&world.bench.flow, peer));
        for group in [0, 7] {
            world.bench.user.set(Some((0, group)));
            assert_eq!(identity(&world, b"client"), first);
        }
    }
    // Another user with state in the way is told that the owner is in use.
    world.open(&client, b"file", PLAIN).unwrap();
    world.bench.user.set(Some((5, 0)));
    let other = exchange(b"client", 0, ProtectionOffer::Unprotected);
    let status = world.bench.compound(&[other]).status();
    assert_eq!(status, OperationStatus::ClientIdInUse);
}

#[test]
fn v4_sess_27_and_38_sessions_are_created_alone_or_behind_any_sequence() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    let made = |results: &[OperationResults<'_>]| -> CreateSessionReply {
        match results[..] {
            [OperationResults::CreateSession(Ok(reply))] => reply,
            ref other => panic!("{other:?}"),
        }
    };
    let alone = made(&world.bench.compound(&[create(one.id, 2)]).read().1);
    let own = made(&world.run(&one, &[create(one.id, 3)]).read().1);
    let foreign = made(&world.run(&two, &[create(one.id, 4)]).read().1);
    assert_eq!([alone.sequence, own.sequence, foreign.sequence], [2, 3, 4]);
    for session in [alone.session, own.session, foreign.session] {
        world.bench.session.set(session);
        world.bench.sequence.set(0);
        let opened = Operation::ReclaimComplete(false);
        // It is a session of the first client, which has completed its reclaims.
        let status = world.bench.run(&[opened]).status();
        assert_eq!(status, OperationStatus::CompleteAlready);
    }
}

#[test]
fn v4_sess_37_callbacks_go_to_the_program_that_the_client_names() {
    let world = CallbackWorld::new();
    let security = [callback_user()];
    for (program, owner) in [(0x4000_0000, &b"usual"[..]), (4711, b"other")] {
        let wish = SessionWish {
            program,
            ..SessionWish::linux(&security)
        };
        let client = world.client_with(owner, wish);
        call(
            &world,
            &client,
            &program.to_be_bytes().map(|byte| byte | 0x40),
        );
        let called = client.callback();
        let told = called.read(|header, _, _| (header.program, header.version));
        // The version of the program's description.
        assert_eq!(told, (program, 1));
        called.answer(OK);
    }
}

#[test]
fn v4_sess_37_a_client_with_another_version_of_the_program_is_called_with_that() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    call(&world, &client, b"file");
    let first = client.callback();
    first.reject(millrace_wire::rpc::Accepted::ProgramMismatch { low: 4, high: 4 });
    world.turn();
    let second = client.callback();
    assert_eq!(second.read(|header, _, _| header.version), 4);
    // The first one was not executed.
    assert_eq!(second.slot(), first.slot());
    second.answer(OK);
    assert_eq!(world.path_flags(&client), 0);
    call(&world, &client, b"other");
    let third = client.callback();
    assert_eq!(third.read(|header, _, _| header.version), 4);
    // One that has neither is not called any more.
    third.reject(millrace_wire::rpc::Accepted::ProgramMismatch { low: 2, high: 3 });
    world.turn();
    assert_ne!(world.path_flags(&client), 0);
    assert!(client.callbacks().is_empty());
}

#[test]
fn v4_sess_71_requests_bind_their_connection_to_the_fore_channel_only() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let bound = client.link.replace(world.connect());
    call(&world, &client, b"file");
    assert!(client.callbacks().is_empty());
    let called = bound.callbacks();
    assert_eq!(called.len(), 1);
    called[0].answer(OK);
    bound.connection.end();
    world.turn();
    let down = sequence_flags::CALLBACK_PATH_DOWN | sequence_flags::CALLBACK_PATH_DOWN_SESSION;
    assert_eq!(world.path_flags(&client), down);
}

#[test]
fn v4_sess_72_a_connection_serves_sessions_of_several_clients() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    let second = {
        world.bench.call_by(&one.link.borrow().connection);
        let security = [callback_user()];
        world.create_session((one.id, 2), SessionWish::linux(&security))
    };
    let shared = one.link.borrow().clone();
    *two.link.borrow_mut() = shared;
    let bind = Operation::BindConnToSession(ConnectionBinding {
        session: two.session,
        direction: channel_direction::FORE_OR_BOTH,
        rdma_mode: false,
    });
    assert_eq!(world.bench.compound(&[bind]).status(), OK);
    let destroy = [Operation::DestroySession(second.session)];
    assert_eq!(world.bench.compound(&destroy).status(), OK);
    assert_eq!(world.status(&one, &[]), OK);
    assert_eq!(world.status(&two, &[]), OK);
    call(&world, &two, b"file");
    two.callback().answer(OK);
}

#[test]
fn v4_sess_73_a_session_goes_on_by_a_new_connection() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let file = world.open(&client, b"file", PLAIN).unwrap();
    let sequence = Operation::Sequence(SequenceOperation {
        session: client.session,
        sequence: client.sequence.get() + 1,
        slot: 0,
        highest_slot: 0,
        cache_this: true,
    });
    let made = [
        sequence,
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        support::nfs4::make_directory(b"made"),
    ];
    let first = world.bench.compound(&made);
    assert_eq!(first.status(), OK);
    client.link.replace(world.connect()).connection.end();
    world.turn();
    world.bench.call_by(&client.link.borrow().connection);
    assert_eq!(world.bench.compound(&made).bytes, first.bytes);
    client.sequence.set(client.sequence.get() + 1);
    let read = Operation::Read(ReadOperation {
        state: file.state,
        offset: 0,
        count: 4,
    });
    assert_eq!(world.status(&client, &[put(&file.handle), read]), OK);
}

#[test]
fn v4_sess_76_any_user_binds_creates_and_destroys_sessions_without_protection() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    world.bench.user.set(Some((5, 5)));
    world.bench.call_by(&client.link.borrow().connection);
    let made = world.bench.compound(&[create(client.id, 2)]);
    let [OperationResults::CreateSession(Ok(made))] = made.read().1[..] else {
        panic!("no session")
    };
    let bind = Operation::BindConnToSession(ConnectionBinding {
        session: client.session,
        direction: channel_direction::FORE,
        rdma_mode: false,
    });
    let bind = world.bench.compound(&[bind]).status();
    // It serves the backchannel already, which it would lose.
    assert_eq!(bind, OperationStatus::Invalid);
    for session in [made.session, client.session] {
        let destroy = [Operation::DestroySession(session)];
        assert_eq!(world.bench.compound(&destroy).status(), OK);
    }
}

#[test]
fn v4_sess_77_to_79_gss_sec_08_protection_that_cannot_be_is_refused_and_changes_nothing() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let operations = ProtectedOperations {
        must_enforce: Bitmap::EMPTY,
        must_allow: Bitmap::EMPTY,
    };
    let lists: [&[u8]; 1] = [b"algorithm"];
    let ssv = |hashes, encryptions| {
        ProtectionOffer::Ssv(SsvOffer {
            operations,
            hashes,
            encryptions,
            window: 1,
            handles: 1,
        })
    };
    let (none, some) = (Array::new(&[]), Array::new(&lists));
    let invalid = OperationStatus::Invalid;
    for (protection, expected) in [
        (ProtectionOffer::MachineCredential(operations), invalid),
        (ssv(none, some), invalid),
        (ssv(some, none), invalid),
        (ssv(some, some), OperationStatus::EncryptionNotSupported),
    ] {
        for flags in [0, exchange_flags::UPDATE] {
            for owner in [&b"client"[..], b"new"] {
                let asked = exchange(owner, flags, protection);
                assert_eq!(world.bench.compound(&[asked]).status(), expected);
            }
        }
    }
    assert_eq!(identity(&world, b"client").0, client.id);
    assert_eq!(world.status(&client, &[]), OK);
}

#[test]
fn v4_sess_61_conditions_are_shown_while_they_last() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    assert_eq!(world.flags(&client), 0);
    let file = world.open(&client, b"file", PLAIN).unwrap();
    let link = world.bench.state.link();
    let id = millrace::state::ClientId(client.id);
    let state = millrace::state::Stateid {
        sequence: file.state.sequence,
        other: file.state.other,
    };
    link.ask_here(move |home, _| home.revoke(id, &state))
        .unwrap()
        .unwrap();
    assert_eq!(world.flags(&client), sequence_flags::ADMIN_REVOKED);
    let free = [Operation::FreeStateid(file.state)];
    assert_eq!(world.status(&client, &free), OK);
    assert_eq!(world.flags(&client), 0);
    // The end of the last connection for callbacks, and a new one.
    client.link.replace(world.connect()).connection.end();
    world.turn();
    let down = sequence_flags::CALLBACK_PATH_DOWN | sequence_flags::CALLBACK_PATH_DOWN_SESSION;
    assert_eq!(world.flags(&client), down);
    let bind = Operation::BindConnToSession(ConnectionBinding {
        session: client.session,
        direction: channel_direction::FORE_OR_BOTH,
        rdma_mode: false,
    });
    world.bench.call_by(&client.link.borrow().connection);
    assert_eq!(world.bench.compound(&[bind]).status(), OK);
    assert_eq!(world.flags(&client), 0);
}

#[test]
fn v4_sec_03_guessed_sessions_are_bad() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    // The index and the serial number are known; 64 bits are not.
    let mut guess = client.session;
    for number in 0..10_000_u64 {
        guess[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        world.bench.session.set(guess);
        world.bench.sequence.set(client.sequence.get());
        let status = world
            .bench
            .compound(&[world.bench.next_sequence()])
            .status();
        assert_eq!(status, OperationStatus::BadSession);
    }
    assert_eq!(world.status(&client, &[]), OK);
}

#[test]
fn v4_sec_01_and_05_each_operation_is_judged_for_its_caller() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let private = world.bench.file(b"private", 0o600);
    let open = |access| {
        world
            .open(&client, b"private", access | share::WANT_NONE)
            .map(|file| file.state)
    };
    let state = open(share::BOTH).unwrap();
    let read = |state| {
        let read = Operation::Read(ReadOperation {
            state,
            offset: 0,
            count: 4,
        });
        world.status(&client, &[put(&private), read])
    };
    assert_eq!(read(state), OK);
    // Neither another user nor nobody may use what the first one has opened.
    for user in [Some((77, 77)), None] {
        world.bench.user.set(user);
        assert_eq!(read(state), OperationStatus::AccessDenied);
        assert_eq!(open(share::READ), Err(OperationStatus::AccessDenied));
        assert_eq!(world.status(&client, &[Operation::Putrootfh(())]), OK);
    }
}

#[test]
fn v4_bc_14_sessions_are_set_up_without_a_call_to_the_client() {
    let world = CallbackWorld::new();
    let clients: Vec<CallbackClient> = (0..100_u32)
        .map(|number| world.client(&number.to_be_bytes()))
        .collect();
    // Nor is one probed before it gets its first delegation.
    for client in &clients {
        let name = client.id.to_be_bytes().map(|byte| byte | 0x40);
        let opened = world.open(client, &name, share::READ | share::WANT_READ);
        assert!(opened.unwrap().delegation.is_some());
        assert!(client.callbacks().is_empty());
    }
}
