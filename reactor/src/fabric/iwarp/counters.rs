//! Counters of a provider, for metrics.

use millrace_iwarp::Tally;
use millrace_primitives::Counter;

use crate::fabric::counters::{FabricCounters, WorkCounters, absorb};

/// Counters of one provider. Written by the provider's reactor only, read by any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IwarpCounters {
    /// Counters common to all providers.
    pub fabric: FabricCounters,
    /// FPDUs received with correct check values.
    pub frames_in: Counter,
    /// FPDUs sent.
    pub frames_out: Counter,
    /// Bytes received, including headers.
    pub bytes_in: Counter,
    /// Bytes sent, including headers.
    pub bytes_out: Counter,
    /// Received bytes that the kernel placed directly in registered memory.
    pub bytes_direct: Counter,
    /// Receiving system calls.
    pub receive_calls: Counter,
    /// Sending system calls.
    pub send_calls: Counter,
    /// System calls that polled sockets for readiness.
    pub ready_calls: Counter,
    /// FPDUs with a wrong check value.
    pub crc_errors: Counter,
    /// Terminate messages sent.
    pub terminates_sent: Counter,
    /// Terminate messages received.
    pub terminates_received: Counter,
    /// Times that a listener paused, as descriptors or memory were short.
    pub accept_pauses: Counter,
    /// Ready-to-receive messages that were not of the negotiated kind.
    pub indications_unexpected: Counter,
}

/// Adds the work of a connection since it was last counted.
pub(super) fn add_tally(counters: &WorkCounters, now: Tally, before: Tally) {
    for (counter, now, before) in [
        (&counters.posted, now.posted, before.posted),
        (&counters.completed, now.completed, before.completed),
        (&counters.bytes, now.bytes, before.bytes),
    ] {
        if now != before {
            counter.add(now - before);
        }
    }
}

impl IwarpCounters {
    /// Adds the counts of a removed provider. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        absorb(&self.growing(), &gone.growing());
    }

    /// All counters, in a fixed order.
    fn growing(&self) -> Vec<&Counter> {
        // Destructured completely, so that a new counter is not forgotten here.
        let Self {
            fabric,
            frames_in,
            frames_out,
            bytes_in,
            bytes_out,
            bytes_direct,
            receive_calls,
            send_calls,
            ready_calls,
            crc_errors,
            terminates_sent,
            terminates_received,
            accept_pauses,
            indications_unexpected,
        } = self;
        let mut all = vec![
            frames_in,
            frames_out,
            bytes_in,
            bytes_out,
            bytes_direct,
            receive_calls,
            send_calls,
            ready_calls,
            crc_errors,
            terminates_sent,
            terminates_received,
            accept_pauses,
            indications_unexpected,
        ];
        all.extend(fabric.growing());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_grows_is_lost_with_a_provider() {
        let (gone, kept) = (IwarpCounters::default(), IwarpCounters::default());
        for (counter, amount) in gone.growing().into_iter().zip(1..) {
            counter.add(amount);
        }
        gone.fabric.connections.set(9);
        for round in 1..3 {
            kept.absorb(&gone);
            for (counter, amount) in kept.growing().into_iter().zip(1..) {
                assert_eq!(counter.get(), round * amount);
            }
        }
        assert_eq!(kept.fabric.connections.get(), 0);
    }
}
