//! Software iWARP: RDMA over plain TCP sockets, for any peer that speaks MPA, DDP and RDMAP.
//!
//! [`Iwarp`] owns the sockets of one reactor; the protocol itself is the business of
//! [`millrace_iwarp`]. One receiving call brings as many FPDUs as have arrived, and puts the rest
//! of a long payload straight into its memory; one sending call gathers as many FPDUs as are
//! posted straight out of theirs. A Send or Write completes when the kernel has accepted its last
//! byte.
//!
//! Where FPDUs carry check values, payloads are copied once more in each direction, so that the
//! bytes that are checked are the bytes that travel and are placed.

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
