//! One connection: its queues, and what it reports of them.
//!
//! `setup` brings it up, `post` hands its work to the device, `end` takes it down.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use super::common::Common;
use super::completion::{Queue, RequestName, failure};
use super::device_queues::{DeviceQueues, QueuePlacement};
use super::exposures::Exposures;
use super::phase::{Course, VerbsPhase};
use super::receive_queue::{Brought, Filled, ReceiveQueue};
use super::send_queue::{Done, SendLimits, SendQueue, Work};
use super::sys::{Completion, ConnectionId, QueuePair, Region};
use crate::fabric::service::ServiceAccount;
use crate::fabric::{
    Ended, Event, Key, ListenerId, Operation, PrivateData, QueuePairId, QueuePairLimits,
    ReadDepths, Slices, Terminate,
};
use millrace_mempool::{Buffer, Slice};

/// What ends a connection whose peer invalidates a key that is not its own (RDMAP: remote
/// operation, "STag cannot be invalidated").
const CANNOT_INVALIDATE: Terminate = Terminate {
    layer: 0,
    kind: 2,
    code: 9,
};

pub(super) struct VerbsConnection {
    pub(super) id: QueuePairId,
    pub(super) course: Course,
    // What the device can touch stands before the memory that it would touch.
    pub(super) exposures: Exposures,
    pub(super) queue_pair: Option<QueuePair>,
    pub(super) manager: Option<ConnectionId>,
    /// Registrations of Reads of their own, with the number behind the Read.
    pub(super) sinks: VecDeque<(u64, Region)>,
    /// The provider's part of the device, and its place there.
    pub(super) device_index: Option<u32>,
    pub(super) place: Option<QueuePlacement>,
    pub(super) send: SendQueue,
    pub(super) receive: ReceiveQueue,
    pub(super) brought: Brought,
    /// Messages to be reported.
    pub(super) filled: VecDeque<Filled>,
    /// Events that are no completions.
    pub(super) announcements: VecDeque<Event>,
    /// Memory of exposures, until the queue pair is destroyed.
    pub(super) kept: Vec<Slices>,
    pub(super) peer: SocketAddr,
    pub(super) listener: Option<ListenerId>,
    pub(super) limits: QueuePairLimits,
    /// Of the side that asks: for the peer.
    pub(super) private_data: PrivateData,
    pub(super) depths: ReadDepths,
    /// The application knows of it, and hears of it.
    pub(super) is_known: bool,
    /// The event that says it all is reported or announced: nothing comes after it.
    pub(super) is_last_word_said: bool,
    /// In the provider's queue of connections to report of.
    pub(super) is_active: bool,
    /// What its client uses of that queue.
    pub(super) account: Rc<ServiceAccount>,
    /// In the provider's list of connections to flush.
    pub(super) is_dirty: bool,
    /// Nothing may be sent before the peer has spoken.
    pub(super) waits_for_peer: bool,
    /// Work waits for room in the device's queue.
    pub(super) is_held: bool,
}

impl VerbsConnection {
    pub(super) fn new(
        id: QueuePairId,
        course: Course,
        manager: ConnectionId,
        peer: SocketAddr,
        limits: QueuePairLimits,
        account: Rc<ServiceAccount>,
    ) -> Self {
        Self {
            id,
            course,
            exposures: Exposures::new(limits.exposures),
            queue_pair: None,
            manager: Some(manager),
            sinks: VecDeque::new(),
            device_index: None,
            place: None,
            // The device's part is not known yet.
            send: SendQueue::new(SendLimits {
                depth: limits.send_depth as usize,
                room: 1,
                ranges: 1,
                read_ranges: 1,
                signals_sends: false,
            }),
            receive: ReceiveQueue::new(limits.receive_depth),
            brought: Brought::default(),
            filled: VecDeque::new(),
            announcements: VecDeque::new(),
            kept: Vec::new(),
            peer,
            listener: None,
            limits,
            private_data: PrivateData::new(),
            depths: ReadDepths::default(),
            is_known: false,
            is_last_word_said: false,
            is_active: false,
            account,
            is_dirty: false,
            waits_for_peer: false,
            is_held: false,
        }
    }

    pub(super) fn phase(&self) -> VerbsPhase {
        self.course.phase()
    }

    /// The name of a request.
    pub(super) fn name(&self, queue: Queue, number: u64) -> RequestName {
        RequestName {
            queue,
            slot: self.id.index,
            generation: self.id.generation,
            number,
        }
    }

    /// Takes a receive.
    ///
    /// # Errors
    /// There is no room; the buffer comes back.
    pub(super) fn post_receive(
        &mut self,
        buffer: Buffer,
        queues: Option<&mut DeviceQueues>,
    ) -> Result<(), Buffer> {
        match queues.and_then(|queues| queues.shared.as_mut()) {
            Some(_) if self.brought.count() as usize >= self.receive.depth() => Err(buffer),
            Some(shared) => shared.post(buffer, &mut self.brought),
            None => self.receive.post(buffer),
        }
    }

    /// A request of its send queue has ended.
    pub(super) fn sent(&mut self, completion: &Completion, number: u64, common: &mut Common) {
        let outcome = failure(completion.status);
        let result = match &outcome {
            None => Ok(()),
            Some((error, _)) => Err(*error),
        };
        if !self.send.complete(number, RequestName::NUMBER_MASK, result) {
            return;
        }
        let done = self.send.done_before();
        while self.sinks.front().is_some_and(|(end, _)| *end <= done) {
            // Ends the registration, before the memory goes back.
            self.sinks.pop_front();
        }
        if let Some((_, reason)) = outcome {
            self.fail(reason.unwrap_or(Ended::Peer), common);
        }
    }

    /// A receive of its own has ended.
    pub(super) fn received(&mut self, completion: &Completion, number: u64, common: &mut Common) {
        let Some(buffer) = self.receive.complete(number, RequestName::NUMBER_MASK) else {
            // No device does that: messages would be taken for each other.
            self.fail(Ended::Network(std::io::ErrorKind::InvalidData), common);
            return;
        };
        self.message(completion, buffer, common);
    }

    /// A receive of the shared queue has ended that was filled for this connection. Its buffer
    /// comes back if there is no message in it.
    pub(super) fn received_shared(
        &mut self,
        completion: &Completion,
        buffer: Buffer,
        common: &mut Common,
    ) -> Option<Buffer> {
        if let Some((_, reason)) = failure(completion.status) {
            self.fail(reason.unwrap_or(Ended::Peer), common);
            return Some(buffer);
        }
        if !self.brought.take() {
            self.fail(super::completion::TOO_MANY_MESSAGES, common);
            return Some(buffer);
        }
        self.message(completion, buffer, common);
        None
    }

    fn message(&mut self, completion: &Completion, buffer: Buffer, common: &mut Common) {
        if let Some((_, reason)) = failure(completion.status) {
            self.fail(reason.unwrap_or(Ended::Peer), common);
            return;
        }
        if let Some(key) = completion.invalidated
            && !self.exposures.invalidated_by_peer(Key(key))
        {
            self.fail(Ended::TerminateSent(CANNOT_INVALIDATE), common);
            return;
        }
        if self.phase() == VerbsPhase::Accepting {
            // Who speaks has heard the answer.
            self.establish(PrivateData::new(), common);
        }
        self.heard();
        let received = &common.counters.fabric.work[3];
        received.completed.add(1);
        received.bytes.add(u64::from(completion.bytes));
        self.filled.push_back(Filled {
            buffer,
            length: completion.bytes,
            invalidated: completion.invalidated,
        });
    }

    /// Whether the application may hear of work and messages: not before it hears that the
    /// connection stands.
    fn tells(&self) -> bool {
        self.course.was_running() || self.phase() == VerbsPhase::Ended
    }

    /// Whether something is to be reported.
    pub(super) fn has_news(&self) -> bool {
        !self.announcements.is_empty()
            || self.phase() == VerbsPhase::Ended
            || (self.tells() && (self.send.has_done() || !self.filled.is_empty()))
    }

    /// Reports what happened, as far as `events` has spare capacity, and `most` events. `true` once
    /// the last event of all is reported.
    pub(super) fn report(
        &mut self,
        events: &mut Vec<Event>,
        most: usize,
        common: &Common,
        mut queues: Option<&mut DeviceQueues>,
    ) -> bool {
        let queue_pair = self.id;
        if !self.is_known {
            self.announcements.clear();
        }
        if !self.is_known || self.is_last_word_said {
            self.filled.clear();
            while self.send.pop().is_some() {}
        }
        let end = events.capacity().min(events.len().saturating_add(most));
        while events.len() < end {
            if let Some(event) = self.announcements.pop_front() {
                events.push(event);
                continue;
            }
            if !self.is_known || self.is_last_word_said {
                return self.phase() == VerbsPhase::Ended;
            }
            if self.tells() {
                if let Some(done) = self.send.pop() {
                    events.extend(self.done(done, common, queues.as_deref_mut()));
                    continue;
                }
                if let Some(filled) = self.filled.pop_front() {
                    events.push(Event::Received {
                        queue_pair,
                        buffer: filled.buffer,
                        length: filled.length,
                        invalidated: filled.invalidated.map(Key),
                    });
                    continue;
                }
            }
            if self.phase() != VerbsPhase::Ended {
                return false;
            }
            let reason = self.course.reason().cloned();
            events.push(Event::Disconnected {
                queue_pair,
                reason: reason.unwrap_or(Ended::Local),
            });
            return true;
        }
        false
    }

    /// Accounts for work that is done with, and makes the event of it.
    fn done(
        &mut self,
        done: Done,
        common: &Common,
        queues: Option<&mut DeviceQueues>,
    ) -> Option<Event> {
        let queue_pair = self.id;
        match done.work {
            Work::Request {
                token,
                operation,
                signalled,
            } => {
                let counters = &common.counters.fabric;
                match done.result {
                    Ok(()) => {
                        let work = &counters.work[kind(&operation)];
                        let bytes: usize = done.local.iter().map(Slice::len).sum();
                        work.completed.add(1);
                        work.bytes.add(bytes as u64);
                    }
                    Err(error) => counters.count_failure(error),
                }
                (signalled || done.result.is_err()).then_some(Event::Completed {
                    queue_pair,
                    token,
                    result: done.result,
                    local: done.local,
                })
            }
            Work::Invalidate(slot) if done.result.is_ok() => {
                let (key, local) = self.exposures.ended(slot, &mut queues?.windows)?;
                Some(Event::Revoked {
                    queue_pair,
                    key,
                    local,
                })
            }
            // What is left of exposures goes with the queue pair.
            Work::Bind(_) | Work::Invalidate(_) => None,
        }
    }

    pub(super) fn set_deadline(&self, common: &mut Common) {
        if let Some(deadline) = self.course.deadline() {
            common.has_deadline(deadline);
        }
    }

    /// Whether its deadline has passed.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.course.late(now).is_some()
    }
}

/// The place of an operation among the counters of work.
pub(super) fn kind(operation: &Operation) -> usize {
    match operation {
        Operation::Send { .. } => 0,
        Operation::Write(_) => 1,
        Operation::Read(_) | Operation::ReadMore => 2,
    }
}
