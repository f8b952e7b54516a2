//! READ, WRITE, COMMIT and OPEN.

use millrace::call::{BulkArgument, Limits, one_chunk};
use millrace::exports::Rules;
use millrace::nfs4::StateIdUse;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, CloseOperation, CommitOperation,
    CreateMode, DelegationType, ExclusiveCreate, HasStatus, LockOperation, LockType, Locker,
    LockuOperation, NewLockOwner, NewObject, OpenClaim, OpenDelegation, OpenOperation, OpenReply,
    Operation, OperationResults, OperationStatus as Status, ReadOperation, StateId, StateOwner,
    WriteOperation, WriteReply, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use crate::support;
use crate::support::nfs4::{Bench4, create, put};
use crate::support::{Chunks, LIMITS, rules};

fn read_at(state: StateId, offset: u64, count: u32) -> Operation<'static> {
    Operation::Read(ReadOperation {
        state,
        offset,
        count,
    })
}

pub fn read(offset: u64, count: u32) -> Operation<'static> {
    read_at(StateId::ANONYMOUS, offset, count)
}

pub fn write_at<'a>(state: StateId, offset: u64, data: Bulk<'a>) -> Operation<'a> {
    Operation::Write(WriteOperation {
        state,
        offset,
        stable: Stability::Unstable,
        data,
    })
}

fn write(offset: u64, data: &[u8]) -> Operation<'_> {
    write_at(StateId::ANONYMOUS, offset, Bulk::inline(data))
}

fn open<'a>(access: u32, create: Option<CreateMode<'a>>, claim: OpenClaim<'a>) -> Operation<'a> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access,
        deny: 0,
        owner: StateOwner {
            client: 1,
            owner: BoundedBytes(b"owner"),
        },
        create,
        claim,
    })
}

fn opened(results: &support::nfs4::Results4, at: usize) -> OpenReply<'_> {
    let (_, all) = results.read();
    match all[at] {
        OperationResults::Open(Ok(reply)) => reply,
        other => panic!("not opened: {other:?}"),
    }
}

pub fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn v4_data_01_and_v4_ulb_10_data_is_written_and_read_inline() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Size]));
    for (offset, length) in [
        (0, 0),
        (0, 1),
        (3, 5),
        (9, 6),
        (4000, 299),
        (100_000, 70_003),
    ] {
        let data = bytes(length);
        let results = bench.run(&[put(&file), write(offset, &data), getattr]);
        let (_, all) = results.read();
        let OperationResults::Write(Ok(reply)) = all[1] else {
            panic!("{all:?}");
        };
        assert_eq!(reply.count as usize, length);
        assert_eq!(all[2].status(), Status::Ok);
        let results = bench.run(&[put(&file), read(offset, length as u32)]);
        assert_eq!(results.data().0, data);
    }
    let at = |offset, count| bench.run(&[put(&file), read(offset, count)]).data();
    assert_eq!(at(170_000, 100), (bytes(70_003)[70_000..].to_vec(), true));
    assert!(at(170_000, 3).1);
    assert!(!at(170_000, 2).1);
    assert_eq!(at(1 << 40, 100), (vec![], true));
    assert_eq!(at(u64::MAX, 100), (vec![], true));
    assert_eq!(at(50_000, 4), (vec![0; 4], false));
}

#[test]
fn v4_data_02_other_objects_have_no_data() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let made = |name: &'static [u8], object| {
        let operations = [
            put(&root),
            create(object, name, Attributes::NONE),
            Operation::Getfh(()),
        ];
        bench.run(&operations).handle()
    };
    let link = made(b"link", NewObject::Symlink(Bulk::inline(b"file")));
    let fifo = made(b"fifo", NewObject::Fifo);
    for (object, status) in [
        (&root, Status::IsDirectory),
        (&link, Status::Symlink),
        (&fifo, Status::WrongType),
        (&bench.walk("/"), Status::IsDirectory),
    ] {
        assert_eq!(bench.statuses(&[put(object), read(0, 1)])[1], status);
        assert_eq!(bench.statuses(&[put(object), write(0, b"x")])[1], status);
    }
}

#[test]
fn v4_data_03_to_06_writes_are_committed() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let stable = |stable| {
        let operation = Operation::Write(WriteOperation {
            state: StateId::ANONYMOUS,
            offset: 0,
            stable,
            data: Bulk::inline(b"data"),
        });
        let results = bench.run(&[put(&file), operation]);
        match results.last() {
            OperationResults::Write(Ok(reply)) => reply,
            other => panic!("{other:?}"),
        }
    };
    let WriteReply { verifier, .. } = stable(Stability::Unstable);
    for asked in [Stability::DataSync, Stability::FileSync] {
        assert!(stable(asked).committed as u32 >= asked as u32);
    }
    let commit = Operation::Commit(CommitOperation {
        offset: 0,
        count: 0,
    });
    let results = bench.run(&[put(&file), commit]);
    assert_eq!(results.last(), OperationResults::Commit(Ok(verifier)));
    bench.user.set(Some((7, 7)));
    assert_eq!(
        bench.statuses(&[put(&file), commit])[1],
        Status::AccessDenied
    );
    assert_eq!(
        bench.statuses(&[put(&file), write(0, b"")])[1],
        Status::AccessDenied
    );
    bench.user.set(Some((0, 0)));
    // The largest file, and the largest number.
    assert_eq!(
        bench.statuses(&[put(&file), write(i64::MAX as u64, b"x")])[1],
        Status::FileTooBig
    );
    assert_eq!(
        bench.statuses(&[put(&file), write(u64::MAX, b"xy")])[1],
        Status::Invalid
    );
}

#[test]
fn v4_data_08_and_v4_ulb_09_nothing_moves_with_a_bad_stateid() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let unknown = StateId {
        sequence: 1,
        other: [9; 12],
    };
    let data = Bulk::apart(600);
    let message = bench.compound_message(&[
        bench.next_sequence(),
        put(&file),
        write_at(unknown, 0, data),
    ]);
    let bulk = [BulkArgument {
        position: message.len() as u32,
        length: 600,
    }];
    let chunk = bytes(600);
    let mut chunks = Chunks {
        chunks: vec![&chunk],
        ..Chunks::default()
    };
    let results = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!((results.status(), chunks.pulls), (Status::BadStateId, 0));
    let checks = bench.state.checks.borrow();
    assert_eq!(*checks, [(unknown, StateIdUse::Write)]);
}

#[test]
fn v4_ulb_08_and_v4_data_09_writes_come_in_chunks() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Size]));
    let (first, second) = (bytes(601), bytes(40_000));
    let write = |offset, length| write_at(StateId::ANONYMOUS, offset, Bulk::apart(length));
    let message = bench.compound_message(&[
        bench.next_sequence(),
        put(&file),
        write(0, 601),
        write(601, 40_000),
        getattr,
    ]);
    // Behind the second length word stands GETATTR: 4 + 4 + 4 bytes.
    let end = message.len() - 12;
    let stripped = end - 4 - 16 - 8 - 4 - 4;
    let bulk = [
        BulkArgument {
            position: stripped as u32,
            length: 601,
        },
        BulkArgument {
            position: (end + 604) as u32,
            length: 40_000,
        },
    ];
    let mut chunks = Chunks {
        chunks: vec![&first, &second],
        ..Chunks::default()
    };
    let results = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!(results.attribute(Number::Size), Attribute::Size(40_601));
    assert_eq!(chunks.pulls, 2);
    let found = bench.run(&[put(&file), read(0, 50_000)]).data();
    assert_eq!(found, ([&first[..], &second].concat(), true));
}

#[test]
fn a_connection_that_breaks_leaves_a_slot_that_says_so() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    bench.cache_this.set(true);
    let operations = [
        bench.next_sequence(),
        put(&file),
        write_at(StateId::ANONYMOUS, 0, Bulk::apart(600)),
    ];
    let message = bench.compound_message(&operations);
    let bulk = [BulkArgument {
        position: message.len() as u32,
        length: 600,
    }];
    let chunk = bytes(600);
    let mut chunks = Chunks {
        chunks: vec![&chunk],
        broken: true,
        ..Chunks::default()
    };
    let (answer, _, _) = bench.send(&message, &bulk, &mut chunks);
    assert_eq!(answer, millrace::call::Answer::Broken);
    let again = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!(again.status(), Status::Delay);
    assert_eq!(chunks.pulls, 1);
}

fn with_chunks(chunks: &[Option<u32>]) -> Limits {
    let mut limits = LIMITS;
    for (room, chunk) in limits.apart.iter_mut().zip(chunks) {
        *room = *chunk;
    }
    limits
}

#[test]
fn v4_ulb_02_and_03_rr1_chunk_33_each_read_has_its_chunk() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let data = bytes(3000);
    bench.run(&[put(&file), write(0, &data)]);
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Size]));
    let reads: Vec<_> = (0..6).map(|at| read(at * 500, 500)).collect();
    let mut operations = vec![put(&file)];
    operations.extend(&reads);
    operations.push(getattr);
    for chunks in [
        &[][..],
        &[Some(500)],
        &[Some(500), None, Some(1000)],
        &[None, Some(100)],
        &[Some(500); 4],
    ] {
        bench.limits.set(with_chunks(chunks));
        let results = bench.run(&operations);
        let (_, all) = results.read();
        for (at, result) in all[1..7].iter().enumerate() {
            let OperationResults::Read(Ok(reply)) = result else {
                panic!("{result:?}");
            };
            let room = chunks.get(at).copied().flatten().unwrap_or(500).min(500);
            let expected = &data[at * 500..][..room as usize];
            assert_eq!(reply.data.as_inline(), Some(expected), "{chunks:?} {at}");
        }
        assert_eq!(all.len(), 8);
        // Four stand beside the message; others are in it.
        assert_eq!(results.items.len(), 4);
    }
}

#[test]
fn v4_ulb_04_05_and_11_positions_follow_the_encoding() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    bench.run(&[put(&file), write(0, b"12345")]);
    bench.limits.set(with_chunks(&[Some(64)]));
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Size]));
    let results = bench.run(&[put(&file), read(0, 64), getattr]);
    // RPC header, COMPOUND header, SEQUENCE, PUTFH, then number, status, eof and length.
    assert_eq!(results.items[0].position, 24 + 12 + 44 + 8 + 16);
    assert_eq!(results.items[0].length, 5);
    assert_eq!(results.attribute(Number::Size), Attribute::Size(5));
    // A chunk that no READ used.
    let results = bench.run(&[put(&file), getattr]);
    assert!(results.items.is_empty());
    let bad = StateId {
        sequence: 1,
        other: [9; 12],
    };
    let results = bench.run(&[put(&file), read_at(bad, 0, 5), read(0, 5)]);
    assert_eq!(
        (results.status(), results.items.len()),
        (Status::BadStateId, 0)
    );
}

#[test]
fn v4_ulb_14_reads_are_cut_to_what_can_be_carried() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    bench.run(&[put(&file), write(0, &bytes(5000))]);
    let length = || bench.run(&[put(&file), read(0, 5000)]).data().0.len();
    bench.limits.set(with_chunks(&[Some(100)]));
    assert_eq!(length(), 100);
    bench.limits.set(Limits {
        message: 1024,
        ..LIMITS
    });
    assert_eq!(length(), 1024 - 24 - 12 - 44 - 8 - 16);
    bench.limits.set(Limits {
        apart: one_chunk(1 << 20),
        ..LIMITS
    });
    let mut bounds = Bench4::BOUNDS;
    bounds.reply = 2048;
    bench.state.bounds.set(bounds);
    assert_eq!(length(), 2048 - 24 - 12 - 44 - 8 - 16);
    // The data of a READ counts for those that follow.
    let operations = [put(&file), read(0, 5000), read(0, 5000)];
    assert_eq!(
        bench.statuses(&operations)[1..],
        [Status::Ok, Status::ReplyTooBig]
    );
}

#[test]
fn v4_sess_52_to_54_and_v4_ulb_13_data_of_a_cached_reply_goes_to_the_chunk_of_the_repetition() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    bench.run(&[put(&file), write(0, &bytes(300))]);
    bench.cache_this.set(true);
    let operations = [bench.next_sequence(), put(&file), read(0, 300)];
    bench.limits.set(with_chunks(&[Some(300)]));
    let first = bench.compound(&operations);
    bench.limits.set(LIMITS);
    let inline = bench.compound(&operations);
    assert_eq!(first.bytes, inline.bytes);
    // What finds no room is told to the transport, and stays.
    bench.limits.set(with_chunks(&[Some(200)]));
    let message = bench.compound_message(&operations);
    let (answer, _, _) = bench.send(&message, &[], &mut Chunks::default());
    assert!(matches!(answer, millrace::call::Answer::TooLarge(_)));
    bench.limits.set(with_chunks(&[Some(400)]));
    assert_eq!(bench.compound(&operations).bytes, first.bytes);
    assert_eq!(bench.state.finished.get(), 2);
}

#[test]
fn v4_open_01_to_09_files_are_opened_and_made() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let mut values = [0; 32];
    let mode = Attributes::build(&[Attribute::Mode(0o640)], &mut values).unwrap();
    let named = |create| {
        let claim = OpenClaim::Name(b"file");
        let getfh = Operation::Getfh(());
        bench.run(&[put(&root), open(share::BOTH, create, claim), getfh])
    };
    assert_eq!(named(None).status(), Status::NoEntry);
    let first = named(Some(CreateMode::Guarded(mode)));
    let reply = opened(&first, 1);
    assert_eq!(reply.attributes_set, Bitmap::of(&[Number::Mode]));
    assert!(reply.directory.atomic && reply.directory.after > reply.directory.before);
    assert_eq!(reply.delegation, OpenDelegation::None);
    let file = first.handle();
    assert_eq!(file, bench.walk("/export/file"));
    assert_eq!(
        named(Some(CreateMode::Guarded(mode))).status(),
        Status::Exists
    );
    // An existing file is taken as it is, but for a size of nothing.
    bench.run(&[put(&file), write(0, b"data")]);
    let again = named(Some(CreateMode::Unchecked(Attributes::NONE)));
    let reply = opened(&again, 1);
    assert_eq!(
        (again.handle(), reply.directory.before),
        (file.clone(), reply.directory.after)
    );
    let mut values = [0; 32];
    let both = [Attribute::Size(0), Attribute::Mode(0o600)];
    let empty = Attributes::build(&both, &mut values).unwrap();
    let truncated = named(Some(CreateMode::Unchecked(empty)));
    assert_eq!(
        opened(&truncated, 1).attributes_set,
        Bitmap::of(&[Number::Size])
    );
    let results = bench.getattr(&file, Bitmap::of(&[Number::Size, Number::Mode]));
    assert_eq!(results.attribute(Number::Size), Attribute::Size(0));
    assert_eq!(results.attribute(Number::Mode), Attribute::Mode(0o640));
    // By handle, and nothing is made that way.
    let current =
        |create| bench.statuses(&[put(&file), open(share::READ, create, OpenClaim::File)])[1];
    assert_eq!(current(None), Status::Ok);
    assert_eq!(current(Some(CreateMode::Unchecked(mode))), Status::Invalid);
    for claim in [
        OpenClaim::PreviousDelegatedName(b"file"),
        OpenClaim::PreviousDelegatedFile,
    ] {
        let statuses = bench.statuses(&[put(&root), open(share::READ, None, claim)]);
        assert_eq!(statuses[1], Status::NotSupported);
    }
    let reclaim = open(share::READ, None, OpenClaim::Previous(DelegationType::None));
    assert_eq!(bench.statuses(&[put(&file), reclaim])[1], Status::Ok);
}

#[test]
fn v4_open_08_to_10_exclusive_creates_are_repeated() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let mut values = [0; 32];
    let mode = Attributes::build(&[Attribute::Mode(0o640)], &mut values).unwrap();
    let make = |name, verifier: &[u8; 8], attributes| {
        let how = CreateMode::ExclusiveWithAttributes(ExclusiveCreate {
            verifier: *verifier,
            attributes,
        });
        bench.run(&[
            put(&root),
            open(share::BOTH, Some(how), OpenClaim::Name(name)),
        ])
    };
    let times = [Number::Mode, Number::TimeAccess, Number::TimeModify];
    for _ in 0..2 {
        let results = make(b"file", b"verifier", mode);
        assert_eq!(opened(&results, 1).attributes_set, Bitmap::of(&times));
        let found = bench.getattr(&bench.walk("/export/file"), Bitmap::of(&[Number::Mode]));
        assert_eq!(found.attribute(Number::Mode), Attribute::Mode(0o640));
    }
    assert_eq!(make(b"file", b"another!", mode).status(), Status::Exists);
    let mut values = [0; 32];
    let time = millrace_wire::nfs4::TimeToSet::Server;
    let time = Attributes::build(&[Attribute::TimeModifySet(time)], &mut values).unwrap();
    assert_eq!(make(b"other", b"verifier", time).status(), Status::Invalid);
    let how = CreateMode::Exclusive(*b"verifier");
    let claim = OpenClaim::Name(b"plain");
    let plain = bench.run(&[put(&root), open(share::BOTH, Some(how), claim)]);
    assert_eq!(opened(&plain, 1).attributes_set, Bitmap::of(&times[1..]));
}

#[test]
fn v4_open_13_14_31_and_33_opens_are_checked() {
    let bench = Bench4::with([rules("/a/export"), rules("/b")]);
    let root = bench.walk("/a/export");
    let make = |name: &'static [u8], object| {
        bench.run(&[put(&root), create(object, name, Attributes::NONE)]);
    };
    make(b"directory", NewObject::Directory);
    make(b"link", NewObject::Symlink(Bulk::inline(b"file")));
    make(b"fifo", NewObject::Fifo);
    let mut values = [0; 32];
    let mode = Attributes::build(&[Attribute::Mode(0o400)], &mut values).unwrap();
    let unchecked = Some(CreateMode::Unchecked(mode));
    let status = |handle: &[u8], access, create, name| {
        bench.statuses(&[put(handle), open(access, create, OpenClaim::Name(name))])[1]
    };
    for create in [None, unchecked] {
        for (name, expected) in [
            (&b"directory"[..], Status::IsDirectory),
            (b"link", Status::Symlink),
            (b"fifo", Status::WrongType),
            (b"", Status::Invalid),
            (b"..", Status::BadName),
            (b"a/b", Status::BadCharacter),
            (&[b'n'; 256], Status::NameTooLong),
        ] {
            assert_eq!(status(&root, share::READ, create, name), expected);
        }
    }
    for access in [0, 4, 8, 0x600, 0x4_0000, 0x20_0001] {
        assert_eq!(
            status(&root, access, None, b"file"),
            Status::Invalid,
            "{access}"
        );
    }
    for access in [1, 2, 3, 0x101, 0x403, 0x1_0001, 0x10_0001] {
        assert_eq!(status(&root, access, None, b"file"), Status::NoEntry);
    }
    // Whoever makes a file may write it, whatever its mode; others may not, nor later.
    bench.user.set(Some((7, 7)));
    assert_eq!(
        status(&root, share::BOTH, unchecked, b"file"),
        Status::AccessDenied
    );
    bench.user.set(Some((0, 0)));
    let mut values = [0; 32];
    let owner = [Attribute::Owner(b"7"), Attribute::Mode(0o400)];
    let owned = Attributes::build(&owner, &mut values).unwrap();
    let made = Some(CreateMode::Guarded(owned));
    assert_eq!(status(&root, share::BOTH, made, b"file"), Status::Ok);
    bench.user.set(Some((7, 7)));
    assert_eq!(status(&root, share::READ, None, b"file"), Status::Ok);
    assert_eq!(
        status(&root, share::BOTH, None, b"file"),
        Status::AccessDenied
    );
    bench.user.set(Some((8, 8)));
    assert_eq!(
        status(&root, share::READ, None, b"file"),
        Status::AccessDenied
    );
    // Folders above exports.
    bench.user.set(Some((0, 0)));
    let top = bench.walk("/");
    assert_eq!(status(&top, share::READ, None, b"a"), Status::IsDirectory);
    assert_eq!(status(&top, share::READ, None, b"x"), Status::NoEntry);
    assert_eq!(status(&top, share::READ, unchecked, b"x"), Status::ReadOnly);
    let read_only = Bench4::with([Rules {
        read_only: true,
        ..rules("/export")
    }]);
    read_only.file(b"file", 0o666);
    let handle = read_only.walk("/export");
    for (access, create, name, expected) in [
        (share::READ, None, &b"file"[..], Status::Ok),
        (share::BOTH, None, b"file", Status::ReadOnly),
        (share::READ, unchecked, b"new", Status::ReadOnly),
    ] {
        let operations = [put(&handle), open(access, create, OpenClaim::Name(name))];
        assert_eq!(read_only.statuses(&operations)[1], expected);
    }
}

#[test]
fn v4_comp_18_and_19_stateids_go_with_handles() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let other = bench.file(b"other", 0o644);
    bench.file(b"file", 0o644);
    let current = StateId::CURRENT;
    let opening = open(share::BOTH, None, OpenClaim::Name(b"file"));
    let close = Operation::Close(CloseOperation {
        sequence: 0,
        open: current,
    });
    let data = write_at(current, 0, Bulk::inline(b"data"));
    // Figure 4: what OPEN returns is current until CLOSE.
    let results = bench.run(&[put(&root), opening, data, read_at(current, 0, 4), close]);
    assert_eq!(results.status(), Status::Ok);
    let given = bench.state.checks.borrow()[0].0;
    assert_eq!(
        (given.sequence, given.other),
        (1, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0])
    );
    // Figure 6: a put makes it anonymous, which is no current stateid; nor is that of CLOSE.
    assert_eq!(
        bench.statuses(&[put(&other), read_at(current, 0, 1)])[1],
        Status::BadStateId
    );
    let statuses = bench.statuses(&[put(&root), opening, put(&other), read_at(current, 0, 1)]);
    assert_eq!(statuses[3], Status::BadStateId);
    let statuses = bench.statuses(&[put(&root), opening, close, read_at(current, 0, 1)]);
    assert_eq!(statuses[3], Status::BadStateId);
    // Figure 5: LOCK and LOCKU return others, and SAVEFH and RESTOREFH keep them.
    let lock = Operation::Lock(LockOperation {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: 1024,
        locker: Locker::New(NewLockOwner {
            open_sequence: 0,
            open: current,
            lock_sequence: 0,
            owner: StateOwner {
                client: 1,
                owner: BoundedBytes(b"locks"),
            },
        }),
    });
    let unlock = Operation::Locku(LockuOperation {
        kind: LockType::Write,
        sequence: 0,
        lock: current,
        offset: 0,
        length: 1024,
    });
    bench.state.checks.borrow_mut().clear();
    let results = bench.run(&[
        put(&root),
        opening,
        lock,
        read_at(current, 0, 1),
        unlock,
        Operation::Savefh(()),
        put(&other),
        write(0, b"x"),
        Operation::Restorefh(()),
        read_at(current, 0, 1),
    ]);
    assert_eq!(results.status(), Status::Ok);
    let sequences: Vec<_> = bench
        .state
        .checks
        .borrow()
        .iter()
        .map(|check| check.0.sequence)
        .collect();
    assert_eq!(sequences, [2, 0, 3]);
    // A lock in the way is told whole.
    bench.state.conflict.set(true);
    let results = bench.run(&[put(&root), opening, lock]);
    let (_, all) = results.read();
    let OperationResults::Lock(Err(failure)) = all[2] else {
        panic!("{all:?}");
    };
    let text = format!("{failure:?}");
    assert!(
        text.starts_with("Denied(ConflictingLock { offset: 1, length: 2"),
        "{text}"
    );
}

#[test]
fn v4_open_29_an_open_for_reading_does_not_write() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    bench.file(b"file", 0o644);
    let opening = open(share::READ, None, OpenClaim::Name(b"file"));
    let data = write_at(StateId::CURRENT, 0, Bulk::inline(b"data"));
    assert_eq!(
        bench.statuses(&[put(&root), opening, data])[2],
        Status::OpenMode
    );
    let mut values = [0; 16];
    let size = Attributes::build(&[Attribute::Size(1)], &mut values).unwrap();
    let set = Operation::Setattr(millrace_wire::nfs4::SetattrOperation {
        state: StateId::CURRENT,
        attributes: size,
    });
    assert_eq!(
        bench.statuses(&[put(&root), opening, set])[2],
        Status::OpenMode
    );
}
