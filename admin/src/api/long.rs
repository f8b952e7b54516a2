//! Responses that may take longer than the lifetime of a connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The deadline of a connection's response, if it is later than usual; an extension of every
/// request.
#[derive(Clone, Debug, Default)]
pub struct LongAnswer(Arc<Mutex<Option<Instant>>>);

impl LongAnswer {
    /// Sets the deadline to this long from now.
    pub fn allow(&self, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(time);
    }

    /// The time that is left.
    pub fn rest(&self) -> Duration {
        let end = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.map_or(Duration::ZERO, |end| {
            end.saturating_duration_since(Instant::now())
        })
    }
}
