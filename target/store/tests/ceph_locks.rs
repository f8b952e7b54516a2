//! Byte-range locks in a cluster: two servers meet, and locks end with their session.

mod ceph_common;
mod common;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ceph_common::{World, conf, config, directory};
use common::*;
use millrace_store::any::AnyVolume;
use millrace_store::ceph::volume::CephVolume;
use millrace_store::lock_file::{FileLock, LockFile};
use millrace_store::{Handle, Store, StoreError};

fn bytes(offset: u64, length: u64, writes: bool) -> FileLock {
    FileLock {
        offset,
        length,
        writes,
    }
}

/// A file of a volume, and where its loss is told.
fn open(volume: &CephVolume, file: Handle) -> (LockFile, Receiver<()>) {
    let (sender, told) = channel();
    let volume = AnyVolume::Ceph(volume.clone());
    let file = volume.open_for_locks(file, move || sender.send(()).unwrap());
    (file.unwrap(), told)
}

#[test]
fn v4_lock_19_two_servers_of_a_file_system_meet_locks_of_each_other() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let [one, other] = [(); 2].map(|()| World::open(config(conf.clone(), &root)));
    let file = create(&one.store, &ROOT, one.root(), b"file");
    let (ours, _told) = open(&one.volume, file);
    let (theirs, _told) = open(&other.volume, file);
    assert!(ours.lock(bytes(10, 10, true)).unwrap());
    assert_eq!(ours.conflict(bytes(0, u64::MAX, true)).unwrap(), None);
    for writes in [false, true] {
        assert!(!theirs.lock(bytes(0, u64::MAX, writes)).unwrap());
        let found = theirs.conflict(bytes(19, 5, writes)).unwrap();
        assert_eq!(found, Some(bytes(10, 10, true)));
    }
    assert!(theirs.lock(bytes(20, u64::MAX, true)).unwrap());
    let found = ours.conflict(bytes(0, u64::MAX, false)).unwrap();
    assert_eq!(found, Some(bytes(20, u64::MAX, true)));
    // A weaker lock lets readers in, and the part that is unlocked everybody.
    assert!(ours.lock(bytes(10, 10, false)).unwrap());
    ours.unlock(0, 15).unwrap();
    assert!(theirs.lock(bytes(15, 5, false)).unwrap());
    assert!(theirs.lock(bytes(0, 15, true)).unwrap());
    assert!(!theirs.lock(bytes(15, 5, true)).unwrap());
    // Locks end with the file that they were taken by.
    drop(ours);
    assert!(theirs.lock(bytes(15, 5, true)).unwrap());
    assert!(theirs.is_in_force());
}

#[test]
fn locks_are_taken_of_files_that_there_are() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let world = World::open(config(conf, &root));
    let volume = AnyVolume::Ceph(world.volume.clone());
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let mut other = file.as_bytes().to_vec();
    other[20] ^= 1;
    let other = Handle::new(&other).unwrap();
    assert_eq!(
        volume.open_for_locks(other, || ()).err(),
        Some(StoreError::Stale)
    );
    assert_eq!(
        volume.open_for_locks(world.root(), || ()).err(),
        Some(StoreError::IsDirectory)
    );
}

#[test]
fn a_session_that_is_lost_has_no_successor_before_its_locks_are_given_up() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let named = || {
        let mut config = config(conf.clone(), &root);
        let name = format!("locks-{}", std::process::id());
        config.mount.predecessor = Some(name.clone());
        config.mount.uuid = Some(name);
        config
    };
    let world = World::open(named());
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let (lock, told) = open(&world.volume, file);
    assert!(lock.lock(bytes(0, 1, true)).unwrap());
    // Another server ends the session of this one, and takes what it had.
    let successor = World::open(named());
    let (taken, _told) = open(&successor.volume, file);
    assert!(taken.lock(bytes(0, 1, true)).unwrap());
    drop(taken);
    drop(successor);
    lock.lock(bytes(5, 1, true)).unwrap_err();
    told.recv_timeout(Duration::from_secs(10))
        .expect("the loss is told");
    assert!(!lock.is_in_force());
    assert!(lock.conflict(bytes(5, 1, true)).is_err());
    let volume = AnyVolume::Ceph(world.volume.clone());
    let anew = || volume.open_for_locks(file, || ()).map(drop);
    // Without the lock there would be another one soon.
    std::thread::park_timeout(Duration::from_secs(1));
    assert_eq!(anew(), Err(StoreError::Delay));
    assert!(!world.volume.figures().is_mounted);
    drop(lock);
    while !world.volume.figures().is_mounted {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let (lock, told) = open(&world.volume, file);
    assert!(lock.lock(bytes(0, 1, true)).unwrap());
    assert!(lock.is_in_force());
    assert!(told.try_recv().is_err());
}

#[test]
fn a_server_is_fenced_and_does_not_come_back_if_that_is_forbidden() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let name = format!("fenced-{}", std::process::id());
    let mut named = config(conf.clone(), &root);
    named.mount.uuid = Some(name.clone());
    let world = World::open(named);
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let (asked, was_asked) = channel();
    world.volume.reopen_if(move || asked.send(()).is_err());
    let other = World::open(config(conf, &root));
    assert_eq!(other.volume.fence("nobody"), Ok(false));
    assert_eq!(other.volume.fence(&name), Ok(true));
    assert_eq!(other.volume.fence(&name), Ok(false));
    assert_eq!(
        write(&world.store, file, 0, b"late").err(),
        Some(StoreError::Delay)
    );
    was_asked.recv_timeout(Duration::from_secs(30)).unwrap();
    // The answer was that it may not.
    std::thread::park_timeout(Duration::from_millis(500));
    assert!(!world.volume.figures().is_mounted);
}
