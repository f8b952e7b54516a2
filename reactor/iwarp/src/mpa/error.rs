//! Errors of the connection setup, and what each means on the wire (RFC 5044 section 8, RFC 6581
//! section 8).

/// An MPA error code. On the wire it is in an RDMAP Terminate message with layer [`MpaCode::LAYER`]
/// and error type [`MpaCode::KIND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MpaCode {
    /// The TCP connection was closed, terminated or lost. Never sent, there is no way left.
    ConnectionLost = 1,
    /// The CRC of an FPDU is wrong.
    Crc = 2,
    /// A marker and the FPDU lengths disagree about the start of an FPDU.
    Marker = 3,
    /// A request or reply frame is invalid. Never sent: TCP is closed at once.
    StartupFrame = 4,
    /// A local error without a code of its own.
    LocalCatastrophic = 5,
    /// The inbound read depth that the peer needs cannot be provided.
    InsufficientIrd = 6,
    /// No ready-to-receive indication, or connection model, suits both sides.
    NoMatchingRtr = 7,
}

impl MpaCode {
    /// Layer of the Terminate message: the lower layer protocol.
    pub const LAYER: u8 = 2;
    /// Error type of the Terminate message: MPA.
    pub const KIND: u8 = 0;

    /// The code as a number.
    #[must_use]
    pub fn value(self) -> u8 {
        self as u8
    }

    /// Whether the code may travel in a Terminate message at all. Losing the connection leaves no
    /// way, and a bad startup frame closes TCP at once (RFC 5044 section 8).
    #[must_use]
    pub fn is_sendable(self) -> bool {
        !matches!(self, Self::ConnectionLost | Self::StartupFrame)
    }
}

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The peer's request frame.
    Request,
    /// The peer's reply frame.
    Reply,
    /// The own application's decision about a request.
    Decision,
}

/// Why a connection setup failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SetupError {
    /// The frame does not begin with the key that this side waits for. Two initiators, or a peer
    /// that does not speak MPA.
    #[error("the frame has another key than expected")]
    Key,
    /// Revision 0, which never existed.
    #[error("MPA revision {0} is not understood")]
    Revision(u8),
    /// More than 512 bytes of private data.
    #[error("{0} bytes of private data, at most 512 are allowed")]
    PrivateDataLength(u16),
    /// The enhanced flag is set, but the private data is too short for the connection data.
    #[error("{0} bytes of private data cannot hold the connection data")]
    ConnectionDataMissing(u16),
    /// An enhanced request, and the enhancements are switched off here.
    #[error("an enhanced request, and enhanced setup is switched off")]
    EnhancedOff,
    /// Bytes came behind the request before it was answered.
    #[error("bytes behind the request, before its reply")]
    BytesBehindRequest,
    /// A reply came before the request was sent.
    #[error("a reply before the request was sent")]
    PrematureReply,
    /// An unenhanced reply to an enhanced request.
    #[error("an unenhanced reply to an enhanced request")]
    ReplyNotEnhanced,
    /// An enhanced reply to an unenhanced request.
    #[error("an enhanced reply to an unenhanced request")]
    ReplyEnhanced,
    /// A deadline passed.
    #[error("timed out waiting for {}", match .0 {
        Wait::Request => "the request",
        Wait::Reply => "the reply",
        Wait::Decision => "the application's decision",
    })]
    TimedOut(Wait),
    /// The peer closed TCP before it sent anything. An enhanced request to a responder without the
    /// enhancements ends this way.
    #[error("the peer closed without an answer")]
    ClosedUnanswered,
    /// The peer closed TCP in the middle of its frame, or before it had its answer.
    #[error("the peer closed during the connection setup")]
    Closed,
    /// The responder wants more open reads than can be served.
    #[error("the peer wants {needed} reads served at once, the limit is {limit}")]
    InsufficientIrd {
        /// Reads that the responder wants to have open.
        needed: u16,
        /// The own limit.
        limit: u16,
    },
    /// No ready-to-receive indication, or connection model, suits both sides.
    #[error("no common ready-to-receive indication or connection model")]
    NoMatchingRtr,
    /// The state machine was used when its work was done, or before it could begin.
    #[error("connection setup used out of order")]
    OutOfOrder,
}

impl SetupError {
    /// The MPA error code to report locally (RFC 5044 section 8, RFC 6581 section 8).
    #[must_use]
    pub fn code(self) -> MpaCode {
        match self {
            Self::Key
            | Self::Revision(_)
            | Self::PrivateDataLength(_)
            | Self::ConnectionDataMissing(_)
            | Self::EnhancedOff
            | Self::BytesBehindRequest
            | Self::PrematureReply
            | Self::ReplyNotEnhanced
            | Self::ReplyEnhanced => MpaCode::StartupFrame,
            Self::TimedOut(_) | Self::ClosedUnanswered | Self::Closed => MpaCode::ConnectionLost,
            Self::InsufficientIrd { .. } => MpaCode::InsufficientIrd,
            Self::NoMatchingRtr => MpaCode::NoMatchingRtr,
            Self::OutOfOrder => MpaCode::LocalCatastrophic,
        }
    }
}

/// How far a connection has come when an error strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Initiator: no valid accepting reply yet.
    AwaitingReply,
    /// Responder: no request yet.
    AwaitingRequest,
    /// Responder: the request has come and is not answered.
    AwaitingDecision,
    /// Responder: accepted, and the initiator's first FPDU has not come.
    AwaitingFirst,
    /// FPDUs may be sent.
    Flowing,
}

/// How to end a connection on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposal {
    /// Close TCP without a word.
    Close,
    /// Send a rejecting reply, then close.
    Reject,
    /// Send a Terminate message with this code, then close.
    Terminate(MpaCode),
    /// Queue a Terminate message with this code like all other work behind the initiator's first
    /// FPDU, then close; close without it if that FPDU does not come in time.
    TerminateAfterFirst(MpaCode),
}

/// How an error ends a connection. A Terminate message is sent as an FPDU, so it is possible only
/// when FPDUs may be sent; before that a connection ends by a rejecting reply or by closing TCP
/// (RFC 6581 sections 8 and 9.3). For a local error without a code of its own pass
/// [`MpaCode::LocalCatastrophic`].
///
/// An accepting responder must not send any FPDU before the initiator's first (RFC 5044
/// section 7.1.2 rule 4), and that includes the Terminate message.
#[must_use]
pub fn disposal(stage: Stage, code: MpaCode) -> Disposal {
    if !code.is_sendable() {
        return Disposal::Close;
    }
    match stage {
        Stage::AwaitingReply | Stage::AwaitingRequest => Disposal::Close,
        Stage::AwaitingDecision => Disposal::Reject,
        Stage::AwaitingFirst => Disposal::TerminateAfterFirst(code),
        Stage::Flowing => Disposal::Terminate(code),
    }
}
