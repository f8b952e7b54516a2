//! Who may do what in a memory store.

mod common;
mod suites;

use common::*;
use millrace_store::Store;
use millrace_store::memory::{MemoryConfig, MemoryStore};

fn with(test: impl FnOnce(&MemoryStore)) {
    test(&store());
}

suites::permission_tests!(with);

#[test]
fn the_root_has_the_configured_owner() {
    let config = MemoryConfig {
        root_mode: 0o3750,
        root_uid: 5,
        root_gid: 6,
        ..config(4096)
    };
    let store = store_of(config);
    let shown = attributes(&store, store.root());
    assert_eq!((shown.mode, shown.uid, shown.gid), (0o3750, 5, 6));
    create(&store, &user(5), store.root(), b"file");
}
