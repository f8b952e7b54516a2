//! How often one and the same trouble is told.

use std::time::{Duration, Instant};

/// Least time between two lines in the log about it.
const PAUSE: Duration = Duration::from_secs(10);

/// Trouble that may come at every turn of a reactor.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    told: Option<Instant>,
}

impl LogLimit {
    /// Whether to tell it now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let recent = |told: Instant| now.saturating_duration_since(told) < PAUSE;
        if self.told.is_some_and(recent) {
            return false;
        }
        self.told = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_every_turn_is_told_now_and_then() {
        let mut complaint = LogLimit::default();
        let start = Instant::now();
        let turns = (0..100_000).map(|turn| start + Duration::from_micros(100) * turn);
        let told = turns.filter(|&now| complaint.is_due(now)).count();
        assert_eq!(told, 1);
        assert!(complaint.is_due(start + PAUSE));
        assert!(!complaint.is_due(start + PAUSE));
    }
}
