//! What a provider has done, for metrics.

use std::sync::atomic::AtomicU64;

use crate::fabric::counters::{FabricCounters, absorb};

/// Numbers of one provider that only grow. The provider's reactor alone writes them; anyone may
/// read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct VerbsCounters {
    /// What every provider counts.
    pub fabric: FabricCounters,
    /// Lists of work requests handed to a device: doorbells of send queues.
    pub send_doorbells: AtomicU64,
    /// The same of receive queues.
    pub receive_doorbells: AtomicU64,
    /// Completions taken from completion queues.
    pub completions: AtomicU64,
    /// Sends whose bytes went into the work request itself.
    pub inlined: AtomicU64,
    /// Times that a queue pair waited for room in its device's send queue.
    pub send_queue_waits: AtomicU64,
    /// Sleeps for which completion queues were armed.
    pub armed: AtomicU64,
    /// Events of the connection manager.
    pub connection_events: AtomicU64,
    /// Memory windows bound for exposures.
    pub windows_bound: AtomicU64,
    /// Registrations made for single exposures or Reads, where there are no windows or the
    /// fabric asks for it.
    pub registrations: AtomicU64,
    /// Queue pairs destroyed with work that never completed.
    pub undrained: AtomicU64,
    /// Connections that ended because their device went.
    pub devices_lost: AtomicU64,
}

impl VerbsCounters {
    /// Adds what a provider that is gone has done. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        absorb(&self.growing(), &gone.growing());
    }

    /// All numbers that only grow, in one order.
    fn growing(&self) -> Vec<&AtomicU64> {
        // Taken apart whole, so that a new counter is not forgotten here.
        let Self {
            fabric,
            send_doorbells,
            receive_doorbells,
            completions,
            inlined,
            send_queue_waits,
            armed,
            connection_events,
            windows_bound,
            registrations,
            undrained,
            devices_lost,
        } = self;
        let mut all = vec![
            send_doorbells,
            receive_doorbells,
            completions,
            inlined,
            send_queue_waits,
            armed,
            connection_events,
            windows_bound,
            registrations,
            undrained,
            devices_lost,
        ];
        all.extend(fabric.growing());
        all
    }
}
