//! Which client an operation of a store is for, where operations of clients wait in turn.

mod support;

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use millrace::call::{Peer, TransportKind};
use millrace::exports::Exports;
use millrace::handle::HandleKey;
use millrace::mount3::MountTable;
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_mempool::{HugepagePolicy, Registry};
use millrace_store::ClientKey;
use millrace_wire::mount;
use millrace_wire::nfs3::{NameInDirectory, Procedure};
use support::folder::Folder;
use support::{Bench, rules};

#[test]
fn calls_wait_for_helpers_of_a_folder_in_the_turn_of_their_client() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::new(HugepagePolicy::Off);
    let Folder { volume, store, .. } = Folder::open(folder.path(), &registry);
    let exports = Exports::new([(rules("/export"), store.clone())]).unwrap();
    let key = HandleKey::new(&support::SECRET);
    let replay = ReplayCache::new(ReplayLimits::default());
    let service =
        millrace::service::ReactorPrograms::new(exports, key, replay, MountTable::default());
    let bench = Bench::over(&registry, store, service);

    // The one helper is busy until all have come.
    let (begun, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let busy = volume.helpers().run(ClientKey::OWN, move || {
        begun.send(()).unwrap();
        let _ = may_go.recv();
    });
    has_begun.recv().unwrap();
    let root = bench.root();
    let entry = NameInDirectory {
        directory: root,
        name: b"name",
    };
    for (address, queued_clients) in [
        ("192.0.2.1:1000", 1),
        ("192.0.2.1:2000", 1),
        ("192.0.2.2:1000", 2),
        ("[2001:db8::1]:1000", 3),
        ("192.0.2.2:9", 3),
    ] {
        let address: SocketAddr = address.parse().unwrap();
        bench.call_from(Peer::new(address, TransportKind::Tcp));
        // One with a caller, and one that has none.
        let messages = [
            bench.message((100_003, 3, Procedure::Lookup.number()), &entry),
            bench.message((100_003, 3, Procedure::Getattr.number()), &root),
        ];
        for message in messages {
            let load = bench.send_waiting(&message, || volume.helpers().load());
            assert_eq!(load.queued_clients, queued_clients, "{address}");
            assert!(volume.helpers().is_wanted_by_others(ClientKey::OWN));
        }
    }
    assert_eq!(volume.helpers().load().queued, 10);
    // MOUNT looks names up, too.
    let address: SocketAddr = "192.0.2.2:3000".parse().unwrap();
    bench.call_from(Peer::new(address, TransportKind::Tcp));
    let program = (
        mount::PROGRAM,
        mount::VERSION,
        mount::Procedure::Mount.number(),
    );
    let message = bench.message(program, &mount::Path(b"/export/name"));
    let load = bench.send_waiting(&message, || volume.helpers().load());
    assert_eq!((load.queued, load.queued_clients), (11, 3));
    go.send(()).unwrap();
    drop(busy);
}
