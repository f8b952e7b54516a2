//! Queues of calls of limited clients and exports.
//!
//! A call reserves its time when it is first in its queue, so a changed rate applies to all
//! waiters. Calls without data have a queue of their own: they wait for the rate of calls, but
//! never behind bulk data. Calls whose connection has ended leave their queue without using the
//! rate: their client repeats them, and would wait behind them.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use millrace_primitives::TurnQueue;
use millrace_reactor::Clock;

use super::rate::Limit;
use crate::call::Broken;

/// Waiting calls worth this much time at the limit's rate are enough to use it fully, while others
/// arrive.
const WINDOW: u64 = super::rate::BURST;

/// The queues of one limit, on one reactor.
pub struct Gate {
    limit: Arc<Limit>,
    bulk: TurnQueue,
    control: TurnQueue,
}

/// The time of rates: nanoseconds since an origin shared by all reactors.
#[derive(Clone, Copy, Debug)]
pub struct Origin(pub Instant);

impl Origin {
    /// Nanoseconds until `now`.
    pub fn nanoseconds(self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.0);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn instant(self, nanoseconds: u64) -> Instant {
        self.0 + Duration::from_nanos(nanoseconds)
    }
}

impl Gate {
    /// The gate of a limit, with empty queues.
    pub fn new(limit: Arc<Limit>) -> Self {
        Self {
            limit,
            bulk: TurnQueue::default(),
            control: TurnQueue::default(),
        }
    }

    /// Whether no call has to wait here.
    pub fn is_open(&self) -> bool {
        self.limit.is_unlimited() && self.is_empty()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.bulk.is_empty() && self.control.is_empty()
    }

    /// The number of waiting calls that use the whole rate, if all are like one that moves `bytes`.
    pub fn window(&self, bytes: u64) -> u32 {
        let calls = WINDOW / self.limit.cost(bytes).max(1);
        u32::try_from(calls).unwrap_or(u32::MAX).max(1)
    }

    /// Notifies waiters that the limit has changed, or that their calls may be over.
    pub fn changed(&self) {
        self.bulk.wake();
        self.control.wake();
    }

    /// Waits for the time of a call that moves `bytes`; counted in `waiting` while it waits.
    /// `is_over` is evaluated after [`Gate::changed`], and before the call uses the rate.
    ///
    /// # Errors
    /// The call is over: its result is not needed. It has used nothing of the limit.
    pub async fn pass(
        &self,
        clock: &Clock,
        origin: Origin,
        bytes: u64,
        waiting: &Cell<u32>,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Broken> {
        let line = if bytes > 0 { &self.bulk } else { &self.control };
        let now = || origin.nanoseconds(clock.now());
        let book = || self.limit.book(bytes, now());
        let mut booked = None;
        if line.is_empty() {
            let booking = book();
            if booking.begins() <= now() {
                booking.begin();
                return Ok(());
            }
            booked = Some(booking);
        }
        let _counted = Counted::new(waiting);
        let _at_limit = self.limit.wait();
        let turn = line.join();
        loop {
            turn.until(|_| Poll::Ready(())).await;
            if is_over() {
                return Err(Broken);
            }
            let booking = booked.take().unwrap_or_else(book);
            let mut comes = booking.begins() <= now();
            if !comes {
                let begins = origin.instant(booking.begins());
                let mut sleep = pin!(clock.sleep_until(begins));
                let slept = turn.until(|context| {
                    if !booking.holds() || is_over() {
                        return Poll::Ready(false);
                    }
                    Pin::as_mut(&mut sleep).poll(context).map(|()| true)
                });
                comes = slept.await;
            }
            if comes {
                booking.begin();
                return Ok(());
            }
        }
    }
}

/// Increments a counter until dropped.
pub struct Counted<'a>(&'a Cell<u32>);

impl<'a> Counted<'a> {
    /// Increments it.
    pub fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
