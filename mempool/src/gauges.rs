//! What other threads may read of a pool: single-writer counters per size class.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Class;

/// Gauges of one size class. Only the pool's own thread writes; everyone may read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ClassGauges {
    capacity: AtomicU64,
    in_use: AtomicU64,
    high_water: AtomicU64,
    waiters: AtomicU64,
    waits_total: AtomicU64,
}

impl ClassGauges {
    /// Buffers that exist, lent or free. Grows when the class takes memory that no other needs, and
    /// shrinks when that is free again.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// Buffers lent out, whole or as slices.
    pub fn in_use(&self) -> u64 {
        self.in_use.load(Relaxed)
    }

    /// The most buffers that were ever lent out at once.
    pub fn high_water(&self) -> u64 {
        self.high_water.load(Relaxed)
    }

    /// Requests that wait now.
    pub fn waiters(&self) -> u64 {
        self.waiters.load(Relaxed)
    }

    /// Requests that ever had to wait.
    pub fn waits_total(&self) -> u64 {
        self.waits_total.load(Relaxed)
    }

    pub(crate) fn add_capacity(&self, buffers: u64) {
        add(&self.capacity, buffers);
    }

    pub(crate) fn take_capacity(&self, buffers: u64) {
        let capacity = self.capacity.load(Relaxed);
        self.capacity.store(capacity - buffers, Relaxed);
    }

    pub(crate) fn lend(&self) {
        let in_use = add(&self.in_use, 1);
        if in_use > self.high_water.load(Relaxed) {
            self.high_water.store(in_use, Relaxed);
        }
    }

    pub(crate) fn give_back(&self) {
        subtract_one(&self.in_use);
    }

    pub(crate) fn begin_wait(&self) {
        add(&self.waiters, 1);
        add(&self.waits_total, 1);
    }

    pub(crate) fn end_wait(&self) {
        subtract_one(&self.waiters);
    }
}

/// Gauges of one pool.
#[derive(Debug, Default)]
pub struct PoolGauges {
    classes: [ClassGauges; 3],
    bytes: AtomicU64,
}

impl PoolGauges {
    /// The gauges of one class.
    pub fn class(&self, class: Class) -> &ClassGauges {
        &self.classes[class.index()]
    }

    /// Bytes of the memory that buffers are cut from.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        add(&self.bytes, bytes as u64);
    }

    /// Buffers lent out in all classes: 0 for a pool at rest.
    pub fn in_use(&self) -> u64 {
        self.classes.iter().map(ClassGauges::in_use).sum()
    }
}

// One writer, so a plain load and store do; a locked read-modify-write costs four times as much.
fn add(gauge: &AtomicU64, amount: u64) -> u64 {
    let value = gauge.load(Relaxed) + amount;
    gauge.store(value, Relaxed);
    value
}

fn subtract_one(gauge: &AtomicU64) {
    gauge.store(gauge.load(Relaxed) - 1, Relaxed);
}
