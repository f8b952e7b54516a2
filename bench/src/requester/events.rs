//! Handling of the provider's events of a connection.

use std::time::Instant;

use millrace_mempool::{Buffer, Class};
use millrace_reactor::fabric::{Ended, Event, Key, Provider};
use millrace_wire::private_data::PrivateData;
use millrace_wire::rpcrdma::{FirstWords, Version};

use super::arrival::Arrival;
use super::call::{CallError, Sink};
use super::connection::{Connection, RequesterState};
use super::reply::{self, AnswerBody};
use super::slot::{Ending, Owner, Stage};

impl Connection {
    /// Takes an event of this connection's queue pair, and tells `sink` of the calls that ended by
    /// it. Events of other queue pairs are ignored.
    pub fn handle(
        &mut self,
        provider: &mut dyn Provider,
        event: Event,
        now: Instant,
        sink: Sink<'_>,
    ) {
        match event {
            Event::Received {
                queue_pair,
                buffer,
                length,
                invalidated,
            } if queue_pair == self.queue_pair => {
                self.receives -= 1;
                self.on_message(provider, buffer, length as usize, invalidated, sink);
            }
            Event::Established {
                queue_pair,
                private_data,
                depths,
            } if queue_pair == self.queue_pair => {
                self.depths = depths;
                self.peer = PrivateData::find(&private_data);
                self.stand(now);
            }
            Event::Completed {
                queue_pair,
                token,
                result,
                local,
            } if queue_pair == self.queue_pair => {
                drop(local);
                self.on_read(provider, token, result, sink);
            }
            Event::Revoked {
                queue_pair,
                key,
                local,
            } if queue_pair == self.queue_pair => self.on_revoked(provider, key, local, sink),
            Event::Rejected { queue_pair, .. } if queue_pair == self.queue_pair => {
                self.state = RequesterState::Rejected;
                self.on_lost(provider, sink);
            }
            Event::Disconnected { queue_pair, reason } if queue_pair == self.queue_pair => {
                self.on_disconnected(provider, reason, now, sink);
            }
            _ => {}
        }
    }

    fn on_message(
        &mut self,
        provider: &mut dyn Provider,
        buffer: Buffer,
        length: usize,
        invalidated: Option<Key>,
        sink: Sink<'_>,
    ) {
        let message = buffer.get(..length).unwrap_or_default();
        let arrival = Arrival::read(message, &self.rules);
        let answered = match &arrival {
            Arrival::Answer(answer) => self.find(answer.header.words.xid),
            _ => None,
        };
        if let Some(key) = invalidated {
            if !self.may_invalidate(answered, key) {
                self.on_surprise(provider);
                return;
            }
            self.counters.invalidated += 1;
        }
        let (index, answer) = match (arrival, answered) {
            (Arrival::Answer(answer), Some(index)) => (index, answer),
            (arrival, _) => {
                self.on_other(provider, &arrival, sink);
                self.repost(provider, buffer);
                return;
            }
        };
        let slot = &mut self.slots[index as usize];
        let chunks = if slot.offers_writes() {
            slot.shape.sinks.len()
        } else {
            0
        };
        let (lists, inline) = match answer.body {
            AnswerBody::Error(error) => {
                self.counters.errors += 1;
                self.window.answered(answer.header.words.credits, false);
                let again = matches!(error, CallError::CannotReply { segment, needed, .. }
                    if slot.enlarge(segment, needed));
                self.repost(provider, buffer);
                let ending = if again {
                    Ending::Again
                } else {
                    Ending::Failed(error)
                };
                self.end(provider, index, ending, sink);
                return;
            }
            AnswerBody::Inline { lists, length } => (lists, Some(length)),
            AnswerBody::Long { lists } => (lists, None),
        };
        let judged = reply::written(&lists, &slot.offers, chunks).and_then(|written| {
            let long = match inline {
                Some(_) => 0,
                // With read chunks the message may be in them (RFC 5666 section 5.2).
                None if !lists.reads.is_empty() => 0,
                None => reply::long_length(&lists, &slot.offers)?,
            };
            // Version two has no RDMA_DONE, and so no read chunks in replies.
            (lists.reads.is_empty() || self.version == Version::One).then_some((written, long))
        });
        self.window
            .answered(answer.header.words.credits, judged.is_some());
        if judged.is_some() {
            self.negotiation.confirm();
        }
        if !lists.reads.is_empty() && self.version == Version::One {
            let written = judged.map(|(written, _)| written);
            self.on_read_chunks(provider, index, written, (buffer, length), sink);
            self.refill(provider);
            return;
        }
        match (judged, inline) {
            (Some((written, _)), Some(inline)) => {
                slot.written = written;
                let ending = Ending::Inline(buffer, length - inline, length);
                self.end(provider, index, ending, sink);
            }
            (Some((written, long)), None) => {
                slot.written = written;
                self.repost(provider, buffer);
                self.end(provider, index, Ending::Long(long as usize), sink);
            }
            (None, _) => {
                self.counters.bad_replies += 1;
                self.repost(provider, buffer);
                self.end(provider, index, Ending::Failed(CallError::BadReply), sink);
            }
        }
        self.refill(provider);
    }

    /// Whatever does not answer a call.
    fn on_other(&mut self, provider: &mut dyn Provider, arrival: &Arrival<'_>, sink: Sink<'_>) {
        match arrival {
            Arrival::Answer(answer) => {
                let error = match answer.body {
                    AnswerBody::Error(error) => Some(error),
                    AnswerBody::Inline { .. } => None,
                    AnswerBody::Long { .. } if self.is_long_call(&answer.header) => {
                        self.on_reverse_call(provider, &answer.header);
                        return;
                    }
                    AnswerBody::Long { .. } => {
                        self.counters.dropped += 1;
                        return;
                    }
                };
                let FirstWords { xid, credits, .. } = answer.header.words;
                if self.negotiation.awaits(xid) {
                    self.on_version(provider, credits, error, sink);
                } else if self.configuration.awaits(xid) {
                    self.on_configuration(&answer.header);
                } else if !error.is_some_and(|error| self.on_option_error(xid, credits, error)) {
                    self.counters.dropped += 1;
                }
            }
            Arrival::Call(header) => self.on_reverse_call(provider, header),
            Arrival::FaultyCall(words, refusal) if self.serves_reverse() => {
                self.refuse(provider, words, *refusal);
            }
            Arrival::Optional(words, message) => self.on_optional(provider, words, message),
            Arrival::FaultyCall(..) | Arrival::Stray => self.counters.dropped += 1,
        }
    }

    /// Posts a receive again.
    pub(super) fn repost(&mut self, provider: &mut dyn Provider, buffer: Buffer) {
        if self.is_up() && provider.post_receive(self.queue_pair, buffer).is_ok() {
            self.receives += 1;
        }
    }

    /// Posts receives to replace those with buffers that wait for the invalidation of keys.
    fn refill(&mut self, provider: &mut dyn Provider) {
        let wanted = self.settings.receives();
        while self.is_up() && self.receives < wanted {
            let class = Class::for_size(self.settings.receive_size());
            let Some(buffer) = class.and_then(|class| self.pool.try_acquire(class)) else {
                return;
            };
            let before = self.receives;
            self.repost(provider, buffer);
            if self.receives == before {
                return;
            }
        }
    }

    fn on_disconnected(
        &mut self,
        provider: &mut dyn Provider,
        reason: Ended,
        now: Instant,
        sink: Sink<'_>,
    ) {
        self.judge_loss(now);
        if !matches!(self.state, RequesterState::NoVersion(_)) {
            self.state = RequesterState::Down(reason);
        }
        self.on_lost(provider, sink);
    }

    /// All keys are dead. Replies that came before the end count; the other calls wait for a new
    /// connection or end here.
    fn on_lost(&mut self, provider: &mut dyn Provider, sink: Sink<'_>) {
        self.receives = 0;
        self.exposed = 0;
        self.queue.clear();
        self.fetches.clear();
        self.forsaken.clear();
        self.reverse.forget();
        self.configuration.stop_waiting();
        for index in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[index as usize];
            match &slot.stage {
                Stage::Free => continue,
                Stage::Ending(Ending::Inline(..) | Ending::Gathered(_) | Ending::Failed(_)) => {}
                Stage::Queued
                | Stage::Sent
                | Stage::Arrived(..)
                | Stage::Fetching(_)
                | Stage::Ending(Ending::Long(_) | Ending::Again) => {
                    if self.settings.keep_calls && slot.owner == Owner::Waits {
                        slot.repeat();
                        let deadline = slot.deadline;
                        self.queue.push_back(index);
                        self.note_deadline(deadline);
                        continue;
                    }
                    slot.stage = Stage::Ending(Ending::Failed(CallError::Disconnected));
                }
            }
            self.deliver(provider, index, sink);
        }
        let slots = &self.slots;
        self.queue
            .make_contiguous()
            .sort_by_key(|&index| slots[index as usize].sequence);
    }
}

impl super::slot::CallSlot {
    fn offers_writes(&self) -> bool {
        use super::slot::Purpose;
        let mut offers = self.offers.iter();
        offers.any(|offer| matches!(offer.purpose, Purpose::Write(_)))
    }
}
