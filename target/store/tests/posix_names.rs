//! Names, permissions and attributes in folders of the host, on file systems in memory and on disk.

mod common;
mod posix_common;
mod suites;

use common::*;
use millrace_store::posix::PosixStore;
use millrace_store::posix::volume::Mounts;
use millrace_store::{
    ClientKey, CreateHow, Namespace, SetAttributes, SetTime, SpecialKind, Store, StoreError,
};
use posix_common::{Backing, World};

fn on_tmpfs(test: impl FnOnce(&PosixStore)) {
    let backing = Backing::tmpfs("size=64m");
    test(&World::open(backing.path(), |_| {}));
}

fn on_ext4(test: impl FnOnce(&PosixStore)) {
    let backing = Backing::ext4(64, &[]);
    test(&World::open(backing.path(), |_| {}));
}

/// Without the package xfsprogs, or XFS in the kernel, the tests are recorded as skipped.
fn on_xfs(test: impl FnOnce(&PosixStore)) {
    match Backing::disk(300, &["mkfs.xfs", "-q", "-f"]) {
        Ok(backing) => test(&World::open(backing.path(), |_| {})),
        Err(said) => millrace_testing::skip!("XFS: {said}"),
    }
}

mod tmpfs {
    crate::suites::namespace_tests!(crate::on_tmpfs);
    crate::suites::hold_tests!(crate::on_tmpfs);
    crate::suites::space_tests!(crate::on_tmpfs);
    crate::suites::permission_tests!(crate::on_tmpfs);
}

mod ext4 {
    crate::suites::namespace_tests!(crate::on_ext4);
    crate::suites::hold_tests!(crate::on_ext4);
    crate::suites::space_tests!(crate::on_ext4);
    crate::suites::permission_tests!(crate::on_ext4);
}

mod xfs {
    crate::suites::namespace_tests!(crate::on_xfs);
    crate::suites::hold_tests!(crate::on_xfs);
    crate::suites::space_tests!(crate::on_xfs);
    crate::suites::permission_tests!(crate::on_xfs);
}

fn both_file_systems() -> [Backing; 2] {
    [Backing::tmpfs("size=64m"), Backing::ext4(64, &[])]
}

#[test]
fn an_exclusive_creation_is_known_again_after_a_restart() {
    for backing in both_file_systems() {
        let how = |byte| {
            CreateHow::Exclusive([0xf0, 1, 2, 3, 0xff, 5, 6, byte], SetAttributes::default())
        };
        let make = |world: &World, how| {
            now(world.create(&user(10), world.root(), b"file", &how))
                .result
                .map(|(handle, _)| handle)
        };
        let world = World::open(backing.path(), |_| {});
        let file = make(&world, how(7)).unwrap();
        drop(world);
        let world = World::open(backing.path(), |_| {});
        assert_eq!(make(&world, how(7)), Ok(file));
        assert_eq!(make(&world, how(8)), Err(StoreError::Exists));
        let shown = attributes(&*world, file);
        assert_eq!((shown.uid, shown.mode, shown.size), (10, 0o600, 0));
        // The client sets attributes next, and the file is as any other.
        let touch = SetAttributes {
            accessed: SetTime::Now,
            modified: SetTime::Now,
            ..mode(0o640)
        };
        let set = now(world.set_attributes(&user(10), file, &touch, None));
        assert_eq!(set.result, Ok(()));
        assert_eq!(make(&world, how(7)), Err(StoreError::Exists));
    }
}

#[test]
fn modes_and_owners_are_given_at_creation() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        // The tests' file mode mask would take these away, were it the helpers' too.
        let all = |how: &SetAttributes| {
            let file = now(world.create(&ROOT, root, b"f", &CreateHow::Guarded(*how))).result?;
            let directory = now(world.make_directory(&ROOT, root, b"d", how)).result?;
            let fifo = now(world.make_node(&ROOT, root, b"p", SpecialKind::Fifo, how)).result?;
            let link = now(world.symlink(&ROOT, root, b"l", b"to", how)).result?;
            for name in [b"f", b"p", b"l"] {
                now(world.remove(&ROOT, root, name)).result?;
            }
            now(world.remove_directory(&ROOT, root, b"d")).result?;
            Ok::<_, StoreError>([file, directory, fifo, link].map(|(_, shown)| shown))
        };
        let shown = all(&mode(0o777)).unwrap().map(|shown| shown.mode);
        assert_eq!(shown, [0o777; 4]);
        let shown = all(&mode(0o7751)).unwrap().map(|shown| shown.mode);
        assert_eq!(shown[..3], [0o7751; 3]);
        let given = SetAttributes {
            mode: Some(0o6755),
            ..owner(5, 6)
        };
        let shown = all(&given).unwrap();
        assert!(shown.iter().all(|shown| (shown.uid, shown.gid) == (5, 6)));
        let modes = shown.map(|shown| shown.mode);
        assert_eq!(modes[..3], [0o6755; 3], "a new owner's set-id bits stay");
        let none = all(&SetAttributes::default()).unwrap();
        let modes = none.map(|shown| shown.mode);
        assert_eq!(modes, [0o644, 0o755, 0o644, 0o777]);

        let own = now(world.create(&user(10), root, b"own", &CreateHow::Guarded(owner(10, 10))));
        assert_eq!(own.result.map(|(_, shown)| shown.uid), Ok(10));
        for (number, given) in [owner(11, 10), owner(10, 11)].into_iter().enumerate() {
            let name = [b'0' + number as u8];
            let made = now(world.create(&user(10), root, &name, &CreateHow::Guarded(given)));
            assert_eq!(made.result.map(|_| ()), Err(StoreError::NotOwner));
            let made = now(world.make_directory(&user(10), root, &name, &given));
            assert_eq!(made.result.map(|_| ()), Err(StoreError::NotOwner));
            // What is refused leaves nothing behind.
            let found = now(world.lookup(&ROOT, root, &name));
            assert_eq!(found.map(|_| ()), Err(StoreError::NotFound));
        }
    }
}

#[test]
fn a_full_file_system_says_so() {
    let backing = Backing::tmpfs("size=64m,nr_inodes=8");
    let world = World::open(backing.path(), |_| {});
    let how = CreateHow::Guarded(mode(0o600));
    let make = |number: u8| {
        now(world.create(&ROOT, world.root(), &[b'a' + number], &how))
            .result
            .map(|_| ())
    };
    let first = (0..20).find_map(|number| make(number).err());
    assert_eq!(first, Some(StoreError::NoSpace));
    let refused = now(world.make_directory(&ROOT, world.root(), b"directory", &mode(0o700)));
    assert_eq!(refused.result.map(|_| ()), Err(StoreError::NoSpace));
    now(world.remove(&ROOT, world.root(), b"a")).result.unwrap();
    // A helper closes what is gone.
    assert!((0..10_000).any(|_| make(30).is_ok()));
}

#[test]
fn quotas_hold_for_callers_and_not_for_the_superuser() {
    let backing = match Backing::try_tmpfs("size=64m,usrquota,usrquota_inode_hardlimit=3") {
        Ok(backing) => backing,
        Err(said) => {
            millrace_testing::skip!("this kernel keeps no quotas of tmpfs: {said}");
            return;
        }
    };
    let world = World::open(backing.path(), |_| {});
    let how = CreateHow::Guarded(mode(0o600));
    let make = |caller, number: u8| {
        now(world.create(&caller, world.root(), &[b'a' + number], &how))
            .result
            .map(|_| ())
    };
    for number in 0..3 {
        assert_eq!(make(user(10), number), Ok(()));
    }
    assert_eq!(make(user(10), 3), Err(StoreError::Quota));
    assert_eq!(make(user(11), 4), Ok(()));
    for number in 5..12 {
        assert_eq!(make(ROOT, number), Ok(()));
    }
}

#[test]
fn links_of_one_object_are_bounded_by_the_file_system() {
    let backing = Backing::ext4(64, &[]);
    let world = World::open(backing.path(), |_| {});
    let file = create(&*world, &ROOT, world.root(), b"file");
    let path = backing.path().join("file");
    for number in 1..65_000 {
        std::fs::hard_link(&path, backing.path().join(number.to_string())).unwrap();
    }
    let refused = now(world.link(&ROOT, file, world.root(), b"more"));
    assert_eq!(refused.result, Err(StoreError::TooManyLinks));
    assert_eq!(refused.object.unwrap().links, 65_000);
}

#[test]
fn what_the_host_takes_away_is_stale() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        let directory = make_directory(&*world, root, b"directory");
        let file = create(&*world, &ROOT, root, b"file");
        std::fs::remove_dir(backing.path().join("directory")).unwrap();
        std::fs::remove_file(backing.path().join("file")).unwrap();
        let how = CreateHow::Guarded(mode(0o600));
        let stale = Err(StoreError::Stale);
        let made = now(world.create(&ROOT, directory, b"x", &how));
        assert_eq!(made.result.map(|_| ()), stale);
        assert_eq!(now(world.remove(&ROOT, directory, b"x")).result, stale);
        let moved = now(world.rename(&ROOT, (directory, b"x"), (root, b"x")));
        assert_eq!(moved.result, stale);
        assert_eq!(now(world.link(&ROOT, file, root, b"x")).result, stale);
        assert_eq!(
            now(world.set_attributes(&ROOT, file, &mode(0), None)).result,
            stale
        );
        let listed = now(world.read_directory(
            &ROOT,
            directory,
            0,
            millrace_store::CookieVerifier::default(),
            true,
            &mut |_| true,
        ));
        assert_eq!(listed.map(|_| ()), stale);
    }
}

#[test]
fn a_folder_that_something_is_mounted_on_stays() {
    let backing = Backing::tmpfs("size=64m");
    let covered = backing.path().join("covered");
    std::fs::create_dir(&covered).unwrap();
    let above = Backing::tmpfs_at(&covered);
    let world = World::open(backing.path(), |_| {});
    let root = world.root();
    let denied = Err(StoreError::Denied);
    assert_eq!(
        now(world.remove_directory(&ROOT, root, b"covered")).result,
        denied
    );
    assert_eq!(
        now(world.rename(&ROOT, (root, b"covered"), (root, b"x"))).result,
        denied
    );
    drop(above);
    assert_eq!(
        now(world.remove_directory(&ROOT, root, b"covered")).result,
        Ok(())
    );
}

#[test]
fn an_operation_goes_on_when_nobody_waits_for_it() {
    let backing = Backing::tmpfs("size=64m");
    let world = World::open(backing.path(), |config| config.limits.helpers.threads = 1);
    let how = CreateHow::Guarded(mode(0o600));
    let root = world.root();
    // The root is open from now on, so that the next operation is one job.
    make_directory(&*world, root, b"directory");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let busy = world
        .volume
        .helpers()
        .run(ClientKey::OWN, move || released.recv());
    {
        let caller = ROOT;
        let mut create = std::pin::pin!(world.create(&caller, root, b"file", &how));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(create.as_mut().poll(&mut context).is_pending());
    }
    release.send(()).expect("the helper waits");
    now(busy).expect("run").expect("released");
    assert!(now(world.lookup(&ROOT, root, b"file")).is_ok());
}

#[test]
fn what_is_removed_gives_its_space_back_at_once_on_all_reactors() {
    let backing = Backing::tmpfs("size=64m");
    let world = World::open(backing.path(), |_| {});
    let other = posix_common::store_of(&world.volume);
    let root = world.root();
    for (name, replaced) in [(&b"file"[..], false), (b"replaced", true)] {
        let path = backing.path().join(std::str::from_utf8(name).unwrap());
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let free = || now(world.statistics(root)).unwrap().free_bytes;
        let before = free();
        for store in [&world.store, &other] {
            now(store.lookup(&ROOT, root, name)).unwrap();
        }
        if replaced {
            create(&*world, &ROOT, root, b"new");
            let done = now(world.rename(&ROOT, (root, b"new"), (root, name)));
            assert_eq!(done.result, Ok(()));
        } else {
            assert_eq!(now(world.remove(&ROOT, root, name)).result, Ok(()));
        }
        // No time passes on the reactors, so that nothing is closed for being idle.
        let turn = std::time::Instant::now();
        let freed = (0..100_000).any(|_| {
            world.store.poll(turn);
            other.poll(turn);
            free() >= before + (1 << 20)
        });
        assert!(freed, "{}", path.display());
    }
}

#[test]
fn nothing_moves_between_file_systems() {
    let backing = Backing::tmpfs("size=64m");
    let below = backing.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let _below = Backing::tmpfs_at(&below);
    let world = World::open(backing.path(), |config| config.mounts = Mounts::Cross);
    let root = world.root();
    let file = create(&*world, &ROOT, root, b"file");
    let directory = make_directory(&*world, root, b"directory");
    let (below, shown) = now(world.lookup(&ROOT, root, b"below")).unwrap();
    assert_ne!(shown.file_system, 0);
    let across = Err(StoreError::CrossDevice);
    for name in [&b"file"[..], b"directory"] {
        let moved = now(world.rename(&ROOT, (root, name), (below, name)));
        assert_eq!(moved.result, across);
    }
    let linked = now(world.link(&ROOT, file, below, b"file"));
    assert_eq!(linked.result, across);
    // What is made below is made there, and durable there.
    let before = world.volume.name_syncs();
    let inner = create(&*world, &ROOT, below, b"inner");
    let made = now(world.symlink(&ROOT, below, b"link", b"to", &mode(0o777)));
    let link = made.result.unwrap().0;
    let set = now(world.set_attributes(&ROOT, link, &owner(3, 3), None));
    assert_eq!(
        (set.result, world.volume.name_syncs()),
        (Ok(()), before + 4)
    );
    assert!(backing.path().join("below/inner").exists());
    let moved = now(world.rename(&ROOT, (below, b"inner"), (root, b"inner")));
    assert_eq!(moved.result, across);
    assert_eq!(attributes(&*world, inner).file_system, shown.file_system);
    assert_eq!(attributes(&*world, directory).file_system, 0);
}
