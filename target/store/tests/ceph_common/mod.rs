//! What the tests of the Ceph store share: volumes in the cluster that `MILLRACE_CEPH_CONF` names.
//! `deploy/ceph-check` starts such a cluster.

#![allow(dead_code)] // Each test file uses its part.

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_store::Store;
use millrace_store::ceph::CephStore;
use millrace_store::ceph::volume::{CephConfig, CephLimits, CephVolume, MountConfig, Sync};

use crate::common::{ROOT, drive, mode, now};

/// A volume in an empty directory, and its store on this thread.
pub struct World {
    pub store: CephStore,
    pub volume: CephVolume,
}

impl Deref for World {
    type Target = CephStore;

    fn deref(&self) -> &CephStore {
        &self.store
    }
}

/// Where the tests' cluster is; `None` where there is none, which is recorded.
pub fn conf() -> Option<PathBuf> {
    let conf = std::env::var_os("MILLRACE_CEPH_CONF").map(PathBuf::from);
    if conf.is_none() {
        millrace_testing::skip!("MILLRACE_CEPH_CONF is not set, so there is no Ceph cluster");
    }
    conf
}

/// The configuration of a volume in the cluster.
pub fn config(conf: PathBuf, root: &str) -> CephConfig {
    let mut limits = CephLimits::default();
    limits.helpers.threads = 4;
    CephConfig {
        name: "test".into(),
        mount: MountConfig {
            conf,
            user: "gateway".into(),
            keyring: None,
            file_system: None,
            root: root.into(),
            uuid: None,
            predecessor: None,
            timeout: 30,
            options: Vec::new(),
        },
        // Names are synced in tests of durability only: there are thousands of them here.
        sync: Sync::Relaxed,
        read_only: false,
        leases: false,
        limits,
    }
}

/// Makes an empty directory that anyone may write, and returns its path in the file system.
pub fn directory(conf: PathBuf) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
    let top = World::open(config(conf, "/"));
    let made = now(millrace_store::Namespace::make_directory(
        &top.store,
        &ROOT,
        top.root(),
        name.as_bytes(),
        &mode(0o777),
    ));
    made.result.expect("a directory");
    format!("/{name}")
}

impl Drop for World {
    /// Ends the session: one that the process leaves behind holds up others until it times out.
    fn drop(&mut self) {
        self.volume.close();
    }
}

impl World {
    pub fn open(config: CephConfig) -> Self {
        let volume = CephVolume::open(config).expect("a mount");
        let store = store_of(&volume);
        Self { store, volume }
    }
}

/// A store on this thread, whose waiting operations go on in [`crate::common::now`].
pub fn store_of(volume: &CephVolume) -> CephStore {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).expect("memory");
    let store = CephStore::new(volume, &pool);
    let driven = Rc::new(store.clone());
    drive(move || {
        driven.poll(Instant::now());
        // Helpers that are done end the wait.
        std::thread::park_timeout(Duration::from_millis(20));
    });
    store
}

/// Runs a test on a store in an empty directory.
pub fn with_store(test: impl FnOnce(&CephStore)) {
    with_synced(Sync::Relaxed, test);
}

/// The same, where changes are durable when they are answered.
pub fn with_strict_store(test: impl FnOnce(&CephStore)) {
    with_synced(Sync::Strict, test);
}

fn with_synced(sync: Sync, test: impl FnOnce(&CephStore)) {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let mut config = config(conf, &root);
    config.sync = sync;
    test(&World::open(config));
}
