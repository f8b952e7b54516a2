//! Calls on their way out: signed, and protected if the context's service says so.

use std::sync::Arc;

use millrace_gss::Progress;
use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_wire::rpc::GssService;
use millrace_wire::xdr::round_up;

use super::{AUTH_WORDS, GssContext, HEADER_MAX, SEQUENCE, SLICE, WORD};
use crate::requester::plan::Shape;
use crate::requester::send::pieces;
use crate::requester::slot::{CallSlot, START};

/// The context of a call in the connection's hands.
#[derive(Debug)]
pub(in crate::requester) struct CallProtection {
    context: Arc<GssContext>,
    /// The sequence number of the transmission that is prepared or sent.
    sequence: Option<u32>,
    /// The protected message of that transmission, and its length.
    message: Option<(Slice, usize)>,
}

impl CallProtection {
    pub fn new(context: &Arc<GssContext>) -> Self {
        Self {
            context: Arc::clone(context),
            sequence: None,
            message: None,
        }
    }

    /// What is sent instead of the plain message.
    pub fn message(&self) -> Option<(&Slice, usize)> {
        self.message
            .as_ref()
            .map(|(message, length)| (message, *length))
    }

    /// The call goes out once more: under another sequence number.
    pub fn renew(&mut self) {
        self.sequence = None;
        self.message = None;
    }

    /// Bytes of the protected message of a call; `None` if it is sent as it is.
    fn length(&self, slot: &CallSlot) -> Option<usize> {
        let (before, behind) = self.context.around();
        self.context
            .protects_bodies()
            .then(|| plain_length(slot) + before + behind)
    }

    /// The layout of a call whose body is protected: one message, with all of its items.
    pub fn shape(&self, slot: &CallSlot) -> Option<Shape> {
        self.length(slot).map(|message| Shape {
            message,
            items: Default::default(),
            ..slot.shape.clone()
        })
    }

    /// Whether the message fits into a buffer once it is protected.
    pub fn fits(&self, slot: &CallSlot) -> bool {
        let length = self.length(slot).unwrap_or(0);
        START + length <= Class::Large.size()
    }

    /// The context, and the sequence number that the reply has to be for.
    pub fn sent(&self) -> (&GssContext, Option<u32>) {
        (&self.context, self.sequence)
    }
}

/// Bytes of a call with its items in place.
fn plain_length(slot: &CallSlot) -> usize {
    let items = slot.items.iter().map(|item| round_up(item.length.into()));
    slot.length + items.sum::<u64>() as usize
}

impl CallSlot {
    /// Signs the call and protects its body, if it has a context and that is not done yet. `None`
    /// if there is no memory now.
    pub(in crate::requester) fn protect(&mut self, pool: &Pool) -> Option<()> {
        let Some(protection) = self.protection.as_ref() else {
            return Some(());
        };
        if protection.sequence.is_some() {
            return Some(());
        }
        let context = Arc::clone(&protection.context);
        let sequence = context.next_sequence();
        let mut header = [0; HEADER_MAX];
        let header = header.get_mut(..context.header())?;
        let plain = self.message.as_ref()?;
        plain.copy_to(START, header);
        context.sign(header, sequence);
        plain.copy_from(START, header);
        let message = match protection.length(self) {
            Some(length) => Some((self.protected(&context, sequence, length, pool)?, length)),
            None => None,
        };
        let protection = self.protection.as_mut()?;
        protection.message = message;
        protection.sequence = Some(sequence);
        Some(())
    }

    /// The protected message, in memory of its own.
    fn protected(
        &self,
        context: &GssContext,
        sequence: u32,
        length: usize,
        pool: &Pool,
    ) -> Option<Slice> {
        let mut buffer: Buffer = pool.try_acquire(Class::for_size(START + length)?)?;
        let (before, _) = context.around();
        // Arguments come to their place, with the header before them, which is moved then.
        let (room, mut at) = (buffer.get_mut(START..START + length)?, before);
        let mut all = true;
        pieces(self, None, &mut |piece| {
            let place = room.get_mut(at..at + piece.len());
            all &= place.map(|place| piece.copy_to(0, place)).is_some();
            at += piece.len();
        })?;
        let header = context.header();
        room.copy_within(before..before + header, 0);
        let arguments = plain_length(self).checked_sub(header)?;
        let protected = all && context.protect_body(room.get_mut(header..)?, arguments, sequence);
        protected.then(|| buffer.into_slice(0..START + length))
    }
}

impl GssContext {
    /// Writes sequence number and verifier into a call's header.
    fn sign(&self, header: &mut [u8], sequence: u32) {
        header[SEQUENCE..SEQUENCE + WORD].copy_from_slice(&sequence.to_be_bytes());
        let (covered, verifier) = header.split_at_mut(self.covered());
        // The room is that of a MIC, so that one is written.
        let _ = self.protection.sign(covered, &mut verifier[AUTH_WORDS..]);
    }

    /// Protects arguments of so many bytes that stand at their place in a body.
    fn protect_body(&self, body: &mut [u8], arguments: usize, sequence: u32) -> bool {
        let (before, _) = self.around();
        let content = before - WORD..before + arguments;
        body[content.start..before].copy_from_slice(&sequence.to_be_bytes());
        let end = match self.service {
            GssService::None => return true,
            GssService::Integrity => {
                put(body, 0, content.len());
                let (covered, checksum) = body.split_at_mut(content.end);
                let written = self
                    .protection
                    .sign(&covered[content], &mut checksum[WORD..]);
                put(checksum, 0, written);
                before + arguments + WORD + written
            }
            GssService::Privacy => {
                let end = WORD + content.len() + self.protection.wrap_overhead();
                put(body, 0, end - WORD);
                let token = &mut body[WORD..end];
                let mut wrapping = self.protection.wrapping(content.len());
                while wrapping.step(token, SLICE) == Ok(Progress::More) {}
                end
            }
        };
        body[end..].fill(0);
        true
    }
}

/// Writes a length.
fn put(bytes: &mut [u8], at: usize, length: usize) {
    bytes[at..at + WORD].copy_from_slice(&(length as u32).to_be_bytes());
}
