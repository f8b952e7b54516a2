//! The backchannel of sessions, and CB_NOTIFY_LOCK.

use std::time::Duration;

use millrace::rpc::reverse::ReverseError;
use millrace_wire::nfs4::{
    BackchannelCtlOperation, CallbackOperation, CallbackSecurity, ConnectionBinding, GssHandles,
    GssService, LockOperation, LockType, Locker, LockuOperation, NewLockOwner, Operation,
    OperationResults, OperationStatus, StateId, StateOwner, open_flags, sequence_flags, share,
};
use millrace_wire::rpc::Accepted;
use millrace_wire::xdr::{Array, BoundedBytes};

use crate::support;
use crate::support::callback_client::{
    CALLBACK_USER, CallableConnection, CallbackClient, CallbackWorld, OpenedFile, SessionWish,
    callback_user,
};
use crate::support::nfs4::put;

const BOTH_DOWN: u32 =
    sequence_flags::CALLBACK_PATH_DOWN | sequence_flags::CALLBACK_PATH_DOWN_SESSION;

fn lock(world: &CallbackWorld, client: &CallbackClient, file: &OpenedFile) -> Option<StateId> {
    let lock = Operation::Lock(LockOperation {
        kind: LockType::WriteWait,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker::New(NewLockOwner {
            open_sequence: 0,
            open: file.state,
            lock_sequence: 0,
            owner: StateOwner {
                client: client.id,
                owner: BoundedBytes(b"locker"),
            },
        }),
    });
    match world.run(client, &[put(&file.handle), lock]).read().1[..] {
        [.., OperationResults::Lock(Ok(state))] => Some(state),
        [.., OperationResults::Lock(Err(_))] => None,
        ref other => panic!("{other:?}"),
    }
}

fn unlock(world: &CallbackWorld, client: &CallbackClient, file: &OpenedFile, lock: StateId) {
    let unlock = Operation::Locku(LockuOperation {
        kind: LockType::Write,
        sequence: 0,
        lock,
        offset: 0,
        length: 10,
    });
    let status = world.status(client, &[put(&file.handle), unlock]);
    assert_eq!(status, OperationStatus::Ok);
}

/// A client that waits for a lock, and one that has it and frees it as often as wanted.
struct WaitingWorld {
    world: CallbackWorld,
    waiter: CallbackClient,
    waiting: OpenedFile,
    holder: CallbackClient,
    held: OpenedFile,
}

const PLAIN: u32 = share::BOTH | share::WANT_NONE;

impl WaitingWorld {
    fn new() -> Self {
        let security = [callback_user()];
        Self::with(SessionWish::linux(&security))
    }

    fn with(wish: SessionWish<'_>) -> Self {
        let world = CallbackWorld::new();
        let holder = world.client(b"holder");
        let waiter = world.client_with(b"waiter", wish);
        let held = world.open(&holder, b"file", PLAIN).unwrap();
        let waiting = world.open(&waiter, b"file", PLAIN).unwrap();
        Self {
            world,
            waiter,
            waiting,
            holder,
            held,
        }
    }

    /// Has the waiter denied a lock that is free then.
    fn make_available(&self) {
        let held = lock(&self.world, &self.holder, &self.held).unwrap();
        assert_eq!(lock(&self.world, &self.waiter, &self.waiting), None);
        unlock(&self.world, &self.holder, &self.held, held);
    }

    fn bind(&self, direction: u32) -> Result<u32, OperationStatus> {
        bind(&self.world, &self.waiter, direction)
    }

    /// Gives the waiter another connection, which is not bound.
    fn reconnect(&self) -> CallableConnection {
        let link = self.world.connect();
        self.waiter.link.replace(link)
    }
}

fn bind(
    world: &CallbackWorld,
    client: &CallbackClient,
    direction: u32,
) -> Result<u32, OperationStatus> {
    world.bench.call_by(&client.link.borrow().connection);
    let bind = Operation::BindConnToSession(ConnectionBinding {
        session: client.session,
        direction,
        rdma_mode: false,
    });
    let results = world.bench.compound(&[bind]);
    world.turn();
    match results.read().1[..] {
        [OperationResults::BindConnToSession(outcome)] => outcome.map(|bound| bound.direction),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn v4_sess_29_create_session_binds_its_connection_to_the_backchannel_if_asked() {
    let world = WaitingWorld::new();
    world.make_available();
    assert_eq!(world.waiter.callbacks().len(), 1);
    let world = &world.world;
    let security = [callback_user()];
    for (owner, flags) in [(&b"asks"[..], 2), (b"does not", 0)] {
        let link = world.connect();
        world.bench.call_by(&link.connection);
        let wish = SessionWish {
            flags,
            ..SessionWish::linux(&security)
        };
        let made = world.create_session(world.exchange(owner), wish);
        assert_eq!(made.flags, flags);
    }
}

#[test]
fn v4_sess_36_auth_sys_is_preferred_to_auth_none_and_nothing_is_no_backchannel() {
    let lists = [
        (
            vec![CallbackSecurity::None, callback_user()],
            Some(Some(CALLBACK_USER)),
        ),
        (vec![CallbackSecurity::None], Some(None)),
        (vec![], None),
    ];
    for (security, user) in lists {
        let world = WaitingWorld::with(SessionWish::linux(&security));
        world.make_available();
        let calls = world.waiter.callbacks();
        let users: Vec<_> = calls
            .iter()
            .map(support::callback_client::ReceivedCallback::user)
            .collect();
        assert_eq!(users, Vec::from_iter(user), "{security:?}");
        let flag = world.waiting.flags & open_flags::MAY_NOTIFY_LOCK;
        assert_eq!(flag != 0, user.is_some());
    }
}

#[test]
fn v4_bc_06_07_12_and_13_a_callback_has_session_slot_credential_and_minor_version() {
    for minor_version in [1, 2] {
        let world = WaitingWorld::new();
        let world = {
            world.world.bench.minor_version.set(minor_version);
            let security = [callback_user()];
            let wish = SessionWish::linux(&security);
            let waiter = world.world.client_with(b"other waiter", wish);
            let waiting = world.world.open(&waiter, b"file", PLAIN).unwrap();
            WaitingWorld {
                waiter,
                waiting,
                ..world
            }
        };
        for sequence in 1..=3 {
            world.make_available();
            let call = world.waiter.callback();
            call.read(|header, compound, operations| {
                assert_eq!((header.program, header.version), (0x4000_0000, 1));
                assert_eq!(header.procedure, 1);
                assert_eq!(compound.minor_version, minor_version);
                assert_eq!((compound.tag.0, compound.identifier), (&b""[..], 0));
                assert_eq!(operations.len(), 2);
            });
            assert_eq!(call.user(), Some(CALLBACK_USER));
            assert_eq!(call.slot(), (0, sequence));
            call.sequence(|one| {
                assert_eq!(one.session, world.waiter.session);
                assert!(!one.cache_this);
                assert_eq!(one.highest_slot, 0);
            });
            call.answer(OperationStatus::Ok);
            world.world.turn();
        }
    }
}

#[test]
fn v4_lock_11_the_waiter_is_told_with_handle_and_owner_that_a_lock_is_free() {
    let world = WaitingWorld::new();
    assert_ne!(world.waiting.flags & open_flags::MAY_NOTIFY_LOCK, 0);
    world.make_available();
    assert!(world.holder.callbacks().is_empty());
    world
        .waiter
        .callback()
        .operation(|operation| match operation {
            CallbackOperation::NotifyLock(notice) => {
                assert_eq!(notice.handle.0, world.waiting.handle);
                assert_eq!(notice.owner.owner.0, b"locker");
                assert_eq!(notice.owner.client, world.waiter.id);
            }
            other => panic!("{other:?}"),
        });
    // The lock is not held for the waiter.
    assert!(lock(&world.world, &world.holder, &world.held).is_some());
}

#[test]
fn v4_bc_06_and_11_callbacks_at_the_same_time_use_several_slots() {
    let world = WaitingWorld::new();
    world.make_available();
    let first = world.waiter.callback();
    world.make_available();
    let second = world.waiter.callback();
    assert_eq!((first.slot(), second.slot()), ((0, 1), (1, 1)));
    assert_eq!(second.sequence(|one| one.highest_slot), 1);
    // The client wants one slot only.
    second.answer_with(OperationStatus::Ok, 0);
    world.world.turn();
    world.make_available();
    assert!(world.waiter.callbacks().is_empty());
    first.answer_with(OperationStatus::Ok, 0);
    world.world.turn();
    assert_eq!(world.waiter.callback().slot(), (0, 2));
}

#[test]
fn v4_bc_08_a_client_that_is_not_ready_is_called_again_with_the_same_sequence_number() {
    let world = WaitingWorld::new();
    world.make_available();
    world.waiter.callback().refuse(OperationStatus::Delay);
    world.world.turn();
    assert!(world.waiter.callbacks().is_empty());
    world.world.pass(Duration::from_millis(101));
    let again = world.waiter.callback();
    assert_eq!(again.slot(), (0, 1));
    // The pause grows.
    again.refuse(OperationStatus::Delay);
    world.world.turn();
    world.world.pass(Duration::from_millis(101));
    assert!(world.waiter.callbacks().is_empty());
    world.world.pass(Duration::from_millis(101));
    assert_eq!(world.waiter.callback().slot(), (0, 1));
}

#[test]
fn v4_bc_08_slots_that_the_client_disagrees_about_are_set_aside() {
    let security = [callback_user()];
    let wish = SessionWish {
        slots: 3,
        ..SessionWish::linux(&security)
    };
    let world = WaitingWorld::with(wish);
    world.make_available();
    let statuses = [
        OperationStatus::BadSlot,
        OperationStatus::SequenceMisordered,
        OperationStatus::SequenceFalseRetry,
    ];
    for (slot, status) in statuses.into_iter().enumerate() {
        assert_eq!(world.world.path_flags(&world.waiter), 0);
        let call = world.waiter.callback();
        assert_eq!(call.slot(), (slot as u32, 1));
        call.refuse(status);
        world.world.turn();
    }
    assert!(world.waiter.callbacks().is_empty());
    let flags = world.world.path_flags(&world.waiter);
    assert_eq!(flags, sequence_flags::BACKCHANNEL_FAULT);
}

#[test]
fn v4_bc_08_a_client_that_does_not_know_the_session_has_its_path_down() {
    let world = WaitingWorld::new();
    world.make_available();
    assert_eq!(world.world.path_flags(&world.waiter), 0);
    world.waiter.callback().refuse(OperationStatus::BadSession);
    world.world.turn();
    assert_eq!(world.world.path_flags(&world.waiter), BOTH_DOWN);
    assert_eq!(world.world.path_flags(&world.holder), 0);
    assert_eq!(world.bind(3), Ok(3));
    assert_eq!(world.world.path_flags(&world.waiter), 0);
    let again = world.waiter.callback();
    assert_eq!(again.slot(), (0, 1));
    again.reject(Accepted::ProgramUnavailable);
    world.world.turn();
    assert_eq!(world.world.path_flags(&world.waiter), BOTH_DOWN);
}

#[test]
fn v4_bc_09_a_callback_that_was_executed_before_counts_as_taken() {
    let world = WaitingWorld::new();
    world.make_available();
    let call = world.waiter.callback();
    call.answer(OperationStatus::RetryUncached);
    world.world.pass(Duration::from_secs(5));
    assert!(world.waiter.callbacks().is_empty());
    world.make_available();
    assert_eq!(world.waiter.callback().slot(), (0, 2));
}

#[test]
fn v4_bc_10_and_v4_sess_74_a_lost_callback_is_repeated_by_another_connection() {
    let world = WaitingWorld::new();
    world.make_available();
    let call = world.waiter.callback();
    let old = world.reconnect();
    old.connection.end();
    call.fail(ReverseError::ConnectionLost { xid: 99 });
    world.world.turn();
    assert_eq!(world.world.path_flags(&world.waiter), BOTH_DOWN);
    assert!(world.waiter.callbacks().is_empty());
    // SEQUENCE binds to the fore channel only (V4-SESS-71).
    world.world.pass(Duration::from_secs(30));
    assert!(world.waiter.callbacks().is_empty());
    assert_eq!(world.bind(3), Ok(3));
    let again = world.waiter.callback();
    assert_eq!((again.slot(), again.repeats), ((0, 1), Some(99)));
    assert_eq!(again.message, call.message);
    assert_eq!(world.world.path_flags(&world.waiter), 0);
}

#[test]
fn v4_sess_74_the_end_of_the_last_bound_connection_is_shown_at_once() {
    let world = WaitingWorld::new();
    let old = world.reconnect();
    old.connection.end();
    world.world.turn();
    assert_eq!(world.world.path_flags(&world.waiter), BOTH_DOWN);
    assert_eq!(world.world.path_flags(&world.holder), 0);
    let file = world.world.open(&world.waiter, b"file", PLAIN).unwrap();
    assert_eq!(file.flags & open_flags::MAY_NOTIFY_LOCK, 0);
}

#[test]
fn v4_bc_16_a_silent_client_has_its_path_down() {
    let world = WaitingWorld::new();
    world.make_available();
    let call = world.waiter.callback();
    call.fail(ReverseError::TimedOut { xid: 3 });
    world.world.turn();
    assert_eq!(world.world.path_flags(&world.waiter), BOTH_DOWN);
    assert_eq!(world.bind(7), Ok(3));
    assert_eq!(world.world.path_flags(&world.waiter), 0);
    let again = world.waiter.callback();
    assert_eq!((again.slot(), again.repeats), ((0, 1), None));
}

#[test]
fn v4_bc_16_another_session_of_the_client_is_tried() {
    let world = WaitingWorld::new();
    let link = world.world.connect();
    world.world.bench.call_by(&link.connection);
    let security = [callback_user()];
    let id = (world.waiter.id, 2);
    let other = world
        .world
        .create_session(id, SessionWish::linux(&security));
    world.make_available();
    let call = world.waiter.callback();
    assert_eq!(call.sequence(|one| one.session), world.waiter.session);
    call.fail(ReverseError::TimedOut { xid: 3 });
    world.world.turn();
    let again = &link.callbacks()[..];
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].sequence(|one| one.session), other.session);
    assert_eq!(again[0].slot(), (0, 1));
    // The client has a path, the session has none.
    let down = sequence_flags::CALLBACK_PATH_DOWN_SESSION;
    assert_eq!(world.world.path_flags(&world.waiter), down);
}

#[test]
fn v4_bc_18_the_connection_bound_last_is_used_first() {
    let world = WaitingWorld::new();
    let old = world.reconnect();
    assert_eq!(world.bind(7), Ok(3));
    world.make_available();
    assert!(old.callbacks().is_empty());
    world.waiter.callback().answer(OperationStatus::Ok);
    world.waiter.link.borrow().connection.end();
    world.world.turn();
    world.make_available();
    assert_eq!(old.callbacks().len(), 1);
}

#[test]
fn v4_sess_68_to_70_bind_conn_to_session_answers_what_it_has_bound() {
    let world = WaitingWorld::new();
    let invalid = Err(OperationStatus::Invalid);
    let answers = [
        (0, invalid),
        (1, Ok(1)),
        (2, Ok(2)),
        (3, Ok(3)),
        (4, invalid),
        (5, invalid),
        (6, invalid),
        (7, Ok(3)),
        (8, invalid),
    ];
    for (direction, answer) in answers {
        world.reconnect();
        assert_eq!(world.bind(direction), answer, "{direction}");
        // The same once more.
        assert_eq!(world.bind(direction), answer, "{direction}");
    }
    // A channel is not taken away.
    world.reconnect();
    assert_eq!(world.bind(3), Ok(3));
    assert_eq!((world.bind(1), world.bind(2)), (invalid, invalid));
    // A channel is added.
    world.reconnect();
    assert_eq!((world.bind(1), world.bind(3)), (Ok(1), Ok(3)));
    let unknown = CallbackClient {
        session: [3; 16],
        link: world.waiter.link.clone(),
        ..world.world.client(b"other")
    };
    let bound = bind(&world.world, &unknown, 3);
    assert_eq!(bound, Err(OperationStatus::BadSession));
}

#[test]
fn v4_sess_68_a_session_without_backchannel_binds_to_the_fore_channel() {
    let world = WaitingWorld::with(SessionWish::linux(&[]));
    let invalid = Err(OperationStatus::Invalid);
    assert_eq!((world.bind(3), world.bind(1)), (Ok(1), Ok(1)));
    world.reconnect();
    assert_eq!((world.bind(2), world.bind(7)), (invalid, invalid));
    assert_eq!(world.world.path_flags(&world.waiter), 0);
}

#[test]
fn v4_sess_75_backchannel_ctl_changes_program_and_credential() {
    let world = WaitingWorld::new();
    let control = |security: &[CallbackSecurity<'_>]| {
        let operation = Operation::BackchannelCtl(BackchannelCtlOperation {
            callback_program: 0x4000_0001,
            security: Array::new(security),
        });
        world.world.status(&world.waiter, &[operation])
    };
    let gss = CallbackSecurity::Gss(GssHandles {
        service: GssService::Privacy,
        server: b"one",
        client: b"two",
    });
    assert_eq!(control(&[gss]), OperationStatus::NoEntry);
    world.make_available();
    let call = world.waiter.callback();
    assert_eq!(call.read(|header, _, _| header.program), 0x4000_0000);
    assert_eq!(control(&[CallbackSecurity::None]), OperationStatus::Ok);
    world.make_available();
    let call = world.waiter.callback();
    assert_eq!(call.read(|header, _, _| header.program), 0x4000_0001);
    assert_eq!(call.user(), None);
}

#[test]
fn v4_bc_17_a_client_that_answers_nothing_costs_a_bounded_queue() {
    let security = [callback_user()];
    let wish = SessionWish {
        slots: 2,
        ..SessionWish::linux(&security)
    };
    let world = WaitingWorld::with(wish);
    for _ in 0..50 {
        world.make_available();
    }
    let sent = world.waiter.callbacks();
    assert_eq!(sent.len(), 2);
    // Those that have no slot are given up.
    world.world.pass(Duration::from_secs(11));
    for call in sent {
        call.answer(OperationStatus::Ok);
    }
    world.world.turn();
    assert!(world.waiter.callbacks().is_empty());
}

#[test]
fn v4_bc_04_a_callback_that_is_too_long_for_the_client_is_not_sent() {
    let security = [callback_user()];
    let world = WaitingWorld::with(SessionWish {
        size: 512,
        ..SessionWish::linux(&security)
    });
    let wait = |owner: &[u8]| {
        let held = lock(&world.world, &world.holder, &world.held).unwrap();
        let lock = Operation::Lock(LockOperation {
            kind: LockType::WriteWait,
            reclaim: false,
            offset: 0,
            length: 10,
            locker: Locker::New(NewLockOwner {
                open_sequence: 0,
                open: world.waiting.state,
                lock_sequence: 0,
                owner: StateOwner {
                    client: world.waiter.id,
                    owner: BoundedBytes(owner),
                },
            }),
        });
        let denied = world
            .world
            .status(&world.waiter, &[put(&world.waiting.handle), lock]);
        assert_eq!(denied, OperationStatus::Denied);
        unlock(&world.world, &world.holder, &world.held, held);
    };
    wait(&[b'x'; 600]);
    assert!(world.waiter.callbacks().is_empty());
    assert_eq!(world.world.path_flags(&world.waiter), 0);
    // Its slot is free for the next one.
    wait(b"short");
    let call = world.waiter.callback();
    assert_eq!(call.slot(), (0, 1));
    assert!(call.message.len() <= 512);
    call.answer(OperationStatus::Ok);
}
