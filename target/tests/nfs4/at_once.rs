//! COMPOUNDs that only read and need not wait are answered at once, as those in tasks are, and so are
//! those that write one file. Others have no effect when that is tried.

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use millrace::call::{Answer, BulkArgument, Limits, one_chunk};
use millrace::exports::Rules;
use millrace::store_times::StoreClass;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::nfs4::{
    AttributeNumber as Number, Bitmap, CommitOperation, HasStatus, Operation,
    OperationStatus as Status, ReadOperation, StateId, access_bits,
};
use millrace_wire::xdr::Bulk;

use crate::data::{read, write_at};
use crate::support::folder::Folder;
use crate::support::nfs4::{Bench4, Results4, make_directory, put};
use crate::support::session_double::SessionDouble;
use crate::support::{LIMITS, results, rules};

const GETATTR: Operation<'static> = Operation::Getattr(Bitmap::of(&[Number::Size, Number::Change]));

const GETATTR_SIZE: Operation<'static> = Operation::Getattr(Bitmap::of(&[Number::Size]));

/// A file with data in several pieces of memory.
fn file(bench: &Bench4) -> Vec<u8> {
    let file = bench.file(b"file", 0o644);
    let write = write_at(StateId::ANONYMOUS, 0, Bulk::inline(&[7; 10_000]));
    assert_eq!(bench.run(&[put(&file), write]).status(), Status::Ok);
    file
}

/// The message of operations behind a SEQUENCE.
fn message(bench: &Bench4, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut all = vec![bench.next_sequence()];
    all.extend_from_slice(operations);
    bench.compound_message(&all)
}

/// How often each operation was answered, and how often with a failure.
fn counts(bench: &Bench4) -> Vec<(&'static str, u64, u64)> {
    let counters = bench.counters.operations.operations();
    counters.collect()
}

fn difference(before: &[(&str, u64, u64)], after: &[(&str, u64, u64)]) -> Vec<(u64, u64)> {
    let both = before.iter().zip(after);
    both.map(|(before, after)| (after.1 - before.1, after.2 - before.2))
        .collect()
}

#[test]
fn what_only_reads_is_answered_at_once_as_in_a_task() {
    let bench = Bench4::new();
    let (root, file) = (bench.walk("/export"), file(&bench));
    let lookup = Operation::Lookup(b"file");
    let getfh = Operation::Getfh(());
    let access = Operation::Access(access_bits::READ | access_bits::MODIFY);
    let mut compounds = vec![
        vec![put(&file)],
        vec![put(&file), GETATTR],
        vec![put(&file), access, GETATTR],
        vec![put(&root), lookup, getfh, GETATTR],
        vec![put(&root), lookup, read(0, 5), GETATTR, getfh],
        // Failures end the COMPOUND.
        vec![put(&root), Operation::Lookup(b"missing"), getfh],
        vec![put(&root), Operation::Lookup(b""), GETATTR],
        vec![put(&root), read(0, 10), GETATTR],
        vec![put(&file), lookup, GETATTR],
    ];
    for (offset, count) in [(0, 0), (0, 4096), (4000, 1000), (9_999, 100), (1 << 40, 1)] {
        compounds.push(vec![put(&file), read(offset, count)]);
        compounds.push(vec![put(&file), read(offset, count), read(1, 7), GETATTR]);
    }
    for apart in [LIMITS.apart, one_chunk(1 << 20)] {
        bench.limits.set(Limits { apart, ..LIMITS });
        for operations in &compounds {
            let message = message(&bench, operations);
            let before = counts(&bench);
            let at_once = bench.send_at_once(&message);
            let at_once = at_once.unwrap_or_else(|| panic!("waits: {operations:?}"));
            let between = counts(&bench);
            bench.state.expect_sequence(bench.sequence.get());
            let in_task = bench.send_in_task(&message);
            assert_eq!(at_once, in_task, "{operations:?}");
            assert_eq!(at_once.0, Answer::Send);
            let after = counts(&bench);
            assert_eq!(
                difference(&before, &between),
                difference(&between, &after),
                "{operations:?}"
            );
        }
    }
    assert_eq!(bench.state.abandoned.get(), 0);
}

#[test]
fn a_reply_that_is_to_be_cached_is_cached() {
    let bench = Bench4::new();
    let file = file(&bench);
    bench.cache_this.set(true);
    let mut bounds = Bench4::BOUNDS;
    bounds.cached = Some(1 << 20);
    bench.state.bounds.set(bounds);
    let message = message(&bench, &[put(&file), read(10, 100)]);
    let first = bench.send_at_once(&message).unwrap();
    // A repetition is no new request.
    assert_eq!(bench.send_at_once(&message), None);
    let again = bench.send_in_task(&message);
    assert_eq!(results(&first.1), results(&again.1));
}

#[test]
fn a_request_that_has_to_wait_is_executed_once_in_a_task() {
    let bench = Bench4::new();
    let file = file(&bench);
    let finished = bench.state.finished.get();
    bench.state.waits.set(true);
    let message = message(&bench, &[put(&file), GETATTR, read(0, 10)]);
    let before = counts(&bench);
    assert_eq!(bench.send_at_once(&message), None);
    assert_eq!(bench.state.abandoned.get(), 1, "the slot is given back");
    assert_eq!(bench.state.finished.get(), finished);
    assert_eq!(counts(&bench), before);
    let results = bench.results_after(&message, || {});
    let (_, all) = results.read();
    let statuses: Vec<_> = all.iter().map(HasStatus::status).collect();
    assert_eq!(statuses, [Status::Ok; 3]);
    assert_eq!(bench.state.finished.get(), finished + 1);
}

#[test]
fn v4_lease_04_a_lone_sequence_is_answered_without_a_store() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    // The first operation of each class is timed.
    let timed = || {
        let times = StoreClass::ALL.map(|class| bench.counters.store.class(class));
        times.map(|times| times.snapshot().count())
    };
    assert_eq!(timed(), [0; 4]);
    for _ in 0..3 {
        let message = message(&bench, &[]);
        assert_eq!(bench.turns(&message), 1);
    }
    assert_eq!(bench.state.finished.get(), 4);
    assert_eq!(timed(), [0; 4]);
    bench.run(&[put(&root), GETATTR]);
    assert_ne!(timed(), [0; 4], "this one asks");
}

#[test]
fn a_reply_for_which_memory_may_be_missing_is_left_to_a_task() {
    let bench = Bench4::new();
    let file = file(&bench);
    let limits = Limits {
        message: 8192,
        flattens: true,
        ..LIMITS
    };
    let message = message(&bench, &[put(&file), read(0, 6000)]);
    bench.limits.set(limits);
    assert_eq!(bench.send_at_once(&message), None);
    assert_eq!(bench.state.abandoned.get(), 1);
    // In a chunk it takes no buffer, and neither does what fits.
    let apart = one_chunk(1 << 20);
    bench.limits.set(Limits { apart, ..limits });
    assert!(bench.send_at_once(&message).is_some());
    bench.limits.set(limits);
    let short = self::message(&bench, &[put(&file), read(0, 3000)]);
    assert!(bench.send_at_once(&short).is_some());
}

#[test]
fn a_write_is_executed_at_once_when_its_data_is_there() {
    let bench = Bench4::new();
    let file = file(&bench);
    let changed = bench.state.changed.get();
    let data = [1; 100];
    let argument = |message: &[u8]| BulkArgument {
        // Behind it are the operation and the bits of GETATTR.
        position: message.len() as u32 - 12,
        length: data.len() as u32,
    };
    for (index, wait) in [(0_u32, false), (1, true)] {
        let write = write_at(StateId::ANONYMOUS, 200 * u64::from(index), Bulk::apart(100));
        let message = message(&bench, &[put(&file), write, GETATTR_SIZE]);
        let argument = argument(&message);
        // Without its data it is not tried, and has no effect.
        assert_eq!(bench.try_at_once(&message, &[argument], None), None);
        bench.state.waits.set(wait);
        let answered = bench.try_at_once(&message, &[argument], Some(&data));
        assert_eq!(answered.is_none(), wait);
        let abandoned = 1 + 2 * index;
        assert_eq!(
            bench.state.abandoned.get(),
            abandoned,
            "the slot is given back"
        );
        assert_eq!(bench.state.changed.get(), changed + 1);
        bench.state.waits.set(false);
    }
    // Clients would be asked for the attributes.
    bench.state.delegates.set(true);
    let write = write_at(StateId::ANONYMOUS, 0, Bulk::inline(b"other"));
    bench.sequence.set(bench.sequence.get() - 1);
    let message = message(&bench, &[put(&file), write, GETATTR_SIZE]);
    assert_eq!(bench.send_at_once(&message), None);
    assert_eq!(bench.state.abandoned.get(), 3, "it was not tried");
    bench.state.delegates.set(false);
    // The second one was not executed.
    bench.sequence.set(bench.sequence.get() - 1);
    let read = bench.run(&[put(&file), read(0, 300)]);
    let expected = [[1; 100], [7; 100], [7; 100]].concat();
    assert_eq!(read.data().0, expected);
}

#[test]
fn other_compounds_have_no_effect_at_once() {
    let secret = Rules {
        clients: vec!["198.51.100.0/24".parse().unwrap()],
        ..rules("/secret")
    };
    let bench = Bench4::with([rules("/export"), secret]);
    let (root, file, top) = (bench.walk("/export"), file(&bench), bench.walk("/"));
    let finished = bench.state.finished.get();
    let changed = bench.state.changed.get();
    let commit = Operation::Commit(CommitOperation {
        offset: 0,
        count: 0,
    });
    let state = StateId::ANONYMOUS;
    let unknown = StateId {
        sequence: 1,
        other: [9; 12],
    };
    let write = write_at(state, 0, Bulk::inline(b"other"));
    let space = Operation::Getattr(Bitmap::of(&[Number::SpaceFree]));
    let compounds = [
        vec![put(&file), GETATTR, commit],
        // A WRITE behind or before others, and such whose results wait.
        vec![put(&file), GETATTR, write],
        vec![put(&file), write, read(0, 5)],
        vec![put(&file), write, write],
        vec![put(&file), write, space],
        // To a folder, and with a stateid that nobody has.
        vec![put(&root), write],
        vec![put(&file), write_at(unknown, 0, Bulk::inline(b"other"))],
        vec![put(&root), make_directory(b"directory")],
        vec![put(&file), Operation::Savefh(()), GETATTR],
        // Not an object of a store, and a handle that is none.
        vec![put(&top), GETATTR],
        vec![put(b"short"), GETATTR],
        vec![Operation::Putrootfh(()), GETATTR],
        vec![put(&file), GETATTR, GETATTR, GETATTR, GETATTR, GETATTR],
    ];
    let before = counts(&bench);
    for operations in &compounds {
        let message = message(&bench, operations);
        assert_eq!(bench.send_at_once(&message), None, "{operations:?}");
        // The same sequence number is free for the next one.
        bench.sequence.set(bench.sequence.get() - 1);
    }
    // Without a SEQUENCE, and with one that is out of order.
    assert_eq!(
        bench.send_at_once(&bench.compound_message(&[put(&file), GETATTR])),
        None
    );
    bench.sequence.set(bench.sequence.get() + 5);
    let message = message(&bench, &[put(&file), GETATTR]);
    assert_eq!(bench.send_at_once(&message), None);
    assert_eq!(counts(&bench), before);
    // The WRITEs that are not allowed had a slot.
    assert_eq!(
        (bench.state.finished.get(), bench.state.abandoned.get()),
        (finished, 2)
    );
    assert_eq!(bench.state.changed.get(), changed);
    let long = Operation::Read(ReadOperation {
        state,
        offset: 0,
        count: 10_000,
    });
    bench.sequence.set(bench.sequence.get() - 6);
    let results = bench.run(&[put(&file), long]);
    assert_eq!(results.data().0, [7; 10_000]);
}

#[test]
fn what_the_kernel_has_of_folders_in_memory_is_answered_at_once() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), [7; 10_000]).unwrap();
    let registry = Registry::new(HugepagePolicy::Off);
    let folder = Folder::open(root.path(), &registry);
    let exports = vec![(rules("/export"), folder.store.clone())];
    let bench = Bench4::over_stores(&registry, exports, Rc::<SessionDouble>::default());
    let message = |operations: &[Operation<'_>]| {
        let mut all = vec![bench.next_sequence()];
        all.extend_from_slice(operations);
        bench.compound_message(&all)
    };
    let in_task = |message: &[u8]| {
        let mut exchange = pin!(bench.exchange_in_task(message));
        loop {
            let context = &mut Context::from_waker(Waker::noop());
            if let Poll::Ready(answered) = exchange.as_mut().poll(context) {
                break answered;
            }
            folder.engine.poll(Instant::now());
            std::thread::yield_now();
        }
    };
    let walk = message(&[
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        Operation::Lookup(b"file"),
        read(0, 5),
        GETATTR,
        Operation::Getfh(()),
    ]);
    assert!(bench.send_at_once(&walk).is_none(), "nothing is open");
    let (_, reply, items) = in_task(&walk);
    let bytes = results(&reply).to_vec();
    let file = Results4 { bytes, items }.handle();
    let getfh = Operation::Getfh(());
    let enter = message(&[
        Operation::Putrootfh(()),
        Operation::Lookup(b"export"),
        getfh,
    ]);
    let (_, reply, items) = in_task(&enter);
    let bytes = results(&reply).to_vec();
    let directory = Results4 { bytes, items }.handle();
    let lookup = Operation::Lookup(b"file");
    let access = Operation::Access(access_bits::READ | access_bits::MODIFY);
    // As Linux asks; of the root of an export it is another one.
    let mounted_on = Operation::Getattr(Bitmap::of(&[Number::Type, Number::MountedOnFileId]));
    for operations in [
        vec![put(&file), GETATTR],
        vec![put(&file), read(4000, 1000), GETATTR],
        vec![put(&file), mounted_on],
        vec![put(&file), access, GETATTR],
        vec![put(&directory), lookup, getfh, mounted_on],
    ] {
        let message = message(&operations);
        // A look-up is also left to others if any file system is mounted or unmounted meanwhile.
        let at_once = (0..100).find_map(|_| {
            let sequence = bench.sequence.get();
            let reply = bench.send_at_once(&message);
            reply.or_else(|| {
                bench.sequence.set(sequence);
                None
            })
        });
        let at_once = at_once.unwrap_or_else(|| panic!("waits: {operations:?}"));
        bench.state.expect_sequence(bench.sequence.get());
        assert_eq!(at_once, in_task(&message), "{operations:?}");
        assert_eq!(at_once.0, Answer::Send);
    }
    for operations in [
        vec![put(&directory), mounted_on],
        vec![put(&directory), Operation::Lookup(b"missing"), getfh],
    ] {
        assert!(bench.send_at_once(&message(&operations)).is_none());
        bench.sequence.set(bench.sequence.get() - 1);
    }
}
