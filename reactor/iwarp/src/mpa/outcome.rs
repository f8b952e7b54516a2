//! The outcome of a connection setup.

use super::connection_data::{ConnectionData, RtrKind, RtrKinds};
use super::error::{Disposal, SetupError};

/// Which side of the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent the request.
    Initiator,
    /// Sent the reply.
    Responder,
}

/// All that FPDU mode needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// This side.
    pub role: Role,
    /// Revision of the reply frame.
    pub revision: u8,
    /// Whether connection data was exchanged.
    pub enhanced: bool,
    /// CRCs are sent and checked, in both directions. Otherwise the field is present and means
    /// nothing.
    pub crc: bool,
    /// The peer requires markers in data sent to it. Received data never has markers.
    pub send_markers: bool,
    /// Reads of the peer's to serve at once. One more is an error of the peer's.
    pub ird: u16,
    /// Reads that may be open at once. 0: none at all.
    pub ord: u16,
    /// The peer's connection data as it stood on the wire, 0x3FFF included.
    pub peer: Option<ConnectionData>,
    /// The peer-to-peer model is used.
    pub peer_to_peer: bool,
    /// Initiator: the indication to send before anything else.
    pub rtr_to_send: Option<RtrKind>,
    /// Responder: the kinds that it named; the initiator's first message is one of them.
    pub rtr_expected: RtrKinds,
    /// The peer's private data, without the connection data.
    pub private_data: Vec<u8>,
}

impl Negotiated {
    /// The inbound read depth as the peer stated it.
    #[must_use]
    pub fn peer_ird(&self) -> Option<u16> {
        self.peer.map(|data| data.ird)
    }

    /// The outbound read depth as the peer stated it.
    #[must_use]
    pub fn peer_ord(&self) -> Option<u16> {
        self.peer.map(|data| data.ord)
    }
}

/// A rejecting reply. Both values of the peer's connection data are for the application: `ord` may
/// be the depth that the responder would need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The peer's connection data as it stood on the wire.
    pub peer: Option<ConnectionData>,
    /// The peer's private data, without the connection data.
    pub private_data: Vec<u8>,
}

/// A setup that came to nothing by an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub error: SetupError,
    /// How to end the connection.
    pub disposal: Disposal,
    /// How to frame the Terminate message, where `disposal` asks for one. Nothing else may be sent
    /// on its strength.
    pub framing: Option<Framing>,
}

/// The parameters for sending one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// As in [`Negotiated::crc`].
    pub crc: bool,
    /// As in [`Negotiated::send_markers`].
    pub send_markers: bool,
}
