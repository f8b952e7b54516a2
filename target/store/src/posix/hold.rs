//! Notification of a completed operation of an engine.

use std::fmt;
use std::io;
use std::rc::Rc;

/// Is notified when operations complete. The future of an operation may be dropped before the
/// kernel has completed it. Locks that the operation holds, and errors that the kernel reports only
/// once, are handled here.
pub trait CompletionObserver {
    /// An operation has completed with this outcome; `None` if it was never submitted to the
    /// kernel. Called once for each [`Hold`], on the reactor, before the future is woken.
    fn ended(&self, number: u32, outcome: Option<&io::Result<usize>>);
}

/// The operation's side: an engine calls [`Hold::end`] when the kernel has completed it.
pub struct Hold {
    observer: Option<Rc<dyn CompletionObserver>>,
    number: u32,
}

impl Hold {
    /// A hold for the operation with this number at `observer`.
    #[must_use]
    pub fn new(observer: Rc<dyn CompletionObserver>, number: u32) -> Self {
        Self {
            observer: Some(observer),
            number,
        }
    }

    /// Reports the kernel's outcome.
    pub fn end(mut self, outcome: &io::Result<usize>) {
        if let Some(observer) = self.observer.take() {
            observer.ended(self.number, Some(outcome));
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.ended(self.number, None);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Hold")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
