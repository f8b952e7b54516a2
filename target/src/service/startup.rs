//! The progress of a start, and its interruption.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use millrace_admin::config::ByteSize;
use millrace_mempool::{HugepagePolicy, Registry};

use super::build::StartError;

/// A start in progress as seen by other threads: its stage, and the interrupt that ends it. Clones
/// share it.
#[derive(Clone, Debug, Default)]
pub struct StartProgress {
    shared: Arc<StartupState>,
}

#[derive(Debug, Default)]
struct StartupState {
    stage: Mutex<String>,
    registry: OnceLock<Registry>,
    interrupt: Arc<AtomicBool>,
}

impl StartProgress {
    /// Of a start that ends soon after `interrupt` is set.
    #[must_use]
    pub fn interrupted_by(interrupt: Arc<AtomicBool>) -> Self {
        let shared = StartupState {
            interrupt,
            ..StartupState::default()
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The current stage of the start, and the memory allocated so far.
    #[must_use]
    pub fn stage(&self) -> String {
        let stage = self.shared.stage.lock();
        let stage = stage.unwrap_or_else(PoisonError::into_inner).clone();
        match self.shared.registry.get().map(Registry::populated) {
            None | Some(0) => stage,
            Some(bytes) => format!("{stage}; {} allocated", ByteSize(bytes >> 20 << 20)),
        }
    }

    /// Whether the start is interrupted.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupt.load(Ordering::Relaxed)
    }

    /// The registry of the service, which allocates memory until the interrupt.
    pub(super) fn registry(&self, policy: HugepagePolicy) -> Registry {
        let interrupt = Arc::clone(&self.shared.interrupt);
        let registry = Registry::interruptible(policy, interrupt);
        // A service is started once.
        let _ = self.shared.registry.set(registry.clone());
        registry
    }

    /// Enters the next stage of the start.
    ///
    /// # Errors
    /// It is interrupted.
    pub(super) fn enter(&self, stage: impl Into<String>) -> Result<(), StartError> {
        if self.is_interrupted() {
            return Err(StartError::Interrupted);
        }
        let mut current = self.shared.stage.lock();
        let current = current.as_mut().unwrap_or_else(|error| error.get_mut());
        **current = stage.into();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_tells_of_memory_and_none_is_entered_after_the_interrupt() {
        let interrupt = Arc::new(AtomicBool::new(false));
        let progress = StartProgress::interrupted_by(Arc::clone(&interrupt));
        progress.enter("first").unwrap();
        assert_eq!(progress.stage(), "first");
        let registry = progress.registry(HugepagePolicy::Off);
        let arena = registry.arena(3 << 20).unwrap();
        assert_eq!(progress.stage(), "first; 4MiB allocated");
        interrupt.store(true, Ordering::Relaxed);
        let refused = progress.enter("second").unwrap_err();
        assert!(matches!(refused, StartError::Interrupted));
        assert!(registry.arena(1).is_err(), "no memory is taken any more");
        assert_eq!(progress.stage(), "first; 4MiB allocated");
        drop(arena);
    }
}
