//! Extended attributes.

use millrace::exports::Rules;
use millrace_wire::nfs4::{
    AccessReply, Attribute, AttributeNumber as Number, Attributes, Bitmap, ChangeInfo, HasStatus,
    ListxattrsOperation, NewObject, Operation, OperationResults, OperationStatus as Status,
    SetxattrOperation, access_bits, xattr_option,
};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::Bulk;

use crate::support::message::{inline, lengths, long, parse, reads, word};
use crate::support::nfs4::{Bench4, Programs4, Results4, create, put};
use crate::support::raw::{Options, World};
use crate::support::session_double::SessionDouble;
use crate::support::{results, rules};

fn set_as<'a>(option: u32, name: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Setxattr(SetxattrOperation {
        option,
        name,
        value,
    })
}

fn set<'a>(name: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    set_as(xattr_option::EITHER, name, value)
}

fn on(bench: &Bench4, object: &[u8], operation: Operation<'_>) -> Status {
    bench.statuses(&[put(object), operation])[1]
}

fn get(bench: &Bench4, object: &[u8], name: &[u8]) -> Result<Vec<u8>, Status> {
    let results = bench.run(&[put(object), Operation::Getxattr(name)]);
    match results.read().1[1] {
        OperationResults::Getxattr(Ok(value)) => Ok(value.to_vec()),
        ref other => Err(other.status()),
    }
}

fn list(
    bench: &Bench4,
    object: &[u8],
    cookie: u64,
    maxcount: u32,
) -> Result<(Vec<Vec<u8>>, u64, bool), Status> {
    let operation = Operation::Listxattrs(ListxattrsOperation { cookie, maxcount });
    let results = bench.run(&[put(object), operation]);
    match &results.read().1[1] {
        OperationResults::Listxattrs(Ok(reply)) => {
            let names = reply.names.iter().map(<[u8]>::to_vec).collect();
            Ok((names, reply.cookie, reply.eof))
        }
        other => Err(other.status()),
    }
}

fn change(bench: &Bench4, object: &[u8]) -> u64 {
    let results = bench.getattr(object, Bitmap::of(&[Number::Change]));
    match results.attribute(Number::Change) {
        Attribute::Change(change) => change,
        other => panic!("{other:?}"),
    }
}

#[test]
fn v4_xattr_01_support_is_told() {
    let bench = Bench4::new();
    for (path, supported) in [("/", false), ("/export", true)] {
        let object = bench.walk(path);
        let results = bench.getattr(&object, Bitmap::of(&[Number::XattrSupport]));
        let told = results.attribute(Number::XattrSupport);
        assert_eq!(told, Attribute::XattrSupport(supported));
    }
    let root = bench.walk("/");
    assert_eq!(on(&bench, &root, set(b"a", b"1")), Status::NotSupported);
    assert_eq!(get(&bench, &root, b"a"), Err(Status::NotSupported));
}

#[test]
fn v4_xattr_02_to_04_values_are_kept() {
    let bench = Bench4::new();
    for object in [bench.file(b"file", 0o644), bench.walk("/export")] {
        assert_eq!(get(&bench, &object, b"a"), Err(Status::NoExtendedAttribute));
        let replace = set_as(xattr_option::REPLACE, b"a", b"0");
        assert_eq!(on(&bench, &object, replace), Status::NoExtendedAttribute);
        let create = set_as(xattr_option::CREATE, b"a", b"1");
        assert_eq!(on(&bench, &object, create), Status::Ok);
        assert_eq!(on(&bench, &object, create), Status::Exists);
        assert_eq!(get(&bench, &object, b"a"), Ok(b"1".to_vec()));
        assert_eq!(on(&bench, &object, set_as(3, b"a", b"2")), Status::Invalid);
        assert_eq!(on(&bench, &object, replace), Status::Ok);
        assert_eq!(on(&bench, &object, set(b"b", b"")), Status::Ok);
        assert_eq!(get(&bench, &object, b"a"), Ok(b"0".to_vec()));
        assert_eq!(get(&bench, &object, b"b"), Ok(vec![]));
        let remove = Operation::Removexattr(b"a");
        assert_eq!(on(&bench, &object, remove), Status::Ok);
        assert_eq!(on(&bench, &object, remove), Status::NoExtendedAttribute);
        assert_eq!(get(&bench, &object, b"a"), Err(Status::NoExtendedAttribute));
    }
}

#[test]
fn v4_xattr_02_and_10_long_values_fit_or_are_refused() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let value: Vec<u8> = (0..64 << 10).map(|at| (at / 3) as u8).collect();
    assert_eq!(on(&bench, &file, set(b"a", &value)), Status::Ok);
    assert!(get(&bench, &file, b"a") == Ok(value.clone()));
    let mut limits = bench.limits.get();
    limits.message = value.len();
    bench.limits.set(limits);
    assert_eq!(get(&bench, &file, b"a"), Err(Status::ReplyTooBig));
}

/// The results in an RPC reply.
fn in_reply(message: &[u8]) -> Results4 {
    Results4 {
        bytes: results(message).to_vec(),
        items: Default::default(),
    }
}

/// SETXATTR and GETATTR as a long call, which Linux makes of every value that does not fit inline:
/// the statuses.
fn set_by_long_call(
    bench: &Bench4,
    world: &mut World<Programs4<SessionDouble>>,
    file: &[u8],
    value: &[u8],
) -> Vec<Status> {
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Change]));
    let operations = [
        bench.next_sequence(),
        put(file),
        set(b"long", value),
        getattr,
    ];
    let call = bench.compound_message(&operations);
    // What is before the value, its pages, and what is behind.
    let length = call.len() as u32;
    let (first, last) = (200.min(length), 20);
    let source = world.source(0, &call);
    let entries = reads(0, &source.cut(&[first, length - first - last, last]));
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    let reply = parse(&world.exchange(0, &long(word(&call, 0), &chunks)));
    let results = in_reply(&reply.message);
    let (_, all) = results.read();
    all.iter().map(HasStatus::status).collect()
}

#[test]
fn v4_xattr_02_and_10_the_longest_values_go_by_long_messages() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut world = World::new(bench.programs.clone(), Options::default());
    world.connect();
    for length in [4096_usize, 20_001, (64 << 10) - 300, 64 << 10] {
        let value: Vec<u8> = (0..length).map(|at| (at / 3) as u8).collect();
        let statuses = set_by_long_call(&bench, &mut world, &file, &value);
        assert_eq!(statuses, [Status::Ok; 3], "{length} bytes");
        let operations = [
            bench.next_sequence(),
            put(&file),
            Operation::Getxattr(b"long"),
        ];
        let call = bench.compound_message(&operations);
        // A chunk for the whole pages that a value can take.
        let sink = world.sink(0, 512 + length.next_multiple_of(4096));
        let chunks = CallChunks {
            reply: Some(&[sink.whole()]),
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &inline(&chunks, &call)));
        assert!(!reply.inline);
        let written = lengths(&reply.reply.unwrap())[0] as usize;
        let results = in_reply(&sink.bytes()[..written]);
        match results.last() {
            OperationResults::Getxattr(Ok(found)) => assert!(found == value, "{length} bytes"),
            other => panic!("{other:?}"),
        }
    }
    world.check_clean();
}

#[test]
fn v4_xattr_07_values_beyond_the_longest_are_refused_in_long_calls() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let mut world = World::new(bench.programs.clone(), Options::default());
    world.connect();
    for (length, refusal) in [
        ((64 << 10) + 1, Status::ExtendedAttributeTooBig),
        // So much of them is not even fetched.
        (70_000, Status::BadXdr),
        (1_000_000, Status::BadXdr),
    ] {
        let statuses = set_by_long_call(&bench, &mut world, &file, &vec![1; length]);
        assert_eq!(statuses, [Status::Ok, refusal], "{length} bytes");
    }
    let fetched = world.shared.counters.read_bytes.get();
    assert!(fetched < 80_000, "{fetched} bytes");
    assert_eq!(
        get(&bench, &file, b"long"),
        Err(Status::NoExtendedAttribute)
    );
    world.check_clean();
}

#[test]
fn v4_xattr_10_a_value_without_room_in_the_reply_chunk_is_too_big() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    assert_eq!(on(&bench, &file, set(b"a", &[1; 20_001])), Status::Ok);
    let mut world = World::new(bench.programs.clone(), Options::default());
    world.connect();
    let sink = world.sink(0, 4096 + 512);
    for reply_chunk in [None, Some([sink.whole()])] {
        let operations = [bench.next_sequence(), put(&file), Operation::Getxattr(b"a")];
        let call = bench.compound_message(&operations);
        let chunks = CallChunks {
            reply: reply_chunk.as_ref().map(|segments| &segments[..]),
            ..CallChunks::default()
        };
        let reply = parse(&world.exchange(0, &inline(&chunks, &call)));
        assert!(reply.inline);
        let results = in_reply(&reply.message);
        assert_eq!(results.status(), Status::ReplyTooBig);
    }
    world.check_clean();
}

#[test]
fn v4_xattr_03_and_09_changes_are_told() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    for operation in [
        set(b"a", b"1"),
        set(b"a", b"2"),
        Operation::Removexattr(b"a"),
    ] {
        let before = change(&bench, &file);
        let results = bench.run(&[put(&file), operation]);
        let told = match results.last() {
            OperationResults::Setxattr(Ok(told)) | OperationResults::Removexattr(Ok(told)) => told,
            other => panic!("{other:?}"),
        };
        let after = change(&bench, &file);
        assert!(after > before);
        let expected = ChangeInfo {
            atomic: true,
            before,
            after,
        };
        assert_eq!(told, expected);
    }
}

#[test]
fn v4_xattr_05_names_are_listed_once() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    assert_eq!(list(&bench, &file, 0, 100), Ok((vec![], 0, true)));
    let mut expected = Vec::new();
    for number in 0..300 {
        let name = format!("{number:03}{}", "x".repeat(number % 40)).into_bytes();
        assert_eq!(on(&bench, &file, set(&name, b"value")), Status::Ok);
        expected.push(name);
    }
    for maxcount in [64, 100, 1000, 1 << 20] {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (names, next, eof) = list(&bench, &file, cookie, maxcount).unwrap();
            let bytes = names.iter().map(|name| 4 + name.len().next_multiple_of(4));
            assert!(bytes.sum::<usize>() + 16 <= maxcount as usize);
            assert!(eof || !names.is_empty());
            assert_eq!(next, cookie + names.len() as u64);
            all.extend(names);
            cookie = next;
            if eof {
                break;
            }
        }
        assert_eq!(all, expected);
    }
    assert_eq!(list(&bench, &file, 300, 100), Ok((vec![], 300, true)));
    assert_eq!(list(&bench, &file, 301, 100), Err(Status::BadCookie));
    assert_eq!(list(&bench, &file, u64::MAX, 100), Err(Status::BadCookie));
    for maxcount in [0, 15, 16, 23] {
        assert_eq!(list(&bench, &file, 0, maxcount), Err(Status::TooSmall));
    }
    assert_eq!(list(&bench, &file, 0, 24).unwrap().0.len(), 1);
}

#[test]
fn v4_xattr_06_and_07_names_and_values_have_bounds() {
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let long = vec![b'n'; 250];
    assert_eq!(on(&bench, &file, set(&long, b"v")), Status::Ok);
    let longer = vec![b'n'; 251];
    for (name, status) in [(&b""[..], Status::Invalid), (&longer, Status::NameTooLong)] {
        assert_eq!(on(&bench, &file, set(name, b"v")), status);
        assert_eq!(on(&bench, &file, Operation::Removexattr(name)), status);
        assert_eq!(get(&bench, &file, name), Err(status));
    }
    let value = vec![0; (64 << 10) + 1];
    let status = on(&bench, &file, set(b"a", &value));
    assert_eq!(status, Status::ExtendedAttributeTooBig);
    // Names of other name spaces are names like others.
    assert_eq!(on(&bench, &file, set(b"security.x", b"v")), Status::Ok);
    let (names, ..) = list(&bench, &file, 0, 1000).unwrap();
    assert_eq!(names, [long, b"security.x".to_vec()]);
}

#[test]
fn v4_xattr_07_other_objects_have_none() {
    let bench = Bench4::new();
    let root = bench.walk("/export");
    let link = NewObject::Symlink(Bulk::inline(b"file"));
    for (object, name) in [(link, &b"link"[..]), (NewObject::Fifo, b"fifo")] {
        let make = create(object, name, Attributes::NONE);
        let object = bench
            .run(&[put(&root), make, Operation::Getfh(())])
            .handle();
        assert_eq!(on(&bench, &object, set(b"a", b"1")), Status::WrongType);
        assert_eq!(get(&bench, &object, b"a"), Err(Status::WrongType));
        assert_eq!(list(&bench, &object, 0, 100), Err(Status::WrongType));
    }
}

#[test]
fn v4_xattr_08_access_tells_the_rights() {
    const ALL: u32 = access_bits::XATTR_READ | access_bits::XATTR_WRITE | access_bits::XATTR_LIST;
    const READS: u32 = access_bits::XATTR_READ | access_bits::XATTR_LIST;
    let bench = Bench4::new();
    let file = bench.file(b"file", 0o644);
    let access = |object: &[u8], asked| {
        let results = bench.run(&[put(object), Operation::Access(asked)]);
        match results.last() {
            OperationResults::Access(Ok(AccessReply { supported, access })) => (supported, access),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(access(&file, ALL), (ALL, ALL));
    let read = access_bits::READ;
    assert_eq!(access(&file, read), (read, read), "only what was asked");
    assert_eq!(access(&bench.walk("/"), ALL).1, 0);
    bench.user.set(Some((7, 7)));
    assert_eq!(access(&file, ALL), (ALL, READS));
    let denied = Status::AccessDenied;
    assert_eq!(on(&bench, &file, set(b"a", b"1")), denied);
    assert_eq!(on(&bench, &file, Operation::Removexattr(b"a")), denied);
    bench.minor_version.set(1);
    assert_eq!(access(&file, ALL | read), (read, read));
    let bench = Bench4::with([Rules {
        read_only: true,
        ..rules("/export")
    }]);
    let file = bench.file(b"file", 0o666);
    let results = bench.run(&[put(&file), Operation::Access(ALL)]);
    let reply = AccessReply {
        supported: ALL,
        access: READS,
    };
    assert_eq!(results.last(), OperationResults::Access(Ok(reply)));
    assert_eq!(on(&bench, &file, set(b"a", b"1")), Status::ReadOnly);
}
