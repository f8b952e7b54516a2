//! How many files without a name a volume keeps for those who hold them.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// The number of files without a name that a volume keeps.
#[derive(Default)]
pub(super) struct KeptFiles(AtomicUsize);

impl KeptFiles {
    /// Counts one more, if there are fewer than `most`.
    pub fn begin(&self, most: usize) -> bool {
        let more = |kept| (kept < most).then_some(kept + 1);
        self.0.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Counts one less.
    pub fn end(&self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
