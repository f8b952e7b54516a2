//! Changes of directories by several reactors at once: one after the other, each with the state
//! before and after it (RFC 1813 section 2.6), and none waits for ever.

mod common;
mod posix_common;

use std::collections::HashMap;

use common::*;
use millrace_store::posix::volume::Sync;
use millrace_store::{Consistency, CreateHow, Handle, Namespace, Store, Time};
use posix_common::{Backing, World, store_of};

const THREADS: u32 = 3;
const ROUNDS: u32 = 150;

/// When a directory was changed before and by an operation.
type Change = (Time, Time);

/// Notes what an operation says of a directory.
fn note(changes: &mut HashMap<Handle, Vec<Change>>, directory: Handle, seen: Consistency) {
    let before = seen.before.expect("directories have a before");
    let after = seen.after.expect("it is there");
    let seen = (before.changed, after.changed);
    changes.entry(directory).or_default().push(seen);
}

#[test]
fn changes_of_a_directory_follow_each_other_without_a_gap() {
    for backing in [Backing::tmpfs("size=64m"), Backing::ext4(64, &[])] {
        let world = World::open(backing.path(), |config| {
            config.sync = Sync::Relaxed;
            config.limits.helpers.threads = 8;
        });
        let one = make_directory(&*world, world.root(), b"one");
        let other = make_directory(&*world, world.root(), b"other");
        let starts = [one, other].map(|directory| attributes(&*world, directory).changed);
        let volume = &world.volume;
        let work = |thread: u32| {
            let store = store_of(volume);
            let mut changes = HashMap::new();
            for round in 0..ROUNDS {
                // Renames go both ways, so that two directories are locked in both orders.
                let (from, to) = if (thread + round).is_multiple_of(2) {
                    (one, other)
                } else {
                    (other, one)
                };
                let name = format!("{thread}-{round}").into_bytes();
                let how = CreateHow::Guarded(mode(0o600));
                let made = now(store.create(&ROOT, from, &name, &how));
                made.result.expect("made");
                note(&mut changes, from, made.consistency);
                let moved = now(store.rename(&ROOT, (from, &name), (to, &name)));
                moved.result.expect("moved");
                note(&mut changes, from, moved.from);
                note(&mut changes, to, moved.to);
                if round.is_multiple_of(3) {
                    let removed = now(store.remove(&ROOT, to, &name));
                    removed.result.expect("removed");
                    note(&mut changes, to, removed.consistency);
                }
                if round.is_multiple_of(10) {
                    let set = now(store.set_attributes(&ROOT, to, &mode(0o755), None));
                    set.result.expect("set");
                    note(&mut changes, to, set.consistency);
                }
            }
            changes
        };
        let work = &work;
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|it| scope.spawn(move || work(it)))
                .collect();
            let done = threads
                .into_iter()
                .map(|thread| thread.join().expect("done"));
            done.collect()
        });
        for (directory, start) in [one, other].into_iter().zip(starts) {
            let mut changes: Vec<Change> = all
                .iter()
                .flat_map(|changes| changes[&directory].iter().copied())
                .collect();
            changes.sort();
            let mut last = start;
            for (before, after) in &changes {
                assert_eq!(*before, last, "nothing came between");
                // A removal on tmpfs takes its time from a clock of milliseconds.
                assert!(after >= before, "times do not go back");
                last = *after;
            }
            assert_eq!(attributes(&*world, directory).changed, last);
        }
        let left = THREADS * (ROUNDS - ROUNDS.div_ceil(3));
        let found = list(&*world, one).len() + list(&*world, other).len();
        assert_eq!(found, left as usize + 4);
    }
}
