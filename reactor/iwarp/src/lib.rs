//! MPA, DDP and RDMAP as a state machine without I/O.
//!
//! [`mpa`] sets a connection up. An [`Endpoint`] then is one end of its RDMAP stream in full
//! operation (RFC 5040, RFC 5041, RFC 5044 section 4). Bytes of the TCP stream go in through
//! [`Endpoint::receive`] and come out through [`Endpoint::gather`]; work requests, posted receives
//! and exposures go in, completions come out. It owns no socket, clock or thread, and touches
//! memory only through the [`Memory`] that its user supplies, so it runs equally over registered
//! slices and over plain vectors in a test.
//!
//! Deliberately not supported: receiving markers (this end never asks for them, as RFC 5044 section
//! 4.3 allows), and the operations of RFC 7306, which are refused with `unexpected opcode`.

#![forbid(unsafe_code)]

pub mod mpa;

mod crc;
mod endpoint;
mod header;
mod keys;
mod memory;
mod outbound;
mod terminate;
mod work;

pub use crc::Crc32c;
pub use endpoint::{
    Chunk, Counters, Delivery, Direct, DirectTarget, Endpoint, Limits, Parameters, Stop,
};
pub use header::{
    CRC_BYTES, DDP_VERSION, LENGTH_BYTES, Model, Opcode, QUEUE_SEND, RDMAP_VERSION,
    READ_REQUEST_BYTES, ReadRequest, Segment, TAGGED_BYTES, Tagged, ULPDU_BYTES_MAX,
    UNTAGGED_BYTES, Untagged, pad_bytes,
};
pub use keys::{Access, Exposed, Revocation};
pub use memory::Memory;
pub use outbound::Staging;
pub use terminate::{Fault, Terminate};
pub use work::{Completion, Operation, Request, Tally, WorkFault};
