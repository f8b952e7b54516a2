//! Most need the process to be privileged; otherwise they check that jobs run with the process's
//! rights.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{getegid, geteuid};
use rustix::thread::CapabilitySet;

use super::{
    FOLLOWING, Rights, SUPERUSERS, assume, groups as groups_of_thread, is_own, lost, maps_others,
    own_umask, privileged, query_as,
};
use crate::posix::identity::Identity;

/// A folder that every user may use, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("millrace-identity-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, owner: (u32, u32), mode: u32) -> PathBuf {
        let path = self.0.join(name);
        File::create(&path).unwrap();
        chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// False, recorded as skipped, if the process cannot act on behalf of others: then it checks that
/// jobs run with the process's own rights.
fn can_be_others() -> bool {
    if privileged() {
        return true;
    }
    millrace_testing::skip!("this process may not act on behalf of others");
    let folder = Folder::new();
    let path = folder.0.join("own");
    let caller = Identity::with_groups(12_345, 23_456, &[]);
    assume(&caller, || File::create(&path)).unwrap().unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!(
        (found.uid(), found.gid()),
        (geteuid().as_raw(), getegid().as_raw())
    );
    false
}

fn may_write(path: &Path, identity: &Identity) -> bool {
    match assume(identity, || OpenOptions::new().append(true).open(path)).unwrap() {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn files_get_the_callers_owner_and_group() {
    if !can_be_others() {
        return;
    }
    let folder = Folder::new();
    let before = Rights::current().unwrap();
    for (uid, gid) in [
        (1000, 2000),
        (0, 7),
        (1000, 0),
        (u32::MAX - 1, u32::MAX - 1),
    ] {
        let path = folder.0.join(format!("{uid}-{gid}"));
        let caller = Identity::with_groups(uid, gid, &[5, 6]);
        assume(&caller, || File::create(&path)).unwrap().unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (uid, gid));
    }
    assert_eq!(Rights::current().unwrap(), before);
}

#[test]
fn the_kernel_judges_by_user_group_and_other_groups() {
    if !can_be_others() {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("of-the-group", (1, 3000), 0o660);
    let many: Vec<u32> = (2901..=3000).collect();
    assert!(!may_write(&path, &Identity::with_groups(1000, 2000, &[])));
    assert!(!may_write(
        &path,
        &Identity::with_groups(1000, 2000, &many[..99])
    ));
    assert!(may_write(&path, &Identity::with_groups(1000, 2000, &many)));
    assert!(may_write(
        &path,
        &Identity::with_groups(1000, 2000, &[3000])
    ));
    assert!(may_write(&path, &Identity::with_groups(1000, 3000, &[])));
    assert!(may_write(&path, &Identity::with_groups(1, 2000, &[])));
    assert!(may_write(&path, &Identity::with_groups(0, 2000, &[])));
    // Nothing of a previous caller is left to the next one.
    assert!(!may_write(&path, &Identity::with_groups(1000, 2000, &[])));
}

#[test]
fn a_write_by_others_takes_set_id_bits_away() {
    if !can_be_others() {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("program", (1, 3000), 0o6777);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let superuser = Identity::with_groups(0, 0, &[]);
    assume(&superuser, || file.write_all(b"1"))
        .unwrap()
        .unwrap();
    assert_eq!(mode(), 0o6777);
    let caller = Identity::with_groups(1000, 2000, &[]);
    assume(&caller, || file.write_all(b"2")).unwrap().unwrap();
    assert_eq!(mode(), 0o777);
}

#[test]
fn the_superusers_groups_are_those_of_the_call() {
    if !can_be_others() {
        return;
    }
    let own: Vec<u32> = [0, 1, 2].to_vec();
    for groups in [&[7, 8][..], &[], &own, &[7, 8]] {
        let superuser = Identity::with_groups(0, 0, groups);
        let seen = assume(&superuser, groups_of_thread).unwrap().unwrap();
        assert_eq!(seen, groups);
        // The primary group may be among them.
        let with_own = Identity::with_groups(0, 0, &[groups, &[0]].concat());
        assert!(is_own(&with_own) && is_own(&superuser));
        for other in [
            Identity::with_groups(0, 1, groups),
            Identity::with_groups(1, 0, groups),
            Identity::with_groups(0, 0, &[groups, &[9]].concat()),
        ] {
            assert!(!is_own(&other));
        }
    }
}

#[test]
fn who_only_queries_keeps_the_capability_for_quotas() {
    if !can_be_others() {
        return;
    }
    let own = Rights::current().unwrap();
    for uid in [1000, 0] {
        let caller = Identity::with_groups(uid, 2000, &[3]);
        let taken = query_as(&caller, Rights::current).unwrap().unwrap();
        assert_eq!((taken.uid, taken.gid), (uid, 2000));
        let lost = if uid == 0 {
            CapabilitySet::empty()
        } else {
            FOLLOWING
        };
        let effective = own.capabilities.effective;
        assert_eq!(taken.capabilities.effective, effective - lost);
    }
    assert_eq!(Rights::current().unwrap(), own);
    assert!(SUPERUSERS.contains(FOLLOWING));
}

#[test]
fn only_the_superuser_keeps_the_capabilities_for_files() {
    if !can_be_others() {
        return;
    }
    let own = Rights::current().unwrap();
    let caller = Identity::with_groups(1000, 2000, &[4, 3]);
    let taken = assume(&caller, Rights::current).unwrap().unwrap();
    assert_eq!(
        (taken.uid, taken.gid, taken.groups),
        (1000, 2000, Some(vec![3, 4]))
    );
    let kept = taken.capabilities.effective;
    assert_eq!(kept, own.capabilities.effective - SUPERUSERS);
    assert_eq!(taken.capabilities.permitted, own.capabilities.permitted);
    assert!(!kept.intersects(CapabilitySet::SYS_RESOURCE | CapabilitySet::FSETID));
    let superuser = Identity::with_groups(0, 2000, &[]);
    let taken = assume(&superuser, Rights::current).unwrap().unwrap();
    assert_eq!(taken.capabilities, own.capabilities);
    assert_eq!(Rights::current().unwrap(), own);
}

/// Checks on a separate thread, which `prepare` changes first, that callers get their rights and
/// that the thread gets its own back.
fn rights_come_and_go(prepare: impl FnOnce() + Send + 'static) {
    if !can_be_others() {
        return;
    }
    let thread = std::thread::spawn(|| {
        prepare();
        let own = Rights::current().unwrap();
        let effective = own.capabilities.effective;
        for uid in [1000, 1000, 0, 1000, own.uid, 0] {
            let caller = Identity::with_groups(uid, 2000, &[4, uid]);
            let taken = assume(&caller, Rights::current).unwrap().unwrap();
            assert_eq!((taken.uid, taken.gid), (uid, 2000));
            let expected = if uid == 0 {
                effective
            } else {
                effective - SUPERUSERS
            };
            assert_eq!(taken.capabilities.effective, expected);
            assert_eq!(Rights::current().unwrap(), own);
        }
    });
    thread.join().unwrap();
}

#[test]
fn rights_are_the_same_where_capabilities_do_not_follow_the_user() {
    rights_come_and_go(|| {
        let bits = rustix::thread::CapabilitiesSecureBits::NO_SETUID_FIXUP;
        rustix::thread::set_capabilities_secure_bits(bits).unwrap();
        assert!(!Rights::current().unwrap().following);
    });
}

#[test]
fn rights_are_the_same_for_a_service_with_a_user_of_its_own() {
    rights_come_and_go(|| {
        let before = Rights::current().unwrap();
        super::change(998, super::set_fsuid).unwrap();
        before.set_effective(before.capabilities.effective).unwrap();
    });
}

#[test]
fn rights_are_the_same_for_a_process_with_few_capabilities() {
    rights_come_and_go(|| {
        let before = Rights::current().unwrap();
        let few = super::NEEDED | CapabilitySet::FOWNER;
        before.set_effective(few).unwrap();
        assert!(Rights::current().unwrap().groups.is_some());
    });
}

#[test]
fn a_panic_leaves_the_thread_its_own_rights() {
    if !can_be_others() {
        return;
    }
    let own = Rights::current().unwrap();
    let caller = Identity::with_groups(1000, 2000, &[3]);
    let outcome = std::panic::catch_unwind(|| {
        let _ = assume(&caller, || panic!("on purpose"));
    });
    assert_eq!(
        outcome.unwrap_err().downcast_ref::<&str>(),
        Some(&"on purpose")
    );
    assert_eq!(Rights::current().unwrap(), own);
    assert!(!lost());
}

#[test]
fn other_threads_are_not_concerned() {
    if !can_be_others() {
        return;
    }
    let own = Rights::current().unwrap();
    let caller = Identity::with_groups(1000, 2000, &[3]);
    let elsewhere = std::thread::spawn(move || {
        let (said, hear) = std::sync::mpsc::channel();
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let inside = std::thread::spawn(move || {
            assume(&caller, || {
                said.send(()).unwrap();
                answered.recv().unwrap();
            })
        });
        hear.recv().unwrap();
        let meanwhile = Rights::current().unwrap();
        answer.send(()).unwrap();
        inside.join().unwrap().unwrap();
        meanwhile
    });
    assert_eq!(elsewhere.join().unwrap(), own);
}

#[test]
fn identities_that_the_kernel_does_not_know_are_refused() {
    if !can_be_others() {
        return;
    }
    let own = Rights::current().unwrap();
    for (uid, gid, groups) in [
        (u32::MAX, 1, vec![]),
        (1, u32::MAX, vec![]),
        (1, 1, vec![1, u32::MAX]),
        (1, 1, (0..70_000).collect()),
    ] {
        let caller = Identity::with_groups(uid, gid, &groups);
        let outcome = assume(&caller, || panic!("somebody else's job ran"));
        assert!(outcome.is_err(), "{uid} {gid}");
        assert_eq!(Rights::current().unwrap(), own);
    }
}

#[test]
fn the_mask_is_this_threads_alone() {
    let folder = Folder::new();
    let make = |name: &str| {
        let path = folder.0.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o777);
        options.open(&path).unwrap();
        fs::metadata(&path).unwrap().mode() & 0o777
    };
    let before = make("before");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| match own_umask() {
            Ok(()) => assert_eq!(make("other"), 0o777),
            Err(error) => {
                millrace_testing::skip!("no mask of its own: {error}");
                assert_eq!(make("other"), before);
            }
        });
        other.join().unwrap();
    });
    assert_eq!(make("after"), before);
}

#[test]
fn namespaces_of_one_user_know_no_others() {
    assert!(!maps_others("         0       1000          1\n"));
    assert!(maps_others("         0          0 4294967295\n"));
    assert!(maps_others("0 1000 1\n1 100000 65536\n"));
    assert!(!maps_others(""));
}
