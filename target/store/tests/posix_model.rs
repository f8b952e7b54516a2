//! Random operations on folders of the host and on a model of plain maps come to the same.

mod common;
mod posix_common;
mod suites;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use posix_common::{Backing, World};
use proptest::collection::vec;
use proptest::prelude::*;
use suites::model::Rules;
use suites::model::actions::{Action, data, naming, staging};

fn run(backing: &Backing, actions: &[Action]) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let folder = RUNS.fetch_add(1, SeqCst).to_string();
    let folder = backing.path().join(folder);
    std::fs::create_dir(&folder).expect("a folder");
    let world = World::open(&folder, |_| {});
    suites::model::run(world.store.clone(), Rules::Kernel, actions);
}

/// The file system is made once; every run has a folder of its own.
fn check(backing: &Backing, cases: u32) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..Default::default()
    };
    let actions = vec(
        prop_oneof![4 => naming(), 3 => data(), 2 => staging()],
        1..120,
    );
    proptest!(config, |(actions in actions)| run(backing, &actions));
}

#[test]
fn a_folder_in_memory_follows_the_model() {
    check(&Backing::tmpfs("size=256m"), 64);
}

#[test]
fn a_folder_on_disk_follows_the_model() {
    check(&Backing::ext4(256, &[]), 32);
}
