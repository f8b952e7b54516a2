//! Events of the connection manager and the control thread, and adding and removing parts of
//! devices.

use std::io;
use std::sync::Arc;

use super::arrival::Arrival;
use super::device_queues::DeviceQueues;
use super::phase::VerbsPhase;
use super::poll::queues_of;
use super::provider::Verbs;
use super::reaper::Notice;
use super::sys::{ConnectionEvent, ConnectionEventKind, ConnectionId};
use super::token::Token;
use crate::fabric::{Carrier, ControlPath, Ended, Event, Incoming, ListenerId, Terminate};

/// Events taken from the connection manager at once.
const EVENTS_MAX: usize = 64;

/// The end of a connection whose queue pair failed without a completion with the reason: the peer
/// made a forbidden access (RDMAP: remote protection; devices report no more detail).
const REMOTE_PROTECTION: Terminate = Terminate {
    layer: 0,
    kind: 1,
    code: 0,
};

impl Verbs {
    /// Polls the connection manager and the control thread.
    pub(super) fn look_around(&mut self, events: &mut Vec<Event>) -> usize {
        if self.is_woken {
            // It made the reactor's descriptor readable, which is not checked while the reactor is
            // awake.
            self.common.reaper.clear();
            self.is_woken = false;
        }
        let mut work = 0;
        while let Some(notice) = self.common.reaper.notice() {
            self.notice(notice);
            work += 1;
        }
        for index in 0..self.device_queues.len() {
            let queues = self.device_queues[index].as_ref();
            if queues.is_some_and(DeviceQueues::is_lost) {
                self.lose_device_queues(index);
            }
        }
        let mut managed = 0;
        // A request may become an event at once.
        while managed < EVENTS_MAX && events.len() < events.capacity() {
            match self.common.channel.next() {
                Ok(Some(event)) => {
                    managed += 1;
                    self.managed(event, events);
                }
                Ok(None) => break,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_manager_lost, true) {
                        tracing::error!(%error, "the RDMA connection manager fails");
                    }
                    break;
                }
            }
        }
        if managed > 0 {
            self.common.counters.connection_events.add(managed as u64);
        }
        work + managed
    }

    fn managed(&mut self, event: ConnectionEvent, events: &mut Vec<Event>) {
        match Token::decode(event.token) {
            Token::Connection(id) => {
                let index = id.index;
                let connection = self.slots.at(index);
                if !connection.is_some_and(|found| Token::decode(event.token).is(found.id)) {
                    return;
                }
                // Data that arrived before the end is reported before it.
                if event.kind == ConnectionEventKind::Disconnected {
                    self.take_completions();
                }
                if event.kind == ConnectionEventKind::RouteResolved
                    && self.slots.at(index).map(|found| found.phase()) == Some(VerbsPhase::Routing)
                {
                    self.attach(index);
                }
                let Self {
                    slots,
                    device_queues,
                    common,
                    ..
                } = self;
                if let Some(connection) = slots.at(index) {
                    let queues = queues_of(connection, device_queues);
                    connection.managed(event, queues, common);
                }
                self.touch(index);
                self.stir(index);
            }
            Token::Listener(index) => self.listener_managed(index, event, events),
            Token::DeviceQueues(_) | Token::Nobody => {}
        }
    }

    fn listener_managed(&mut self, index: u32, event: ConnectionEvent, events: &mut Vec<Event>) {
        let Some(Some(listener)) = self.listeners.get_mut(index as usize) else {
            return;
        };
        if event.kind != ConnectionEventKind::ConnectRequest {
            listener.managed(event.kind, &mut self.common);
            return;
        }
        let (limits, hand_over) = (listener.limits, listener.hand_over);
        let Some(arrival) = Arrival::of(event, &self.common.channel) else {
            return;
        };
        let listener = ListenerId(index);
        if hand_over {
            events.push(Event::Incoming(Incoming {
                listener,
                peer: arrival.peer,
                limits,
                carrier: Carrier::new(self.name(), arrival),
            }));
            return;
        }
        let peer = arrival.peer;
        if let Err(error) = self.respond(arrival, listener, limits) {
            tracing::debug!(%peer, %error, "an RDMA connection is turned away");
            self.common.counters.fabric.setups_failed.add(1);
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Destroyed(token) => self.destroyed(Token::decode(token)),
            Notice::QueuePairFailed {
                device,
                number,
                reason,
            } => {
                let Some(device) = device.upgrade() else {
                    return;
                };
                let is_there = |queues: &Option<DeviceQueues>| {
                    queues
                        .as_ref()
                        .is_some_and(|queues| Arc::ptr_eq(&queues.device, &device))
                };
                let device_index = self.device_queues.iter().position(is_there);
                let Some(device_index) = device_index.and_then(|index| u32::try_from(index).ok())
                else {
                    return;
                };
                // Completions are processed first.
                self.take_completions();
                self.each(|connection, _, common| {
                    let found = connection.queue_pair.as_ref();
                    if connection.device_index == Some(device_index)
                        && found.is_some_and(|pair| pair.number() == number)
                    {
                        tracing::debug!(peer = %connection.peer, reason, "a queue pair failed");
                        connection.fail(Ended::TerminateSent(REMOTE_PROTECTION), common);
                    }
                });
            }
            // Removed devices are checked for in any case.
            Notice::DevicesChanged => {}
        }
    }

    fn destroyed(&mut self, token: Token) {
        match token {
            Token::Connection(id) => {
                let Self {
                    slots,
                    device_queues,
                    common,
                    ..
                } = self;
                if let Some(connection) = slots.at(id.index).filter(|found| token.is(found.id)) {
                    let queues = queues_of(connection, device_queues);
                    connection.destroyed(queues, common);
                    self.stir(id.index);
                }
            }
            Token::DeviceQueues(index) => {
                self.kept.retain(|(kept, _)| *kept != index);
            }
            Token::Listener(_) | Token::Nobody => {}
        }
    }

    /// A completion queue is broken: its device was removed, or is failing.
    pub(super) fn break_device_queues(&mut self, index: usize, error: &io::Error) {
        if let Some(Some(queues)) = self.device_queues.get_mut(index)
            && !std::mem::replace(&mut queues.is_broken, true)
        {
            let device = queues.device.name();
            tracing::error!(device, %error, "a completion queue of an RDMA device is broken");
            self.lose_device_queues(index);
        }
    }

    /// Ends all connections of a removed device, and with the last of them our part of it: the
    /// kernel waits for that.
    fn lose_device_queues(&mut self, index: usize) {
        let number = index as u32;
        let Some(Some(queues)) = self.device_queues.get(index) else {
            return;
        };
        if queues.connections > 0 {
            self.each(|connection, _, common| {
                if connection.device_index == Some(number) && !connection.course.is_ending() {
                    connection.device_lost(common);
                }
            });
            return;
        }
        if let Some(queues) = self.device_queues[index].take() {
            let (remains, kept) = queues.take_apart();
            if let Some(kept) = kept {
                self.kept.push((number, kept));
            }
            let token = Token::DeviceQueues(number).encode();
            self.common.reaper.destroy(remains, token);
        }
    }

    /// Finds the device of a connection. The queue pair of a peer's request is made when the
    /// application accepts it: a rejected request uses no resources of the device.
    pub(super) fn attach(&mut self, index: u32) {
        let Some(connection) = self.slots.at(index) else {
            return;
        };
        let is_asked = connection.phase() == VerbsPhase::Deciding;
        let name = connection
            .manager
            .as_ref()
            .and_then(ConnectionId::device_name);
        let attached = name
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
            .and_then(|name| self.device_index(&name))
            .and_then(|device_index| {
                match (self.slots.at(index), &mut self.device_queues[device_index]) {
                    (Some(connection), Some(found)) => {
                        connection.enter(device_index as u32, found);
                        if is_asked {
                            return Ok(());
                        }
                        connection.attach(found)
                    }
                    _ => Err(io::ErrorKind::NotConnected.into()),
                }
            });
        if let Err(error) = attached
            && let Some(connection) = self.slots.at(index)
        {
            tracing::debug!(peer = %connection.peer, %error, "no queue pair can be made");
            connection.fail(Ended::Network(error.kind()), &mut self.common);
        }
    }

    /// Our part of a device.
    fn device_index(&mut self, name: &str) -> io::Result<usize> {
        let is_it = |queues: &Option<DeviceQueues>| {
            queues.as_ref().is_some_and(|queues| {
                queues.device.name() == name && queues.device.is_in_use() && !queues.is_broken
            })
        };
        if let Some(found) = self.device_queues.iter().position(is_it) {
            return Ok(found);
        }
        let common = &self.common;
        let device = common
            .devices
            .by_name(name)
            .ok_or_else(|| io::Error::other(format!("the RDMA device {name} is not in use")))?;
        let queues = DeviceQueues::new(&device, &common.devices, &common.config, &common.counters)?;
        common.watch(&*queues.channel)?;
        // Numbers of removed parts are reused, once nothing of them is left.
        let kept = &self.kept;
        let is_free = |(index, queues): (usize, &Option<DeviceQueues>)| {
            queues.is_none() && kept.iter().all(|(gone, _)| *gone as usize != index)
        };
        let free = self.device_queues.iter().enumerate().position(is_free);
        let index = free.unwrap_or_else(|| {
            self.device_queues.push(None);
            self.device_queues.len() - 1
        });
        self.device_queues[index] = Some(queues);
        Ok(index)
    }
}
