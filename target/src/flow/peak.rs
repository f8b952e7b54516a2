//! The most calls in service at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The period of a peak.
const PERIOD: Duration = Duration::from_secs(1);

/// The most calls in service at once within the previous period and the elapsed part of the current
/// one: one to two seconds.
///
/// A reactor answers most calls in the turn in which it finds them, one after the other. A count
/// between turns misses all of those. The calls of a turn are those in service when it began and
/// those that arrived in it: that many credits are in use at its beginning.
#[derive(Debug)]
pub(crate) struct InFlightPeak {
    /// The time of the turn of the latest call.
    turn: Cell<Instant>,
    /// The calls of that turn.
    in_turn: Cell<u32>,
    /// When the current period ends.
    end: Cell<Instant>,
    /// The most of the current period.
    most: Cell<u32>,
    /// The most of the previous period.
    before: Cell<u32>,
}

impl InFlightPeak {
    pub fn new(now: Instant) -> Self {
        Self {
            turn: Cell::new(now),
            in_turn: Cell::new(0),
            end: Cell::new(now + PERIOD),
            most: Cell::new(0),
            before: Cell::new(0),
        }
    }

    /// Records a call that arrived in the turn of time `now`, with `in_service` others.
    pub fn note(&self, now: Instant, in_service: u32) {
        if self.turn.replace(now) != now {
            self.in_turn.set(in_service);
            if now >= self.end.get() {
                self.begin_period(now);
            }
        }
        let in_turn = self.in_turn.get() + 1;
        self.in_turn.set(in_turn);
        self.most.set(self.most.get().max(in_turn));
    }

    #[cold]
    fn begin_period(&self, now: Instant) {
        let most = self.most.replace(0);
        let is_next = now < self.end.get() + PERIOD;
        self.before.set(if is_next { most } else { 0 });
        self.end.set(now + PERIOD);
    }

    /// The peak at time `now`, with `in_service` calls in service.
    pub fn most(&self, now: Instant, in_service: u32) -> u32 {
        let end = self.end.get();
        let peak = if now < end {
            self.most.get().max(self.before.get())
        } else if now < end + PERIOD {
            self.most.get()
        } else {
            0
        };
        peak.max(in_service)
    }

    /// When the peak decreases next without new calls.
    pub fn falls(&self, now: Instant) -> Instant {
        let end = self.end.get();
        if now < end { end } else { end + PERIOD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    /// As in a reactor: each call is answered before the next one of the turn is processed.
    fn turn(peak: &InFlightPeak, now: Instant, calls: u32, in_service: u32) {
        for _ in 0..calls {
            peak.note(now, in_service);
        }
    }

    #[test]
    fn the_calls_of_a_turn_count_together_and_with_those_left_from_before() {
        let start = Instant::now();
        let peak = InFlightPeak::new(start);
        assert_eq!(peak.most(start, 0), 0);
        turn(&peak, start, 3, 0);
        assert_eq!(peak.most(start, 0), 3);
        turn(&peak, start + STEP, 2, 0);
        assert_eq!(peak.most(start + STEP, 0), 3);
        turn(&peak, start + STEP * 2, 2, 5);
        assert_eq!(peak.most(start + STEP * 2, 0), 7);
        assert_eq!(peak.most(start + STEP * 2, 9), 9);
    }

    #[test]
    fn a_peak_is_forgotten_after_one_to_two_periods() {
        let start = Instant::now();
        let peak = InFlightPeak::new(start);
        turn(&peak, start, 8, 0);
        turn(&peak, start + PERIOD, 3, 0);
        assert_eq!(peak.most(start + PERIOD, 0), 8);
        turn(&peak, start + PERIOD * 2, 2, 0);
        assert_eq!(peak.most(start + PERIOD * 2, 0), 3);
        assert_eq!(peak.most(start + PERIOD * 3 - STEP, 0), 3);
        turn(&peak, start + PERIOD * 5, 1, 0);
        assert_eq!(peak.most(start + PERIOD * 5, 0), 1);
        turn(&peak, start + PERIOD * 5, 8, 0);
        // At the end of the period after that of the peak, to the nanosecond.
        turn(&peak, start + PERIOD * 7, 1, 0);
        assert_eq!(peak.most(start + PERIOD * 7, 0), 1);
    }

    #[test]
    fn a_peak_falls_without_further_calls_when_it_says_so() {
        let start = Instant::now();
        let peak = InFlightPeak::new(start);
        turn(&peak, start, 8, 0);
        turn(&peak, start + PERIOD, 4, 0);
        let mut now = start + PERIOD;
        let mut seen = Vec::new();
        while peak.most(now, 0) > 0 {
            let falls = peak.falls(now);
            seen.push((peak.most(now, 0), peak.most(falls - STEP, 0)));
            now = falls;
        }
        assert_eq!(seen, [(8, 8), (4, 4)]);
        assert_eq!(now, start + PERIOD * 3);
    }
}
