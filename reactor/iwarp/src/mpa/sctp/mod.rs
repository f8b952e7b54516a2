//! Session control on SCTP (RFC 5043 sections 5 and 6, RFC 6581 section 7).
//!
//! On SCTP a DDP stream begins with control messages instead of frames: an Initiate and an Accept
//! or Reject, each in a data chunk of its own, and ends with a Terminate. The enhanced ones carry
//! the same connection data as the frames of the TCP case, and the rules for it are the same ones
//! ([`super::negotiate`]). A [`Session`] is one end of such a stream without I/O: chunks and time
//! in, chunks and events out. It needs no ready-to-receive indication, since each chunk is marked
//! as control or data, so either side may send the first segment.
//!
//! Chunks travel unordered; their sequence numbers ([`Order`]) restore the order, and the session
//! checks the chunks in that order.
//!
//! Left out: the SCTP association itself, with its adaptation indication. No provider runs on it.

mod event;
mod message;
mod order;
mod session;

#[cfg(test)]
mod tests;

pub use event::{SessionEnd, SessionError, SessionEvent, SessionRejection, SessionRequest};
pub use message::{
    CONTROL_HEADER_LENGTH, CONTROL_IDENTIFIER, ControlMessage, Function, MessageError,
    SEGMENT_IDENTIFIER,
};
pub use order::{EARLY_BYTES_MAX, EARLY_MAX, Order, OrderError};
pub use session::{
    RejectCause, SESSION_TRANSITIONS, SctpPayload, Session, SessionState, SessionTerms, UseError,
};
