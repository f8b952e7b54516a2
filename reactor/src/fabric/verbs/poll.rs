//! Polling: completions, the connection manager, the control thread, deadlines, and reports.

use std::io;
use std::time::Instant;

use super::arrival::Arrival;
use super::completion::{Name, Queue};
use super::connection::Connection;
use super::lane::Lane;
use super::phase::Phase;
use super::provider::Verbs;
use super::reaper::Notice;
use super::sys::{Completion, Completions, ConnectionEvent, ConnectionEventKind, ConnectionId};
use super::token::Token;
use crate::fabric::counters::{add, take_one};
use crate::fabric::{Carrier, Ended, Event, Incoming, ListenerId, Terminate};

/// Events taken from the connection manager at once.
const EVENTS_MAX: usize = 64;

/// Batches of completions taken from one queue at once.
const BATCHES_MAX: usize = 16;

/// Room for events that a caller without any gets.
const REPORT_ROOM: usize = 256;

/// What ends a connection whose queue pair failed without a completion that tells why: the peer
/// asked for what it may not (RDMAP: remote protection; devices do not say more).
const REMOTE_PROTECTION: Terminate = Terminate {
    layer: 0,
    kind: 1,
    code: 0,
};

impl Verbs {
    pub(super) fn poll_all(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if events.capacity() == 0 {
            events.reserve(REPORT_ROOM);
        }
        self.common.now = now;
        let mut work = self.take_completions();
        let interval = self.common.config.event_interval;
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= interval;
        if self.asked.is_none_or(is_due) {
            self.asked = Some(now);
            work += self.look_around(events);
        }
        if self.common.earliest.is_some_and(|earliest| earliest <= now) {
            self.expire();
        }
        work + self.report(events)
    }

    /// Takes the completions of all queues.
    pub(super) fn take_completions(&mut self) -> usize {
        let mut work = 0;
        for index in 0..self.lanes.len() {
            let queues = self.lanes[index].as_ref().map_or(0, Lane::queues);
            for queue in 0..queues {
                work += self.take_from(index, queue);
            }
        }
        work
    }

    fn take_from(&mut self, lane: usize, queue: usize) -> usize {
        let mut work = 0;
        for _ in 0..BATCHES_MAX {
            let Some(Some(source)) = self.lanes.get(lane) else {
                break;
            };
            let count = match source.queue(queue).poll(&mut self.common.completions) {
                Ok(count) => count,
                Err(error) => {
                    self.break_lane(lane, &error);
                    break;
                }
            };
            for number in 0..count {
                let completion = self.common.completions.get(number);
                self.complete(lane, &completion);
            }
            work += count;
            if count < Completions::MOST {
                break;
            }
        }
        if work > 0 {
            add(&self.common.counters.completions, work as u64);
        }
        work
    }

    fn complete(&mut self, lane: usize, completion: &Completion) {
        let name = Name::decode(completion.id);
        if name.queue == Queue::Shared {
            self.complete_shared(lane, completion, name.number);
            return;
        }
        let Some(connection) = self.slots.named(name) else {
            // Of a queue pair that is destroyed.
            return;
        };
        match name.queue {
            Queue::Send => connection.sent(completion, name.number, &mut self.common),
            _ => connection.received(completion, name.number, &mut self.common),
        }
        self.stir(name.slot);
    }

    fn complete_shared(&mut self, lane: usize, completion: &Completion, number: u64) {
        let Some(shared) = self.lanes[lane]
            .as_mut()
            .and_then(|lane| lane.shared.as_mut())
        else {
            return;
        };
        let Some(buffer) = shared.complete(number) else {
            return;
        };
        let owner = shared.owner(completion.queue_pair);
        let connection = owner.and_then(|slot| self.slots.at(slot));
        let left = match connection {
            Some(connection) => connection.received_shared(completion, buffer, &mut self.common),
            None => Some(buffer),
        };
        if let (Some(buffer), Some(Some(lane))) = (left, self.lanes.get_mut(lane))
            && let Some(shared) = &mut lane.shared
        {
            shared.put_back(buffer);
        }
        if let Some(slot) = owner {
            self.stir(slot);
        }
    }

    /// Something has changed with a connection: it is reported of in this turn, and looked at in
    /// the next flush if it has something to send.
    pub(super) fn stir(&mut self, index: u32) {
        let Some(connection) = self.slots.at(index) else {
            return;
        };
        if !connection.is_active {
            connection.is_active = true;
            self.active.push(index);
        }
        if !connection.is_dirty && connection.course.sends() && connection.send.has_waiting() {
            connection.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Asks the connection manager and the control thread.
    fn look_around(&mut self, events: &mut Vec<Event>) -> usize {
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
            add(&self.common.counters.connection_events, managed as u64);
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
                    && self.slots.at(index).map(|found| found.phase()) == Some(Phase::Routing)
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
                carrier: Carrier::Device(arrival),
            }));
            return;
        }
        let peer = arrival.peer;
        if let Err(error) = self.respond(arrival, listener, limits) {
            tracing::debug!(%peer, %error, "an RDMA connection is turned away");
            add(&self.common.counters.fabric.setups_failed, 1);
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
                        .is_some_and(|lane| std::sync::Arc::ptr_eq(&lane.device, &device))
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

    /// Does something with every connection.
    pub(super) fn each(
        &mut self,
        mut act: impl FnMut(&mut Connection, Option<&mut Lane>, &mut super::common::Common),
    ) {
        for index in 0..self.slots.len() {
            let Self {
                slots,
                lanes,
                common,
                ..
            } = self;
            if let Some(connection) = slots.at(index) {
                let lane = lane_of(connection, lanes);
                act(connection, lane, common);
                self.stir(index);
            }
        }
    }

    /// A completion queue is broken: its device is gone, or at its end.
    fn break_lane(&mut self, index: usize, error: &io::Error) {
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

    /// Acts on deadlines and finds the next one.
    fn expire(&mut self) {
        self.common.earliest = None;
        let now = self.common.now;
        for index in 0..self.slots.len() {
            let Self {
                slots,
                lanes,
                common,
                ..
            } = self;
            let Some(connection) = slots.at(index) else {
                continue;
            };
            if connection.is_late(now) {
                let lane = lane_of(connection, lanes);
                connection.expire(lane, common);
                connection.set_deadline(common);
                self.stir(index);
            } else {
                connection.set_deadline(common);
            }
        }
        for listener in self.listeners.iter_mut().flatten() {
            listener.expire(&mut self.common);
        }
    }

    /// Reports of the connections that have something to report.
    fn report(&mut self, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        let mut kept = 0;
        for position in 0..self.active.len() {
            let index = self.active[position];
            let before = events.len();
            let stays = self.report_of(index, events);
            work += events.len() - before;
            if stays {
                self.active.swap(kept, position);
                kept += 1;
            }
        }
        self.active.truncate(kept);
        // Whoever found no room for its events is first in the next turn.
        if kept > 1 && events.len() == events.capacity() {
            self.active.rotate_left(1);
        }
        work
    }

    /// Whether it has more to report.
    fn report_of(&mut self, index: u32, events: &mut Vec<Event>) -> bool {
        let Self {
            slots,
            lanes,
            common,
            ..
        } = self;
        let Some(connection) = slots.at(index) else {
            return false;
        };
        let mut lane = lane_of(connection, lanes);
        let over = connection.report(events, common, lane.as_deref_mut());
        if over {
            take_one(&common.counters.fabric.connections);
            slots.remove(index);
            return false;
        }
        connection.settle(lane, common);
        connection.is_active = connection.has_news();
        connection.is_active
    }

    /// Before the reactor sleeps: false if there is work.
    pub(super) fn arm_all(&mut self) -> bool {
        // From now on the descriptors tell; what came before is found by looking once more.
        for lane in self.lanes.iter().flatten() {
            lane.channel.take_events();
            for queue in 0..lane.queues() {
                // A queue that cannot be armed is found broken when it is polled.
                let _ = lane.queue(queue).arm();
            }
        }
        add(&self.common.counters.armed, 1);
        self.is_woken = true;
        // After the sleep the connection manager is asked at once.
        self.asked = None;
        self.take_completions() == 0 && self.active.is_empty() && self.dirty.is_empty()
    }

    /// Sends what can be sent.
    pub(super) fn flush_all(&mut self) -> usize {
        let mut work = 0;
        let mut dirty = std::mem::take(&mut self.dirty);
        for &index in &dirty {
            let Self {
                slots,
                lanes,
                common,
                ..
            } = self;
            let Some(connection) = slots.at(index) else {
                continue;
            };
            connection.is_dirty = false;
            let Some(lane) = lane_of(connection, lanes) else {
                continue;
            };
            work += lane.flush_shared(common);
            work += connection.flush(lane, common);
            if !connection.is_active && (connection.has_news() || connection.course.is_ending()) {
                connection.is_active = true;
                self.active.push(index);
            }
        }
        dirty.clear();
        // Nobody is made dirty by being flushed.
        self.dirty = dirty;
        work
    }

    /// The connection will be looked at in the next flush.
    pub(super) fn touch(&mut self, index: u32) {
        if let Some(connection) = self.slots.at(index)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Finds the device of a connection, and makes its queue pair there.
    pub(super) fn attach(&mut self, index: u32) {
        let Some(connection) = self.slots.at(index) else {
            return;
        };
        let name = connection
            .manager
            .as_ref()
            .and_then(ConnectionId::device_name);
        let attached = name
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
            .and_then(|name| self.lane(&name))
            .and_then(|lane| match (self.slots.at(index), &mut self.lanes[lane]) {
                (Some(connection), Some(found)) => connection.attach(lane as u32, found),
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

/// The provider's part of a connection's device.
pub(super) fn lane_of<'a>(
    connection: &Connection,
    lanes: &'a mut [Option<Lane>],
) -> Option<&'a mut Lane> {
    lanes.get_mut(connection.lane? as usize)?.as_mut()
}
