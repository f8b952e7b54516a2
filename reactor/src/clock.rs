//! The time of a turn, and waiting for a later time.
//!
//! The owner of a reactor's loop sets the clock once per turn ([`Clock::turn`]); tasks read that
//! time and wait for later ones. No task queries the system's time, so simulations control it. What
//! bounds the length of a turn queries the time within it ([`Clock::moment`]).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::completion::{Completions, Wait};
use crate::timer::{TimerId, TimerWheel};

/// The clock of one core. Clones share it.
#[derive(Clone)]
pub struct Clock {
    inner: Rc<Inner>,
}

struct Inner {
    now: Cell<Instant>,
    /// The source of times within a turn.
    moments: Option<fn() -> Instant>,
    timers: RefCell<TimerWheel<u64>>,
    sleepers: Completions<()>,
    expired: RefCell<Vec<u64>>,
}

impl Clock {
    /// A clock with the time `now`. No time passes within its turns.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self::with(now, None)
    }

    /// A clock whose time within turns is that of a source, such as [`Instant::now`].
    #[must_use]
    pub fn reading(source: fn() -> Instant) -> Self {
        Self::with(source(), Some(source))
    }

    fn with(now: Instant, moments: Option<fn() -> Instant>) -> Self {
        let inner = Inner {
            now: Cell::new(now),
            moments,
            timers: RefCell::new(TimerWheel::new(now)),
            sleepers: Completions::new(),
            expired: RefCell::default(),
        };
        Self {
            inner: Rc::new(inner),
        }
    }

    /// The time stamp of this turn.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.now.get()
    }

    /// The present time. It is later than the time stamp by what the turn has taken.
    #[must_use]
    pub fn moment(&self) -> Instant {
        self.inner.moments.map_or_else(|| self.now(), |read| read())
    }

    /// Advances to the time stamp of the next turn and wakes expired waiters. Returns their number.
    pub fn turn(&self, now: Instant) -> usize {
        self.inner.now.set(now);
        if self.inner.timers.borrow().is_empty() {
            return 0;
        }
        // Wakers may use the timers, so these are not borrowed during the calls.
        let mut expired = self.inner.expired.take();
        self.inner.timers.borrow_mut().expired(now, &mut expired);
        let woken = expired.len();
        for token in expired.drain(..) {
            // A waiter that was dropped has cancelled its timer.
            let _ = self.inner.sleepers.complete(token, ());
        }
        self.inner.expired.replace(expired);
        woken
    }

    /// Waits for a turn at or after `deadline`. Never early; late by at most a tick of the [timer
    /// wheel](TimerWheel) and the length of the turn.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        let (token, wait) = self.inner.sleepers.register();
        let timer = {
            let mut timers = self.inner.timers.borrow_mut();
            timers.catch_up(self.now());
            timers.insert(deadline, token)
        };
        Sleep {
            inner: Rc::clone(&self.inner),
            timer,
            wait,
        }
    }

    /// When [`Clock::turn`] next has waiters to wake, or internal work.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.timers.borrow().next_deadline()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Waits for a time. Dropping it cancels its timer.
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    inner: Rc<Inner>,
    timer: TimerId,
    wait: Wait<()>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.wait).poll(context)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.inner.timers.borrow_mut().cancel(self.timer);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sleep").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::task::TaskSet;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn sleepers_wake_in_the_turn_of_their_time() {
        let start = Instant::now();
        let clock = Clock::new(start);
        let woken = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = TaskSet::new(4, None);
        for seconds in [3_u32, 1, 2] {
            let (clock, woken) = (clock.clone(), Rc::clone(&woken));
            let sleeper = async move {
                clock.sleep_until(clock.now() + SECOND * seconds).await;
                woken.borrow_mut().push((seconds, clock.now()));
            };
            assert!(tasks.spawn(sleeper).is_ok());
        }
        let mut ended = Vec::new();
        tasks.run(&mut ended);
        for seconds in 1..=3 {
            let early = start + SECOND * seconds - Duration::from_millis(1);
            assert_eq!(clock.turn(early), 0, "nobody is woken early");
            let now = start + SECOND * seconds + Duration::from_millis(1);
            assert!(clock.next_deadline().is_some_and(|next| next <= now));
            assert_eq!(clock.turn(now), 1);
            tasks.run(&mut ended);
            assert_eq!(woken.borrow().last(), Some(&(seconds, now)));
        }
        assert_eq!(clock.next_deadline(), None);
    }

    #[test]
    fn the_first_deadline_after_a_rest_lies_ahead() {
        let start = Instant::now();
        let clock = Clock::new(start);
        for milliseconds in 1..500 {
            let now = start + Duration::from_millis(milliseconds);
            assert_eq!(clock.turn(now), 0);
            let sleep = clock.sleep_until(now + Duration::from_micros(200));
            let next = clock.next_deadline();
            assert!(next.is_some_and(|next| next > now), "at {milliseconds} ms");
            drop(sleep);
        }
    }

    #[test]
    fn a_dropped_sleep_leaves_no_timer() {
        let start = Instant::now();
        let clock = Clock::new(start);
        drop(clock.sleep_until(start + SECOND));
        assert_eq!(clock.next_deadline(), None);
        assert_eq!(clock.turn(start + SECOND * 2), 0);
    }
}
