//! Counters and gauges with one writer.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows. One thread writes, any thread reads.
///
/// Writing is a load and a store, without a locked instruction: two writers would lose counts
/// (never tear them).
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`; for the one writer.
    pub fn add(&self, count: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(count),
            Ordering::Relaxed,
        );
    }

    /// Adds one; for the one writer.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down. One thread writes, any thread reads.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Sets the value; for the one writer.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `count`; for the one writer.
    pub fn add(&self, count: u64) {
        self.set(self.get().wrapping_add(count));
    }

    /// Takes `count` away, down to zero; for the one writer.
    pub fn sub(&self, count: u64) {
        self.set(self.get().saturating_sub(count));
    }

    /// Raises the value to `value` if it is less; for the one writer of a high-water mark.
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One core's slots, on cache lines (and prefetch pairs of lines) of their own, so that a core
/// never waits for another's writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreBlock<T>(pub T);

impl<T> Deref for CoreBlock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn slots_count_for_readers_on_other_threads() {
        #[derive(Default)]
        struct Slots {
            requests: Counter,
            in_flight: Gauge,
            most: Gauge,
        }
        let block = Arc::new(CoreBlock::<Slots>::default());
        assert_eq!(align_of_val(&*block), 128);
        let writer = Arc::clone(&block);
        std::thread::spawn(move || {
            for step in 0..1000 {
                writer.requests.increment();
                writer.in_flight.add(2);
                writer.in_flight.sub(1);
                writer.most.raise(step % 77);
            }
            writer.in_flight.sub(5000);
            writer.requests.add(5);
        })
        .join()
        .unwrap();
        assert_eq!(block.requests.get(), 1005);
        assert_eq!((block.in_flight.get(), block.most.get()), (0, 76));
    }
}
