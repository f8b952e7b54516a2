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

/// Kinds of calls noted at most; one more has all of them timed at once.
const NOTED_MAX: usize = 16;

/// Calls that were answered in this turn and are not timed yet. `T` says whose they are.
#[derive(Debug)]
pub(crate) struct LatencyBatch<T> {
    calls: RefCell<ArrayVec<AnsweredCalls<T>, NOTED_MAX>>,
}

/// Calls that were answered one after the other and arrived in one turn.
#[derive(Debug)]
struct AnsweredCalls<T> {
    whose: T,
    arrived: Instant,
    count: u64,
}

impl<T> Default for LatencyBatch<T> {
    fn default() -> Self {
        Self {
            calls: RefCell::default(),
        }
    }
}

impl<T: Clone + PartialEq> LatencyBatch<T> {
    /// Notes an answered call. If there are too many, `observe` gets them all.
    #[inline]
    pub fn note(&self, whose: &T, arrived: Instant, observe: impl Fn(&T, Duration, u64)) {
        self.note_if_new(|other| other == whose, || whose.clone(), arrived, observe);
    }
}

impl<T> LatencyBatch<T> {
    /// The same if it costs something to make a `T`: `is_same` compares one, `whose` makes one.
    #[inline]
    pub fn note_if_new(
        &self,
        is_same: impl Fn(&T) -> bool,
        whose: impl FnOnce() -> T,
        arrived: Instant,
        observe: impl Fn(&T, Duration, u64),
    ) {
        let mut calls = self.calls.borrow_mut();
        if let Some(last) = calls.last_mut()
            && last.arrived == arrived
            && is_same(&last.whose)
        {
            last.count += 1;
            return;
        }
        if calls.is_full() {
            time(&mut calls, Instant::now(), observe);
        }
        calls.push(AnsweredCalls {
            whose: whose(),
            arrived,
            count: 1,
        });
    }

    /// Gives the calls that were noted to `observe`, with the time that each took and how many there
    /// are.
    pub fn settle(&self, end: &TurnEnd, observe: impl Fn(&T, Duration, u64)) {
        let mut calls = self.calls.borrow_mut();
        if !calls.is_empty() {
            time(&mut calls, **end, observe);
        }
    }
}

fn time<T>(
    calls: &mut ArrayVec<AnsweredCalls<T>, NOTED_MAX>,
    end: Instant,
    observe: impl Fn(&T, Duration, u64),
) {
    for calls in calls.drain(..) {
        let took = end.saturating_duration_since(calls.arrived);
        observe(&calls.whose, took, calls.count);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_call_is_timed_once_by_the_end_of_its_turn() {
        let (noted, timed) = (LatencyBatch::default(), Cell::new([0; 2]));
        let observe = |&whose: &usize, _, count| {
            let mut counts = timed.get();
            counts[whose] += count;
            timed.set(counts);
        };
        let arrived = Instant::now();
        for _ in 0..NOTED_MAX + 3 {
            noted.note(&0, arrived, observe);
            noted.note(&0, arrived, observe);
            noted.note(&1, arrived, observe);
        }
        let calls = NOTED_MAX as u64 + 3;
        assert_ne!(timed.get(), [0; 2], "too many to be kept");
        let end = TurnEnd::new(Instant::now);
        noted.settle(&end, observe);
        noted.settle(&end, observe);
        assert_eq!(timed.get(), [2 * calls, calls]);
    }

    #[test]
    fn calls_of_one_kind_that_arrived_apart_are_timed_apart() {
        let (noted, timed) = (LatencyBatch::default(), Cell::new(Duration::ZERO));
        let observe = |(): &(), took: Duration, count| {
            assert_eq!(count, 1);
            timed.set(timed.get() + took);
        };
        let end = TurnEnd::new(Instant::now);
        noted.note(&(), *end - Duration::from_millis(2), observe);
        noted.note(&(), *end - Duration::from_millis(3), observe);
        noted.settle(&end, observe);
        assert_eq!(timed.get(), Duration::from_millis(5));
    }

    #[test]
    fn a_turn_without_calls_reads_no_clock() {
        let end = TurnEnd::new(|| panic!("the clock was read"));
        LatencyBatch::<()>::default().settle(&end, |(), _, _| ());
    }
}
