//! The side that answers the request (RFC 5044 section 7.1.2, RFC 6581 sections 9 and 10).

use std::time::Instant;

use super::config::{ConfigError, ResponderConfig};
use super::connection_data::{ConnectionData, RtrKinds};
use super::error::{SetupError, Stage, Wait, disposal};
use super::frame::{Frame, FrameKind, FrameParser, REVISION_ENHANCED};
use super::negotiate;
use super::outcome::{Failure, Negotiated, Role};

/// The state of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponderState {
    /// The request is awaited.
    Waiting,
    /// The request has come; the application decides.
    Deciding,
    /// The accepting reply is made.
    Accepted,
    /// The rejecting reply is made.
    Rejected,
    /// The setup failed.
    Failed,
}

/// All that may happen to a responder, as pairs of states. Nothing leaves the last three.
pub const RESPONDER_TRANSITIONS: [(ResponderState, ResponderState); 6] = [
    (ResponderState::Waiting, ResponderState::Deciding),
    (ResponderState::Waiting, ResponderState::Rejected),
    (ResponderState::Waiting, ResponderState::Failed),
    (ResponderState::Deciding, ResponderState::Accepted),
    (ResponderState::Deciding, ResponderState::Rejected),
    (ResponderState::Deciding, ResponderState::Failed),
];

/// A request for the application to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpaRequest {
    /// Revision of the request frame.
    pub revision: u8,
    /// The peer's connection data as it stood on the wire.
    pub peer: Option<ConnectionData>,
    /// The peer's private data, without the connection data.
    pub private_data: Vec<u8>,
    /// Reads of the peer's that an accept with the listener's limits would serve at once.
    pub ird: u16,
    /// Reads that an accept with the listener's limits would allow to be open at once.
    pub ord: u16,
}

/// How far the setup has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponderStep {
    /// More bytes, or the application's decision, are needed.
    Pending,
    /// The request has come: answer with [`Responder::accept`] or [`Responder::reject`].
    Request(MpaRequest),
    /// The request was rejected without asking the application, since the initiator serves fewer
    /// reads than [`ResponderConfig::required_ord`]. Send the output, then close.
    Refused {
        /// The peer's connection data as it stood on the wire.
        peer: ConnectionData,
    },
    /// The setup failed; end the connection as [`Failure::disposal`] says.
    Failed(Failure),
}

/// How to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptParameters {
    /// Replaces [`ResponderConfig::ird`] for this connection.
    pub ird: u16,
    /// Replaces [`ResponderConfig::ord`] for this connection.
    pub ord: u16,
    /// For the peer's application: at most 508 bytes if the request was enhanced, 512 otherwise.
    pub private_data: Vec<u8>,
}

/// Why a decision was refused. The request stays open, unless its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    /// There is no request to decide on (any more).
    #[error("no connection request awaits a decision")]
    NoRequest,
    /// The parameters cannot be honoured.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// One connection setup from the responder's side.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    state: ResponderState,
    parser: FrameParser,
    request: Option<Frame>,
    reply: Vec<u8>,
    sent: usize,
    deadline: Instant,
}

impl Responder {
    /// Begins to wait for a request. `now` starts the time for it.
    ///
    /// # Errors
    ///
    /// Settings that cannot be honoured, see [`ResponderConfig::validate`].
    pub fn new(config: ResponderConfig, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            state: ResponderState::Waiting,
            parser: FrameParser::new(FrameKind::Request),
            request: None,
            reply: Vec::new(),
            sent: 0,
            deadline: now + config.request_wait,
            config,
        })
    }

    /// The state of the setup.
    #[must_use]
    pub fn state(&self) -> ResponderState {
        self.state
    }

    /// Bytes to send now. After an accept the connection is in FPDU mode behind them, after a
    /// rejection it may be closed behind them.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.reply[self.sent..]
    }

    /// Reports that the first `count` bytes of [`Responder::output`] went out.
    pub fn sent(&mut self, count: usize) {
        self.sent = self.reply.len().min(self.sent + count);
    }

    /// When [`Responder::expire`] is to be called; `None` once the setup is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.awaited().map(|_| self.deadline)
    }

    /// Takes bytes that arrived, all of them: what follows a request before its reply ends the
    /// connection. To be called with what has arrived until the decision is made; after an accept
    /// bytes belong to FPDU mode.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) -> ResponderStep {
        let Some(wait) = self.awaited() else {
            return self.failure(SetupError::OutOfOrder);
        };
        if now >= self.deadline {
            return self.fail(SetupError::TimedOut(wait));
        }
        if bytes.is_empty() {
            return ResponderStep::Pending;
        }
        if wait == Wait::Decision {
            return self.fail(SetupError::BytesBehindRequest);
        }
        match self.parser.feed(bytes) {
            Ok((_, None)) => ResponderStep::Pending,
            Ok((taken, Some(_))) if taken < bytes.len() => {
                self.fail(SetupError::BytesBehindRequest)
            }
            Ok((_, Some(request))) => self.consider(request, now),
            Err(error) => self.fail(error),
        }
    }

    /// Gives up if the deadline has passed.
    pub fn expire(&mut self, now: Instant) -> ResponderStep {
        match self.awaited() {
            Some(wait) if now >= self.deadline => self.fail(SetupError::TimedOut(wait)),
            _ => ResponderStep::Pending,
        }
    }

    /// Reports that the peer closed or reset TCP.
    pub fn peer_closed(&mut self) -> ResponderStep {
        if self.awaited().is_none() {
            return self.failure(SetupError::OutOfOrder);
        }
        let silent = self.parser.is_empty();
        self.fail(if silent {
            SetupError::ClosedUnanswered
        } else {
            SetupError::Closed
        })
    }

    /// Accepts the request and makes the reply. FPDUs are read from now on, but none may be sent
    /// before the initiator's first ([`super::StartGate`]).
    ///
    /// # Errors
    ///
    /// [`DecisionError`]; nothing has changed then.
    pub fn accept(&mut self, parameters: &AcceptParameters) -> Result<Negotiated, DecisionError> {
        let request = self.pending()?;
        let config = ResponderConfig {
            ird: parameters.ird,
            ord: parameters.ord,
            ..self.config.clone()
        };
        config.validate()?;
        let terms = request
            .connection_data
            .map(|data| negotiate::accept(&data, &config));
        let reply = terms.map(|terms| terms.reply);
        let crc = config.crc || request.crc;
        let negotiated = Negotiated {
            role: Role::Responder,
            revision: request.revision.min(REVISION_ENHANCED),
            enhanced: reply.is_some(),
            crc,
            send_markers: request.markers,
            ird: terms.map_or(config.ird, |terms| terms.ird),
            ord: terms.map_or(config.ord, |terms| terms.ord),
            peer: request.connection_data,
            peer_to_peer: reply.is_some_and(|reply| reply.peer_to_peer),
            rtr_to_send: None,
            rtr_expected: reply.map_or(RtrKinds::NONE, |reply| reply.rtr),
            private_data: request.private_data.clone(),
        };
        self.answer(false, reply, parameters.private_data.clone())?;
        self.config = config;
        Ok(negotiated)
    }

    /// Rejects the request and makes the reply. `required_ord` tells the initiator how many reads
    /// it would have to serve; an unenhanced reply has no place for it.
    ///
    /// # Errors
    ///
    /// [`DecisionError`]; nothing has changed then.
    pub fn reject(
        &mut self,
        private_data: &[u8],
        required_ord: Option<u16>,
    ) -> Result<(), DecisionError> {
        let request = self.pending()?;
        let data = request.connection_data;
        let data = data.map(|data| negotiate::reject(&data, &self.config, required_ord));
        self.answer(true, data, private_data.to_vec())
    }

    fn consider(&mut self, request: Frame, now: Instant) -> ResponderStep {
        if request.connection_data.is_some() && !self.config.enhanced {
            return self.fail(SetupError::EnhancedOff);
        }
        let terms = request
            .connection_data
            .map(|data| negotiate::accept(&data, &self.config));
        let shown = MpaRequest {
            revision: request.revision,
            peer: request.connection_data,
            private_data: request.private_data.clone(),
            ird: terms.map_or(self.config.ird, |terms| terms.ird),
            ord: terms.map_or(self.config.ord, |terms| terms.ord),
        };
        let data = request.connection_data;
        self.request = Some(request);
        if let Some(peer) = data
            && let Some(required) = negotiate::shortfall(&peer, &self.config)
        {
            let reply = negotiate::reject(&peer, &self.config, Some(required));
            return match self.answer(true, Some(reply), Vec::new()) {
                Ok(()) => ResponderStep::Refused { peer },
                Err(_) => self.fail(SetupError::OutOfOrder),
            };
        }
        self.enter(ResponderState::Deciding);
        self.deadline = now + self.config.decision_wait;
        ResponderStep::Request(shown)
    }

    /// Makes the reply. Its form follows the request: enhanced to enhanced, plain to plain
    /// (RFC 6581 section 10); the CRC flag says what holds, which is at once this side's wish.
    fn answer(
        &mut self,
        reject: bool,
        connection_data: Option<ConnectionData>,
        private_data: Vec<u8>,
    ) -> Result<(), DecisionError> {
        let request = self.request.as_ref().ok_or(DecisionError::NoRequest)?;
        let frame = Frame {
            kind: FrameKind::Reply,
            markers: false,
            crc: self.config.crc || request.crc,
            reject,
            revision: request.revision.min(REVISION_ENHANCED),
            connection_data,
            private_data,
        };
        self.reply = frame.encode()?;
        self.request = None;
        self.enter(if reject {
            ResponderState::Rejected
        } else {
            ResponderState::Accepted
        });
        Ok(())
    }

    fn pending(&self) -> Result<&Frame, DecisionError> {
        match (&self.request, self.state) {
            (Some(request), ResponderState::Deciding) => Ok(request),
            _ => Err(DecisionError::NoRequest),
        }
    }

    fn awaited(&self) -> Option<Wait> {
        match self.state {
            ResponderState::Waiting => Some(Wait::Request),
            ResponderState::Deciding => Some(Wait::Decision),
            _ => None,
        }
    }

    fn fail(&mut self, error: SetupError) -> ResponderStep {
        let step = self.failure(error);
        self.request = None;
        self.enter(ResponderState::Failed);
        step
    }

    fn failure(&self, error: SetupError) -> ResponderStep {
        let stage = match self.state {
            ResponderState::Accepted => Stage::AwaitingFirst,
            _ => Stage::AwaitingRequest,
        };
        ResponderStep::Failed(Failure {
            error,
            disposal: disposal(stage, error.code()),
            framing: None,
        })
    }

    fn enter(&mut self, state: ResponderState) {
        debug_assert!(RESPONDER_TRANSITIONS.contains(&(self.state, state)));
        self.state = state;
    }
}
