//! Polling: completions, deadlines, and reports. `manage` polls the others.

use std::time::Instant;

use super::completion::{Queue, RequestName};
use super::connection::VerbsConnection;
use super::device_queues::DeviceQueues;
use super::provider::Verbs;
use super::sys::{Completion, CompletionBatch};
use crate::fabric::service::ServiceUse;
use crate::fabric::{Event, QueuePairId};

/// Turns after which the connection manager is polled even if the caller's time does not advance,
/// as with clocks of tests.
const POLLS_MAX: u32 = 4096;

/// Batches of completions taken from one queue at once.
const BATCHES_MAX: usize = 16;

/// Capacity for events if the caller provides none.
const REPORT_ROOM: usize = 256;

impl Verbs {
    pub(super) fn poll_all(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        if events.capacity() == 0 {
            events.reserve(REPORT_ROOM);
        }
        self.common.now = now;
        let mut work = self.take_completions();
        let interval = self.common.config.event_interval;
        let is_due = |asked: Instant| now.saturating_duration_since(asked) >= interval;
        self.polls += 1;
        if self.asked.is_none_or(is_due) || self.polls == POLLS_MAX {
            self.asked = Some(now);
            self.polls = 0;
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
        for index in 0..self.device_queues.len() {
            let queues = self.device_queues[index]
                .as_ref()
                .map_or(0, DeviceQueues::queues);
            for queue in 0..queues {
                work += self.take_from(index, queue);
            }
        }
        work
    }

    fn take_from(&mut self, device_index: usize, queue: usize) -> usize {
        let mut work = 0;
        for _ in 0..BATCHES_MAX {
            let Some(Some(source)) = self.device_queues.get(device_index) else {
                break;
            };
            let count = match source.queue(queue).poll(&mut self.common.completions) {
                Ok(count) => count,
                Err(error) => {
                    self.break_device_queues(device_index, &error);
                    break;
                }
            };
            for number in 0..count {
                let completion = self.common.completions.get(number);
                self.complete(device_index, &completion);
            }
            work += count;
            if count < CompletionBatch::MOST {
                break;
            }
        }
        if work > 0 {
            self.common.counters.completions.add(work as u64);
        }
        work
    }

    fn complete(&mut self, device_index: usize, completion: &Completion) {
        let name = RequestName::decode(completion.id);
        if name.queue == Queue::Shared {
            self.complete_shared(device_index, completion, name.number);
            return;
        }
        let Some(connection) = self.slots.named(name) else {
            // Of a destroyed queue pair.
            return;
        };
        match name.queue {
            Queue::Send => connection.sent(completion, name.number, &mut self.common),
            _ => connection.received(completion, name.number, &mut self.common),
        }
        self.stir(name.slot);
    }

    fn complete_shared(&mut self, device_index: usize, completion: &Completion, number: u64) {
        let Some(shared) = self.device_queues[device_index]
            .as_mut()
            .and_then(|queues| queues.shared.as_mut())
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
        if let (Some(buffer), Some(Some(queues))) = (left, self.device_queues.get_mut(device_index))
            && let Some(shared) = &mut queues.shared
        {
            shared.put_back(buffer);
        }
        if let Some(slot) = owner {
            self.stir(slot);
        }
    }

    /// Records a change of a connection: it is reported in this turn, and processed in the next
    /// flush if it has something to send.
    pub(super) fn stir(&mut self, index: u32) {
        let Some(connection) = self.slots.at(index) else {
            return;
        };
        if !connection.is_active {
            connection.is_active = true;
            self.active.push(connection.id, &connection.account);
        }
        if !connection.is_dirty && connection.course.sends() && connection.send.has_waiting() {
            connection.is_dirty = true;
            self.dirty.push(index);
        }
    }

    /// Applies a function to every connection.
    pub(super) fn each(
        &mut self,
        mut act: impl FnMut(&mut VerbsConnection, Option<&mut DeviceQueues>, &mut super::common::Common),
    ) {
        for index in 0..self.slots.len() {
            let Self {
                slots,
                device_queues,
                common,
                ..
            } = self;
            if let Some(connection) = slots.at(index) {
                let queues = queues_of(connection, device_queues);
                act(connection, queues, common);
                self.stir(index);
            }
        }
    }

    /// Handles deadlines and finds the next one.
    fn expire(&mut self) {
        self.common.earliest = None;
        let now = self.common.now;
        for index in 0..self.slots.len() {
            let Self {
                slots,
                device_queues,
                common,
                ..
            } = self;
            let Some(connection) = slots.at(index) else {
                continue;
            };
            if connection.is_late(now) {
                let queues = queues_of(connection, device_queues);
                connection.expire(queues, common);
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

    /// Reports the events of connections.
    fn report(&mut self, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        self.active.begin(events.capacity() - events.len());
        while events.len() < events.capacity()
            && let Some((connection, allowance)) = self.active.next()
        {
            let before = events.len();
            let stays = self.report_of(connection.id, events, allowance.events);
            let used = ServiceUse {
                events: events.len() - before,
                bytes: 0,
            };
            work += used.events;
            self.active.served(connection, used, stays);
        }
        self.active.end();
        work
    }

    /// Returns whether it has more to report.
    fn report_of(&mut self, id: QueuePairId, events: &mut Vec<Event>, most: usize) -> bool {
        let Self {
            slots,
            device_queues,
            common,
            ..
        } = self;
        let Some(connection) = slots.get_mut(id) else {
            return false;
        };
        let mut queues = queues_of(connection, device_queues);
        let over = connection.report(events, most, common, queues.as_deref_mut());
        if over {
            common.counters.fabric.connections.sub(1);
            slots.remove(id.index);
            return false;
        }
        connection.settle(queues, common);
        connection.is_active = connection.has_news();
        connection.is_active
    }

    /// Before the reactor sleeps: false if there is work.
    pub(super) fn arm_all(&mut self) -> bool {
        // From now on the descriptors report; earlier events are found by one more poll.
        for queues in self.device_queues.iter().flatten() {
            queues.channel.take_events();
            for queue in 0..queues.queues() {
                // A queue that cannot be armed is found broken when it is polled.
                let _ = queues.queue(queue).arm();
            }
        }
        self.common.counters.armed.add(1);
        self.is_woken = true;
        // After the sleep the connection manager is polled at once.
        self.asked = None;
        self.take_completions() == 0 && self.active.is_empty() && self.dirty.is_empty()
    }

    /// Sends all pending work.
    pub(super) fn flush_all(&mut self) -> usize {
        let mut work = 0;
        // Receives may be posted again by connections with nothing else to flush.
        for queues in self.device_queues.iter_mut().flatten() {
            work += queues.flush_shared(&mut self.common);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for &index in &dirty {
            let Self {
                slots,
                device_queues,
                common,
                ..
            } = self;
            let Some(connection) = slots.at(index) else {
                continue;
            };
            connection.is_dirty = false;
            let Some(queues) = queues_of(connection, device_queues) else {
                continue;
            };
            work += connection.flush(queues, common);
            if !connection.is_active && (connection.has_news() || connection.course.is_ending()) {
                connection.is_active = true;
                self.active.push(connection.id, &connection.account);
            }
        }
        dirty.clear();
        // Flushing does not mark connections dirty.
        self.dirty = dirty;
        work
    }

    /// Schedules the connection for the next flush.
    pub(super) fn touch(&mut self, index: u32) {
        if let Some(connection) = self.slots.at(index)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(index);
        }
    }
}

/// The provider's part of a connection's device.
pub(super) fn queues_of<'a>(
    connection: &VerbsConnection,
    device_queues: &'a mut [Option<DeviceQueues>],
) -> Option<&'a mut DeviceQueues> {
    device_queues
        .get_mut(connection.device_index? as usize)?
        .as_mut()
}
