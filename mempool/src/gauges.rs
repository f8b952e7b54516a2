//! Gauges of a pool for other threads: single-writer counters by size class.

use millrace_primitives::{Counter, Gauge};

use crate::Class;

/// Gauges of one size class. Only the pool's own thread writes; everyone may read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ClassGauges {
    capacity: Gauge,
    in_use: Gauge,
    high_water: Gauge,
    waiters: Gauge,
    waits_total: Counter,
}

impl ClassGauges {
    /// Buffers that exist, lent or free. Grows when the class takes memory that is free for every
    /// class, and shrinks when it returns that.
    pub fn capacity(&self) -> u64 {
        self.capacity.get()
    }

    /// Buffers lent out, whole or as slices.
    pub fn in_use(&self) -> u64 {
        self.in_use.get()
    }

    /// The most buffers that were ever lent out at once.
    pub fn high_water(&self) -> u64 {
        self.high_water.get()
    }

    /// Requests that are waiting.
    pub fn waiters(&self) -> u64 {
        self.waiters.get()
    }

    /// Requests that have had to wait, since the start.
    pub fn waits_total(&self) -> u64 {
        self.waits_total.get()
    }

    pub(crate) fn add_capacity(&self, buffers: u64) {
        self.capacity.add(buffers);
    }

    pub(crate) fn take_capacity(&self, buffers: u64) {
        self.capacity.sub(buffers);
    }

    pub(crate) fn lend(&self) {
        let in_use = self.in_use.get() + 1;
        self.in_use.set(in_use);
        self.high_water.raise(in_use);
    }

    pub(crate) fn give_back(&self) {
        self.in_use.sub(1);
    }

    pub(crate) fn begin_wait(&self) {
        self.waiters.add(1);
        self.waits_total.add(1);
    }

    pub(crate) fn end_wait(&self) {
        self.waiters.sub(1);
    }
}

/// Gauges of one pool.
#[derive(Debug, Default)]
pub struct PoolGauges {
    classes: [ClassGauges; 3],
    bytes: Gauge,
}

impl PoolGauges {
    /// The gauges of one class.
    pub fn class(&self, class: Class) -> &ClassGauges {
        &self.classes[class.index()]
    }

    /// Bytes of the memory that buffers are cut from.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.add(bytes as u64);
    }

    /// Buffers lent out in all classes: 0 for a pool at rest.
    pub fn in_use(&self) -> u64 {
        self.classes.iter().map(ClassGauges::in_use).sum()
    }
}
