//! Random operations on a memory store and on a model of plain maps come to the same.

mod common;
mod suites;

use common::*;
use millrace_store::memory::MemoryConfig;
use proptest::collection::vec;
use proptest::prelude::*;
use suites::model::actions::{Action, data, lending, naming, staging};
use suites::model::{PAGE, Rules};

fn run(limit: u64, actions: &[Action]) {
    let store = store_of(MemoryConfig {
        inodes: Some(1000),
        ..config(limit)
    });
    suites::model::run(store, Rules::Memory { limit }, actions);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn names_and_data_follow_the_model_with_writes_in_flight(
        actions in vec(prop_oneof![3 => naming(), 3 => data(), 2 => staging()], 1..160)
    ) {
        run(32 << 20, &actions);
    }

    #[test]
    fn space_runs_out_exactly_when_the_model_says(
        actions in vec(prop_oneof![1 => naming(), 3 => data()], 1..160)
    ) {
        run(400_000 / PAGE * PAGE, &actions);
    }

    #[test]
    fn one_file_follows_the_model_with_writes_and_reads_in_flight(
        actions in vec(prop_oneof![2 => data(), 3 => staging(), 1 => lending()], 1..120)
    ) {
        let start = Action::Create { directory: 0, name: 0, way: 0 };
        let on_file = |action: &Action| match action.clone() {
            Action::Resize { size, .. } => Action::Resize { object: 1, size },
            Action::Write { offset, length, seed, .. } => {
                Action::Write { object: 1, offset, length, seed }
            }
            Action::Read { offset, length, .. } => Action::Read { object: 1, offset, length },
            Action::Stage { offset, length, seed, .. } => {
                Action::Stage { object: 1, offset, length, seed }
            }
            Action::Hold { offset, length, .. } => Action::Hold { object: 1, offset, length },
            other => other,
        };
        let actions: Vec<_> = std::iter::once(start).chain(actions.iter().map(on_file)).collect();
        run(32 << 20, &actions);
    }
}
