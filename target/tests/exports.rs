//! Exports, who may use them, and MOUNT, through the seam.

mod support;

use std::net::SocketAddr;

use millrace::access::{Security, SecurityList};
use millrace::call::{Peer, TransportKind};
use millrace::export_counters::ExportTotals;
use millrace::exports::{ExportId, Exports, ExportsError, Squash};
use millrace::handle::HandleKey;
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_wire::mount::{self, DumpResults, ExportResults, MountResults, Path};
use millrace_wire::nfs3::{
    self, AccessArguments, AccessResults, CommitArguments, CommitResults, CreateArguments,
    CreateHow, FileHandle, GetattrResults, NameInDirectory, Procedure, RemoveResults,
    SetAttributes, Status, access,
};
use millrace_wire::rpc::{AuthSys, CallHeader, Credential, Groups, OpaqueAuth};
use millrace_wire::xdr::{Encode, Encoder, from_bytes};
use support::nfs::{attributes, create, lookup, mkdir, read, write};
use support::{Bench, Chunks, rules};

fn from(bench: &Bench, address: &str, transport: TransportKind) {
    let address: SocketAddr = address.parse().unwrap();
    bench.call_from(Peer::new(address, transport));
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

#[test]
fn a_handle_of_one_transport_is_good_on_the_other() {
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
    let entry = NameInDirectory {
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
        let entry = NameInDirectory {
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
    // One call of MOUNT, and one of NFS.
    assert_eq!(bench.service.counters().not_admitted.get(), 2);
    from(&bench, "[::ffff:10.1.2.3]:9", TransportKind::Rdma);
    assert!(matches!(mnt(&bench, "/export"), MountResults::Ok(_)));
    lookup(&bench).unwrap();
    assert_eq!(bench.service.counters().not_admitted.get(), 2);
}

#[test]
fn rr1_sec_19_gss_sec_03_gss_sec_04_exports_are_for_their_clients_and_listed_flavors() {
    let with = |security: SecurityList, clients: &str| {
        let mut rules = rules("/export");
        rules.security = security;
        rules.clients = vec![clients.parse().unwrap()];
        Bench::with(rules)
    };
    let use_it = |bench: &Bench, credential| {
        let header = CallHeader {
            xid: 7,
            program: nfs3::PROGRAM,
            version: nfs3::VERSION,
            procedure: Procedure::Lookup.number(),
            credential,
            verifier: OpaqueAuth::NONE,
        };
        let arguments = NameInDirectory {
            directory: bench.root(),
            name: b".",
        };
        let mut call = vec![0; 512];
        let mut out = Encoder::new(&mut call);
        header.encode(&mut out).unwrap();
        arguments.encode(&mut out).unwrap();
        let length = out.position();
        let replied = bench.send(&call[..length], &[], &mut Chunks::default());
        from_bytes::<nfs3::LookupResults>(support::results(&replied.message))
            .unwrap()
            .map(|_| ())
            .map_err(|failure| failure.status)
    };
    let sys = || {
        Credential::Sys(AuthSys {
            stamp: 0,
            machine: b"client",
            uid: 0,
            gid: 0,
            gids: Groups::new(),
        })
    };
    let denied = Err(Status::AccessDenied);
    let everyone = "0.0.0.0/0";
    let weak = with([Security::Sys, Security::None].into(), everyone);
    assert_eq!(use_it(&weak, Credential::None), Ok(()));
    assert_eq!(use_it(&weak, sys()), Ok(()));
    let strong = with([Security::Sys].into(), everyone);
    assert_eq!(use_it(&strong, Credential::None), denied);
    assert_eq!(use_it(&strong, sys()), Ok(()));
    // Stronger than AUTH_SYS: AUTH_SYS will not do.
    let stronger = with(
        [Security::Krb5p, Security::Krb5i, Security::Krb5].into(),
        everyone,
    );
    assert_eq!(use_it(&stronger, Credential::None), denied);
    assert_eq!(use_it(&stronger, sys()), denied);
    // Whatever the flavor, from elsewhere nobody gets in.
    let elsewhere = with([Security::Sys].into(), "10.9.9.9/32");
    assert_eq!(use_it(&elsewhere, sys()), denied);
    // Clients are told which flavors will do.
    let flavors = |bench: &Bench| match mnt(bench, "/export") {
        MountResults::Ok(ok) => ok.flavors.to_vec(),
        MountResults::Err(status) => panic!("{status}"),
    };
    assert_eq!((flavors(&weak), flavors(&strong)), (vec![1, 0], vec![1]));
    // GSS-SEC-03 and 04: whatever the flavor of the call, and in the order of the rules.
    assert_eq!(flavors(&stronger), [390_005, 390_004, 390_003]);
}

#[test]
fn read_only_exports_refuse_changes() {
    let mut fixed = rules("/export");
    fixed.read_only = true;
    let bench = Bench::with(fixed);
    let entry = NameInDirectory {
        directory: bench.root(),
        name: b"name",
    };
    let failure = from_bytes::<RemoveResults>(&bench.nfs(Procedure::Remove, &entry));
    let failure = failure.unwrap().unwrap_err();
    assert_eq!(failure.status, Status::ReadOnly);
    assert!(failure.detail.after.is_some());
    let caller = millrace_store::Caller::SUPERUSER;
    let how = millrace_store::CreateHow::Guarded(millrace_store::SetAttributes::default());
    let root = millrace_store::Store::root(&bench.store);
    let made = millrace_store::Namespace::create(&bench.store, &caller, root, b"file", &how);
    let (file, _) = support::ready(made).result.unwrap();
    let export = bench.service.exports().iter().next().unwrap().id;
    let commit = CommitArguments {
        file: HandleKey::new(&support::SECRET).seal(export.0, file),
        offset: 0,
        count: 0,
    };
    let failure = from_bytes::<CommitResults>(&bench.nfs(Procedure::Commit, &commit));
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
        let set =
            millrace_store::Namespace::set_attributes(&bench.store, &caller, root, &open, None);
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
fn what_calls_do_is_counted_by_export_and_outlives_a_thousand_others() {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = support::memory_store(&registry);
    let service = support::service([(rules("/a"), store.clone())]);
    let bench = Bench::over(&registry, store.clone(), service);
    let serve = |paths: &[&str]| {
        let table = paths.iter().map(|path| (rules(path), store.clone()));
        bench.service.replace_exports(Exports::new(table).unwrap());
    };
    let counters = bench.service.export_counters();
    let totals = |path| {
        let mut totals = ExportTotals::default();
        // As of two reactors.
        totals.add(&counters.get(ExportId::of(path)));
        totals.add(&counters.get(ExportId::of(path)));
        totals
    };
    let file = create(&bench, bench.root(), b"file");
    write(&bench, file, 0, &[1; 100]).unwrap();
    read(&bench, file, 0, 40);
    lookup(&bench, bench.root(), b"none").unwrap_err();
    let done = ExportTotals {
        requests: 2 * 4,
        errors: 2,
        bytes_read: 2 * 40,
        bytes_written: 2 * 100,
    };
    assert_eq!(totals("/a"), done);
    serve(&["/b"]);
    assert_eq!(
        (totals("/a"), totals("/b")),
        (done, ExportTotals::default())
    );
    serve(&["/a"]);
    attributes(&bench, bench.root());
    assert_eq!(totals("/a").requests, done.requests + 2);
    // With these two there are 1024.
    let others: Vec<String> = (0..1022).map(|number| format!("/{number}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    serve(&others);
    serve(&["/one more"]);
    assert_eq!(totals("/a").requests, done.requests + 2);
    serve(&["/b"]);
    assert_eq!(totals("/a"), ExportTotals::default());
}

#[test]
fn malformed_handles_are_bad_and_forged_or_dead_ones_stale() {
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
        Err(Status::Stale)
    );
    assert_eq!(
        status(FileHandle::new(&[]).unwrap()),
        Err(Status::BadHandle)
    );
    bench.nfs(
        Procedure::Rmdir,
        &NameInDirectory {
            directory: bench.root(),
            name: b"gone",
        },
    );
    assert_eq!(status(directory), Err(Status::Stale));
}
