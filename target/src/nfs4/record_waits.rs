//! Operations that wait until records of clients are durable.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use millrace_reactor::completion::Completions;

use crate::state::RecordProgress;

/// How long an operation waits for a record. Then the client calls again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Operations of one reactor that wait.
#[derive(Debug, Default)]
pub struct RecordWaits {
    progress: Arc<RecordProgress>,
    outcomes: Completions<bool>,
    waiting: RefCell<Vec<RecordWait>>,
}

/// An operation that waits.
#[derive(Clone, Copy, Debug)]
struct RecordWait {
    serial: u64,
    until: Duration,
    token: u64,
}

impl RecordWaits {
    /// Nothing waits.
    #[must_use]
    pub fn new(progress: Arc<RecordProgress>) -> Self {
        Self {
            progress,
            outcomes: Completions::new(),
            waiting: RefCell::default(),
        }
    }

    /// Waits until a change is durable; returns false if that takes too long.
    pub async fn wait(&self, serial: u64, now: Duration) -> bool {
        if self.progress.has_reached(serial) {
            return true;
        }
        let (token, outcome) = self.outcomes.register();
        let until = now + PATIENCE;
        self.waiting.borrow_mut().push(RecordWait {
            serial,
            until,
            token,
        });
        outcome.await
    }

    /// Ends waits. To be called in each turn.
    pub fn poll(&self, now: Duration) {
        let mut waiting = self.waiting.borrow_mut();
        // Who waits is only woken here, and runs later.
        waiting.retain(|one| {
            let is_durable = self.progress.has_reached(one.serial);
            let is_over = is_durable || now >= one.until;
            if is_over {
                // The operation may have been abandoned.
                let _ = self.outcomes.complete(one.token, is_durable);
            }
            !is_over
        });
    }

    /// When the next wait ends without success.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.waiting.borrow();
        waiting.iter().map(|one| one.until).min()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_wait_ends_with_its_change_or_in_time() {
        let progress = Arc::new(RecordProgress::default());
        let waits = RecordWaits::new(progress.clone());
        let context = &mut Context::from_waker(Waker::noop());
        let (mut first, mut second) = (
            pin!(waits.wait(1, Duration::ZERO)),
            pin!(waits.wait(2, Duration::ZERO)),
        );
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        assert_eq!(waits.next_deadline(), Some(PATIENCE));
        progress.advance(1);
        waits.poll(Duration::ZERO);
        assert_eq!(first.as_mut().poll(context), Poll::Ready(true));
        assert!(second.as_mut().poll(context).is_pending());
        waits.poll(PATIENCE);
        assert_eq!(second.as_mut().poll(context), Poll::Ready(false));
        assert_eq!(waits.next_deadline(), None);
        let mut third = pin!(waits.wait(1, Duration::ZERO));
        assert_eq!(third.as_mut().poll(context), Poll::Ready(true));
    }
}
