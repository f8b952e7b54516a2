//! Extended attributes.

use millrace_store::{
    ExtendedAttributes, Handle, Namespace, Result, SetXattrHow, SpecialKind, Store, StoreError,
    XATTR_NAME_MAX, XATTR_VALUE_MAX,
};

use crate::common::*;

fn get(store: &impl Store, object: Handle, name: &[u8]) -> Result<Vec<u8>> {
    // Behind what is there.
    let mut value = b"before".to_vec();
    now(store.xattr(&user(10), object, name, &mut value))?;
    assert_eq!(&value[..6], b"before");
    Ok(value.split_off(6))
}

fn set(
    store: &impl Store,
    object: Handle,
    name: &[u8],
    value: &[u8],
    how: SetXattrHow,
) -> Result<()> {
    now(store.set_xattr(&user(10), object, name, value, how)).result
}

fn names(store: &impl Store, object: Handle) -> Vec<Vec<u8>> {
    let mut list = Vec::new();
    now(store.xattrs(&user(10), object, &mut list)).unwrap();
    assert!(list.is_empty() || list.ends_with(&[0]));
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    names.sort();
    names
}

fn objects(store: &impl Store) -> [Handle; 2] {
    let file = create(store, &user(10), store.root(), b"file");
    let set = owner(10, 10);
    let directory = make_directory(store, store.root(), b"directory");
    now(store.set_attributes(&ROOT, directory, &set, None))
        .result
        .unwrap();
    [file, directory]
}

pub fn extended_attributes_are_kept(store: &impl Store) {
    use SetXattrHow::{Create, Either, Replace};
    assert!(store.properties().xattrs);
    for object in objects(store) {
        assert_eq!(names(store, object), Vec::<Vec<u8>>::new());
        assert_eq!(get(store, object, b"a"), Err(StoreError::NoXattr));
        assert_eq!(
            set(store, object, b"a", b"1", Replace),
            Err(StoreError::NoXattr)
        );
        assert_eq!(set(store, object, b"a", b"one", Create), Ok(()));
        assert_eq!(
            set(store, object, b"a", b"2", Create),
            Err(StoreError::Exists)
        );
        assert_eq!(get(store, object, b"a"), Ok(b"one".to_vec()));
        assert_eq!(set(store, object, b"a", b"other", Replace), Ok(()));
        assert_eq!(set(store, object, b"b.c\xff", b"", Either), Ok(()));
        assert_eq!(get(store, object, b"a"), Ok(b"other".to_vec()));
        assert_eq!(get(store, object, b"b.c\xff"), Ok(vec![]));
        assert_eq!(names(store, object), [b"a".to_vec(), b"b.c\xff".to_vec()]);
        let remove = |name: &[u8]| now(store.remove_xattr(&user(10), object, name)).result;
        assert_eq!(remove(b"none"), Err(StoreError::NoXattr));
        assert_eq!(remove(b"a"), Ok(()));
        assert_eq!(remove(b"a"), Err(StoreError::NoXattr));
        assert_eq!(names(store, object), [b"b.c\xff".to_vec()]);
    }
}

pub fn changes_of_extended_attributes_are_changes(store: &impl Store) {
    for object in objects(store) {
        let change = || attributes(store, object).change;
        let mut last = change();
        let mut grows = |done: millrace_store::Modified<()>, what: &str| {
            done.result.unwrap();
            let now = change();
            assert!(now > last, "{what}");
            assert_eq!(done.consistency.after.unwrap().change, now);
            last = now;
        };
        let how = SetXattrHow::Either;
        grows(now(store.set_xattr(&ROOT, object, b"a", b"1", how)), "new");
        grows(
            now(store.set_xattr(&ROOT, object, b"a", b"2", how)),
            "other",
        );
        grows(now(store.remove_xattr(&ROOT, object, b"a")), "none");
        let before = change();
        let done = now(store.remove_xattr(&ROOT, object, b"a"));
        assert_eq!(done.result, Err(StoreError::NoXattr));
        assert_eq!(change(), before);
    }
}

pub fn bounds_of_extended_attributes(store: &impl Store) {
    let [file, _] = objects(store);
    let how = SetXattrHow::Either;
    let long = vec![b'n'; XATTR_NAME_MAX];
    assert_eq!(set(store, file, &long, b"v", how), Ok(()));
    assert_eq!(get(store, file, &long), Ok(b"v".to_vec()));
    assert_eq!(names(store, file), std::slice::from_ref(&long));
    let longer = [&long[..], b"n"].concat();
    assert_eq!(
        set(store, file, &longer, b"v", how),
        Err(StoreError::NameTooLong)
    );
    for name in [&b""[..], b"a\0b"] {
        assert_eq!(set(store, file, name, b"v", how), Err(StoreError::Invalid));
    }
    let value = vec![0; XATTR_VALUE_MAX + 1];
    assert_eq!(
        set(store, file, b"a", &value, how),
        Err(StoreError::XattrTooLong)
    );
    assert_eq!(get(store, file, b"a"), Err(StoreError::NoXattr));
}

pub fn who_may_use_extended_attributes(store: &impl Store) {
    let [file, directory] = objects(store);
    let how = SetXattrHow::Either;
    now(store.set_xattr(&user(10), file, b"a", b"1", how))
        .result
        .unwrap();
    let other = user(11);
    let mut value = Vec::new();
    assert_eq!(now(store.xattr(&other, file, b"a", &mut value)), Ok(()));
    let denied = now(store.set_xattr(&other, file, b"a", b"2", how)).result;
    assert_eq!(denied, Err(StoreError::Denied));
    let denied = now(store.remove_xattr(&other, file, b"a")).result;
    assert_eq!(denied, Err(StoreError::Denied));
    now(store.set_attributes(&ROOT, file, &mode(0o600), None))
        .result
        .unwrap();
    let denied = now(store.xattr(&other, file, b"a", &mut value));
    assert_eq!(denied, Err(StoreError::Denied));
    assert_eq!(
        now(store.xattrs(&other, file, &mut value)),
        Err(StoreError::Denied)
    );
    // Anybody may make names there, and only the owner say what it is.
    now(store.set_attributes(&ROOT, directory, &mode(0o1777), None))
        .result
        .unwrap();
    let denied = now(store.set_xattr(&other, directory, b"a", b"2", how)).result;
    assert_eq!(denied, Err(StoreError::NotOwner));
    now(store.set_xattr(&user(10), directory, b"a", b"2", how))
        .result
        .unwrap();
}

pub fn other_objects_have_none(store: &impl Store) {
    let (root, set) = (store.root(), mode(0o666));
    let link = now(store.symlink(&ROOT, root, b"link", b"file", &set)).result;
    let fifo = now(store.make_node(&ROOT, root, b"fifo", SpecialKind::Fifo, &set)).result;
    for (object, _) in [link.unwrap(), fifo.unwrap()] {
        let how = SetXattrHow::Either;
        let done = now(store.set_xattr(&ROOT, object, b"a", b"1", how)).result;
        assert_eq!(done, Err(StoreError::Invalid));
        let mut list = Vec::new();
        assert_eq!(
            now(store.xattrs(&ROOT, object, &mut list)),
            Err(StoreError::Invalid)
        );
    }
}
