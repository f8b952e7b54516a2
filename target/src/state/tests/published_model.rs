//! All interleavings of a home that publishes and a reactor that reads.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::state::ShareMode;
use crate::state::published::{PublishedState, PublishedWord};

#[derive(Debug, Default)]
struct ModelWord(AtomicU64);

impl PublishedWord for ModelWord {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn publish(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

const FIRST: u64 = 17;
const SECOND: u64 = 18;

#[test]
fn v4_perf_01_the_access_of_an_index_is_never_that_of_its_next_use() {
    loom::model(|| {
        let state = Arc::new(PublishedState::<ModelWord>::default());
        state.publish(FIRST, 1, ShareMode::READ);
        let home = {
            let state = state.clone();
            thread::spawn(move || {
                state.withdraw();
                state.publish(SECOND, 1, ShareMode::BOTH);
            })
        };
        let first = state.access(FIRST, 0);
        assert!(ShareMode::READ.includes(first), "{first:?}");
        let second = state.access(SECOND, 0);
        assert!(second.is_none() || second == ShareMode::BOTH, "{second:?}");
        home.join().unwrap();
        assert_eq!(state.access(FIRST, 0), ShareMode::NONE);
        assert_eq!(state.access(SECOND, 1), ShareMode::BOTH);
    });
}
