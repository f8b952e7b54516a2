//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK and SETATTR (RFC 1813 section 4.8).

use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use super::id_of;
use super::promises::is_synced;
use crate::posix::PosixStore;
use crate::posix::engine::Backend;
use crate::posix::posix_machine::*;
use crate::posix::sys::record::{FileId, RecordedCall, Recording};
use crate::posix::volume::{Direct, Sync, Volume, VolumeConfig};
use crate::{
    CreateHow, Namespace, Result, SetAttributes, SetTime, SpecialKind, Store, StoreError, Time,
};

type Answer = Pin<Box<dyn Future<Output = Result<()>>>>;

/// One operation, in a folder with `file`, `link` (symbolic), `directory` and `empty`.
struct NameChange {
    name: &'static str,
    run: fn(PosixStore) -> Answer,
    /// The objects to be synced; `.` is the folder itself.
    synced: &'static [&'static str],
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

/// The notation of one operation.
macro_rules! change {
    ($name:literal, $synced:expr, |$store:ident| $run:expr) => {
        NameChange {
            name: $name,
            synced: &$synced,
            run: |$store| Box::pin(async move { $run }),
        }
    };
}

async fn set(store: &PosixStore, name: &str, set: SetAttributes) -> Result<()> {
    let object = lookup(store, name).await;
    let done = store.set_attributes(&ROOT, object, &set, None).await;
    done.result
}

async fn create(store: &PosixStore, name: &str, how: CreateHow) -> Result<()> {
    let done = store
        .create(&ROOT, store.root(), name.as_bytes(), &how)
        .await;
    done.result.map(|_| ())
}

async fn rename(store: &PosixStore, from: &str, to: (&str, &str)) -> Result<()> {
    let directory = match to.0 {
        "." => store.root(),
        name => lookup(store, name).await,
    };
    let (from, to) = (
        (store.root(), from.as_bytes()),
        (directory, to.1.as_bytes()),
    );
    store.rename(&ROOT, from, to).await.result
}

fn all() -> Vec<NameChange> {
    vec![
        change!("create guarded", [".", "new"], |store| {
            create(&store, "new", CreateHow::Guarded(mode(0o4755))).await
        }),
        change!("create with a size", [".", "new"], |store| {
            create(&store, "new", CreateHow::Unchecked(size(5000))).await
        }),
        change!("create what is there", ["file"], |store| {
            create(&store, "file", CreateHow::Unchecked(size(5))).await
        }),
        change!("create exclusively", [".", "new"], |store| {
            create(
                &store,
                "new",
                CreateHow::Exclusive([7; 8], SetAttributes::default()),
            )
            .await
        }),
        change!("make a directory", [".", "new"], |store| {
            let done = store
                .make_directory(&ROOT, store.root(), b"new", &mode(0o700))
                .await;
            done.result.map(|_| ())
        }),
        change!("make a symbolic link", ["."], |store| {
            let done = store
                .symlink(&ROOT, store.root(), b"new", b"text", &mode(0o777))
                .await;
            done.result.map(|_| ())
        }),
        change!("make a node", ["."], |store| {
            let kind = SpecialKind::Fifo;
            let done = store
                .make_node(&ROOT, store.root(), b"new", kind, &mode(0o600))
                .await;
            done.result.map(|_| ())
        }),
        change!("link", ["."], |store| {
            let file = lookup(&store, "file").await;
            store.link(&ROOT, file, store.root(), b"new").await.result
        }),
        change!("remove", ["."], |store| {
            store.remove(&ROOT, store.root(), b"file").await.result
        }),
        change!("remove a directory", ["."], |store| {
            let done = store.remove_directory(&ROOT, store.root(), b"empty").await;
            done.result
        }),
        change!("rename in a directory", ["."], |store| {
            rename(&store, "file", (".", "new")).await
        }),
        change!("rename to another directory", [".", "directory"], |store| {
            rename(&store, "file", ("directory", "new")).await
        }),
        change!("set the mode", ["file"], |store| {
            set(&store, "file", mode(0o600)).await
        }),
        change!("set the size", ["file"], |store| {
            set(&store, "file", size(3)).await
        }),
        change!("set the times of a directory", ["directory"], |store| {
            let modified = SetTime::To(Time {
                seconds: 5,
                nanoseconds: 6,
            });
            let times = SetAttributes {
                modified,
                ..SetAttributes::default()
            };
            set(&store, "directory", times).await
        }),
        change!("set the owner of a symbolic link", ["link"], |store| {
            let owner = SetAttributes {
                uid: Some(rustix::process::geteuid().as_raw()),
                ..SetAttributes::default()
            };
            set(&store, "link", owner).await
        }),
    ]
}

struct NameFixture {
    recording: Rc<Recording>,
    machine: Machine,
    store: PosixStore,
    folder: Folder,
}

impl NameFixture {
    fn new(sync: Sync) -> Self {
        let [_disk, folder] = Folder::both("names");
        let at = |name: &str| folder.0.join(name);
        fs::write(at("file"), "content").unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        let machine = Machine::new(Backend::Threads);
        let config = VolumeConfig {
            sync,
            ..config(&folder.0, Direct::Auto)
        };
        let store = machine.store(&Volume::open(config).unwrap());
        Self {
            recording: Rc::new(Recording::start()),
            machine,
            store,
            folder,
        }
    }

    /// Begins an operation. Returns its outcome and the time from its start to its answer.
    fn begin(&self, change: &NameChange) -> Pending<(Result<()>, [u64; 2])> {
        let (run, recording) = ((change.run)(self.store.clone()), Rc::clone(&self.recording));
        self.machine.begin(async move {
            let asked = recording.mark();
            let outcome = run.await;
            (outcome, [asked, recording.mark()])
        })
    }

    fn id(&self, name: &str) -> FileId {
        id_of(&self.folder.0.join(Path::new(name)))
    }

    /// Whether a name exists now.
    fn is_there(&self, name: &str) -> bool {
        fs::symlink_metadata(self.folder.0.join(name)).is_ok()
    }

    /// The time of the last change of the folder's objects in this interval.
    fn changed(&self, files: &[FileId], [asked, answered]: [u64; 2]) -> Option<u64> {
        let calls = self.recording.calls();
        let changes = calls.iter().filter(|it| {
            matches!(it.call, RecordedCall::Name | RecordedCall::Attributes)
                && files.contains(&it.file)
                && it.began > asked
        });
        let ended = changes.filter_map(|it| it.ended);
        ended.filter(|ended| *ended < answered).max()
    }

    fn require_synced(&self, change: &NameChange, during: [u64; 2]) {
        let files: Vec<_> = change.synced.iter().map(|name| self.id(name)).collect();
        let changed = self.changed(&files, during);
        let changed = changed.unwrap_or_else(|| panic!("{}: changes nothing", change.name));
        for (file, name) in files.iter().zip(change.synced) {
            assert!(
                is_synced(*file, &self.recording.calls(), changed, during[1]),
                "{}: {name} was not synced between the change and the answer",
                change.name
            );
        }
    }
}

#[test]
fn a_strict_change_is_synced_after_it_was_made_and_before_it_is_answered() {
    for change in all() {
        let fixture = NameFixture::new(Sync::Strict);
        let (outcome, during) = fixture.machine.wait(&fixture.begin(&change));
        outcome.unwrap_or_else(|error| panic!("{}: {error}", change.name));
        fixture.require_synced(&change, during);
    }
}

#[test]
fn a_strict_change_is_not_answered_while_a_sync_is_under_way() {
    for change in all() {
        for name in change.synced {
            let fixture = NameFixture::new(Sync::Strict);
            if !fixture.is_there(name) {
                // It is synced before its directory.
                continue;
            }
            // For a symbolic link the whole file system is synced.
            let held = fixture.id(if *name == "link" { "." } else { name });
            fixture.recording.hold(held);
            let pending = fixture.begin(&change);
            let syncs = || fixture.recording.syncing(held) > 0;
            fixture.machine.until(|| pending.is_done() || syncs());
            fixture.machine.turn();
            fixture.machine.turn();
            assert!(!pending.is_done(), "{}: {name} is synced yet", change.name);
            fixture.recording.release();
            fixture.machine.wait(&pending).0.unwrap();
        }
    }
}

#[test]
fn a_strict_change_that_cannot_be_synced_is_answered_with_an_error() {
    for change in all() {
        for name in change.synced {
            let fixture = NameFixture::new(Sync::Strict);
            if !fixture.is_there(name) {
                continue;
            }
            let failing = fixture.id(if *name == "link" { "." } else { name });
            fixture.recording.fail(failing, true);
            let (outcome, _) = fixture.machine.wait(&fixture.begin(&change));
            assert_eq!(outcome, Err(StoreError::Io), "{}: {name}", change.name);
        }
    }
}

#[test]
fn an_exclusive_creation_that_comes_again_is_synced_again() {
    let fixture = NameFixture::new(Sync::Strict);
    let again = change!("create exclusively", [".", "new"], |store| {
        create(
            &store,
            "new",
            CreateHow::Exclusive([7; 8], SetAttributes::default()),
        )
        .await
    });
    // The first was made and not synced, as if the server had ended before the sync.
    fixture.recording.fail(fixture.id("."), true);
    let (outcome, _) = fixture.machine.wait(&fixture.begin(&again));
    assert_eq!(outcome, Err(StoreError::Io));
    assert!(fixture.is_there("new"));
    fixture.recording.fail(fixture.id("."), false);
    let (outcome, during) = fixture.machine.wait(&fixture.begin(&again));
    assert_eq!(outcome, Ok(()));
    for name in again.synced {
        let calls = fixture.recording.calls();
        let [asked, answered] = during;
        assert!(
            is_synced(fixture.id(name), &calls, asked, answered),
            "{name}"
        );
    }
}

#[test]
fn an_exclusive_creation_has_its_verifier_before_its_name() {
    let fixture = NameFixture::new(Sync::Strict);
    let change = change!("create exclusively", [".", "new"], |store| {
        create(
            &store,
            "new",
            CreateHow::Exclusive([7; 8], SetAttributes::default()),
        )
        .await
    });
    let (outcome, _) = fixture.machine.wait(&fixture.begin(&change));
    assert_eq!(outcome, Ok(()));
    let (directory, file) = (fixture.id("."), fixture.id("new"));
    let calls = fixture.recording.calls();
    let one = |call, of| {
        let mut found = calls
            .iter()
            .filter(|done| done.call == call && done.file == of);
        let one = found.next().expect("the call is made");
        assert!(found.next().is_none(), "{call:?} is made once");
        one
    };
    let named = one(RecordedCall::Name, directory);
    let verifier = one(RecordedCall::Attributes, file);
    assert!(verifier.ended.is_some_and(|ended| ended < named.began));
}

#[test]
fn a_relaxed_change_syncs_nothing() {
    for change in all() {
        let fixture = NameFixture::new(Sync::Relaxed);
        let (outcome, during) = fixture.machine.wait(&fixture.begin(&change));
        outcome.unwrap();
        let files: Vec<_> = change.synced.iter().map(|name| fixture.id(name)).collect();
        assert!(fixture.changed(&files, during).is_some(), "{}", change.name);
        let calls = fixture.recording.calls();
        let syncs = |file: &FileId| is_synced(*file, &calls, during[0], during[1]);
        assert!(!files.iter().any(syncs), "{}", change.name);
    }
}
