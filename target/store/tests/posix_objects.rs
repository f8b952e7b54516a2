//! Objects of the posix store: handles, what is kept open, attributes and data's opening.

mod common;
mod posix_common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::*;
use millrace_store::posix::PosixStore;
use millrace_store::posix::volume::Volume;
use millrace_store::{
    Caller, FileData, Handle, Kind, Namespace, Result, SpecialKind, Store, StoreError,
};
use posix_common::{Backing, World, config, store_of};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Ends a test that would wait for ever.
const LIMIT: Duration = Duration::from_secs(60);

fn everywhere(test: impl Fn(&Path)) {
    for backing in [Backing::tmpfs("size=32m"), Backing::ext4(64, &[])] {
        test(backing.path());
    }
}

fn plain(root: &Path) -> World {
    World::open(root, |_| {})
}

/// A volume that finds objects by remembered names.
fn by_names(root: &Path) -> World {
    let volume = Volume::open_without_kernel_handles(config(root)).unwrap();
    let store = store_of(&volume);
    World { store, volume }
}

fn find(store: &PosixStore, path: &str) -> Result<Handle> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let mut here = store.root();
    for name in names {
        here = now(store.lookup(&ROOT, here, name.as_bytes()))?.0;
    }
    Ok(here)
}

fn is_stale(store: &PosixStore, object: Handle) -> bool {
    now(store.attributes(object)).err() == Some(StoreError::Stale)
}

/// Has everything closed that nobody uses, and waits for the helpers that do it.
fn close_all(world: &World) {
    world.store.poll(Instant::now() + Duration::from_secs(3600));
    while world.store.poll(Instant::now()) > 0 {}
    settle(world);
}

/// Waits until no helper has anything to do.
fn settle(world: &World) {
    loop {
        let load = world.volume.helpers().load();
        if load.running == 0 && load.queued == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn held_files_without_a_name_are_opened_again_by_every_reactor() {
    for open in [plain, by_names] {
        everywhere(|root| {
            let world = open(root);
            // The latest store is the one whose data move.
            let other = store_of(&world.volume);
            let file = create(&other, &ROOT, other.root(), b"removed-file");
            write(&other, file, 0, b"content").unwrap();
            let held = now(other.hold(file)).unwrap();
            let removed = now(world.store.remove(&ROOT, other.root(), b"removed-file"));
            removed.result.unwrap();
            for _ in 0..2 {
                assert_eq!(read(&other, file, 0, 100), b"content");
                assert_eq!(attributes(&world.store, file).links, 0);
                other.poll(Instant::now() + Duration::from_secs(3600));
                close_all(&world);
            }
            drop(held);
            other.poll(Instant::now());
            close_all(&world);
            assert!(is_stale(&world.store, file) && is_stale(&other, file));
            assert_eq!(descriptors("removed-file (deleted)"), 0);
        });
    }
}

#[test]
fn files_without_a_name_are_kept_up_to_the_limit_of_open_files() {
    everywhere(|root| {
        let world = World::open(root, |config| config.limits.open_files = 2);
        let store = &world.store;
        let held = |name: &[u8]| {
            let file = create(store, &ROOT, store.root(), name);
            (file, now(store.hold(file)).unwrap())
        };
        let remove = |name: &[u8]| {
            now(store.remove(&ROOT, store.root(), name)).result.unwrap();
            close_all(&world);
        };
        let mut files = [b"a", b"b", b"c"].map(|name| held(name)).to_vec();
        [b"a", b"b", b"c"].into_iter().for_each(|name| remove(name));
        let stale: Vec<_> = files.iter().map(|one| is_stale(store, one.0)).collect();
        assert_eq!(stale, [false, false, true]);
        // The end of one leaves room for another.
        drop(files.remove(0));
        files.push(held(b"d"));
        remove(b"d");
        let stale: Vec<_> = files.iter().map(|one| is_stale(store, one.0)).collect();
        assert_eq!(stale, [false, true, false]);
    });
}

/// Descriptors of this process whose path has this in it.
fn descriptors(mark: &str) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_string_lossy().contains(mark))
        .count()
}

#[test]
fn handles_outlive_the_volume_and_renames() {
    everywhere(|root| {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        fs::write(root.join("a/b/file"), b"contents").unwrap();
        symlink("nowhere", root.join("a/link")).unwrap();
        let world = plain(root);
        let paths = ["", "a", "a/b", "a/b/file", "a/link"];
        let handles = paths.map(|path| find(&world, path).unwrap());
        let before = handles.map(|handle| now(world.attributes(handle)).unwrap());
        drop(world);
        fs::rename(root.join("a/b/file"), root.join("c/moved")).unwrap();
        fs::rename(root.join("a/b"), root.join("c/b")).unwrap();
        fs::rename(root.join("a"), root.join("c/b/a")).unwrap();
        let world = plain(root);
        for (handle, before) in handles.into_iter().zip(before) {
            let after = now(world.attributes(handle)).unwrap();
            assert_eq!((after.inode, after.kind), (before.inode, before.kind));
        }
        let paths = ["", "c/b/a", "c/b", "c/moved", "c/b/a/link"];
        assert_eq!(paths.map(|path| find(&world, path).unwrap()), handles);
    });
}

#[test]
fn volumes_of_one_folder_make_the_same_handles() {
    everywhere(|root| {
        fs::create_dir_all(root.join("a/b")).unwrap();
        let (one, other) = (plain(root), plain(root));
        assert_eq!(one.root(), other.root());
        let handle = find(&one, "a/b").unwrap();
        assert_eq!(find(&other, "a/b"), Ok(handle));
        // By another path too: another name of the folder is no other folder.
        let link = root.join("link");
        symlink(root, &link).unwrap();
        let third = plain(&link);
        assert!(now(third.attributes(handle)).is_ok());
    });
}

/// The disk goes from one host to another, where it has another device number and place.
#[test]
fn handles_go_with_the_file_system() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run(
        "mkfs.ext4",
        &["-q".as_ref(), "-F".as_ref(), image.as_os_str()],
    );
    let mut before: Option<[Handle; 3]> = None;
    for host in ["first", "second"] {
        let point = folder.path().join(host);
        fs::create_dir(&point).unwrap();
        // The first loop device is taken while the second host looks for one.
        let other = Backing::ext4(32, &[]);
        run(
            "mount",
            &[
                "-o".as_ref(),
                "loop".as_ref(),
                image.as_os_str(),
                point.as_os_str(),
            ],
        );
        let root = point.join("export");
        fs::create_dir_all(root.join("a")).unwrap();
        if before.is_none() {
            fs::write(root.join("a/file"), b"contents").unwrap();
        }
        let world = plain(&root);
        if let Some(before) = before {
            assert_eq!(now(world.attributes(before[2])).unwrap().size, 8);
        }
        let handles = ["", "a", "a/file"].map(|path| find(&world, path).unwrap());
        assert_eq!(*before.get_or_insert(handles), handles);
        close_all(&world);
        drop(world);
        // Helpers close the last of it; it is unmounted for good, not detached.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !Command::new("umount")
            .arg(&point)
            .output()
            .unwrap()
            .status
            .success()
        {
            assert!(
                Instant::now() < deadline,
                "something keeps the file system busy"
            );
            std::thread::yield_now();
        }
        drop(other);
    }
}

fn run(program: &str, arguments: &[&OsStr]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program}: {said}");
}

#[test]
fn a_removed_object_is_stale_and_its_successor_another() {
    everywhere(|root| {
        for world in [plain(root), by_names(root)] {
            let mut handles = HashSet::new();
            for _ in 0..20 {
                fs::write(root.join("file"), b"x").unwrap();
                fs::create_dir(root.join("folder")).unwrap();
                for name in ["file", "folder"] {
                    let handle = find(&world, name).unwrap();
                    // ext4 gives the same inode number again at once.
                    assert!(handles.insert(handle));
                }
                fs::remove_file(root.join("file")).unwrap();
                fs::remove_dir(root.join("folder")).unwrap();
                // Once while it is open, then when it would have to be opened.
                for handle in &handles {
                    assert!(is_stale(&world, *handle));
                    assert!(is_stale(&world, *handle));
                }
            }
            close_all(&world);
            assert!(handles.iter().all(|handle| is_stale(&world, *handle)));
        }
    });
}

#[test]
fn no_more_is_open_than_the_bound_allows() {
    everywhere(|root| {
        let mark = |index| format!("bounded-{}-{index}-", root.to_string_lossy().len());
        for index in 0..200 {
            fs::write(root.join(mark(index)), b"x").unwrap();
        }
        let world = World::open(root, |config| config.limits.open_files = 10);
        let mut handles = Vec::new();
        for index in 0..200 {
            handles.push(find(&world, &mark(index)).unwrap());
            while world.poll(Instant::now()) > 0 {}
            settle(&world);
            let mark = format!("bounded-{}-", root.to_string_lossy().len());
            assert!(descriptors(&mark) <= 10, "at {index}");
        }
        // Those used last are the ones that are open, beside the folder itself.
        for (index, handle) in handles.iter().enumerate().rev() {
            assert_eq!(descriptors(&mark(index)), usize::from(index > 190));
            if index > 190 {
                assert!(now(world.attributes(*handle)).is_ok());
            }
        }
        // One that is used again and again stays, whatever comes.
        for handle in &handles {
            assert!(now(world.attributes(*handle)).is_ok());
            assert!(now(world.attributes(handles[7])).is_ok());
        }
        while world.poll(Instant::now()) > 0 {}
        settle(&world);
        assert_eq!(descriptors(&mark(7)), 1);
        assert_eq!(descriptors(&mark(8)), 0);
    });
}

#[test]
fn what_is_idle_is_closed_and_gives_its_space_back() {
    everywhere(|root| {
        let name = format!("idle-{}", root.to_string_lossy().len());
        fs::write(root.join(&name), vec![1; 4 << 20]).unwrap();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let world = plain(root);
        world.poll(start);
        let file = find(&world, &name).unwrap();
        assert_eq!(world.poll(after(9)), 0);
        assert_eq!(world.next_deadline(), Some(after(10)));
        // Used again, it stays longer than what was not.
        assert!(now(world.attributes(file)).is_ok());
        assert!(world.poll(after(11)) > 0);
        settle(&world);
        assert_eq!(descriptors(&name), 1);
        assert_eq!(world.next_deadline(), Some(after(19)));
        fs::remove_file(root.join(&name)).unwrap();
        let free = || now(world.statistics(world.root())).unwrap().free_bytes;
        let before = free();
        while world.poll(after(19)) > 0 {}
        settle(&world);
        assert_eq!(descriptors(&name), 0);
        // A process that another test is starting has a copy of all descriptors for a moment.
        while free() < before + (4 << 20) {
            assert!(start.elapsed() < LIMIT, "the space is not given back");
            std::thread::yield_now();
        }
    });
}

#[test]
fn nothing_stays_open_behind_a_store() {
    everywhere(|root| {
        let name = format!("leak-{}", root.to_string_lossy().len());
        fs::create_dir(root.join(&name)).unwrap();
        fs::write(root.join(&name).join("file"), b"x").unwrap();
        // One after the other: only the latest store of a thread is driven.
        for open in [plain, by_names] {
            let world = open(root);
            for _ in 0..3 {
                let folder = find(&world, &name).unwrap();
                let file = find(&world, &format!("{name}/file")).unwrap();
                let written = write_as(&*world, &ROOT, file, 0, b"more");
                assert!(written.unwrap().result.is_ok());
                let mut text = Vec::new();
                let read = now(world.read_link(&ROOT, folder, &mut text));
                assert_eq!(read.err(), Some(StoreError::Invalid));
                assert!(find(&world, &format!("{name}/none")).is_err());
                assert!(descriptors(&name) >= 2);
                close_all(&world);
                assert_eq!(descriptors(&name), 0);
            }
            let _open = find(&world, &name).unwrap();
            assert!(descriptors(&name) > 0);
            let World { store, volume } = world;
            drop(store);
            loop {
                let load = volume.helpers().load();
                if load.running + load.queued == 0 {
                    break;
                }
                std::thread::yield_now();
            }
            assert_eq!(descriptors(&name), 0);
        }
    });
}

#[test]
fn attributes_are_the_hosts() {
    everywhere(|root| {
        let nodes = [
            ("fifo", FileType::Fifo, 0, SpecialKind::Fifo),
            ("socket", FileType::Socket, 0, SpecialKind::Socket),
            (
                "character",
                FileType::CharacterDevice,
                rustix::fs::makedev(300, 70_000),
                SpecialKind::Character(300, 70_000),
            ),
            (
                "block",
                FileType::BlockDevice,
                rustix::fs::makedev(7, 1),
                SpecialKind::Block(7, 1),
            ),
        ];
        for (name, kind, device, _) in nodes {
            let mode = Mode::from_raw_mode(0o640);
            mknodat(CWD, root.join(name), kind, mode, device).unwrap();
        }
        fs::write(root.join("file"), vec![7; 100_000]).unwrap();
        chown(root.join("file"), Some(70_000), Some(80_000)).unwrap();
        let mode = fs::Permissions::from_mode(0o6751);
        fs::set_permissions(root.join("file"), mode).unwrap();
        fs::hard_link(root.join("file"), root.join("second")).unwrap();
        symlink("text of it", root.join("link")).unwrap();
        let world = plain(root);
        for (name, _, _, kind) in nodes {
            let found = find(&world, name).unwrap();
            let found = now(world.attributes(found)).unwrap();
            assert_eq!(found.kind, Kind::Special(kind));
        }
        let link = find(&world, "link").unwrap();
        assert_eq!(now(world.attributes(link)).unwrap().kind, Kind::Symlink);
        let file = find(&world, "second").unwrap();
        let found = now(world.attributes(file)).unwrap();
        let host = fs::metadata(root.join("file")).unwrap();
        assert_eq!(found.kind, Kind::File);
        assert_eq!((found.mode, found.links), (0o6751, 2));
        assert_eq!((found.uid, found.gid), (70_000, 80_000));
        assert_eq!((found.size, found.used), (100_000, host.blocks() * 512));
        assert_eq!((found.inode, found.file_system), (host.ino(), 0));
        let times = [found.accessed, found.modified, found.changed];
        let hosts = [
            (host.atime(), host.atime_nsec()),
            (host.mtime(), host.mtime_nsec()),
            (host.ctime(), host.ctime_nsec()),
        ];
        for (time, host) in times.into_iter().zip(hosts) {
            let time = (time.seconds as i64, i64::from(time.nanoseconds));
            assert_eq!(time, host);
        }
        assert_eq!(find(&world, "file"), Ok(file));
    });
}

#[test]
fn data_may_be_used_as_the_kernel_says_but_by_owners_always() {
    everywhere(|root| {
        fs::write(root.join("file"), b"contents").unwrap();
        chown(root.join("file"), Some(10), Some(11)).unwrap();
        let world = plain(root);
        let file = find(&world, "file").unwrap();
        let may_read = |caller: &Caller| {
            let mut slices = Vec::new();
            now(world.read(caller, file, 0, 8, &mut slices)).map(|_| ())
        };
        let may_write = |caller: &Caller| {
            write_as(&*world, caller, file, 0, b"C")
                .and_then(|done| done.result)
                .map(|_| ())
        };
        let denied = Err(StoreError::Denied);
        // Whoever asks again at once after a change is judged by the change.
        for (mode, read, write) in [
            (0o000, denied, denied),
            (0o004, Ok(()), denied),
            (0o002, denied, Ok(())),
            (0o006, Ok(()), Ok(())),
            (0o001, Ok(()), denied),
            (0o660, denied, denied),
        ] {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(root.join("file"), mode.clone()).unwrap();
            for _ in 0..2 {
                assert_eq!(may_read(&user(13)), read, "{mode:?}");
                assert_eq!(may_write(&user(13)), write, "{mode:?}");
                for other in [&user(10), &ROOT] {
                    assert_eq!(may_read(other), Ok(()), "{mode:?}");
                    assert_eq!(may_write(other), Ok(()), "{mode:?}");
                }
            }
        }
        let mut member = user(14);
        member.groups = [11].into_iter().collect();
        assert_eq!(may_read(&member), Ok(()));
        chown(root.join("file"), Some(13), Some(13)).unwrap();
        assert_eq!(may_read(&member), denied);
        assert_eq!(may_read(&user(10)), denied);
        assert_eq!(may_write(&user(13)), Ok(()));
    });
}

/// Opening a FIFO would wait for its other end, and opening a device may do anything.
#[test]
fn what_has_no_data_is_never_opened_for_it() {
    everywhere(|root| {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, root.join("fifo"), FileType::Fifo, mode, 0).unwrap();
        let null = rustix::fs::makedev(1, 3);
        mknodat(
            CWD,
            root.join("null"),
            FileType::CharacterDevice,
            mode,
            null,
        )
        .unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        symlink("null", root.join("link")).unwrap();
        let world = plain(root);
        for (name, error) in [
            ("fifo", StoreError::Invalid),
            ("null", StoreError::Invalid),
            ("link", StoreError::Invalid),
            ("folder", StoreError::IsDirectory),
        ] {
            let object = find(&world, name).unwrap();
            let mut slices = Vec::new();
            let read = now(world.read(&ROOT, object, 0, 10, &mut slices));
            assert_eq!(read.err(), Some(error), "{name}");
            let written = write(&*world, object, 0, b"x");
            assert_eq!(written.err(), Some(error), "{name}");
        }
    });
}

#[test]
fn texts_of_links_come_whole() {
    everywhere(|root| {
        let world = plain(root);
        for length in [1, 100, 255, 256, 257, 4000] {
            let name = format!("link{length}");
            let wanted = "t".repeat(length);
            symlink(&wanted, root.join(&name)).unwrap();
            let link = find(&world, &name).unwrap();
            let mut text = b"before ".to_vec();
            let attributes = now(world.read_link(&ROOT, link, &mut text)).unwrap();
            assert_eq!(text, format!("before {wanted}").into_bytes());
            assert_eq!(attributes.size, length as u64);
        }
    });
}

#[test]
fn statistics_and_properties_are_the_file_systems() {
    everywhere(|root| {
        let world = plain(root);
        let found = now(world.statistics(world.root())).unwrap();
        let host = rustix::fs::statvfs(root).unwrap();
        assert_eq!(found.total_bytes, host.f_blocks * host.f_frsize);
        assert_eq!(found.free_bytes, host.f_bfree * host.f_frsize);
        assert_eq!(found.available_bytes, host.f_bavail * host.f_frsize);
        assert_eq!(found.total_inodes, host.f_files);
        assert_eq!(found.free_inodes, host.f_ffree);
        assert_eq!(found.available_inodes, host.f_favail);
        assert_eq!(found.attributes.kind, Kind::Directory);
        let properties = world.properties();
        assert_eq!(u64::from(properties.name_max), host.f_namemax);
        assert!(properties.links_max > 1000);
        assert!(properties.size_max > 1 << 40);
    });
    // ext4 keeps some blocks for the superuser, which ordinary users cannot take.
    let backing = Backing::ext4(64, &["-m", "10"]);
    let world = plain(backing.path());
    let found = now(world.statistics(world.root())).unwrap();
    assert!(found.available_bytes + found.total_bytes / 20 < found.free_bytes);
}

#[test]
fn the_folder_may_be_moved_but_not_replaced() {
    everywhere(|root| {
        let path = root.join("export");
        fs::create_dir_all(path.join("a/b")).unwrap();
        for open in [plain, by_names] {
            let world = open(&path);
            let handles = ["", "a", "a/b"].map(|path| find(&world, path).unwrap());
            let moved = root.join("moved");
            fs::rename(&path, &moved).unwrap();
            for _ in 0..2 {
                for handle in handles {
                    assert!(now(world.attributes(handle)).is_ok());
                }
                assert_eq!(find(&world, "a/b/.."), Ok(handles[1]));
                close_all(&world);
            }
            // Another in its place is another folder.
            fs::create_dir_all(path.join("a/b")).unwrap();
            assert_eq!(find(&world, "a/b/../../.."), Ok(world.root()));
            assert_eq!(find(&world, "a/b"), Ok(handles[2]));
            let other = open(&path);
            for handle in handles {
                assert!(is_stale(&other, handle));
            }
            fs::remove_dir_all(&moved).unwrap();
            for _ in 0..2 {
                for handle in handles {
                    assert!(is_stale(&world, handle));
                }
                assert_eq!(find(&world, "a"), Err(StoreError::Stale));
                assert_eq!(find(&world, ".."), Err(StoreError::Stale));
                close_all(&world);
            }
        }
    });
}

#[test]
fn remembered_names_follow_what_the_store_does() {
    everywhere(|root| {
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("a/b/c/file"), b"contents").unwrap();
        let world = by_names(root);
        let paths = ["a", "a/b", "a/b/c", "a/b/c/file"];
        let handles = paths.map(|path| find(&world, path).unwrap());
        let folder = find(&world, "d").unwrap();
        let (from, to) = ((handles[0], &b"b"[..]), (folder, &b"moved"[..]));
        now(world.rename(&ROOT, from, to)).result.unwrap();
        close_all(&world);
        for handle in handles {
            assert!(now(world.attributes(handle)).is_ok());
        }
        assert_eq!(find(&world, "d/moved/c/file"), Ok(handles[3]));
        let none = mode(0o755);
        let made = now(world.make_directory(&ROOT, handles[2], b"new", &none)).result;
        let made = made.unwrap().0;
        close_all(&world);
        assert_eq!(find(&world, "d/moved/c/new"), Ok(made));
        assert!(now(world.attributes(made)).is_ok());
        // What others rename is stale once it is closed, until it is found again.
        fs::rename(root.join("d/moved/c"), root.join("c")).unwrap();
        close_all(&world);
        assert!(is_stale(&world, handles[3]));
        assert_eq!(find(&world, "c/file"), Ok(handles[3]));
        assert!(now(world.attributes(handles[3])).is_ok());
        // The root is good in a new volume; nothing else is.
        let again = by_names(root);
        assert_eq!(again.root(), world.root());
        assert!(now(again.attributes(world.root())).is_ok());
        assert!(is_stale(&again, handles[3]));
    });
}
