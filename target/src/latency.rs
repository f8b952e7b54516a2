//! How long calls take, by one reading of the clock for all calls of a turn.
//!
//! Reading the clock takes a good part of what encoding a small reply takes. Calls are noted as
//! they are answered and timed together at the end of the turn, when their replies have been handed
//! to the fabric; so the time of a call is at most the rest of one turn longer than it was.

use std::cell::{LazyCell, RefCell};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

/// The end of a turn: the clock is read by who asks first.
pub type TurnEnd = LazyCell<Instant>;

/// Calls noted at most; one more has all of them timed at once.
const NOTED_MAX: usize = 64;

/// Calls that were answered in this turn and are not timed yet. `T` says whose they are.
#[derive(Debug)]
pub(crate) struct LatencyBatch<T> {
    calls: RefCell<ArrayVec<(T, Instant), NOTED_MAX>>,
}

impl<T> Default for LatencyBatch<T> {
    fn default() -> Self {
        Self {
            calls: RefCell::default(),
        }
    }
}

impl<T> LatencyBatch<T> {
    /// Notes an answered call. If there are too many, `observe` gets them all.
    pub fn note(&self, whose: T, arrived: Instant, observe: impl Fn(&T, Duration)) {
        let mut calls = self.calls.borrow_mut();
        if calls.is_full() {
            time(&mut calls, Instant::now(), observe);
        }
        calls.push((whose, arrived));
    }

    /// Gives each call that was noted to `observe`, with the time it took.
    pub fn settle(&self, end: &TurnEnd, observe: impl Fn(&T, Duration)) {
        let mut calls = self.calls.borrow_mut();
        if !calls.is_empty() {
            time(&mut calls, **end, observe);
        }
    }
}

fn time<T>(
    calls: &mut ArrayVec<(T, Instant), NOTED_MAX>,
    end: Instant,
    observe: impl Fn(&T, Duration),
) {
    // Calls that arrived in the same turn took equally long.
    let (mut latest, mut took) = (end, Duration::ZERO);
    for (whose, arrived) in calls.drain(..) {
        if arrived != latest {
            latest = arrived;
            took = end.saturating_duration_since(arrived);
        }
        observe(&whose, took);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_call_is_timed_once_by_the_end_of_its_turn() {
        let (noted, timed) = (LatencyBatch::default(), Cell::new([0; 2]));
        let observe = |&whose: &usize, _| {
            let mut counts = timed.get();
            counts[whose] += 1;
            timed.set(counts);
        };
        let arrived = Instant::now();
        for _ in 0..NOTED_MAX + 3 {
            noted.note(0, arrived, observe);
        }
        noted.note(1, arrived, observe);
        let end = TurnEnd::new(Instant::now);
        noted.settle(&end, observe);
        noted.settle(&end, observe);
        assert_eq!(timed.get(), [NOTED_MAX + 3, 1]);
    }

    #[test]
    fn a_turn_without_calls_reads_no_clock() {
        let end = TurnEnd::new(|| panic!("the clock was read"));
        LatencyBatch::<()>::default().settle(&end, |(), _| ());
    }
}
