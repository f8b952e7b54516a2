//! WRITE and COMMIT.

use std::cell::RefCell;
use std::rc::Rc;

use super::promises::{Promise, Promised, is_synced, require_kept};
use super::{backends, id_of};
use crate::posix::PosixStore;
use crate::posix::engine::Backend;
use crate::posix::posix_machine::*;
use crate::posix::sys::record::{FileId, RecordedCall, Recording};
use crate::posix::volume::{Direct, Limits, Volume, VolumeConfig};
use crate::{Handle, Result, Stability};

/// A file, and the answers that its clients got.
struct Told {
    recording: Rc<Recording>,
    machine: Machine,
    volume: Volume,
    store: PosixStore,
    handle: Handle,
    id: FileId,
    promises: Rc<RefCell<Vec<Promise>>>,
    _folder: Folder,
}

impl Told {
    fn new(backend: Backend, direct: Direct, limits: Limits) -> Self {
        // On a disk, where data is direct if permitted.
        let [folder, _memory] = Folder::both("told");
        let machine = Machine::new(backend);
        assert_eq!(machine.engine.backend(), backend);
        let config = VolumeConfig {
            limits,
            ..config(&folder.0, direct)
        };
        let volume = Volume::open(config).unwrap();
        let store = machine.store(&volume);
        let by = store.clone();
        let handle = machine.run(async move { create(&by, "file").await });
        Self {
            recording: Rc::new(Recording::start()),
            id: id_of(&folder.0.join("file")),
            promises: Rc::default(),
            machine,
            volume,
            store,
            handle,
            _folder: folder,
        }
    }

    /// Begins a WRITE, which returns its durability.
    fn write(&self, offset: u64, length: usize, stability: Stability) -> Pending<Stability> {
        let (store, file) = (self.store.clone(), self.handle);
        let (recording, promises) = (Rc::clone(&self.recording), Rc::clone(&self.promises));
        self.machine.begin(async move {
            let asked = recording.mark();
            let bytes = pattern(offset as u8, length);
            let done = write(&store, &ROOT, file, offset, &bytes, stability).await;
            let written = done.result.unwrap();
            assert_eq!(written.length as usize, length);
            let what = Promised::Written {
                offset,
                length: length as u64,
                stability: written.stability,
            };
            let answered = recording.mark();
            promises.borrow_mut().push(Promise {
                asked,
                answered,
                what,
            });
            written.stability
        })
    }

    /// Begins a COMMIT.
    fn commit(&self) -> Pending<Result<()>> {
        let (store, file) = (self.store.clone(), self.handle);
        let (recording, promises) = (Rc::clone(&self.recording), Rc::clone(&self.promises));
        self.machine.begin(async move {
            let asked = recording.mark();
            let outcome = commit(&store, file).await;
            let answered = recording.mark();
            promises.borrow_mut().push(Promise {
                asked,
                answered,
                what: Promised::Committed,
            });
            outcome.map(|_| ())
        })
    }

    fn wait<T>(&self, pending: &Pending<T>) -> T {
        self.machine.wait(pending)
    }

    /// Everything that was answered was true.
    fn require_kept(&self) {
        let calls = self.recording.calls();
        require_kept(self.id, &calls, &self.promises.borrow());
    }
}

#[test]
fn a_write_that_is_answered_as_synced_was_synced_before() {
    for backend in backends() {
        for direct in [Direct::Never, Direct::Auto, Direct::Always] {
            let told = Told::new(backend, direct, Limits::default());
            for stability in [
                Stability::Unstable,
                Stability::DataSync,
                Stability::FileSync,
            ] {
                for (offset, length) in [(0, 65_536), (3, 5000), (4096, 4096), (1 << 20, 100)] {
                    let answered = told.wait(&told.write(offset, length, stability));
                    assert_eq!(answered, stability);
                }
            }
            told.require_kept();
            // An unstable write waits for no sync.
            let first = told
                .recording
                .calls()
                .into_iter()
                .find_map(|it| match it.call {
                    RecordedCall::Write { flags, .. } if it.file == told.id => Some(flags),
                    _ => None,
                });
            assert_eq!(first, Some(0));
        }
    }
}

#[test]
fn a_write_that_must_be_durable_for_its_size_is_synced_before_its_answer() {
    for backend in backends() {
        let limits = Limits {
            dirty: 10_000,
            ..Limits::default()
        };
        let told = Told::new(backend, Direct::Never, limits);
        let first = told.wait(&told.write(0, 8000, Stability::Unstable));
        assert_eq!(first, Stability::Unstable);
        told.recording.hold(told.id);
        let second = told.write(8000, 8000, Stability::Unstable);
        let syncs = || told.recording.syncing(told.id) == 1;
        told.machine.until(|| second.is_done() || syncs());
        told.machine.turn();
        assert!(!second.is_done(), "answered before its sync");
        told.recording.release();
        assert_eq!(told.wait(&second), Stability::FileSync);
        told.require_kept();
    }
}

#[test]
fn a_commit_is_answered_after_a_sync_of_its_own_or_one_that_began_after_the_writes() {
    for backend in backends() {
        let told = Told::new(backend, Direct::Never, Limits::default());
        told.wait(&told.write(0, 5000, Stability::Unstable));
        told.recording.hold(told.id);
        let first = told.commit();
        let syncs = || told.recording.syncing(told.id) == 1;
        told.machine.until(|| first.is_done() || syncs());
        // While the sync that the first waits for is in progress, more is written.
        told.wait(&told.write(10_000, 5000, Stability::Unstable));
        let commits = [told.commit(), told.commit()];
        for _ in 0..3 {
            told.machine.turn();
        }
        assert!(commits.iter().chain([&first]).all(|it| !it.is_done()));
        assert_eq!(told.recording.syncing(told.id), 1, "one at a time");
        told.recording.release();
        for commit in commits.iter().chain([&first]) {
            told.wait(commit).unwrap();
        }
        told.require_kept();
        let calls = told.recording.calls();
        assert_eq!(calls.iter().filter(|it| it.syncs(told.id)).count(), 2);
    }
}

#[test]
fn whatever_comes_at_one_time_is_durable_when_it_is_said_to_be() {
    for backend in backends() {
        for seed in 1..=12_u64 {
            let direct = [Direct::Never, Direct::Auto, Direct::Always][seed as usize % 3];
            let told = Told::new(backend, direct, Limits::default());
            let mut state = seed;
            let mut next = |most: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % most
            };
            let (mut writes, mut commits) = (Vec::new(), Vec::new());
            for number in 0..40 {
                let stability = [
                    Stability::Unstable,
                    Stability::Unstable,
                    Stability::DataSync,
                    Stability::FileSync,
                ][next(4) as usize];
                if next(3) == 0 {
                    commits.push(told.commit());
                } else {
                    let length = [100, 4096, 65_536][next(3) as usize];
                    // Each has bytes of its own, so that each call belongs to one write.
                    writes.push(told.write(number * 131_072, length, stability));
                }
                for _ in 0..next(6) {
                    told.machine.turn();
                }
            }
            for commit in &commits {
                told.wait(commit).unwrap();
            }
            for write in &writes {
                told.wait(write);
            }
            told.require_kept();
        }
    }
}

#[test]
fn what_was_not_committed_is_synced_before_its_file_is_closed() {
    let told = Told::new(Backend::Threads, Direct::Never, Limits::default());
    told.wait(&told.write(0, 5000, Stability::Unstable));
    let written = told.recording.mark();
    let Told {
        recording,
        machine,
        volume,
        store,
        id,
        _folder,
        ..
    } = told;
    // The last reactor drops it.
    drop((store, machine));
    volume.close();
    let closed = recording.mark();
    assert_eq!(volume.figures().dirty_bytes, 0, "it is said to be durable");
    assert!(is_synced(id, &recording.calls(), written, closed));
}
