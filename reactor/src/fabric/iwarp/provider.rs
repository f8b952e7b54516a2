//! The provider: requests of the application.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use super::config::IwarpConfig;
use super::connection::{IwarpConnection, IwarpPhase};
use super::counters::IwarpCounters;
use super::setup;
use super::shared::IwarpShared;
use super::slots::IwarpSlots;
use super::socket::{self, ArrivedSocket};
use super::stream::BYTES_TURN;
use crate::accept::AcceptPause;
use crate::fabric::service::{ServiceAccount, ServiceQueue};
use crate::fabric::{
    AdoptError, ConnectParameters, ControlPath, Incoming, Invalidation, ListenerId, PostError,
    QueuePairId, QueuePairLimits, SLICES_MAX,
};

/// A listening socket.
pub(super) struct IwarpListener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    pub(super) limits: QueuePairLimits,
    pub(super) hand_over: bool,
    /// The pause of accepting.
    pub(super) pause: AcceptPause,
}

/// Software iWARP on one reactor: RDMAP over DDP over MPA over non-blocking TCP sockets.
pub struct Iwarp {
    pub(super) shared: IwarpShared,
    pub(super) slots: IwarpSlots,
    pub(super) listeners: Vec<Option<IwarpListener>>,
    /// Connections to serve in the next poll.
    pub(super) active: ServiceQueue,
    /// Connections that may have data to send.
    pub(super) dirty: ServiceQueue,
    /// Connections that have not sent their request, the oldest first.
    pub(super) half_open: VecDeque<QueuePairId>,
    /// A connection served in this turn waits for little, if for anything.
    pub(super) has_light: bool,
    pub(super) polls: u32,
    /// When the kernel was last queried.
    pub(super) asked: Instant,
    /// Data was received since the kernel was last queried: it will report a change that is already
    /// processed.
    pub(super) has_stale_changes: bool,
}

impl Iwarp {
    /// A provider without connections.
    ///
    /// # Errors
    /// If the system gives no epoll descriptor or no random numbers.
    pub fn new(config: IwarpConfig) -> io::Result<Self> {
        Ok(Self {
            shared: IwarpShared::new(config)?,
            slots: IwarpSlots::default(),
            listeners: Vec::new(),
            active: ServiceQueue::new(BYTES_TURN),
            dirty: ServiceQueue::new(BYTES_TURN),
            half_open: VecDeque::new(),
            has_light: false,
            polls: 0,
            asked: Instant::now(),
            has_stale_changes: false,
        })
    }

    /// The counters of this provider.
    #[must_use]
    pub fn counters(&self) -> Arc<IwarpCounters> {
        Arc::clone(&self.shared.counters)
    }

    fn add_listener(
        &mut self,
        socket: OwnedFd,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        let index = u32::try_from(self.listeners.len()).map_err(io::Error::other)?;
        self.shared.watch_listener(&socket, index)?;
        self.listeners.push(Some(IwarpListener {
            socket,
            address,
            limits,
            hand_over,
            pause: AcceptPause::default(),
        }));
        Ok(ListenerId(index))
    }

    /// Adds a connection that waits for the peer's request.
    pub(super) fn respond(
        &mut self,
        socket: OwnedFd,
        peer: SocketAddr,
        listener: ListenerId,
        limits: QueuePairLimits,
        now: Instant,
    ) -> io::Result<()> {
        if self.shared.connections() >= self.shared.config.connections_max {
            return Err(io::Error::other("too many connections"));
        }
        socket::tune(socket.as_fd(), &self.shared.config)?;
        let responder = setup::responder(&limits, peer, now, &self.shared)
            .ok_or_else(|| io::Error::other("settings that are not supported"))?;
        let deadline = responder.deadline();
        let accounts = self.accounts(peer);
        let shared = &mut self.shared;
        let id = self.slots.insert_with(|id| {
            shared.watch(&socket, u64::from(id.index))?;
            let phase = IwarpPhase::Responding(Box::new(responder));
            let mut connection =
                IwarpConnection::new(id, socket, peer, limits, phase, accounts, shared);
            connection.listener = Some(listener);
            (connection.readable, connection.writable) = (true, true);
            connection.set_deadline(deadline, shared);
            Ok::<_, io::Error>(Box::new(connection))
        })?;
        self.shared.counters.fabric.connections.add(1);
        self.activate(id.index);
        self.half_open.push_back(id);
        self.limit_half_open();
        Ok(())
    }

    /// A client's accounts of receiving and of sending.
    fn accounts(&mut self, peer: SocketAddr) -> [Rc<ServiceAccount>; 2] {
        [&mut self.active, &mut self.dirty].map(|queue| queue.account(peer.ip()))
    }

    /// Ends connections without a request, beyond the limit: the oldest one of the address with the
    /// most of them.
    fn limit_half_open(&mut self) {
        let Self {
            slots, half_open, ..
        } = self;
        let waits = |id: &QueuePairId| {
            slots
                .get(*id)
                .is_some_and(|connection| matches!(connection.phase, IwarpPhase::Responding(_)))
        };
        if half_open.len() <= self.shared.config.half_open_max {
            return;
        }
        half_open.retain(waits);
        while self.half_open.len() > self.shared.config.half_open_max {
            let Some(id) = self.oldest_of_most() else {
                return;
            };
            if let Some(connection) = self.slots.get_mut(id) {
                connection.setup_failed(crate::fabric::Ended::Local, &mut self.shared);
                self.activate(id.index);
            }
        }
    }

    /// Removes the oldest half-open connection of the address with the most of them.
    fn oldest_of_most(&mut self) -> Option<QueuePairId> {
        let Self {
            slots, half_open, ..
        } = self;
        let address = |id: &QueuePairId| slots.get(*id).map(|connection| connection.peer.ip());
        let mut counts = HashMap::<IpAddr, usize>::new();
        for address in half_open.iter().filter_map(address) {
            *counts.entry(address).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let of_most = |id: &QueuePairId| address(id).and_then(|one| counts.get(&one).copied());
        let oldest = half_open.iter().position(|id| of_most(id) == most);
        half_open.remove(oldest?)
    }

    /// Schedules the connection for the next poll.
    pub(super) fn activate(&mut self, index: u32) {
        if let super::slots::SlotState::Live(connection) = self.slots.state(index)
            && !connection.is_active
        {
            connection.is_active = true;
            self.active.push(connection.id, &connection.receiving);
        }
    }

    /// Schedules the connection for the next flush.
    pub(super) fn touch(&mut self, index: u32) {
        if let super::slots::SlotState::Live(connection) = self.slots.state(index)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(connection.id, &connection.sending);
        }
    }

    pub(super) fn open(&mut self, id: QueuePairId) -> Option<&mut IwarpConnection> {
        self.slots
            .get_mut(id)
            .filter(|connection| connection.is_open())
    }
}

impl ControlPath for Iwarp {
    fn name(&self) -> &'static str {
        "iwarp"
    }

    fn remote_invalidation(&self) -> Invalidation {
        Invalidation::BOTH
    }

    fn exposure_slices(&self) -> usize {
        SLICES_MAX
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.listeners
            .get(listener.0 as usize)?
            .as_ref()
            .map(|listener| listener.address)
    }

    fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd> {
        let slot = self.listeners.get(listener.0 as usize);
        let listener = slot.and_then(Option::as_ref);
        let listener = listener.ok_or(io::ErrorKind::NotFound)?;
        listener.socket.try_clone()
    }

    fn connections(&self) -> usize {
        self.shared.connections()
    }

    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr> {
        let connection = self.slots.get(queue_pair)?;
        let bound = rustix::net::getsockname(&connection.socket).ok()?;
        SocketAddr::try_from(bound).ok()
    }

    fn device_name(&self, _: QueuePairId) -> Option<String> {
        None
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        let (socket, address) = socket::listen(address)?;
        self.add_listener(socket, address, limits, hand_over)
    }

    fn listen_on(
        &mut self,
        socket: OwnedFd,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        self.add_listener(socket, address, limits, hand_over)
    }

    fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(listener) = slot.and_then(Option::as_mut) {
            listener.limits = limits;
        }
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(listener) = slot.and_then(Option::take) {
            // Closing it does not suffice if another provider has the socket too.
            self.shared.forget_listener(&listener.socket);
        }
    }

    fn adopt(&mut self, incoming: Incoming, now: Instant) -> Result<(), AdoptError> {
        let Incoming {
            listener,
            peer,
            limits,
            carrier,
        } = incoming;
        let ArrivedSocket(socket) = carrier.take(self.name())?;
        Ok(self.respond(socket, peer, listener, limits, now)?)
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId> {
        if self.shared.connections() >= self.shared.config.connections_max {
            return Err(io::Error::other("too many connections"));
        }
        let socket = socket::connect(address, &self.shared.config)?;
        let connector = setup::connector(&parameters, address, &self.shared);
        let deadline = now + self.shared.config.connect_wait;
        let accounts = self.accounts(address);
        let shared = &mut self.shared;
        let id = self.slots.insert_with(|id| {
            shared.watch(&socket, u64::from(id.index))?;
            let phase = IwarpPhase::Connecting(Box::new(connector));
            let limits = parameters.limits;
            let mut connection =
                IwarpConnection::new(id, socket, address, limits, phase, accounts, shared);
            connection.is_known = true;
            connection.set_deadline(Some(deadline), shared);
            Ok::<_, io::Error>(Box::new(connection))
        })?;
        self.shared.counters.fabric.connections.add(1);
        Ok(id)
    }

    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError> {
        let connection = self.slots.get_mut(queue_pair).ok_or(PostError::Closed)?;
        connection.accept(&parameters, &mut self.shared)?;
        self.activate(queue_pair.index);
        self.touch(queue_pair.index);
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        let Some(connection) = self.slots.get_mut(queue_pair) else {
            return;
        };
        if !matches!(connection.phase, IwarpPhase::Deciding(_)) {
            return;
        }
        let output = connection.reject(private_data);
        // The deadline of the decision is no later than this.
        let deadline = connection.deadline.unwrap_or_else(Instant::now);
        self.retire(queue_pair.index, Some((output, deadline)));
        self.serve_lingering(queue_pair.index, deadline, false);
    }

    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.endpoint.deepen_receives(receive_depth as usize);
        }
    }

    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.endpoint.limit_reads(reads);
            // Waiting Reads may be sent, or end.
            self.activate(queue_pair.index);
            self.touch(queue_pair.index);
        }
    }

    fn close(&mut self, queue_pair: QueuePairId) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.close(Instant::now(), &mut self.shared);
            self.activate(queue_pair.index);
            self.touch(queue_pair.index);
        }
    }

    fn abort(&mut self, queue_pair: QueuePairId) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.end(crate::fabric::Ended::Local, &mut self.shared);
            self.activate(queue_pair.index);
        }
    }
}
