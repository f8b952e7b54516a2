//! RPC errors, credentials, exports, MOUNT, and calls that are executed once, through the seam.

mod support;

use std::cell::RefCell;
use std::net::SocketAddr;

use millrace::call::{Answer, Limits, Peer, TransportKind};
use millrace::exports::{Exports, ExportsError, Squash};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::mount::{self, DumpResults, ExportResults, MountResults, Path};
use millrace_wire::nfs3::{
    self, AccessArguments, AccessResults, CreateArguments, CreateHow, CreateResults, Entry,
    FileHandle, GetattrResults, Procedure, RemoveResults, SetAttributes, Status, access,
};
use millrace_wire::rpc::{Accepted, AuthStatus, Denied, OpaqueAuth, Outcome, ReplyHeader};
use millrace_wire::xdr::{Decode, Decoder, Encode, from_bytes};
use support::{Bench, Chunks, outcome, rules};

fn refused(bench: &Bench, message: &[u8]) -> Outcome<'static> {
    let replied = bench.send(message, &[], &mut Chunks::default());
    assert_eq!(replied.answer, Answer::Send);
    match outcome(&replied.message) {
        Outcome::Accepted { status, .. } => Outcome::Accepted {
            verifier: OpaqueAuth::NONE,
            status,
        },
        Outcome::Denied(denied) => Outcome::Denied(denied),
    }
}

fn accepted(status: Accepted) -> Outcome<'static> {
    Outcome::Accepted {
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
fn rr1_hdr_26_rpc_versions_and_credentials_are_judged() {
    let bench = Bench::new();
    let mut message = bench.message((100_003, 3, 0), &());
    message[8..12].copy_from_slice(&3_u32.to_be_bytes());
    let denied = Outcome::Denied(Denied::RpcMismatch { low: 2, high: 2 });
    assert_eq!(refused(&bench, &message), denied);
    for (flavor, status) in [
        (2, AuthStatus::RejectedCredential),
        (6, AuthStatus::BadCredential),
        (7, AuthStatus::BadCredential),
    ] {
        let mut message = bench.message((100_003, 3, 0), &());
        message[24..28].copy_from_slice(&(flavor as u32).to_be_bytes());
        assert_eq!(
            refused(&bench, &message),
            Outcome::Denied(Denied::Auth(status))
        );
    }
    // More than 16 groups.
    let mut message = bench.message((100_003, 3, 0), &());
    let groups = 24 + 8 + 4 + 4 + 8 + 4 + 4;
    message[groups..groups + 4].copy_from_slice(&17_u32.to_be_bytes());
    let denied = Outcome::Denied(Denied::Auth(AuthStatus::BadCredential));
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
    let entry = Entry {
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

fn mnt(bench: &Bench, path: &str) -> MountResults {
    let program = (
        mount::PROGRAM,
        mount::VERSION,
        mount::Procedure::Mount.number(),
    );
    let results = bench.success(&bench.message(program, &Path(path.as_bytes())));
    from_bytes(&results).unwrap()
}

fn mount_call(bench: &Bench, procedure: mount::Procedure, arguments: &impl Encode) -> Vec<u8> {
    let program = (mount::PROGRAM, mount::VERSION, procedure.number());
    bench.success(&bench.message(program, arguments))
}

fn from(bench: &Bench, address: &str, transport: TransportKind) {
    let address: SocketAddr = address.parse().unwrap();
    bench.peer.set(Peer::new(address, transport));
}

fn mkdir(bench: &Bench, directory: FileHandle, name: &[u8]) -> FileHandle {
    let arguments = nfs3::MkdirArguments {
        entry: Entry { directory, name },
        attributes: SetAttributes {
            mode: Some(0o755),
            ..SetAttributes::default()
        },
    };
    let results = bench.nfs(Procedure::Mkdir, &arguments);
    from_bytes::<CreateResults>(&results)
        .unwrap()
        .unwrap()
        .object
        .unwrap()
}

#[test]
fn rr1_bind_11_mount_by_tcp_gives_handles_for_rdma() {
    let bench = Bench::new();
    from(&bench, "192.0.2.1:700", TransportKind::Tcp);
    let MountResults::Ok(mounted) = mnt(&bench, "/export") else {
        panic!("refused")
    };
    assert_eq!(mounted.flavors.as_slice(), [1, 0]);
    from(&bench, "192.0.2.1:701", TransportKind::Rdma);
    let results = bench.nfs(Procedure::Getattr, &mounted.handle);
    let attributes = from_bytes::<GetattrResults>(&results).unwrap().unwrap();
    assert_eq!(attributes.kind, nfs3::FileType::Directory);
}

#[test]
fn mount_takes_directories_inside_an_export() {
    let bench = Bench::new();
    let a = mkdir(&bench, bench.root(), b"a");
    let b = mkdir(&bench, a, b"b");
    let entry = Entry {
        directory: a,
        name: b"file",
    };
    let how = CreateHow::Guarded(SetAttributes::default());
    bench.nfs(Procedure::Create, &CreateArguments { entry, how });
    for path in ["/export/a/b", "/export/a/b/", "/export//a/./b"] {
        let MountResults::Ok(mounted) = mnt(&bench, path) else {
            panic!("{path} refused")
        };
        assert_eq!(mounted.handle, b);
    }
    for (path, status) in [
        ("/export/a/none", mount::Status::NoEntry),
        ("/export/a/file", mount::Status::NotDirectory),
        ("/export/a/../..", mount::Status::Invalid),
        ("/exported", mount::Status::NoEntry),
        ("export", mount::Status::NoEntry),
        ("", mount::Status::NoEntry),
        ("/", mount::Status::NoEntry),
    ] {
        assert_eq!(mnt(&bench, path), MountResults::Err(status), "{path}");
    }
}

#[test]
fn mounts_and_exports_are_listed() {
    let bench = Bench::new();
    let dump = |bench: &Bench| {
        let results = mount_call(bench, mount::Procedure::Dump, &());
        let list: DumpResults<'_> = from_bytes(&results).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        list.iter()
            .map(|entry| (text(entry.host.0), text(entry.path.0)))
            .collect::<Vec<_>>()
    };
    mnt(&bench, "/export");
    from(&bench, "[::ffff:192.0.2.2]:5", TransportKind::Tcp);
    mnt(&bench, "/export");
    let both = [("192.0.2.1", "/export"), ("192.0.2.2", "/export")];
    let both = both.map(|(host, path)| (host.to_owned(), path.to_owned()));
    let mut listed = dump(&bench);
    listed.sort();
    assert_eq!(listed, both);
    mount_call(&bench, mount::Procedure::Unmount, &Path(b"/export"));
    assert_eq!(dump(&bench), both[..1]);
    from(&bench, "192.0.2.1:6", TransportKind::Tcp);
    mount_call(&bench, mount::Procedure::UnmountAll, &());
    assert_eq!(dump(&bench), []);
    let results = mount_call(&bench, mount::Procedure::Export, &());
    let list: ExportResults<'_> = from_bytes(&results).unwrap();
    let export = list.iter().next().unwrap();
    assert_eq!((list.len(), export.path.0), (1, &b"/export"[..]));
    let groups: Vec<&[u8]> = export.groups.iter().map(|name| name.0).collect();
    assert_eq!(groups, [&b"0.0.0.0/0"[..], b"::/0"]);
}

#[test]
fn clients_outside_the_list_get_nothing() {
    let mut only = rules("/export");
    only.clients = vec!["10.0.0.0/8".parse().unwrap()];
    let bench = Bench::with(only);
    assert_eq!(
        mnt(&bench, "/export"),
        MountResults::Err(mount::Status::AccessDenied)
    );
    let lookup = |bench: &Bench| {
        let entry = Entry {
            directory: bench.root(),
            name: b".",
        };
        from_bytes::<nfs3::LookupResults>(&bench.nfs(Procedure::Lookup, &entry)).unwrap()
    };
    let failure = lookup(&bench).unwrap_err();
    assert_eq!(
        (failure.status, failure.detail),
        (Status::AccessDenied, None)
    );
    from(&bench, "[::ffff:10.1.2.3]:9", TransportKind::Rdma);
    assert!(matches!(mnt(&bench, "/export"), MountResults::Ok(_)));
    lookup(&bench).unwrap();
}

#[test]
fn read_only_exports_refuse_changes() {
    let mut fixed = rules("/export");
    fixed.read_only = true;
    let bench = Bench::with(fixed);
    let entry = Entry {
        directory: bench.root(),
        name: b"name",
    };
    let failure = from_bytes::<RemoveResults>(&bench.nfs(Procedure::Remove, &entry));
    let failure = failure.unwrap().unwrap_err();
    assert_eq!(failure.status, Status::ReadOnly);
    assert!(failure.detail.after.is_some());
    let arguments = AccessArguments {
        object: bench.root(),
        access: access::ALL,
    };
    let results = from_bytes::<AccessResults>(&bench.nfs(Procedure::Access, &arguments));
    let granted = results.unwrap().unwrap().access;
    assert_eq!(
        granted & (access::MODIFY | access::EXTEND | access::DELETE),
        0
    );
    assert_ne!(granted & access::READ, 0);
}

#[test]
fn users_are_squashed_as_the_export_says() {
    let owner = |squash, user: Option<(u32, u32)>| {
        let mut squashing = rules("/export");
        squashing.squash = squash;
        let bench = Bench::with(squashing);
        // Everybody may create here.
        let caller = millrace_store::Caller::SUPERUSER;
        let open = millrace_store::SetAttributes {
            mode: Some(0o777),
            ..Default::default()
        };
        let root = millrace_store::Store::root(&bench.store);
        let set = millrace_store::Store::set_attributes(&bench.store, &caller, root, &open, None);
        support::ready(set).result.unwrap();
        *bench.user.borrow_mut() = user;
        let directory = mkdir(&bench, bench.root(), b"new");
        let results = bench.nfs(Procedure::Getattr, &directory);
        let attributes = from_bytes::<GetattrResults>(&results).unwrap().unwrap();
        (attributes.uid, attributes.gid)
    };
    assert_eq!(owner(Squash::None, Some((0, 0))), (0, 0));
    assert_eq!(owner(Squash::None, Some((7, 8))), (7, 8));
    assert_eq!(owner(Squash::None, None), (65534, 65534));
    assert_eq!(owner(Squash::Root, Some((0, 0))), (65534, 65534));
    assert_eq!(owner(Squash::Root, Some((0, 8))), (65534, 8));
    assert_eq!(owner(Squash::Root, Some((7, 0))), (7, 65534));
    assert_eq!(owner(Squash::All, Some((7, 8))), (65534, 65534));
}

#[test]
fn exports_are_found_by_path_and_replaced_as_a_whole() {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = support::memory_store(&registry);
    let table =
        |paths: &[&str]| Exports::new(paths.iter().map(|path| (rules(path), store.clone())));
    let exports = table(&["/a", "/a/b", "/c"]).unwrap();
    let find = |path| {
        exports
            .by_path(path)
            .map(|(export, rest)| (&*export.rules.path, rest))
    };
    assert_eq!(find("/a"), Some(("/a", "")));
    assert_eq!(find("/a/x"), Some(("/a", "x")));
    assert_eq!(find("/a/b/c/d"), Some(("/a/b", "c/d")));
    assert_eq!(find("/ab"), None);
    assert_eq!(find("/"), None);
    assert_eq!(table(&["/"]).unwrap().by_path("/x").unwrap().1, "x");
    for path in ["", "a", "/a/", "//", "/a//b", "/a/../b", "/."] {
        assert_eq!(
            table(&[path]).unwrap_err(),
            ExportsError::BadPath(path.to_owned())
        );
    }
    let twice = table(&["/a", "/a"]).unwrap_err();
    assert_eq!(
        twice,
        ExportsError::Duplicate("/a".to_owned(), "/a".to_owned())
    );

    let service = support::service([(rules("/a"), store.clone())]);
    let bench = Bench::over(&registry, store.clone(), service);
    let root = bench.root();
    let status = |bench: &Bench| {
        let results = bench.nfs(Procedure::Getattr, &root);
        from_bytes::<GetattrResults>(&results)
            .unwrap()
            .map_err(|failure| failure.status)
    };
    status(&bench).unwrap();
    bench.service.replace_exports(table(&["/c"]).unwrap());
    assert_eq!(status(&bench), Err(Status::Stale));
    bench.service.replace_exports(table(&["/a", "/c"]).unwrap());
    status(&bench).unwrap();
}

#[test]
fn forged_handles_are_bad_and_dead_ones_stale() {
    let bench = Bench::new();
    let directory = mkdir(&bench, bench.root(), b"gone");
    let status = |handle: FileHandle| {
        let results = bench.nfs(Procedure::Getattr, &handle);
        from_bytes::<GetattrResults>(&results)
            .unwrap()
            .map_err(|failure| failure.status)
    };
    status(directory).unwrap();
    let mut forged = directory.as_bytes().to_vec();
    forged[19] ^= 1;
    assert_eq!(
        status(FileHandle::new(&forged).unwrap()),
        Err(Status::BadHandle)
    );
    assert_eq!(
        status(FileHandle::new(&[]).unwrap()),
        Err(Status::BadHandle)
    );
    bench.nfs(
        Procedure::Rmdir,
        &Entry {
            directory: bench.root(),
            name: b"gone",
        },
    );
    assert_eq!(status(directory), Err(Status::Stale));
}

fn removed(message: &[u8]) -> Result<(), Status> {
    let results: RemoveResults = from_bytes(support::results(message)).unwrap();
    results.map(|_| ()).map_err(|failure| failure.status)
}

#[test]
fn rr1_hdr_25_remove_is_executed_once_across_connections() {
    let bench = Bench::new();
    let entry = Entry {
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
        entry: Entry {
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
            apart: None,
        });
        let replied = bench.send(&message, &[], &mut Chunks::default());
        assert_eq!(
            (replied.answer, replied.message.len()),
            (Answer::TooLarge, 0)
        );
    }
    bench.limits.set(Limits {
        headroom: 64,
        message: whole,
        apart: None,
    });
    assert_eq!(
        bench.send(&message, &[], &mut Chunks::default()).answer,
        Answer::Send
    );
    assert_eq!(bench.service.counters().too_large.get(), whole as u64);
}

#[test]
fn calls_are_counted_by_procedure_and_outcome() {
    let bench = Bench::new();
    bench.nfs(Procedure::Getattr, &bench.root());
    bench.nfs(Procedure::Getattr, &FileHandle::new(b"forged").unwrap());
    let counters = bench.service.counters();
    let getattr = &counters.nfs[1];
    assert_eq!((getattr.calls.get(), getattr.errors.get()), (2, 1));
    let counted: u64 = getattr
        .latency
        .iter()
        .map(millrace::counters::Count::get)
        .sum();
    assert_eq!(counted, 2);
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
