//! One name space over all exports.

use millrace::access::Security;
use millrace::exports::{Exports, Rules};
use millrace_wire::nfs4::{
    AttributeNumber as Number, Bitmap, OpenClaim, OpenOperation, Operation, OperationResults,
    OperationStatus as Status, SecinfoStyle, SecurityFlavor, StateOwner, share,
};
use millrace_wire::xdr::BoundedBytes;

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

#[test]
fn v4_fs_08_to_11_gss_sec_06_flavors_are_told() {
    let bench = Bench4::with([
        rules("/any"),
        Rules {
            security: [Security::Sys].into(),
            ..rules("/sys")
        },
        Rules {
            security: [Security::Krb5p, Security::Krb5, Security::Sys].into(),
            ..rules("/gss")
        },
    ]);
    let root = Operation::Putrootfh(());
    let told = |operations: &[Operation<'_>]| -> Vec<u32> {
        let results = bench.run(operations);
        let (OperationResults::Secinfo(Ok(flavors)) | OperationResults::SecinfoNoName(Ok(flavors))) =
            results.last()
        else {
            panic!("{results:?}");
        };
        let flavors = flavors.iter().map(|flavor| match flavor {
            SecurityFlavor::Flavor(flavor) => flavor,
            SecurityFlavor::Gss(gss) => {
                assert_eq!(gss.mechanism, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");
                assert_eq!(gss.quality, 0);
                390_002 + gss.service.number()
            }
        });
        flavors.collect()
    };
    let gss = &[390_005, 390_003, 1][..];
    for (name, flavors) in [(&b"any"[..], &[1, 0][..]), (b"sys", &[1]), (b"gss", gss)] {
        assert_eq!(told(&[root, Operation::Secinfo(name)]), flavors);
    }
    let current = Operation::SecinfoNoName(SecinfoStyle::Current);
    let parent = Operation::SecinfoNoName(SecinfoStyle::Parent);
    // Above exports all that any of them takes.
    assert_eq!(told(&[root, current]), [1, 0, 390_005, 390_003]);
    let export = bench.walk("/sys");
    assert_eq!(told(&[put(&export), current]), [1]);
    assert_eq!(told(&[put(&export), parent]), [1, 0, 390_005, 390_003]);
    assert_eq!(bench.statuses(&[root, parent])[1], Status::NoEntry);
    // Both use the handle up.
    for operation in [current, Operation::Secinfo(b"any")] {
        let statuses = bench.statuses(&[root, operation, Operation::Getfh(())]);
        assert_eq!(statuses[2], Status::NoFileHandle);
    }
    // A weak flavor is told where a handle is put to use.
    bench.user.set(None);
    let getattr = Operation::Getattr(Bitmap::of(&[Number::Type]));
    assert_eq!(
        bench.statuses(&[put(&export), getattr]),
        [Status::WrongSecurity]
    );
    assert_eq!(
        bench.statuses(&[put(&export), Operation::Savefh(()), getattr]),
        [Status::WrongSecurity]
    );
    assert_eq!(
        bench.statuses(&[put(&export), root, getattr])[2],
        Status::Ok
    );
    assert_eq!(
        bench.statuses(&[put(&export), Operation::Lookup(b"x")]),
        [Status::Ok, Status::WrongSecurity]
    );
    let restored = [
        put(&export),
        Operation::Savefh(()),
        root,
        Operation::Restorefh(()),
    ];
    let ok = Status::Ok;
    let used = |operation| bench.statuses(&[&restored[..], &[operation]].concat());
    assert_eq!(used(getattr), [ok, ok, ok, Status::WrongSecurity]);
    assert_eq!(used(root), [ok; 5]);
    let open = Operation::Open(OpenOperation {
        sequence: 0,
        access: share::READ,
        deny: 0,
        owner: StateOwner {
            client: 0,
            owner: BoundedBytes(b"owner"),
        },
        create: None,
        claim: OpenClaim::Name(b"x"),
    });
    assert_eq!(
        bench.statuses(&[put(&export), open]),
        [ok, Status::WrongSecurity]
    );
    assert_eq!(bench.try_walk("/sys"), Err(Status::WrongSecurity));
    assert_eq!(told(&[put(&export), current]), [1]);
    assert_eq!(told(&[put(&export), Operation::Secinfo(b"x")]), [1]);
}
