//! What the posix store does without waiting: attributes of open objects, names and rights that the
//! kernel has in memory, and reads of bytes that are in the page cache.

mod common;
mod posix_common;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};

use common::*;
use millrace_mempool::Slice;
use millrace_store::posix::volume::{Direct, Mounts, Volume};
use millrace_store::{
    AccessControl, AccessMask, Caller, Handle, Immediate, Namespace, ReadOutcome, Store, StoreError,
};
use posix_common::{Backing, World, config, store_beside_devices};
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

/// Has the kernel drop names from its memory that nobody uses.
fn forget_names() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn lookup_at_once(world: &World, caller: &Caller, name: &[u8]) -> Option<Handle> {
    lookup_at_once_in(world, caller, world.root(), name)
}

/// A look-up at once, tried several times: the kernel also declines if any file system is mounted or
/// unmounted meanwhile, and other tests do so.
fn lookup_at_once_in(
    world: &World,
    caller: &Caller,
    directory: Handle,
    name: &[u8],
) -> Option<Handle> {
    let find = || at_once(world).lookup(caller, directory, name);
    let (handle, found) = (0..100).find_map(|_| find())?;
    assert_eq!(found, attributes(&**world, handle));
    Some(handle)
}

/// What the kernel checks for this thread, and its capabilities.
fn rights() -> Vec<String> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let wanted = |line: &&str| {
        let names = ["Uid:", "Gid:", "CapEff:", "CapPrm:"];
        names.iter().any(|name| line.starts_with(name))
    };
    status.lines().filter(wanted).map(str::to_owned).collect()
}

#[test]
fn names_in_memory_are_found_at_once() {
    let backing = Backing::ext4(32, &[]);
    let root = backing.path();
    fs::write(root.join("file"), b"x").unwrap();
    fs::create_dir(root.join("folder")).unwrap();
    let world = World::open(root, |_| {});
    assert!(
        lookup_at_once(&world, &ROOT, b"file").is_none(),
        "nothing is open"
    );
    let (file, _) = now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    for _ in 0..3 {
        assert_eq!(lookup_at_once(&world, &ROOT, b"file"), Some(file));
    }
    let (folder, _) = now(world.lookup(&ROOT, world.root(), b"folder")).unwrap();
    assert_eq!(lookup_at_once(&world, &ROOT, b"."), Some(world.root()));
    // Errors are left to others, as are the parent and names that nobody may have.
    for name in [&b"missing"[..], b"..", b"", b"a/b", b"folder/.", b"a\0"] {
        assert!(lookup_at_once(&world, &ROOT, name).is_none());
    }
    let missing = now(world.lookup(&ROOT, world.root(), b"missing"));
    assert_eq!(missing.err(), Some(StoreError::NotFound));
    let in_file = lookup_at_once_in(&world, &ROOT, file, b"x");
    assert!(in_file.is_none(), "no directory");
    // A name in memory that has another object now.
    fs::rename(root.join("folder"), root.join("file2")).unwrap();
    fs::rename(root.join("file2"), root.join("other")).unwrap();
    assert_eq!(lookup_at_once(&world, &ROOT, b"other"), Some(folder));
    assert!(lookup_at_once(&world, &ROOT, b"folder").is_none());
    fs::remove_dir(root.join("other")).unwrap();
    assert!(lookup_at_once_in(&world, &ROOT, folder, b".").is_none());
    let gone = now(world.lookup(&ROOT, folder, b"x"));
    assert_eq!(gone.err(), Some(StoreError::Stale));
}

#[test]
fn names_that_are_not_in_memory_are_left_to_others() {
    let backing = Backing::ext4(32, &[]);
    fs::write(backing.path().join("file"), b"x").unwrap();
    fs::write(backing.path().join("used"), b"x").unwrap();
    let world = World::open(backing.path(), |_| {});
    now(world.lookup(&ROOT, world.root(), b"used")).unwrap();
    forget_names();
    assert!(lookup_at_once(&world, &ROOT, b"file").is_none());
    assert!(
        lookup_at_once(&world, &ROOT, b"used").is_some(),
        "it is open"
    );
    now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    assert!(lookup_at_once(&world, &ROOT, b"file").is_some());
}

#[test]
fn names_are_found_at_once_by_those_who_may_search() {
    let backing = Backing::ext4(32, &[]);
    fs::write(backing.path().join("file"), b"x").unwrap();
    let world = World::open(backing.path(), |_| {});
    now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    let own = rights();
    let mut member = user(12);
    member.groups = [11].into_iter().collect();
    chown(backing.path(), Some(10), Some(11)).unwrap();
    let modes = [
        (0o700, [true, false, false]),
        (0o010, [false, true, false]),
        (0o001, [false, false, true]),
    ];
    for (mode, expected) in modes {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(backing.path(), permissions).unwrap();
        for (caller, may) in [user(10), member.clone(), user(13)].iter().zip(expected) {
            let waited = now(world.lookup(caller, world.root(), b"file"));
            assert_eq!(waited.is_ok(), may);
            assert_eq!(
                lookup_at_once(&world, caller, b"file").is_some(),
                may,
                "{mode:o}"
            );
            assert_eq!(rights(), own);
        }
        assert!(lookup_at_once(&world, &ROOT, b"file").is_some());
    }
}

#[test]
fn directories_that_were_moved_outside_have_no_names() {
    // With a private mount of the folder, and without.
    for mounts in [Mounts::Hide, Mounts::Cross] {
        let backing = Backing::ext4(32, &[]);
        let inside = backing.path().join("export");
        fs::create_dir_all(inside.join("folder/below")).unwrap();
        fs::write(inside.join("folder/below/file"), b"x").unwrap();
        let world = World::open(&inside, |config| config.mounts = mounts);
        let (folder, _) = now(world.lookup(&ROOT, world.root(), b"folder")).unwrap();
        let (below, _) = now(world.lookup(&ROOT, folder, b"below")).unwrap();
        now(world.lookup(&ROOT, below, b"file")).unwrap();
        let find = || lookup_at_once_in(&world, &ROOT, below, b"file");
        assert!(find().is_some());
        // The export itself may be moved.
        fs::rename(&inside, backing.path().join("moved")).unwrap();
        assert!(find().is_some());
        let outside = backing.path().join("outside");
        fs::rename(backing.path().join("moved/folder"), &outside).unwrap();
        assert!(find().is_none());
        let waited = now(world.lookup(&ROOT, below, b"file"));
        assert_eq!(waited.err(), Some(StoreError::Stale));
    }
}

/// The rights of a caller, at once.
fn granted_at_once(world: &World, caller: &Caller, object: Handle) -> Option<u32> {
    let all = AccessMask(0xff);
    let granted = at_once(world).access(caller, object, all);
    granted.map(|(granted, found)| {
        assert_eq!(found, attributes(&**world, object));
        granted.0
    })
}

#[test]
fn rights_are_told_at_once_where_no_list_has_to_be_read() {
    const READ: u32 = AccessMask::READ;
    const CHANGE: u32 = AccessMask::MODIFY | AccessMask::EXTEND;
    let backing = Backing::ext4(32, &[]);
    let path = backing.path().join("file");
    fs::write(&path, b"x").unwrap();
    chown(&path, Some(10), Some(11)).unwrap();
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let world = World::open(backing.path(), |_| {});
    let (file, _) = now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    let own = rights();
    let callers = [user(10), user(13)];
    for caller in &callers {
        assert_eq!(
            granted_at_once(&world, caller, file),
            None,
            "it is not known here"
        );
        now(world.lookup(caller, world.root(), b"file")).unwrap();
    }
    let [owner, other] = &callers;
    mode(0o604);
    assert_eq!(granted_at_once(&world, owner, file), Some(READ | CHANGE));
    assert_eq!(granted_at_once(&world, other, file), Some(READ));
    assert_eq!(granted_at_once(&world, &ROOT, file), Some(READ | CHANGE));
    mode(0o644);
    assert_eq!(granted_at_once(&world, owner, file), Some(READ | CHANGE));
    assert_eq!(
        granted_at_once(&world, other, file),
        None,
        "a list may say more"
    );
    // Who asks for nothing has no list read.
    now(world.access(other, file, AccessMask(0))).unwrap();
    assert_eq!(granted_at_once(&world, other, file), None);
    now(world.access(owner, file, AccessMask(0xff))).unwrap();
    assert_eq!(granted_at_once(&world, other, file), None);
    now(world.access(other, file, AccessMask(0xff))).unwrap();
    assert_eq!(granted_at_once(&world, other, file), Some(READ));
    assert_eq!(granted_at_once(&world, &ROOT, file), Some(READ | CHANGE));
    // A list that is set now is in memory too.
    let mut lists = now(world.access_lists(file)).unwrap();
    lists.access.users = vec![(13, 6)];
    lists.access.mask = Some(6);
    now(world.set_access_lists(&ROOT, file, &lists))
        .result
        .unwrap();
    assert_eq!(granted_at_once(&world, other, file), Some(READ | CHANGE));
    mode(0o640);
    assert_eq!(granted_at_once(&world, other, file), Some(READ), "the mask");
    assert_eq!(rights(), own);
    assert!(granted_at_once(&world, owner, world.root()).is_none());
}

#[test]
fn a_thread_that_uses_devices_stays_who_it_is() {
    let backing = Backing::ext4(32, &[]);
    fs::write(backing.path().join("file"), b"x").unwrap();
    let path = backing.path().join("file");
    chown(&path, Some(10), None).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let volume = Volume::open(config(backing.path())).unwrap();
    let store = store_beside_devices(&volume);
    let world = World { store, volume };
    let caller = user(10);
    let (file, _) = now(world.lookup(&caller, world.root(), b"file")).unwrap();
    assert!(now(world.access(&caller, file, AccessMask(1))).is_ok());
    assert_eq!(lookup_at_once(&world, &caller, b"file"), None);
    assert_eq!(granted_at_once(&world, &caller, file), None);
    now(world.lookup(&ROOT, world.root(), b"file")).unwrap();
    assert_eq!(lookup_at_once(&world, &ROOT, b"file"), Some(file));
    let granted = || granted_at_once(&world, &ROOT, file).is_some();
    assert!(!granted(), "no list was read for the owner");
    now(world.access(&user(13), file, AccessMask(1))).unwrap();
    assert!(granted());
}
