//! Selects the reactor of a new connection: the one with the least recent busy time, spreading
//! bursts of connections.

use std::time::{Duration, Instant};

/// Busy times are compared over windows at least this long.
const WINDOW: Duration = Duration::from_millis(100);

/// The assumed load of a connection, while it is unknown: this share of the window.
const EXPECTED_LOAD: f64 = 0.1;

/// Recent load of each reactor.
#[derive(Debug)]
pub struct Placement {
    since: Instant,
    reactors: Vec<Load>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Busy nanoseconds at the start of the window.
    busy: u64,
    /// Share of the last whole window that was busy, 0 to 1.
    share: f64,
    /// Connections placed since then.
    placed: u32,
}

impl Placement {
    /// For a number of reactors (at least one).
    #[must_use]
    pub fn new(reactors: usize, now: Instant) -> Self {
        Self {
            since: now,
            reactors: vec![Load::default(); reactors.max(1)],
        }
    }

    /// Chooses a reactor, given the busy nanoseconds of each so far.
    pub fn place(&mut self, now: Instant, busy: impl Fn(usize) -> u64) -> usize {
        let window = now.saturating_duration_since(self.since);
        if window >= WINDOW {
            for (index, load) in self.reactors.iter_mut().enumerate() {
                let total = busy(index);
                let spent = Duration::from_nanos(total.saturating_sub(load.busy));
                *load = Load {
                    busy: total,
                    share: spent.div_duration_f64(window),
                    placed: 0,
                };
            }
            self.since = now;
        }
        let score = |load: &Load| load.share + EXPECTED_LOAD * f64::from(load.placed);
        let least = self
            .reactors
            .iter()
            .enumerate()
            .min_by(|a, b| score(a.1).total_cmp(&score(b.1)));
        let chosen = least.map_or(0, |(index, _)| index);
        self.reactors[chosen].placed += 1;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_spreads_evenly() {
        let now = Instant::now();
        let mut placement = Placement::new(3, now);
        let mut counts = [0; 3];
        for _ in 0..9 {
            counts[placement.place(now, |_| 0)] += 1;
        }
        assert_eq!(counts, [3, 3, 3]);
    }

    #[test]
    fn the_least_busy_is_chosen() {
        let start = Instant::now();
        let mut placement = Placement::new(2, start);
        let later = start + Duration::from_secs(1);
        let busy = |index| [900_000_000, 100_000_000][index];
        assert_eq!(placement.place(later, busy), 1);
        // Eight more are assumed to make it as busy as the other.
        let placed: Vec<_> = (0..7).map(|_| placement.place(later, busy)).collect();
        assert_eq!(placed, [1; 7]);
        assert_eq!(placement.place(later, busy), 0);
    }
}
