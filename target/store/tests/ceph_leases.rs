//! Leases of files in a cluster: whoever changes a file waits for their end.

mod ceph_common;
mod common;

use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ceph_common::{World, conf, config, directory, store_of};
use common::*;
use millrace_store::any::AnyVolume;
use millrace_store::ceph::CephStore;
use millrace_store::ceph::volume::{CephConfig, CephVolume};
use millrace_store::lock_file::FileLock;
use millrace_store::{FileLease, Handle, LeaseBreak, Namespace, Store};

const LONG: Duration = Duration::from_secs(30);

/// Takes a lease. The receiver is told when it has to end.
fn lease(store: &CephStore, file: Handle) -> (Option<FileLease>, Receiver<()>) {
    let (sender, told) = channel();
    let end = LeaseBreak::new(move || sender.send(()).unwrap());
    (now(store.lease(file, end)).unwrap(), told)
}

/// Begins with a change on a thread of its own. The receiver is told when it is done.
fn begin(
    volume: &CephVolume,
    change: impl FnOnce(&CephStore) + Send + 'static,
) -> (std::thread::JoinHandle<()>, Receiver<()>) {
    let (sender, done) = channel();
    let volume = volume.clone();
    let thread = std::thread::spawn(move || {
        change(&store_of(&volume));
        sender.send(()).unwrap();
    });
    (thread, done)
}

fn leased(conf: std::path::PathBuf, root: &str) -> CephConfig {
    CephConfig {
        leases: true,
        ..config(conf, root)
    }
}

/// A change, made with the lease and the file.
type Change = fn(&CephStore, Handle);

/// Whether a session's own leases are in the way, too.
const CHANGES: [(&str, bool, Change); 6] = [
    ("write", true, |store, file| {
        write(store, file, 0, b"changed").unwrap();
    }),
    ("truncate", false, |store, file| {
        let set = now(store.set_attributes(&ROOT, file, &size(1), None));
        set.result.unwrap();
    }),
    ("chmod", false, |store, file| {
        let set = now(store.set_attributes(&ROOT, file, &mode(0o600), None));
        set.result.unwrap();
    }),
    ("link", true, |store, file| {
        let linked = now(store.link(&ROOT, file, store.root(), b"link"));
        linked.result.unwrap();
    }),
    ("rename onto it", true, |store, _| {
        let root = store.root();
        create(store, &ROOT, root, b"other");
        let renamed = now(store.rename(&ROOT, (root, b"other"), (root, b"file")));
        renamed.result.unwrap();
    }),
    ("remove", true, |store, _| {
        let removed = now(store.remove(&ROOT, store.root(), b"file"));
        removed.result.unwrap();
    }),
];

#[test]
fn changes_wait_for_the_end_of_a_lease() {
    let Some(conf) = conf() else { return };
    for (name, waits_for_own, change) in CHANGES {
        for is_own in [false, true] {
            if is_own && !waits_for_own {
                continue;
            }
            let root = directory(conf.clone());
            let [other, one] = [(); 2].map(|()| World::open(leased(conf.clone(), &root)));
            let file = create(&one.store, &ROOT, one.root(), b"file");
            let (lease, told) = lease(&one.store, file);
            let lease = lease.unwrap_or_else(|| panic!("{name}: a lease"));
            // Reading is no change.
            assert_eq!(read(&one.store, file, 0, 10), b"");
            let volume = if is_own { &one.volume } else { &other.volume };
            let (thread, done) = begin(volume, move |store| change(store, file));
            told.recv_timeout(LONG)
                .unwrap_or_else(|_| panic!("{name} (own: {is_own}): told"));
            assert!(lease.is_broken());
            let early = done.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "{name} (own: {is_own}) did not wait");
            drop(lease);
            done.recv_timeout(LONG)
                .unwrap_or_else(|_| panic!("{name} (own: {is_own}): done"));
            thread.join().unwrap();
            assert!(one.volume.figures().is_mounted);
        }
    }
}

#[test]
fn no_other_server_locks_bytes_for_writing_before_a_lease_has_ended() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let other = World::open(config(conf.clone(), &root));
    let one = World::open(leased(conf, &root));
    let file = create(&one.store, &ROOT, one.root(), b"file");
    let there = AnyVolume::Ceph(other.volume.clone());
    let locks = there.open_for_locks(file, || ()).unwrap();
    let bytes = |writes| FileLock {
        offset: 100,
        length: 10,
        writes,
    };
    let (lease_of_one, told) = lease(&one.store, file);
    let lease_of_one = lease_of_one.unwrap();
    assert!(locks.lock(bytes(false)).unwrap());
    locks.unlock(100, 10).unwrap();
    assert!(told.try_recv().is_err());
    assert!(!locks.lock(bytes(true)).unwrap());
    assert!(told.try_recv().is_err());
    let conflict = locks.conflict(bytes(true));
    assert_eq!(conflict.unwrap_err().kind(), ErrorKind::WouldBlock);
    told.recv_timeout(LONG).unwrap();
    assert!(!locks.lock(bytes(true)).unwrap());
    drop(lease_of_one);
    while !locks.lock(bytes(true)).unwrap() {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(locks.conflict(bytes(true)).unwrap(), None);
    let (refused, _told) = lease(&one.store, file);
    assert!(refused.is_none());
}

#[test]
fn readers_share_a_file_and_writers_get_no_lease() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let [other, one] = [(); 2].map(|()| World::open(leased(conf.clone(), &root)));
    let file = create(&other.store, &ROOT, other.root(), b"file");
    // The first reader beside the only user of a file ends what that one has of it alone.
    let reading = |volume: &CephVolume| {
        let (thread, done) = begin(volume, move |store| {
            assert_eq!(read(store, file, 0, 10), b"");
        });
        done.recv_timeout(LONG).unwrap();
        thread.join().unwrap();
    };
    reading(&one.volume);
    reading(&other.volume);
    let (first, first_told) = lease(&one.store, file);
    let (second, second_told) = lease(&one.store, file);
    assert!(first.is_some() && second.is_some());
    reading(&other.volume);
    let is_broken = |lease: &Option<FileLease>| lease.as_ref().is_some_and(FileLease::is_broken);
    assert!(!is_broken(&first) && !is_broken(&second));
    drop(first);
    drop(second);
    assert!(first_told.try_recv().is_err() && second_told.try_recv().is_err());
    write(&one.store, file, 0, b"written").unwrap();
    // Its file is open for writing for a while.
    let (refused, _told) = lease(&one.store, file);
    assert!(refused.is_none());
}

#[test]
fn leases_are_broken_when_their_session_is_lost() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let named = || {
        let mut config = leased(conf.clone(), &root);
        let name = format!("leases-{}", std::process::id());
        config.mount.predecessor = Some(name.clone());
        config.mount.uuid = Some(name);
        config
    };
    let world = World::open(named());
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let (lease, told) = lease(&world.store, file);
    let lease = lease.unwrap();
    // Another server ends the session of this one.
    drop(World::open(named()));
    let store = store_of(&world.volume);
    // The loss is found by a request.
    for _ in 0..1000 {
        if !lease.is_broken() {
            let _ = now(store.set_attributes(&ROOT, file, &mode(0o600), None));
        }
    }
    told.recv_timeout(LONG).expect("the loss is told");
    drop(lease);
    while !world.volume.figures().is_mounted {
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_volume_is_closed_beside_its_leases() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let world = World::open(leased(conf, &root));
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let (lease, told) = lease(&world.store, file);
    let lease = lease.unwrap();
    drop(world);
    drop(lease);
    assert!(told.try_recv().is_err());
}

#[test]
fn there_are_none_unless_they_are_wanted() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    for is_wanted in [false, true] {
        let config = CephConfig {
            leases: is_wanted,
            ..config(conf.clone(), &root)
        };
        let world = World::open(config);
        assert_eq!(world.properties().leases, is_wanted);
        let name = format!("file-{is_wanted}");
        let file = create(&world.store, &ROOT, world.root(), name.as_bytes());
        let (lease, _told) = lease(&world.store, file);
        assert_eq!(lease.is_some(), is_wanted);
    }
}
