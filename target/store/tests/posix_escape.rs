//! Nothing leads out of the folder that a volume serves: every trick has its test, in each way that
//! a volume finds its objects.

mod common;
mod posix_common;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::*;
use millrace_store::posix::PosixStore;
use millrace_store::posix::volume::{Mounts, Volume};
use millrace_store::{
    AccessMask, CookieVerifier, CreateHow, Handle, Kind, Namespace, Result, SetAttributes, Store,
    StoreError,
};
use posix_common::{Backing, World, config, store_of};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// How a volume finds its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By a mount of its own and the kernel's handles.
    OwnMount,
    /// By the host's mount and the kernel's handles.
    HostMount,
    /// By names that it remembers.
    Names,
}

const WAYS: [Way; 3] = [Way::OwnMount, Way::HostMount, Way::Names];

/// Two folders beside each other on one file system, of which the first is served.
struct FolderPair {
    backing: Backing,
    world: World,
}

impl FolderPair {
    fn new(backing: Backing, way: Way) -> Self {
        for folder in ["inside/deep/deeper", "outside/secret"] {
            fs::create_dir_all(backing.path().join(folder)).unwrap();
        }
        fs::write(backing.path().join("inside/deep/file"), b"inside").unwrap();
        fs::write(backing.path().join("outside/secret/file"), b"outside").unwrap();
        let world = open(&backing.path().join("inside"), way);
        Self { backing, world }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.backing.path().join("inside").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.backing.path().join("outside").join(path)
    }

    fn find(&self, path: &str) -> Handle {
        find(&self.world, path).unwrap()
    }
}

/// Opens a volume that finds its objects in this way.
fn open(root: &Path, way: Way) -> World {
    let mut config = config(root);
    if way == Way::HostMount {
        config.mounts = Mounts::Cross;
    }
    let volume = match way {
        Way::OwnMount | Way::HostMount => Volume::open(config).unwrap(),
        Way::Names => Volume::open_without_kernel_handles(config).unwrap(),
    };
    let store = store_of(&volume);
    World { store, volume }
}

/// Every way on a file system in memory and on one on disk.
fn everywhere(test: impl Fn(&FolderPair, Way)) {
    for way in WAYS {
        test(&FolderPair::new(Backing::tmpfs("size=16m"), way), way);
        test(&FolderPair::new(Backing::ext4(32, &[]), way), way);
    }
}

fn look(store: &PosixStore, directory: Handle, name: &[u8]) -> Result<Handle> {
    now(store.lookup(&ROOT, directory, name)).map(|(handle, _)| handle)
}

fn find(store: &PosixStore, path: &str) -> Result<Handle> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let mut here = store.root();
    for name in names {
        here = look(store, here, name.as_bytes())?;
    }
    Ok(here)
}

fn inode(store: &PosixStore, object: Handle) -> u64 {
    now(store.attributes(object)).unwrap().inode
}

/// Has everything closed that nobody uses.
fn close_all(store: &PosixStore) {
    store.poll(Instant::now() + Duration::from_secs(3600));
    while store.poll(Instant::now()) > 0 {}
}

/// Everything that can be asked of an object or changed in it is answered so.
fn all_say(store: &PosixStore, object: Handle, error: StoreError) {
    let all = AccessMask(0x3f);
    assert_eq!(now(store.attributes(object)).err(), Some(error));
    assert_eq!(now(store.access(&ROOT, object, all)).err(), Some(error));
    assert_eq!(look(store, object, b"file").err(), Some(error));
    assert_eq!(now(store.statistics(object)).err(), Some(error));
}

/// Nothing can be done in a directory that is outside now.
fn is_closed(store: &PosixStore, directory: Handle) {
    let stale = Some(StoreError::Stale);
    for name in [&b"file"[..], b".", b"..", b"deeper"] {
        assert_eq!(look(store, directory, name).err(), stale, "{name:?}");
    }
    let none = SetAttributes::default();
    let how = CreateHow::Guarded(none);
    let made = now(store.create(&ROOT, directory, b"new", &how)).result;
    assert_eq!(made.err(), stale);
    let made = now(store.make_directory(&ROOT, directory, b"new", &none)).result;
    assert_eq!(made.err(), stale);
    let made = now(store.symlink(&ROOT, directory, b"new", b"text", &none)).result;
    assert_eq!(made.err(), stale);
    let removed = now(store.remove(&ROOT, directory, b"file")).result;
    assert_eq!(removed.err(), stale);
    let removed = now(store.remove_directory(&ROOT, directory, b"deeper")).result;
    assert_eq!(removed.err(), stale);
    let from = (directory, &b"file"[..]);
    let into = (store.root(), &b"taken"[..]);
    assert_eq!(now(store.rename(&ROOT, from, into)).result.err(), stale);
    let verifier = CookieVerifier::default();
    let listed = now(store.read_directory(&ROOT, directory, 0, verifier, false, &mut |_| true));
    assert_eq!(listed.err(), stale);
}

#[test]
fn parents_lead_up_to_the_root_and_no_further() {
    everywhere(|place, way| {
        let root = place.world.root();
        for path in [
            "..",
            "../..",
            "deep/..",
            "deep/../..",
            "deep/deeper/../../../..",
        ] {
            assert_eq!(place.find(path), root, "{way:?} {path}");
        }
        assert_eq!(find(&place.world, "../inside"), Err(StoreError::NotFound));
        assert_eq!(find(&place.world, "../outside"), Err(StoreError::NotFound));
        assert_eq!(place.find("../deep/../deep"), place.find("deep"));
    });
}

#[test]
fn names_of_more_than_one_component_are_refused() {
    everywhere(|place, way| {
        let root = place.world.root();
        let deep = place.find("deep");
        let names: [&[u8]; 9] = [
            b"",
            b"/",
            b"deep/file",
            b"/etc/passwd",
            b"../outside",
            b"deep/",
            b"./file",
            b"fi\0le",
            b"\0",
        ];
        for name in names {
            for directory in [root, deep] {
                let found = look(&place.world, directory, name);
                assert_eq!(found, Err(StoreError::Invalid), "{way:?} {name:?}");
                let how = CreateHow::Guarded(SetAttributes::default());
                let made = now(place.world.create(&ROOT, directory, name, &how)).result;
                assert_eq!(made.err(), Some(StoreError::Invalid), "{way:?} {name:?}");
            }
        }
        let long = [b'n'; 256];
        let found = look(&place.world, root, &long);
        assert_eq!(found, Err(StoreError::NameTooLong));
    });
}

#[test]
fn symbolic_links_are_never_followed() {
    everywhere(|place, way| {
        let outside = place.outside("secret");
        symlink(&outside, place.inside("absolute")).unwrap();
        symlink("../outside/secret", place.inside("relative")).unwrap();
        symlink("/", place.inside("slash")).unwrap();
        symlink("deep", place.inside("harmless")).unwrap();
        symlink("/proc/self/root", place.inside("magic")).unwrap();
        for name in ["absolute", "relative", "slash", "harmless", "magic"] {
            let link = place.find(name);
            let attributes = now(place.world.attributes(link)).unwrap();
            assert_eq!(attributes.kind, Kind::Symlink, "{way:?} {name}");
            // In the middle of a path it is no directory.
            for below in [&b"file"[..], b"..", b"."] {
                let found = look(&place.world, link, below);
                assert_eq!(found, Err(StoreError::NotDirectory), "{way:?} {name}");
            }
            let how = CreateHow::Unchecked(size(0));
            let root = place.world.root();
            let made = now(place.world.create(&ROOT, root, name.as_bytes(), &how)).result;
            assert!(made.is_err(), "{way:?} {name}: {made:?}");
            // Its handle leads to the link too, opened again.
            close_all(&place.world);
            let attributes = now(place.world.attributes(link)).unwrap();
            assert_eq!(attributes.kind, Kind::Symlink, "{way:?} {name}");
        }
        assert_eq!(fs::read(place.outside("secret/file")).unwrap(), b"outside");
    });
}

#[test]
fn a_directory_moved_outside_is_closed_and_opens_when_it_is_back() {
    everywhere(|place, way| {
        let deep = place.find("deep");
        let deeper = place.find("deep/deeper");
        fs::rename(place.inside("deep"), place.outside("moved")).unwrap();
        fs::write(place.outside("moved/deeper/file"), b"outside").unwrap();
        fs::create_dir(place.outside("moved/deeper/deeper")).unwrap();
        // While it is open, and when it has to be opened again.
        for _ in 0..2 {
            is_closed(&place.world, deep);
            is_closed(&place.world, deeper);
            assert_eq!(find(&place.world, "deep"), Err(StoreError::NotFound));
            close_all(&place.world);
        }
        all_say(&place.world, deep, StoreError::Stale);
        all_say(&place.world, deeper, StoreError::Stale);
        assert!(place.outside("moved/file").exists());
        assert!(!place.outside("moved/new").exists());
        fs::rename(place.outside("moved"), place.inside("back")).unwrap();
        if way == Way::Names {
            // What was moved by others is found by its new name only.
            assert_eq!(place.find("back"), deep);
        }
        assert_eq!(look(&place.world, deep, b".."), Ok(place.world.root()));
        assert!(look(&place.world, deep, b"file").is_ok(), "{way:?}");
    });
}

#[test]
fn handles_of_what_is_outside_are_stale() {
    for way in [Way::OwnMount, Way::HostMount] {
        for backing in [Backing::tmpfs("size=16m"), Backing::ext4(32, &[])] {
            forge(&FolderPair::new(backing, way), way);
        }
    }
}

/// The root of a volume on the folder's parent finds everything outside; its handles are given the
/// identity of the folder, as if the tag above were broken.
fn forge(place: &FolderPair, way: Way) {
    let parent = World::open(place.backing.path(), |_| {});
    let identity = place.world.root().as_bytes()[..9].to_vec();
    let forged = |handle: Handle| {
        let bytes = [&identity, &handle.as_bytes()[9..]].concat();
        Handle::new(&bytes).unwrap()
    };
    // The same object inside shows that forged handles are well made.
    let inside = find(&parent, "inside/deep/file").unwrap();
    assert_eq!(forged(inside), place.find("deep/file"), "{way:?}");
    close_all(&place.world);
    let attributes = now(place.world.attributes(forged(inside))).unwrap();
    assert_eq!(attributes.size, 6);
    for path in ["", "outside", "outside/secret", "outside/secret/file"] {
        let outside = find(&parent, path).unwrap();
        all_say(&place.world, forged(outside), StoreError::Stale);
        // As it was made, it is of another export.
        all_say(&place.world, outside, StoreError::Stale);
    }
}

#[test]
fn no_bytes_are_a_handle_by_chance() {
    everywhere(|place, way| {
        let file = place.find("deep/file");
        let bytes = file.as_bytes();
        close_all(&place.world);
        for length in 0..bytes.len() {
            let cut = Handle::new(&bytes[..length]).unwrap();
            let found = now(place.world.attributes(cut));
            assert_eq!(found.err(), Some(StoreError::Stale), "{way:?} {length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let forged = Handle::new(&bytes).unwrap();
            // A flipped bit of an inode number may be another object inside, never one outside.
            let Ok(found) = now(place.world.attributes(forged)) else {
                continue;
            };
            let inside = ["", "deep", "deep/deeper", "deep/file"];
            let inside = inside.map(|path| fs::metadata(place.inside(path)).unwrap().ino());
            assert!(inside.contains(&found.inode), "{way:?} {bit}");
        }
    });
}

#[test]
fn a_file_with_names_on_both_sides_is_inside() {
    everywhere(|place, way| {
        // Linked from outside: its only known name may be the one outside.
        fs::hard_link(place.outside("secret/file"), place.inside("in")).unwrap();
        fs::hard_link(place.inside("deep/file"), place.outside("out")).unwrap();
        let handles = [place.find("in"), place.find("deep/file")];
        for _ in 0..2 {
            for handle in handles {
                let found = now(place.world.attributes(handle)).unwrap();
                assert_eq!(found.links, 2, "{way:?}");
            }
            close_all(&place.world);
        }
        // Its last name inside goes, and its handle with it.
        fs::remove_file(place.inside("deep/file")).unwrap();
        fs::rename(place.outside("out"), place.outside("out2")).unwrap();
        fs::metadata(place.outside("out2")).unwrap();
        let found = now(place.world.attributes(handles[1]));
        assert_eq!(found.err(), Some(StoreError::Stale), "{way:?}");
    });
}

#[test]
fn a_file_moved_outside_is_stale_once_it_is_closed() {
    everywhere(|place, way| {
        let file = place.find("deep/file");
        fs::rename(place.inside("deep/file"), place.outside("file")).unwrap();
        close_all(&place.world);
        let found = now(place.world.attributes(file));
        assert_eq!(found.err(), Some(StoreError::Stale), "{way:?}");
    });
}

/// Somebody on the host moves a directory out and in while a client looks up its parents.
#[test]
fn a_directory_on_the_move_never_leads_outside() {
    for way in WAYS {
        let place = FolderPair::new(Backing::tmpfs("size=16m"), way);
        let inside: HashSet<u64> = ["", "deep", "deep/deeper", "deep/file"]
            .map(|path| fs::metadata(place.inside(path)).unwrap().ino())
            .into();
        let (deep, deeper) = (place.find("deep"), place.find("deep/deeper"));
        let (here, there) = (place.inside("deep"), place.outside("deep"));
        let stop = Arc::new(AtomicBool::new(false));
        let mover = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut moves = 0u64;
                while !stop.load(SeqCst) {
                    fs::rename(&here, &there).unwrap();
                    fs::rename(&there, &here).unwrap();
                    moves += 2;
                }
                moves
            }
        });
        let mut found = [0u64; 2];
        for round in 0..4000 {
            let chain = || {
                let up = look(&place.world, deeper, b"..")?;
                look(&place.world, up, b"..")
            };
            for handle in [chain(), look(&place.world, deep, b"..")] {
                match handle {
                    Ok(handle) => {
                        found[0] += 1;
                        let inode = inode(&place.world, handle);
                        assert!(inside.contains(&inode), "{way:?}: {inode} is outside");
                    }
                    Err(error) => {
                        found[1] += 1;
                        let stale = matches!(error, StoreError::Stale | StoreError::NotFound);
                        assert!(stale, "{way:?}: {error}");
                    }
                }
            }
            if round % 100 == 0 {
                close_all(&place.world);
            }
        }
        stop.store(true, SeqCst);
        let moves = mover.join().unwrap();
        assert!(moves > 0);
        assert!(found[0] + found[1] > 0);
    }
}

#[test]
fn a_mount_below_is_hidden_whenever_it_was_made() {
    for late in [false, true] {
        let backing = Backing::tmpfs("size=16m");
        let covered = backing.path().join("covered");
        fs::create_dir(&covered).unwrap();
        fs::write(covered.join("below"), b"covered").unwrap();
        let mount = (!late).then(|| Backing::tmpfs_at(&covered));
        let world = World::open(backing.path(), |_| {});
        let mount = mount.unwrap_or_else(|| Backing::tmpfs_at(&covered));
        fs::write(covered.join("above"), b"mounted").unwrap();
        // The folder that the mount covers, with what is in it.
        let folder = look(&world, world.root(), b"covered").unwrap();
        assert!(look(&world, folder, b"below").is_ok());
        assert_eq!(look(&world, folder, b"above"), Err(StoreError::NotFound));
        assert_eq!(look(&world, folder, b".."), Ok(world.root()));
        let attributes = now(world.attributes(folder)).unwrap();
        assert_eq!(attributes.file_system, 0);
        assert_ne!(attributes.inode, fs::metadata(&covered).unwrap().ino());
        drop(mount);
    }
}

#[test]
fn a_mount_below_is_entered_where_that_is_wanted() {
    let backing = Backing::ext4(32, &[]);
    let point = backing.path().join("mount point");
    fs::create_dir(&point).unwrap();
    fs::write(point.join("covered"), b"").unwrap();
    let mount = Backing::tmpfs_at(&point);
    fs::create_dir(point.join("folder")).unwrap();
    fs::write(point.join("folder/file"), b"mounted").unwrap();
    let cross = || World::open(backing.path(), |config| config.mounts = Mounts::Cross);
    let world = cross();
    let folder = find(&world, "mount point/folder").unwrap();
    let file = look(&world, folder, b"file").unwrap();
    let attributes = now(world.attributes(file)).unwrap();
    assert_eq!(attributes.size, 7);
    assert_ne!(attributes.file_system, 0);
    let top = find(&world, "mount point").unwrap();
    assert_eq!(look(&world, folder, b".."), Ok(top));
    // Up from the root of the mount goes to the folder, not to what was covered.
    assert_eq!(look(&world, top, b".."), Ok(world.root()));
    assert_eq!(look(&world, top, b"covered"), Err(StoreError::NotFound));
    // Handles are good in a new volume, which has to find the mount first.
    let again = cross();
    let found = now(again.attributes(file)).unwrap();
    assert_eq!(found.size, 7);
    assert_eq!(find(&again, "mount point/folder/file"), Ok(file));
    // A volume that hides mounts knows nothing of them.
    let hiding = World::open(backing.path(), |_| {});
    all_say(&hiding, file, StoreError::Stale);
    all_say(&hiding, top, StoreError::Stale);
    // Nothing keeps the mount busy once all is closed; helpers do that when they come to it.
    close_all(&world);
    close_all(&again);
    let unmount = || {
        let done = Command::new("umount").arg(&point).output().unwrap();
        done.status.success()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !unmount() {
        assert!(Instant::now() < deadline, "the mount is kept busy");
        close_all(&world);
        close_all(&again);
    }
    all_say(&world, file, StoreError::Stale);
    assert!(find(&world, "mount point/covered").is_ok());
    drop(mount);
}

/// A file system mounted a second time inside of an export that crosses mounts: what it shows there
/// is inside, the rest of it is not.
#[test]
fn a_second_mount_of_the_same_file_system_shows_what_it_shows() {
    let place = FolderPair::new(Backing::ext4(32, &[]), Way::HostMount);
    fs::create_dir(place.inside("bind")).unwrap();
    let bind = place.inside("bind");
    let done = Command::new("mount")
        .args([
            "--bind".as_ref(),
            place.outside("secret").as_os_str(),
            bind.as_os_str(),
        ])
        .status();
    assert!(done.unwrap().success());
    let _unmount = Unmount(bind);
    let file = place.find("bind/file");
    let folder = place.find("bind");
    close_all(&place.world);
    assert_eq!(now(place.world.attributes(file)).unwrap().size, 7);
    assert_eq!(look(&place.world, folder, b"file"), Ok(file));
    assert_eq!(look(&place.world, folder, b".."), Ok(place.world.root()));
    assert_eq!(find(&place.world, "bind/../.."), Ok(place.world.root()));
}

/// Takes a mount away in the end.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Without the privilege for a mount of its own a volume looks at the host's, and where something
/// is mounted there is nothing to see.
#[test]
fn without_a_mount_of_its_own_what_a_mount_covers_is_out_of_reach() {
    let backing = Backing::tmpfs("size=16m");
    fs::create_dir_all(backing.path().join("inside/covered")).unwrap();
    fs::create_dir_all(backing.path().join("inside/deep")).unwrap();
    let root = backing.path().join("inside");
    let mount = Backing::tmpfs_at(&root.join("covered"));
    fs::create_dir(root.join("covered/above")).unwrap();
    let lesser = CapabilitySet::SYS_ADMIN;
    without(lesser, move || {
        let world = World::open(&root, |_| {});
        assert_eq!(find(&world, "covered"), Err(StoreError::Denied));
        assert_eq!(find(&world, "covered/above"), Err(StoreError::Denied));
        let deep = find(&world, "deep").unwrap();
        assert_eq!(look(&world, deep, b".."), Ok(world.root()));
        assert_eq!(find(&world, "../../deep"), Ok(deep));
        close_all(&world);
        assert!(now(world.attributes(deep)).is_ok());
        fs::rename(root.join("deep"), root.join("../deep")).unwrap();
        is_closed(&world, deep);
        close_all(&world);
        is_closed(&world, deep);
    });
    drop(mount);
}

/// Without the privilege to open the kernel's handles a volume remembers names by itself.
#[test]
fn without_the_privilege_for_handles_names_are_remembered() {
    let backing = Backing::tmpfs("size=16m");
    fs::create_dir_all(backing.path().join("deep/deeper")).unwrap();
    let root = backing.path().to_owned();
    without(CapabilitySet::DAC_READ_SEARCH, move || {
        let world = World::open(&root, |_| {});
        let deeper = find(&world, "deep/deeper").unwrap();
        close_all(&world);
        assert!(now(world.attributes(deeper)).is_ok());
        let again = World::open(&root, |_| {});
        all_say(&again, deeper, StoreError::Stale);
        assert_eq!(again.root(), world.root());
        assert_eq!(find(&again, "deep/deeper"), Ok(deeper));
    });
}

/// Runs a test on a thread without a capability, which its helpers have not either.
fn without(capability: CapabilitySet, test: impl FnOnce() + Send + 'static) {
    let tested = std::thread::spawn(move || {
        let own = capabilities(None).unwrap();
        let sets = CapabilitySets {
            effective: own.effective - capability,
            permitted: own.permitted - capability,
            inheritable: own.inheritable - capability,
        };
        set_capabilities(None, sets).unwrap();
        test();
    });
    tested.join().unwrap();
}

/// A path longer than the kernel tells.
#[test]
fn a_directory_is_inside_however_deep() {
    everywhere(|place, way| {
        let name = [b'd'; 200];
        let none = mode(0o755);
        let mut here = place.find("deep");
        let mut handles = vec![here];
        for _ in 0..50 {
            let made = now(place.world.make_directory(&ROOT, here, &name, &none)).result;
            here = made.unwrap().0;
            handles.push(here);
        }
        close_all(&place.world);
        while let Some(below) = handles.pop() {
            let Some(above) = handles.last() else { break };
            assert_eq!(look(&place.world, below, b".."), Ok(*above), "{way:?}");
        }
        fs::rename(place.inside("deep"), place.outside("moved")).unwrap();
        let stale = Err(StoreError::Stale);
        assert_eq!(look(&place.world, here, b".."), stale, "{way:?}");
        close_all(&place.world);
        assert_eq!(look(&place.world, here, b".."), stale, "{way:?}");
    });
}
