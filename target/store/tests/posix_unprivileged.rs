//! A process that is no superuser serves with its own rights what it can.

mod common;
mod posix_common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::*;
use millrace_store::{CreateHow, Namespace, SetAttributes, SpecialKind, Store, StoreError};
use posix_common::World;

/// Where the test runs once more, as a process without privileges, the folder that it has.
const FOLDER: &str = "MILLRACE_TEST_FOLDER";

const NOBODY: u32 = 65_534;

#[test]
fn without_privileges_everything_is_done_as_the_process_itself() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return serve(Path::new(&folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a folder");
    let superuser = std::fs::metadata(&own).expect("there").uid() == 0;
    if !superuser {
        return serve(&own);
    }
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).expect("ours");
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).expect("ours");
    // A copy, since the folder of the tests may be closed to others.
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().expect("this"), &program).expect("copied");
    let name = "without_privileges_everything_is_done_as_the_process_itself";
    let done = Command::new(program)
        .args([name, "--exact", "--nocapture"])
        .env(FOLDER, &own)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

fn serve(folder: &Path) {
    let world = World::open(folder, |_| {});
    let root = world.root();
    let caller = user(10);
    let me = std::fs::metadata(folder).expect("there").uid();
    let how = CreateHow::Guarded(mode(0o640));
    let (file, shown) = now(world.create(&caller, root, b"file", &how))
        .result
        .unwrap();
    assert_eq!((shown.uid, shown.mode), (me, 0o640));
    let made = now(world.make_directory(&caller, root, b"directory", &mode(0o700)));
    let directory = made.result.unwrap().0;
    let made = now(world.symlink(&caller, directory, b"link", b"to", &mode(0o777)));
    let link = made.result.unwrap().0;
    let made = now(world.make_node(&caller, root, b"fifo", SpecialKind::Fifo, &mode(0o600)));
    assert!(made.result.is_ok());
    let device = SpecialKind::Character(1, 3);
    let made = now(world.make_node(&ROOT, root, b"device", device, &mode(0o600)));
    assert_eq!(made.result.map(|_| ()), Err(StoreError::NotOwner));

    // Whoever asks, the process's own user decides.
    for caller in [caller, user(11), ROOT] {
        let set = |set: SetAttributes| now(world.set_attributes(&caller, file, &set, None)).result;
        assert_eq!(set(size(5)), Ok(()));
        assert_eq!(set(mode(0o600)), Ok(()));
        let owner = SetAttributes {
            uid: Some(me + 1),
            ..Default::default()
        };
        assert_eq!(set(owner), Err(StoreError::NotOwner));
    }
    // What cannot be read is made durable all the same.
    let closed = now(world.set_attributes(&ROOT, file, &mode(0), None));
    assert_eq!(closed.result, Ok(()));
    let closed = now(world.set_attributes(&ROOT, link, &touch(), None));
    assert_eq!(closed.result, Ok(()));

    let before = world.volume.name_syncs();
    let moved = now(world.rename(&ROOT, (root, b"file"), (directory, b"moved")));
    assert_eq!(
        (moved.result, world.volume.name_syncs()),
        (Ok(()), before + 2)
    );
    assert_eq!(
        attributes(&*world, file).mode,
        0,
        "found under its new name"
    );
    now(world.link(&ROOT, link, root, b"second"))
        .result
        .unwrap();
    let names = list(&*world, directory);
    assert_eq!(names.len(), 4);
    for name in [&b"link"[..], b"moved"] {
        now(world.remove(&ROOT, directory, name)).result.unwrap();
    }
    let gone = now(world.remove_directory(&ROOT, root, b"directory"));
    assert_eq!(gone.result, Ok(()));
    assert_eq!(now(world.attributes(file)), Err(StoreError::Stale));
}

fn touch() -> SetAttributes {
    SetAttributes {
        modified: millrace_store::SetTime::Now,
        ..Default::default()
    }
}
