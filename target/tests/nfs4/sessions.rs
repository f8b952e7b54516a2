//! COMPOUNDs over the state of clients as the service keeps it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace::call::BulkArgument;
use millrace::nfs4::{ClientState, ServerIdentity};
use millrace::state::{HomeLink, HomeOutbox, StateConfig, StateHome};
use millrace_reactor::Clock;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    AttributeNumber as Number, Attributes, Bitmap, ChannelAttributes, ClientOwner, CloseOperation,
    CreateMode, CreateSessionOperation, CreateSessionReply, ExchangeIdOperation, ExchangeIdReply,
    HasStatus, LockOperation, LockType, Locker, LocktOperation, LockuOperation, NewLockOwner,
    OpenClaim, OpenOperation, Operation, OperationResults, OperationStatus, ProtectionOffer,
    ReadOperation, SequenceOperation, StateId, StateOwner, WriteOperation, exchange_flags, share,
};
use millrace_wire::xdr::{Array, BoundedBytes, Bulk};

use crate::support::nfs4::{Bench4, make_directory, put};
use crate::support::{Chunks, rules};

type SessionBench = Bench4<ClientState>;

/// A server without clients, and the clock of its reactor.
fn server() -> (SessionBench, Clock) {
    let (bench, clock, _) = servers(1);
    (bench, clock)
}

/// The same, and a second reactor, whose questions to the first one are not sent.
fn servers(reactors: usize) -> (SessionBench, Clock, (SessionBench, HomeOutbox)) {
    let epoch = Instant::now();
    let clock = Clock::new(epoch);
    let home = StateHome::new(StateConfig {
        start: [7; 16],
        reactors,
        ..StateConfig::default()
    });
    let views = home.views();
    let serve = |link| {
        let identity = ServerIdentity::alone([9; 16]);
        let lease = Duration::from_secs(90);
        let state = ClientState::new(link, views.clone(), identity, lease, vec![1, 2]);
        Bench4::over([rules("/export")], Rc::new(state))
    };
    let times = || (epoch, clock.clone());
    let outbox = HomeOutbox::default();
    let other = serve(HomeLink::elsewhere(Rc::clone(&outbox), 1, times()));
    let home = Rc::new(RefCell::new(home));
    let bench = serve(HomeLink::here(home, 0, times()));
    (bench, clock, (other, outbox))
}

fn exchange<'a>(owner: &'a [u8], flags: u32) -> Operation<'a> {
    Operation::ExchangeId(ExchangeIdOperation {
        owner: ClientOwner {
            verifier: [1; 8],
            owner: BoundedBytes(owner),
        },
        flags,
        protection: ProtectionOffer::Unprotected,
        implementation: None,
    })
}

/// Runs EXCHANGE_ID and shows its reply.
fn exchanged<T>(
    bench: &SessionBench,
    owner: &[u8],
    flags: u32,
    show: impl FnOnce(Result<ExchangeIdReply<'_>, OperationStatus>) -> T,
) -> T {
    let results = bench.compound(&[exchange(owner, flags)]);
    match results.read().1[..] {
        [OperationResults::ExchangeId(reply)] => show(reply),
        ref other => panic!("{other:?}"),
    }
}

fn limits(requests: u32) -> ChannelAttributes {
    ChannelAttributes {
        header_padding: 16,
        request_size: 1_049_620,
        response_size: 1_049_480,
        cached_size: 7584,
        operations: 8,
        requests,
        rdma_ird: None,
    }
}

fn create_session(
    bench: &SessionBench,
    client: u64,
    sequence: u32,
) -> Result<CreateSessionReply, OperationStatus> {
    let operation = Operation::CreateSession(CreateSessionOperation {
        client,
        sequence,
        flags: 3,
        fore: limits(64),
        back: limits(16),
        callback_program: 0x4000_0000,
        security: Array::new(&[]),
    });
    match bench.compound(&[operation]).read().1[..] {
        [OperationResults::CreateSession(reply)] => reply,
        ref other => panic!("{other:?}"),
    }
}

/// A server whose client has a session and reclaims nothing.
fn mounted() -> (SessionBench, Clock) {
    let (bench, clock) = server();
    join(&bench, b"client");
    (bench, clock)
}

/// Has a client make a session, by which the calls that follow go.
fn join(bench: &SessionBench, owner: &[u8]) -> u64 {
    let (client, sequence) = exchanged(bench, owner, 0, |reply| {
        let reply = reply.unwrap();
        (reply.client, reply.sequence)
    });
    let session = create_session(bench, client, sequence).unwrap().session;
    bench.session.set(session);
    bench.sequence.set(0);
    let statuses = bench.statuses(&[Operation::ReclaimComplete(false)]);
    assert_eq!(statuses, [OperationStatus::Ok]);
    client
}

#[test]
fn v4_sess_11_undefined_flags_are_invalid() {
    // Bits of RFC 8881 section 18.35.1 that arguments may have.
    const DEFINED: u32 = 0x4007_0103;
    let (bench, _) = server();
    for bit in 0..32 {
        let flag = 1_u32 << bit;
        let status = exchanged(&bench, b"client", flag, |reply| reply.map(drop).err());
        let expected = match flag {
            // An update of what there is not.
            exchange_flags::UPDATE => Some(OperationStatus::NoEntry),
            _ if DEFINED & flag == 0 => Some(OperationStatus::Invalid),
            _ => None,
        };
        assert_eq!(status, expected, "bit {bit}");
    }
}

#[test]
fn v4_sess_12_and_13_the_server_has_no_role_in_pnfs_and_grants_no_other_flag() {
    let (bench, _) = server();
    let asked = exchange_flags::ARGUMENTS & !exchange_flags::UPDATE;
    exchanged(&bench, b"client", asked, |reply| {
        let reply = reply.unwrap();
        assert_eq!(reply.flags, exchange_flags::NON_PNFS);
        assert_eq!(reply.owner.major.0, [9; 16]);
        assert_eq!(reply.scope.0, [9; 16]);
    });
}

#[test]
fn v4_sess_22_a_repeated_create_session_gets_the_same_session() {
    let (bench, _) = server();
    let (client, sequence) = exchanged(&bench, b"client", 0, |reply| {
        reply.map(|reply| (reply.client, reply.sequence)).unwrap()
    });
    let misordered = Err(OperationStatus::SequenceMisordered);
    assert_eq!(create_session(&bench, client, sequence + 1), misordered);
    let made = create_session(&bench, client, sequence).unwrap();
    assert_eq!(create_session(&bench, client, sequence), Ok(made));
    let other = create_session(&bench, client, sequence + 1).unwrap();
    assert_ne!(other.session, made.session);
    let unknown = create_session(&bench, client ^ 1, 1);
    assert_eq!(unknown, Err(OperationStatus::StaleClientId));
}

#[test]
fn v4_sess_28_and_31_a_session_has_what_linux_asks_for_and_no_more() {
    let (bench, _) = server();
    let (client, sequence) = exchanged(&bench, b"client", 0, |reply| {
        reply.map(|reply| (reply.client, reply.sequence)).unwrap()
    });
    let made = create_session(&bench, client, sequence).unwrap();
    assert_eq!((made.flags, made.sequence), (0, sequence));
    let mut fore = limits(64);
    fore.header_padding = 0;
    assert_eq!(made.fore, fore);
}

#[test]
fn v4_sess_40_to_43_a_slot_takes_its_sequence_numbers_in_order() {
    let (bench, _) = mounted();
    let statuses = |bench: &SessionBench| bench.compound(&[bench.this_sequence()]).status();
    bench.sequence.set(5);
    assert_eq!(statuses(&bench), OperationStatus::SequenceMisordered);
    bench.sequence.set(2);
    assert_eq!(statuses(&bench), OperationStatus::Ok);
    let known = bench.session.replace([1; 16]);
    assert_eq!(statuses(&bench), OperationStatus::BadSession);
    bench.session.set(known);
    let Operation::Sequence(mut sequence) = bench.this_sequence() else {
        unreachable!("it is a SEQUENCE")
    };
    sequence.slot = 64;
    let results = bench.compound(&[Operation::Sequence(sequence)]);
    assert_eq!(results.status(), OperationStatus::BadSlot);
}

#[test]
fn v4_sess_45_a_retry_gets_the_cached_reply_and_nothing_is_executed_again() {
    let (bench, _) = mounted();
    let operations = |bench: &SessionBench| {
        [
            bench.this_sequence(),
            Operation::Putrootfh(()),
            Operation::Lookup(b"export"),
            make_directory(b"once"),
        ]
    };
    bench.cache_this.set(true);
    bench.next_sequence();
    let first = bench.compound(&operations(&bench));
    assert_eq!(first.status(), OperationStatus::Ok);
    let again = bench.compound(&operations(&bench));
    assert_eq!(again.bytes, first.bytes);
    bench.next_sequence();
    let other = bench.compound(&operations(&bench));
    assert_eq!(other.status(), OperationStatus::Exists);
}

#[test]
fn v4_sess_46_a_reply_that_was_not_cached_is_not_repeated() {
    let (bench, _) = mounted();
    let operations = |bench: &SessionBench| [bench.this_sequence(), Operation::Putrootfh(())];
    bench.next_sequence();
    assert_eq!(
        bench.compound(&operations(&bench)).status(),
        OperationStatus::Ok
    );
    let again = bench.compound(&operations(&bench));
    assert_eq!(again.status(), OperationStatus::RetryUncached);
    // One that has only SEQUENCE is repeated in any case.
    bench.next_sequence();
    let lone = bench.compound(&[bench.this_sequence()]);
    assert_eq!(bench.compound(&[bench.this_sequence()]).bytes, lone.bytes);
}

#[test]
fn v4_sess_48_small_replies_to_changes_are_cached_unasked() {
    let (bench, _) = mounted();
    let operations = |bench: &SessionBench| {
        [
            bench.this_sequence(),
            Operation::Putrootfh(()),
            Operation::Lookup(b"export"),
            make_directory(b"once"),
        ]
    };
    bench.next_sequence();
    let first = bench.compound(&operations(&bench));
    assert_eq!(first.status(), OperationStatus::Ok);
    assert_eq!(bench.compound(&operations(&bench)).bytes, first.bytes);
}

#[test]
fn v4_sess_49_and_50_a_retry_that_differs_is_a_false_one() {
    let (bench, _) = mounted();
    bench.next_sequence();
    let first = bench.compound(&[bench.this_sequence(), Operation::Putrootfh(())]);
    assert_eq!(first.status(), OperationStatus::Ok);
    let other = bench.compound(&[bench.this_sequence(), Operation::Getfh(())]);
    assert_eq!(other.status(), OperationStatus::SequenceFalseRetry);
    bench.user.set(Some((77, 77)));
    let other = bench.compound(&[bench.this_sequence(), Operation::Putrootfh(())]);
    assert_eq!(other.status(), OperationStatus::SequenceFalseRetry);
}

#[test]
fn v4_sess_45_a_retry_may_have_other_hints() {
    let (bench, _) = mounted();
    let folder = bench.walk("/export");
    let sequence = |highest_slot| {
        Operation::Sequence(SequenceOperation {
            session: bench.session.get(),
            sequence: bench.sequence.get(),
            slot: 0,
            highest_slot,
            cache_this: true,
        })
    };
    // What is executed at once, and what is not.
    let calls: [&[Operation<'_>]; 2] = [
        &[put(&folder), make_directory(b"directory")],
        &[
            put(&folder),
            Operation::Getattr(Bitmap::of(&[Number::Type])),
        ],
    ];
    for operations in calls {
        bench.next_sequence();
        let [first, retry] = [0, 3].map(|highest_slot| {
            let all = [&[sequence(highest_slot)], operations].concat();
            bench.compound(&all)
        });
        assert_eq!(first.status(), OperationStatus::Ok);
        assert_eq!(retry.bytes, first.bytes, "the cached reply");
    }
}

#[test]
fn v4_sess_50_a_read_of_another_range_is_no_retry() {
    let (bench, _) = mounted();
    let file = bench.file(b"file", 0o666);
    bench.next_sequence();
    let call = |offset, count| {
        let read = Operation::Read(ReadOperation {
            state: StateId::ANONYMOUS,
            offset,
            count,
        });
        bench.compound(&[bench.this_sequence(), put(&file), read])
    };
    assert_eq!(call(0, 10).status(), OperationStatus::Ok);
    for (offset, count) in [(1, 10), (0, 11)] {
        let other = call(offset, count).status();
        assert_eq!(other, OperationStatus::SequenceFalseRetry);
    }
}

#[test]
fn v4_sess_50_a_write_may_be_repeated_in_another_form() {
    let (bench, _) = mounted();
    let file = bench.file(b"file", 0o666);
    bench.cache_this.set(true);
    bench.next_sequence();
    // Not of whole words: a chunk has no pad.
    let data = b"data of a WRITE";
    let write = |data| {
        Operation::Write(WriteOperation {
            state: StateId::ANONYMOUS,
            offset: 0,
            stable: Stability::FileSync,
            data,
        })
    };
    let call = |data| bench.compound_message(&[bench.this_sequence(), put(&file), write(data)]);
    let first = bench.results(&call(Bulk::inline(data)));
    assert_eq!(first.status(), OperationStatus::Ok);
    let message = call(Bulk::apart(data.len() as u32));
    let bulk = [BulkArgument {
        position: message.len() as u32,
        length: data.len() as u32,
    }];
    let mut chunks = Chunks {
        chunks: vec![data],
        ..Chunks::default()
    };
    let retry = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!((retry.bytes, chunks.pulls), (first.bytes, 0));
}

#[test]
fn v4_sess_63_and_66_sessions_and_clients_are_destroyed_in_order() {
    let (bench, _) = server();
    let client = join(&bench, b"client");
    let session = bench.session.get();
    let destroy_client = [Operation::DestroyClientid(client)];
    let destroy_session = Operation::DestroySession(session);
    let status = |operations: &[Operation<'_>]| bench.compound(operations).status();
    assert_eq!(status(&destroy_client), OperationStatus::ClientIdBusy);
    let early = bench.statuses(&[destroy_session, Operation::Putrootfh(())]);
    assert_eq!(early, [OperationStatus::NotOnlyOperation]);
    assert_eq!(status(&[destroy_session]), OperationStatus::Ok);
    assert_eq!(status(&[destroy_session]), OperationStatus::BadSession);
    assert_eq!(status(&destroy_client), OperationStatus::Ok);
    assert_eq!(status(&destroy_client), OperationStatus::StaleClientId);
}

fn open(client: u64, access: u32, deny: u32) -> Operation<'static> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access,
        deny,
        owner: StateOwner {
            client,
            owner: BoundedBytes(b"owner"),
        },
        create: Some(CreateMode::Unchecked(Attributes::NONE)),
        claim: OpenClaim::Name(b"file"),
    })
}

/// Opens the file of the export, and returns its handle and the stateid.
fn opened(
    bench: &SessionBench,
    access: u32,
    deny: u32,
) -> Result<(Vec<u8>, StateId), OperationStatus> {
    let operations = [
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        open(0, access, deny),
        Operation::Getfh(()),
    ];
    let results = bench.run(&operations);
    let (header, all) = results.read();
    match all[..] {
        [
            ..,
            OperationResults::Open(Ok(reply)),
            OperationResults::Getfh(Ok(handle)),
        ] => Ok((handle.0.to_vec(), reply.open)),
        _ => Err(header.status),
    }
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

#[test]
fn v4_open_15_opens_of_two_clients_deny_each_other() {
    let (bench, _) = mounted();
    let (file, first) = opened(&bench, share::BOTH, share::WRITE).unwrap();
    assert_eq!(
        bench.statuses(&[put(&file), write(first)])[1],
        OperationStatus::Ok
    );
    let (session, sequence) = (bench.session.get(), bench.sequence.get());
    join(&bench, b"other");
    assert_eq!(
        opened(&bench, share::WRITE, 0),
        Err(OperationStatus::ShareDenied)
    );
    let (_, reading) = opened(&bench, share::READ, 0).unwrap();
    assert_eq!(
        bench.statuses(&[put(&file), read(reading)])[1],
        OperationStatus::Ok
    );
    // Neither the stateid of another client nor none at all opens the way to write.
    for (state, status) in [
        (first, OperationStatus::BadStateId),
        (reading, OperationStatus::OpenMode),
        (StateId::ANONYMOUS, OperationStatus::Locked),
    ] {
        assert_eq!(bench.statuses(&[put(&file), write(state)])[1], status);
    }
    let other = (
        bench.session.replace(session),
        bench.sequence.replace(sequence),
    );
    let close = Operation::Close(CloseOperation {
        sequence: 0,
        open: first,
    });
    assert_eq!(bench.statuses(&[put(&file), close])[1], OperationStatus::Ok);
    assert_eq!(
        bench.statuses(&[put(&file), write(first)])[1],
        OperationStatus::BadStateId
    );
    bench.session.set(other.0);
    bench.sequence.set(other.1);
    assert!(opened(&bench, share::WRITE, 0).is_ok());
}

#[test]
fn v4_lock_01_and_05_a_lock_of_one_client_denies_another_until_it_is_freed() {
    let (bench, _) = mounted();
    let (file, state) = opened(&bench, share::BOTH, 0).unwrap();
    let lock = |open| {
        Operation::Lock(LockOperation {
            kind: LockType::Write,
            reclaim: false,
            offset: 10,
            length: 20,
            locker: Locker::New(NewLockOwner {
                open_sequence: 0,
                open,
                lock_sequence: 0,
                owner: StateOwner {
                    client: 0,
                    owner: BoundedBytes(b"locker"),
                },
            }),
        })
    };
    let results = bench.run(&[put(&file), lock(state)]);
    let OperationResults::Lock(Ok(held)) = results.last() else {
        panic!("not locked")
    };
    assert_eq!(held.sequence, 1);
    let first = (bench.session.get(), bench.sequence.get());
    join(&bench, b"other");
    let (_, other_state) = opened(&bench, share::BOTH, 0).unwrap();
    let denied = bench.statuses(&[put(&file), lock(other_state)]);
    assert_eq!(denied[1], OperationStatus::Denied);
    let test = Operation::Lockt(LocktOperation {
        kind: LockType::Read,
        offset: 29,
        length: 1,
        owner: StateOwner {
            client: 0,
            owner: BoundedBytes(b"locker"),
        },
    });
    assert_eq!(
        bench.statuses(&[put(&file), test])[1],
        OperationStatus::Denied
    );
    let other = (
        bench.session.replace(first.0),
        bench.sequence.replace(first.1),
    );
    let unlock = Operation::Locku(LockuOperation {
        kind: LockType::Write,
        sequence: 0,
        lock: held,
        offset: 0,
        length: u64::MAX,
    });
    assert_eq!(
        bench.statuses(&[put(&file), unlock])[1],
        OperationStatus::Ok
    );
    bench.session.set(other.0);
    bench.sequence.set(other.1);
    assert_eq!(
        bench.statuses(&[put(&file), lock(other_state)])[1],
        OperationStatus::Ok
    );
}

#[test]
fn v4_lease_05_and_06_a_client_that_was_silent_gives_way_to_another() {
    let (bench, clock) = mounted();
    let start = clock.now();
    assert!(opened(&bench, share::BOTH, share::BOTH).is_ok());
    let first = (bench.session.get(), bench.sequence.get());
    clock.turn(start + Duration::from_secs(60));
    join(&bench, b"other");
    assert_eq!(
        opened(&bench, share::READ, 0),
        Err(OperationStatus::ShareDenied)
    );
    clock.turn(start + Duration::from_secs(95));
    assert!(opened(&bench, share::READ, 0).is_ok());
    bench.session.set(first.0);
    bench.sequence.set(first.1);
    let results = bench.compound(&[bench.next_sequence()]);
    assert_eq!(results.status(), OperationStatus::Ok);
    let (_, all) = results.read();
    assert!(all.is_empty(), "{:?}", all.first().map(HasStatus::status));
}

#[test]
fn v4_lease_01_and_02_a_retry_renews_the_lease_and_a_failed_sequence_does_not() {
    let share_denied = Some(OperationStatus::ShareDenied);
    for (ahead, status, conflict) in [
        (0, OperationStatus::Ok, share_denied),
        (5, OperationStatus::SequenceMisordered, None),
    ] {
        let (bench, clock) = mounted();
        let start = clock.now();
        assert!(opened(&bench, share::BOTH, share::BOTH).is_ok());
        bench.compound(&[bench.next_sequence()]);
        clock.turn(start + Duration::from_secs(60));
        bench.sequence.set(bench.sequence.get() + ahead);
        assert_eq!(bench.compound(&[bench.this_sequence()]).status(), status);
        clock.turn(start + Duration::from_secs(100));
        join(&bench, b"other");
        assert_eq!(opened(&bench, share::READ, 0).err(), conflict);
    }
}

#[test]
fn v4_perf_01_reads_and_writes_on_another_reactor_send_no_message() {
    let (bench, _, (other, outbox)) = servers(2);
    join(&bench, b"client");
    let (handle, state) = opened(&bench, share::BOTH, 0).unwrap();
    // A store with the same file.
    assert_eq!(other.file(b"file", 0o644), handle);
    other.session.set(bench.session.get());
    other.sequence.set(bench.sequence.get());
    for latest in [
        state,
        StateId {
            sequence: 0,
            ..state
        },
    ] {
        let statuses = other.statuses(&[put(&handle), write(latest), read(latest)]);
        assert_eq!(statuses, [OperationStatus::Ok; 3]);
    }
    assert!(outbox.borrow().is_empty());
}

#[test]
fn v4_sess_62_a_session_is_destroyed_by_a_connection_that_is_bound_to_it() {
    let (bench, _) = server();
    join(&bench, b"client");
    let session = bench.session.get();
    let destroy = [Operation::DestroySession(session)];
    bench.call_from("192.0.2.1");
    let status = bench.compound(&destroy).status();
    assert_eq!(status, OperationStatus::ConnectionNotBound);
    assert_eq!(
        bench
            .compound(&[Operation::DestroySession([1; 16])])
            .status(),
        OperationStatus::BadSession
    );
    // A request of the session binds it.
    assert_eq!(bench.run(&[]).status(), OperationStatus::Ok);
    assert_eq!(bench.compound(&destroy).status(), OperationStatus::Ok);
}
