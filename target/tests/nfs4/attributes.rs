//! GETATTR, SETATTR, VERIFY, NVERIFY and ACCESS.

use millrace::exports::{Exports, Rules};
use millrace::nfs4::SessionBounds;
use millrace_store::{Namespace, Store, Time};
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, FileSystemId, MaskedMode, ObjectType,
    OpenArguments, Operation, OperationResults, OperationStatus as Status, SetattrOperation,
    SetattrReply, StateId, TimeToSet, Timestamp, access_bits,
};

use crate::support;
use crate::support::nfs4::{Bench4, make_directory, put, set};
use crate::support::{ready, rules};

/// All numbers that can be asked for.
fn all() -> Bitmap {
    let mut all = Bitmap::from_words([u32::MAX; 3]);
    all = all.without(&Bitmap::of(&[Number::TimeAccessSet, Number::TimeModifySet]));
    all
}

fn build<'v>(attributes: &[Attribute<'_>], values: &'v mut [u8]) -> Attributes<'v> {
    Attributes::build(attributes, values).unwrap()
}

fn status_of_set(bench: &Bench4, handle: &[u8], attributes: &[Attribute<'_>]) -> Status {
    let mut values = [0; 256];
    let operation = set(build(attributes, &mut values));
    bench.statuses(&[put(handle), operation])[1]
}

#[test]
fn v4_attr_01_what_is_supported_is_what_is_returned() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    for minor_version in [1, 2] {
        bench.minor_version.set(minor_version);
        for handle in [&file, &bench.walk("/export"), &bench.walk("/")] {
            let results = bench.getattr(handle, all());
            let attributes = results.attributes();
            let Some(Attribute::SupportedAttributes(supported)) =
                attributes.get(Number::SupportedAttributes).unwrap()
            else {
                panic!("not told");
            };
            let set_only = Bitmap::of(&[
                Number::TimeAccessSet,
                Number::TimeModifySet,
                Number::ModeSetMasked,
            ]);
            assert_eq!(attributes.mask, supported.without(&set_only));
            for number in Bitmap::of(&[Number::Type, Number::Handle, Number::FileId]).iter() {
                assert!(supported.contains(number));
            }
            assert_eq!(supported.has(Number::ChangeType), minor_version == 2);
        }
    }
}

#[test]
fn v4_attr_02_unknown_attributes_are_left_out() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let values = bench.getattr(&root, all());
    // Each value decodes, in ascending order, and nothing is left over.
    let numbers: Vec<_> = values
        .attributes()
        .iter()
        .map(|attribute| attribute.unwrap().number().number())
        .collect();
    assert!(numbers.is_sorted());
    assert!(
        bench
            .getattr(&root, Bitmap::EMPTY)
            .attributes()
            .mask
            .is_empty()
    );
    // Beyond 95.
    let mut message = bench.compound_message(&[
        bench.next_sequence(),
        put(&root),
        Operation::Getattr(Bitmap::of(&[Number::Type])),
    ]);
    message.truncate(message.len() - 8);
    for word in [8_u32, 2, 0, 0, 0, u32::MAX, 0, 0, 1] {
        message.extend(word.to_be_bytes());
    }
    let results = bench.results(&message);
    assert_eq!(results.attributes().mask, Bitmap::of(&[Number::Type]));
    bench.minor_version.set(1);
    let asked = [
        Number::ChangeType,
        Number::XattrSupport,
        Number::OpenArguments,
    ];
    let asked = Bitmap::of(&asked);
    assert!(bench.getattr(&root, asked).attributes().mask.is_empty());
}

#[test]
fn v4_attr_29_clients_are_told_what_open_accepts() {
    let bench = Bench4::new();
    let set = |numbers: &[u32]| {
        let bits = numbers.iter().fold(0, |bits, number| bits | 1 << number);
        Bitmap::from_words([bits, 0, 0])
    };
    let root = bench.walk("/export");
    let told = bench.getattr(&root, Bitmap::of(&[Number::OpenArguments]));
    let expected = OpenArguments {
        access: set(&[1, 2, 3]),
        deny: set(&[0, 1, 2, 3]),
        wishes: set(&[3, 4, 5]),
        claims: set(&[0, 1, 2, 4, 5]),
        creation: set(&[0, 1, 2, 3]),
    };
    let told = told.attribute(Number::OpenArguments);
    assert_eq!(told, Attribute::OpenArguments(expected));
}

#[test]
fn v4_attr_03_set_only_attributes_cannot_be_read() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    for number in [Number::TimeAccessSet, Number::TimeModifySet] {
        let asked = Bitmap::of(&[Number::Type, number]);
        assert_eq!(bench.getattr(&root, asked).status(), Status::Invalid);
        let listing = Operation::Readdir(support::nfs4::list(asked));
        assert_eq!(bench.statuses(&[put(&root), listing])[1], Status::Invalid);
        let mut values = [0; 64];
        let time = TimeToSet::Server;
        let given = match number {
            Number::TimeAccessSet => Attribute::TimeAccessSet(time),
            _ => Attribute::TimeModifySet(time),
        };
        let given = build(&[given], &mut values);
        for operation in [Operation::Verify(given), Operation::Nverify(given)] {
            assert_eq!(bench.statuses(&[put(&root), operation])[1], Status::Invalid);
        }
    }
}

#[test]
fn v4_attr_04_and_05_what_cannot_be_set_is_refused_whole() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    for (attribute, status) in [
        (Attribute::Change(1), Status::Invalid),
        (Attribute::Type(ObjectType::Directory), Status::Invalid),
        (Attribute::Links(3), Status::Invalid),
        (
            Attribute::TimeCreate(Timestamp {
                seconds: 1,
                nanoseconds: 0,
            }),
            Status::AttributeNotSupported,
        ),
        (Attribute::CloneBlockSize(1), Status::Invalid),
    ] {
        let mut values = [0; 256];
        let both = build(&[Attribute::Mode(0o600), attribute], &mut values);
        let results = bench.run(&[put(&file), set(both)]);
        let (header, all) = results.read();
        assert_eq!(header.status, status, "{attribute:?}");
        let reply = SetattrReply {
            status,
            set: Bitmap::EMPTY,
        };
        assert_eq!(all[1], OperationResults::Setattr(reply));
        assert_eq!(attribute_of(&bench, &file, Number::Mode), "Mode(420)");
    }
    let mut values = [0; 64];
    let mode = build(&[Attribute::Mode(0o600)], &mut values);
    let results = bench.run(&[put(&file), set(mode)]);
    let reply = SetattrReply {
        status: Status::Ok,
        set: Bitmap::of(&[Number::Mode]),
    };
    assert_eq!(results.last(), OperationResults::Setattr(reply));
    assert_eq!(attribute_of(&bench, &file, Number::Mode), "Mode(384)");
    // Values that are cut short.
    let cut = Attributes {
        mask: Bitmap::of(&[Number::Mode, Number::Size]),
        values: &[0; 8],
    };
    assert_eq!(bench.statuses(&[put(&file), set(cut)])[1], Status::BadXdr);
}

fn attribute_of(bench: &Bench4, handle: &[u8], number: Number) -> String {
    let results = bench.getattr(handle, Bitmap::of(&[number]));
    format!("{:?}", results.attribute(number))
}

#[test]
fn v4_attr_06_stateids_are_checked_before_anything_is_set() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut values = [0; 64];
    let size = build(&[Attribute::Size(10)], &mut values);
    let unknown = StateId {
        sequence: 1,
        other: [1; 12],
    };
    let with = |state, attributes| Operation::Setattr(SetattrOperation { state, attributes });
    assert_eq!(
        bench.statuses(&[put(&file), with(unknown, size)])[1],
        Status::BadStateId
    );
    assert_eq!(attribute_of(&bench, &file, Number::Size), "Size(0)");
    assert_eq!(
        bench.statuses(&[put(&file), with(StateId::CURRENT, size)])[1],
        Status::BadStateId
    );
    assert_eq!(bench.statuses(&[put(&file), set(size)])[1], Status::Ok);
    assert_eq!(attribute_of(&bench, &file, Number::Size), "Size(10)");
    // A size is for files.
    let root = bench.walk("/export");
    assert_eq!(
        bench.statuses(&[put(&root), set(size)])[1],
        Status::IsDirectory
    );
}

#[test]
fn v4_attr_09_file_systems_differ() {
    let bench = Bench4::with([rules("/a"), rules("/b")]);
    let file_system = |path: &str| -> FileSystemId {
        let results = bench.getattr(&bench.walk(path), Bitmap::of(&[Number::FileSystem]));
        match results.attribute(Number::FileSystem) {
            Attribute::FileSystem(found) => found,
            other => panic!("{other:?}"),
        }
    };
    let all = [file_system("/"), file_system("/a"), file_system("/b")];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
}

#[test]
fn v4_attr_10_exclusive_creates_set_what_does_not_hold_the_verifier() {
    let bench = Bench4::new();
    let results = bench.getattr(
        &bench.walk("/export"),
        Bitmap::of(&[
            Number::SupportedAttributes,
            Number::ExclusiveCreateAttributes,
        ]),
    );
    let attributes = results.attributes();
    let (
        Some(Attribute::SupportedAttributes(supported)),
        Some(Attribute::ExclusiveCreateAttributes(exclusive)),
    ) = (
        attributes.get(Number::SupportedAttributes).unwrap(),
        attributes.get(Number::ExclusiveCreateAttributes).unwrap(),
    )
    else {
        panic!("not told");
    };
    assert!(exclusive.without(&supported).is_empty() && exclusive.has(Number::Mode));
    assert!(!exclusive.has(Number::TimeAccessSet) && !exclusive.has(Number::TimeModifySet));
}

#[test]
fn v4_attr_12_and_13_leases_and_bounds_are_told() {
    let bench = Bench4::new();
    let root = bench.walk("/");
    assert_eq!(
        attribute_of(&bench, &root, Number::LeaseTime),
        "LeaseTime(90)"
    );
    assert_eq!(
        attribute_of(&bench, &root, Number::MaxRead),
        "MaxRead(1048576)"
    );
    bench.state.bounds.set(SessionBounds {
        request: 65_536 + 1024,
        reply: 32_768 + 256,
        cached: None,
    });
    assert_eq!(
        attribute_of(&bench, &root, Number::MaxRead),
        "MaxRead(32768)"
    );
    assert_eq!(
        attribute_of(&bench, &root, Number::MaxWrite),
        "MaxWrite(65536)"
    );
}

#[test]
fn v4_attr_14_owners_are_numbers() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let both = [
        Attribute::Owner(b"1000"),
        Attribute::OwnerGroup(b"4294967294"),
    ];
    assert_eq!(status_of_set(&bench, &file, &both), Status::Ok);
    let results = bench.getattr(&file, Bitmap::of(&[Number::Owner, Number::OwnerGroup]));
    assert_eq!(results.attribute(Number::Owner), both[0]);
    assert_eq!(results.attribute(Number::OwnerGroup), both[1]);
    for owner in [
        &b"root"[..],
        b"",
        b"01",
        b"-1",
        b"4294967295",
        b"root@domain",
    ] {
        let attributes = [Attribute::Mode(0), Attribute::Owner(owner)];
        assert_eq!(status_of_set(&bench, &file, &attributes), Status::BadOwner);
    }
    assert_eq!(attribute_of(&bench, &file, Number::Mode), "Mode(420)");
}

#[test]
fn v4_attr_16_modes_have_twelve_bits() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let masked = |value, mask| Attribute::ModeSetMasked(MaskedMode { value, mask });
    for attributes in [
        &[Attribute::Mode(0o10000)][..],
        &[masked(0o10000, 0)],
        &[masked(0, 0o10000)],
        &[Attribute::Mode(0), masked(0, 0)],
    ] {
        assert_eq!(status_of_set(&bench, &file, attributes), Status::Invalid);
    }
    let change = [masked(0o4022, 0o4066)];
    assert_eq!(status_of_set(&bench, &file, &change), Status::Ok);
    assert_eq!(
        attribute_of(&bench, &file, Number::Mode),
        format!("Mode({})", 0o4622)
    );
}

#[test]
fn v4_attr_18_times_are_set() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let time = |seconds, nanoseconds| {
        TimeToSet::Client(Timestamp {
            seconds,
            nanoseconds,
        })
    };
    let both = [
        Attribute::TimeAccessSet(time(1, 999_999_999)),
        Attribute::TimeModifySet(time(5_000_000_000, 7)),
    ];
    assert_eq!(status_of_set(&bench, &file, &both), Status::Ok);
    let results = bench.getattr(&file, Bitmap::of(&[Number::TimeAccess, Number::TimeModify]));
    for (number, seconds, nanoseconds) in [
        (Number::TimeAccess, 1, 999_999_999),
        (Number::TimeModify, 5_000_000_000, 7),
    ] {
        let expected = Timestamp {
            seconds,
            nanoseconds,
        };
        let (Attribute::TimeAccess(found) | Attribute::TimeModify(found)) =
            results.attribute(number)
        else {
            panic!("no time");
        };
        assert_eq!(found, expected);
    }
    let wrong = [Attribute::TimeAccessSet(time(1, 1_000_000_000))];
    assert_eq!(status_of_set(&bench, &file, &wrong), Status::Invalid);
    let now = [Attribute::TimeModifySet(TimeToSet::Server)];
    assert_eq!(status_of_set(&bench, &file, &now), Status::Ok);
}

#[test]
fn v4_attr_19_attributes_are_compared() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut values = [0; 128];
    let same = build(
        &[Attribute::Type(ObjectType::Regular), Attribute::Size(0)],
        &mut values,
    );
    let mut values = [0; 128];
    let other = build(
        &[Attribute::Type(ObjectType::Regular), Attribute::Size(1)],
        &mut values,
    );
    let mut values = [0; 128];
    let created = Timestamp {
        seconds: 1,
        nanoseconds: 0,
    };
    let unserved = build(&[Attribute::TimeCreate(created)], &mut values);
    let mut values = [0; 128];
    let error = build(&[Attribute::ReadError(Status::Ok)], &mut values);
    for (given, verify, nverify) in [
        (same, Status::Ok, Status::Same),
        (other, Status::NotSame, Status::Ok),
        (
            unserved,
            Status::AttributeNotSupported,
            Status::AttributeNotSupported,
        ),
        (error, Status::Invalid, Status::Invalid),
    ] {
        assert_eq!(
            bench.statuses(&[put(&file), Operation::Verify(given)])[1],
            verify
        );
        assert_eq!(
            bench.statuses(&[put(&file), Operation::Nverify(given)])[1],
            nverify
        );
    }
}

#[test]
fn v4_attr_20_no_error_is_told_by_getattr() {
    let bench = Bench4::new();
    let found = attribute_of(&bench, &bench.walk("/export"), Number::ReadError);
    assert_eq!(found, "ReadError(Ok)");
}

#[test]
fn v4_attr_26_access_tells_what_it_knows_and_grants() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let ask = |handle: &[u8]| {
        let results = bench.run(&[put(handle), Operation::Access(u32::MAX)]);
        match results.last() {
            OperationResults::Access(Ok(reply)) => (reply.supported, reply.access),
            other => panic!("{other:?}"),
        }
    };
    let write = access_bits::MODIFY | access_bits::EXTEND;
    let reads = access_bits::READ | access_bits::XATTR_READ | access_bits::XATTR_LIST;
    let changes = write | access_bits::XATTR_WRITE;
    assert_eq!(ask(&file), (0x1ff, reads | changes));
    bench.user.set(Some((7, 7)));
    assert_eq!(ask(&file), (0x1ff, reads));
    let folder = access_bits::READ | access_bits::LOOKUP;
    assert_eq!(ask(&bench.walk("/")), (0x3f, folder));
    let read_only = Bench4::with([Rules {
        read_only: true,
        ..rules("/export")
    }]);
    let root = read_only.walk("/export");
    let results = read_only.run(&[put(&root), Operation::Access(0x1f)]);
    let OperationResults::Access(Ok(reply)) = results.last() else {
        panic!("refused");
    };
    assert_eq!((reply.supported, reply.access), (0x1f, folder));
}

#[test]
fn v4_fs_02_pseudo_folders_take_no_changes() {
    let bench = Bench4::with([rules("/a/b")]);
    let mut values = [0; 64];
    let mode = build(&[Attribute::Mode(0)], &mut values);
    for operation in [make_directory(b"new"), set(mode), Operation::Remove(b"b")] {
        assert_eq!(
            bench.statuses(&[put(&bench.walk("/a")), operation])[1],
            Status::ReadOnly
        );
    }
}

#[test]
fn v4_fs_05_roots_of_exports_tell_what_they_cover() {
    let bench = Bench4::with([rules("/a"), rules("/a/in"), rules("/b/c")]);
    let number = |path: &str, number: Number| attribute_of(&bench, &bench.walk(path), number);
    // In a pseudo folder it is the number of the folder of that name, in an export that of the
    // directory there, where there is one.
    assert_ne!(
        number("/b/c", Number::MountedOnFileId)[7..],
        number("/b/c", Number::FileId)
    );
    let outer = bench
        .exports
        .table()
        .iter()
        .find(|export| export.rules.path == "/a")
        .unwrap()
        .store
        .clone();
    let made = ready(outer.make_directory(
        &millrace_store::Caller::SUPERUSER,
        outer.root(),
        b"in",
        &millrace_store::SetAttributes::default(),
    ));
    let (_, covered) = made.result.unwrap();
    assert_eq!(
        number("/a/in", Number::MountedOnFileId),
        format!("MountedOnFileId({})", covered.inode)
    );
    let file = number("/a", Number::FileId);
    assert_ne!(
        number("/a", Number::MountedOnFileId),
        file.replace("FileId", "MountedOnFileId")
    );
}

#[test]
fn v4_fs_06_folders_change_with_the_exports() {
    let bench = Bench4::with([rules("/a"), rules("/b")]);
    let root = bench.walk("/");
    let change = || {
        let results = bench.getattr(&root, Bitmap::of(&[Number::Change]));
        match results.attribute(Number::Change) {
            Attribute::Change(change) => change,
            other => panic!("{other:?}"),
        }
    };
    let before = change();
    assert_eq!(change(), before);
    let mut later = bench.exports.table().made();
    later.seconds += 1;
    let table = Exports::new([(rules("/b"), bench.stores[1].clone())]).unwrap();
    bench.exports.replace(table.made_at(later));
    assert!(change() > before);
    let zero = Time::default();
    let table = Exports::new([(rules("/b"), bench.stores[1].clone())]).unwrap();
    assert_eq!(table.made_at(zero).made(), zero);
}
