//! Files that are held, as those that clients have open.

use millrace_store::{FileHold, Handle, SetAttributes, Store, StoreError};

use crate::common::*;

fn hold(store: &impl Store, file: Handle) -> Result<FileHold, StoreError> {
    now(store.hold(file))
}

fn remove(store: &impl Store, name: &[u8]) {
    now(store.remove(&ROOT, store.root(), name)).result.unwrap();
}

pub fn held_files_stay_without_a_name(store: &impl Store) {
    let root = store.root();
    let file = create(store, &ROOT, root, b"file");
    write(store, file, 0, b"content").unwrap();
    let first = hold(store, file).unwrap();
    let second = hold(store, file).unwrap();
    remove(store, b"file");

    let found = attributes(store, file);
    assert_eq!((found.links, found.size), (0, 7));
    assert_eq!(read(store, file, 0, 100), b"content");
    write(store, file, 7, b" and more").unwrap();
    assert_eq!(read(store, file, 0, 100), b"content and more");
    let size = SetAttributes {
        size: Some(4),
        ..SetAttributes::default()
    };
    now(store.set_attributes(&ROOT, file, &size, None))
        .result
        .unwrap();
    assert_eq!(read(store, file, 0, 100), b"cont");
    now(store.statistics(file)).unwrap();
    // Names are those of the directory only.
    let linked = now(store.link(&ROOT, file, root, b"again"));
    assert!(linked.result.is_err());
    let other = create(store, &ROOT, root, b"file");
    assert_ne!(other, file);
    assert_eq!(attributes(store, other).size, 0);

    drop(first);
    assert_eq!(read(store, file, 0, 100), b"cont");
    let third = hold(store, file).unwrap();
    drop(second);
    assert_eq!(read(store, file, 0, 100), b"cont");
    drop(third);
    ended(store, file);
    assert_eq!(hold(store, file).err(), Some(StoreError::Stale));
}

pub fn replaced_files_are_held(store: &impl Store) {
    let root = store.root();
    let old = create(store, &ROOT, root, b"file");
    write(store, old, 0, b"old").unwrap();
    let new = create(store, &ROOT, root, b"new");
    let held = hold(store, old).unwrap();
    let renamed = now(store.rename(&ROOT, (root, b"new"), (root, b"file")));
    renamed.result.unwrap();
    assert_eq!(read(store, old, 0, 100), b"old");
    assert_eq!(attributes(store, new).links, 1);
    drop(held);
    ended(store, old);
    // A file with a name outlives its holds.
    drop(hold(store, new).unwrap());
    assert_eq!(attributes(store, new).links, 1);
    remove(store, b"file");
    ended(store, new);
}

pub fn files_only_are_held(store: &impl Store) {
    assert_eq!(
        hold(store, store.root()).err(),
        Some(StoreError::IsDirectory)
    );
    let made = now(store.symlink(&ROOT, store.root(), b"link", b"to", &mode(0o777)));
    let (link, _) = made.result.unwrap();
    assert_eq!(hold(store, link).err(), Some(StoreError::Invalid));
}

fn ended(store: &impl Store, file: Handle) {
    assert_eq!(now(store.attributes(file)).err(), Some(StoreError::Stale));
}
