//! RPC errors, credentials, and calls that are executed once, through the seam.

mod support;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Instant;

use millrace::call::{
    Answer, Limits, NO_CHUNKS, Peer, Serve, Shortage, TransportKind, TurnEnd, one_chunk,
};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::nfs3::{
    self, CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    RemoveResults, SetAttributes, Status,
};
use millrace_wire::rpc::{Accepted, AuthStatus, CallOutcome, Denied, OpaqueAuth, ReplyHeader};
use millrace_wire::xdr::{Bulk, Decode, Decoder, from_bytes};
use support::{Bench, Chunks, outcome, rules};

fn refused(bench: &Bench, message: &[u8]) -> CallOutcome<'static> {
    let replied = bench.send(message, &[], &mut Chunks::default());
    assert_eq!(replied.answer, Answer::Send);
    match outcome(&replied.message) {
        CallOutcome::Accepted { status, .. } => CallOutcome::Accepted {
            verifier: OpaqueAuth::NONE,
            status,
        },
        CallOutcome::Denied(denied) => CallOutcome::Denied(denied),
    }
}

fn accepted(status: Accepted) -> CallOutcome<'static> {
    CallOutcome::Accepted {
        verifier: OpaqueAuth::NONE,
        status,
    }
}

#[test]
fn rr1_hdr_26_unknown_programs_versions_and_procedures_are_answered() {
    let bench = Bench::new();
    for program in [100_227, 400_122, 100_021, 100_024, 0, u32::MAX] {
        for version in [1, 3] {
            let message = bench.message((program, version, 0), &());
            assert_eq!(
                refused(&bench, &message),
                accepted(Accepted::ProgramUnavailable)
            );
        }
    }
    let mismatch = accepted(Accepted::ProgramMismatch { low: 3, high: 3 });
    for program in [
        (100_003, 4, 0),
        (100_003, 2, 0),
        (100_005, 1, 1),
        (100_005, 2, 0),
    ] {
        assert_eq!(refused(&bench, &bench.message(program, &())), mismatch);
    }
    for program in [(100_003, 3, 22), (100_005, 3, 6), (100_003, 3, u32::MAX)] {
        let message = bench.message(program, &());
        assert_eq!(
            refused(&bench, &message),
            accepted(Accepted::ProcedureUnavailable)
        );
    }
}

#[test]
fn rr1_hdr_26_gss_cred_06_rpc_versions_and_credentials_are_judged() {
    let bench = Bench::new();
    let mut message = bench.message((100_003, 3, 0), &());
    message[8..12].copy_from_slice(&3_u32.to_be_bytes());
    let denied = CallOutcome::Denied(Denied::RpcMismatch { low: 2, high: 2 });
    assert_eq!(refused(&bench, &message), denied);
    for (flavor, status) in [
        (2, AuthStatus::RejectedCredential),
        // GSS-CRED-06: clients fall back to another flavor.
        (6, AuthStatus::RejectedCredential),
        (7, AuthStatus::BadCredential),
    ] {
        let mut message = bench.message((100_003, 3, 0), &());
        message[24..28].copy_from_slice(&(flavor as u32).to_be_bytes());
        assert_eq!(
            refused(&bench, &message),
            CallOutcome::Denied(Denied::Auth(status))
        );
    }
    // More than 16 groups.
    let mut message = bench.message((100_003, 3, 0), &());
    let groups = 24 + 8 + 4 + 4 + 8 + 4 + 4;
    message[groups..groups + 4].copy_from_slice(&17_u32.to_be_bytes());
    let denied = CallOutcome::Denied(Denied::Auth(AuthStatus::BadCredential));
    assert_eq!(refused(&bench, &message), denied);
}

#[test]
fn messages_that_are_no_calls_are_met_with_silence() {
    let bench = Bench::new();
    let mut reply = bench.message((100_003, 3, 0), &());
    reply[4..8].copy_from_slice(&1_u32.to_be_bytes());
    for message in [&reply[..], &reply[..7], &[]] {
        let replied = bench.send(message, &[], &mut Chunks::default());
        assert_eq!(replied.answer, Answer::Silent);
    }
}

#[test]
fn rr1_hdr_09_arguments_that_do_not_decode_are_garbage() {
    let bench = Bench::new();
    for procedure in Procedure::ALL.iter().filter(|&&p| p != Procedure::Null) {
        let message = bench.message((100_003, 3, procedure.number()), &());
        assert_eq!(
            refused(&bench, &message),
            accepted(Accepted::GarbageArguments),
            "{procedure}"
        );
        // A handle of more than 64 bytes.
        let message = bench.message((100_003, 3, procedure.number()), &&[0_u8; 68][..]);
        assert_eq!(
            refused(&bench, &message),
            accepted(Accepted::GarbageArguments),
            "{procedure}"
        );
    }
    assert_eq!(bench.service.counters().garbage_arguments.get(), 42);
}

/// Every procedure survives every truncation and every changed word of a call.
#[test]
fn hostile_arguments_never_panic() {
    let bench = Bench::new();
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"name",
    };
    for procedure in Procedure::ALL {
        let arguments = CreateArguments {
            entry,
            how: CreateHow::Guarded(SetAttributes::default()),
        };
        let message = bench.message((100_003, 3, procedure.number()), &arguments);
        for length in 0..message.len() {
            bench.send(&message[..length], &[], &mut Chunks::default());
        }
        for word in (4..message.len()).step_by(4) {
            for value in [0, 1, 7, 0x7fff_ffff, u32::MAX] {
                let mut changed = message.clone();
                changed[word..word + 4].copy_from_slice(&value.to_be_bytes());
                bench.send(&changed, &[], &mut Chunks::default());
            }
        }
    }
}

fn from(bench: &Bench, address: &str, transport: TransportKind) {
    let address: SocketAddr = address.parse().unwrap();
    bench.call_from(Peer::new(address, transport));
}

fn removed(message: &[u8]) -> Result<(), Status> {
    let results: RemoveResults = from_bytes(support::results(message)).unwrap();
    results.map(|_| ()).map_err(|failure| failure.status)
}

#[test]
fn rr1_hdr_25_remove_is_executed_once_across_connections() {
    let bench = Bench::new();
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let create = CreateArguments {
        entry,
        how: CreateHow::Guarded(SetAttributes::default()),
    };
    bench.nfs(Procedure::Create, &create);
    let remove = bench.message((100_003, 3, Procedure::Remove.number()), &entry);
    let first = bench.send(&remove, &[], &mut Chunks::default());
    assert_eq!(removed(&first.message), Ok(()));
    // The name comes back meanwhile; a second execution would remove it again.
    bench.nfs(Procedure::Create, &create);
    // The reply was lost: the client asks again, from another port, by another transport.
    from(&bench, "192.0.2.1:2000", TransportKind::Tcp);
    let again = bench.send(&remove, &[], &mut Chunks::default());
    assert_eq!(again.message, first.message);
    let lookup = bench.nfs(Procedure::Lookup, &entry);
    from_bytes::<nfs3::LookupResults>(&lookup).unwrap().unwrap();
    assert_eq!(bench.service.counters().replayed.get(), 1);
    // Another client's call with the same XID is another call.
    from(&bench, "192.0.2.9:1000", TransportKind::Rdma);
    let other = bench.send(&remove, &[], &mut Chunks::default());
    assert_eq!(removed(&other.message), Ok(()));
    assert_eq!(bench.service.counters().replayed.get(), 1);
}

#[test]
fn rr1_hdr_25_the_same_call_of_another_user_is_another_call() {
    let bench = Bench::new();
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"file",
    };
    let create = CreateArguments {
        entry,
        how: CreateHow::Guarded(SetAttributes::default()),
    };
    bench.nfs(Procedure::Create, &create);
    let remove = |user| {
        *bench.user.borrow_mut() = user;
        bench.xid.set(70);
        let remove = bench.message((100_003, 3, Procedure::Remove.number()), &entry);
        removed(&bench.send(&remove, &[], &mut Chunks::default()).message)
    };
    assert_eq!(remove(Some((0, 0))), Ok(()));
    // What the superuser was told is not for others.
    for user in [Some((7, 0)), Some((0, 7)), None] {
        assert_eq!(remove(user), Err(Status::NoEntry), "{user:?}");
    }
    assert_eq!(bench.service.counters().replayed.get(), 0);
    assert_eq!(remove(Some((0, 0))), Ok(()));
    assert_eq!(bench.service.counters().replayed.get(), 1);
}

#[test]
fn rr1_hdr_25_calls_that_differ_late_are_two_calls() {
    let bench = Bench::new();
    // A reply of the first would say that the second link is there, which it is not.
    let symlink = |text: &[u8]| {
        bench.xid.set(70);
        let arguments = nfs3::SymlinkArguments {
            entry: NameInDirectory {
                directory: bench.root(),
                name: b"link",
            },
            attributes: SetAttributes::default(),
            text: Bulk::inline(text),
        };
        let message = bench.message((100_003, 3, Procedure::Symlink.number()), &arguments);
        let replied = bench.send(&message, &[], &mut Chunks::default());
        let results: CreateResults = from_bytes(support::results(&replied.message)).unwrap();
        results.map(|_| ()).map_err(|failure| failure.status)
    };
    let text = [b'a'; 4000];
    let mut other = text;
    other[3999] = b'b';
    assert_eq!(symlink(&text), Ok(()));
    assert_eq!(symlink(&other), Err(Status::Exists));
    assert_eq!(bench.service.counters().replayed.get(), 0);
    assert_eq!(symlink(&text), Ok(()));
    assert_eq!(bench.service.counters().replayed.get(), 1);
}

#[test]
fn rr1_hdr_25_all_reactors_share_the_memory_of_calls() {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = support::memory_store(&registry);
    let replay = ReplayCache::new(ReplayLimits::default());
    let bench = || {
        let service = support::service_with([(rules("/export"), store.clone())], replay.clone());
        Bench::over(&registry, store.clone(), service)
    };
    let (one, other) = (bench(), bench());
    let arguments = nfs3::MkdirArguments {
        entry: NameInDirectory {
            directory: one.root(),
            name: b"new",
        },
        attributes: SetAttributes::default(),
    };
    let message = one.message((100_003, 3, Procedure::Mkdir.number()), &arguments);
    let first = one.send(&message, &[], &mut Chunks::default());
    let again = other.send(&message, &[], &mut Chunks::default());
    assert_eq!(first.message, again.message);
    let results: CreateResults = from_bytes(support::results(&again.message)).unwrap();
    results.unwrap();
}

#[test]
fn answers_that_do_not_fit_are_not_sent_short() {
    let bench = Bench::new();
    let message = bench.message((100_003, 3, Procedure::Getattr.number()), &bench.root());
    let whole = bench
        .send(&message, &[], &mut Chunks::default())
        .message
        .len();
    for room in 0..whole {
        bench.limits.set(Limits {
            headroom: 64,
            message: room,
            apart: NO_CHUNKS,
            tells_shortage: false,
            flattens: false,
        });
        let replied = bench.send(&message, &[], &mut Chunks::default());
        let shortage = Shortage {
            processed: true,
            message: whole,
            bulk: 0,
        };
        assert_eq!(
            (replied.answer, replied.message.len()),
            (Answer::TooLarge(shortage), 0)
        );
    }
    bench.limits.set(Limits {
        headroom: 64,
        message: whole,
        apart: NO_CHUNKS,
        tells_shortage: false,
        flattens: false,
    });
    assert_eq!(
        bench.send(&message, &[], &mut Chunks::default()).answer,
        Answer::Send
    );
    assert_eq!(bench.service.counters().too_large.get(), whole as u64);
}

#[test]
fn a_call_executed_without_room_for_its_answer_is_not_executed_again() {
    let bench = Bench::new();
    support::nfs::create(&bench, bench.root(), b"gone");
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"gone",
    };
    let remove = bench.message((100_003, 3, Procedure::Remove.number()), &entry);
    let limits = bench.limits.replace(Limits {
        message: 40,
        ..bench.limits.get()
    });
    let first = bench.send(&remove, &[], &mut Chunks::default());
    let again = bench.send(&remove, &[], &mut Chunks::default());
    assert_eq!(first.answer, again.answer);
    let Answer::TooLarge(shortage) = first.answer else {
        panic!("{first:?}");
    };
    assert!(shortage.processed);
    // Exactly what was missing is enough, and finds the first answer.
    bench.limits.set(Limits {
        message: shortage.message,
        ..limits
    });
    let replied = bench.send(&remove, &[], &mut Chunks::default());
    assert_eq!(replied.answer, Answer::Send);
    assert_eq!(replied.message.len(), shortage.message);
    assert_eq!(
        support::served::status(support::results(&replied.message)),
        0
    );
    assert_eq!(bench.service.counters().replayed.get(), 2);
    // A refusal that finds no room was no execution.
    bench.limits.set(Limits {
        message: 8,
        ..limits
    });
    let unknown = bench.message((100_003, 3, 99), &());
    let replied = bench.send(&unknown, &[], &mut Chunks::default());
    assert!(matches!(replied.answer, Answer::TooLarge(shortage) if !shortage.processed));
}

#[test]
fn a_read_beyond_its_chunk_is_short_or_refused_before_it_is_executed() {
    let bench = Bench::new();
    let file = support::nfs::create(&bench, bench.root(), b"f");
    support::nfs::write(&bench, file, 0, &[7; 300]).unwrap();
    for (tells_shortage, count) in [(false, 200), (true, 200), (true, 100)] {
        bench.limits.set(Limits {
            apart: one_chunk(100),
            tells_shortage,
            flattens: false,
            ..support::LIMITS
        });
        let arguments = nfs3::ReadArguments {
            file,
            offset: 0,
            count,
        };
        let message = bench.message((100_003, 3, Procedure::Read.number()), &arguments);
        let replied = bench.send(&message, &[], &mut Chunks::default());
        if tells_shortage && count > 100 {
            let shortage = Shortage {
                processed: false,
                message: 0,
                bulk: 200,
            };
            assert_eq!(replied.answer, Answer::TooLarge(shortage));
        } else {
            assert_eq!((replied.answer, replied.data.len()), (Answer::Send, 100));
        }
    }
}

#[test]
fn calls_are_counted_by_procedure_and_outcome() {
    let bench = Bench::new();
    bench.nfs(Procedure::Getattr, &bench.root());
    bench.nfs(Procedure::Getattr, &FileHandle::new(b"forged").unwrap());
    let counters = bench.service.counters();
    let getattr = &counters.programs[0].procedures[1];
    assert_eq!((getattr.calls.get(), getattr.errors.get()), (2, 1));
    bench.service.turned(&TurnEnd::new(Instant::now));
    assert_eq!(getattr.latency.snapshot().count(), 2);
}

#[test]
fn xids_are_given_back() {
    let bench = Bench::new();
    let xids = RefCell::new(Vec::new());
    for xid in [0, 1, u32::MAX - 1] {
        bench.xid.set(xid);
        let message = bench.message((100_003, 3, 0), &());
        let replied = bench.send(&message, &[], &mut Chunks::default());
        let header = ReplyHeader::decode(&mut Decoder::new(&replied.message)).unwrap();
        xids.borrow_mut().push(header.xid);
    }
    assert_eq!(*xids.borrow(), [1, 2, u32::MAX]);
}
