//! What only a store in a cluster has: two servers of one file system, lost sessions, handles.

mod ceph_common;
mod common;

use std::time::{Duration, Instant};

use ceph_common::{World, conf, config, directory};
use common::*;
use millrace_store::ceph::volume::Sync;
use millrace_store::{
    Caller, ExtendedAttributes, FileData, FileRanges, Namespace, RangeContent, SetAttributes,
    Stability, Store, StoreError, WriteVerifier,
};

/// Two servers of one empty directory.
fn two() -> Option<[World; 2]> {
    let conf = conf()?;
    let root = directory(conf.clone());
    Some([(); 2].map(|()| World::open(config(conf.clone(), &root))))
}

#[test]
fn two_servers_have_the_same_handles_bytes_and_attributes() {
    let Some([one, other]) = two() else { return };
    assert_eq!(one.root(), other.root());
    assert_eq!(one.volume.identity(), other.volume.identity());
    let directory = make_directory(&one.store, one.root(), b"directory");
    let file = create(&one.store, &ROOT, directory, b"file");
    let bytes = pattern(5, 200_000);
    write(&one.store, file, 7, &bytes).unwrap();
    // By the handle alone, without a look at the names before.
    assert_eq!(read(&other.store, file, 7, 200_000), bytes);
    assert_eq!(attributes(&other.store, file), attributes(&one.store, file));
    let found = now(other.lookup(&ROOT, directory, b"file")).unwrap();
    assert_eq!(found.0, file);
    let before = attributes(&one.store, file).change;
    write(&other.store, file, 0, b"changed").unwrap();
    assert_eq!(read(&one.store, file, 0, 7), b"changed");
    assert!(attributes(&one.store, file).change > before);
    let moved = now(other.rename(&ROOT, (directory, b"file"), (other.root(), b"moved")));
    moved.result.unwrap();
    assert_eq!(read(&one.store, file, 0, 7), b"changed");
    assert_eq!(
        now(one.lookup(&ROOT, directory, b"file")).map(|_| ()),
        Err(StoreError::NotFound)
    );
    now(one.remove(&ROOT, one.root(), b"moved")).result.unwrap();
    for server in [&one, &other] {
        assert_eq!(now(server.attributes(file)), Err(StoreError::Stale));
    }
}

#[test]
fn a_file_that_another_server_removes_stays_while_it_is_held() {
    let Some([one, other]) = two() else { return };
    let file = create(&one.store, &ROOT, one.root(), b"file");
    write(&one.store, file, 0, b"content").unwrap();
    let held = now(one.hold(file)).unwrap();
    now(other.remove(&ROOT, other.root(), b"file"))
        .result
        .unwrap();
    assert_eq!(read(&one.store, file, 0, 100), b"content");
    write(&one.store, file, 7, b" and more").unwrap();
    assert_eq!(attributes(&one.store, file).links, 0);
    // It is gone where nobody holds it.
    assert_eq!(now(other.attributes(file)), Err(StoreError::Stale));
    drop(held);
    assert_eq!(now(one.attributes(file)), Err(StoreError::Stale));
}

#[test]
fn who_has_written_a_file_may_not_go_on_without_the_right() {
    let Some([one, other]) = two() else { return };
    let file = create(&one.store, &ROOT, one.root(), b"file");
    let set = |set: &SetAttributes| {
        let done = now(other.set_attributes(&ROOT, file, set, None));
        done.result.unwrap();
    };
    set(&owner(0, 7));
    set(&mode(0o664));
    let member = Caller {
        gid: 7,
        ..user(1000)
    };
    let write = |caller: &Caller| {
        let written = write_as(&one.store, caller, file, 0, b"mine");
        written.and_then(|written| written.result).map(|_| ())
    };
    for _ in 0..2 {
        assert_eq!(write(&member), Ok(()));
        assert_eq!(write(&user(1000)), Err(StoreError::Denied));
    }
    // Through the other server.
    set(&mode(0o644));
    assert_eq!(write(&member), Err(StoreError::Denied));
}

#[test]
fn a_handle_of_another_file_system_or_object_is_stale() {
    let Some([one, _]) = two() else { return };
    let file = create(&one.store, &ROOT, one.root(), b"file");
    for place in [3, 12, 20, 28] {
        let mut bytes = file.as_bytes().to_vec();
        bytes[place] ^= 1;
        let other = millrace_store::Handle::new(&bytes).unwrap();
        assert_eq!(
            now(one.attributes(other)),
            Err(StoreError::Stale),
            "{place}"
        );
    }
}

#[test]
fn a_name_is_not_moved_onto_a_directory_above_it() {
    let Some([one, _]) = two() else { return };
    let (store, root) = (&one.store, one.root());
    let upper = make_directory(store, root, b"upper");
    let middle = make_directory(store, upper, b"middle");
    make_directory(store, middle, b"lower");
    create(store, &ROOT, middle, b"file");
    for from in [
        (upper, &b"middle"[..]),
        (middle, b"lower"),
        (middle, b"file"),
    ] {
        let moved = now(store.rename(&ROOT, from, (root, b"upper"))).result;
        assert_eq!(moved, Err(StoreError::NotEmpty));
    }
}

#[test]
fn a_file_is_not_moved_onto_a_directory_with_or_without_entries() {
    let Some([one, _]) = two() else { return };
    let (store, root) = (&one.store, one.root());
    create(store, &ROOT, root, b"file");
    make_directory(store, root, b"empty");
    let full = make_directory(store, root, b"full");
    create(store, &ROOT, full, b"entry");
    for target in [&b"empty"[..], b"full"] {
        let moved = now(store.rename(&ROOT, (root, b"file"), (root, target))).result;
        assert_eq!(moved, Err(StoreError::IsDirectory));
    }
}

#[test]
fn other_names_of_a_file_stay_when_one_is_replaced() {
    let Some([one, _]) = two() else { return };
    let (store, root) = (&one.store, one.root());
    let directory = make_directory(store, root, b"directory");
    let sole = make_directory(store, root, b"sole");
    let file = create(store, &ROOT, root, b"replaced");
    for (place, name) in [
        (root, &b"beside"[..]),
        (directory, b"below"),
        (sole, b"sole"),
    ] {
        now(store.link(&ROOT, file, place, name)).result.unwrap();
    }
    create(store, &ROOT, directory, b"other");
    // The library knows what is in the directories.
    for place in [root, directory, sole] {
        list(store, place);
    }
    create(store, &ROOT, root, b"moved");
    let moved = now(store.rename(&ROOT, (root, b"moved"), (root, b"replaced")));
    moved.result.unwrap();
    for (place, name) in [
        (root, &b"beside"[..]),
        (directory, b"below"),
        (sole, b"sole"),
    ] {
        let found = now(store.lookup(&ROOT, place, name)).map(|found| found.0);
        assert_eq!(found, Ok(file), "{name:?}");
        assert!(list(store, place).contains(&name.to_vec()), "{name:?}");
    }
    assert_eq!(attributes(store, file).links, 3);
    let left = now(store.rename(&ROOT, (directory, b"below"), (root, b"left")));
    left.result.unwrap();
    now(store.remove(&ROOT, sole, b"sole")).result.unwrap();
    now(store.remove(&ROOT, root, b"left")).result.unwrap();
    assert_eq!(attributes(store, file).links, 1);
}

#[test]
fn a_file_of_an_exclusive_creation_that_did_not_end_is_the_next_creators() {
    let Some([one, other]) = two() else { return };
    let root = one.root();
    let create = |server: &World, verifier: u8| {
        let set = SetAttributes::default();
        let how = millrace_store::CreateHow::Exclusive([verifier; 8], set);
        now(server.create(&user(10), root, b"file", &how)).result
    };
    // As a server leaves it that ends in between.
    let how = millrace_store::CreateHow::Guarded(mode(0o1000));
    let left = now(one.create(&user(10), root, b"file", &how))
        .result
        .unwrap();
    let made = create(&other, 1).unwrap();
    assert_eq!((made.0, made.1.mode), (left.0, 0o600));
    assert_eq!(create(&one, 1).unwrap().0, left.0, "sent again");
    assert_eq!(create(&one, 2), Err(StoreError::Exists));
    // It has no attribute that clients see.
    let mut names = Vec::new();
    now(one.xattrs(&ROOT, made.0, &mut names)).unwrap();
    assert_eq!(names, b"");
}

#[test]
fn snapshots_are_not_reached_by_names() {
    let Some([one, _]) = two() else { return };
    let (store, root) = (&one.store, one.root());
    let sought = now(store.lookup(&ROOT, root, b".snap"));
    assert_eq!(sought.map(|_| ()), Err(StoreError::NotFound));
    let made = now(store.make_directory(&ROOT, root, b".snap", &mode(0o755)));
    assert_eq!(made.result.map(|_| ()), Err(StoreError::Denied));
    assert!(!list(store, root).contains(&b".snap".to_vec()));
}

#[test]
fn a_read_only_volume_refuses_every_change() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let writer = World::open(config(conf.clone(), &root));
    let file = create(&writer.store, &ROOT, writer.root(), b"file");
    write(&writer.store, file, 0, b"bytes").unwrap();
    let mut config = config(conf, &root);
    config.read_only = true;
    let world = World::open(config);
    let (store, root) = (&world.store, world.root());
    let refused = StoreError::ReadOnly;
    assert_eq!(read(store, file, 0, 5), b"bytes");
    assert_eq!(write(store, file, 0, b"x"), Err(refused));
    let how = millrace_store::CreateHow::Unchecked(mode(0o644));
    let made = now(store.create(&ROOT, root, b"new", &how));
    assert_eq!(made.result.map(|_| ()), Err(refused));
    let done = [
        now(store.remove(&ROOT, root, b"file")).result,
        now(store.rename(&ROOT, (root, b"file"), (root, b"x"))).result,
        now(store.link(&ROOT, file, root, b"x")).result,
        now(store.set_attributes(&ROOT, file, &size(0), None)).result,
        now(store.deallocate(&ROOT, file, 0, 5)).result,
    ];
    assert_eq!(done, [Err(refused); 5]);
}

#[test]
fn holes_are_punched_and_the_size_stays() {
    let Some([one, _]) = two() else { return };
    let file = create(&one.store, &user(10), one.root(), b"file");
    let bytes = pattern(7, 100_000);
    write(&one.store, file, 0, &bytes).unwrap();
    let before = attributes(&one.store, file);
    for (caller, expected) in [(11, Err(StoreError::Denied)), (10, Ok(()))] {
        let done = now(one.deallocate(&user(caller), file, 5000, 50_000));
        assert_eq!(done.result, expected);
    }
    let after = attributes(&one.store, file);
    assert_eq!(after.size, before.size);
    assert!(after.change > before.change);
    let mut expected = bytes;
    expected[5000..55_000].fill(0);
    assert!(read(&one.store, file, 0, 100_000) == expected);
    let sought = |content| now(one.seek(&ROOT, file, 6000, content)).unwrap();
    assert_eq!(sought(RangeContent::Data).offset, 6000);
    assert_eq!(sought(RangeContent::Hole).offset, 100_000);
    let allocated = now(one.allocate(&ROOT, file, 0, 5)).result;
    assert_eq!(allocated, Err(StoreError::NotSupported));
}

#[test]
fn what_was_answered_as_durable_is_there_for_another_server() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let mut strict = config(conf.clone(), &root);
    strict.sync = Sync::Strict;
    let one = World::open(strict);
    let file = create(&one.store, &ROOT, one.root(), b"file");
    assert!(one.volume.figures().name_syncs > 0);
    let mut slices = Vec::new();
    let staged = now(one.stage_write(&ROOT, file, 0, 5, &mut slices)).unwrap();
    fill(&slices, b"bytes");
    drop(slices);
    let written = now(one.commit_write(staged, Stability::FileSync)).result;
    assert_eq!(written.unwrap().stability, Stability::FileSync);
    assert_eq!(one.volume.figures().syncs, 1);
    write(&one.store, file, 5, b" more").unwrap();
    let verifier = now(one.commit(file, 0, 0)).result.unwrap();
    assert_ne!(verifier, WriteVerifier([0; 8]));
    assert_eq!(one.volume.figures().commits, 1);
    let other = World::open(config(conf, &root));
    let found = now(other.lookup(&ROOT, other.root(), b"file")).unwrap().0;
    assert_eq!(read(&other.store, found, 0, 20), b"bytes more");
}

#[test]
fn links_of_directories_are_counted_whoever_changes_them() {
    let Some([one, other]) = two() else { return };
    let root = one.root();
    let links = || [&one, &other].map(|server| attributes(&server.store, root).links);
    assert_eq!(links(), [2, 2]);
    for round in 0..3 {
        let name = format!("directory {round}");
        let made = now(other.make_directory(&ROOT, root, name.as_bytes(), &mode(0o755)));
        made.result.unwrap();
        assert_eq!(links(), [3 + round; 2]);
        // Changes of other names, with one by the other server among them.
        create(&one.store, &ROOT, root, b"file");
        assert_eq!(links(), [3 + round; 2]);
        let made = now(other.make_directory(&ROOT, root, b"short", &mode(0o755)));
        made.result.unwrap();
        let removed = now(one.remove(&ROOT, root, b"file"));
        removed.result.unwrap();
        let after = removed.consistency.after.unwrap().links;
        assert_eq!((after, links()), (4 + round, [4 + round; 2]));
        let removed = now(one.remove_directory(&ROOT, root, b"short"));
        assert_eq!(removed.consistency.after.unwrap().links, 3 + round);
        assert_eq!(links(), [3 + round; 2]);
    }
}

#[test]
fn a_file_that_was_made_stays_open_for_writing_and_longer_while_it_is_held() {
    let Some(conf) = conf() else { return };
    let root = directory(conf.clone());
    let world = World::open(config(conf, &root));
    let files = || world.volume.figures().open_files;
    let sweep_at = |time: Instant, left: u64| {
        world.store.poll(time);
        let deadline = Instant::now() + Duration::from_secs(60);
        while files() != left {
            assert!(Instant::now() < deadline, "{} are open", files());
            std::thread::yield_now();
        }
    };
    let names: [&[u8]; 3] = [b"held", b"written and held", b"not held"];
    let made = names.map(|name| create(&world.store, &ROOT, world.root(), name));
    assert_eq!(files(), 3);
    write(&world.store, made[1], 0, b"bytes").unwrap();
    let holds = [0, 1].map(|index| now(world.hold(made[index])).unwrap());
    assert_eq!(files(), 3, "what holds them is not among these");
    let start = Instant::now();
    sweep_at(start + Duration::from_secs(20), 2);
    // It takes up its work where it was.
    write(&world.store, made[0], 0, b"bytes").unwrap();
    sweep_at(start + Duration::from_secs(70), 0);
    write(&world.store, made[0], 0, b"bytes").unwrap();
    drop(holds);
    sweep_at(start + Duration::from_secs(90), 0);
}
