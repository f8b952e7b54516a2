//! What changes tell about themselves: change numbers of objects and directories, results of OPEN.

use millrace::exports::Rules;
use millrace_wire::nfs3::Stability;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, ChangeInfo, CreateMode,
    LockOperation, LockType, Locker, NewLockOwner, NoDelegation, OpenClaim, OpenDelegation,
    OpenOperation, Operation, OperationResults, OperationStatus, ReadOperation, RenameOperation,
    SpaceLimit, StateId, StateOwner, WriteOperation, change_type, open_flags, share,
};
use millrace_wire::xdr::{BoundedBytes, Bulk};

use crate::support;
use crate::support::callback_client::{CallbackClient, CallbackWorld, SessionWish, callback_user};
use crate::support::nfs4::{Bench4, make_directory, put, set};
use crate::support::rules;

const OK: OperationStatus = OperationStatus::Ok;

fn change(bench: &Bench4, handle: &[u8]) -> u64 {
    let results = bench.getattr(handle, Bitmap::of(&[Number::Change]));
    match results.attribute(Number::Change) {
        Attribute::Change(change) => change,
        other => panic!("{other:?}"),
    }
}

fn write(state: StateId, offset: u64) -> Operation<'static> {
    Operation::Write(WriteOperation {
        state,
        offset,
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
fn v4_attr_07_each_change_has_a_number_of_its_own() {
    let bench = Bench4::new();
    let (file, root) = (bench.file(b"file", 0o644), bench.walk("/export"));
    let mut last = change(&bench, &file);
    let mut grows = |what: &str| {
        let now = change(&bench, &file);
        assert!(now > last, "{what}: {now} after {last}");
        last = now;
    };
    // More than a clock tells apart, some of which change nothing but the number.
    for _ in 0..1000 {
        assert_eq!(
            bench.statuses(&[put(&file), write(StateId::ANONYMOUS, 0)])[1],
            OK
        );
        grows("write");
    }
    let mut room = [0; 64];
    for attribute in [
        Attribute::Mode(0o600),
        Attribute::Mode(0o600),
        Attribute::Size(2),
    ] {
        let given = Attributes::build(&[attribute], &mut room).unwrap();
        assert_eq!(bench.statuses(&[put(&file), set(given)])[1], OK);
        grows("attribute");
    }
    let entries = [
        vec![put(&root), make_directory(b"directory")],
        vec![
            put(&root),
            Operation::Savefh(()),
            Operation::Rename(RenameOperation {
                from: b"directory",
                to: b"renamed",
            }),
        ],
        vec![put(&root), Operation::Remove(b"renamed")],
    ];
    for operations in entries {
        let before = change(&bench, &root);
        assert!(
            bench
                .statuses(&operations)
                .iter()
                .all(|status| *status == OK)
        );
        assert!(change(&bench, &root) > before);
    }
    // Who only looks changes nothing.
    let before = change(&bench, &file);
    bench.run(&[put(&file), read(StateId::ANONYMOUS)]);
    assert_eq!(change(&bench, &file), before);
}

#[test]
fn v4_attr_08_and_v4_attr_11_and_v4_attr_21_stores_tell_what_their_numbers_and_handles_are() {
    let bench = Bench4::new();
    let wanted = Bitmap::of(&[
        Number::ChangeType,
        Number::HandleExpiry,
        Number::SupportedAttributes,
    ]);
    for (path, kind) in [
        ("/export", change_type::MONOTONIC),
        ("/", change_type::TIME_METADATA),
    ] {
        let results = bench.getattr(&bench.walk(path), wanted);
        assert_eq!(
            results.attribute(Number::ChangeType),
            Attribute::ChangeType(kind)
        );
        let persistent = Attribute::HandleExpiry(0);
        assert_eq!(results.attribute(Number::HandleExpiry), persistent);
        let Attribute::SupportedAttributes(all) = results.attribute(Number::SupportedAttributes)
        else {
            panic!("no attributes")
        };
        // No locations, so that no client looks for other addresses.
        assert!(!all.contains(24));
    }
}

/// What the last result tells about the directory.
fn directory(results: &support::nfs4::Results4) -> ChangeInfo {
    match results.last() {
        OperationResults::Create(Ok(reply)) => reply.directory,
        OperationResults::Remove(Ok(info)) | OperationResults::Link(Ok(info)) => info,
        OperationResults::Open(Ok(reply)) => reply.directory,
        other => panic!("{other:?}"),
    }
}

fn open(access: u32, create: Option<CreateMode<'static>>) -> Operation<'static> {
    Operation::Open(OpenOperation {
        sequence: 0,
        access,
        deny: 0,
        owner: StateOwner {
            client: 0,
            owner: BoundedBytes(b"owner"),
        },
        create,
        claim: OpenClaim::Name(b"opened"),
    })
}

#[test]
fn v4_name_19_and_v4_open_11_changes_of_a_directory_follow_each_other() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let create = Some(CreateMode::Unchecked(Attributes::NONE));
    let mut last = change(&bench, &root);
    for operation in [
        make_directory(b"a"),
        open(share::BOTH, create),
        make_directory(b"b"),
        Operation::Remove(b"a"),
    ] {
        let info = directory(&bench.run(&[put(&root), operation]));
        assert!(info.atomic);
        assert_eq!(info.before, last);
        assert!(info.after > info.before);
        assert_eq!(info.after, change(&bench, &root));
        last = info.after;
    }
    // Without creation nothing has changed.
    for create in [None, create] {
        let info = directory(&bench.run(&[put(&root), open(share::BOTH, create)]));
        assert_eq!((info.before, info.after), (last, last));
    }
}

#[test]
fn v4_open_12_flags_tell_what_the_session_can_do() {
    let world = CallbackWorld::new();
    let security = [callback_user()];
    let calls = SessionWish::linux(&security);
    let deaf = SessionWish { flags: 0, ..calls };
    for (owner, wish, notifies) in [(&b"calls"[..], calls, true), (b"deaf", deaf, false)] {
        let client = world.client_with(owner, wish);
        let file = world.open(&client, owner, share::BOTH | share::WANT_NONE);
        let flags = file.unwrap().flags;
        assert_eq!(flags & open_flags::MAY_NOTIFY_LOCK != 0, notifies);
        let others = flags & !open_flags::MAY_NOTIFY_LOCK;
        assert_eq!(others, open_flags::POSIX_LOCKS);
    }
}

/// Why there is no delegation; `None` if no reason is told.
fn reason(
    world: &CallbackWorld,
    client: &CallbackClient,
    name: &[u8],
    access: u32,
) -> Result<Option<NoDelegation>, OperationStatus> {
    world.try_open(client, (name, b"owner"), access, |_, reply| {
        match reply.delegation {
            OpenDelegation::NoneBecause(reason) => Some(reason),
            OpenDelegation::None => None,
            ref other => panic!("{other:?}"),
        }
    })
}

#[test]
fn v4_open_32_reasons_are_told_to_who_wants_a_delegation() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let security = [callback_user()];
    let deaf = world.client_with(
        b"deaf",
        SessionWish {
            flags: 0,
            ..SessionWish::linux(&security)
        },
    );
    let why = |client, name: &[u8], access| reason(&world, client, name, access);
    let both = share::BOTH;
    let not_wanted = why(&client, b"a", both | share::WANT_NONE);
    assert_eq!(not_wanted, Ok(Some(NoDelegation::NotWanted)));
    let cancelled = why(&client, b"a", both | share::WANT_CANCEL);
    assert_eq!(cancelled, Ok(Some(NoDelegation::Cancelled)));
    let contended = why(&deaf, b"a", both);
    assert_eq!(contended, Ok(None));
    let contended = why(&client, b"a", both | share::WANT_WRITE);
    assert_eq!(contended, Ok(Some(NoDelegation::Contention(false))));
    let resource = why(&deaf, b"b", both | share::WANT_ANY);
    assert_eq!(resource, Ok(Some(NoDelegation::Resource(false))));
    for undefined in [0x600, 0x700, 0xff00] {
        let refused = why(&client, b"c", both | undefined);
        assert_eq!(refused, Err(OperationStatus::Invalid), "{undefined:#x}");
    }
}

#[test]
fn v4_deleg_06_a_delegation_grants_no_user_anything_and_all_space() {
    let world = CallbackWorld::new();
    let client = world.client(b"client");
    let shown = |access, name: &[u8]| {
        world.try_open(&client, (name, b"owner"), access, |_, reply| {
            let (entry, space) = match &reply.delegation {
                OpenDelegation::Read(read) => (read.permissions, None),
                OpenDelegation::Write(write) => (write.permissions, Some(write.space)),
                other => panic!("{other:?}"),
            };
            assert_eq!((entry.mask, entry.who), (0, &b""[..]));
            space
        })
    };
    let read = shown(share::READ | share::WANT_READ, b"read").unwrap();
    assert_eq!(read, None);
    let write = shown(share::BOTH | share::WANT_WRITE, b"written").unwrap();
    assert_eq!(write, Some(SpaceLimit::Size(u64::MAX)));
}

#[test]
fn v4_lock_15_locks_of_bytes_hinder_nobody_who_reads_or_writes() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    let access = share::BOTH | share::WANT_NONE;
    let (held, other) = (
        world.open(&one, b"file", access).unwrap(),
        world.open(&two, b"file", access).unwrap(),
    );
    let lock = Operation::Lock(LockOperation {
        kind: LockType::Write,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker::New(NewLockOwner {
            open_sequence: 0,
            open: held.state,
            lock_sequence: 0,
            owner: StateOwner {
                client: one.id,
                owner: BoundedBytes(b"locker"),
            },
        }),
    });
    assert_eq!(world.status(&one, &[put(&held.handle), lock]), OK);
    for state in [other.state, StateId::ANONYMOUS] {
        let operations = [put(&other.handle), write(state, 0), read(state)];
        assert_eq!(world.statuses(&two, &operations), [OK; 3]);
    }
}

#[test]
fn v4_name_21_open_files_are_renamed_and_removed_whatever_they_deny() {
    let world = CallbackWorld::new();
    let (one, two) = (world.client(b"one"), world.client(b"two"));
    let (root, export) = (Operation::Putrootfh(()), Operation::Lookup(b"export"));
    let open = Operation::Open(OpenOperation {
        sequence: 0,
        access: share::BOTH | share::WANT_NONE,
        deny: share::BOTH,
        owner: StateOwner {
            client: one.id,
            owner: BoundedBytes(b"owner"),
        },
        create: Some(CreateMode::Unchecked(Attributes::NONE)),
        claim: OpenClaim::Name(b"file"),
    });
    let opened = world.run(&one, &[root, export, open]);
    let OperationResults::Open(Ok(reply)) = opened.last() else {
        panic!("not open")
    };
    let rename = Operation::Rename(RenameOperation {
        from: b"file",
        to: b"renamed",
    });
    let renamed = [root, export, Operation::Savefh(()), rename];
    assert_eq!(world.status(&two, &renamed), OK);
    let written = [
        root,
        export,
        Operation::Lookup(b"renamed"),
        write(reply.open, 0),
    ];
    assert_eq!(world.status(&one, &written), OK);
    assert_eq!(
        world.status(&two, &[root, export, Operation::Remove(b"renamed")]),
        OK
    );
}

#[test]
fn v4_sec_04_a_session_used_from_elsewhere_gets_the_refusal_of_the_export() {
    let inside = Rules {
        clients: vec!["192.0.2.0/24".parse().unwrap()],
        ..rules("/inside")
    };
    let bench = Bench4::with([inside, rules("/outside")]);
    let handle = bench.walk("/inside");
    for _ in 0..2 {
        bench.call_from("198.51.100.1");
        assert_eq!(bench.statuses(&[put(&handle)]), [OperationStatus::Stale]);
        assert_eq!(bench.try_walk("/inside"), Err(OperationStatus::NoEntry));
        assert!(bench.try_walk("/outside").is_ok());
        bench.call_from("192.0.2.9");
        assert_eq!(bench.statuses(&[put(&handle)]), [OK]);
    }
}
