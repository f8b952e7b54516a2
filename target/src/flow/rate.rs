//! Rates: limits of calls or bytes per second.
//!
//! A [`Rate`] is the generic cell rate algorithm on one atomic: the time at which the next call may
//! begin. Calls reserve their time in order of arrival, on any core; after a pause, [`BURST`] worth
//! of the rate is available at once.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The burst after a pause, in nanoseconds of the rate: so short that measured intervals do not
/// exceed the rate, and much longer than a turn of a reactor, so that late wake-ups lose nothing.
pub const BURST: u64 = 10_000_000;

const SECOND: u128 = 1_000_000_000;

/// A limit per second, of calls or of bytes. Any thread may change and use it, without locks.
#[derive(Debug, Default)]
pub struct Rate {
    /// Zero: no limit.
    per_second: AtomicU64,
    /// When the next call may begin, in nanoseconds.
    next: AtomicU64,
}

impl Rate {
    /// Changes the rate; zero is no limit. Reservations at the old rate beyond `now` are dropped.
    pub fn set(&self, per_second: u64, now: u64) {
        self.per_second.store(per_second, Relaxed);
        self.next.fetch_min(now, Relaxed);
    }

    /// The rate per second; zero is no limit.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        self.per_second.load(Relaxed)
    }

    /// The time of `amount` at this rate, in nanoseconds.
    #[must_use]
    pub fn cost(&self, amount: u64) -> u64 {
        match self.per_second() {
            0 => 0,
            rate => {
                u64::try_from(u128::from(amount) * SECOND / u128::from(rate)).unwrap_or(u64::MAX)
            }
        }
    }

    /// Reserves `amount`, and returns when it may begin: `now` or later.
    #[must_use]
    pub fn reserve(&self, amount: u64, now: u64) -> u64 {
        let cost = self.cost(amount);
        if cost == 0 {
            return now;
        }
        let oldest = now.saturating_sub(BURST);
        let reserve = |next: u64| Some(next.max(oldest).saturating_add(cost));
        // The closure always returns a value.
        let next = self.next.fetch_update(Relaxed, Relaxed, reserve);
        next.unwrap_or_default().max(now)
    }

    /// Returns an unused reservation for `amount`.
    fn give_back(&self, amount: u64) {
        let cost = self.cost(amount);
        let less = |next: u64| Some(next.saturating_sub(cost));
        // The closure always returns a value.
        let _ = self.next.fetch_update(Relaxed, Relaxed, less);
    }
}

/// A limit in calls and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Calls per second; none is no limit.
    pub iops: Option<u64>,
    /// Bytes per second; none is no limit.
    pub bandwidth: Option<u64>,
}

impl Rates {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.iops.is_none() && self.bandwidth.is_none()
    }
}

/// The limit of a client or an export, over all reactors.
#[derive(Debug, Default)]
pub struct Limit {
    operations: Rate,
    bytes: Rate,
    /// Changes with the rates.
    version: AtomicU32,
    /// Calls that wait, on all reactors.
    waiting: AtomicU32,
}

/// A call that waits at a limit, until dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Limit);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Limit {
    /// Changes the rates at once.
    pub fn set(&self, rates: Rates, now: u64) {
        let before = (self.operations.per_second(), self.bytes.per_second());
        let after = (rates.iops.unwrap_or(0), rates.bandwidth.unwrap_or(0));
        if before != after {
            self.operations.set(after.0, now);
            self.bytes.set(after.1, now);
            // A reader of this version sees the rates of it.
            self.version.fetch_add(1, Release);
        }
    }

    /// Whether there is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.operations.per_second() == 0 && self.bytes.per_second() == 0
    }

    /// Changes with the rates.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version.load(Acquire)
    }

    /// Counts a call that has to wait.
    pub fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(self)
    }

    /// Calls that wait, on all reactors.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Reserves a call that moves `bytes`, and returns when it may begin, in nanoseconds.
    #[must_use]
    pub fn reserve(&self, bytes: u64, now: u64) -> u64 {
        let operation = self.operations.reserve(1, now);
        operation.max(self.bytes.reserve(bytes, now))
    }

    /// Reserves a call that moves `bytes`, for a caller that may cancel while it waits.
    pub fn book(&self, bytes: u64, now: u64) -> Booking<'_> {
        // Read before the rates, so that a change in between is detected.
        let version = self.version();
        Booking {
            limit: self,
            bytes,
            version,
            begins: self.reserve(bytes, now),
            used: false,
        }
    }

    /// The time of such a call at the rates, in nanoseconds.
    #[must_use]
    pub fn cost(&self, bytes: u64) -> u64 {
        self.operations.cost(1).max(self.bytes.cost(bytes))
    }
}

/// A reservation of a call. Dropped without [`Booking::begin`], it is returned for later ones.
#[derive(Debug)]
#[must_use = "what is not begun is given back"]
pub struct Booking<'a> {
    limit: &'a Limit,
    bytes: u64,
    version: u32,
    begins: u64,
    used: bool,
}

impl Booking<'_> {
    /// When the call may begin, in nanoseconds.
    #[must_use]
    pub fn begins(&self) -> u64 {
        self.begins
    }

    /// Whether the rates are those of the reservation: otherwise it is not valid.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.limit.version() == self.version
    }

    /// Starts the call.
    pub fn begin(mut self) {
        self.used = true;
    }
}

impl Drop for Booking<'_> {
    fn drop(&mut self) {
        if !self.used && self.holds() {
            self.limit.operations.give_back(1);
            self.limit.bytes.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_rate_is_no_limit() {
        let limit = Limit::default();
        assert!(limit.is_unlimited());
        for now in [0, 5, 1 << 40] {
            assert_eq!(limit.reserve(u64::MAX, now), now);
        }
        assert_eq!(limit.cost(1 << 20), 0);
    }

    #[test]
    fn a_change_is_in_force_with_the_next_call() {
        let limit = Limit::default();
        let slow = Rates {
            iops: Some(1),
            bandwidth: None,
        };
        limit.set(slow, 0);
        let version = limit.version();
        limit.set(slow, 0);
        assert_eq!(limit.version(), version, "nothing has changed");
        assert_eq!(limit.reserve(0, 0), 0);
        assert_eq!(limit.reserve(0, 0), 1_000_000_000);
        let fast = Rates {
            iops: Some(1000),
            bandwidth: Some(1 << 30),
        };
        limit.set(fast, 7);
        assert_ne!(limit.version(), version);
        assert_eq!(
            limit.reserve(0, 7),
            7,
            "the debt at the old rate is forgiven"
        );
        assert_eq!(limit.reserve(0, 7), 1_000_007);
        limit.set(Rates::default(), 7);
        assert!(limit.is_unlimited());
        assert_eq!(limit.reserve(1 << 20, 8), 8);
    }

    proptest! {
        /// In any interval, no more begins than the rate, a burst and one call.
        #[test]
        fn the_rate_is_kept_over_every_interval(
            per_second in 1_u64..10_000_000_000,
            calls in proptest::collection::vec((0_u64..50_000_000, 0_u64..2_000_000), 1..200),
        ) {
            let rate = Rate::default();
            rate.set(per_second, 0);
            let (mut now, mut begun) = (0, Vec::new());
            for (pause, amount) in calls {
                now += pause;
                let begins = rate.reserve(amount, now);
                prop_assert!(begins >= now);
                begun.push((begins, amount));
            }
            for (first, &(from, _)) in begun.iter().enumerate() {
                prop_assert!(first == 0 || begun[first - 1].0 <= from || begun[first].1 == 0);
                let mut cost = 0;
                for &(at, amount) in &begun[first..] {
                    // All before this one have been paid for by the time it begins.
                    prop_assert!(
                        at.max(from) + BURST + 1 >= from + cost || amount == 0,
                        "{cost} ns of the rate between {from} and {at}"
                    );
                    cost += rate.cost(amount);
                }
            }
        }

        /// A caller with calls always pending gets the whole rate.
        #[test]
        fn nothing_of_the_rate_is_lost_by_waking_up_late(
            per_second in 100_u64..1_000_000, late in 0_u64..5_000_000,
        ) {
            let rate = Rate::default();
            rate.set(per_second, 0);
            let (mut now, mut calls) = (0, 0_u64);
            while now < 1_000_000_000 {
                let begins = rate.reserve(1, now);
                if begins > now {
                    now = begins + late;
                }
                calls += 1;
            }
            let extra = per_second * (BURST + late) / 1_000_000_000 + 2;
            prop_assert!(calls + extra >= per_second, "{calls} of {per_second}");
            prop_assert!(calls <= per_second + extra, "{calls} of {per_second}");
        }

        #[test]
        fn calls_on_several_cores_share_one_rate(threads in 2_usize..4) {
            let rate = Rate::default();
            rate.set(1_000_000, 0);
            let each = 500;
            let mut all: Vec<u64> = std::thread::scope(|scope| {
                let run = || (0..each).map(|_| rate.reserve(1, BURST)).collect::<Vec<_>>();
                let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            all.sort_unstable();
            let expected: Vec<u64> = (0..threads as u64 * each)
                .map(|call| (call * 1000).max(BURST))
                .collect();
            prop_assert_eq!(all, expected);
        }
    }
}
