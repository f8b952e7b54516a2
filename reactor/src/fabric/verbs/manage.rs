//! What the connection manager and the control thread report, and our parts of devices that come
//! and go by it.

use std::io;
use std::sync::Arc;

use super::arrival::Arrival;
use super::device_queues::Lane;
use super::phase::VerbsPhase;
use super::poll::lane_of;
use super::provider::Verbs;
use super::reaper::Notice;
use super::sys::{ConnectionEvent, ConnectionEventKind, ConnectionId};
use super::token::Token;
use crate::fabric::{Carrier, ControlPath, Ended, Event, Incoming, ListenerId, Terminate};

/// Events taken from the connection manager at once.
const EVENTS_MAX: usize = 64;

/// What ends a connection whose queue pair failed without a completion that tells why: the peer
/// asked for what it may not (RDMAP: remote protection; devices do not say more).
const REMOTE_PROTECTION: Terminate = Terminate {
    layer: 0,
    kind: 1,
    code: 0,
};

impl Verbs {
    /// Asks the connection manager and the control thread.
    pub(super) fn look_around(&mut self, events: &mut Vec<Event>) -> usize {
        if self.is_woken {
            // Its descriptor made the reactor's readable; while the reactor is awake nobody looks.
            self.common.reaper.clear();
            self.is_woken = false;
        }
        let mut work = 0;
        while let Some(notice) = self.common.reaper.notice() {
            self.notice(notice);
            work += 1;
        }
        for index in 0..self.lanes.len() {
            let lane = self.lanes[index].as_ref();
            if lane.is_some_and(Lane::is_lost) {
                self.lose_lane(index);
            }
        }
        let mut managed = 0;
        // A request may be an event at once.
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
                // What has arrived before the end comes before the end.
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
                    lanes,
                    common,
                    ..
                } = self;
                if let Some(connection) = slots.at(index) {
                    let lane = lane_of(connection, lanes);
                    connection.managed(event, lane, common);
                }
                self.touch(index);
                self.stir(index);
            }
            Token::Listener(index) => self.listener_managed(index, event, events),
            Token::Lane(_) | Token::Nobody => {}
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
                let is_there = |lane: &Option<Lane>| {
                    lane.as_ref()
                        .is_some_and(|lane| Arc::ptr_eq(&lane.device, &device))
                };
                let lane = self.lanes.iter().position(is_there);
                let Some(lane) = lane.and_then(|lane| u32::try_from(lane).ok()) else {
                    return;
                };
                // What completions tell comes first.
                self.take_completions();
                self.each(|connection, _, common| {
                    let found = connection.queue_pair.as_ref();
                    if connection.lane == Some(lane)
                        && found.is_some_and(|pair| pair.number() == number)
                    {
                        tracing::debug!(peer = %connection.peer, reason, "a queue pair failed");
                        connection.fail(Ended::TerminateSent(REMOTE_PROTECTION), common);
                    }
                });
            }
            // Devices that are gone are looked for in any case.
            Notice::DevicesChanged => {}
        }
    }

    fn destroyed(&mut self, token: Token) {
        match token {
            Token::Connection(id) => {
                let Self {
                    slots,
                    lanes,
                    common,
                    ..
                } = self;
                if let Some(connection) = slots.at(id.index).filter(|found| token.is(found.id)) {
                    let lane = lane_of(connection, lanes);
                    connection.destroyed(lane, common);
                    self.stir(id.index);
                }
            }
            Token::Lane(index) => self.kept.retain(|(lane, _)| *lane != index),
            Token::Listener(_) | Token::Nobody => {}
        }
    }

    /// A completion queue is broken: its device is gone, or at its end.
    pub(super) fn break_lane(&mut self, index: usize, error: &io::Error) {
        if let Some(Some(lane)) = self.lanes.get_mut(index)
            && !std::mem::replace(&mut lane.is_broken, true)
        {
            let device = lane.device.name();
            tracing::error!(device, %error, "a completion queue of an RDMA device is broken");
            self.lose_lane(index);
        }
    }

    /// Ends all connections of a device that is gone, and with the last of them our part of it:
    /// the kernel waits for that.
    fn lose_lane(&mut self, index: usize) {
        let number = index as u32;
        let Some(Some(lane)) = self.lanes.get(index) else {
            return;
        };
        if lane.connections > 0 {
            self.each(|connection, _, common| {
                if connection.lane == Some(number) && !connection.course.is_ending() {
                    connection.device_lost(common);
                }
            });
            return;
        }
        if let Some(lane) = self.lanes[index].take() {
            let (remains, kept) = lane.take_apart();
            if let Some(kept) = kept {
                self.kept.push((number, kept));
            }
            let token = Token::Lane(number).encode();
            self.common.reaper.destroy(remains, token);
        }
    }

    /// Finds the device of a connection. The queue pair of one that a peer asks for is made when
    /// the application accepts it: a request that is rejected takes nothing of the device.
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
            .and_then(|name| self.lane(&name))
            .and_then(|lane| match (self.slots.at(index), &mut self.lanes[lane]) {
                (Some(connection), Some(found)) => {
                    connection.enter(lane as u32, found);
                    if is_asked {
                        return Ok(());
                    }
                    connection.attach(found)
                }
                _ => Err(io::ErrorKind::NotConnected.into()),
            });
        if let Err(error) = attached
            && let Some(connection) = self.slots.at(index)
        {
            tracing::debug!(peer = %connection.peer, %error, "no queue pair can be made");
            connection.fail(Ended::Network(error.kind()), &mut self.common);
        }
    }

    /// Our part of a device.
    fn lane(&mut self, name: &str) -> io::Result<usize> {
        let is_it = |lane: &Option<Lane>| {
            lane.as_ref().is_some_and(|lane| {
                lane.device.name() == name && lane.device.is_in_use() && !lane.is_broken
            })
        };
        if let Some(found) = self.lanes.iter().position(is_it) {
            return Ok(found);
        }
        let common = &self.common;
        let device = common
            .devices
            .by_name(name)
            .ok_or_else(|| io::Error::other(format!("the RDMA device {name} is not in use")))?;
        let lane = Lane::new(&device, &common.devices, &common.config, &common.counters)?;
        common.watch(&*lane.channel)?;
        // Numbers of parts that are gone are used again, once nothing of them is left.
        let kept = &self.kept;
        let is_free = |(index, lane): (usize, &Option<Lane>)| {
            lane.is_none() && kept.iter().all(|(gone, _)| *gone as usize != index)
        };
        let free = self.lanes.iter().enumerate().position(is_free);
        let index = free.unwrap_or_else(|| {
            self.lanes.push(None);
            self.lanes.len() - 1
        });
        self.lanes[index] = Some(lane);
        Ok(index)
    }
}
