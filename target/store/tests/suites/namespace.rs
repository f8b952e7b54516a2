//! Names: making, finding, linking, renaming, removing and listing.

use std::cell::Cell;

use millrace_store::{
    Attributes, Consistency, CookieVerifier, CreateHow, DirectoryEntry, Handle, Kind,
    SetAttributes, SetTime, SpecialKind, Store, StoreError, Time,
};

use crate::common::*;

fn lookup(store: &impl Store, directory: Handle, name: &[u8]) -> Result<Handle, StoreError> {
    now(store.lookup(&ROOT, directory, name)).map(|(handle, _)| handle)
}

fn rename(
    store: &impl Store,
    from: (Handle, &[u8]),
    to: (Handle, &[u8]),
) -> Result<(), StoreError> {
    now(store.rename(&ROOT, from, to)).result
}

fn links(store: &impl Store, object: Handle) -> u32 {
    attributes(store, object).links
}

/// Attributes of a directory before an operation: there, unless other servers change it too.
fn shown_before(store: &impl Store, shown: Consistency) -> Option<Attributes> {
    let expected = !store.properties().shared_by_servers;
    assert_eq!(shown.before.is_some(), expected);
    shown.before
}

pub fn names_are_found(store: &impl Store) {
    let root = store.root();
    let directory = make_directory(store, root, b"directory");
    let file = create(store, &ROOT, directory, b"file");
    assert_eq!(lookup(store, root, b"directory"), Ok(directory));
    assert_eq!(lookup(store, directory, b"file"), Ok(file));
    assert_eq!(lookup(store, directory, b"."), Ok(directory));
    assert_eq!(lookup(store, directory, b".."), Ok(root));
    assert_eq!(lookup(store, root, b".."), Ok(root));
    assert_eq!(lookup(store, root, b"file"), Err(StoreError::NotFound));
    assert_eq!(lookup(store, file, b"x"), Err(StoreError::NotDirectory));
    assert_eq!(
        lookup(store, root, &[b'x'; 256]),
        Err(StoreError::NameTooLong)
    );
    assert_eq!(lookup(store, root, &[b'x'; 255]), Err(StoreError::NotFound));
    for name in [&b""[..], b"a/b", b"a\0b"] {
        assert_eq!(lookup(store, root, name), Err(StoreError::Invalid));
    }
}

pub fn every_kind_can_be_made(store: &impl Store) {
    let root = store.root();
    let kinds = [
        SpecialKind::Block(8, 1),
        SpecialKind::Character(1, 3),
        SpecialKind::Fifo,
        SpecialKind::Socket,
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let name = [b'0' + number as u8];
        let made = now(store.make_node(&ROOT, root, &name, kind, &mode(0o600)));
        assert_eq!(made.result.unwrap().1.kind, Kind::Special(kind));
    }
    let made = now(store.symlink(&ROOT, root, b"link", b"to/there", &mode(0o777)));
    let (link, shown) = made.result.unwrap();
    assert_eq!((shown.kind, shown.size, shown.links), (Kind::Symlink, 8, 1));
    let mut text = b"before ".to_vec();
    now(store.read_link(&ROOT, link, &mut text)).unwrap();
    assert_eq!(text, b"before to/there");
    assert_eq!(
        now(store.read_link(&ROOT, root, &mut text)),
        Err(StoreError::Invalid)
    );
    let long = [b'x'; 5000];
    let made = now(store.symlink(&ROOT, root, b"long", &long, &mode(0o777)));
    assert_eq!(made.result, Err(StoreError::NameTooLong));
    let made = now(store.symlink(&ROOT, root, b"none", b"", &mode(0o777)));
    assert_eq!(made.result, Err(StoreError::Invalid));
    assert_eq!(links(store, root), 2);
    let directory = make_directory(store, root, b"directory");
    assert_eq!((links(store, directory), links(store, root)), (2, 3));
    let made = now(store.make_directory(&ROOT, root, b"link", &mode(0o700)));
    assert_eq!(made.result, Err(StoreError::Exists));
}

pub fn create_takes_the_three_ways(store: &impl Store) {
    let root = store.root();
    let make = |name: &[u8], how| now(store.create(&ROOT, root, name, &how)).result;
    let unchecked = |size| {
        CreateHow::Unchecked(SetAttributes {
            size,
            ..mode(0o640)
        })
    };
    let (file, shown) = make(b"file", unchecked(None)).unwrap();
    assert_eq!(shown.mode, 0o640);
    write(store, file, 0, b"12345").unwrap();
    let (again, shown) = make(b"file", unchecked(None)).unwrap();
    assert_eq!((again, shown.size), (file, 5));
    let (again, shown) = make(b"file", unchecked(Some(2))).unwrap();
    assert_eq!((again, shown.size), (file, 2));
    assert_eq!(
        make(b"file", CreateHow::Guarded(mode(0))),
        Err(StoreError::Exists)
    );
    assert_eq!(
        make(
            b"file",
            CreateHow::Exclusive([1; 8], SetAttributes::default())
        ),
        Err(StoreError::Exists)
    );
    let (exclusive, _) = make(
        b"exclusive",
        CreateHow::Exclusive([1; 8], SetAttributes::default()),
    )
    .unwrap();
    let (again, _) = make(
        b"exclusive",
        CreateHow::Exclusive([1; 8], SetAttributes::default()),
    )
    .unwrap();
    assert_eq!(again, exclusive);
    assert_eq!(
        make(
            b"exclusive",
            CreateHow::Exclusive([2; 8], SetAttributes::default())
        ),
        Err(StoreError::Exists)
    );
    make_directory(store, root, b"directory");
    assert_eq!(make(b"directory", unchecked(None)), Err(StoreError::Exists));
    for name in [&b"."[..], b".."] {
        assert_eq!(make(name, unchecked(None)), Err(StoreError::Exists));
    }
    let sized = make(b"sized", CreateHow::Guarded(size(1 << 30))).unwrap();
    assert_eq!(sized.1.size, 1 << 30);
}

pub fn a_file_takes_no_space_for_its_size(store: &impl Store) {
    let how = CreateHow::Guarded(size(1 << 40));
    let made = now(store.create(&ROOT, store.root(), b"sized", &how));
    let sized = made.result.unwrap().1;
    assert_eq!((sized.size, sized.used), (1 << 40, 0));
}

pub fn operations_report_the_directory_before_and_after(store: &impl Store) {
    let root = store.root();
    let before = attributes(store, root);
    let made = now(store.create(&ROOT, root, b"file", &CreateHow::Guarded(mode(0o600))));
    if let Some(shown) = shown_before(store, made.consistency) {
        assert_eq!(
            (shown.changed, shown.modified),
            (before.changed, before.modified)
        );
    }
    let after = made.consistency.after.unwrap();
    assert_eq!(after, attributes(store, root));
    assert!(after.changed > before.changed && after.modified > before.modified);
    let failed = now(store.create(&ROOT, root, b"file", &CreateHow::Guarded(mode(0o600))));
    if let Some(shown) = shown_before(store, failed.consistency) {
        assert_eq!(shown.changed, after.changed);
    }
    assert_eq!(failed.consistency.after, Some(after));
    let failed = now(store.remove(&ROOT, root, b"missing"));
    assert_eq!(failed.result, Err(StoreError::NotFound));
    assert_eq!(failed.consistency.after, Some(after));
}

pub fn every_change_raises_the_change_attribute(store: &impl Store) {
    let root = store.root();
    let directory = make_directory(store, root, b"directory");
    let file = create(store, &ROOT, directory, b"file");
    let seen = Cell::new([directory, file].map(|object| attributes(store, object).change));
    let expect = |what: &str, rises: [bool; 2]| {
        let change = [directory, file].map(|object| attributes(store, object).change);
        let before = seen.replace(change);
        for object in 0..2 {
            let (before, change) = (before[object], change[object]);
            let expected = if rises[object] {
                change > before
            } else {
                change == before
            };
            assert!(expected, "{what}: from {before} to {change}");
        }
    };
    expect("nothing", [false, false]);
    for _ in 0..100 {
        write(store, file, 0, b"bytes").unwrap();
        expect("the same bytes", [false, true]);
    }
    read(store, file, 0, 5);
    list(store, directory);
    expect("reading", [false, false]);
    let set = |set: SetAttributes| now(store.set_attributes(&ROOT, file, &set, None)).result;
    set(mode(0o640)).unwrap();
    expect("a mode", [false, true]);
    set(size(3)).unwrap();
    expect("a size", [false, true]);
    let old = SetAttributes {
        modified: SetTime::To(Time::default()),
        ..SetAttributes::default()
    };
    set(old).unwrap();
    expect("an old time of change", [false, true]);
    let linked = now(store.link(&ROOT, file, directory, b"link"));
    linked.result.unwrap();
    expect("a link", [true, true]);
    let (from, to) = ((directory, &b"link"[..]), (directory, &b"moved"[..]));
    now(store.rename(&ROOT, from, to)).result.unwrap();
    // Some file systems count the new name as a change of the object, and others do not.
    seen.set([seen.get()[0], attributes(store, file).change]);
    expect("a new name", [true, false]);
    let removed = now(store.remove(&ROOT, directory, b"file"));
    removed.result.unwrap();
    expect("a removal", [true, true]);
    let after = removed.consistency.after.unwrap();
    if let Some(before) = shown_before(store, removed.consistency) {
        assert!(after.change > before.change);
    }
}

pub fn hard_links_share_an_object(store: &impl Store) {
    let root = store.root();
    let directory = make_directory(store, root, b"directory");
    let file = create(store, &ROOT, root, b"one");
    let linked = now(store.link(&ROOT, file, directory, b"two"));
    assert_eq!(linked.result, Ok(()));
    assert_eq!(linked.object.unwrap().links, 2);
    assert_eq!(linked.directory.after, Some(attributes(store, directory)));
    assert_eq!(lookup(store, directory, b"two"), Ok(file));
    let refused = |object, name: &[u8]| now(store.link(&ROOT, object, root, name)).result;
    assert_eq!(refused(file, b"one"), Err(StoreError::Exists));
    assert_eq!(refused(directory, b"x"), Err(StoreError::Invalid));
    assert_eq!(now(store.remove(&ROOT, root, b"one")).result, Ok(()));
    assert_eq!(links(store, file), 1);
    assert_eq!(now(store.remove(&ROOT, directory, b"two")).result, Ok(()));
    assert_eq!(refused(file, b"x"), Err(StoreError::Stale));
}

pub fn removal_keeps_the_rules(store: &impl Store) {
    let root = store.root();
    let directory = make_directory(store, root, b"directory");
    create(store, &ROOT, directory, b"file");
    let remove = |name: &[u8]| now(store.remove(&ROOT, root, name)).result;
    let remove_directory = |name: &[u8]| now(store.remove_directory(&ROOT, root, name)).result;
    assert_eq!(remove(b"directory"), Err(StoreError::IsDirectory));
    assert_eq!(remove(b"."), Err(StoreError::IsDirectory));
    assert_eq!(remove(b"missing"), Err(StoreError::NotFound));
    assert_eq!(remove_directory(b"directory"), Err(StoreError::NotEmpty));
    assert_eq!(remove_directory(b"missing"), Err(StoreError::NotFound));
    assert_eq!(remove_directory(b"."), Err(StoreError::Invalid));
    assert_eq!(remove_directory(b".."), Err(StoreError::Exists));
    create(store, &ROOT, root, b"file");
    assert_eq!(remove_directory(b"file"), Err(StoreError::NotDirectory));
    now(store.remove(&ROOT, directory, b"file")).result.unwrap();
    assert_eq!(remove_directory(b"directory"), Ok(()));
    assert_eq!(links(store, root), 2);
    assert_eq!(lookup(store, directory, b".."), Err(StoreError::Stale));
    let how = CreateHow::Guarded(mode(0o600));
    let orphan = now(store.create(&ROOT, directory, b"x", &how));
    assert_eq!(orphan.result, Err(StoreError::Stale));
}

pub fn rename_moves_and_replaces(store: &impl Store) {
    let root = store.root();
    let a = make_directory(store, root, b"a");
    let b = make_directory(store, root, b"b");
    let file = create(store, &ROOT, a, b"file");
    let other = create(store, &ROOT, b, b"other");
    let before = attributes(store, file).changed;
    assert_eq!(rename(store, (a, b"file"), (a, b"renamed")), Ok(()));
    assert!(attributes(store, file).changed > before);
    assert_eq!(
        rename(store, (a, b"file"), (a, b"x")),
        Err(StoreError::NotFound)
    );
    let moved = now(store.rename(&ROOT, (a, b"renamed"), (b, b"other")));
    assert_eq!(moved.result, Ok(()));
    match moved.from.after {
        Some(after) => assert_eq!(after, attributes(store, a)),
        None => assert!(store.properties().shared_by_servers),
    }
    assert_eq!(moved.to.after, Some(attributes(store, b)));
    assert_eq!(lookup(store, b, b"other"), Ok(file));
    assert_eq!(now(store.attributes(other)), Err(StoreError::Stale));

    let inner = make_directory(store, a, b"inner");
    assert_eq!(
        rename(store, (a, b"inner"), (b, b"other")),
        Err(StoreError::NotDirectory)
    );
    assert_eq!(
        rename(store, (b, b"other"), (a, b"inner")),
        Err(StoreError::IsDirectory)
    );
    assert_eq!(
        rename(store, (root, b"a"), (root, b"b")),
        Err(StoreError::NotEmpty)
    );
    let empty = make_directory(store, b, b"empty");
    assert_eq!((links(store, a), links(store, b)), (3, 3));
    assert_eq!(rename(store, (a, b"inner"), (b, b"empty")), Ok(()));
    assert_eq!((links(store, a), links(store, b)), (2, 3));
    assert_eq!(now(store.attributes(empty)), Err(StoreError::Stale));
    assert_eq!(lookup(store, inner, b".."), Ok(b));
    assert_eq!(rename(store, (root, b"a"), (inner, b"a")), Ok(()));
    assert_eq!(lookup(store, a, b".."), Ok(inner));
    assert_eq!((links(store, root), links(store, inner)), (3, 3));
}

pub fn a_directory_cannot_move_below_itself(store: &impl Store) {
    let root = store.root();
    let a = make_directory(store, root, b"a");
    let b = make_directory(store, a, b"b");
    let c = make_directory(store, b, b"c");
    for below in [a, b, c] {
        assert_eq!(
            rename(store, (root, b"a"), (below, b"x")),
            Err(StoreError::Invalid)
        );
    }
    assert_eq!(
        rename(store, (b, b"c"), (root, b"a")),
        Err(StoreError::NotEmpty)
    );
    assert_eq!(
        rename(store, (b, b"c"), (a, b"b")),
        Err(StoreError::NotEmpty)
    );
    assert_eq!(rename(store, (root, b"a"), (root, b"a")), Ok(()));
    assert_eq!(
        rename(store, (root, b"."), (root, b"x")),
        Err(StoreError::Invalid)
    );
    assert_eq!(
        rename(store, (root, b"a"), (root, b"..")),
        Err(StoreError::Invalid)
    );
    assert_eq!(rename(store, (a, b"b"), (root, b"b")), Ok(()));
    assert_eq!(rename(store, (root, b"a"), (c, b"a")), Ok(()));
    assert_eq!(lookup(store, a, b".."), Ok(c));
}

pub fn renaming_a_link_onto_the_same_object_does_nothing(store: &impl Store) {
    let root = store.root();
    let file = create(store, &ROOT, root, b"one");
    now(store.link(&ROOT, file, root, b"two")).result.unwrap();
    let before = attributes(store, root);
    assert_eq!(rename(store, (root, b"one"), (root, b"two")), Ok(()));
    assert_eq!(links(store, file), 2);
    assert_eq!(attributes(store, root), before);
    assert_eq!(lookup(store, root, b"one"), Ok(file));
}

pub fn listings_survive_changes(store: &impl Store) {
    let root = store.root();
    let name = |number: u32| format!("{number:03}").into_bytes();
    for number in 0..100 {
        create(store, &ROOT, root, &name(number));
    }
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let (mut cookie, mut verifier) = (0, CookieVerifier::default());
    loop {
        let (mut count, start) = (0, cookie);
        let mut sink = |entry: DirectoryEntry<'_>| {
            count += 1;
            if count > 7 {
                return false;
            }
            assert_eq!(entry.attributes.unwrap().inode, entry.inode);
            assert!(entry.handle.is_some());
            seen.push(entry.name.to_vec());
            cookie = entry.cookie;
            true
        };
        let outcome =
            now(store.read_directory(&ROOT, root, start, verifier, true, &mut sink)).unwrap();
        if outcome.end {
            break;
        }
        verifier = outcome.verifier;
        // The last entry seen goes away and a new one comes: the rest is not disturbed.
        let last = seen.last().unwrap().clone();
        if last.len() == 3 {
            now(store.remove(&ROOT, root, &last)).result.unwrap();
            if seen.len() < 50 {
                create(store, &ROOT, root, &[b"new-", &last[..]].concat());
            }
        }
    }
    let dots = seen
        .iter()
        .filter(|name| [b".", &b".."[..]].contains(&&name[..]));
    assert_eq!(dots.count(), 2);
    let mut old: Vec<_> = seen
        .iter()
        .filter(|name| name.len() == 3)
        .cloned()
        .collect();
    old.sort();
    assert_eq!(old, (0..100).map(name).collect::<Vec<_>>());
    let mut sink = |_: DirectoryEntry<'_>| true;
    let bad = CookieVerifier([9; 8]);
    let outcome = now(store.read_directory(&ROOT, root, cookie, bad, false, &mut sink));
    assert_eq!(outcome, Err(StoreError::BadCookie));
    let file = create(store, &ROOT, root, b"file");
    let outcome = now(store.read_directory(&ROOT, file, 0, verifier, false, &mut sink));
    assert_eq!(outcome, Err(StoreError::NotDirectory));
}
