//! Counters of a provider, for metrics.

use crate::fabric::counters::{FabricCounters, absorb};
use millrace_primitives::Counter;

/// Counters of one provider. Written by the provider's reactor only, read by any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct VerbsCounters {
    /// Counters common to all providers.
    pub fabric: FabricCounters,
    /// Lists of work requests passed to a device: doorbells of send queues.
    pub send_doorbells: Counter,
    /// The same of receive queues.
    pub receive_doorbells: Counter,
    /// Completions taken from completion queues.
    pub completions: Counter,
    /// Sends with their bytes in the work request.
    pub inlined: Counter,
    /// Times that a queue pair waited for space in its device's send queue.
    pub send_queue_waits: Counter,
    /// Sleeps for which completion queues were armed.
    pub armed: Counter,
    /// Events of the connection manager.
    pub connection_events: Counter,
    /// Memory windows bound for exposures.
    pub windows_bound: Counter,
    /// Registrations made for single exposures or Reads, without windows or if the fabric requires
    /// it.
    pub registrations: Counter,
    /// Queue pairs destroyed with work that never completed.
    pub undrained: Counter,
    /// Connections that ended because their device was removed.
    pub devices_lost: Counter,
}

impl VerbsCounters {
    /// Adds the counts of a removed provider. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        absorb(&self.growing(), &gone.growing());
    }

    /// All counters, in a fixed order.
    fn growing(&self) -> Vec<&Counter> {
        // Destructured completely, so that a new counter is not forgotten here.
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
