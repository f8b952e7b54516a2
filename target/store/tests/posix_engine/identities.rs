//! On whose behalf the kernel writes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use millrace_store::posix::engine::Durability;
use millrace_store::posix::identity::{Identity, privileged};

use crate::stage::{Folder, Stage, superuser};

/// False, recorded as skipped, where the process cannot act on behalf of others.
fn can_be_others() -> bool {
    if !privileged() {
        millrace_testing::skip!("this process may not act on behalf of others");
    }
    privileged()
}

#[test]
fn a_write_takes_set_id_bits_away_unless_the_superuser_writes() {
    for stage in Stage::of_all_kinds(4) {
        let folder = Folder::new();
        let file = folder.file("program", b"");
        let path = folder.path("program");
        let slice = stage.slice_of(b"text");
        let others = can_be_others();
        for (identity, left) in [
            (superuser(), 0o6777),
            (Identity::with_groups(0, 5, &[6]), 0o6777),
            (Identity::with_groups(1000, 5, &[6]), 0o777),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
            let write = stage
                .engine
                .write(&file, 0, &slice, Durability::None, &identity, None);
            assert_eq!(stage.run(write).unwrap(), 4);
            if others {
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, left);
            }
        }
    }
}

#[test]
fn more_identities_than_are_kept_at_once() {
    for stage in Stage::of_all_kinds(4) {
        let folder = Folder::new();
        let file = folder.file("program", b"");
        let path = folder.path("program");
        let slice = stage.slice_of(b"text");
        let others = can_be_others();
        for uid in (1..3000).chain(1..100) {
            if uid % 100 == 0 {
                fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
            }
            let identity = Identity::with_groups(uid, uid, &[uid + 1]);
            let write = stage
                .engine
                .write(&file, 0, &slice, Durability::None, &identity, None);
            assert_eq!(stage.run(write).unwrap(), 4);
            if others && uid % 100 == 0 {
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
            }
        }
    }
}

#[test]
fn a_user_that_the_kernel_does_not_know_writes_nothing() {
    if !can_be_others() {
        return;
    }
    for stage in Stage::of_all_kinds(1) {
        let folder = Folder::new();
        let file = folder.file("file", b"");
        let slice = stage.slice_of(b"text");
        for _ in 0..3 {
            let nobody = Identity::with_groups(u32::MAX, 1, &[]);
            let write = stage
                .engine
                .write(&file, 0, &slice, Durability::None, &nobody, None);
            let error = stage.run(write).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        }
        assert_eq!(fs::metadata(folder.path("file")).unwrap().len(), 0);
        assert_eq!(stage.engine.pending(), 0);
        let root = superuser();
        let write = stage
            .engine
            .write(&file, 0, &slice, Durability::None, &root, None);
        assert_eq!(stage.run(write).unwrap(), 4);
    }
}
