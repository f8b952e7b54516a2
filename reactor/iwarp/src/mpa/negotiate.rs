//! The rules for read depths and ready-to-receive indications (RFC 6581 sections 9.1 and 9.2),
//! apart from any frame.

use super::config::{InitiatorConfig, ResponderConfig};
use super::connection_data::{ConnectionData, DEPTH_BY_APPLICATION, RtrKind, RtrKinds, stated};
use super::error::SetupError;

/// What an initiator uses after an accepting reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitiatorTerms {
    /// Reads of the peer's to serve at once.
    pub ird: u16,
    /// Reads that may be open at once.
    pub ord: u16,
    /// The indication to send first, in the peer-to-peer model.
    pub rtr: Option<RtrKind>,
}

/// The values that a responder answers and uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderTerms {
    /// Connection data of the reply.
    pub reply: ConnectionData,
    /// Reads of the peer's to serve at once.
    pub ird: u16,
    /// Reads that may be open at once.
    pub ord: u16,
}

/// Connection data of a request. Depths that are not to be exchanged are left to the application.
#[must_use]
pub fn request(config: &InitiatorConfig) -> ConnectionData {
    let depth = |value| {
        if config.exchange_depths {
            stated(value)
        } else {
            DEPTH_BY_APPLICATION
        }
    };
    ConnectionData {
        peer_to_peer: config.peer_to_peer,
        rtr: if config.peer_to_peer {
            config.rtr
        } else {
            RtrKinds::NONE
        },
        ird: depth(config.ird),
        ord: depth(config.ord),
    }
}

/// Answers a request that is to be accepted.
#[must_use]
pub fn accept(request: &ConnectionData, config: &ResponderConfig) -> ResponderTerms {
    let rtr = offered(request, config);
    // The stated values are also the used ones: a peer must never serve a number that was not
    // stated.
    let (ord, reply_ord) = if request.ird == DEPTH_BY_APPLICATION {
        (config.ord, DEPTH_BY_APPLICATION)
    } else {
        let ord = stated(config.ord.min(request.ird));
        (ord, ord)
    };
    let (ird, reply_ird) = if request.ord == DEPTH_BY_APPLICATION {
        (config.ird, DEPTH_BY_APPLICATION)
    } else {
        let ird = stated(config.ird.min(request.ord).max(u16::from(rtr.read)));
        (ird, ird)
    };
    ResponderTerms {
        reply: ConnectionData {
            peer_to_peer: request.peer_to_peer,
            rtr,
            ird: reply_ird,
            ord: reply_ord,
        },
        ird,
        ord,
    }
}

/// Connection data of a rejecting reply. `required_ord` is the depth that the initiator would have
/// to serve; nothing else is negotiated, so the other depth is left open.
#[must_use]
pub fn reject(
    request: &ConnectionData,
    config: &ResponderConfig,
    required_ord: Option<u16>,
) -> ConnectionData {
    ConnectionData {
        peer_to_peer: request.peer_to_peer,
        rtr: offered(request, config),
        ird: DEPTH_BY_APPLICATION,
        ord: required_ord.map_or(DEPTH_BY_APPLICATION, stated),
    }
}

/// The number of open reads that the responder needs and the initiator does not offer to serve.
/// An initiator that leaves its depth to the application never falls short: the value for that is
/// above every number that can be needed.
#[must_use]
pub fn shortfall(request: &ConnectionData, config: &ResponderConfig) -> Option<u16> {
    let required = stated(config.required_ord);
    (request.ird < required).then_some(required)
}

/// Applies an accepting reply to the initiator's side.
///
/// # Errors
///
/// [`SetupError::InsufficientIrd`] and [`SetupError::NoMatchingRtr`], both to be told to the peer
/// by a Terminate message.
pub fn conclude(
    reply: &ConnectionData,
    config: &InitiatorConfig,
) -> Result<InitiatorTerms, SetupError> {
    let ord = if reply.ird == DEPTH_BY_APPLICATION {
        config.ord
    } else {
        config.ord.min(reply.ird)
    };
    let ird = if reply.ord == DEPTH_BY_APPLICATION {
        config.ird
    } else if reply.ord > config.ird_limit {
        return Err(SetupError::InsufficientIrd {
            needed: reply.ord,
            limit: config.ird_limit,
        });
    } else {
        config.ird.max(reply.ord)
    };
    // A reply of the other connection model cannot be obeyed: one side would wait for an
    // indication that never comes, or take a message for one.
    if reply.peer_to_peer != config.peer_to_peer {
        return Err(SetupError::NoMatchingRtr);
    }
    let rtr = if config.peer_to_peer {
        Some(choose(reply, config)?)
    } else {
        None
    };
    Ok(InitiatorTerms { ird, ord, rtr })
}

/// The initiator's choice among the common kinds. A Write takes nothing at the responder, a Read
/// a place in its inbound queue, a Send perhaps a receive; a Read that finds an inbound depth of 0
/// is the last resort.
fn choose(reply: &ConnectionData, config: &InitiatorConfig) -> Result<RtrKind, SetupError> {
    let common = config.rtr.common(reply.rtr);
    let order = if reply.ird == 0 {
        [RtrKind::Write, RtrKind::Send, RtrKind::Read]
    } else {
        [RtrKind::Write, RtrKind::Read, RtrKind::Send]
    };
    order
        .into_iter()
        .find(|kind| common.contains(*kind))
        .ok_or(SetupError::NoMatchingRtr)
}

/// The kinds of a reply: those asked for and understood, or, if there are none, all that are
/// understood. A Read is understood only where at least one read can be served.
fn offered(request: &ConnectionData, config: &ResponderConfig) -> RtrKinds {
    if !request.peer_to_peer {
        return RtrKinds::NONE;
    }
    let understood = RtrKinds {
        read: config.rtr.read && config.ird > 0,
        ..config.rtr
    };
    let common = understood.common(request.rtr);
    if common.is_empty() {
        understood
    } else {
        common
    }
}
