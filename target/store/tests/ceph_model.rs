//! Random operations on a CephFS file system and on a model of plain maps come to the same.

mod ceph_common;
mod common;
mod suites;

use ceph_common::{World, conf, config, directory};
use proptest::collection::vec;
use proptest::prelude::*;
use suites::model::Rules;
use suites::model::actions::{Action, data, naming, staging};

fn run(conf: &std::path::Path, actions: &[Action]) {
    let root = directory(conf.to_owned());
    let world = World::open(config(conf.to_owned(), &root));
    suites::model::run(world.store.clone(), Rules::Kernel, actions);
}

#[test]
fn a_file_system_of_ceph_follows_the_model() {
    let Some(conf) = conf() else { return };
    let config = ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..Default::default()
    };
    let actions = vec(
        prop_oneof![4 => naming(), 3 => data(), 2 => staging()],
        1..120,
    );
    proptest!(config, |(actions in actions)| run(&conf, &actions));
}
