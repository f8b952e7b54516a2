//! What clients are told of durability, and what becomes of volumes that fail or hang. That data
//! are synced before they are said to be durable is tested by `src/posix/durability_tests`.

mod posix_machine;

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use millrace_store::posix::engine::Backend;
use millrace_store::posix::volume::{Direct, Limits, Volume, VolumeConfig};
use millrace_store::{Namespace, Stability, Store, StoreError};
use posix_machine::fuse::Fuse;
use posix_machine::*;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

const SECOND: Duration = Duration::from_secs(1);

fn open(config: VolumeConfig) -> Volume {
    Volume::open(config).unwrap()
}

#[test]
fn commits_at_one_time_share_syncs() {
    const COMMITS: u64 = 40;
    let [folder, _memory] = Folder::both("group");
    let machine = Machine::new(Backend::Auto);
    let volume = open(config(&folder.0, Direct::Auto));
    let store = machine.store(&volume);
    let by = store.clone();
    let file = machine.run(async move {
        let file = create(&by, "file").await;
        let done = write(&by, &ROOT, file, 0, &[1; 5000], Stability::Unstable).await;
        done.result.unwrap();
        // From here on its data is open.
        commit(&by, file).await.unwrap();
        file
    });
    let before = volume.figures();
    let commits: Vec<_> = (0..COMMITS)
        .map(|_| {
            let store = store.clone();
            machine.begin(async move { commit(&store, file).await })
        })
        .collect();
    for pending in &commits {
        assert_eq!(machine.wait(pending), Ok(volume.verifier()));
    }
    let figures = volume.figures();
    assert_eq!(figures.commits - before.commits, COMMITS);
    // The first began one, and all others came meanwhile.
    assert_eq!(figures.syncs - before.syncs, 2);
    assert_eq!(figures.write_back_errors, 0);
}

#[test]
fn too_much_dirty_data_is_made_durable_before_the_write_is_answered() {
    let [folder, _memory] = Folder::both("dirty");
    let machine = Machine::new(Backend::Auto);
    let limits = Limits {
        dirty: 80_000,
        ..Limits::default()
    };
    let volume = open(VolumeConfig {
        limits,
        ..config(&folder.0, Direct::Auto)
    });
    let (store, by) = (machine.store(&volume), volume.clone());
    machine.run(async move {
        let file = create(&store, "file").await;
        let bytes = [1; 40_000];
        for (round, stability, dirty) in [
            (0, Stability::Unstable, 40_000),
            (1, Stability::Unstable, 80_000),
            (2, Stability::FileSync, 0),
            (3, Stability::Unstable, 40_000),
        ] {
            let offset = round * 40_000;
            let done = write(&store, &ROOT, file, offset, &bytes, Stability::Unstable).await;
            let written = done.result.unwrap();
            assert_eq!(written.stability, stability, "in round {round}");
            assert_eq!(by.figures().dirty_bytes, dirty);
        }
        let done = write(&store, &ROOT, file, 0, &bytes, Stability::FileSync).await;
        assert_eq!(done.result.unwrap().stability, Stability::FileSync);
        assert_eq!(
            by.figures().dirty_bytes,
            40_000,
            "what is synced is not dirty"
        );
        commit(&store, file).await.unwrap();
        assert_eq!(by.figures().dirty_bytes, 0);
        assert_eq!(by.figures().forced_syncs, 1);
    });
}

#[test]
fn a_clean_stop_keeps_the_verifier_and_a_crash_does_not() {
    let [folder, _memory] = Folder::both("verifier");
    let state = Some(folder.0.join("state"));
    let root = folder.0.join("root");
    fs::create_dir(&root).unwrap();
    let config = VolumeConfig {
        state,
        ..config(&root, Direct::Auto)
    };
    let round = Cell::new(0);
    let stop = |clean: bool| {
        round.set(round.get() + 1);
        let machine = Machine::new(Backend::Auto);
        let volume = open(config.clone());
        let store = machine.store(&volume);
        let name = format!("file {}", round.get());
        let verifier = machine.run(async move {
            let file = create(&store, &name).await;
            let done = write(&store, &ROOT, file, 0, &[1; 5000], Stability::Unstable).await;
            done.result.unwrap().verifier
        });
        assert_eq!(volume.figures().dirty_bytes, 5000);
        if clean {
            // The reactor's end lets go of the file, which is not durable yet.
            drop(machine);
            volume.close();
            assert_eq!(volume.figures().dirty_bytes, 0);
        }
        verifier
    };
    let first = stop(true);
    let second = {
        let volume = open(config.clone());
        let verifier = volume.verifier();
        volume.close();
        verifier
    };
    assert_eq!(second, first, "nothing was lost");
    let third = stop(false);
    assert_eq!(third, first);
    assert_ne!(stop(true), third, "this might have been a crash");
}

#[test]
fn v4_data_13_a_failed_sync_is_told_once_and_changes_the_verifier() {
    for error in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
        let Some(fuse) = Fuse::mount(&["file"]) else {
            return;
        };
        let machine = Machine::new(Backend::Auto);
        let volume = open(config(fuse.path(), Direct::Never));
        let store = machine.store(&volume);
        let (by, before) = (store.clone(), volume.verifier());
        let file = machine.run(async move {
            let file = lookup(&by, "file").await;
            let done = write(&by, &ROOT, file, 0, b"unstable", Stability::Unstable).await;
            assert_eq!(done.result.unwrap().verifier, before);
            file
        });
        fuse.behave(|behaviour| behaviour.sync_error = Some((1, error)));
        let commits: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                machine.begin(async move { commit(&store, file).await })
            })
            .collect();
        let outcomes: Vec<_> = commits.iter().map(|commit| machine.wait(commit)).collect();
        let expected = match error {
            libc::ENOSPC => StoreError::NoSpace,
            libc::EDQUOT => StoreError::Quota,
            _ => StoreError::Io,
        };
        assert_eq!(outcomes[0], Err(expected));
        let after = volume.verifier();
        assert_ne!(after, before);
        for outcome in &outcomes[1..] {
            assert_eq!(*outcome, Ok(after), "they had another sync");
        }
        assert_eq!(volume.figures().write_back_errors, 1);
        assert_eq!(volume.figures().verifier_changes, 1);
        let by = store.clone();
        let again = machine.run(async move { commit(&by, file).await });
        assert_eq!(again, Ok(after));
        assert_eq!(fuse.content("file"), b"unstable");
    }
}

#[test]
fn an_error_of_a_sync_that_nobody_waits_for_changes_the_verifier_too() {
    let Some(fuse) = Fuse::mount(&["file"]) else {
        return;
    };
    let volume = open(config(fuse.path(), Direct::Never));
    let before = volume.verifier();
    let machine = Machine::new(Backend::Auto);
    let store = machine.store(&volume);
    let by = store.clone();
    let file = machine.run(async move {
        let file = lookup(&by, "file").await;
        let done = write(&by, &ROOT, file, 0, b"unstable", Stability::Unstable).await;
        done.result.unwrap();
        file
    });
    fuse.behave(|behaviour| {
        behaviour.silent = true;
        behaviour.sync_error = Some((1, libc::EIO));
    });
    let by = store.clone();
    let gone = machine.begin(async move { commit(&by, file).await });
    machine.until(|| fuse.held() == 1);
    machine.cancel(&gone);
    assert_eq!(volume.verifier(), before);
    let by = store.clone();
    let next = machine.begin(async move { commit(&by, file).await });
    machine.turn();
    fuse.behave(|behaviour| behaviour.silent = false);
    let outcome = machine.wait(&next);
    assert_ne!(volume.verifier(), before);
    assert_eq!(outcome, Ok(volume.verifier()), "it had a sync of its own");
    assert_eq!(fuse.syncs(), 2);
}

#[test]
fn errors_of_writes_are_told_as_they_are_and_leave_the_verifier() {
    for (error, expected) in [
        (libc::EIO, StoreError::Io),
        (libc::ENOSPC, StoreError::NoSpace),
        (libc::EDQUOT, StoreError::Quota),
        (libc::EFBIG, StoreError::TooLarge),
        (libc::EROFS, StoreError::ReadOnly),
    ] {
        for direct in [Direct::Never, Direct::Always] {
            let Some(fuse) = Fuse::mount(&["file"]) else {
                return;
            };
            let machine = Machine::new(Backend::Auto);
            let volume = open(config(fuse.path(), direct));
            let store = machine.store(&volume);
            let before = volume.verifier();
            fuse.behave(|behaviour| behaviour.write_error = Some(error));
            let by = store.clone();
            let file = machine.run(async move {
                let file = lookup(&by, "file").await;
                let done = write(&by, &ROOT, file, 0, &[1; 4096], Stability::Unstable).await;
                assert_eq!(done.result, Err(expected));
                // For lack of space a synchronous write says nothing of what was written before.
                let done = write(&by, &ROOT, file, 0, &[1; 4096], Stability::FileSync).await;
                assert_eq!(done.result, Err(expected));
                file
            });
            let lost = u64::from(error == libc::EIO);
            assert_eq!(volume.figures().verifier_changes, lost, "{expected}");
            assert_eq!(volume.verifier() == before, lost == 0);
            assert_eq!(volume.figures().dirty_bytes, 0);
            fuse.behave(|behaviour| behaviour.write_error = None);
            machine.run(async move {
                let done = write(&store, &ROOT, file, 0, &[1; 4096], Stability::FileSync).await;
                assert_eq!(done.result.unwrap().length, 4096);
            });
        }
    }
}

#[test]
fn a_volume_that_hangs_sends_newcomers_away_and_holds_up_no_other() {
    const BOUND: usize = 8;
    for backend in [Backend::Auto, Backend::Threads] {
        let Some(fuse) = Fuse::mount(&["file"]) else {
            return;
        };
        let [disk, memory] = Folder::both("beside");
        let machine = Machine::new(backend);
        let limits = Limits {
            operations: BOUND,
            ..Limits::default()
        };
        let hung = open(VolumeConfig {
            limits,
            ..config(fuse.path(), Direct::Never)
        });
        let store = machine.store(&hung);
        let by = store.clone();
        let file = machine.run(async move {
            let file = lookup(&by, "file").await;
            let done = write(&by, &ROOT, file, 0, &[7; 4096], Stability::Unstable).await;
            done.result.unwrap();
            commit(&by, file).await.unwrap();
            file
        });
        fuse.behave(|behaviour| behaviour.silent = true);
        let begin = |count: usize| -> Vec<_> {
            (0..count)
                .map(|number| {
                    let store = store.clone();
                    machine.begin(async move {
                        let bytes = [number as u8; 512];
                        let offset = number as u64 * 512;
                        write(&store, &ROOT, file, offset, &bytes, Stability::Unstable)
                            .await
                            .result
                    })
                })
                .collect()
        };
        let (inside, waiting) = (begin(BOUND), begin(3));
        machine.until(|| fuse.held() > 0 && hung.figures().waiting_operations == 3);
        assert_eq!(hung.figures().operations, BOUND as u64);

        // Others go on, turn by turn, once writes that wait behind it are called back.
        machine.pass(SECOND / 2);
        for folder in [&disk, &memory] {
            let volume = open(config(&folder.0, Direct::Auto));
            let store = machine.store(&volume);
            machine.run(async move {
                let file = create(&store, "file").await;
                for round in 0..100 {
                    let bytes = pattern(round, 70_000);
                    let offset = u64::from(round) * 10_000;
                    let done =
                        write(&store, &ROOT, file, offset, &bytes, Stability::Unstable).await;
                    done.result.unwrap();
                    let (found, _) = read(&store, &ROOT, file, offset, 70_000).await.unwrap();
                    assert!(found == bytes);
                }
                commit(&store, file).await.unwrap();
            });
            assert_eq!(volume.figures().delays, 0);
        }
        let turns = machine.turns();
        for _ in 0..1000 {
            machine.turn();
        }
        assert_eq!(machine.turns(), turns + 1000, "the loop never waits");
        assert!(inside.iter().chain(&waiting).all(|write| !write.is_done()));

        // Timers may be late by a tick.
        machine.pass(SECOND * 2 + SECOND / 10);
        for pending in &waiting {
            assert_eq!(machine.wait(pending), Err(StoreError::Delay));
        }
        for pending in begin(2) {
            assert_eq!(machine.wait(&pending), Err(StoreError::Delay));
        }
        let by = store.clone();
        let sent_away = machine.run(async move { read(&by, &ROOT, file, 0, 10).await.err() });
        assert_eq!(sent_away, Some(StoreError::Delay));
        assert_eq!(hung.figures().delays, 6);
        assert!(inside.iter().all(|write| !write.is_done()));

        // And when it comes back, all goes on.
        fuse.behave(|behaviour| behaviour.silent = false);
        for pending in &inside {
            assert_eq!(machine.wait(pending).unwrap().length, 512);
        }
        for pending in begin(BOUND + 3) {
            assert_eq!(machine.wait(&pending).unwrap().length, 512);
        }
        assert_eq!(hung.figures().operations, 0);
    }
}

#[test]
fn a_write_of_one_way_waits_until_those_of_the_other_have_ended() {
    let Some(fuse) = Fuse::mount(&["file"]) else {
        return;
    };
    let volume = open(config(fuse.path(), Direct::Always));
    let machines = [Machine::new(Backend::Auto), Machine::new(Backend::Auto)];
    let stores = [0, 1].map(|which| machines[which].store(&volume));
    let files = [0, 1].map(|which: usize| {
        let store = stores[which].clone();
        machines[which].run(async move {
            let file = lookup(&store, "file").await;
            // What is open and permitted needs no helper below.
            for length in [4096, 100] {
                let bytes = vec![0; length];
                let done = write(&store, &ROOT, file, 0, &bytes, Stability::Unstable).await;
                done.result.unwrap();
            }
            file
        })
    });
    let figures = volume.figures();
    assert_eq!((figures.writes_direct, figures.writes_buffered), (2, 2));
    let begin = |which: usize, bytes: Vec<u8>| {
        let (store, file) = (stores[which].clone(), files[which]);
        machines[which].begin(async move {
            write(&store, &ROOT, file, 0, &bytes, Stability::Unstable)
                .await
                .result
        })
    };
    fuse.behave(|behaviour| behaviour.silent = true);
    let direct = begin(0, vec![1; 4096]);
    machines[0].until(|| fuse.held() == 1);
    let buffered = begin(1, vec![2; 100]);
    let next = begin(0, vec![3; 4096]);
    machines[1].until(|| volume.figures().operations == 2);
    for _ in 0..1000 {
        machines.iter().for_each(Machine::turn);
    }
    let pending = [0, 1].map(|which| machines[which].engine.pending());
    assert_eq!(pending, [1, 0], "only the first is with the kernel");
    assert!(!direct.is_done() && !buffered.is_done() && !next.is_done());
    fuse.behave(|behaviour| behaviour.silent = false);
    for (which, pending) in [(0, &direct), (1, &buffered), (0, &next)] {
        machines[which].wait(pending).unwrap();
    }
    // In the order in which they came.
    assert_eq!(fuse.content("file"), vec![3; 4096]);
}

#[test]
fn a_write_whose_caller_has_gone_never_undoes_a_later_one() {
    let Some(fuse) = Fuse::mount(&["file"]) else {
        return;
    };
    let machine = Machine::new(Backend::Auto);
    let volume = open(config(fuse.path(), Direct::Never));
    let store = machine.store(&volume);
    let by = store.clone();
    let file = machine.run(async move {
        let file = lookup(&by, "file").await;
        let done = write(&by, &ROOT, file, 0, b"first", Stability::Unstable).await;
        done.result.unwrap();
        file
    });
    fuse.behave(|behaviour| behaviour.silent = true);
    let by = store.clone();
    let gone = machine
        .begin(async move { write(&by, &ROOT, file, 0, b"stale", Stability::Unstable).await });
    machine.until(|| fuse.held() == 1);
    machine.cancel(&gone);
    // The client sends it again on another connection, and then another.
    let by = store.clone();
    let later = machine.begin(async move {
        for bytes in [b"stale", b"later"] {
            let done = write(&by, &ROOT, file, 0, bytes, Stability::Unstable).await;
            done.result.unwrap();
        }
    });
    for _ in 0..1000 {
        machine.turn();
    }
    assert!(!later.is_done(), "the first is still under way");
    let pending = machine.engine.pending();
    assert_eq!(pending, 1, "nothing is asked of the kernel meanwhile");
    fuse.behave(|behaviour| behaviour.silent = false);
    machine.wait(&later);
    assert_eq!(fuse.content("file"), b"later");
    assert_eq!(
        volume.figures().dirty_bytes,
        20,
        "the first is counted as well"
    );
}

/// A file system in memory of its own, unmounted with the value.
struct Mounted(Folder);

impl Mounted {
    fn new(options: &str) -> Option<Self> {
        let folder = Folder::new(&std::env::temp_dir(), "mounted");
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::empty();
        match mount("millrace-test", &folder.0, "tmpfs", flags, &*options) {
            Ok(()) => Some(Self(folder)),
            Err(error) => {
                millrace_testing::skip!("mounting: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_file_system_tells_so_and_keeps_what_fits() {
    let Some(mounted) = Mounted::new("size=256k") else {
        return;
    };
    for direct in [Direct::Auto, Direct::Always, Direct::Never] {
        let machine = Machine::new(Backend::Auto);
        let volume = open(config(&mounted.0.0, direct));
        let store = machine.store(&volume);
        let name = format!("{direct:?}");
        let path = mounted.0.0.join(&name);
        machine.run(async move {
            let file = create(&store, &name).await;
            let bytes = pattern(1, 300 << 10);
            let done = write(&store, &ROOT, file, 0, &bytes, Stability::Unstable).await;
            let written = done.result.unwrap().length;
            assert!(written > 0 && (written as usize) < bytes.len(), "{written}");
            let (found, outcome) = read(&store, &ROOT, file, 0, 1 << 20).await.unwrap();
            assert!(found == bytes[..written as usize]);
            assert!(outcome.end_of_file);
            for stability in [Stability::Unstable, Stability::FileSync] {
                let offset = u64::from(written);
                let done = write(&store, &ROOT, file, offset, &bytes, stability).await;
                assert_eq!(done.result, Err(StoreError::NoSpace));
            }
            commit(&store, file).await.unwrap();
        });
        assert_eq!(volume.figures().verifier_changes, 0);
        fs::remove_file(path).unwrap();
        // Its space is free when the volume lets it go.
        drop((machine, volume));
    }
}

#[test]
fn a_file_system_that_becomes_read_only_refuses_writes_and_serves_reads() {
    let Some(mounted) = Mounted::new("size=1m") else {
        return;
    };
    let machine = Machine::new(Backend::Auto);
    fs::write(mounted.0.0.join("file"), b"content").unwrap();
    let volume = open(config(&mounted.0.0, Direct::Auto));
    mount_remount(&mounted.0.0, MountFlags::RDONLY, c"").unwrap();
    let store = machine.store(&volume);
    machine.run(async move {
        let file = lookup(&store, "file").await;
        let done = write(&store, &ROOT, file, 0, b"x", Stability::Unstable).await;
        assert_eq!(done.result, Err(StoreError::ReadOnly));
        let (bytes, _) = read(&store, &ROOT, file, 0, 100).await.unwrap();
        assert_eq!(bytes, b"content");
        commit(&store, file).await.unwrap();
    });
}

#[test]
fn what_is_deleted_behind_the_volume_is_stale() {
    let [folder, _memory] = Folder::both("deleted");
    let root = folder.0.join("root");
    fs::create_dir(&root).unwrap();
    let machine = Machine::new(Backend::Auto);
    let volume = open(config(&root, Direct::Auto));
    let store = machine.store(&volume);
    machine.run(async move {
        let file = create(&store, "file").await;
        let done = write(&store, &ROOT, file, 0, b"content", Stability::Unstable).await;
        done.result.unwrap();
        fs::remove_dir_all(&root).unwrap();
        let outcome = read(&store, &ROOT, file, 0, 100).await;
        assert_eq!(outcome.err(), Some(StoreError::Stale));
        let done = write(&store, &ROOT, file, 0, b"content", Stability::Unstable).await;
        assert_eq!(done.result, Err(StoreError::Stale));
        assert_eq!(commit(&store, file).await.err(), Some(StoreError::Stale));
        assert_eq!(
            store.attributes(store.root()).await.err(),
            Some(StoreError::Stale)
        );
    });
}
