//! Answers that take longer than a connection usually lives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Until when an answer of a connection may take, where that is longer than usual; an extension of
/// every request of the server.
#[derive(Clone, Debug, Default)]
pub struct LongAnswer(Arc<Mutex<Option<Instant>>>);

impl LongAnswer {
    /// Lets the answer take this long from now on.
    pub fn allow(&self, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(time);
    }

    /// What is left of the time.
    pub fn rest(&self) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| {
            end.saturating_duration_since(Instant::now())
        })
    }
}
