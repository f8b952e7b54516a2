//! What a provider has done, for metrics.

use crate::fabric::counters::{FabricCounters, absorb};
use millrace_primitives::Counter;

/// Numbers of one provider that only grow. The provider's reactor alone writes them; anyone may
/// read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct VerbsCounters {
    /// What every provider counts.
    pub fabric: FabricCounters,
    /// Lists of work requests handed to a device: doorbells of send queues.
    pub send_doorbells: Counter,
    /// The same of receive queues.
    pub receive_doorbells: Counter,
    /// Completions taken from completion queues.
    pub completions: Counter,
    /// Sends whose bytes went into the work request itself.
    pub inlined: Counter,
    /// Times that a queue pair waited for room in its device's send queue.
    pub send_queue_waits: Counter,
    /// Sleeps for which completion queues were armed.
    pub armed: Counter,
    /// Events of the connection manager.
    pub connection_events: Counter,
    /// Memory windows bound for exposures.
    pub windows_bound: Counter,
    /// Registrations made for single exposures or Reads, where there are no windows or the
    /// fabric asks for it.
    pub registrations: Counter,
    /// Queue pairs destroyed with work that never completed.
    pub undrained: Counter,
    /// Connections that ended because their device went.
    pub devices_lost: Counter,
}

impl VerbsCounters {
    /// Adds what a provider that is gone has done. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        absorb(&self.growing(), &gone.growing());
    }

    /// All numbers that only grow, in one order.
    fn growing(&self) -> Vec<&Counter> {
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
