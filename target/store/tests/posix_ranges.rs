//! Space, holes, copies and extended attributes in folders of the host.

mod common;
mod posix_common;
mod suites;

use common::*;
use millrace_store::posix::PosixStore;
use millrace_store::{ExtendedAttributes, FileRanges, SetXattrHow, Store};
use posix_common::{Backing, World};
use rustix::fs::XattrFlags;

fn on_ext4(test: impl FnOnce(&PosixStore)) {
    test(&World::open(Backing::ext4(64, &[]).path(), |_| {}));
}

/// Without the package xfsprogs, or XFS in the kernel, the tests are recorded as skipped.
fn on_xfs(test: impl FnOnce(&PosixStore)) {
    match Backing::disk(300, &["mkfs.xfs", "-q", "-f"]) {
        Ok(backing) => test(&World::open(backing.path(), |_| {})),
        Err(said) => eprintln!("skipped: {said}"),
    }
}

mod ext4 {
    crate::suites::range_tests!(crate::on_ext4);
    crate::suites::xattr_tests!(crate::on_ext4);
}

mod xfs {
    crate::suites::range_tests!(crate::on_xfs);
    crate::suites::xattr_tests!(crate::on_xfs);
}

#[test]
fn storage_is_shared_on_xfs_and_not_on_ext4() {
    on_ext4(|store| assert_eq!(store.properties().clone_block, None));
    on_xfs(|store| assert_eq!(store.properties().clone_block, Some(4096)));
}

#[test]
fn other_name_spaces_of_the_host_are_not_there() {
    let backing = Backing::ext4(64, &[]);
    let world = World::open(backing.path(), |_| {});
    let file = create(&world.store, &ROOT, world.root(), b"file");
    let path = backing.path().join("file");
    for name in ["security.other", "trusted.other", "user.own"] {
        rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty()).unwrap();
    }
    let mut names = Vec::new();
    now(world.xattrs(&ROOT, file, &mut names)).unwrap();
    assert_eq!(names, b"own\0");
    for name in ["security.new", "user.new"] {
        let how = SetXattrHow::Either;
        now(world.set_xattr(&ROOT, file, name.as_bytes(), b"1", how))
            .result
            .unwrap();
        let own = format!("user.{name}");
        let mut value = [0; 1];
        assert_eq!(rustix::fs::getxattr(&path, own.as_str(), &mut value), Ok(1));
    }
    assert!(rustix::fs::getxattr(&path, "security.new", &mut [0; 1]).is_err());
}

#[test]
fn long_copies_end_early_and_go_on() {
    const LENGTH: u64 = 72 << 20;
    let backing = Backing::ext4(256, &[]);
    let world = World::open(backing.path(), |_| {});
    let one = create(&world.store, &ROOT, world.root(), b"one");
    let other = create(&world.store, &ROOT, world.root(), b"other");
    let bytes = pattern(3, 1 << 20);
    for at in (0..LENGTH).step_by(1 << 20) {
        write(&world.store, one, at, &bytes).unwrap();
    }
    let (mut done, mut turns) = (0, 0);
    while done < LENGTH {
        let copied = now(world.copy_range(&ROOT, (one, done), (other, done), LENGTH - done));
        let length = copied.result.unwrap().length;
        assert!((1..=64 << 20).contains(&length), "{length}");
        (done, turns) = (done + length, turns + 1);
    }
    assert!(turns > 1);
    for at in (0..LENGTH).step_by(1 << 20) {
        assert!(read(&world.store, other, at, 1 << 20) == bytes, "{at}");
    }
    let figures = world.volume.figures();
    assert!(figures.dirty_bytes >= 2 * LENGTH, "{}", figures.dirty_bytes);
    for file in [one, other] {
        now(millrace_store::FileData::commit(&world.store, file, 0, 0))
            .result
            .unwrap();
    }
    assert_eq!(world.volume.figures().dirty_bytes, 0);
}
