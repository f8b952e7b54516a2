//! Lines in the log about creations that failed: one for each client, reason and minute.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Failure, FailureReason};

/// Least time between two lines of one client and reason.
const PAUSE: Duration = Duration::from_mins(1);
/// Most clients and reasons in a minute; more are not logged.
const KNOWN_MAX: usize = 1024;

/// What was logged of late.
#[derive(Default)]
pub struct FailureLog(Mutex<HashMap<(IpAddr, FailureReason), Instant>>);

impl FailureLog {
    pub fn tell(&self, client: IpAddr, failure: &Failure) {
        if !self.is_due(client, failure.reason, Instant::now()) {
            return;
        }
        let text = &failure.text;
        if failure.reason == FailureReason::Expired {
            tracing::debug!("Kerberos context of {client} refused: {text}");
        } else {
            tracing::warn!("Kerberos context of {client} refused: {text}");
        }
    }

    fn is_due(&self, client: IpAddr, reason: FailureReason, now: Instant) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |told: &Instant| now.saturating_duration_since(*told) < PAUSE;
        if known.get(&(client, reason)).is_some_and(is_recent) {
            return false;
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, told| is_recent(told));
        }
        if known.len() >= KNOWN_MAX {
            return false;
        }
        known.insert((client, reason), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_of_once_a_minute_and_reason() {
        let log = FailureLog::default();
        let client = |last| IpAddr::from([10, 0, (last >> 8) as u8, last as u8]);
        let start = Instant::now();
        assert!(log.is_due(client(1), FailureReason::Clock, start));
        assert!(!log.is_due(client(1), FailureReason::Clock, start + PAUSE / 2));
        assert!(log.is_due(client(1), FailureReason::Key, start));
        assert!(log.is_due(client(2), FailureReason::Clock, start));
        assert!(log.is_due(client(1), FailureReason::Clock, start + PAUSE));
        let many =
            (0..10_000_u32).filter(|&at| log.is_due(client(at), FailureReason::Other, start));
        assert!(many.count() <= KNOWN_MAX);
        assert!(log.is_due(client(1), FailureReason::Key, start + PAUSE * 2));
    }
}
