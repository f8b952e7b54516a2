//! Names in memory: what is not the same in all stores.

mod common;
mod suites;

use common::*;
use millrace_store::memory::{
    DEPTH_MAX, DIRECTORY_BYTES, LINKS_MAX, MemoryConfig, MemoryStore, NAME_BYTES, OBJECT_BYTES,
    SHORT_TEXT_MAX, SYMLINK_MAX,
};
use millrace_store::{CreateHow, Handle, Namespace, Store, StoreError};

fn with(test: impl FnOnce(&MemoryStore)) {
    test(&store());
}

suites::namespace_tests!(with);
suites::hold_tests!(with);
suites::space_tests!(with);

#[test]
fn links_of_one_object_are_bounded() {
    let config = MemoryConfig {
        inodes: Some(u64::from(LINKS_MAX) + 10),
        ..config(32 << 20)
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
fn a_held_file_takes_its_space_until_its_holds_end() {
    let store = store();
    let root = store.root();
    let before = (used(&store), inodes(&store));
    let file = create(&store, &ROOT, root, b"file");
    now(store.link(&ROOT, file, root, b"other")).result.unwrap();
    write(&store, file, 0, &[1; 10_000]).unwrap();
    let held = now(store.hold(file)).unwrap();
    for (name, left) in [(&b"file"[..], 1), (b"other", 1)] {
        now(store.remove(&ROOT, root, name)).result.unwrap();
        assert_eq!(inodes(&store), before.1 + left);
        assert!(used(&store) > before.0);
    }
    drop(held);
    assert_eq!((used(&store), inodes(&store)), before);

    // Holds keep no memory of a store that is gone.
    let file = create(&store, &ROOT, root, b"file");
    let held = now(store.hold(file)).unwrap();
    let mut remains = store.remains();
    drop(store);
    assert!(remains.free());
    drop(held);
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

/// The directories of a chain of so many levels, the uppermost first.
fn chain(store: &MemoryStore, parent: Handle, name: &[u8], levels: u32) -> Vec<Handle> {
    let mut directories = vec![parent];
    for _ in 0..levels {
        let last = *directories.last().unwrap();
        directories.push(make_directory(store, last, name));
    }
    directories.split_off(1)
}

#[test]
fn directories_are_made_down_to_the_greatest_depth() {
    let store = store();
    let deepest = *chain(&store, store.root(), b"d", DEPTH_MAX).last().unwrap();
    let refused = now(store.make_directory(&ROOT, deepest, b"d", &mode(0o755)));
    assert_eq!(refused.result.map(|_| ()), Err(StoreError::NameTooLong));
    assert_eq!(attributes(&store, deepest).links, 2);
    create(&store, &ROOT, deepest, b"file");
    drop(store);
}

#[test]
fn directories_are_not_moved_below_the_greatest_depth() {
    let store = store();
    let root = store.root();
    let levels = DEPTH_MAX - 10;
    let deep = *chain(&store, root, b"d", levels).last().unwrap();
    let tree = chain(&store, root, b"tree", 11);
    let moved = |from: Handle, to: Handle| now(store.rename(&ROOT, (from, b"tree"), (to, b"tree")));

    assert_eq!(moved(root, deep).result, Err(StoreError::NameTooLong));
    assert_eq!(now(store.lookup(&ROOT, root, b"tree")).unwrap().0, tree[0]);
    // A part of it fits; what is left above is low again once it is empty.
    moved(tree[4], deep).result.unwrap();
    for level in (0..4).rev() {
        now(store.remove_directory(&ROOT, tree[level], b"tree"))
            .result
            .unwrap();
    }
    chain(&store, tree[0], b"tree", 9);
    let other = make_directory(&store, root, b"other");
    now(store.rename(&ROOT, (deep, b"tree"), (other, b"tree")))
        .result
        .unwrap();
    moved(root, deep).result.unwrap();
    let mut last = tree[0];
    for _ in 0..9 {
        last = now(store.lookup(&ROOT, last, b"tree")).unwrap().0;
    }
    let refused = now(store.make_directory(&ROOT, last, b"tree", &mode(0o755))).result;
    assert_eq!(refused.map(|_| ()), Err(StoreError::NameTooLong));
    // What holds a directory knows how high that is.
    let above = now(store.lookup(&ROOT, root, b"d")).unwrap().0;
    let refused = now(store.rename(&ROOT, (root, b"d"), (other, b"d"))).result;
    assert_eq!(refused, Err(StoreError::NameTooLong));
    assert_eq!(now(store.lookup(&ROOT, above, b"..")).unwrap().0, root);
    let inside = now(store.rename(&ROOT, (root, b"d"), (last, b"d"))).result;
    assert_eq!(inside, Err(StoreError::Invalid));
}

#[test]
fn names_objects_and_texts_count_against_the_size() {
    let size = 64 << 10;
    let store = store_of(MemoryConfig {
        inodes: Some(1 << 20),
        ..config(size)
    });
    let root = store.root();
    let text = [b'x'; SYMLINK_MAX];
    let make = |kind: usize, name: &[u8]| match kind {
        0 => {
            let how = CreateHow::Guarded(mode(0o600));
            now(store.create(&ROOT, root, name, &how))
                .result
                .map(|_| ())
        }
        1 => {
            let made = now(store.make_directory(&ROOT, root, name, &mode(0o755)));
            made.result.map(|_| ())
        }
        2 => {
            let made = now(store.symlink(&ROOT, root, name, b"short", &mode(0o777)));
            made.result.map(|_| ())
        }
        3 => {
            let made = now(store.symlink(&ROOT, root, name, &text, &mode(0o777)));
            made.result.map(|_| ())
        }
        _ => {
            let first = now(store.lookup(&ROOT, root, b"first")).unwrap().0;
            now(store.link(&ROOT, first, root, name)).result
        }
    };
    for kind in 0..5 {
        make(0, b"first").unwrap();
        let first = used(&store);
        assert_eq!(first, OBJECT_BYTES + NAME_BYTES + 5);
        let mut count = 0;
        let each = loop {
            let before = used(&store);
            let name = format!("{count:0200}");
            match make(kind, name.as_bytes()) {
                Ok(()) => count += 1,
                Err(error) => {
                    assert_eq!(error, StoreError::NoSpace);
                    assert_eq!(used(&store), before, "a refusal takes nothing");
                    break (before - first) / count;
                }
            }
            assert!(used(&store) <= size);
        };
        let expected = NAME_BYTES
            + 200
            + match kind {
                0 => OBJECT_BYTES,
                1 => DIRECTORY_BYTES,
                2 => OBJECT_BYTES + 5,
                3 => OBJECT_BYTES + 4096,
                _ => 0,
            };
        assert_eq!((kind, each), (kind, expected));
        assert_eq!(count, (size - first) / expected);
        let statistics = now(store.statistics(root)).unwrap();
        assert_eq!(statistics.free_bytes, size - used(&store));
        assert!(statistics.free_inodes <= statistics.free_bytes / OBJECT_BYTES);

        // A shorter name gives back, and a longer one takes no more than there is.
        let name = format!("{:0200}", 0);
        let left = statistics.free_bytes;
        let renamed = now(store.rename(&ROOT, (root, name.as_bytes()), (root, b"short")));
        renamed.result.unwrap();
        assert_eq!(size - used(&store), left + 195);
        let renamed = now(store.rename(&ROOT, (root, b"short"), (root, &[b'n'; 255])));
        assert_eq!(renamed.result.is_ok(), left >= 55, "{left} left");
        for name in list(&store, root) {
            if !name.starts_with(b".") {
                let removed = match kind {
                    1 if name != b"first" => now(store.remove_directory(&ROOT, root, &name)),
                    _ => now(store.remove(&ROOT, root, &name)),
                };
                removed.result.unwrap();
            }
        }
        assert_eq!(used(&store), 0);
    }
}

#[test]
fn long_texts_of_links_are_read_as_they_were_written() {
    let store = store();
    for length in [1, SHORT_TEXT_MAX, SHORT_TEXT_MAX + 1, SYMLINK_MAX] {
        let text = pattern(1, length);
        let made = now(store.symlink(&ROOT, store.root(), b"link", &text, &mode(0o777)));
        let (link, attributes) = made.result.unwrap();
        assert_eq!(attributes.size, length as u64);
        let mut found = b"before".to_vec();
        now(store.read_link(&ROOT, link, &mut found)).unwrap();
        assert_eq!(found, [b"before", &text[..]].concat());
        now(store.remove(&ROOT, store.root(), b"link"))
            .result
            .unwrap();
    }
    assert_eq!(used(&store), 0);
}

#[test]
fn renaming_over_a_name_gives_back_what_it_replaces() {
    let store = store();
    let root = store.root();
    create(&store, &ROOT, root, b"old");
    create(&store, &ROOT, root, b"replaced");
    now(store.rename(&ROOT, (root, b"old"), (root, b"replaced")))
        .result
        .unwrap();
    assert_eq!(used(&store), OBJECT_BYTES + NAME_BYTES + 8);
    now(store.rename(&ROOT, (root, b"replaced"), (root, b"n")))
        .result
        .unwrap();
    assert_eq!(used(&store), OBJECT_BYTES + NAME_BYTES + 1);
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
    let room = 40_960 / (OBJECT_BYTES + NAME_BYTES + 1);
    assert_eq!(statistics.free_inodes, room);
    assert_eq!(statistics.available_inodes, room);
    assert_eq!(statistics.total_inodes, room + 1);
    let properties = store.properties();
    assert_eq!((properties.name_max, properties.file_system), (255, 7));
    assert_eq!(properties.size_max, i64::MAX as u64);
}
