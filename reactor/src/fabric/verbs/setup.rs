//! Establishing connections: events of the connection manager, and the resulting actions.

use std::io;
use std::time::Duration;

use super::common::Common;
use super::connection::VerbsConnection;
use super::device_queues::DeviceQueues;
use super::phase::VerbsPhase;
use super::report::Transport;
use super::send_queue::SendLimits;
use super::sys::{
    ConnectionEvent, ConnectionEventKind, ConnectionId, ConnectionParameters, QueuePair,
    QueuePairAttributes, QueuePairState,
};
use crate::fabric::{ConnectParameters, Ended, Event, PostError, PrivateData, ReadDepths};

/// Retransmissions of a request that a peer does not confirm: the maximum.
const RETRIES: u8 = 7;

/// The same if a peer has no receive: unlimited, as it may only be late.
const RECEIVER_RETRIES: u8 = 7;

/// The initial capacity for messages waiting to be reported.
const ORDINARY_MESSAGES: usize = 32;

/// InfiniBand's number for a rejection by the application itself.
const REJECTED_BY_APPLICATION: i32 = 28;

/// InfiniBand's numbers for rejections after a timeout, and without a listener.
const REJECTED_LATE: i32 = 4;
const NOBODY_LISTENS: i32 = 8;

impl VerbsConnection {
    /// Sets the limits of its queue pair on the device that the connection manager has found.
    /// Nothing is allocated yet.
    pub(super) fn enter(&mut self, index: u32, queues: &mut DeviceQueues) {
        let bounds = queues.bounds(&self.limits);
        self.send.set_device(SendLimits {
            depth: 0,
            room: bounds.send_depth,
            ranges: bounds.send_ranges as usize,
            read_ranges: bounds.read_ranges as usize,
            signals_sends: queues.device.sends_by_reference(),
        });
        self.receive.bound(bounds.receive_depth);
        self.device_index = Some(index);
        queues.connections += 1;
        self.depths.ird = u16::from(bounds.responder_resources);
        self.depths.ord = u16::from(bounds.initiator_depth);
    }

    /// Makes its queue pair there.
    ///
    /// # Errors
    /// The device has no more, or was removed.
    pub(super) fn attach(&mut self, queues: &mut DeviceQueues) -> io::Result<()> {
        let manager = self.manager.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let (queue_pair, place) = queues.queue_pair(&queues.bounds(&self.limits))?;
        let attributes = attributes(manager, QueuePairState::Init);
        let number = queue_pair.number();
        // From here on it is ended in the regular order, whatever fails.
        self.place = Some(place);
        let mut has_room = true;
        if let Some(shared) = &mut queues.shared {
            shared.join(number, self.id.index);
            while has_room && let Some(buffer) = self.receive.take_waiting() {
                has_room = shared.post(buffer, &mut self.brought).is_ok();
            }
        }
        let initialized = attributes.and_then(|attributes| queue_pair.modify(&attributes));
        self.queue_pair = Some(queue_pair);
        if !has_room {
            return Err(io::Error::other("the shared receive queue is full"));
        }
        initialized
    }

    /// Brings the queue pair from its initial state to the state for messages. iWARP drivers do
    /// that themselves.
    fn bring_up(&self, transport: Transport) -> io::Result<()> {
        if transport == Transport::Iwarp {
            return Ok(());
        }
        let (Some(manager), Some(queue_pair)) = (&self.manager, &self.queue_pair) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // The initial state again: its attributes were not all known before.
        for state in [
            QueuePairState::Init,
            QueuePairState::ReadyToReceive,
            QueuePairState::ReadyToSend,
        ] {
            let mut attributes = attributes(manager, state)?;
            attributes.set_depths(byte(self.depths.ird), byte(self.depths.ord));
            queue_pair.modify(&attributes)?;
        }
        Ok(())
    }

    fn parameters<'a>(
        &self,
        private_data: &'a [u8],
        queues: &DeviceQueues,
    ) -> ConnectionParameters<'a> {
        ConnectionParameters {
            private_data,
            responder_resources: byte(self.depths.ird),
            initiator_depth: byte(self.depths.ord),
            retry_count: RETRIES,
            rnr_retry_count: RECEIVER_RETRIES,
            queue_pair: self.queue_pair.as_ref().map_or(0, QueuePair::number),
            shared_receive: queues.shared.is_some(),
        }
    }

    /// Sends the request to the peer.
    pub(super) fn ask(&mut self, queues: &mut DeviceQueues, common: &mut Common) {
        self.flush_receives(queues, common);
        let private_data = std::mem::take(&mut self.private_data);
        let parameters = self.parameters(&private_data, queues);
        let asked = self.manager.as_ref().map(|id| id.connect(&parameters));
        match asked {
            Some(Ok(())) => {
                self.course.asked();
            }
            Some(Err(error)) => self.fail(refused(&error, &private_data), common),
            None => {}
        }
    }

    /// The application accepts, so its queue pair is made. The depths of its queues are those of
    /// the listener, since work may have been posted already; read depths may be lowered.
    ///
    /// # Errors
    /// There is no request, or it is answered already.
    pub(super) fn accept(
        &mut self,
        parameters: &ConnectParameters,
        queues: &mut DeviceQueues,
        common: &mut Common,
    ) -> Result<(), PostError> {
        if self.phase() != VerbsPhase::Deciding {
            return Err(PostError::Closed);
        }
        let limits = &parameters.limits;
        self.depths.ird = self.depths.ird.min(limits.ird);
        self.depths.ord = self.depths.ord.min(limits.ord);
        if let Err(error) = self.attach(queues) {
            tracing::debug!(peer = %self.peer, %error, "no queue pair can be made");
            self.fail(Ended::Network(error.kind()), common);
        }
        self.flush_receives(queues, common);
        if self.course.is_ending() {
            // Its end is reported.
            return Ok(());
        }
        // On iWARP the connecting side sends first (RFC 5044 section 7.1.2): kernels treat data
        // that arrives together with the answer as an error.
        self.waits_for_peer = queues.device.transport() == Transport::Iwarp;
        let private_data = &parameters.private_data;
        let answer = self.parameters(private_data, queues);
        let outcome = self.bring_up(queues.device.transport()).and_then(|()| {
            let manager = self.manager.as_ref();
            manager.map_or(Ok(()), |manager| manager.accept(&answer))
        });
        if self.course.accepted(common.now, &common.config) {
            common.half_open -= 1;
        }
        self.set_deadline(common);
        if let Err(error) = outcome {
            self.fail(refused(&error, private_data), common);
        }
        Ok(())
    }

    /// The connection is established.
    pub(super) fn establish(&mut self, private_data: PrivateData, common: &Common) {
        if !self.course.established() {
            return;
        }
        common.counters.fabric.established.add(1);
        self.filled
            .reserve(self.receive.depth().min(ORDINARY_MESSAGES));
        self.announcements.push_back(Event::Established {
            queue_pair: self.id,
            private_data,
            depths: self.depths,
        });
        if !self.waits_for_peer {
            self.send.open(self.depths.ord);
        }
    }

    /// The peer has sent, so that messages may be sent to it.
    pub(super) fn heard(&mut self) {
        if std::mem::replace(&mut self.waits_for_peer, false) {
            self.send.open(self.depths.ord);
        }
    }

    /// Handles an event of the connection manager. The device queues are present once the
    /// connection has a device.
    pub(super) fn managed(
        &mut self,
        event: ConnectionEvent,
        queues: Option<&mut DeviceQueues>,
        common: &mut Common,
    ) {
        use ConnectionEventKind as Kind;
        match event.kind {
            Kind::AddressResolved => self.address_resolved(common),
            // The provider has found the device.
            Kind::RouteResolved => {
                if let (VerbsPhase::Routing, Some(queues)) = (self.phase(), queues) {
                    self.ask(queues, common);
                }
            }
            Kind::ConnectResponse => self.answered(event, queues, true, common),
            Kind::Established => match self.phase() {
                VerbsPhase::Accepting => self.establish(PrivateData::new(), common),
                _ => self.answered(event, queues, false, common),
            },
            Kind::Rejected => self.rejected(event, common),
            Kind::AddressError | Kind::RouteError | Kind::ConnectError => {
                self.fail(Ended::Network(error_kind(event.status)), common);
            }
            Kind::Unreachable => self.fail(Ended::TimedOut("the peer does not answer"), common),
            Kind::Disconnected => self.fail(Ended::Peer, common),
            Kind::DeviceRemoval => self.device_lost(common),
            Kind::AddressChange => {
                self.fail(Ended::Network(io::ErrorKind::AddrNotAvailable), common);
            }
            Kind::ConnectRequest | Kind::TimewaitExit | Kind::Other => {}
        }
    }

    fn address_resolved(&mut self, common: &mut Common) {
        let Some(manager) = &self.manager else {
            return;
        };
        let deadline = self.course.deadline();
        let left = deadline.map_or(Duration::ZERO, |deadline| {
            deadline.saturating_duration_since(common.now)
        });
        let begun = manager.resolve_route(left.max(Duration::from_millis(1)));
        if !self.course.resolved() {
            return;
        }
        if let Err(error) = begun {
            self.fail(Ended::Network(error.kind()), common);
        }
    }

    /// The peer has accepted; on InfiniBand our queue pair is not ready yet.
    fn answered(
        &mut self,
        event: ConnectionEvent,
        queues: Option<&mut DeviceQueues>,
        is_down: bool,
        common: &mut Common,
    ) {
        let (VerbsPhase::Connecting, Some(queues)) = (self.phase(), queues) else {
            return;
        };
        let (mut peer_ird, mut peer_ord) = (
            u16::from(event.initiator_depth),
            u16::from(event.responder_resources),
        );
        if queues.device.answers_with_own_depths() {
            std::mem::swap(&mut peer_ird, &mut peer_ord);
        }
        self.depths = ReadDepths {
            peer_ird: Some(peer_ird),
            peer_ord: Some(peer_ord),
            ird: self.depths.ird.min(peer_ord),
            ord: self.depths.ord.min(peer_ird),
        };
        if is_down {
            let confirmed = self.bring_up(queues.device.transport()).and_then(|()| {
                let manager = self.manager.as_ref();
                manager.map_or(Ok(()), ConnectionId::establish)
            });
            if let Err(error) = confirmed {
                self.fail(Ended::Network(error.kind()), common);
                return;
            }
        }
        self.establish(event.private_data, common);
    }

    fn rejected(&mut self, event: ConnectionEvent, common: &mut Common) {
        // iWARP has one number for it.
        let by_application = [REJECTED_BY_APPLICATION, -libc::ECONNRESET];
        if !by_application.contains(&event.status) {
            let reason = match event.status {
                REJECTED_LATE => Ended::TimedOut("the connection's setup"),
                NOBODY_LISTENS => Ended::Network(io::ErrorKind::ConnectionRefused),
                status if status < 0 => Ended::Network(error_kind(status)),
                _ => Ended::Setup("the fabric rejected the connection"),
            };
            self.fail(reason, common);
            return;
        }
        if self.is_known && self.phase() == VerbsPhase::Connecting {
            self.announcements.push_back(Event::Rejected {
                queue_pair: self.id,
                private_data: event.private_data,
                depths: ReadDepths::default(),
            });
            self.is_last_word_said = true;
        }
        self.fail(Ended::Peer, common);
    }
}

/// The attributes that bring a queue pair into a state, including the peer's access rights.
fn attributes(manager: &ConnectionId, state: QueuePairState) -> io::Result<QueuePairAttributes> {
    let mut attributes = manager.queue_pair_attributes(state)?;
    attributes.set_remote_access(true, true);
    Ok(attributes)
}

/// A depth in the connection manager's form.
fn byte(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// The error of an event's status.
fn error_kind(status: i32) -> io::ErrorKind {
    match status {
        ..0 => io::Error::from_raw_os_error(-status).kind(),
        _ => io::ErrorKind::Other,
    }
}

/// Why a request or its answer was refused at once.
fn refused(error: &io::Error, private_data: &[u8]) -> Ended {
    // Fabrics have different limits: InfiniBand 56 bytes in a request and 196 in an answer.
    let is_refused = error.kind() == io::ErrorKind::InvalidInput && !private_data.is_empty();
    if is_refused || private_data.len() > usize::from(u8::MAX) {
        Ended::Setup(
            "more private data than the fabric supports, or other options that it does not have",
        )
    } else {
        Ended::Network(error.kind())
    }
}
