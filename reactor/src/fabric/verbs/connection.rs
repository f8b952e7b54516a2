//! One connection: its queues and their events.
//!
//! `setup` establishes it, `post` passes its work to the device, `end` ends it.

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

/// The end of a connection whose peer invalidates a key that is not its own (RDMAP: remote
/// operation, "STag cannot be invalidated").
const CANNOT_INVALIDATE: Terminate = Terminate {
    layer: 0,
    kind: 2,
    code: 9,
};

pub(super) struct VerbsConnection {
    pub(super) id: QueuePairId,
    pub(super) course: Course,
    // Handles that the device uses precede the memory that it would access.
    pub(super) exposures: Exposures,
    pub(super) queue_pair: Option<QueuePair>,
    pub(super) manager: Option<ConnectionId>,
    /// Registrations of single Reads, with the number after the Read.
    pub(super) sinks: VecDeque<(u64, Region)>,
    /// The index of the provider's part of the device.
    pub(super) device_index: Option<u32>,
    pub(super) place: Option<QueuePlacement>,
    pub(super) send: SendQueue,
    pub(super) receive: ReceiveQueue,
    pub(super) brought: Brought,
    /// Messages to be reported.
    pub(super) filled: VecDeque<Filled>,
    /// Events other than completions.
    pub(super) announcements: VecDeque<Event>,
    /// Memory of exposures, until the queue pair is destroyed.
    pub(super) kept: Vec<Slices>,
    pub(super) peer: SocketAddr,
    pub(super) listener: Option<ListenerId>,
    pub(super) limits: QueuePairLimits,
    /// On the requesting side: for the peer.
    pub(super) private_data: PrivateData,
    pub(super) depths: ReadDepths,
    /// The application knows it, and gets its events.
    pub(super) is_known: bool,
    /// The final event is reported or queued: no event follows it.
    pub(super) is_last_word_said: bool,
    /// In the provider's queue of connections with events.
    pub(super) is_active: bool,
    /// Its client's account of that queue.
    pub(super) account: Rc<ServiceAccount>,
    /// In the provider's list of connections to flush.
    pub(super) is_dirty: bool,
    /// Nothing may be sent before the peer has sent.
    pub(super) waits_for_peer: bool,
    /// Work waits for space in the device's queue.
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
            // The device's limits are not known yet.
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

    /// Posts a receive.
    ///
    /// # Errors
    /// There is no space; the buffer is returned.
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
            // Ends the registration, before the memory is returned.
            self.sinks.pop_front();
        }
        if let Some((_, reason)) = outcome {
            self.fail(reason.unwrap_or(Ended::Peer), common);
        }
    }

    /// A receive of its own has ended.
    pub(super) fn received(&mut self, completion: &Completion, number: u64, common: &mut Common) {
        let Some(buffer) = self.receive.complete(number, RequestName::NUMBER_MASK) else {
            // No correct device does that: messages would be confused.
            self.fail(Ended::Network(std::io::ErrorKind::InvalidData), common);
            return;
        };
        self.message(completion, buffer, common);
    }

    /// A receive of the shared queue has ended that was filled for this connection. Its buffer is
    /// returned if there is no message in it.
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
            // A peer that sends has received the answer.
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

    /// Whether work and messages may be reported: not before the connection is reported as
    /// established.
    fn tells(&self) -> bool {
        self.course.was_running() || self.phase() == VerbsPhase::Ended
    }

    /// Whether there is something to report.
    pub(super) fn has_news(&self) -> bool {
        !self.announcements.is_empty()
            || self.phase() == VerbsPhase::Ended
            || (self.tells() && (self.send.has_done() || !self.filled.is_empty()))
    }

    /// Reports events, limited by the spare capacity of `events`, and by `most`. `true` once the
    /// last event is reported.
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

    /// Accounts for completed work, and returns its event.
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
            // Remaining exposures are released with the queue pair.
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

/// The index of an operation among the counters of work.
pub(super) fn kind(operation: &Operation) -> usize {
    match operation {
        Operation::Send { .. } => 0,
        Operation::Write(_) => 1,
        Operation::Read(_) | Operation::ReadMore => 2,
    }
}
