//! Space, holes and copies of ranges: what minor version 2 adds.

use std::time::{Duration, Instant};

use millrace::exports::{ExportId, Rules};
use millrace::flow::rate::Rates;
use millrace::flow::{ClientTable, Flow};
use millrace::nfs4::StateIdUse;
use millrace_mempool::Class;
use millrace_reactor::Clock;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, CloneOperation, CommitOperation,
    CopyFailure, CopyOk, CopyOperation, CopyRequirements, HasStatus, IoAdviseOperation,
    NetworkLocation, NewObject, OpenClaim, OpenOperation, Operation, OperationResults,
    OperationStatus as Status, ReadOperation, SeekOperation, SeekReply, SpaceOperation, StateId,
    StateOwner, WriteOperation, advice, share,
};
use millrace_wire::xdr::{Array, BoundedBytes, Bulk};

use crate::session_client::{ServerFolders, SessionClient, kill};
use crate::support::nfs4::{Bench4, create, put, set};
use crate::support::{connection, rules};

pub const BLOCK: u64 = 64 << 10;

fn space(offset: u64, length: u64) -> SpaceOperation {
    SpaceOperation {
        state: StateId::ANONYMOUS,
        offset,
        length,
    }
}

fn allocate(offset: u64, length: u64) -> Operation<'static> {
    Operation::Allocate(space(offset, length))
}

fn deallocate(offset: u64, length: u64) -> Operation<'static> {
    Operation::Deallocate(space(offset, length))
}

fn seek(offset: u64, what: u32) -> Operation<'static> {
    Operation::Seek(SeekOperation {
        state: StateId::ANONYMOUS,
        offset,
        what,
    })
}

pub fn write(offset: u64, data: &[u8]) -> Operation<'_> {
    Operation::Write(WriteOperation {
        state: StateId::ANONYMOUS,
        offset,
        stable: Stability::Unstable,
        data: Bulk::inline(data),
    })
}

fn copy_operation(from: u64, to: u64, count: u64) -> CopyOperation<'static> {
    CopyOperation {
        source_state: StateId::ANONYMOUS,
        destination_state: StateId::ANONYMOUS,
        source_offset: from,
        destination_offset: to,
        count,
        consecutive: true,
        synchronous: false,
        source_servers: Array::new(&[]),
    }
}

fn copy(from: u64, to: u64, count: u64) -> Operation<'static> {
    Operation::Copy(copy_operation(from, to, count))
}

fn clone(from: u64, to: u64, count: u64) -> Operation<'static> {
    Operation::Clone(CloneOperation {
        source_state: StateId::ANONYMOUS,
        destination_state: StateId::ANONYMOUS,
        source_offset: from,
        destination_offset: to,
        count,
    })
}

fn open(access: u32) -> Operation<'static> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access,
        deny: 0,
        owner: StateOwner {
            client: 1,
            owner: BoundedBytes(b"owner"),
        },
        create: None,
        claim: OpenClaim::File,
    })
}

pub fn bytes(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// The status of one operation on a file.
pub fn on(bench: &Bench4, file: &[u8], operation: Operation<'_>) -> Status {
    bench.statuses(&[put(file), operation])[1]
}

/// The status of one operation from a file to another.
fn between(bench: &Bench4, from: &[u8], to: &[u8], operation: Operation<'_>) -> Status {
    let operations = [put(from), Operation::Savefh(()), put(to), operation];
    *bench.statuses(&operations).last().unwrap()
}

pub fn fill(bench: &Bench4, file: &[u8], data: &[u8]) {
    for (at, part) in data.chunks(1 << 20).enumerate() {
        assert_eq!(on(bench, file, write((at as u64) << 20, part)), Status::Ok);
    }
}

fn contents(bench: &Bench4, file: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let read = Operation::Read(ReadOperation {
            state: StateId::ANONYMOUS,
            offset: all.len() as u64,
            count: 1 << 20,
        });
        let (data, eof) = bench.run(&[put(file), read]).data();
        all.extend(data);
        if eof {
            return all;
        }
    }
}

fn number(bench: &Bench4, file: &[u8], number: Number) -> u64 {
    match bench.getattr(file, Bitmap::of(&[number])).attribute(number) {
        Attribute::Size(value) | Attribute::Change(value) | Attribute::SpaceUsed(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Objects that have no ranges.
fn others(bench: &Bench4) -> Vec<Vec<u8>> {
    let root = bench.walk("/export");
    let made = |object, name| {
        let operations = [
            put(&root),
            create(object, name, Attributes::NONE),
            Operation::Getfh(()),
        ];
        bench.run(&operations).handle()
    };
    let link = made(NewObject::Symlink(Bulk::inline(b"file")), b"link");
    let fifo = made(NewObject::Fifo, b"fifo");
    vec![bench.walk("/"), root, link, fifo]
}

#[test]
fn v4_v42_01_space_is_allocated_or_nothing_changes() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let change = number(&bench, &file, Number::Change);
    assert_eq!(on(&bench, &file, allocate(10, 2 * BLOCK)), Status::Ok);
    assert_eq!(number(&bench, &file, Number::Size), 10 + 2 * BLOCK);
    assert!(number(&bench, &file, Number::SpaceUsed) >= 2 * BLOCK);
    assert!(number(&bench, &file, Number::Change) > change);
    assert!(contents(&bench, &file).iter().all(|byte| *byte == 0));
    let used = number(&bench, &file, Number::SpaceUsed);
    for (offset, length, status) in [
        (0, 1 << 30, Status::NoSpace),
        (0, 0, Status::Invalid),
        (u64::MAX, 1, Status::Invalid),
        (i64::MAX as u64, 1, Status::FileTooBig),
    ] {
        assert_eq!(on(&bench, &file, allocate(offset, length)), status);
    }
    assert_eq!(number(&bench, &file, Number::Size), 10 + 2 * BLOCK);
    assert_eq!(number(&bench, &file, Number::SpaceUsed), used);
    for other in others(&bench) {
        for operation in [allocate(0, 1), deallocate(0, 1), seek(0, 0)] {
            assert_eq!(on(&bench, &other, operation), Status::WrongType);
        }
    }
}

#[test]
fn v4_v42_02_stateids_are_checked_as_those_of_write() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let other = bench.file(b"other", 0o644);
    fill(&bench, &file, &bytes(100));
    let state = |state| SpaceOperation {
        state,
        ..space(0, 10)
    };
    let opened = |access, operation| bench.statuses(&[put(&file), open(access), operation])[2];
    for operation in [
        Operation::Allocate(state(StateId::CURRENT)),
        Operation::Deallocate(state(StateId::CURRENT)),
        Operation::Copy(CopyOperation {
            destination_state: StateId::CURRENT,
            ..copy_operation(0, 0, 1)
        }),
    ] {
        let run = |access| {
            let all = [
                put(&other),
                write(0, b"12"),
                Operation::Savefh(()),
                put(&file),
                open(access),
                operation,
            ];
            *bench.statuses(&all).last().unwrap()
        };
        assert_eq!(run(share::READ), Status::OpenMode);
        assert_eq!(run(share::WRITE), Status::Ok);
    }
    let reads = Operation::Seek(SeekOperation {
        state: StateId::CURRENT,
        offset: 0,
        what: 0,
    });
    assert_eq!(opened(share::READ, reads), Status::Ok);
    let unknown = StateId {
        sequence: 1,
        other: [9; 12],
    };
    bench.state.checks.borrow_mut().clear();
    let status = on(&bench, &file, Operation::Allocate(state(unknown)));
    assert_eq!(status, Status::BadStateId);
    assert_eq!(bench.state.checks.take(), [(unknown, StateIdUse::Write)]);
    let copy = Operation::Copy(CopyOperation {
        source_state: unknown,
        ..copy_operation(0, 0, 1)
    });
    assert_eq!(between(&bench, &file, &other, copy), Status::BadStateId);
    assert_eq!(bench.state.checks.take(), [(unknown, StateIdUse::Read)]);
}

#[test]
fn v4_v42_03_holes_are_zeros() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut data = bytes(4 * BLOCK);
    fill(&bench, &file, &data);
    let used = number(&bench, &file, Number::SpaceUsed);
    let change = number(&bench, &file, Number::Change);
    assert_eq!(
        on(&bench, &file, deallocate(BLOCK - 5, 2 * BLOCK)),
        Status::Ok
    );
    data[BLOCK as usize - 5..3 * BLOCK as usize - 5].fill(0);
    assert!(contents(&bench, &file) == data);
    assert_eq!(number(&bench, &file, Number::SpaceUsed), used - BLOCK);
    assert!(number(&bench, &file, Number::Change) > change);
    bench.user.set(Some((7, 7)));
    let status = on(&bench, &file, deallocate(0, 1));
    assert_eq!(status, Status::AccessDenied);
}

#[test]
fn v4_v42_03_nothing_changes_in_an_export_for_readers() {
    let bench = Bench4::with([Rules {
        read_only: true,
        ..rules("/export")
    }]);
    let (file, other) = (bench.file(b"file", 0o644), bench.file(b"other", 0o644));
    for operation in [allocate(0, 1), deallocate(0, 1)] {
        assert_eq!(on(&bench, &file, operation), Status::ReadOnly);
    }
    for operation in [copy(0, 0, 0), clone(0, 0, 0)] {
        assert_eq!(between(&bench, &file, &other, operation), Status::ReadOnly);
    }
}

#[test]
fn v4_v42_05_and_06_data_and_holes_are_found() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    for at in [1, 4] {
        let block = bytes(BLOCK);
        assert_eq!(on(&bench, &file, write(at * BLOCK, &block)), Status::Ok);
    }
    let found = |offset, what| {
        let results = bench.run(&[put(&file), seek(offset, what)]);
        match results.read().1[1] {
            OperationResults::Seek(Ok(SeekReply { eof, offset })) => Ok((offset, eof)),
            ref other => Err(other.status()),
        }
    };
    assert_eq!(found(0, 0), Ok((BLOCK, false)));
    assert_eq!(found(BLOCK + 7, 0), Ok((BLOCK + 7, false)));
    assert_eq!(found(2 * BLOCK, 0), Ok((4 * BLOCK, false)));
    assert_eq!(found(0, 1), Ok((0, false)));
    assert_eq!(found(BLOCK, 1), Ok((2 * BLOCK, false)));
    // The hole behind the end.
    assert_eq!(found(4 * BLOCK, 1), Ok((5 * BLOCK, true)));
    let mut values = [0; 32];
    let longer = Attributes::build(&[Attribute::Size(6 * BLOCK)], &mut values).unwrap();
    assert_eq!(on(&bench, &file, set(longer)), Status::Ok);
    assert_eq!(found(5 * BLOCK, 0), Ok((6 * BLOCK, true)));
    for what in [0, 1] {
        for offset in [6 * BLOCK, 6 * BLOCK + 1, u64::MAX] {
            assert_eq!(found(offset, what), Err(Status::NoDeviceOrAddress));
        }
    }
    assert_eq!(found(0, 2), Err(Status::UnionNotSupported));
}

fn copied(bench: &Bench4, from: &[u8], to: &[u8], operation: Operation<'_>) -> CopyOk {
    let commit = Operation::Commit(CommitOperation {
        offset: 0,
        count: 0,
    });
    let operations = [put(from), Operation::Savefh(()), put(to), operation, commit];
    let results = bench.run(&operations);
    let (_, all) = results.read();
    let OperationResults::Copy(Ok(copied)) = all[3] else {
        panic!("{all:?}");
    };
    // What was copied is committed behind it.
    let verifier = copied.written.verifier;
    assert_eq!(all[4], OperationResults::Commit(Ok(verifier)));
    copied
}

#[test]
fn v4_v42_07_to_11_bytes_are_copied() {
    let bench = Bench4::new();
    let (one, other) = (bench.file(b"one", 0o644), bench.file(b"other", 0o644));
    let data = bytes((3 << 20) + 77);
    fill(&bench, &one, &data);
    let change = number(&bench, &other, Number::Change);
    let done = copied(&bench, &one, &other, copy(5, 100, 70_000));
    assert_eq!(done.written.count, 70_000);
    assert_eq!(done.written.callback, None);
    let as_it_was = CopyRequirements {
        consecutive: true,
        synchronous: true,
    };
    assert_eq!(done.requirements, as_it_was);
    let expected = [&[0; 100][..], &data[5..70_005]].concat();
    assert!(contents(&bench, &other) == expected);
    assert!(number(&bench, &other, Number::Change) > change);
    // To the end, in several turns of the reactor.
    let end = data.len() as u64;
    let mut at = 0;
    while at < end {
        at += copied(&bench, &one, &other, copy(at, at, 0)).written.count;
    }
    assert!(contents(&bench, &other) == data);
    // Beyond the end.
    let status = |from, count| between(&bench, &one, &other, copy(from, 0, count));
    assert_eq!(status(end, 0), Status::Ok);
    assert_eq!(status(end, 1), Status::Invalid);
    assert_eq!(status(end + 1, 0), Status::Invalid);
    assert_eq!(status(end - 1, 2), Status::Invalid);
    assert_eq!(status(1, u64::MAX), Status::Invalid);
    assert_eq!(between(&bench, &one, &one, copy(0, 10, 5)), Status::Invalid);
    let far = between(&bench, &one, &other, copy(0, i64::MAX as u64, 5));
    assert_eq!(far, Status::FileTooBig);
    for object in others(&bench) {
        for operation in [copy(0, 0, 0), clone(0, 0, 0)] {
            let to = between(&bench, &one, &object, operation);
            let from = between(&bench, &object, &one, operation);
            assert_eq!((to, from), (Status::WrongType, Status::WrongType));
        }
    }
    bench.user.set(Some((7, 7)));
    assert_eq!(status(0, 5), Status::AccessDenied);
    // Without a saved handle.
    assert_eq!(on(&bench, &other, copy(0, 0, 0)), Status::NoFileHandle);
}

#[test]
fn v4_v42_12_and_13_copies_stay_within_the_server() {
    let bench = Bench4::with([rules("/export"), rules("/second")]);
    let one = bench.file(b"one", 0o644);
    let data = bytes(5000);
    fill(&bench, &one, &data);
    let second = bench.walk("/second");
    let make = Operation::Open(OpenOperation {
        create: Some(millrace_wire::nfs4::CreateMode::Unchecked(Attributes::NONE)),
        claim: OpenClaim::Name(b"other"),
        ..match open(share::BOTH) {
            Operation::Open(open) => open,
            _ => unreachable!(),
        }
    });
    let other = bench
        .run(&[put(&second), make, Operation::Getfh(())])
        .handle();
    // Between exports the bytes go through the server.
    assert_eq!(
        copied(&bench, &one, &other, copy(0, 0, 0)).written.count,
        5000
    );
    assert!(contents(&bench, &other) == data);
    let cross = between(&bench, &one, &other, clone(0, 0, 0));
    assert_eq!(cross, Status::CrossDevice);
    let servers = [NetworkLocation::Name(b"elsewhere")];
    let foreign = Operation::Copy(CopyOperation {
        source_servers: Array::new(&servers),
        ..copy_operation(0, 0, 0)
    });
    let operations = [put(&one), Operation::Savefh(()), put(&other), foreign];
    let results = bench.run(&operations);
    let refused = CopyFailure::Other(Status::NotSupported);
    assert_eq!(results.read().1[3], OperationResults::Copy(Err(refused)));
}

#[test]
fn v4_v42_15_no_copy_goes_on_behind_its_reply() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let state = StateId {
        sequence: 1,
        other: [9; 12],
    };
    for operation in [
        Operation::OffloadStatus(state),
        Operation::OffloadCancel(state),
    ] {
        assert_eq!(on(&bench, &file, operation), Status::BadStateId);
    }
}

#[test]
fn v4_v42_18_hints_are_no_errors() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut hints = Bitmap::EMPTY;
    for hint in [advice::WILL_NEED, advice::SEQUENTIAL, 60] {
        hints.insert(hint);
    }
    let advise = Operation::IoAdvise(IoAdviseOperation {
        state: StateId::ANONYMOUS,
        offset: 5,
        count: u64::MAX,
        hints,
    });
    // Memory has nothing to prepare.
    let results = bench.run(&[put(&file), advise]);
    assert_eq!(
        results.last(),
        OperationResults::IoAdvise(Ok(Bitmap::EMPTY))
    );
    let root = bench.walk("/export");
    assert_eq!(on(&bench, &root, advise), Status::WrongType);
}

#[test]
fn v4_v42_04_and_17_clones_are_offered_exactly_where_they_work() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let wanted = Bitmap::of(&[Number::SupportedAttributes, Number::CloneBlockSize]);
    let results = bench.getattr(&file, wanted);
    let Attribute::SupportedAttributes(all) = results.attribute(Number::SupportedAttributes) else {
        panic!("no attributes")
    };
    assert!(all.has(Number::CloneBlockSize));
    let block = results.attribute(Number::CloneBlockSize);
    assert_eq!(block, Attribute::CloneBlockSize(4096));
    // A folder offers them if its file system shares storage, and else refuses them.
    let folders = ServerFolders::new();
    let (server, address) = folders.start();
    let mut client = SessionClient::join(address, b"client");
    assert_eq!(client.reclaim_complete(), Status::Ok);
    let [one, other] = [&b"one"[..], b"other"].map(|name| client.open(b"data", name).unwrap().0);
    let put = |handle| Operation::Putfh(BoundedBytes(handle));
    let written = client.run(&[put(&one), write(0, &bytes(4096))]);
    assert_eq!(written.status(), Status::Ok);
    let asked = client.run(&[put(&one), Operation::Getattr(wanted)]);
    let is_offered = asked.read(|_, all| match &all[2] {
        OperationResults::Getattr(Ok(found)) => found.mask.has(Number::CloneBlockSize),
        other => panic!("{other:?}"),
    });
    let save = Operation::Savefh(());
    let cloned = client.run(&[put(&one), save, put(&other), clone(0, 0, 0)]);
    let expected = match is_offered {
        true => Status::Ok,
        false => Status::NotSupported,
    };
    assert_eq!(cloned.status(), expected);
    kill(server);
}

#[test]
fn v4_v42_16_clones_have_the_bytes_of_one_moment() {
    let bench = Bench4::new();
    let (source, target) = (bench.file(b"source", 0o644), bench.file(b"target", 0o644));
    let data = bytes(3 * BLOCK + 777);
    fill(&bench, &source, &data);
    // Whole, and over bytes that the target has.
    fill(&bench, &target, &bytes(100));
    assert_eq!(
        between(&bench, &source, &target, clone(0, 0, 0)),
        Status::Ok
    );
    assert!(contents(&bench, &target) == data);
    // To another offset; what is behind stays.
    fill(&bench, &target, &vec![0xee; 5 * BLOCK as usize]);
    let part = clone(2 * BLOCK, BLOCK, 0);
    assert_eq!(between(&bench, &source, &target, part), Status::Ok);
    let mut expected = vec![0xee; 5 * BLOCK as usize];
    let rest = &data[2 * BLOCK as usize..];
    expected[BLOCK as usize..][..rest.len()].copy_from_slice(rest);
    assert!(contents(&bench, &target) == expected);
    // Within one file, and behind its end.
    let within = clone(0, 6 * BLOCK, 2 * BLOCK);
    assert_eq!(between(&bench, &target, &target, within), Status::Ok);
    expected.resize(6 * BLOCK as usize, 0);
    expected.extend_from_within(..2 * BLOCK as usize);
    assert!(contents(&bench, &target) == expected);
    // Later changes of one leave the other alone.
    assert_eq!(on(&bench, &source, write(0, &[9; 100])), Status::Ok);
    assert!(contents(&bench, &target) == expected);
    // Holes of the source are zeros.
    assert_eq!(on(&bench, &source, deallocate(0, 3 * BLOCK)), Status::Ok);
    assert_eq!(
        between(&bench, &source, &target, clone(0, 0, BLOCK)),
        Status::Ok
    );
    expected[..BLOCK as usize].fill(0);
    assert!(contents(&bench, &target) == expected);
}

#[test]
fn v4_v42_16_clones_of_other_ranges_are_refused() {
    let bench = Bench4::new();
    let (source, target) = (bench.file(b"source", 0o644), bench.file(b"target", 0o644));
    fill(&bench, &source, &bytes(3 * BLOCK + 777));
    for (from, to, count) in [
        (1, 0, BLOCK),
        (0, 1, BLOCK),
        (0, 0, BLOCK + 1),
        (0, 0, 3 * BLOCK + 778),
        (4 * BLOCK, 0, 1),
        (0, u64::MAX - BLOCK + 1, BLOCK),
    ] {
        let status = between(&bench, &source, &target, clone(from, to, count));
        assert_eq!(status, Status::Invalid, "{from} {to} {count}");
    }
    let overlapping = clone(0, BLOCK, 2 * BLOCK);
    assert_eq!(
        between(&bench, &source, &source, overlapping),
        Status::Invalid
    );
    assert!(contents(&bench, &target).is_empty());
}

#[test]
fn v4_v42_16_a_clone_without_space_changes_nothing() {
    let bench = Bench4::new();
    let (source, target) = (bench.file(b"source", 0o644), bench.file(b"target", 0o644));
    let data = bytes(9 << 20);
    fill(&bench, &source, &data);
    fill(&bench, &target, &data[..1000]);
    let status = between(&bench, &source, &target, clone(0, 0, 0));
    assert_eq!(status, Status::NoSpace);
    assert!(contents(&bench, &target) == data[..1000]);
    // What it reserved is free again.
    fill(&bench, &target, &data[..6 << 20]);
}

#[test]
fn v4_v42_24_ranges_count_against_limits_as_the_bytes_that_they_move() {
    for operation in [
        allocate(0, 1 << 20),
        deallocate(0, 1 << 20),
        copy(0, 0, 1 << 20),
        clone(0, 0, 1 << 20),
    ] {
        let bench = Bench4::new();
        let (source, target) = (bench.file(b"source", 0o644), bench.file(b"target", 0o644));
        fill(&bench, &source, &bytes(1 << 20));
        let clock = Clock::new(Instant::now());
        let clients = ClientTable::new(1);
        let flow = Flow::new(&clients, 0, &bench.pool, Class::Control, &clock);
        let rates = Rates {
            iops: None,
            bandwidth: Some(1 << 20),
        };
        clients.set_limits(&[], [(ExportId::of("/export"), rates)], clock.now());
        let _ = bench.programs.clone().with_flow(&flow);
        bench.call_by(&connection(&flow, bench.connection().peer()));
        let message = |operations: &[Operation<'_>]| {
            let mut all = vec![bench.next_sequence()];
            all.extend_from_slice(operations);
            bench.compound_message(&all)
        };
        let moves = message(&[put(&source), Operation::Savefh(()), put(&target), operation]);
        assert_eq!(bench.results(&moves).status(), Status::Ok);
        // The next second belongs to it.
        let read = Operation::Read(ReadOperation {
            state: StateId::ANONYMOUS,
            offset: 0,
            count: 1,
        });
        let read = message(&[put(&source), read]);
        let results = bench.results_after(&read, || {
            clock.turn(clock.now() + Duration::from_secs(2));
        });
        assert_eq!(results.status(), Status::Ok);
    }
}
