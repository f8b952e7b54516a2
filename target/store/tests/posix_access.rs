//! Rights of callers on objects of the posix store.

mod common;
mod posix_common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use common::*;
use millrace_store::{AccessMask, Caller, Handle, Kind, Namespace, Store, StoreError};
use posix_common::{Backing, World};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// An object by its name in the root.
fn find(world: &World, name: &str) -> Handle {
    now(world.lookup(&ROOT, world.root(), name.as_bytes()))
        .unwrap()
        .0
}

fn granted(world: &World, caller: &Caller, object: Handle) -> u32 {
    let all = AccessMask(0xff);
    now(world.access(caller, object, all)).unwrap().0.0
}

#[test]
fn access_is_what_the_kernel_grants_the_caller() {
    for backing in [Backing::tmpfs("size=32m"), Backing::ext4(64, &[])] {
        let root = backing.path();
        const READ: u32 = AccessMask::READ;
        const LOOKUP: u32 = AccessMask::LOOKUP;
        const CHANGE: u32 = AccessMask::MODIFY | AccessMask::EXTEND;
        const DELETE: u32 = AccessMask::DELETE;
        const EXECUTE: u32 = AccessMask::EXECUTE;
        fs::write(root.join("file"), b"").unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, root.join("fifo"), FileType::Fifo, mode, 0).unwrap();
        symlink("x", root.join("link")).unwrap();
        let world = World::open(root, |_| {});
        let [file, folder, fifo, link] =
            ["file", "folder", "fifo", "link"].map(|name| find(&world, name));
        let mut group = user(12);
        group.groups = [11].into_iter().collect();
        let callers = [user(10), group, user(13)];
        // What each class of the mode grants: of a file, of a directory.
        let rights = |bits: u32| {
            let read = if bits & 4 != 0 { READ } else { 0 };
            let change = if bits & 2 != 0 { CHANGE } else { 0 };
            let execute = bits & 1 != 0;
            let file = read | change | if execute { EXECUTE } else { 0 };
            let inside = if execute && bits & 2 != 0 {
                CHANGE | DELETE
            } else {
                0
            };
            let folder = read | inside | if execute { LOOKUP } else { 0 };
            [file, folder]
        };
        for name in ["file", "folder"] {
            chown(root.join(name), Some(10), Some(11)).unwrap();
        }
        for mode in [
            0o000, 0o421, 0o142, 0o214, 0o653, 0o365, 0o536, 0o777, 0o100,
        ] {
            for name in ["file", "folder"] {
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(root.join(name), mode).unwrap();
            }
            for (class, caller) in callers.iter().enumerate() {
                let wanted = rights(mode >> (6 - 3 * class) & 7);
                let found = [file, folder].map(|object| granted(&world, caller, object));
                assert_eq!(found, wanted, "{mode:o} {class}");
            }
            let executable = if mode & 0o111 == 0 { 0 } else { EXECUTE };
            assert_eq!(granted(&world, &ROOT, file), READ | CHANGE | executable);
            let all = READ | LOOKUP | CHANGE | DELETE;
            assert_eq!(granted(&world, &ROOT, folder), all);
        }
        assert_eq!(granted(&world, &user(13), fifo), granted_mode(root, "fifo"));
        assert_eq!(granted(&world, &user(13), link), READ | CHANGE);
        // Only what was asked for is answered.
        let some = AccessMask(READ | EXECUTE);
        let (some, attributes) = now(world.access(&ROOT, folder, some)).unwrap();
        assert_eq!(some, AccessMask(READ));
        assert_eq!(attributes.kind, Kind::Directory);
    }
}

/// What others may do with a node without data.
fn granted_mode(root: &Path, name: &str) -> u32 {
    let mode = fs::symlink_metadata(root.join(name)).unwrap().mode();
    let read = if mode & 4 != 0 { AccessMask::READ } else { 0 };
    let change = AccessMask::MODIFY | AccessMask::EXTEND;
    read | if mode & 2 != 0 { change } else { 0 }
}

#[test]
fn nothing_changes_on_a_read_only_file_system() {
    for backing in [Backing::tmpfs("size=8m"), Backing::ext4(32, &[])] {
        fs::write(backing.path().join("file"), b"contents").unwrap();
        backing.remount("ro");
        let world = World::open(backing.path(), |_| {});
        let file = find(&world, "file");
        let mask = granted(&world, &ROOT, file);
        assert_eq!(mask, AccessMask::READ);
        assert_eq!(granted(&world, &ROOT, world.root()), 3);
        assert_eq!(read(&*world, file, 0, 100), b"contents");
        let written = write(&*world, file, 0, b"more");
        assert_eq!(written.err(), Some(StoreError::ReadOnly));
    }
}
