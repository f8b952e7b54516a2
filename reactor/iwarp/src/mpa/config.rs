//! Local settings of one connection setup.

use std::time::Duration;

use super::connection_data::{RtrKind, RtrKinds};
use super::frame::{ENHANCED_PRIVATE_DATA_MAX, PRIVATE_DATA_MAX};

/// How long an initiator waits for the whole reply.
pub const REPLY_WAIT: Duration = Duration::from_secs(10);
/// How long a responder waits for the whole request, and then for its application's decision.
pub const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// Why settings are refused before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Enhanced setup needs at least one kind of ready-to-receive indication (RFC 6581
    /// section 9.2).
    #[error("enhanced connection setup needs at least one kind of ready-to-receive indication")]
    NoRtrKind,
    /// The zero length RDMA Read as only kind needs an inbound read depth of at least one.
    #[error("a zero length read as only ready-to-receive indication needs an IRD of at least 1")]
    ReadNeedsIrd,
    /// An exchange is asked for, but enhanced setup is switched off.
    #[error("enhanced connection setup is asked for and switched off")]
    EnhancedOff,
    /// More private data than the frame has room for.
    #[error("{length} bytes of private data, at most {limit} have room")]
    PrivateDataLength {
        /// Bytes given.
        length: usize,
        /// Bytes that have room.
        limit: usize,
    },
    /// The limit of inbound reads is below the number that is offered.
    #[error("the offered IRD of {ird} exceeds its limit of {limit}")]
    IrdLimit {
        /// Reads offered to be served.
        ird: u16,
        /// The stated limit.
        limit: u16,
    },
}

/// Settings of an initiator. The defaults ask for nothing enhanced (RFC 6581 section 10): the
/// request is one of revision 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorConfig {
    /// Whether enhanced setup may be used at all.
    pub enhanced: bool,
    /// Ask for an exchange of read depths.
    pub exchange_depths: bool,
    /// Ask for the peer-to-peer model with an explicit ready-to-receive indication. Where the
    /// first call of a client is that signal, it is not needed. Without `exchange_depths` both
    /// depths are sent as left to the application.
    pub peer_to_peer: bool,
    /// Kinds of indications that this side can send.
    pub rtr: RtrKinds,
    /// Wish for CRCs. They are also used if only the peer wishes them.
    pub crc: bool,
    /// Reads of the peer's to serve at once.
    pub ird: u16,
    /// Most reads to serve at once if the responder insists on more than `ird`.
    pub ird_limit: u16,
    /// Reads to have open at once.
    pub ord: u16,
    /// For the peer's application: at most 508 bytes in an enhanced request, 512 otherwise.
    pub private_data: Vec<u8>,
    /// How long to wait for the whole reply.
    pub reply_wait: Duration,
}

impl Default for InitiatorConfig {
    fn default() -> Self {
        Self {
            enhanced: true,
            exchange_depths: false,
            peer_to_peer: false,
            rtr: RtrKinds::ALL,
            crc: true,
            ird: 16,
            ird_limit: 128,
            ord: 16,
            private_data: Vec::new(),
            reply_wait: REPLY_WAIT,
        }
    }
}

impl InitiatorConfig {
    /// Whether the request is an enhanced one.
    #[must_use]
    pub fn asks_enhanced(&self) -> bool {
        self.exchange_depths || self.peer_to_peer
    }

    /// Checks what can be known before anything is sent.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !self.enhanced && self.asks_enhanced() {
            return Err(ConfigError::EnhancedOff);
        }
        if self.enhanced && self.rtr.is_empty() {
            return Err(ConfigError::NoRtrKind);
        }
        if self.ird > self.ird_limit {
            return Err(ConfigError::IrdLimit {
                ird: self.ird,
                limit: self.ird_limit,
            });
        }
        check_private_data(self.private_data.len(), self.asks_enhanced())
    }
}

/// Settings of a responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// Whether enhanced requests are understood. Without, they are malformed frames.
    pub enhanced: bool,
    /// Kinds of indications that this side understands.
    pub rtr: RtrKinds,
    /// Wish for CRCs. They are also used if only the peer wishes them.
    pub crc: bool,
    /// Most reads of the peer's to serve at once; the number itself where the initiator states
    /// none.
    pub ird: u16,
    /// Most reads to have open at once; the number itself where the initiator states none.
    pub ord: u16,
    /// Open reads that the application cannot do without. An initiator that states that it serves
    /// fewer is rejected with this number (RFC 6581 section 9.1). 0: none needed.
    pub required_ord: u16,
    /// How long to wait for the whole request.
    pub request_wait: Duration,
    /// How long the application may take to accept or reject.
    pub decision_wait: Duration,
}

impl Default for ResponderConfig {
    fn default() -> Self {
        Self {
            enhanced: true,
            rtr: RtrKinds::ALL,
            crc: true,
            ird: 16,
            ord: 16,
            required_ord: 0,
            request_wait: REQUEST_WAIT,
            decision_wait: REQUEST_WAIT,
        }
    }
}

impl ResponderConfig {
    /// Checks what can be known before a request comes.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.enhanced && self.rtr.is_empty() {
            return Err(ConfigError::NoRtrKind);
        }
        if self.enhanced && self.rtr == RtrKinds::only(RtrKind::Read) && self.ird == 0 {
            return Err(ConfigError::ReadNeedsIrd);
        }
        Ok(())
    }
}

/// Checks the length of the application's private data.
pub(super) fn check_private_data(length: usize, enhanced: bool) -> Result<(), ConfigError> {
    let limit = if enhanced {
        ENHANCED_PRIVATE_DATA_MAX
    } else {
        PRIVATE_DATA_MAX
    };
    if length > limit {
        return Err(ConfigError::PrivateDataLength { length, limit });
    }
    Ok(())
}
