//! RDMA devices, real ones. Needs the feature `verbs` and a device:
//!
//! ```sh
//! cargo test -p millrace-reactor --features verbs --test verbs --no-run
//! bench/kernel-client/in-guest --device rxe -- build/debug/deps/verbs-... --include-ignored
//! ```
//!
//! Tests that unplug a device or change what the process may lock run alone ([`alone`]).

mod devices;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by every test here, for some change what all share.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
