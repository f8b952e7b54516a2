//! Forks of this process, counted so that generators are seeded anew.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Runs in the child between fork and its first own instruction.
extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the one that asked first.
pub fn forks() -> u32 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler is a function of this program and only changes an atomic number,
        // which is allowed after a fork.
        let outcome = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        if outcome != 0 {
            tracing::warn!("forks cannot be counted: error {outcome}");
        }
    });
    FORKS.load(Ordering::Relaxed)
}
