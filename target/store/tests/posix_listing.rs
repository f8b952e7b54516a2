//! Listing folders of the host: large ones, while they change, and by whom.

mod common;
mod posix_common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::*;
use millrace_store::{CookieVerifier, DirectoryEntry, Kind, Namespace, Store, StoreError};
use posix_common::{Backing, World};

const ENTRIES: usize = 100_000;

fn both_file_systems() -> [Backing; 2] {
    [
        Backing::tmpfs("size=256m,nr_inodes=200000"),
        Backing::ext4(192, &["-N", "150000"]),
    ]
}

/// All entries, by calls that take so many each, and how many calls that took.
fn in_parts(world: &World, part: usize, plus: bool) -> (HashMap<Vec<u8>, u32>, u32) {
    let mut seen = HashMap::new();
    let (mut cookie, mut calls) = (0, 0);
    loop {
        let (mut count, from) = (0, cookie);
        let mut sink = |entry: DirectoryEntry<'_>| {
            count += 1;
            if count > part {
                return false;
            }
            cookie = entry.cookie;
            *seen.entry(entry.name.to_vec()).or_insert(0) += 1;
            true
        };
        let verifier = CookieVerifier::default();
        let root = world.root();
        let outcome = now(world.read_directory(&ROOT, root, from, verifier, plus, &mut sink));
        calls += 1;
        let outcome = outcome.expect("listed");
        assert_eq!(outcome.verifier, verifier, "cookies outlive everything");
        if outcome.end {
            return (seen, calls);
        }
    }
}

#[test]
fn each_of_many_entries_is_listed_once_while_others_come_and_go() {
    for backing in both_file_systems() {
        for number in 0..ENTRIES {
            std::fs::File::create(backing.path().join(format!("stays-{number}"))).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (folder, done) = (backing.path(), &done);
            scope.spawn(move || {
                let mut round = 0_u64;
                while !done.load(SeqCst) {
                    let path = folder.join(format!("comes-{round}"));
                    std::fs::File::create(&path).unwrap();
                    // A part stays, the others go again.
                    if !round.is_multiple_of(8) {
                        std::fs::remove_file(&path).unwrap();
                    }
                    round += 1;
                    std::thread::yield_now();
                }
            });
            // Listings end, whatever their outcome is, so that the thread does.
            let outcome = std::panic::catch_unwind(|| {
                let world = World::open(folder, |_| {});
                let (seen, calls) = in_parts(&world, 1777, false);
                assert!(calls as usize >= ENTRIES / 1777);
                for number in 0..ENTRIES {
                    let name = format!("stays-{number}").into_bytes();
                    assert_eq!(seen.get(&name), Some(&1), "stays-{number}");
                }
                assert_eq!((seen[&b"."[..]], seen[&b".."[..]]), (1, 1));
            });
            done.store(true, SeqCst);
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
        });
    }
}

#[test]
fn entries_tell_what_a_lookup_tells() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        for number in 0..600_u32 {
            create(&*world, &ROOT, root, format!("file-{number}").as_bytes());
        }
        let directory = make_directory(&*world, root, b"directory");
        make_directory(&*world, directory, b"inner");
        for (folder, above) in [(root, root), (directory, root)] {
            let mut found = HashMap::new();
            let mut sink = |entry: DirectoryEntry<'_>| {
                let shown = (
                    entry.inode,
                    entry.handle.unwrap(),
                    entry.attributes.unwrap(),
                );
                found.insert(entry.name.to_vec(), shown);
                true
            };
            let verifier = CookieVerifier::default();
            let outcome = now(world.read_directory(&ROOT, folder, 0, verifier, true, &mut sink));
            let outcome = outcome.unwrap();
            assert!(outcome.end);
            assert_eq!(outcome.attributes.kind, Kind::Directory);
            for (name, (inode, handle, shown)) in &found {
                let (looked_up, attributes) = now(world.lookup(&ROOT, folder, name)).unwrap();
                assert_eq!((*handle, *inode), (looked_up, attributes.inode));
                // Listing itself reads directories.
                let unread = |attributes: millrace_store::Attributes| millrace_store::Attributes {
                    accessed: millrace_store::Time::default(),
                    ..attributes
                };
                assert_eq!(unread(*shown), unread(attributes));
            }
            assert_eq!((found[&b"."[..]].1, found[&b".."[..]].1), (folder, above));
        }
    }
}

#[test]
fn above_the_root_is_the_root_also_where_only_numbers_are_told() {
    let backing = Backing::tmpfs("size=64m");
    std::fs::create_dir(backing.path().join("exported")).unwrap();
    let world = World::open(&backing.path().join("exported"), |_| {});
    let inode = attributes(&*world, world.root()).inode;
    let mut dots = Vec::new();
    let mut sink = |entry: DirectoryEntry<'_>| {
        dots.push((entry.name.to_vec(), entry.inode, entry.handle.is_some()));
        true
    };
    let verifier = CookieVerifier::default();
    now(world.read_directory(&ROOT, world.root(), 0, verifier, false, &mut sink)).unwrap();
    dots.sort();
    let expected = [
        (b".".to_vec(), inode, false),
        (b"..".to_vec(), inode, false),
    ];
    assert_eq!(dots, expected);
}

#[test]
fn who_may_not_search_a_directory_learns_names_only() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let directory = make_directory(&*world, world.root(), b"directory");
        create(&*world, &ROOT, directory, b"file");
        let listing = |bits: u32| {
            now(world.set_attributes(&ROOT, directory, &mode(bits), None))
                .result
                .unwrap();
            let mut entries = Vec::new();
            let mut sink = |entry: DirectoryEntry<'_>| {
                let known = (entry.handle.is_some(), entry.attributes.is_some());
                entries.push((entry.name.to_vec(), known));
                true
            };
            let verifier = CookieVerifier::default();
            now(world.read_directory(&user(10), directory, 0, verifier, true, &mut sink))?;
            entries.retain(|(name, _)| name == b"file");
            Ok(entries)
        };
        let file = |known| Ok(vec![(b"file".to_vec(), known)]);
        assert_eq!(listing(0o705), file((true, true)));
        assert_eq!(listing(0o704), file((false, false)));
        assert_eq!(listing(0o703), Err(StoreError::Denied));
    }
}

#[test]
fn a_listing_goes_on_after_a_restart_and_refuses_odd_places() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        for number in 0..50_u32 {
            create(&*world, &ROOT, world.root(), number.to_string().as_bytes());
        }
        let list = |world: &World, from: u64, most: usize| {
            let mut names = Vec::new();
            let mut sink = |entry: DirectoryEntry<'_>| {
                names.push((entry.name.to_vec(), entry.cookie));
                names.len() < most
            };
            let verifier = CookieVerifier::default();
            let root = world.root();
            now(world.read_directory(&ROOT, root, from, verifier, false, &mut sink)).unwrap();
            names
        };
        let mut names = list(&world, 0, 20);
        drop(world);
        let world = World::open(backing.path(), |_| {});
        names.extend(list(&world, names[19].1, usize::MAX));
        let mut all: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        all.sort();
        let before = all.len();
        all.dedup();
        assert_eq!((all.len(), before), (52, 52), "each once");

        let verifier = CookieVerifier::default();
        let odd =
            now(
                world.read_directory(&ROOT, world.root(), u64::MAX, verifier, false, &mut |_| {
                    true
                }),
            );
        assert_eq!(odd.map(|_| ()), Err(StoreError::BadCookie));
    }
}
