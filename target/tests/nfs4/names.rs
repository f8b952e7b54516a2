//! CREATE, REMOVE, RENAME, LINK, READDIR, READLINK and SECINFO.

use millrace::access::Security;
use millrace::call::one_chunk;
use millrace::exports::Rules;
use millrace_store::{Namespace, Store};
use millrace_wire::nfs3::Device;
use millrace_wire::nfs4::{
    Attribute, AttributeNumber as Number, Attributes, Bitmap, ChangeInfo, NewObject, ObjectType,
    Operation, OperationResults, OperationStatus as Status, ReaddirOperation, RenameOperation,
};
use millrace_wire::xdr::Bulk;

use crate::support;
use crate::support::nfs4::{Bench4, create, list, make_directory, put};
use crate::support::{Chunks, LIMITS, ready, rules};

fn change_of(bench: &Bench4, handle: &[u8]) -> u64 {
    let results = bench.getattr(handle, Bitmap::of(&[Number::Change]));
    match results.attribute(Number::Change) {
        Attribute::Change(change) => change,
        other => panic!("{other:?}"),
    }
}

/// Makes an object in the export and returns its handle.
fn made(bench: &Bench4, name: &[u8], object: NewObject<'_>) -> Vec<u8> {
    let root = bench.walk("/export");
    let operations = [
        put(&root),
        create(object, name, Attributes::NONE),
        Operation::Getfh(()),
    ];
    bench.run(&operations).handle()
}

/// The status of an operation in the root of the export.
fn in_root(bench: &Bench4, operation: Operation<'_>) -> Status {
    bench.statuses(&[put(&bench.walk("/export")), operation])[1]
}

#[test]
fn v4_name_05_look_ups_in_other_objects_fail() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let link = made(&bench, b"link", NewObject::Symlink(Bulk::inline(b"file")));
    let lookup = Operation::Lookup(b"name");
    assert_eq!(
        bench.statuses(&[put(&file), lookup])[1],
        Status::NotDirectory
    );
    assert_eq!(bench.statuses(&[put(&link), lookup])[1], Status::Symlink);
    assert_eq!(
        bench.statuses(&[put(&file), Operation::Lookupp(())])[1],
        Status::NotDirectory
    );
    assert_eq!(
        bench.statuses(&[put(&link), Operation::Lookupp(())])[1],
        Status::Symlink
    );
    let closed = made(&bench, b"closed", NewObject::Directory);
    let mut values = [0; 8];
    let mode = Attributes::build(&[Attribute::Mode(0)], &mut values).unwrap();
    bench.run(&[put(&closed), support::nfs4::set(mode)]);
    bench.user.set(Some((7, 7)));
    assert_eq!(
        bench.statuses(&[put(&closed), lookup])[1],
        Status::AccessDenied
    );
}

#[test]
fn v4_name_07_to_12_directories_are_listed() {
    let bench = Bench4::new();
    let names: Vec<String> = (0..40).map(|at| format!("file{at}")).collect();
    for name in &names {
        bench.file(name.as_bytes(), 0o644);
    }
    let root = bench.walk("/export");
    let wanted = Bitmap::of(&[Number::Type, Number::Handle, Number::FileId]);
    let mut arguments = ReaddirOperation {
        maxcount: 700,
        ..list(wanted)
    };
    let mut found = Vec::new();
    loop {
        let results = bench.run(&[put(&root), Operation::Readdir(arguments)]);
        let OperationResults::Readdir(Ok(listed)) = results.last() else {
            panic!("{results:?}");
        };
        for entry in listed.entries.iter() {
            assert!(entry.cookie > 2);
            let kind = entry.attributes.get(Number::Type).unwrap();
            assert_eq!(kind, Some(Attribute::Type(ObjectType::Regular)));
            let Some(Attribute::Handle(handle)) = entry.attributes.get(Number::Handle).unwrap()
            else {
                panic!("no handle");
            };
            assert_eq!(bench.statuses(&[put(handle.0)]), [Status::Ok]);
            found.push(String::from_utf8(entry.name.to_vec()).unwrap());
            arguments.cookie = entry.cookie;
        }
        arguments.verifier = listed.verifier;
        assert!(!listed.entries.is_empty() || listed.eof);
        if listed.eof {
            break;
        }
    }
    assert_eq!(found, names);
    // The bounds of the client.
    let status = |maxcount, dircount| {
        let arguments = ReaddirOperation {
            maxcount,
            dircount,
            ..list(wanted)
        };
        in_root(&bench, Operation::Readdir(arguments))
    };
    assert_eq!(status(0, 0), Status::TooSmall);
    assert_eq!(status(60, 0), Status::TooSmall);
    assert_eq!(status(1000, 1), Status::Ok);
    // Cookies that were never given, and a verifier of another time.
    let cookie = |cookie, verifier| {
        let arguments = ReaddirOperation {
            cookie,
            verifier,
            ..list(wanted)
        };
        in_root(&bench, Operation::Readdir(arguments))
    };
    assert_eq!(cookie(1, arguments.verifier), Status::BadCookie);
    assert_eq!(cookie(2, arguments.verifier), Status::BadCookie);
    assert_eq!(cookie(5, [9; 8]), Status::NotSame);
    let file = bench.file(b"file", 0o644);
    let listing = Operation::Readdir(list(wanted));
    assert_eq!(
        bench.statuses(&[put(&file), listing])[1],
        Status::NotDirectory
    );
}

/// The names and attributes of a listing.
fn listed(bench: &Bench4, handle: &[u8], wanted: Bitmap) -> Vec<(String, Vec<String>)> {
    let results = bench.run(&[put(handle), Operation::Readdir(list(wanted))]);
    let OperationResults::Readdir(Ok(listed)) = results.last() else {
        panic!("{results:?}");
    };
    assert!(listed.eof);
    let entries = listed.entries.iter().map(|entry| {
        let attributes = entry.attributes.iter();
        let attributes = attributes.map(|attribute| format!("{:?}", attribute.unwrap()));
        (
            String::from_utf8(entry.name.to_vec()).unwrap(),
            attributes.collect(),
        )
    });
    entries.collect()
}

#[test]
fn v4_name_11_mount_points_are_listed_with_what_is_mounted() {
    let bench = Bench4::with([
        rules("/a/one"),
        Rules {
            security: [Security::Krb5].into(),
            ..rules("/a/two")
        },
        Rules {
            clients: vec!["198.51.100.0/24".parse().unwrap()],
            ..rules("/a/three")
        },
    ]);
    let wanted = Bitmap::of(&[Number::ReadError, Number::FileSystem]);
    let found = listed(&bench, &bench.walk("/a"), wanted);
    let own = bench.getattr(&bench.walk("/a/one"), Bitmap::of(&[Number::FileSystem]));
    let own = format!("{:?}", own.attribute(Number::FileSystem));
    let expected = [
        ("one".to_owned(), vec![own, "ReadError(Ok)".to_owned()]),
        (
            "two".to_owned(),
            vec!["ReadError(WrongSecurity)".to_owned()],
        ),
    ];
    assert_eq!(found, expected);
    // Without a place for the error it is that of the listing.
    let operation = Operation::Readdir(list(Bitmap::of(&[Number::FileSystem])));
    let statuses = bench.statuses(&[put(&bench.walk("/a")), operation]);
    assert_eq!(statuses[1], Status::WrongSecurity);
}

#[test]
fn v4_fs_04_an_export_within_another_hides_what_is_there() {
    let bench = Bench4::with([
        rules("/export"),
        rules("/export/in/deep"),
        rules("/export/at"),
    ]);
    let within = |bench: &Bench4, path: &str| {
        let table = bench.exports.table();
        let export = table
            .iter()
            .find(|export| export.rules.path == path)
            .unwrap();
        export.id.0
    };
    let file_system = |path: &str| {
        let results = bench.getattr(&bench.walk(path), Bitmap::of(&[Number::FileSystem]));
        match results.attribute(Number::FileSystem) {
            Attribute::FileSystem(found) => found.major,
            other => panic!("{other:?}"),
        }
    };
    // Where the outer export has no folder, there is a pseudo folder on the way.
    assert_eq!(
        file_system("/export/in/deep"),
        within(&bench, "/export/in/deep")
    );
    assert_eq!(file_system("/export/at"), within(&bench, "/export/at"));
    // Where it has one, that is on the way, and what it has under the name is hidden.
    let root = bench.walk("/export");
    bench.run(&[
        put(&root),
        make_directory(b"in"),
        make_directory(b"deep"),
        put(&root),
        make_directory(b"at"),
        put(&root),
        make_directory(b"other"),
    ]);
    assert_eq!(file_system("/export/in"), within(&bench, "/export"));
    assert_eq!(
        file_system("/export/in/deep"),
        within(&bench, "/export/in/deep")
    );
    assert_eq!(file_system("/export/at"), within(&bench, "/export/at"));
    let parent = |path: &str| {
        let child = bench.walk(path);
        let operations = [put(&child), Operation::Lookupp(()), Operation::Getfh(())];
        bench.run(&operations).handle()
    };
    assert_eq!(parent("/export/in/deep"), bench.walk("/export/in"));
    assert_eq!(parent("/export/at"), root);
    let found = listed(&bench, &root, Bitmap::of(&[Number::FileSystem]));
    for (name, attributes) in found {
        let is_own = attributes[0].contains(&within(&bench, "/export").to_string());
        assert_eq!(is_own, name != "at", "{name}");
    }
    // What another export begins under is neither removed nor renamed.
    assert_eq!(in_root(&bench, Operation::Remove(b"at")), Status::FileOpen);
    for (from, to) in [(&b"at"[..], &b"new"[..]), (b"other", b"at")] {
        let rename = Operation::Rename(RenameOperation { from, to });
        let operations = [put(&root), Operation::Savefh(()), rename];
        assert_eq!(bench.statuses(&operations)[2], Status::FileOpen);
    }
    bench.walk("/export/at");
}

#[test]
fn v4_name_13_objects_are_created() {
    let bench = Bench4::new();
    let device = Device { major: 3, minor: 4 };
    let text = Bulk::inline(b"where/to");
    for (name, object, kind) in [
        ("directory", NewObject::Directory, ObjectType::Directory),
        ("block", NewObject::Block(device), ObjectType::Block),
        (
            "character",
            NewObject::Character(device),
            ObjectType::Character,
        ),
        ("link", NewObject::Symlink(text), ObjectType::Symlink),
        ("socket", NewObject::Socket, ObjectType::Socket),
        ("fifo", NewObject::Fifo, ObjectType::Fifo),
    ] {
        let root = bench.walk("/export");
        let before = change_of(&bench, &root);
        let mut values = [0; 16];
        let mode = Attributes::build(&[Attribute::Mode(0o701)], &mut values).unwrap();
        let results = bench.run(&[
            put(&root),
            create(object, name.as_bytes(), mode),
            Operation::Getattr(Bitmap::of(&[Number::Type, Number::Mode, Number::RawDevice])),
        ]);
        let attributes = results.attributes();
        assert_eq!(
            attributes.get(Number::Type),
            Ok(Some(Attribute::Type(kind)))
        );
        if kind != ObjectType::Symlink {
            assert_eq!(
                attributes.get(Number::Mode),
                Ok(Some(Attribute::Mode(0o701)))
            );
        }
        if kind == ObjectType::Block {
            let found = attributes.get(Number::RawDevice);
            assert_eq!(found, Ok(Some(Attribute::RawDevice(device))));
        }
        let (_, all) = results.read();
        let OperationResults::Create(Ok(reply)) = all[1] else {
            panic!("{all:?}");
        };
        assert_eq!(reply.attributes_set, Bitmap::of(&[Number::Mode]));
        let after = change_of(&bench, &root);
        let expected = ChangeInfo {
            atomic: true,
            before,
            after,
        };
        assert_eq!(reply.directory, expected);
        assert!(after > before);
        let again = create(object, name.as_bytes(), mode);
        assert_eq!(in_root(&bench, again), Status::Exists);
    }
    let none = Attributes::NONE;
    for object in [NewObject::Regular, NewObject::NamedAttribute] {
        assert_eq!(in_root(&bench, create(object, b"x", none)), Status::BadType);
    }
    let empty = create(NewObject::Symlink(Bulk::inline(b"")), b"x", none);
    assert_eq!(in_root(&bench, empty), Status::Invalid);
    assert_eq!(in_root(&bench, make_directory(b"..")), Status::BadName);
    let mut values = [0; 16];
    let size = Attributes::build(&[Attribute::Size(1)], &mut values).unwrap();
    let sized = create(NewObject::Directory, b"x", size);
    assert_eq!(in_root(&bench, sized), Status::Invalid);
}

#[test]
fn v4_name_14_names_are_removed() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    bench.file(b"file", 0o644);
    let directory = made(&bench, b"directory", NewObject::Directory);
    bench.run(&[put(&directory), make_directory(b"within")]);
    assert_eq!(
        in_root(&bench, Operation::Remove(b"directory")),
        Status::NotEmpty
    );
    bench.run(&[put(&directory), Operation::Remove(b"within")]);
    for name in [&b"file"[..], b"directory"] {
        let before = change_of(&bench, &root);
        let results = bench.run(&[put(&root), Operation::Remove(name)]);
        let OperationResults::Remove(Ok(info)) = results.last() else {
            panic!("{results:?}");
        };
        assert!(info.atomic);
        assert_eq!(
            (info.before, info.after),
            (before, change_of(&bench, &root))
        );
        assert_eq!(in_root(&bench, Operation::Remove(name)), Status::NoEntry);
    }
}

fn rename(bench: &Bench4, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Status {
    let results = bench.run(&[
        put(from.0),
        Operation::Savefh(()),
        put(to.0),
        Operation::Rename(RenameOperation {
            from: from.1,
            to: to.1,
        }),
    ]);
    results.status()
}

#[test]
fn v4_name_15_and_20_names_are_renamed() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let file = bench.file(b"file", 0o644);
    bench.file(b"other", 0o644);
    let full = made(&bench, b"full", NewObject::Directory);
    let empty = made(&bench, b"empty", NewObject::Directory);
    bench.run(&[put(&full), make_directory(b"within")]);
    let here = |from: &[u8], to: &[u8]| rename(&bench, (&root, from), (&root, to));
    assert_eq!(here(b"empty", b"full"), Status::Exists);
    assert_eq!(here(b"file", b"empty"), Status::Exists);
    assert_eq!(here(b"empty", b"file"), Status::Exists);
    assert_eq!(here(b"none", b"file"), Status::NoEntry);
    assert_eq!(
        rename(&bench, (&root, b"full"), (&full, b"self")),
        Status::Invalid
    );
    assert_eq!(
        rename(&bench, (&file, b"x"), (&root, b"y")),
        Status::NotDirectory
    );
    assert_eq!(
        rename(&bench, (&root, b"file"), (&file, b"y")),
        Status::NotDirectory
    );
    assert_eq!(here(b"file", b"."), Status::BadName);
    assert_eq!(here(b"", b"file"), Status::Invalid);
    // Two links of one file.
    bench.run(&[
        put(&file),
        Operation::Savefh(()),
        put(&root),
        Operation::Link(b"second"),
    ]);
    let before = change_of(&bench, &root);
    assert_eq!(here(b"file", b"second"), Status::Ok);
    assert_eq!(change_of(&bench, &root), before);
    bench.walk("/export/file");
    // Both directories are one, and its change is told twice.
    let results = bench.run(&[
        put(&root),
        Operation::Savefh(()),
        Operation::Rename(RenameOperation {
            from: b"file",
            to: b"other",
        }),
    ]);
    let OperationResults::Rename(Ok(reply)) = results.last() else {
        panic!("{results:?}");
    };
    assert_eq!(reply.from, reply.to);
    assert_eq!(
        (reply.to.before, reply.to.after),
        (before, change_of(&bench, &root))
    );
    assert_eq!(bench.walk("/export/other"), file);
    assert_eq!(
        rename(&bench, (&root, b"other"), (&empty, b"moved")),
        Status::Ok
    );
    bench.walk("/export/empty/moved");
}

#[test]
fn v4_name_16_names_do_not_leave_their_export() {
    let bench = Bench4::with([rules("/a/export"), rules("/a/two")]);
    let (one, two) = (bench.walk("/a/export"), bench.walk("/a/two"));
    let (top, folder) = (bench.walk("/"), bench.walk("/a"));
    assert_eq!(
        rename(&bench, (&one, b"a"), (&two, b"b")),
        Status::CrossDevice
    );
    assert_eq!(
        rename(&bench, (&one, b"a"), (&folder, b"b")),
        Status::CrossDevice
    );
    assert_eq!(
        rename(&bench, (&folder, b"a"), (&one, b"b")),
        Status::CrossDevice
    );
    assert_eq!(
        rename(&bench, (&folder, b"a"), (&top, b"b")),
        Status::ReadOnly
    );
    let link = [
        put(&one),
        Operation::Savefh(()),
        put(&two),
        Operation::Link(b"a"),
    ];
    assert_eq!(bench.run(&link).status(), Status::CrossDevice);
}

#[test]
fn v4_name_17_files_are_linked() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let file = bench.file(b"file", 0o644);
    let directory = made(&bench, b"directory", NewObject::Directory);
    let link = |object: &[u8], name: &[u8]| {
        bench.run(&[
            put(object),
            Operation::Savefh(()),
            put(&root),
            Operation::Link(name),
            Operation::Getfh(()),
        ])
    };
    let before = change_of(&bench, &root);
    let results = link(&file, b"second");
    assert_eq!(results.handle(), root);
    let (_, all) = results.read();
    let OperationResults::Link(Ok(info)) = all[3] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (info.before, info.after),
        (before, change_of(&bench, &root))
    );
    assert_eq!(bench.walk("/export/second"), file);
    assert_eq!(link(&file, b"second").status(), Status::Exists);
    assert_eq!(link(&directory, b"third").status(), Status::IsDirectory);
}

#[test]
fn v4_name_18_texts_of_links_are_read() {
    let bench = Bench4::new();
    let text = b"any \xff bytes";
    let link = made(&bench, b"link", NewObject::Symlink(Bulk::inline(text)));
    let read = || {
        let getattr = Operation::Getattr(Bitmap::of(&[Number::Type]));
        bench.run(&[put(&link), Operation::Readlink(()), getattr])
    };
    for chunk in [None, Some(64)] {
        bench.limits.set(millrace::call::Limits {
            apart: chunk.map_or(LIMITS.apart, one_chunk),
            ..LIMITS
        });
        let results = read();
        let (_, all) = results.read();
        let OperationResults::Readlink(Ok(found)) = all[1] else {
            panic!("{all:?}");
        };
        assert_eq!(found.as_inline(), Some(&text[..]));
        assert_eq!((results.items.len(), all.len()), (1, 3));
    }
    bench.limits.set(LIMITS);
    for other in [bench.file(b"file", 0o644), bench.walk("/export")] {
        let statuses = bench.statuses(&[put(&other), Operation::Readlink(())]);
        assert_eq!(statuses[1], Status::WrongType);
    }
}

#[test]
fn v4_ulb_18_texts_of_links_come_in_chunks() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let text = [b't'; 600];
    let before = [bench.next_sequence(), put(&root)];
    let object = NewObject::Symlink(Bulk::apart(600));
    let all = [
        before[0],
        before[1],
        create(object, b"link", Attributes::NONE),
        Operation::Getfh(()),
    ];
    let mut message = bench.compound_message(&all);
    // Behind the length word of the text: name, attributes and GETFH.
    let position = (message.len() - 8 - 8 - 4) as u32;
    let bulk = [millrace::call::BulkArgument {
        position,
        length: 600,
    }];
    let mut chunks = Chunks {
        chunks: vec![&text],
        ..Chunks::default()
    };
    let results = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!(chunks.pulls, 1);
    let link = results.handle();
    let read = bench.run(&[put(&link), Operation::Readlink(())]);
    let OperationResults::Readlink(Ok(found)) = read.last() else {
        panic!("{read:?}");
    };
    assert_eq!(found.as_inline(), Some(&text[..]));
    // A chunk of an operation that is not reached is not fetched.
    message = bench.compound_message(&[
        bench.next_sequence(),
        put(&root),
        Operation::Lookup(b"none"),
        create(object, b"link2", Attributes::NONE),
    ]);
    let position = (message.len() - 12 - 8) as u32;
    let bulk = [millrace::call::BulkArgument {
        position,
        length: 600,
    }];
    let results = bench.results_with(&message, &bulk, &mut chunks);
    assert_eq!((results.status(), chunks.pulls), (Status::NoEntry, 1));
}

#[test]
fn v4_fs_13_read_only_exports_take_no_changes() {
    let bench = Bench4::with([Rules {
        read_only: true,
        ..rules("/export")
    }]);
    let store = &bench.stores[0];
    assert!(ready(store.attributes(store.root())).is_ok());
    let root = bench.walk("/export");
    assert_eq!(in_root(&bench, make_directory(b"x")), Status::ReadOnly);
    assert_eq!(in_root(&bench, Operation::Remove(b"x")), Status::ReadOnly);
    assert_eq!(
        rename(&bench, (&root, b"a"), (&root, b"b")),
        Status::ReadOnly
    );
}

#[test]
fn v4_comp_15_a_change_whose_result_does_not_fit_is_not_made() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    bench.file(b"old", 0o644);
    let operations = [
        put(&root),
        Operation::Savefh(()),
        Operation::Rename(RenameOperation {
            from: b"old",
            to: b"new",
        }),
    ];
    // RPC header, COMPOUND header, SEQUENCE, PUTFH, SAVEFH, RENAME.
    let whole = 24 + 12 + 44 + 8 + 8 + 48;
    let mut bounds = Bench4::BOUNDS;
    bounds.reply = whole - 4;
    bench.state.bounds.set(bounds);
    let statuses = bench.statuses(&operations);
    assert_eq!(statuses[2], Status::ReplyTooBig);
    bounds.reply = whole;
    bench.state.bounds.set(Bench4::BOUNDS);
    bench.walk("/export/old");
    bench.state.bounds.set(bounds);
    assert_eq!(bench.statuses(&operations)[2], Status::Ok);
}
