//! Names in memory: what is not the same in all stores.

mod common;
mod suites;

use common::*;
use millrace_store::memory::{LINKS_MAX, MemoryConfig, MemoryStore};
use millrace_store::{CreateHow, Handle, Store, StoreError};

fn with(test: impl FnOnce(&MemoryStore)) {
    test(&store());
}

suites::namespace_tests!(with);

#[test]
fn links_of_one_object_are_bounded() {
    let config = MemoryConfig {
        inodes: Some(u64::from(LINKS_MAX) + 10),
        ..config(4096)
    };
    let store = store_of(config);
    let file = create(&store, &ROOT, store.root(), b"file");
    let link = |number: u32| {
        let name = number.to_string().into_bytes();
        now(store.link(&ROOT, file, store.root(), &name)).result
    };
    for number in 1..LINKS_MAX {
        assert_eq!(link(number), Ok(()));
    }
    assert_eq!(link(LINKS_MAX), Err(StoreError::TooManyLinks));
    assert_eq!(inodes(&store), u64::from(LINKS_MAX) + 1);
}

#[test]
fn inodes_are_limited_and_come_back() {
    let store = store_of(MemoryConfig {
        inodes: Some(4),
        ..config(4096)
    });
    let root = store.root();
    let file = create(&store, &ROOT, root, b"a");
    make_directory(&store, root, b"b");
    now(store.link(&ROOT, file, root, b"c")).result.unwrap();
    let refused = now(store.link(&ROOT, file, root, b"d")).result;
    assert_eq!(refused, Err(StoreError::NoSpace));
    let how = CreateHow::Guarded(mode(0o600));
    let refused = now(store.create(&ROOT, root, b"d", &how)).result;
    assert_eq!(refused, Err(StoreError::NoSpace));
    assert_eq!(attributes(&store, file).links, 2);
    now(store.remove_directory(&ROOT, root, b"b"))
        .result
        .unwrap();
    create(&store, &ROOT, root, b"d");
    for name in [b"a", b"c", b"d"] {
        now(store.remove(&ROOT, root, name)).result.unwrap();
    }
    assert_eq!(inodes(&store), 1);
}

#[test]
fn handles_of_another_start_are_stale_but_for_the_root() {
    let first = store();
    let file = create(&first, &ROOT, first.root(), b"file");
    let second = store_of(MemoryConfig {
        epoch: 2,
        ..config(4096)
    });
    assert_eq!(second.root(), first.root());
    let again = create(&second, &ROOT, second.root(), b"file");
    let inode = |store: &MemoryStore, handle| now(store.attributes(handle)).unwrap().inode;
    assert_eq!(inode(&second, again), inode(&first, file));
    assert_eq!(now(second.attributes(file)), Err(StoreError::Stale));
    let pair = |inode: u64, generation: u64| {
        Handle::new(&[inode.to_be_bytes(), generation.to_be_bytes()].concat()).unwrap()
    };
    for handle in [
        pair(0, 0),
        pair(u64::MAX, 1),
        pair(1, 0),
        Handle::new(&[]).unwrap(),
        Handle::new(&[0; Handle::MAX]).unwrap(),
        Handle::new(&first.root().as_bytes()[..15]).unwrap(),
    ] {
        assert_eq!(now(second.attributes(handle)), Err(StoreError::Stale));
    }
}

#[test]
fn a_deep_tree_is_dropped_without_recursion() {
    let store = store_of(MemoryConfig {
        inodes: Some(60_000),
        ..config(4096)
    });
    let mut directory = store.root();
    for _ in 0..50_000 {
        directory = make_directory(&store, directory, b"d");
    }
    drop(store);
}

#[test]
fn statistics_and_properties_tell_the_limits() {
    let store = store_of(MemoryConfig {
        inodes: Some(100),
        ..config(10 * 4096 + 5)
    });
    let statistics = now(store.statistics(store.root())).unwrap();
    assert_eq!(
        (statistics.total_bytes, statistics.free_bytes),
        (40_960, 40_960)
    );
    assert_eq!((statistics.total_inodes, statistics.free_inodes), (100, 99));
    assert_eq!(statistics.available_inodes, 99);
    let properties = store.properties();
    assert_eq!((properties.name_max, properties.file_system), (255, 7));
    assert_eq!(properties.size_max, i64::MAX as u64);
}
