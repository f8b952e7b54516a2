//! What a provider has done, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of one provider that only grow, but for `connections`. The provider's reactor alone
/// writes them; anyone may read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IwarpCounters {
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
    /// Connection setups that failed or timed out, and half-open connections pushed out.
    pub setups_failed: AtomicU64,
    /// Connections that were established.
    pub established: AtomicU64,
    /// First messages that proved a peer ready, but were not of an agreed kind.
    pub indications_unexpected: AtomicU64,
    /// Connections now, whatever their state.
    pub connections: AtomicU64,
}

impl IwarpCounters {
    /// Adds what a provider that is gone has done. It has no connections any more.
    pub fn absorb(&self, gone: &Self) {
        for (counter, amount) in [
            (&self.frames_in, &gone.frames_in),
            (&self.frames_out, &gone.frames_out),
            (&self.bytes_in, &gone.bytes_in),
            (&self.bytes_out, &gone.bytes_out),
            (&self.bytes_direct, &gone.bytes_direct),
            (&self.receive_calls, &gone.receive_calls),
            (&self.send_calls, &gone.send_calls),
            (&self.ready_calls, &gone.ready_calls),
            (&self.crc_errors, &gone.crc_errors),
            (&self.terminates_sent, &gone.terminates_sent),
            (&self.terminates_received, &gone.terminates_received),
            (&self.setups_failed, &gone.setups_failed),
            (&self.established, &gone.established),
            (&self.indications_unexpected, &gone.indications_unexpected),
        ] {
            add(counter, amount.load(Ordering::Relaxed));
        }
    }
}

/// Adds to a counter that this thread alone writes.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
}

/// Takes one from a counter that this thread alone writes.
pub(super) fn take_one(counter: &AtomicU64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_sub(1),
        Ordering::Relaxed,
    );
}
