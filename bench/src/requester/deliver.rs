//! The end of a call: keys die, then its owner is told.

use millrace_reactor::fabric::{Key, Provider, Revoked, Slices};
use millrace_wire::rpc::{self, MessageType};

use super::call::{CallError, CallId, Completion, Reply};
use super::connection::Connection;
use super::send::copy_pieces;
use super::slot::{Ending, Purpose, Slot, Stage};

/// Who is told of completions. The calls it is told of are over: their memory is free.
pub type Sink<'a> = &'a mut dyn FnMut(Completion<'_>);

impl Connection {
    /// Ends a call: now, or when its last key is dead.
    pub(super) fn end(
        &mut self,
        provider: &mut dyn Provider,
        index: u32,
        ending: Ending,
        sink: Sink<'_>,
    ) {
        let slot = &mut self.slots[index as usize];
        slot.stage = Stage::Ending(ending);
        for at in 0..slot.offers.len() {
            let offer = slot.offers[at];
            match provider.revoke(self.queue_pair, offer.key) {
                Revoked::Now(local) => {
                    slot.revoked(at, local);
                    self.exposed -= 1;
                }
                Revoked::Unknown => {
                    slot.revoked(at, Slices::new());
                    self.exposed -= 1;
                }
                Revoked::Later => {}
            }
        }
        if slot.is_revoked() {
            self.deliver(provider, index, sink);
        }
    }

    /// A key has died at last.
    pub(super) fn on_revoked(
        &mut self,
        provider: &mut dyn Provider,
        key: Key,
        local: Slices,
        sink: Sink<'_>,
    ) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if !matches!(slot.stage, Stage::Ending(_)) {
                continue;
            }
            let mut offers = slot.offers.iter();
            let found = offers.position(|offer| offer.key == key && !offer.revoked);
            if let Some(at) = found {
                slot.revoked(at, local);
                self.exposed -= 1;
                if slot.is_revoked() {
                    self.deliver(provider, index as u32, sink);
                }
                return;
            }
        }
    }

    /// Tells the owner. The call's own clones of its memory are gone by then.
    pub(super) fn deliver(&mut self, provider: &mut dyn Provider, index: u32, sink: Sink<'_>) {
        let slot = &mut self.slots[index as usize];
        let Stage::Ending(ending) = std::mem::take(&mut slot.stage) else {
            return;
        };
        if matches!(ending, Ending::Again) && !slot.abandoned {
            self.counters.retried += 1;
            slot.requeue();
            let deadline = slot.deadline;
            self.queue.push_front(index);
            self.note_deadline(deadline);
            return;
        }
        slot.empty_bounce();
        let reply = slot.reply.take();
        let written = std::mem::take(&mut slot.written);
        let (token, xid, abandoned) = (slot.token, slot.xid, slot.abandoned);
        let id = CallId {
            index,
            sequence: slot.sequence,
        };
        slot.clear();
        self.free.push(index);
        let mut tell = |result| {
            if !abandoned {
                sink(Completion { token, id, result });
            }
        };
        match ending {
            Ending::Failed(error) => tell(Err(error)),
            Ending::Again => tell(Err(CallError::Cancelled)),
            Ending::Inline(buffer, start, end) => {
                self.counters.replies += 1;
                let message = &buffer[start..end];
                tell(Ok(Reply {
                    message,
                    written: &written,
                }));
                self.repost(provider, buffer);
            }
            Ending::Long(length) => {
                let buffer = reply.and_then(|slice| slice.try_into_buffer().ok());
                let message = buffer.as_ref().and_then(|buffer| buffer.get(..length));
                // Both XIDs are the same (RFC 8166 section 4.2.1), and so are direction word and
                // message type (version two draft section 5.2.2).
                let is_reply =
                    |message: &&[u8]| rpc::peek(message) == Ok((xid, MessageType::Reply));
                match message.filter(is_reply) {
                    Some(message) => {
                        self.counters.replies += 1;
                        tell(Ok(Reply {
                            message,
                            written: &written,
                        }));
                    }
                    None => {
                        self.counters.bad_replies += 1;
                        tell(Err(CallError::BadReply));
                    }
                }
            }
        }
    }
}

impl Slot {
    fn revoked(&mut self, at: usize, mut local: Slices) {
        let offer = &mut self.offers[at];
        offer.revoked = true;
        if offer.purpose == Purpose::Reply {
            // All segments are parts of one buffer, which the last part brings back.
            self.reply = local.pop();
        }
    }

    /// Copies results that went to memory of ours to where they belong.
    fn empty_bounce(&mut self) {
        if self.bounce.is_empty() {
            return;
        }
        for sink in 0..self.shape.sinks.len() {
            let mine = self.bounce.iter().filter(|(of, _)| *of == sink);
            let from: Vec<_> = mine.map(|(_, slice)| slice.clone()).collect();
            copy_pieces(&from, self.sink(sink));
        }
    }
}
