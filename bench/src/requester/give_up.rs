//! Calls that end before their reply: cancelled, or out of time.

use std::time::Instant;

use millrace_reactor::fabric::Provider;

use super::call::{CallError, CallId, Sink};
use super::connection::Connection;
use super::slot::{Owner, Stage};

impl Connection {
    /// Ends a call. A queued call leaves the queue. The memory of a call that was sent is made
    /// inaccessible to the server before its owner is notified, which breaks the connection if the
    /// server still accesses it; if RDMA Reads of this side are in flight, the owner is notified
    /// when they have ended. The call's credit and slot are used until its reply comes, and a reply
    /// with read chunks is still answered by RDMA_DONE. False if the call has ended already.
    pub fn cancel(&mut self, provider: &mut dyn Provider, id: CallId, sink: Sink<'_>) -> bool {
        let Some(slot) = self.slots.get(id.index as usize) else {
            return false;
        };
        let live = slot.sequence == id.sequence && slot.owner == Owner::Waits;
        if !live || !slot.may_be_given_up() {
            return false;
        }
        self.give_up(provider, id.index, CallError::Cancelled, sink);
        true
    }

    /// Ends the calls that have timed out, as [`cancel`](Self::cancel) does; and the connection, if
    /// the server leaves RDMA Reads for such a call unanswered, or the first messages.
    pub fn expire(&mut self, provider: &mut dyn Provider, now: Instant, sink: Sink<'_>) {
        if self.next_deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let unanswered = [self.negotiation.expire(now), self.configuration.expire(now)];
        if unanswered.contains(&true) {
            provider.abort(self.queue_pair);
        }
        let deadlines = [self.negotiation.deadline, self.configuration.deadline];
        let mut next = deadlines.into_iter().flatten().min();
        for index in 0..self.slots.len() as u32 {
            let slot = &self.slots[index as usize];
            let fetching = matches!(slot.stage, Stage::Fetching(_));
            let waits = slot.may_be_given_up() && slot.owner == Owner::Waits;
            match slot.deadline.filter(|_| waits || fetching) {
                Some(deadline) if deadline <= now => {
                    if waits {
                        self.give_up(provider, index, CallError::TimedOut, sink);
                    }
                    if fetching {
                        // Only the end of the connection gets the memory back.
                        provider.abort(self.queue_pair);
                    }
                }
                Some(deadline) => {
                    next = Some(next.map_or(deadline, |next: Instant| next.min(deadline)));
                }
                None => {}
            }
        }
        self.next_deadline = next;
    }

    /// The instant by which [`expire`](Self::expire) has something to do.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline
    }

    /// [`expire`](Self::expire) has something to do by then.
    pub(super) fn note_deadline(&mut self, deadline: Option<Instant>) {
        let deadlines = self.next_deadline.into_iter().chain(deadline);
        self.next_deadline = deadlines.min();
    }

    fn give_up(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        error: CallError,
        sink: Sink<'_>,
    ) {
        let slot = &mut self.slots[index as usize];
        slot.owner = Owner::Leaves(error);
        match slot.stage {
            Stage::Queued => {
                self.let_go(index, sink);
                self.slots[index as usize].clear();
                self.queue.retain(|&queued| queued != index);
                self.free.push(index);
            }
            Stage::Sent => {
                self.forsake(index);
                self.fence(provider, index);
                if self.slots[index as usize].is_revoked() {
                    self.let_go(index, sink);
                }
            }
            // The reply is here, and its end comes by itself.
            _ => {}
        }
    }
}
