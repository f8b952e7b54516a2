//! What an operation of an engine holds until the kernel is done with it.

use std::fmt;
use std::io;
use std::rc::Rc;

/// Told how operations end. Futures that wait for an operation may be dropped while the kernel is
/// still at it; what the operation must keep others from, and errors that are told only once, are
/// looked after here.
pub trait CompletionObserver {
    /// The kernel is done with an operation and said this; `None` if it never came to the kernel.
    /// Called once for each [`Hold`], on the reactor, before whoever waits is woken.
    fn ended(&self, number: u32, outcome: Option<&io::Result<usize>>);
}

/// An operation's part: an engine calls [`Hold::end`] when the kernel is done.
pub struct Hold {
    observer: Option<Rc<dyn CompletionObserver>>,
    number: u32,
}

impl Hold {
    /// For the operation that `observer` calls `number`.
    #[must_use]
    pub fn new(observer: Rc<dyn CompletionObserver>, number: u32) -> Self {
        Self {
            observer: Some(observer),
            number,
        }
    }

    /// The kernel is done and said this.
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
