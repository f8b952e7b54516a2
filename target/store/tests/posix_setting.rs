//! Attributes and durability of names in folders of the host, and whose word is taken on groups.

mod common;
mod posix_common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::*;
use millrace_store::posix::volume::Sync;
use millrace_store::{
    CreateHow, Handle, Kind, Namespace, Properties, SetAttributes, SetTime, SpecialKind, Store,
    StoreError, Time,
};
use posix_common::{Backing, World};
use rustix::fs::XattrFlags;

fn both_file_systems() -> [Backing; 2] {
    [Backing::tmpfs("size=64m"), Backing::ext4(64, &[])]
}

fn groups_of(world: &World, file: Handle, caller: &millrace_store::Caller) -> bool {
    now(world.set_attributes(caller, file, &size(1), None))
        .result
        .is_ok()
}

#[test]
fn a_file_system_tells_how_many_files_it_has_and_can_have() {
    let backing = Backing::tmpfs("size=64m,nr_inodes=100");
    let world = World::open(backing.path(), |_| {});
    let before = world.store.volume().space().unwrap();
    assert_eq!(before.total_inodes, Some(100));
    let how = CreateHow::Guarded(mode(0o666));
    now(world.create(&ROOT, world.root(), b"file", &how))
        .result
        .unwrap();
    let after = world.store.volume().space().unwrap();
    assert_eq!(after.inodes, before.inodes + 1);
    assert_eq!(after.total_inodes, Some(100));
}

#[test]
fn default_access_control_lists_have_their_say() {
    for backing in both_file_systems() {
        let folder = backing.path().join("shared");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        // Version 2; then tag, rights and number of each entry: the owner, user 77, the group, the
        // mask and all others.
        let undefined = u32::MAX;
        let entries = [
            (0x01_u16, 7_u16, undefined),
            (0x02, 6, 77),
            (0x04, 5, undefined),
            (0x10, 7, undefined),
            (0x20, 0, undefined),
        ];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        let name = "system.posix_acl_default";
        rustix::fs::setxattr(&folder, name, &list, XattrFlags::empty()).expect("lists");

        let world = World::open(backing.path(), |_| {});
        let shared = now(world.lookup(&ROOT, world.root(), b"shared")).unwrap().0;
        let how = CreateHow::Guarded(mode(0o666));
        let (file, shown) = now(world.create(&user(10), shared, b"file", &how))
            .result
            .unwrap();
        assert_eq!(shown.mode, 0o660, "others have nothing, the mask shows");
        let grows = |caller| now(world.set_attributes(&user(caller), file, &size(5), None)).result;
        assert_eq!(grows(77), Ok(()), "by the list");
        assert_eq!(grows(78), Err(StoreError::Denied));
        let inner = now(world.make_directory(&user(10), shared, b"inner", &mode(0o2755)));
        assert_eq!(inner.result.unwrap().1.mode, 0o2750);
    }
}

#[test]
fn changes_are_durable_before_they_are_answered_where_the_volume_is_strict() {
    let backing = Backing::ext4(64, &[]);
    for (sync, factor) in [(Sync::Strict, 1), (Sync::Relaxed, 0)] {
        let world = World::open(backing.path(), |config| config.sync = sync);
        let root = world.root();
        let before = std::cell::Cell::new(0);
        let expect = |syncs: u64, what: &str| {
            let done = world.volume.name_syncs() - before.replace(world.volume.name_syncs());
            assert_eq!(done, syncs * factor, "{what}");
        };
        let made = now(world.make_directory(&ROOT, root, b"directory", &mode(0o755)));
        let directory = made.result.unwrap().0;
        expect(2, "the directory and its parent");
        let file = create(&*world, &ROOT, root, b"file");
        expect(2, "the file and its directory");
        now(world.symlink(&ROOT, root, b"link", b"to", &mode(0o777)))
            .result
            .unwrap();
        expect(1, "the directory");
        now(world.link(&ROOT, file, root, b"second"))
            .result
            .unwrap();
        expect(1, "the directory");
        now(world.rename(&ROOT, (root, b"link"), (root, b"moved")))
            .result
            .unwrap();
        expect(1, "the directory");
        now(world.rename(&ROOT, (root, b"moved"), (directory, b"link")))
            .result
            .unwrap();
        expect(2, "both directories");
        now(world.set_attributes(&ROOT, file, &mode(0o600), None))
            .result
            .unwrap();
        expect(1, "the file");
        let link = now(world.lookup(&ROOT, directory, b"link")).unwrap().0;
        now(world.set_attributes(&ROOT, link, &owner(3, 3), None))
            .result
            .unwrap();
        expect(1, "what the link is on");
        now(world.remove(&ROOT, directory, b"link")).result.unwrap();
        expect(1, "the directory");
        now(world.remove_directory(&ROOT, root, b"directory"))
            .result
            .unwrap();
        expect(1, "the directory");
        let refused = now(world.remove(&ROOT, root, b"missing")).result;
        assert_eq!(refused, Err(StoreError::NotFound));
        now(world.set_attributes(&ROOT, file, &SetAttributes::default(), None))
            .result
            .unwrap();
        let again = CreateHow::Unchecked(SetAttributes::default());
        now(world.create(&ROOT, root, b"file", &again))
            .result
            .unwrap();
        expect(0, "nothing was changed");
        for name in [&b"file"[..], b"second"] {
            now(world.remove(&ROOT, root, name)).result.unwrap();
        }
    }
}

#[test]
fn a_file_system_without_writing_says_so() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        let file = create(&*world, &ROOT, root, b"file");
        let directory = make_directory(&*world, root, b"directory");
        backing.remount("ro");
        let set = mode(0o700);
        let how = CreateHow::Guarded(set);
        let fifo = SpecialKind::Fifo;
        let outcomes = [
            now(world.create(&ROOT, root, b"new", &how))
                .result
                .map(|_| ()),
            now(world.make_directory(&ROOT, root, b"new", &set))
                .result
                .map(|_| ()),
            now(world.symlink(&ROOT, root, b"new", b"to", &set))
                .result
                .map(|_| ()),
            now(world.make_node(&ROOT, root, b"new", fifo, &set))
                .result
                .map(|_| ()),
            now(world.link(&ROOT, file, directory, b"new")).result,
            now(world.rename(&ROOT, (root, b"file"), (directory, b"new"))).result,
            now(world.remove(&ROOT, root, b"file")).result,
            now(world.remove_directory(&ROOT, root, b"directory")).result,
            now(world.set_attributes(&ROOT, file, &set, None)).result,
            now(world.set_attributes(&ROOT, file, &size(1), None)).result,
            now(world.set_attributes(&ROOT, file, &owner(1, 1), None)).result,
        ];
        assert_eq!(outcomes, [Err(StoreError::ReadOnly); 11]);
        let existing = CreateHow::Unchecked(SetAttributes::default());
        let found = now(world.create(&ROOT, root, b"file", &existing)).result;
        assert_eq!(found.map(|(handle, _)| handle), Ok(file));
        assert_eq!(
            list(&*world, root)
                .iter()
                .filter(|name| *name == b"file")
                .count(),
            1
        );
    }
}

#[test]
fn attributes_of_symbolic_links_are_the_links_own() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        let file = create(&*world, &ROOT, root, b"file");
        let made = now(world.symlink(&ROOT, root, b"link", b"file", &mode(0o777)));
        let link = made.result.unwrap().0;
        let before = attributes(&*world, file);
        let time = Time {
            seconds: 1000,
            nanoseconds: 7,
        };
        let set = SetAttributes {
            mode: Some(0o600),
            accessed: SetTime::To(time),
            modified: SetTime::To(time),
            ..owner(3, 4)
        };
        let done = now(world.set_attributes(&ROOT, link, &set, None));
        assert_eq!(done.result, Ok(()));
        let shown = attributes(&*world, link);
        assert_eq!((shown.kind, shown.uid, shown.gid), (Kind::Symlink, 3, 4));
        assert_eq!((shown.accessed, shown.modified), (time, time));
        assert_eq!(attributes(&*world, file), before);
        // A second name of the link is a name of the link.
        now(world.link(&ROOT, link, root, b"second"))
            .result
            .unwrap();
        let second = now(world.lookup(&ROOT, root, b"second")).unwrap();
        assert_eq!((second.0, second.1.links), (link, 2));
    }
}

#[test]
fn only_files_have_a_size_to_set() {
    for backing in both_file_systems() {
        let world = World::open(backing.path(), |_| {});
        let root = world.root();
        let file = create(&*world, &ROOT, root, b"file");
        let directory = make_directory(&*world, root, b"directory");
        let fifo = SpecialKind::Fifo;
        let made = now(world.make_node(&ROOT, root, b"fifo", fifo, &mode(0o600)));
        let fifo = made.result.unwrap().0;
        let set =
            |object, bytes| now(world.set_attributes(&ROOT, object, &size(bytes), None)).result;
        assert_eq!(set(directory, 1), Err(StoreError::IsDirectory));
        assert_eq!(set(fifo, 1), Err(StoreError::Invalid));
        let Properties { size_max, .. } = world.properties();
        assert_eq!(set(file, u64::MAX), Err(StoreError::TooLarge));
        assert_eq!(set(file, size_max + 1), Err(StoreError::TooLarge));
        assert_eq!(set(file, 12_345), Ok(()));
        let how = CreateHow::Guarded(size(u64::MAX));
        let made = now(world.create(&ROOT, root, b"large", &how)).result;
        assert_eq!(made.map(|_| ()), Err(StoreError::TooLarge));
        let on_host = std::fs::metadata(backing.path().join("file")).unwrap();
        assert_eq!(
            (on_host.size(), backing.path().join("large").exists()),
            (12_345, false)
        );
    }
}

#[test]
fn refused_changes_of_attributes_change_nothing() {
    let backing = Backing::tmpfs("size=64m");
    let world = World::open(backing.path(), |_| {});
    let file = create(&*world, &user(10), world.root(), b"file");
    let open = now(world.set_attributes(&ROOT, file, &mode(0o666), None));
    assert_eq!(open.result, Ok(()));
    let before = attributes(&*world, file);
    let refused = |caller: u32, set: SetAttributes| {
        let done = now(world.set_attributes(&user(caller), file, &set, None));
        assert_eq!(attributes(&*world, file), before);
        done.result.unwrap_err()
    };
    // Each has a part that would be allowed.
    let chosen = SetTime::To(Time::default());
    let time = SetAttributes {
        accessed: chosen,
        ..size(3)
    };
    assert_eq!(refused(11, time), StoreError::NotOwner);
    assert_eq!(
        refused(
            11,
            SetAttributes {
                mode: Some(0),
                ..size(3)
            }
        ),
        StoreError::NotOwner
    );
    assert_eq!(
        refused(
            10,
            SetAttributes {
                size: Some(3),
                ..owner(10, 99)
            }
        ),
        StoreError::NotOwner
    );
    assert_eq!(
        refused(
            10,
            SetAttributes {
                mode: Some(0),
                ..size(u64::MAX)
            }
        ),
        StoreError::TooLarge
    );
}

#[test]
fn groups_are_the_clients_or_the_servers_word() {
    use millrace_store::posix::volume::Groups;
    let backing = Backing::tmpfs("size=64m");
    let member = millrace_store::Caller {
        groups: [50].into_iter().collect(),
        ..user(3_999_999_999)
    };
    for (groups, allowed) in [(Groups::Client, true), (Groups::Server, false)] {
        let world = World::open(backing.path(), |config| config.groups = groups);
        let how = CreateHow::Unchecked(SetAttributes {
            mode: Some(0o660),
            ..owner(0, 50)
        });
        let made = now(world.create(&ROOT, world.root(), b"file", &how));
        let file = made.result.unwrap().0;
        for _ in 0..2 {
            // The host's database does not know such a user, so that it has its own group only.
            assert_eq!(groups_of(&world, file, &member), allowed);
        }
        let primary = millrace_store::Caller {
            gid: 50,
            groups: millrace_store::CallerGroups::NONE,
            ..member.clone()
        };
        assert!(groups_of(&world, file, &primary));
    }
}
