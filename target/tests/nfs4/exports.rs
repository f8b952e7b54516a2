//! One name space over all exports.

use millrace::exports::{Exports, Rules};
use millrace_wire::nfs4::{Operation, OperationStatus as Status};

use crate::support::nfs4::{Bench4, put};
use crate::support::rules;

fn for_client(path: &str, network: &str) -> Rules {
    Rules {
        clients: vec![network.parse().unwrap()],
        ..rules(path)
    }
}

#[test]
fn v4_fs_01_the_pseudo_root_shows_what_the_client_may_use() {
    let bench = Bench4::with([
        for_client("/a/one", "192.0.2.0/24"),
        for_client("/a/two", "198.51.100.0/24"),
        for_client("/b/three", "198.51.100.0/24"),
    ]);
    bench.walk("/a");
    bench.walk("/a/one");
    for hidden in ["/a/two", "/b", "/b/three", "/c"] {
        assert_eq!(bench.try_walk(hidden), Err(Status::NoEntry), "{hidden}");
    }
    bench.call_from("198.51.100.1");
    for seen in ["/a", "/a/two", "/b", "/b/three"] {
        bench.walk(seen);
    }
    assert_eq!(bench.try_walk("/a/one"), Err(Status::NoEntry));
    // Who may use nothing has a root without folders.
    bench.call_from("203.0.113.1");
    bench.walk("/");
    assert_eq!(bench.try_walk("/a"), Err(Status::NoEntry));
}

#[test]
fn v4_fs_02_handles_of_folders_are_persistent_and_no_others() {
    let bench = Bench4::with([rules("/a/one")]);
    let (root, folder) = (bench.walk("/"), bench.walk("/a"));
    assert_ne!(root, folder);
    let other = Bench4::with([rules("/a/one"), rules("/a/two"), rules("/b")]);
    assert_eq!(other.walk("/"), root);
    assert_eq!(other.walk("/a"), folder);
    let found = bench.run(&[
        put(&folder),
        Operation::Lookup(b"one"),
        Operation::Getfh(()),
    ]);
    assert_eq!(found.handle(), bench.walk("/a/one"));
    // A handle of a folder that is gone, or that another client may not see.
    let empty = Bench4::with([rules("/b")]);
    assert_eq!(empty.statuses(&[put(&folder)]), [Status::Stale]);
    let hidden = Bench4::with([for_client("/a/one", "198.51.100.0/24")]);
    assert_eq!(hidden.statuses(&[put(&folder)]), [Status::Stale]);
    assert_eq!(hidden.statuses(&[put(&root)]), [Status::Ok]);
}

#[test]
fn v4_fs_03_an_export_at_the_top_replaces_the_pseudo_root() {
    let bench = Bench4::with([rules("/")]);
    let root = bench.walk("/");
    assert_eq!(
        bench.statuses(&[put(&root), Operation::Lookupp(())]),
        [Status::Ok, Status::NoEntry]
    );
    let pseudo = Bench4::new().walk("/");
    assert_ne!(root, pseudo);
}

#[test]
fn v4_name_06_lookupp_leads_out_of_exports() {
    let bench = Bench4::with([rules("/a/one"), rules("/a/two")]);
    let parent =
        |handle: &[u8]| bench.run(&[put(handle), Operation::Lookupp(()), Operation::Getfh(())]);
    assert_eq!(parent(&bench.walk("/a/one")).handle(), bench.walk("/a"));
    assert_eq!(parent(&bench.walk("/a")).handle(), bench.walk("/"));
    assert_eq!(parent(&bench.walk("/")).status(), Status::NoEntry);
}

#[test]
fn v4_fs_07_handles_of_an_export_that_is_gone_are_stale() {
    let bench = Bench4::with([rules("/a"), rules("/b")]);
    let (gone, stays) = (bench.walk("/a"), bench.walk("/b"));
    let table = Exports::new([(rules("/b"), bench.stores[1].clone())]).unwrap();
    bench.exports.replace(table);
    assert_eq!(bench.statuses(&[put(&gone)]), [Status::Stale]);
    assert_eq!(bench.statuses(&[put(&stays)]), [Status::Ok]);
    assert_eq!(bench.try_walk("/a"), Err(Status::NoEntry));
}

#[test]
fn v4_fs_12_an_address_outside_sees_no_handles() {
    let bench = Bench4::with([for_client("/a", "192.0.2.0/24"), rules("/b")]);
    let handle = bench.walk("/a");
    bench.call_from("198.51.100.1");
    assert_eq!(bench.statuses(&[put(&handle)]), [Status::Stale]);
}

#[test]
fn v4_fs_14_the_public_handle_is_the_root() {
    let bench = Bench4::new();
    let results = bench.run(&[Operation::Putpubfh(()), Operation::Getfh(())]);
    assert_eq!(results.handle(), bench.walk("/"));
}

#[test]
fn v4_name_01_to_04_names_are_checked() {
    let bench = Bench4::new();
    let root = Operation::Putrootfh(());
    let export = Operation::Lookup(b"export");
    for (name, status) in [
        (&b""[..], Status::Invalid),
        (&[b'n'; 256], Status::NameTooLong),
        (b".", Status::BadName),
        (b"..", Status::BadName),
        (b"a/b", Status::BadCharacter),
        (b"a\0b", Status::BadCharacter),
        (b"\xff", Status::NoEntry),
    ] {
        let lookup = Operation::Lookup(name);
        assert_eq!(bench.statuses(&[root, lookup])[1], status);
        assert_eq!(bench.statuses(&[root, export, lookup])[2], status);
    }
}
