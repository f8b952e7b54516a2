//! The provider: requests of the application.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arrival::Arrival;
use super::common::Common;
use super::config::VerbsConfig;
use super::connection::VerbsConnection;
use super::counters::VerbsCounters;
use super::device_queues::{DeviceQueues, Kept};
use super::devices::Devices;
use super::listener::VerbsListener;
use super::phase::{Course, VerbsPhase};
use super::poll::queues_of;
use super::reaper::Notice;
use super::slots::VerbsSlots;
use super::sys::ConnectionId;
use super::token::Token;
use crate::fabric::service::ServiceQueue;
use crate::fabric::{
    AdoptError, ConnectParameters, ControlPath, Event, Incoming, Invalidation, ListenerId,
    PostError, QueuePairId, QueuePairLimits, ReadDepths,
};

/// Waits for the control thread at the end of a provider, and the timeout of each.
const WAITS_MAX: u32 = 100;
const WAIT: Duration = Duration::from_millis(100);

/// The queue pairs of one reactor on the devices of the machine.
///
/// The depths of a queue pair's queues are fixed when it is made, at the listener's or connector's
/// limits: [`ControlPath::deepen_receives`] has no effect on existing connections, whose further
/// receives are refused as [`PostError::Full`]. The queue pair of a connection request is made by
/// [`ControlPath::accept`]; a rejected request uses no resources of the device. One key covers one
/// slice.
///
/// # Scope of keys
///
/// The key of an exposure that is a memory window of type 2 is valid on its queue pair only. If an
/// exposure is a registration, because the device has no such windows or does not check their
/// bounds, its key is valid for every connection of the device: all queue pairs are in one
/// protection domain, since a domain for each would require a registration of every arena for each
/// connection. Such a key lives from the reply that contains it to RDMA_DONE, remote invalidation,
/// the deadline of the exposure or the end of the connection, and is protected by 41 random bits of
/// address; on iWARP, only by what the device draws of the key. An iWARP adapter's sinks of RDMA
/// Reads have such keys too, for one Read each.
pub struct Verbs {
    pub(super) slots: VerbsSlots,
    pub(super) listeners: Vec<Option<VerbsListener>>,
    /// Our parts of devices. Connections have the number of theirs.
    pub(super) device_queues: Vec<Option<DeviceQueues>>,
    /// Receives of parts being taken apart, by their number.
    pub(super) kept: Vec<(u32, Kept)>,
    /// Connections with events.
    pub(super) active: ServiceQueue,
    /// Connections that may have work to send.
    pub(super) dirty: Vec<u32>,
    /// When the connection manager was last polled.
    pub(super) asked: Option<Instant>,
    /// Turns since then.
    pub(super) polls: u32,
    /// The reactor has slept, or is about to.
    pub(super) is_woken: bool,
    /// The connection manager has failed, and this was logged.
    pub(super) is_manager_lost: bool,
    // Last: the control thread outlives all handles.
    pub(super) common: Common,
}

impl Verbs {
    /// A provider without connections.
    ///
    /// # Errors
    /// If the connection manager cannot be reached.
    pub fn new(devices: &Devices, config: VerbsConfig) -> io::Result<Self> {
        Ok(Self {
            slots: VerbsSlots::default(),
            listeners: Vec::new(),
            device_queues: Vec::new(),
            kept: Vec::new(),
            // Data moves without the processor, so only events count.
            active: ServiceQueue::new(isize::MAX.cast_unsigned()),
            dirty: Vec::new(),
            asked: None,
            polls: 0,
            is_woken: false,
            is_manager_lost: false,
            common: Common::new(devices, config)?,
        })
    }

    /// The counters of this provider.
    #[must_use]
    pub fn counters(&self) -> Arc<VerbsCounters> {
        Arc::clone(&self.common.counters)
    }

    fn has_room(&self) -> io::Result<()> {
        if self.common.connections() >= self.common.config.connections_max {
            return Err(io::Error::other("too many connections"));
        }
        Ok(())
    }

    /// Adds a connection request, and reports it to the application.
    pub(super) fn respond(
        &mut self,
        mut arrival: Arrival,
        listener: ListenerId,
        limits: QueuePairLimits,
    ) -> io::Result<()> {
        self.has_room()?;
        if self.common.half_open >= self.common.config.half_open_max {
            return Err(io::Error::other(
                "too many connection requests are waiting for an answer",
            ));
        }
        let account = self.active.account(arrival.peer.ip());
        let common = &mut self.common;
        let (peer_ird, peer_ord) = (u16::from(arrival.peer_ird), u16::from(arrival.peer_ord));
        let private_data = std::mem::take(&mut arrival.private_data);
        let inserted = self.slots.insert_with(|id| {
            arrival.take(&common.channel, Token::Connection(id))?;
            let course = Course::deciding(common.now, &common.config);
            let Arrival { manager, peer, .. } = arrival;
            let mut connection = VerbsConnection::new(id, course, manager, peer, limits, account);
            connection.listener = Some(listener);
            connection.set_deadline(common);
            Ok::<_, io::Error>(Box::new(connection))
        });
        let id = inserted.ok_or_else(|| io::Error::other("too many connections"))??;
        self.common.counters.fabric.connections.add(1);
        self.common.half_open += 1;
        self.attach(id.index);
        let Some(connection) = self.slots.get_mut(id) else {
            return Ok(());
        };
        if !connection.course.is_ending() {
            connection.depths = ReadDepths {
                peer_ird: Some(peer_ird),
                peer_ord: Some(peer_ord),
                ird: connection.depths.ird.min(peer_ord),
                ord: connection.depths.ord.min(peer_ird),
            };
            connection.is_known = true;
            connection.announcements.push_back(Event::ConnectRequest {
                queue_pair: id,
                listener,
                peer: connection.peer,
                private_data,
                depths: connection.depths,
            });
        }
        self.stir(id.index);
        Ok(())
    }

    /// Applies a function to a connection and our part of its device.
    pub(super) fn with<T>(
        &mut self,
        id: QueuePairId,
        act: impl FnOnce(&mut VerbsConnection, Option<&mut DeviceQueues>, &mut Common) -> T,
    ) -> Option<T> {
        let Self {
            slots,
            device_queues,
            common,
            ..
        } = self;
        let connection = slots.get_mut(id)?;
        let queues = queues_of(connection, device_queues);
        Some(act(connection, queues, common))
    }
}

impl ControlPath for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn remote_invalidation(&self) -> Invalidation {
        self.common.devices.invalidation()
    }

    fn exposure_slices(&self) -> usize {
        1
    }

    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr> {
        let slot = self.listeners.get(listener.0 as usize)?;
        slot.as_ref().map(|listener| listener.address)
    }

    fn listener_socket(&self, _: ListenerId) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn connections(&self) -> usize {
        self.common.connections()
    }

    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr> {
        let connection = self.slots.get(queue_pair)?;
        connection.manager.as_ref()?.local_address()
    }

    fn device_name(&self, queue_pair: QueuePairId) -> Option<String> {
        let connection = self.slots.get(queue_pair)?;
        connection.manager.as_ref()?.device_name()
    }

    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId> {
        let index = u32::try_from(self.listeners.len()).map_err(io::Error::other)?;
        let listener = VerbsListener::new(index, address, limits, hand_over, &self.common)?;
        self.listeners.push(Some(listener));
        Ok(ListenerId(index))
    }

    fn listen_on(&mut self, _: OwnedFd, _: QueuePairLimits, _: bool) -> io::Result<ListenerId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(listener) = slot.and_then(Option::as_mut) {
            listener.limits = limits;
        }
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        let slot = self.listeners.get_mut(listener.0 as usize);
        if let Some(mut listener) = slot.and_then(Option::take) {
            listener.stop(&self.common);
        }
    }

    fn adopt(&mut self, incoming: Incoming, now: Instant) -> Result<(), AdoptError> {
        let Incoming {
            listener,
            limits,
            carrier,
            ..
        } = incoming;
        let arrival: Arrival = carrier.take(self.name())?;
        self.common.now = now;
        let taken = self.respond(arrival, listener, limits);
        if taken.is_err() {
            self.common.counters.fabric.setups_failed.add(1);
        }
        Ok(taken?)
    }

    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId> {
        self.has_room()?;
        self.common.now = now;
        let account = self.active.account(address.ip());
        let common = &mut self.common;
        let inserted = self.slots.insert_with(|id| {
            let token = Token::Connection(id).encode();
            let manager = ConnectionId::new(&common.channel, token)?;
            let source = common.config.source.map(|source| (source, 0).into());
            manager.resolve_address(source, address, common.config.connect_wait)?;
            let course = Course::connecting(now, &common.config);
            let limits = parameters.limits;
            let mut connection =
                VerbsConnection::new(id, course, manager, address, limits, account);
            connection.private_data = parameters.private_data;
            connection.is_known = true;
            connection.set_deadline(common);
            Ok::<_, io::Error>(Box::new(connection))
        });
        let id = inserted.ok_or_else(|| io::Error::other("too many connections"))??;
        self.common.counters.fabric.connections.add(1);
        Ok(id)
    }

    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError> {
        let accepted = self.with(queue_pair, |connection, queues, common| match queues {
            Some(queues) => {
                queues.flush_shared(common);
                connection.accept(&parameters, queues, common)
            }
            None => Err(PostError::Closed),
        });
        accepted.unwrap_or(Err(PostError::Closed))?;
        self.stir(queue_pair.index);
        Ok(())
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        self.with(queue_pair, |connection, _, common| {
            if connection.phase() == VerbsPhase::Deciding {
                connection.turn_away(private_data, common);
            }
        });
        self.stir(queue_pair.index);
    }

    /// Queues of devices keep their initial depth.
    fn deepen_receives(&mut self, _: QueuePairId, _: u32) {}

    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16) {
        self.with(queue_pair, |connection, _, _| {
            connection.send.limit_reads(reads);
        });
        // Waiting Reads may be sent, or end.
        if self.slots.get(queue_pair).is_some() {
            self.touch(queue_pair.index);
        }
    }

    fn close(&mut self, queue_pair: QueuePairId) {
        self.with(queue_pair, |connection, _, common| connection.close(common));
        if self.slots.get(queue_pair).is_some() {
            self.touch(queue_pair.index);
            self.stir(queue_pair.index);
        }
    }

    fn abort(&mut self, queue_pair: QueuePairId) {
        self.with(queue_pair, |connection, _, common| {
            connection.fail(crate::fabric::Ended::Local, common);
        });
        if self.slots.get(queue_pair).is_some() {
            self.stir(queue_pair.index);
        }
    }
}

impl Drop for Verbs {
    /// Destroys all handles before the memory that the device may access is released.
    fn drop(&mut self) {
        for listener in self.listeners.iter_mut().flatten() {
            listener.stop(&self.common);
        }
        let mut on_their_way = 0;
        self.each(|connection, _, _| {
            if connection.phase() == VerbsPhase::Destroying {
                on_their_way += 1;
            }
            connection.destroy_now();
        });
        on_their_way += self.kept.len();
        let mut waits = 0;
        while on_their_way > 0 && waits < WAITS_MAX {
            match self.common.reaper.notice() {
                Some(Notice::Destroyed(token)) if token != Token::Nobody.encode() => {
                    on_their_way -= 1;
                }
                Some(_) => {}
                None => {
                    self.common.reaper.wait(WAIT);
                    waits += 1;
                }
            }
        }
        if on_their_way > 0 {
            tracing::error!(
                on_their_way,
                "queue pairs cannot be destroyed; their memory is lost"
            );
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}
