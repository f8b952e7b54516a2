//! Software iWARP: RDMA over plain TCP sockets, for any peer with MPA, DDP and RDMAP.
//!
//! [`Iwarp`] owns the sockets of one reactor; the protocol itself is in [`millrace_iwarp`]. One
//! receive call returns as many FPDUs as have arrived, and places the rest of a long payload
//! directly in its memory; one send call gathers all posted FPDUs directly from theirs. A Send or
//! Write completes when the kernel has accepted its last byte.
//!
//! If FPDUs carry check values, payloads are copied once more in each direction, so that the
//! checked bytes are those sent and placed.

mod config;
mod connection;
mod counters;
mod data_path;
mod memory;
mod poll;
mod provider;
mod setup;
mod shared;
mod slots;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use config::{CrcPolicy, IwarpConfig};
pub use counters::IwarpCounters;
pub use provider::Iwarp;
