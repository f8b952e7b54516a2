//! The events that a session reports to its user.

use super::message::{Function, MessageError};
use super::order::OrderError;
use super::session::{SessionState, SessionTerms};
use crate::mpa::connection_data::{CONNECTION_DATA_LENGTH, ConnectionData};
use crate::mpa::error::SetupError;

/// One event, in the order of the peer's chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// Passive side: a session is asked for; answer it.
    Request(SessionRequest),
    /// Active side: the session is established in both directions.
    Established(SessionTerms),
    /// Active side: the session was rejected, and is over.
    Rejected(SessionRejection),
    /// A DDP segment, without its sequence number.
    Segment(Vec<u8>),
    /// The session is over. Nothing follows.
    Ended(SessionEnd),
}

/// A session that the peer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// The peer's connection data as it stood on the wire; `None` in an unenhanced Initiate.
    pub peer: Option<ConnectionData>,
    /// The peer's private data, without the connection data.
    pub private_data: Vec<u8>,
    /// Reads of the peer's that an accept with the own limits would serve at once.
    pub ird: u16,
    /// Reads that an accept with the own limits would allow to be open at once.
    pub ord: u16,
}

/// A rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRejection {
    /// The session would have been accepted without enhancements.
    pub enhanced: bool,
    /// All private data.
    pub private_data: Vec<u8>,
}

impl SessionRejection {
    /// The requirements of the peer, if it rejected the enhancements without asking its
    /// application: the kinds of indications that it supports, and as `ord` the reads that it must
    /// have open. No rule distinguishes such a rejection from private data of four bytes by an
    /// application, so this is a hint.
    #[must_use]
    pub fn terms(&self) -> Option<ConnectionData> {
        let data: [u8; CONNECTION_DATA_LENGTH] = self.private_data.as_slice().try_into().ok()?;
        self.enhanced.then(|| ConnectionData::decode(data))
    }
}

/// How a session came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Active side: the peer refused without asking its application.
    Refused,
    /// The peer ended the established session.
    Terminated,
    /// Passive side: the request was rejected without asking the application.
    RejectedHere {
        /// The peer's connection data as it stood on the wire.
        peer: ConnectionData,
    },
    /// The session failed. Where the peer may be told, the output says so.
    Failed(SessionError),
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A chunk that is no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A DDP segment chunk without a sequence number.
    #[error("{0} bytes cannot hold a sequence number")]
    Short(usize),
    /// A payload protocol identifier that has no meaning here.
    #[error("payload protocol identifier {0} is not understood")]
    Identifier(u32),
    /// A chunk with an unacceptable sequence number.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A message, or a segment (`None`), that no legal sequence has at this point.
    #[error("{function:?} is not legal while {state:?}")]
    Illegal {
        /// Where the session stood.
        state: SessionState,
        /// The control message that came, `None` for a segment.
        function: Option<Function>,
    },
    /// The negotiation failed, a deadline passed, or the association was lost.
    #[error(transparent)]
    Setup(#[from] SetupError),
}
