//! The first FPDU: who sends it, what it must be, and what it opens (RFC 5044 section 7.1.2
//! rule 4, RFC 6581 sections 5 and 9.2).

use super::connection_data::{RtrKind, RtrKinds};
use super::outcome::{Negotiated, Role};

/// What an FPDU belongs to, as far as the start of a stream cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FirstOperation {
    /// A Send, solicited or not.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read Request.
    ReadRequest,
    /// Anything else: a Send with Invalidate, a Terminate.
    Other,
}

/// The first FPDU that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstFpdu {
    /// The operation that it belongs to.
    pub operation: FirstOperation,
    /// Bytes moved: the payload of a Send or Write, the length asked for by a Read Request.
    pub length: u64,
    /// Whether it is the last of its message.
    pub last: bool,
}

/// What to do with the first FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// It is an ordinary part of the application's traffic.
    Ordinary,
    /// It was an indication and is done with: it uses up no receive and gives no completion. A
    /// Send still counts in the sequence of Sends.
    Indication(RtrKind),
}

/// The gate before the FPDUs of this side. It stays shut until the initiator's indication has
/// been sent, or the initiator's first FPDU has come; work posted meanwhile waits in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartGate {
    role: Role,
    peer_to_peer: bool,
    to_send: Option<RtrKind>,
    expected: RtrKinds,
    open: bool,
    unexpected: bool,
}

impl StartGate {
    /// The gate of a connection that was just set up.
    #[must_use]
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            role: negotiated.role,
            peer_to_peer: negotiated.peer_to_peer,
            to_send: negotiated.rtr_to_send,
            expected: negotiated.rtr_expected,
            open: negotiated.role == Role::Initiator && negotiated.rtr_to_send.is_none(),
            unexpected: false,
        }
    }

    /// Whether FPDUs of the application may leave.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Initiator: the indication that has to leave before any other FPDU. It takes no place in
    /// the application's queues and gives no completion. Handles and offsets of it mean nothing;
    /// zeros will do.
    #[must_use]
    pub fn to_send(&self) -> Option<RtrKind> {
        self.to_send
    }

    /// Initiator: the indication has been sent, so data may be sent, and the application may be
    /// notified that the connection is established.
    pub fn indication_sent(&mut self) {
        if self.to_send.take().is_some() {
            self.open = true;
        }
    }

    /// Responder: whether the first FPDU is still awaited, so that [`StartGate::first`] is to be
    /// asked about it.
    #[must_use]
    pub fn awaits_first(&self) -> bool {
        self.role == Role::Responder && !self.open
    }

    /// Responder: judges the first FPDU, once it has been found valid, and opens the gate.
    ///
    /// In the peer-to-peer model a message of no bytes is the indication, whichever kind it is of:
    /// a kind that was not agreed proves readiness just as well. Other messages prove it too but
    /// belong to the application. Both are noted ([`StartGate::was_unexpected`]). For an
    /// indication by Read the empty read response is due as for any read.
    pub fn first(&mut self, fpdu: FirstFpdu) -> Arrival {
        if !self.awaits_first() {
            return Arrival::Ordinary;
        }
        self.open = true;
        if !self.peer_to_peer {
            return Arrival::Ordinary;
        }
        let kind = match fpdu.operation {
            FirstOperation::Send => Some(RtrKind::Send),
            FirstOperation::Write => Some(RtrKind::Write),
            FirstOperation::ReadRequest => Some(RtrKind::Read),
            FirstOperation::Other => None,
        };
        match kind {
            Some(kind) if fpdu.length == 0 && fpdu.last => {
                self.unexpected = !self.expected.contains(kind);
                Arrival::Indication(kind)
            }
            _ => {
                self.unexpected = true;
                Arrival::Ordinary
            }
        }
    }

    /// Responder: whether the first message was of another kind than agreed, for a counter.
    #[must_use]
    pub fn was_unexpected(&self) -> bool {
        self.unexpected
    }
}
