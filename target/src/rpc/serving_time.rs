//! How long calls are served in one turn.

use std::time::{Duration, Instant};

use millrace_reactor::Clock;

use crate::flow::Flow;

/// How long received calls are served in a turn, if there are several clients. Calls that go on have
/// as long again, and so have those that waited to be begun. The others wait for the next turn.
/// Otherwise calls that take long, such as look-ups by users in folders, would keep those of other
/// clients waiting.
const SERVING_MOST: Duration = Duration::from_micros(100);

/// How long the calls of a client alone go on in a turn, and as long again those that waited: the first
/// call of another client waits for the rest of a turn.
const SERVING_MOST_ALONE: Duration = Duration::from_millis(1);

/// Received calls of a turn whose time is not taken: most turns have few.
const UNTIMED: u32 = 1;

/// The most received calls between two readings of the time: some take a hundred times as long as
/// others.
const LOOK_AFTER_MOST: u32 = 8;

/// The time that serving calls has taken in one part of a turn.
#[derive(Debug)]
pub(super) struct ServingTime {
    /// How long the calls of a client alone may take; None: as long as they do.
    most_alone: Option<Duration>,
    calls: u32,
    /// When the calls without time had been served.
    since: Option<Instant>,
    /// The calls after which the time is read again.
    look_at: u32,
    /// The most calls between two readings.
    look_after_most: u32,
    has_passed: bool,
}

impl ServingTime {
    /// For received calls.
    pub fn received() -> Self {
        Self {
            most_alone: None,
            calls: 0,
            since: None,
            look_at: UNTIMED,
            look_after_most: LOOK_AFTER_MOST,
            has_passed: false,
        }
    }

    /// For calls that go on or have waited: all of their time counts, and it is read for each.
    pub fn waiting(flow: &Flow) -> Self {
        Self {
            most_alone: Some(SERVING_MOST_ALONE),
            calls: UNTIMED,
            since: Some(flow.clock().moment()),
            look_at: UNTIMED + 1,
            look_after_most: 1,
            has_passed: false,
        }
    }

    /// Counts one more call. Returns whether it has to wait for the next turn.
    pub fn pass(&mut self, flow: &Flow) -> bool {
        let most = match flow.is_shared() {
            true => Some(SERVING_MOST),
            false => self.most_alone,
        };
        most.is_some_and(|most| self.count(flow.clock(), most))
    }

    /// Does something else, whose time does not count.
    pub fn aside<T>(&mut self, clock: &Clock, other: impl FnOnce() -> T) -> T {
        let Some(since) = &mut self.since else {
            return other();
        };
        let before = clock.moment();
        let outcome = other();
        *since += clock.moment().saturating_duration_since(before);
        outcome
    }

    fn count(&mut self, clock: &Clock, most: Duration) -> bool {
        if !self.has_passed && self.calls >= self.look_at {
            self.look(clock.moment(), most);
        }
        self.calls += 1;
        self.has_passed
    }

    fn look(&mut self, now: Instant, most: Duration) {
        let since = *self.since.get_or_insert(now);
        let took = now.saturating_duration_since(since);
        let rest = most.saturating_sub(took);
        self.has_passed = rest.is_zero();
        // Half of the calls that the rest is enough for, if they are like those before.
        let [took, rest] =
            [took, rest].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let timed = u64::from(self.calls - UNTIMED);
        let more = rest.saturating_mul(timed) / took.max(1) / 2;
        self.look_at = self.calls + more.clamp(1, self.look_after_most.into()) as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static READINGS: Cell<u32> = const { Cell::new(0) };
        static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    fn read() -> Instant {
        READINGS.set(READINGS.get() + 1);
        NOW.get().unwrap()
    }

    /// How many of a thousand calls are served before others have to wait, and how often the time is
    /// read for that.
    fn served(each: Duration) -> (u32, u32) {
        NOW.set(Some(Instant::now()));
        let clock = Clock::reading(read);
        READINGS.set(0);
        let mut time = ServingTime::received();
        let mut served = 0;
        while served < 1000 && !time.count(&clock, SERVING_MOST) {
            served += 1;
            NOW.set(NOW.get().map(|now| now + each));
        }
        (served, READINGS.get())
    }

    #[test]
    fn calls_that_take_long_wait_soon_and_short_ones_cost_few_readings() {
        let micros = Duration::from_micros;
        let (calls, _) = served(micros(15));
        assert!((7..=10).contains(&calls), "{calls}");
        let (calls, _) = served(micros(30));
        assert!((4..=6).contains(&calls), "{calls}");
        let (calls, _) = served(micros(1000));
        assert_eq!(calls, UNTIMED + 1);
        let (calls, readings) = served(Duration::from_nanos(500));
        assert!((200..=220).contains(&calls), "{calls}");
        assert!(readings < 40, "{readings}");
        let (calls, readings) = served(Duration::ZERO);
        assert_eq!(calls, 1000);
        assert!(readings < 1000 / 8 + 4, "{readings}");
    }

    #[test]
    fn the_time_of_other_work_does_not_count() {
        let pass = |time| NOW.set(NOW.get().map(|now: Instant| now + time));
        NOW.set(Some(Instant::now()));
        let clock = Clock::reading(read);
        let mut time = ServingTime::received();
        for _ in 0..100 {
            assert!(!time.count(&clock, SERVING_MOST));
            pass(Duration::from_micros(1));
            time.aside(&clock, || pass(SERVING_MOST));
        }
        for _ in 0..100 {
            time.count(&clock, SERVING_MOST);
            pass(Duration::from_micros(2));
        }
        assert!(time.has_passed);
    }

    #[test]
    fn no_time_passes_in_turns_of_other_clocks() {
        let clock = Clock::new(Instant::now());
        let mut time = ServingTime::received();
        assert!((0..10_000).all(|_| !time.count(&clock, SERVING_MOST)));
    }
}
