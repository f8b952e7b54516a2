//! What a provider has done, for metrics.

use std::sync::atomic::AtomicU64;

use millrace_iwarp::Tally;

use crate::fabric::counters::{FabricCounters, WorkCounters, absorb};
pub(super) use crate::fabric::counters::{add, take_one};

/// Numbers of one provider that only grow. The provider's reactor alone writes them; anyone may
/// read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IwarpCounters {
    /// What every provider counts.
    pub fabric: FabricCounters,
    /// FPDUs received and found good.
    pub frames_in: AtomicU64,
    /// FPDUs sent.
    pub frames_out: AtomicU64,
    /// Bytes received, headers and all.
    pub bytes_in: AtomicU64,
    /// Bytes sent, headers and all.
    pub bytes_out: AtomicU64,
    /// Received bytes that the kernel put straight into registered memory.
    pub bytes_direct: AtomicU64,
    /// Receiving system calls.
    pub receive_calls: AtomicU64,
    /// Sending system calls.
    pub send_calls: AtomicU64,
    /// System calls that asked which sockets are ready.
    pub ready_calls: AtomicU64,
    /// FPDUs with a wrong check value.
    pub crc_errors: AtomicU64,
    /// Terminate messages sent.
    pub terminates_sent: AtomicU64,
    /// Terminate messages received.
    pub terminates_received: AtomicU64,
    /// Times that a listener paused, as descriptors or memory were short.
    pub accept_pauses: AtomicU64,
    /// First messages that proved a peer ready, but were not of an agreed kind.
    pub indications_unexpected: AtomicU64,
}

/// Takes in what a connection has done since it was counted last.
pub(super) fn add_tally(counters: &WorkCounters, now: Tally, before: Tally) {
    for (counter, now, before) in [
        (&counters.posted, now.posted, before.posted),
        (&counters.completed, now.completed, before.completed),
        (&counters.bytes, now.bytes, before.bytes),
    ] {
        if now != before {
            add(counter, now - before);
        }
    }
}

impl IwarpCounters {
    /// Adds what a provider that is gone has done. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        absorb(&self.growing(), &gone.growing());
    }

    /// All numbers that only grow, in one order.
    fn growing(&self) -> Vec<&AtomicU64> {
        // Taken apart whole, so that a new counter is not forgotten here.
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
    use std::sync::atomic::Ordering;

    #[test]
    fn nothing_that_grows_is_lost_with_a_provider() {
        let (gone, kept) = (IwarpCounters::default(), IwarpCounters::default());
        for (counter, amount) in gone.growing().into_iter().zip(1..) {
            counter.store(amount, Ordering::Relaxed);
        }
        gone.fabric.connections.store(9, Ordering::Relaxed);
        for round in 1..3 {
            kept.absorb(&gone);
            for (counter, amount) in kept.growing().into_iter().zip(1..) {
                assert_eq!(counter.load(Ordering::Relaxed), round * amount);
            }
        }
        assert_eq!(kept.fabric.connections.load(Ordering::Relaxed), 0);
    }
}
