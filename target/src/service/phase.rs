//! Whether clients are served.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrace_admin::control::ControlError;

/// Whether clients are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServicePhase {
    /// Clients are served.
    #[default]
    Serving,
    /// Clients finish by this time, and may be served again.
    Draining(Instant),
    /// Clients finish by this time, and the service ends.
    Stopping(Instant),
}

impl ServicePhase {
    /// The deadline of clients; `None` if they are served.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Self::Serving => None,
            Self::Draining(deadline) | Self::Stopping(deadline) => Some(deadline),
        }
    }

    /// Checks that the service is not stopping.
    ///
    /// # Errors
    /// It is stopping.
    pub fn check(self) -> Result<(), ControlError> {
        match self {
            Self::Stopping(_) => Err(ControlError::Conflict("the service stops".to_owned())),
            Self::Serving | Self::Draining(_) => Ok(()),
        }
    }
}

/// The phase of the service, known here only. Reactors are notified by messages.
#[derive(Debug, Default)]
pub struct CurrentPhase(Mutex<ServicePhase>);

impl CurrentPhase {
    /// The phase now.
    pub fn get(&self) -> ServicePhase {
        *self.lock()
    }

    /// Changes to another phase.
    ///
    /// # Errors
    /// The service is stopping, which is its last phase.
    pub fn set(&self, next: ServicePhase) -> Result<(), ControlError> {
        let mut phase = self.lock();
        phase.check()?;
        *phase = next;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ServicePhase> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_follows_a_stop() {
        let (phase, now) = (CurrentPhase::default(), Instant::now());
        assert_eq!(phase.get().deadline(), None);
        phase.set(ServicePhase::Draining(now)).expect("it serves");
        phase.set(ServicePhase::Stopping(now)).expect("it drains");
        for next in [ServicePhase::Serving, ServicePhase::Draining(now)] {
            let refused = phase.set(next).expect_err("it stops");
            assert_eq!(refused.to_string(), "the service stops");
        }
        assert_eq!(phase.get(), ServicePhase::Stopping(now));
    }
}
