//! What the posix store does without waiting: attributes of open objects, and reads of bytes that are
//! in the page cache.

mod common;
mod posix_common;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use common::*;
use millrace_mempool::Slice;
use millrace_store::posix::volume::Direct;
use millrace_store::{Caller, Handle, Immediate, Namespace, ReadOutcome, Store};
use posix_common::{Backing, World};
use rustix::fs::Advice;

fn at_once(world: &World) -> Immediate<'_> {
    world.immediate().expect("folders have that")
}

/// The bytes and the outcome of a read at once.
fn try_read(
    world: &World,
    caller: &Caller,
    file: Handle,
    offset: u64,
    length: u32,
) -> Option<(Vec<u8>, ReadOutcome)> {
    let mut slices: Vec<Slice> = Vec::new();
    let outcome = at_once(world).read(caller, file, offset, length, &mut slices);
    assert!(outcome.is_some() || slices.is_empty());
    Some((gather(&slices), outcome?))
}

/// A file of an ext4 folder, with bytes of a pattern.
fn with_file(backing: &Backing, bytes: usize) -> (World, Handle) {
    let world = World::open(backing.path(), |_| {});
    let file = create(&*world, &ROOT, world.root(), b"file");
    write(&*world, file, 0, &pattern(7, bytes)).unwrap();
    (world, file)
}

/// Makes the bytes of the file durable and drops them from the page cache.
fn evict(backing: &Backing) {
    let file = File::open(backing.path().join("file")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn cached_bytes_are_read_as_a_wait_would_have_them() {
    let backing = Backing::ext4(32, &[]);
    let (world, file) = with_file(&backing, 100_000);
    for offset in [0, 1, 4095, 65_536, 99_990, 99_999, 100_000, 200_000] {
        for length in [1, 10, 4096, 50_000, 65_535] {
            assert!(at_once(&world).expects_bytes_of(file));
            let (bytes, done) = try_read(&world, &ROOT, file, offset, length).unwrap();
            let (known, waited) = read_as(&*world, &ROOT, file, offset, length).unwrap();
            assert_eq!(bytes, known, "{length} bytes at {offset}");
            assert_eq!(
                (done.length, done.end_of_file),
                (waited.length, waited.end_of_file)
            );
            assert_eq!(done.attributes, attributes(&*world, file));
        }
    }
    let figures = world.volume.figures();
    assert_eq!(figures.reads_cached, 40);
}

#[test]
fn bytes_in_memory_are_read_at_once_where_nothing_is_swapped_out() {
    let backing = Backing::tmpfs("size=8m");
    let (world, file) = with_file(&backing, 10_000);
    let read = try_read(&world, &ROOT, file, 5000, 10_000);
    if rustix::system::sysinfo().totalswap == 0 {
        let (bytes, done) = read.unwrap();
        assert_eq!(bytes, &pattern(7, 10_000)[5000..]);
        assert!(done.end_of_file);
    } else {
        // The kernel of some day may tell whether it would have to wait.
        assert!(read.is_none_or(|(bytes, _)| bytes == pattern(7, 10_000)[5000..]));
    }
}

#[test]
fn bytes_that_are_not_cached_are_left_to_others() {
    let backing = Backing::ext4(32, &[]);
    let (world, file) = with_file(&backing, 100_000);
    evict(&backing);
    assert!(try_read(&world, &ROOT, file, 0, 8192).is_none());
    // A part of them does not do either.
    assert_eq!(read(&*world, file, 0, 4096), pattern(7, 4096));
    let last = File::open(backing.path().join("file")).unwrap();
    rustix::fs::fadvise(&last, 4096, None, Advice::DontNeed).unwrap();
    assert!(try_read(&world, &ROOT, file, 0, 4096).is_some());
    assert!(try_read(&world, &ROOT, file, 0, 8192).is_none());
    // After a miss some are not tried.
    assert!(!at_once(&world).expects_bytes_of(file));
    assert!(at_once(&world).expects_bytes_of(file));
    assert_eq!(read(&*world, file, 0, 8192), pattern(7, 8192));
    assert!(try_read(&world, &ROOT, file, 0, 8192).is_some());
}

#[test]
fn only_callers_with_a_verdict_read_at_once() {
    let backing = Backing::ext4(32, &[]);
    let (world, file) = with_file(&backing, 5000);
    let caller = user(4711);
    assert!(try_read(&world, &caller, file, 0, 5000).is_none());
    let (bytes, _) = read_as(&*world, &caller, file, 0, 5000).unwrap();
    let (again, _) = try_read(&world, &caller, file, 0, 5000).unwrap();
    assert_eq!(again, bytes);
    let path = backing.path().join("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(try_read(&world, &caller, file, 0, 5000).is_none());
    assert!(read_as(&*world, &caller, file, 0, 5000).is_err());
    assert!(try_read(&world, &caller, file, 0, 5000).is_none(), "denied");
    assert!(try_read(&world, &ROOT, file, 0, 5000).is_some());
}

#[test]
fn what_may_be_direct_or_has_no_bytes_waits() {
    let backing = Backing::ext4(32, &[]);
    let (world, file) = with_file(&backing, 200_000);
    for (offset, length) in [(0, 0), (0, 65_536), (i64::MAX as u64, 1), (u64::MAX, 1)] {
        assert!(try_read(&world, &ROOT, file, offset, length).is_none());
    }
    assert!(try_read(&world, &ROOT, world.root(), 0, 10).is_none());
    drop(world);
    let world = World::open(backing.path(), |config| config.direct = Direct::Always);
    let (file, _) = now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    // A part of a page is not written direct.
    write(&*world, file, 5, b"x").unwrap();
    assert!(try_read(&world, &ROOT, file, 0, 4096).is_none());
}

#[test]
fn attributes_of_open_objects_are_told_at_once() {
    let backing = Backing::ext4(32, &[]);
    let (world, file) = with_file(&backing, 5000);
    assert_eq!(
        at_once(&world).attributes(file),
        Some(attributes(&*world, file))
    );
    let other = World::open(backing.path(), |_| {});
    assert_eq!(
        at_once(&other).attributes(file),
        None,
        "it is not open there"
    );
    assert_eq!(attributes(&*other, file).size, 5000);
    assert!(at_once(&other).attributes(file).is_some());
    fs::remove_file(backing.path().join("file")).unwrap();
    assert_eq!(at_once(&other).attributes(file), None);
    assert!(try_read(&other, &ROOT, file, 0, 10).is_none());
    assert!(!at_once(&world).is_complete());
}
