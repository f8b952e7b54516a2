//! The side that sends the request (RFC 5044 section 7.1.2, RFC 6581 sections 9 and 10).

use std::time::Instant;

use super::config::{ConfigError, InitiatorConfig};
use super::connection_data::RtrKinds;
use super::error::{SetupError, Stage, Wait, disposal};
use super::frame::{Frame, FrameKind, FrameParser, REVISION_ENHANCED, REVISION_PLAIN};
use super::negotiate;
use super::outcome::{Failure, Framing, Negotiated, Rejection, Role};

/// The state of an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InitiatorState {
    /// The request is being sent, or its reply awaited.
    Waiting,
    /// An accepting reply came and was applied.
    Established,
    /// A rejecting reply came.
    Rejected,
    /// The setup failed.
    Failed,
}

/// All that may happen to an initiator, as pairs of states. Nothing leaves the last three.
pub const INITIATOR_TRANSITIONS: [(InitiatorState, InitiatorState); 3] = [
    (InitiatorState::Waiting, InitiatorState::Established),
    (InitiatorState::Waiting, InitiatorState::Rejected),
    (InitiatorState::Waiting, InitiatorState::Failed),
];

/// How far the setup has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorStep {
    /// More bytes are needed.
    Pending,
    /// The connection is established. In the peer-to-peer model the application is notified only
    /// when the indication has been sent (RFC 6581 section 5).
    Established(Negotiated),
    /// The responder rejected. TCP is open and may be closed.
    Rejected(Rejection),
    /// The setup failed; end the connection as [`Failure::disposal`] says.
    Failed(Failure),
}

/// One connection setup from the initiator's side.
#[derive(Debug)]
pub struct Initiator {
    config: InitiatorConfig,
    state: InitiatorState,
    request: Vec<u8>,
    sent: usize,
    parser: FrameParser,
    deadline: Instant,
}

impl Initiator {
    /// Prepares the request. `now` starts the time for the reply.
    ///
    /// # Errors
    ///
    /// Settings that cannot be honoured, see [`InitiatorConfig::validate`].
    pub fn new(config: InitiatorConfig, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        let enhanced = config.asks_enhanced();
        let frame = Frame {
            kind: FrameKind::Request,
            markers: false,
            crc: config.crc,
            reject: false,
            revision: if enhanced {
                REVISION_ENHANCED
            } else {
                REVISION_PLAIN
            },
            connection_data: enhanced.then(|| negotiate::request(&config)),
            private_data: config.private_data.clone(),
        };
        let request = frame.encode()?;
        Ok(Self {
            state: InitiatorState::Waiting,
            request,
            sent: 0,
            parser: FrameParser::new(FrameKind::Reply),
            deadline: now + config.reply_wait,
            config,
        })
    }

    /// The state of the setup.
    #[must_use]
    pub fn state(&self) -> InitiatorState {
        self.state
    }

    /// Bytes to send now.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.request[self.sent..]
    }

    /// Reports that the first `count` bytes of [`Initiator::output`] went out.
    pub fn sent(&mut self, count: usize) {
        self.sent = self.request.len().min(self.sent + count);
    }

    /// When [`Initiator::expire`] is to be called; `None` once the setup is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.state == InitiatorState::Waiting).then_some(self.deadline)
    }

    /// Takes bytes that arrived. Returns how many belong to the reply: those behind it are the
    /// start of FPDU mode and stay with the caller.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) -> (usize, InitiatorStep) {
        if self.state != InitiatorState::Waiting {
            return (0, failed(SetupError::OutOfOrder, None));
        }
        if now >= self.deadline {
            return (0, self.fail(SetupError::TimedOut(Wait::Reply), None));
        }
        if bytes.is_empty() {
            return (0, InitiatorStep::Pending);
        }
        if !self.output().is_empty() {
            return (0, self.fail(SetupError::PrematureReply, None));
        }
        match self.parser.feed(bytes) {
            Ok((taken, None)) => (taken, InitiatorStep::Pending),
            Ok((taken, Some(reply))) => (taken, self.conclude(reply)),
            Err(error) => (0, self.fail(error, None)),
        }
    }

    /// Gives up if the deadline has passed.
    pub fn expire(&mut self, now: Instant) -> InitiatorStep {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            return self.fail(SetupError::TimedOut(Wait::Reply), None);
        }
        InitiatorStep::Pending
    }

    /// Reports that the peer closed or reset TCP.
    pub fn peer_closed(&mut self) -> InitiatorStep {
        if self.state != InitiatorState::Waiting {
            return failed(SetupError::OutOfOrder, None);
        }
        let unanswered = self.parser.is_empty();
        let error = if unanswered {
            SetupError::ClosedUnanswered
        } else {
            SetupError::Closed
        };
        self.fail(error, None)
    }

    fn conclude(&mut self, reply: Frame) -> InitiatorStep {
        let asked = self.config.asks_enhanced();
        match (asked, reply.connection_data.is_some()) {
            (true, false) => return self.fail(SetupError::ReplyNotEnhanced, None),
            (false, true) => return self.fail(SetupError::ReplyEnhanced, None),
            _ => {}
        }
        if reply.reject {
            self.enter(InitiatorState::Rejected);
            return InitiatorStep::Rejected(Rejection {
                peer: reply.connection_data,
                private_data: reply.private_data,
            });
        }
        let framing = Framing {
            crc: self.config.crc || reply.crc,
            send_markers: reply.markers,
        };
        let (ird, ord, rtr) = match &reply.connection_data {
            None => (self.config.ird, self.config.ord, None),
            Some(data) => match negotiate::conclude(data, &self.config) {
                Ok(terms) => (terms.ird, terms.ord, terms.rtr),
                Err(error) => return self.fail(error, Some(framing)),
            },
        };
        self.enter(InitiatorState::Established);
        InitiatorStep::Established(Negotiated {
            role: Role::Initiator,
            revision: reply.revision,
            enhanced: asked,
            crc: framing.crc,
            send_markers: framing.send_markers,
            ird,
            ord,
            peer: reply.connection_data,
            peer_to_peer: rtr.is_some(),
            rtr_to_send: rtr,
            rtr_expected: RtrKinds::NONE,
            private_data: reply.private_data,
        })
    }

    fn fail(&mut self, error: SetupError, framing: Option<Framing>) -> InitiatorStep {
        self.enter(InitiatorState::Failed);
        failed(error, framing)
    }

    fn enter(&mut self, state: InitiatorState) {
        debug_assert!(INITIATOR_TRANSITIONS.contains(&(self.state, state)));
        self.state = state;
    }
}

/// With `framing` an accepting reply has come, so that a Terminate message may be sent.
fn failed(error: SetupError, framing: Option<Framing>) -> InitiatorStep {
    let stage = if framing.is_some() {
        Stage::Flowing
    } else {
        Stage::AwaitingReply
    };
    InitiatorStep::Failed(Failure {
        error,
        disposal: disposal(stage, error.code()),
        framing,
    })
}
