//! What other threads see of a load while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes moved so far, for other threads to look at while a load runs. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    bytes: Arc<AtomicU64>,
}

impl Progress {
    /// Bytes moved so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}
