//! The state of a volume's data that all reactors share.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use super::counters::{Counters, VolumeFigures};
use crate::WriteVerifier;
use crate::posix::config::VolumeConfig;
use crate::verifier::Verifier;

/// The state of a volume's data, shared by all reactors.
pub(in crate::posix) struct VolumeData {
    name: String,
    state: Option<std::path::PathBuf>,
    verifier: Verifier,
    /// Bytes written and not known to be durable.
    pub dirty: AtomicU64,
    write_back_errors: AtomicU64,
    /// One for every reactor that has had a store of the volume.
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl VolumeData {
    /// Loads the state of a clean stop.
    pub fn new(config: &VolumeConfig) -> Self {
        Self {
            name: config.name.clone(),
            verifier: Verifier::start(config.state.as_deref()),
            state: config.state.clone(),
            dirty: AtomicU64::new(0),
            write_back_errors: AtomicU64::new(0),
            counters: Mutex::default(),
        }
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.verifier.get()
    }

    /// Adds the counters of one more reactor.
    pub fn register(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counters));
        counters
    }

    pub fn figures(&self) -> VolumeFigures {
        let mut sum = VolumeFigures {
            write_back_errors: self.write_back_errors.load(SeqCst),
            verifier_changes: self.verifier.changes(),
            dirty_bytes: self.dirty.load(SeqCst),
            ..VolumeFigures::default()
        };
        let all = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        for counters in all.iter() {
            counters.add_to(&mut sum);
        }
        sum
    }

    /// Records a failure of writing back: uncommitted data may be lost, and every client must see
    /// this before any other answer.
    pub fn lost(&self, error: &std::io::Error) {
        self.verifier.change();
        self.write_back_errors.fetch_add(1, SeqCst);
        tracing::error!(
            "{}: writing back failed: {error}; clients send uncommitted data again",
            self.name
        );
    }

    /// Saves the verifier for the next start if everything is durable.
    pub fn close(&self) {
        let Some(path) = &self.state else {
            return;
        };
        let dirty = self.dirty.load(SeqCst);
        if dirty > 0 {
            tracing::warn!(
                "{}: {dirty} bytes are not known to be durable; clients send uncommitted data \
                 again",
                self.name
            );
        } else if let Err(error) = self.verifier.save(path) {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}
