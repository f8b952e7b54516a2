//! Counters of a device, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::sys::AsyncKind;

/// Names of the kinds of asynchronous events, in the order of [`DeviceCounters::events`].
pub const DEVICE_EVENTS: [&str; 8] = [
    "device_fatal",
    "port_active",
    "port_error",
    "addresses_changed",
    "queue_pair_error",
    "completion_queue_error",
    "shared_receive_queue",
    "other",
];

/// Counters of the device of one name, over all its removals and returns.
#[derive(Debug, Default)]
pub struct DeviceCounters {
    name: String,
    /// Asynchronous events, by [`DEVICE_EVENTS`].
    pub events: [AtomicU64; DEVICE_EVENTS.len()],
    /// Times that it was opened.
    pub opened: AtomicU64,
    /// Times that it was unplugged.
    pub unplugged: AtomicU64,
    /// One while it is in use, else zero.
    pub in_use: AtomicU64,
    /// Bytes of memory that are registered with it now.
    pub registered_bytes: AtomicU64,
}

impl DeviceCounters {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts an event. Returns the count of its kind.
    pub(super) fn count_event(&self, kind: AsyncKind) -> u64 {
        self.events[index(kind)].fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn count_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.in_use.store(1, Ordering::Relaxed);
    }

    pub(super) fn count_unplugged(&self) {
        self.unplugged.fetch_add(1, Ordering::Relaxed);
        self.set_unused();
    }

    pub(super) fn set_unused(&self) {
        self.in_use.store(0, Ordering::Relaxed);
    }

    pub(super) fn set_registered(&self, bytes: u64) {
        self.registered_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The index of a kind in [`DEVICE_EVENTS`].
pub(super) fn index(kind: AsyncKind) -> usize {
    match kind {
        AsyncKind::DeviceFatal => 0,
        AsyncKind::PortActive => 1,
        AsyncKind::PortError => 2,
        AsyncKind::AddressesChanged => 3,
        AsyncKind::QueuePairError => 4,
        AsyncKind::CompletionQueueError => 5,
        AsyncKind::SharedReceiveQueue => 6,
        AsyncKind::Other => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_under_their_names() {
        let counters = DeviceCounters::new("mlx5_0");
        for (kind, name) in [
            (AsyncKind::DeviceFatal, "device_fatal"),
            (AsyncKind::QueuePairError, "queue_pair_error"),
            (AsyncKind::Other, "other"),
        ] {
            assert_eq!(DEVICE_EVENTS[index(kind)], name);
            assert_eq!(counters.count_event(kind), 1);
            assert_eq!(counters.count_event(kind), 2);
        }
        let all = counters.events.iter().map(|e| e.load(Ordering::Relaxed));
        assert_eq!(all.sum::<u64>(), 6);
    }
}
