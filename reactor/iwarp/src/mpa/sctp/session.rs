//! One end of a DDP stream session (RFC 5043 section 6, RFC 6581 section 7).

use std::collections::VecDeque;
use std::time::Instant;

use super::event::{SessionEnd, SessionError, SessionEvent, SessionRejection, SessionRequest};
use super::message::{CONTROL_IDENTIFIER, ControlMessage, Function, SEGMENT_IDENTIFIER};
use super::order::Order;
use crate::header::{Model, Opcode, Segment, UNTAGGED_BYTES, Untagged};
use crate::mpa::config::{ConfigError, InitiatorConfig, ResponderConfig};
use crate::mpa::connection_data::ConnectionData;
use crate::mpa::error::{MpaCode, SetupError, Wait};
use crate::mpa::negotiate;
use crate::mpa::outcome::Role;
use crate::mpa::responder::AcceptParameters;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Passive: nothing has come.
    AwaitingInitiate,
    /// Passive: the application decides.
    Deciding,
    /// Active: the Initiate is made, its answer awaited.
    AwaitingReply,
    /// Accepted: both sides may send segments, either of them first.
    Established,
    /// Over, in whichever way. What still arrives is dropped.
    Ended,
}

/// All that may happen to a session, as pairs of states. Nothing leaves the last.
pub const SESSION_TRANSITIONS: [(SessionState, SessionState); 7] = [
    (SessionState::AwaitingInitiate, SessionState::Deciding),
    (SessionState::AwaitingInitiate, SessionState::Ended),
    (SessionState::Deciding, SessionState::Established),
    (SessionState::Deciding, SessionState::Ended),
    (SessionState::AwaitingReply, SessionState::Established),
    (SessionState::AwaitingReply, SessionState::Ended),
    (SessionState::Established, SessionState::Ended),
];

/// The payload of one SCTP data chunk, to be sent unordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SctpPayload {
    /// [`CONTROL_IDENTIFIER`] or [`SEGMENT_IDENTIFIER`].
    pub identifier: u32,
    /// The payload, beginning with the sequence number.
    pub bytes: Vec<u8>,
}

/// What an established session has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTerms {
    /// This side.
    pub role: Role,
    /// Connection data was exchanged.
    pub enhanced: bool,
    /// Reads of the peer's to serve at once.
    pub ird: u16,
    /// Reads that may be open at once. 0: none at all.
    pub ord: u16,
    /// The peer's connection data as it stood on the wire, 0x3FFF included.
    pub peer: Option<ConnectionData>,
    /// The peer-to-peer model was agreed. No indication is due: either side may send first.
    pub peer_to_peer: bool,
    /// The peer's private data, without the connection data.
    pub private_data: Vec<u8>,
}

/// Why the application rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectCause {
    /// For a reason that has nothing to do with the enhancements: an ordinary Reject.
    Session,
    /// Because of the enhancements alone. To an enhanced Initiate this is an Enhanced Reject, so
    /// that the peer knows that trying without them is worth it.
    Enhancements,
}

/// A call that the session's state does not allow. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UseError {
    /// No such step now.
    #[error("the session is {0:?}")]
    State(SessionState),
    /// The parameters cannot be honoured.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

#[derive(Debug)]
enum Side {
    Active(InitiatorConfig),
    Passive(ResponderConfig),
}

#[derive(Debug)]
enum Arrived {
    Control(ControlMessage),
    Segment(Vec<u8>),
}

/// One end of a DDP stream session. CRC and marker settings mean nothing here.
#[derive(Debug)]
pub struct Session {
    side: Side,
    state: SessionState,
    request: Option<ControlMessage>,
    incoming: Order<Arrived>,
    events: VecDeque<SessionEvent>,
    outgoing: VecDeque<SctpPayload>,
    next_sequence: u16,
    /// A control message is out, and nothing shows that the peer has it.
    unconfirmed: bool,
    deadline: Option<Instant>,
}

impl Session {
    /// Asks for a session. `now` starts the time for the answer.
    ///
    /// # Errors
    ///
    /// Settings that cannot be honoured, see [`InitiatorConfig::validate`].
    pub fn initiate(config: InitiatorConfig, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        let enhanced = config.asks_enhanced();
        let (function, data) = if enhanced {
            let data = negotiate::request(&config);
            (Function::EnhancedInitiate, Some(data))
        } else {
            (Function::Initiate, None)
        };
        let private_data = config.private_data.clone();
        let deadline = now + config.reply_wait;
        let mut session = Self::new(Side::Active(config), SessionState::AwaitingReply, deadline);
        session.send_control(function, data, private_data)?;
        Ok(session)
    }

    /// Waits for an Initiate. `now` starts the time for it.
    ///
    /// # Errors
    ///
    /// Settings that cannot be honoured, see [`ResponderConfig::validate`].
    pub fn listen(config: ResponderConfig, now: Instant) -> Result<Self, ConfigError> {
        config.validate()?;
        let deadline = now + config.request_wait;
        let state = SessionState::AwaitingInitiate;
        Ok(Self::new(Side::Passive(config), state, deadline))
    }

    fn new(side: Side, state: SessionState, deadline: Instant) -> Self {
        Self {
            side,
            state,
            request: None,
            incoming: Order::default(),
            events: VecDeque::new(),
            outgoing: VecDeque::new(),
            next_sequence: 0,
            unconfirmed: false,
            deadline: Some(deadline),
        }
    }

    /// The session's state.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// When [`Session::expire`] is to be called; `None` once the setup is over.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The next event, in order.
    pub fn event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// The next chunk to send. A control message is withheld while the one before it may still be
    /// on its way (RFC 5043 section 6.6), see [`Session::confirmed`].
    pub fn output(&mut self) -> Option<SctpPayload> {
        let control = self.outgoing.front()?.identifier == CONTROL_IDENTIFIER;
        if control && self.unconfirmed {
            return None;
        }
        self.unconfirmed |= control;
        self.outgoing.pop_front()
    }

    /// Reports that SCTP has had all that was sent acknowledged.
    pub fn confirmed(&mut self) {
        self.unconfirmed = false;
    }

    /// Takes the payload of a data chunk. What it leads to shows in [`Session::event`] and
    /// [`Session::output`].
    pub fn receive(&mut self, identifier: u32, bytes: &[u8], now: Instant) {
        self.expire(now);
        if self.state == SessionState::Ended {
            return;
        }
        let (sequence, arrived) = match identifier {
            CONTROL_IDENTIFIER => match ControlMessage::decode(bytes) {
                Ok(message) => (message.sequence, Arrived::Control(message)),
                Err(error) => return self.fail(error.into(), true),
            },
            SEGMENT_IDENTIFIER => match bytes.split_first_chunk() {
                Some((number, segment)) => {
                    let number = u16::from_be_bytes(*number);
                    (number, Arrived::Segment(segment.to_vec()))
                }
                None => return self.fail(SessionError::Short(bytes.len()), true),
            },
            other => return self.fail(SessionError::Identifier(other), true),
        };
        if let Err(error) = self.incoming.push(sequence, bytes.len(), arrived) {
            return self.fail(error.into(), true);
        }
        while self.state != SessionState::Ended
            && let Some(arrived) = self.incoming.pop()
        {
            self.judge(arrived, now);
        }
    }

    /// Gives up if the deadline has passed.
    pub fn expire(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let wait = match self.state {
            SessionState::AwaitingInitiate => Wait::Request,
            SessionState::Deciding => Wait::Decision,
            _ => Wait::Reply,
        };
        // Without an Initiate there is no session to end.
        let tell = wait != Wait::Request;
        self.fail(SetupError::TimedOut(wait).into(), tell);
    }

    /// Reports that the association is gone.
    pub fn lost(&mut self) {
        self.outgoing.clear();
        if self.state != SessionState::Ended {
            self.fail(SetupError::Closed.into(), false);
        }
    }

    /// Accepts the session. Either side may send segments from now on.
    ///
    /// # Errors
    ///
    /// [`UseError`].
    pub fn accept(&mut self, parameters: &AcceptParameters) -> Result<SessionTerms, UseError> {
        let (request, config) = self.pending()?;
        let config = ResponderConfig {
            ird: parameters.ird,
            ord: parameters.ord,
            ..config.clone()
        };
        config.validate()?;
        let terms = request
            .connection_data
            .map(|data| negotiate::accept(&data, &config));
        let accepted = SessionTerms {
            role: Role::Responder,
            enhanced: terms.is_some(),
            ird: terms.map_or(config.ird, |terms| terms.ird),
            ord: terms.map_or(config.ord, |terms| terms.ord),
            peer: request.connection_data,
            peer_to_peer: terms.is_some_and(|terms| terms.reply.peer_to_peer),
            private_data: request.private_data.clone(),
        };
        let function = if terms.is_some() {
            Function::EnhancedAccept
        } else {
            Function::Accept
        };
        let reply = terms.map(|terms| terms.reply);
        self.send_control(function, reply, parameters.private_data.clone())?;
        self.request = None;
        self.enter(SessionState::Established);
        Ok(accepted)
    }

    /// Rejects the session at the application's wish.
    ///
    /// # Errors
    ///
    /// [`UseError`].
    pub fn reject(&mut self, private_data: &[u8], cause: RejectCause) -> Result<(), UseError> {
        let (request, _) = self.pending()?;
        let enhanced = request.connection_data.is_some() && cause == RejectCause::Enhancements;
        let function = if enhanced {
            Function::EnhancedReject
        } else {
            Function::Reject
        };
        self.send_control(function, None, private_data.to_vec())?;
        self.enter(SessionState::Ended);
        Ok(())
    }

    /// Ends the session with a Terminate behind all that is queued: also how the limit on sessions
    /// that await a decision refuses one without asking the application (RFC 5043 section 6.4). The
    /// function code is the same for both sides.
    ///
    /// # Errors
    ///
    /// [`UseError::State`] where there is no session.
    pub fn terminate(&mut self) -> Result<(), UseError> {
        if matches!(
            self.state,
            SessionState::AwaitingInitiate | SessionState::Ended
        ) {
            return Err(UseError::State(self.state));
        }
        self.send_control(Function::Terminate, None, Vec::new())?;
        self.enter(SessionState::Ended);
        Ok(())
    }

    /// Queues a DDP segment.
    ///
    /// # Errors
    ///
    /// [`UseError::State`] if the session is not established.
    pub fn send(&mut self, segment: &[u8]) -> Result<(), UseError> {
        if self.state != SessionState::Established {
            return Err(UseError::State(self.state));
        }
        self.queue_segment(segment);
        Ok(())
    }

    fn judge(&mut self, arrived: Arrived, now: Instant) {
        // Whatever is in order at these points answers the last control message, so that has come.
        if self.state != SessionState::AwaitingInitiate {
            self.unconfirmed = false;
        }
        match (self.state, arrived) {
            (SessionState::AwaitingInitiate, Arrived::Control(message))
                if matches!(
                    message.function,
                    Function::Initiate | Function::EnhancedInitiate
                ) =>
            {
                self.consider(message, now);
            }
            (SessionState::AwaitingReply, Arrived::Control(message)) => self.conclude(message),
            (SessionState::Established, Arrived::Segment(segment)) => {
                self.events.push_back(SessionEvent::Segment(segment));
            }
            (SessionState::Established, Arrived::Control(message))
                if message.function == Function::Terminate =>
            {
                self.end(SessionEnd::Terminated);
            }
            (_, Arrived::Control(message)) => self.illegal(Some(message.function)),
            (_, Arrived::Segment(_)) => self.illegal(None),
        }
    }

    /// Passive: an Initiate came.
    fn consider(&mut self, message: ControlMessage, now: Instant) {
        let Side::Passive(config) = &self.side else {
            return;
        };
        let terms = match message.connection_data {
            Some(_) if !config.enhanced => {
                return self.fail(SetupError::EnhancedOff.into(), true);
            }
            Some(data) => {
                let terms = negotiate::accept(&data, config);
                let unmatched = data.peer_to_peer && terms.reply.rtr.common(data.rtr).is_empty();
                let shortfall = negotiate::shortfall(&data, config);
                if unmatched || shortfall.is_some() {
                    // No application's private data is in the message, so it states the missing
                    // depth.
                    let needed = negotiate::reject(&data, config, shortfall).encode();
                    self.finish(Function::EnhancedReject, needed.to_vec());
                    return self.end(SessionEnd::RejectedHere { peer: data });
                }
                Some(terms)
            }
            None => None,
        };
        let request = SessionRequest {
            peer: message.connection_data,
            private_data: message.private_data.clone(),
            ird: terms.map_or(config.ird, |terms| terms.ird),
            ord: terms.map_or(config.ord, |terms| terms.ord),
        };
        self.deadline = Some(now + config.decision_wait);
        self.request = Some(message);
        self.enter(SessionState::Deciding);
        self.events.push_back(SessionEvent::Request(request));
    }

    /// Active: an answer arrived. Its form must be that of the Initiate; only an ordinary Reject
    /// answers both, since the enhancements may not be its reason.
    fn conclude(&mut self, message: ControlMessage) {
        let Side::Active(config) = &self.side else {
            return;
        };
        let enhanced = config.asks_enhanced();
        let (ird, ord, peer_to_peer) = match (message.function, enhanced) {
            (Function::Terminate, _) => return self.end(SessionEnd::Refused),
            (Function::Reject, _) | (Function::EnhancedReject, true) => {
                self.enter(SessionState::Ended);
                let rejection = SessionRejection {
                    enhanced: message.function == Function::EnhancedReject,
                    private_data: message.private_data,
                };
                return self.events.push_back(SessionEvent::Rejected(rejection));
            }
            (Function::Accept, false) => (config.ird, config.ord, false),
            (Function::EnhancedAccept, true) => {
                let data = message.connection_data.unwrap_or(ConnectionData::OPEN);
                match negotiate::conclude(&data, config) {
                    Ok(terms) => (terms.ird, terms.ord, terms.rtr.is_some()),
                    Err(error) => {
                        // The peer considers the session established, so the error is sent as a
                        // segment.
                        self.queue_segment(&terminate_segment(error.code()));
                        return self.fail(error.into(), true);
                    }
                }
            }
            (Function::Accept, true) => {
                return self.fail(SetupError::ReplyNotEnhanced.into(), true);
            }
            (Function::EnhancedAccept, false) => {
                return self.fail(SetupError::ReplyEnhanced.into(), true);
            }
            (other, _) => return self.illegal(Some(other)),
        };
        let terms = SessionTerms {
            role: Role::Initiator,
            enhanced,
            ird,
            ord,
            peer: message.connection_data,
            peer_to_peer,
            private_data: message.private_data,
        };
        self.enter(SessionState::Established);
        self.events.push_back(SessionEvent::Established(terms));
    }

    fn pending(&self) -> Result<(&ControlMessage, &ResponderConfig), UseError> {
        match (&self.request, &self.side, self.state) {
            (Some(request), Side::Passive(config), SessionState::Deciding) => Ok((request, config)),
            _ => Err(UseError::State(self.state)),
        }
    }

    fn send_control(
        &mut self,
        function: Function,
        connection_data: Option<ConnectionData>,
        private_data: Vec<u8>,
    ) -> Result<(), ConfigError> {
        let message = ControlMessage {
            sequence: self.next_sequence,
            function,
            connection_data,
            private_data,
        };
        let bytes = message.encode()?;
        self.queue(CONTROL_IDENTIFIER, bytes);
        Ok(())
    }

    /// Sends the last message of this side. Its private data is known to fit.
    fn finish(&mut self, function: Function, private_data: Vec<u8>) {
        let sent = self.send_control(function, None, private_data);
        debug_assert!(sent.is_ok());
    }

    fn queue_segment(&mut self, segment: &[u8]) {
        let mut bytes = self.next_sequence.to_be_bytes().to_vec();
        bytes.extend_from_slice(segment);
        self.queue(SEGMENT_IDENTIFIER, bytes);
    }

    fn queue(&mut self, identifier: u32, bytes: Vec<u8>) {
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.outgoing.push_back(SctpPayload { identifier, bytes });
    }

    fn illegal(&mut self, function: Option<Function>) {
        let state = self.state;
        let error = SessionError::Illegal { state, function };
        // The peer has ended the session itself.
        let over = function == Some(Function::Terminate);
        self.fail(error, !over);
    }

    fn fail(&mut self, error: SessionError, tell: bool) {
        if tell {
            self.finish(Function::Terminate, Vec::new());
        }
        self.end(SessionEnd::Failed(error));
    }

    fn end(&mut self, end: SessionEnd) {
        self.enter(SessionState::Ended);
        self.events.push_back(SessionEvent::Ended(end));
    }

    fn enter(&mut self, state: SessionState) {
        debug_assert!(SESSION_TRANSITIONS.contains(&(self.state, state)));
        if matches!(state, SessionState::Established | SessionState::Ended) {
            self.deadline = None;
        }
        if state == SessionState::Ended {
            self.request = None;
            self.incoming = Order::default();
        }
        self.state = state;
    }
}

/// The DDP segment of an RDMAP Terminate message (RFC 6581 section 8).
fn terminate_segment(code: MpaCode) -> Vec<u8> {
    let segment = Segment {
        opcode: Opcode::Terminate,
        last: true,
        model: Model::Untagged(Untagged {
            invalidate: 0,
            queue: 2,
            sequence: 1,
            offset: 0,
        }),
    };
    let mut bytes = vec![0; UNTAGGED_BYTES];
    let length = segment.encode(&mut bytes);
    bytes.truncate(length);
    let kind = MpaCode::LAYER << 4 | MpaCode::KIND;
    bytes.extend_from_slice(&[kind, code.value(), 0, 0]);
    bytes
}
