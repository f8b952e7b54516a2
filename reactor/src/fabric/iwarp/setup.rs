//! Connection setup over a socket (RFC 5044 section 7.1, RFC 6581).

use std::os::fd::AsFd;
use std::time::Instant;

use millrace_iwarp::mpa::{
    AcceptParameters, Disposal, Failure, Initiator, InitiatorStep, MpaCode, MpaRequest, Negotiated,
    Rejection, Responder, ResponderStep, Role, RtrKinds, SetupError, StartGate,
};
use millrace_iwarp::{Fault, Parameters, Stop};
use rustix::net::{RecvFlags, SendFlags};

use super::connection::{Connector, IwarpConnection, IwarpPhase, depths};
use super::shared::IwarpShared;
use super::socket;
use crate::fabric::{
    ConnectParameters, Ended, Event, PostError, PrivateData, QueuePairLimits, ReadDepths,
};

/// Bytes received at once during setup: no frame is longer.
const SETUP_BYTES: usize = 1024;

impl IwarpConnection {
    /// Advances the setup; returns whether anything happened.
    pub(super) fn set_up(&mut self, now: Instant, shared: &mut IwarpShared) -> bool {
        match &self.phase {
            IwarpPhase::Connecting(_) => self.connecting(now, shared),
            IwarpPhase::Initiating(..) => self.initiating(now, shared),
            IwarpPhase::Responding(_) | IwarpPhase::Deciding(_) => self.responding(now, shared),
            IwarpPhase::Replying(..) => self.replying(shared),
            _ => false,
        }
    }

    fn connecting(&mut self, now: Instant, shared: &mut IwarpShared) -> bool {
        match socket::connected(self.socket.as_fd()) {
            None => return false,
            Some(Err(error)) => {
                self.setup_failed(Ended::Network(error.kind()), shared);
                return true;
            }
            Some(Ok(())) => {}
        }
        let IwarpPhase::Connecting(connector) = self.take_phase() else {
            return false;
        };
        match Initiator::new(connector.config.clone(), now) {
            Ok(initiator) => {
                let deadline = initiator.deadline();
                self.phase = IwarpPhase::Initiating(connector, Box::new(initiator));
                self.writable = true;
                self.set_deadline(deadline, shared);
                self.initiating(now, shared);
            }
            Err(_) => self.setup_failed(Ended::Setup("settings that are not supported"), shared),
        }
        true
    }

    fn initiating(&mut self, now: Instant, shared: &mut IwarpShared) -> bool {
        let IwarpPhase::Initiating(_, initiator) = &mut self.phase else {
            return false;
        };
        if self.writable && !initiator.output().is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(&self.socket, initiator.output(), flags) {
                Ok(count) => initiator.sent(count),
                Err(rustix::io::Errno::AGAIN) => self.writable = false,
                Err(error) => {
                    self.setup_failed(Ended::Network(error.kind()), shared);
                    return true;
                }
            }
        }
        if !self.readable {
            return false;
        }
        let mut bytes = [0; SETUP_BYTES];
        let (rest, step) = match self.receive_some(&mut bytes) {
            Received::Nothing => return false,
            Received::Failed(kind) if kind != std::io::ErrorKind::ConnectionReset => {
                self.setup_failed(Ended::Network(kind), shared);
                return true;
            }
            // A responder that closes before it has read the whole request causes a reset.
            Received::Failed(_) | Received::End => {
                let IwarpPhase::Initiating(_, initiator) = &mut self.phase else {
                    return false;
                };
                (&[][..], initiator.peer_closed())
            }
            Received::Bytes(count) => {
                let IwarpPhase::Initiating(_, initiator) = &mut self.phase else {
                    return false;
                };
                let (taken, step) = initiator.feed(&bytes[..count], now);
                (&bytes[taken..count], step)
            }
        };
        match step {
            InitiatorStep::Pending => {}
            InitiatorStep::Established(negotiated) => {
                self.initiator_established(&negotiated, shared);
                // Bytes after the reply are the start of the stream.
                if let Err(stop) = self.endpoint.receive(rest) {
                    self.stopped(stop, now, shared);
                }
            }
            InitiatorStep::Rejected(rejection) => self.rejected(&rejection, shared),
            InitiatorStep::Failed(failure) => self.initiator_failed(&failure, now, shared),
        }
        true
    }

    fn initiator_established(&mut self, negotiated: &Negotiated, shared: &mut IwarpShared) {
        let parameters = Parameters {
            ulpdu: shared.config.ulpdu,
            ..Parameters::new(negotiated)
        };
        self.endpoint.start(parameters);
        self.phase = IwarpPhase::Running;
        self.deadline = None;
        shared.counters.fabric.established.add(1);
        let event = Event::Established {
            queue_pair: self.id,
            private_data: private_data(&negotiated.private_data),
            depths: depths(negotiated),
        };
        if self.endpoint.is_indication_sent() {
            self.announcements.push_back(event);
        } else {
            self.established = Some(event);
        }
    }

    fn rejected(&mut self, rejection: &Rejection, shared: &mut IwarpShared) {
        self.announcements.push_back(Event::Rejected {
            queue_pair: self.id,
            private_data: private_data(&rejection.private_data),
            depths: ReadDepths {
                peer_ird: rejection.peer.map(|peer| peer.ird),
                peer_ord: rejection.peer.map(|peer| peer.ord),
                ird: 0,
                ord: 0,
            },
        });
        // The event is sufficient: posted work is dropped and no other event follows.
        self.is_known = false;
        self.end(Ended::Peer, shared);
        while self.endpoint.take_completion().is_some() {}
    }

    fn initiator_failed(&mut self, failure: &Failure, now: Instant, shared: &mut IwarpShared) {
        if let (Disposal::Terminate(code), Some(framing)) = (failure.disposal, failure.framing) {
            let gate = StartGate::new(&Negotiated {
                role: Role::Initiator,
                revision: 2,
                enhanced: true,
                crc: framing.crc,
                send_markers: framing.send_markers,
                ird: 0,
                ord: 0,
                peer: None,
                peer_to_peer: false,
                rtr_to_send: None,
                rtr_expected: RtrKinds::NONE,
                private_data: Vec::new(),
            });
            self.endpoint.start(Parameters {
                crc: framing.crc,
                markers: framing.send_markers,
                ird: 0,
                ord: 0,
                ulpdu: shared.config.ulpdu,
                gate,
            });
            let fault = match code {
                MpaCode::InsufficientIrd => Fault::ReadDepth,
                MpaCode::NoMatchingRtr => Fault::NoReadyToReceive,
                _ => Fault::SetupCatastrophic,
            };
            self.endpoint.fail(fault);
            shared.counters.fabric.setups_failed.add(1);
            self.stopped(Stop::Fault(fault), now, shared);
            return;
        }
        let IwarpPhase::Initiating(mut connector, _) = self.take_phase() else {
            return;
        };
        if let Some(config) = connector.fallback.retry(&connector.config, failure.error) {
            connector.config = config;
            match self.connect_again(now, shared) {
                Ok(()) => self.phase = IwarpPhase::Connecting(connector),
                Err(error) => self.setup_failed(Ended::Network(error.kind()), shared),
            }
            return;
        }
        self.setup_failed(reason(failure.error), shared);
    }

    fn connect_again(&mut self, now: Instant, shared: &mut IwarpShared) -> std::io::Result<()> {
        self.socket = socket::connect(self.peer, &shared.config)?;
        shared.watch(&self.socket, u64::from(self.id.index))?;
        (self.readable, self.writable, self.hung_up) = (false, false, false);
        let deadline = now + shared.config.connect_wait;
        self.set_deadline(Some(deadline), shared);
        Ok(())
    }

    fn responding(&mut self, now: Instant, shared: &mut IwarpShared) -> bool {
        if !self.readable {
            return false;
        }
        let mut bytes = [0; SETUP_BYTES];
        let received = self.receive_some(&mut bytes);
        let (IwarpPhase::Responding(responder) | IwarpPhase::Deciding(responder)) = &mut self.phase
        else {
            return false;
        };
        let step = match received {
            Received::Nothing => return false,
            Received::Failed(kind) => {
                self.setup_failed(Ended::Network(kind), shared);
                return true;
            }
            Received::End => responder.peer_closed(),
            Received::Bytes(count) => responder.feed(&bytes[..count], now),
        };
        match step {
            ResponderStep::Pending => {}
            ResponderStep::Request(request) => self.requested(&request, shared),
            // Not enabled here: nothing is refused automatically.
            ResponderStep::Refused { .. } => {
                self.setup_failed(Ended::Setup("too few reads offered"), shared);
            }
            ResponderStep::Failed(failure) => self.setup_failed(reason(failure.error), shared),
        }
        true
    }

    fn requested(&mut self, request: &MpaRequest, shared: &mut IwarpShared) {
        let IwarpPhase::Responding(responder) = self.take_phase() else {
            return;
        };
        self.set_deadline(responder.deadline(), shared);
        self.phase = IwarpPhase::Deciding(responder);
        self.is_known = true;
        let Some(listener) = self.listener else {
            return;
        };
        self.announcements.push_back(Event::ConnectRequest {
            queue_pair: self.id,
            listener,
            peer: self.peer,
            private_data: private_data(&request.private_data),
            depths: ReadDepths {
                peer_ird: request.peer.map(|peer| peer.ird),
                peer_ord: request.peer.map(|peer| peer.ord),
                ird: request.ird,
                ord: request.ord,
            },
        });
    }

    /// The application accepts. Queue depths stay those of the listener, since work may have been
    /// posted already; read depths may be lowered.
    pub(super) fn accept(
        &mut self,
        parameters: &ConnectParameters,
        shared: &mut IwarpShared,
    ) -> Result<(), PostError> {
        let IwarpPhase::Deciding(responder) = &mut self.phase else {
            return Err(PostError::Closed);
        };
        let QueuePairLimits { ird, ord, .. } = parameters.limits;
        let negotiated = responder
            .accept(&AcceptParameters {
                ird: ird.min(self.limits.ird).min(shared.config.ird_limit),
                ord: ord.min(self.limits.ord),
                private_data: parameters.private_data.to_vec(),
            })
            .map_err(|_| PostError::Closed)?;
        let IwarpPhase::Deciding(responder) = self.take_phase() else {
            return Err(PostError::Closed);
        };
        let start = Parameters {
            ulpdu: shared.config.ulpdu,
            ..Parameters::new(&negotiated)
        };
        self.endpoint.start(start);
        self.phase = IwarpPhase::Replying(responder, Box::new(negotiated));
        self.replying(shared);
        Ok(())
    }

    fn replying(&mut self, shared: &mut IwarpShared) -> bool {
        let IwarpPhase::Replying(responder, negotiated) = &mut self.phase else {
            return false;
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&self.socket, responder.output(), flags) {
            Ok(count) => responder.sent(count),
            Err(rustix::io::Errno::AGAIN) => {}
            Err(error) => {
                self.setup_failed(Ended::Network(error.kind()), shared);
                return true;
            }
        }
        if !responder.output().is_empty() {
            return false;
        }
        let event = Event::Established {
            queue_pair: self.id,
            private_data: PrivateData::new(),
            depths: depths(negotiated),
        };
        self.announcements.push_back(event);
        self.deadline = None;
        self.phase = IwarpPhase::Running;
        shared.counters.fabric.established.add(1);
        true
    }

    /// The application rejects. Returns the bytes that cannot be sent at once.
    pub(super) fn reject(&mut self, private_data: &[u8]) -> Vec<u8> {
        let IwarpPhase::Deciding(responder) = &mut self.phase else {
            return Vec::new();
        };
        match responder.reject(private_data, None) {
            Ok(()) => responder.output().to_vec(),
            Err(_) => Vec::new(),
        }
    }

    fn take_phase(&mut self) -> IwarpPhase {
        std::mem::replace(&mut self.phase, IwarpPhase::Running)
    }

    fn receive_some(&mut self, bytes: &mut [u8]) -> Received {
        let length = bytes.len();
        match rustix::net::recv(&self.socket, &mut bytes[..length], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Received::End,
            Ok((_, count)) => {
                self.readable = count == length || self.hung_up;
                Received::Bytes(count)
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.readable = false;
                Received::Nothing
            }
            Err(error) => Received::Failed(error.kind()),
        }
    }
}

enum Received {
    Nothing,
    Bytes(usize),
    End,
    Failed(std::io::ErrorKind),
}

/// A connector for these parameters.
pub(super) fn connector(
    parameters: &ConnectParameters,
    peer: std::net::SocketAddr,
    shared: &IwarpShared,
) -> Connector {
    let config = &shared.config;
    Connector {
        config: millrace_iwarp::mpa::InitiatorConfig {
            enhanced: config.enhanced,
            exchange_depths: config.enhanced && config.exchange_depths,
            peer_to_peer: config.enhanced && config.peer_to_peer,
            rtr: config.indications,
            crc: config.crc.wants(peer),
            ird: parameters.limits.ird.min(config.ird_limit),
            ird_limit: config.ird_limit,
            ord: parameters.limits.ord,
            private_data: parameters.private_data.to_vec(),
            reply_wait: config.reply_wait,
        },
        fallback: millrace_iwarp::mpa::Fallback::new(config.fallback),
    }
}

/// A responder for connections with these limits.
pub(super) fn responder(
    limits: &QueuePairLimits,
    peer: std::net::SocketAddr,
    now: Instant,
    shared: &IwarpShared,
) -> Option<Responder> {
    let config = &shared.config;
    let settings = millrace_iwarp::mpa::ResponderConfig {
        enhanced: config.enhanced,
        rtr: config.indications,
        crc: config.crc.wants(peer),
        ird: limits.ird.min(config.ird_limit),
        ord: limits.ord,
        required_ord: 0,
        request_wait: config.request_wait,
        decision_wait: config.decision_wait,
    };
    Responder::new(settings, now).ok()
}

/// The private data for the application: frames without connection data have four bytes more than
/// its type can hold, which no peer uses.
fn private_data(bytes: &[u8]) -> PrivateData {
    bytes
        .iter()
        .copied()
        .take(crate::fabric::PRIVATE_DATA_MAX)
        .collect()
}

fn reason(error: SetupError) -> Ended {
    Ended::Setup(match error {
        SetupError::Key => "a frame with another key",
        SetupError::Revision(_) => "an unknown revision",
        SetupError::PrivateDataLength(_) => "too much private data",
        SetupError::ConnectionDataMissing(_) => "an enhanced frame without connection data",
        SetupError::EnhancedOff => "an enhanced request, and enhanced setup is switched off",
        SetupError::BytesBehindRequest => "bytes behind the request",
        SetupError::PrematureReply => "a reply before the request",
        SetupError::ReplyNotEnhanced => "an unenhanced reply to an enhanced request",
        SetupError::ReplyEnhanced => "an enhanced reply to an unenhanced request",
        SetupError::TimedOut(_) => return Ended::TimedOut("connection setup"),
        SetupError::ClosedUnanswered => "closed without an answer",
        SetupError::Closed => "closed in the middle",
        SetupError::InsufficientIrd { .. } => "the peer wants more reads served than allowed",
        SetupError::NoMatchingRtr => "no common ready-to-receive indication",
        SetupError::OutOfOrder => "out of order",
    })
}
