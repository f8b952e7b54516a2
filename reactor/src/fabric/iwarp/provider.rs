//! The provider: what the application asks for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_iwarp::{Access as RemoteAccess, Operation as Work, Revocation};
use millrace_mempool::Buffer;

use super::config::IwarpConfig;
use super::connection::{Connection, Phase};
use super::counters::IwarpCounters;
use super::setup;
use super::shared::Shared;
use super::slots::Slots;
use super::socket;
use super::stream::{RECEIVE_TURN, SEND_TURN};
use crate::accept::AcceptPause;
use crate::fabric::service::{ServiceAccount, ServiceQueue};
use crate::fabric::{
    Access, Carrier, ConnectParameters, Event, ExposeError, Exposure, Incoming, Key, ListenerId,
    Operation, PostError, Provider, QueuePairId, QueuePairLimits, READ_SLICES_MAX, Revoked, Slices,
    WorkRequest,
};

/// A listening socket.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    pub(super) limits: QueuePairLimits,
    pub(super) hand_over: bool,
    /// Nothing is accepted for a moment.
    pub(super) pause: AcceptPause,
}

/// Software iWARP on one reactor: RDMAP over DDP over MPA over non-blocking TCP sockets.
pub struct Iwarp {
    pub(super) shared: Shared,
    pub(super) slots: Slots,
    pub(super) listeners: Vec<Option<Listener>>,
    /// Connections to serve in the next poll.
    pub(super) active: ServiceQueue,
    /// Connections that may have something to send.
    pub(super) dirty: ServiceQueue,
    /// Connections that have not sent their request, the oldest first.
    pub(super) half_open: VecDeque<QueuePairId>,
    pub(super) polls: u32,
}

impl Iwarp {
    /// A provider without connections.
    ///
    /// # Errors
    /// If the system gives no epoll descriptor or no random numbers.
    pub fn new(config: IwarpConfig) -> io::Result<Self> {
        Ok(Self {
            shared: Shared::new(config)?,
            slots: Slots::default(),
            listeners: Vec::new(),
            active: ServiceQueue::new(RECEIVE_TURN),
            dirty: ServiceQueue::new(SEND_TURN),
            half_open: VecDeque::new(),
            polls: 0,
        })
    }

    /// What this provider does, in numbers.
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
        self.listeners.push(Some(Listener {
            socket,
            address,
            limits,
            hand_over,
            pause: AcceptPause::default(),
        }));
        Ok(ListenerId(index))
    }

    /// Takes a connection in that waits for the peer's request.
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
            .ok_or_else(|| io::Error::other("settings that cannot be honoured"))?;
        let deadline = responder.deadline();
        let accounts = self.accounts(peer);
        let shared = &mut self.shared;
        let id = self.slots.insert_with(|id| {
            shared.watch(&socket, u64::from(id.index))?;
            let phase = Phase::Responding(Box::new(responder));
            let mut connection = Connection::new(id, socket, peer, limits, phase, accounts, shared);
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

    /// What a client uses of receiving and of sending.
    fn accounts(&mut self, peer: SocketAddr) -> [Rc<ServiceAccount>; 2] {
        [&mut self.active, &mut self.dirty].map(|queue| queue.account(peer.ip()))
    }

    /// Ends connections that have not sent their request, beyond the number allowed: of the address
    /// with the most of them, the oldest.
    fn limit_half_open(&mut self) {
        let Self {
            slots, half_open, ..
        } = self;
        let waits = |id: &QueuePairId| {
            slots
                .get(*id)
                .is_some_and(|connection| matches!(connection.phase, Phase::Responding(_)))
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

    /// Takes out the oldest of the half-open connections of the address that has the most.
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

    /// The connection will be served in the next poll.
    pub(super) fn activate(&mut self, index: u32) {
        if let super::slots::State::Live(connection) = self.slots.state(index)
            && !connection.is_active
        {
            connection.is_active = true;
            self.active.push(connection.id, &connection.receiving);
        }
    }

    /// The connection will be looked at in the next flush.
    fn touch(&mut self, index: u32) {
        if let super::slots::State::Live(connection) = self.slots.state(index)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(connection.id, &connection.sending);
        }
    }

    fn open(&mut self, id: QueuePairId) -> Option<&mut Connection> {
        self.slots
            .get_mut(id)
            .filter(|connection| connection.is_open())
    }
}

impl Provider for Iwarp {
    fn name(&self) -> &'static str {
        "iwarp"
    }

    /// The stream places Read Responses itself, so any number would do.
    fn read_slices(&self, _: QueuePairId) -> usize {
        READ_SLICES_MAX
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

    fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd> {
        let slot = self.listeners.get(listener.0 as usize);
        let listener = slot.and_then(Option::as_ref);
        let listener = listener.ok_or(io::ErrorKind::NotFound)?;
        listener.socket.try_clone()
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

    fn connections(&self) -> usize {
        self.shared.connections()
    }

    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.endpoint.deepen_receives(receive_depth as usize);
        }
    }

    fn adopt(&mut self, incoming: Incoming, now: Instant) -> io::Result<()> {
        let Incoming {
            listener,
            peer,
            limits,
            carrier,
        } = incoming;
        #[allow(irrefutable_let_patterns)] // It is the only kind without the feature `verbs`.
        let Carrier::Socket(socket) = carrier else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.respond(socket, peer, listener, limits, now)
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.listeners
            .get(listener.0 as usize)?
            .as_ref()
            .map(|listener| listener.address)
    }

    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr> {
        let connection = self.slots.get(queue_pair)?;
        let bound = rustix::net::getsockname(&connection.socket).ok()?;
        SocketAddr::try_from(bound).ok()
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(listener) = slot.and_then(Option::take) {
            // Closing it does not end that, where another provider has the socket too.
            self.shared.forget_listener(&listener.socket);
        }
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
            let phase = Phase::Connecting(Box::new(connector));
            let limits = parameters.limits;
            let mut connection =
                Connection::new(id, socket, address, limits, phase, accounts, shared);
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
        if !matches!(connection.phase, Phase::Deciding(_)) {
            return;
        }
        let output = connection.reject(private_data);
        // The deadline of the decision is no later than this.
        let deadline = connection.deadline.unwrap_or_else(Instant::now);
        self.retire(queue_pair.index, Some((output, deadline)));
        self.serve_lingering(queue_pair.index, deadline, false);
    }

    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)> {
        match self.open(queue_pair) {
            Some(connection) => connection
                .endpoint
                .post_receive(buffer)
                .map_err(|buffer| (PostError::Full, buffer)),
            None => Err((PostError::Closed, buffer)),
        }
    }

    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError> {
        let Self { slots, shared, .. } = self;
        let connection = slots
            .get_mut(queue_pair)
            .filter(|connection| connection.is_open())
            .ok_or(PostError::Closed)?;
        if connection.endpoint.send_room() < chain.len() {
            return Err(PostError::Full);
        }
        for WorkRequest {
            token,
            operation,
            local,
            signalled,
        } in &mut *chain
        {
            let operation = match *operation {
                Operation::Send {
                    invalidate,
                    solicited,
                } => Work::Send {
                    invalidate: invalidate.map(|key| key.0),
                    solicited,
                },
                Operation::Write(remote) => Work::Write {
                    key: remote.key.0,
                    offset: remote.offset,
                },
                Operation::Read(remote) => Work::Read {
                    key: remote.key.0,
                    offset: remote.offset,
                    sink: shared.random(),
                },
                Operation::ReadMore => Work::ReadMore,
            };
            let endpoint = &mut connection.endpoint;
            let posted = endpoint.post_from(*token, operation, local, *signalled);
            debug_assert!(posted, "there was room for the whole chain");
        }
        chain.clear();
        self.touch(queue_pair.index);
        Ok(())
    }

    fn send_room(&self, queue_pair: QueuePairId) -> usize {
        match self.slots.get(queue_pair) {
            Some(connection) if connection.is_open() => connection.endpoint.send_room(),
            _ => 0,
        }
    }

    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)> {
        let random = self.shared.random();
        let Some(connection) = self.open(queue_pair) else {
            return Err((ExposeError::Closed, local));
        };
        let access = match access {
            Access::RemoteRead => RemoteAccess::RemoteRead,
            Access::RemoteWrite => RemoteAccess::RemoteWrite,
        };
        match connection.endpoint.expose(local, access, random) {
            Ok(exposed) => Ok(Exposure {
                key: Key(exposed.key),
                offset: exposed.offset,
                length: exposed.length,
            }),
            Err(local) => Err((ExposeError::Full, local)),
        }
    }

    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked {
        let Some(connection) = self.slots.get_mut(queue_pair) else {
            return Revoked::Unknown;
        };
        if connection.is_ended() {
            // Nothing is sent or received any more, so nothing has to be waited for.
            return match connection.endpoint.revoke(key.0) {
                Revocation::Now(local) => Revoked::Now(local),
                _ => Revoked::Unknown,
            };
        }
        match connection.endpoint.revoke(key.0) {
            Revocation::Now(local) => Revoked::Now(local),
            Revocation::Later => Revoked::Later,
            Revocation::Unknown => Revoked::Unknown,
        }
    }

    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16) {
        if let Some(connection) = self.slots.get_mut(queue_pair) {
            connection.endpoint.limit_reads(reads);
            // Reads that waited may go, or end.
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

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.poll_all(now, events)
    }

    fn flush(&mut self, _now: Instant) -> usize {
        self.flush_all()
    }

    fn wake_descriptor(&self) -> Option<RawFd> {
        Some(self.shared.epoll.as_raw_fd())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.shared.earliest
    }
}
