//! MPA connection setup: RFC 5044 section 7.1 with the enhancements of RFC 6581.
//!
//! Two frames are exchanged over plain TCP before any FPDU flows. The [`Initiator`] sends a
//! request and waits for the reply; the [`Responder`] waits for a request, shows it to the
//! application and sends the reply that the application decides on. Both are state machines
//! without I/O: they take bytes and time, and give bytes and an outcome ([`Negotiated`],
//! [`Rejection`] or [`Failure`]).
//!
//! What comes after the frames is the business of the stream, for which [`StartGate`] says which
//! FPDU must or may go first, and [`Fallback`] whether a connector may try again without the
//! enhancements.
//!
//! The rules for read depths and ready-to-receive indications stand in [`negotiate`], apart from
//! the frames; the session control messages of SCTP ([`sctp`], RFC 6581 section 7) use them too.
//!
//! Left out: markers are inserted if the peer asks for them, but never asked for.

pub mod config;
pub mod connection_data;
pub mod error;
pub mod frame;
pub mod negotiate;
pub mod sctp;

mod fallback;
mod initiator;
mod outcome;
mod ready;
mod responder;

#[cfg(test)]
mod tests;

pub use config::{ConfigError, InitiatorConfig, ResponderConfig};
pub use connection_data::{ConnectionData, DEPTH_BY_APPLICATION, DEPTH_MAX, RtrKind, RtrKinds};
pub use error::{Disposal, MpaCode, SetupError, Stage, Wait, disposal};
pub use fallback::Fallback;
pub use frame::{Frame, FrameKind, FrameParser};
pub use initiator::{INITIATOR_TRANSITIONS, Initiator, InitiatorState, InitiatorStep};
pub use outcome::{Failure, Framing, Negotiated, Rejection, Role};
pub use ready::{Arrival, FirstFpdu, FirstOperation, StartGate};
pub use responder::{
    AcceptParameters, DecisionError, MpaRequest, RESPONDER_TRANSITIONS, Responder, ResponderState,
    ResponderStep,
};
