//! The end of a call: its keys are invalidated, then its owner is notified.

use millrace_reactor::fabric::{Key, Provider, Revoked, Slices};
use millrace_wire::rpc::{self, MessageType};

use super::call::{CallError, CallId, Completion, Reply, Sink};
use super::connection::Connection;
use super::gss::{self, CallProtection};
use super::memory::{Gathered, copy_pieces};
use super::slot::{CallSlot, Ending, Offered, Owner, Purpose, Stage};

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
        self.fence(provider, index);
        if self.slots[index as usize].is_revoked() {
            self.deliver(provider, index, sink);
        }
    }

    /// Asks for the end of all keys of a call. If a key is missing although it was not invalidated,
    /// the memory may still be reachable: then the connection ends, and with it all its keys,
    /// before the call does (RFC 8166 section 4.5.4).
    pub(super) fn fence(&mut self, provider: &mut dyn Provider, index: u32) {
        let slot = &mut self.slots[index as usize];
        for at in 0..slot.offers.len() {
            let offer = &mut slot.offers[at];
            if std::mem::replace(&mut offer.asked, true) {
                continue;
            }
            match provider.revoke(self.queue_pair, offer.key) {
                Revoked::Now(local) => {
                    slot.revoked(at, local);
                    self.exposed -= 1;
                }
                Revoked::Later => {}
                Revoked::Unknown => provider.abort(self.queue_pair),
            }
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
            let mut offers = slot.offers.iter();
            let dying = |offer: &Offered| offer.key == key && offer.asked && !offer.revoked;
            let Some(at) = offers.position(dying) else {
                continue;
            };
            slot.revoked(at, local);
            self.exposed -= 1;
            if slot.is_revoked() {
                match slot.stage {
                    Stage::Ending(_) => self.deliver(provider, index as u32, sink),
                    _ => self.let_go(index as u32, sink),
                }
            }
            return;
        }
    }

    /// Notifies the owner. The call's own clones of its memory are dropped before.
    pub(super) fn deliver(&mut self, provider: &mut dyn Provider, index: u32, sink: Sink<'_>) {
        let slot = &mut self.slots[index as usize];
        let Stage::Ending(ending) = std::mem::take(&mut slot.stage) else {
            return;
        };
        if matches!(ending, Ending::Again) && slot.owner == Owner::Waits {
            self.counters.retried += 1;
            slot.repeat();
            let deadline = slot.deadline;
            self.queue.push_front(index);
            self.note_deadline(deadline);
            return;
        }
        slot.empty_bounce();
        let reply = slot.reply.take();
        let written = std::mem::take(&mut slot.written);
        let gathered = std::mem::take(&mut slot.gathered);
        let protection = slot.protection.take();
        let (token, xid, owner) = (slot.token, slot.xid, slot.owner);
        let nominated = slot.nominated;
        let id = CallId {
            index,
            sequence: slot.sequence,
        };
        slot.clear();
        self.free.push(index);
        if owner != Owner::Waits {
            self.forget_key(nominated);
        }
        let mut tell = |result| {
            let result = match owner {
                Owner::Waits => result,
                Owner::Leaves(error) => Err(error),
                Owner::Told => return,
            };
            sink(Completion { token, id, result });
        };
        match ending {
            Ending::Failed(error) => tell(Err(error)),
            Ending::Again => tell(Err(CallError::Cancelled)),
            Ending::Inline(mut buffer, start, end) => {
                let message = buffer.get_mut(start..end);
                tell(self.judged(message, protection.as_ref(), &written));
                self.repost(provider, buffer);
            }
            Ending::Long(length) => {
                let mut buffer = reply.and_then(|slice| slice.try_into_buffer().ok());
                let message = buffer.as_mut().and_then(|buffer| buffer.get_mut(..length));
                let message = message.filter(|message| is_reply_to(xid, message));
                tell(self.judged(message, protection.as_ref(), &written));
            }
            Ending::Gathered(length) => {
                let mut message = Gathered::new(gathered, length);
                let message = message.bytes_mut();
                let message = message.filter(|message| is_reply_to(xid, message));
                tell(self.judged(message, protection.as_ref(), &written));
            }
        }
    }

    /// A reply, if there is one and its security context agrees.
    fn judged<'a>(
        &mut self,
        message: Option<&'a mut [u8]>,
        protection: Option<&CallProtection>,
        written: &'a [Option<u32>],
    ) -> Result<Reply<'a>, CallError> {
        let message = message.ok_or(CallError::BadReply);
        match message.and_then(|message| gss::open(protection, message)) {
            Ok(message) => {
                self.counters.replies += 1;
                Ok(Reply { message, written })
            }
            Err(error) => {
                self.counters.bad_replies += 1;
                Err(error)
            }
        }
    }

    /// Tells an owner that has given up, now that its memory is out of reach. The slot, and the
    /// call's credit, stay in use until the reply comes.
    pub(super) fn let_go(&mut self, index: u32, sink: Sink<'_>) {
        let slot = &mut self.slots[index as usize];
        if let Owner::Leaves(error) = slot.owner {
            slot.owner = Owner::Told;
            let id = CallId {
                index,
                sequence: slot.sequence,
            };
            sink(Completion {
                token: slot.token,
                id,
                result: Err(error),
            });
        }
    }
}

/// Whether a message that did not come inline is the reply to a call: both XIDs are the same
/// (RFC 8166 section 4.2.1), and so are direction word and message type (version two draft section
/// 5.2.2).
fn is_reply_to(xid: u32, message: &[u8]) -> bool {
    rpc::peek(message) == Ok((xid, MessageType::Reply))
}

impl CallSlot {
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
