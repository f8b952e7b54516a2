//! Objects that are open are found, asked for attributes, read and written without an allocation.

mod common;
mod posix_common;

use std::fs;

use common::*;
use millrace_store::posix::PosixStore;
use millrace_store::{Caller, FileData, Handle, Namespace, Stability, Store};
use millrace_testing::allocation::{CountingAllocator, allocations};
use posix_common::{Backing, World};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Reads and writes everything once, as a client does that has it mounted.
fn round(store: &PosixStore, caller: &Caller, files: &[Handle]) {
    for file in files {
        now(store.attributes(*file)).unwrap();
        let mut slices = Vec::new();
        let staged = now(store.stage_write(caller, *file, 4096, 8192, &mut slices)).unwrap();
        now(store.commit_write(staged, Stability::Unstable))
            .result
            .unwrap();
        slices.clear();
        now(store.read(caller, *file, 0, 16_384, &mut slices)).unwrap();
    }
}

#[test]
fn steady_reads_and_writes_allocate_nothing() {
    for backing in [Backing::tmpfs("size=32m"), Backing::ext4(64, &[])] {
        let names: Vec<String> = (0..10).map(|index| format!("file{index}")).collect();
        for name in &names {
            fs::write(backing.path().join(name), vec![1; 20_000]).unwrap();
            std::os::unix::fs::chown(backing.path().join(name), Some(10), Some(10)).unwrap();
        }
        let world = World::open(backing.path(), |_| {});
        let find = |name: &String| {
            let found = now(world.lookup(&ROOT, world.root(), name.as_bytes()));
            found.unwrap().0
        };
        let files: Vec<Handle> = names.iter().map(find).collect();
        for caller in [ROOT, user(10)] {
            // What is opened, asked for and made room for once is there afterwards. A verdict on
            // permission holds for a second: a slow machine may ask again in one round, not in all.
            round(&world, &caller, &files);
            round(&world, &caller, &files);
            let counts = (0..5).map(|_| allocations(|| round(&world, &caller, &files)));
            // The list of slices is the test's own, and what is woken by the end of a write and of
            // a read.
            let own = 3 * files.len() as u64;
            let least = counts.min().unwrap();
            assert!(least <= own, "{least} instead of {own} for {caller:?}");
        }
    }
}
