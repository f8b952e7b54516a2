//! Calls on their way out: signed, and protected if the context's service says so.

use std::sync::Arc;

use millrace_gss::Progress;
use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_wire::rpc::GssService;

use super::{AUTH_WORDS, GssContext, HEADER_MAX, SEQUENCE, SLICE, WORD};
use crate::requester::plan::{HEADER_MAX as START, Shape};

/// The context of a call in the connection's hands.
#[derive(Debug)]
pub(in crate::requester) struct CallProtection {
    context: Arc<GssContext>,
    /// The sequence number of the transmission that is prepared or sent.
    sequence: Option<u32>,
    /// The protected message of that transmission, and its length.
    message: Option<(Slice, usize)>,
}

/// Takes the pieces of a message, one after the other.
pub(in crate::requester) type PieceSink<'a> = &'a mut dyn FnMut(Slice);

/// A plain call: its buffer, in which the message has room for a transport header before it, its
/// bytes with all items in place, and what goes through them in order.
pub(in crate::requester) struct PlainCall<'a> {
    pub buffer: &'a Slice,
    pub length: usize,
    pub pieces: &'a dyn Fn(PieceSink<'_>) -> Option<()>,
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
        let message = self.message.as_ref();
        message.map(|(message, length)| (message, *length))
    }

    /// The call goes out once more: under another sequence number.
    pub fn renew(&mut self) {
        self.sequence = None;
        self.message = None;
    }

    /// Bytes of the protected message of a call that has so many with all items in place; `None` if
    /// it is sent as it is.
    fn length(&self, plain: usize) -> Option<usize> {
        let (before, behind) = self.context.around();
        let protects = self.context.protects_bodies();
        protects.then_some(before + plain + behind)
    }

    /// The layout of a call of this layout and length once it is protected, if it is: one message,
    /// with all of its items.
    pub fn shape(&self, plain: &Shape, length: usize) -> Option<Shape> {
        self.length(length).map(|message| Shape {
            message,
            items: Default::default(),
            ..plain.clone()
        })
    }

    /// Whether a message of this length fits into a buffer once it is protected.
    pub fn fits(&self, plain: usize) -> bool {
        START + self.length(plain).unwrap_or(0) <= Class::Large.size()
    }

    /// The context, and the sequence number that the reply has to be for.
    pub fn sent(&self) -> (&GssContext, Option<u32>) {
        (&self.context, self.sequence)
    }

    /// Signs a call and protects its body, unless that is done. `None` if there is no memory now.
    pub fn protect(&mut self, call: &PlainCall<'_>, pool: &Pool) -> Option<()> {
        if self.sequence.is_some() {
            return Some(());
        }
        let sequence = self.context.next_sequence();
        let mut header = [0; HEADER_MAX];
        let header = header.get_mut(..self.context.header())?;
        call.buffer.copy_to(START, header);
        self.context.sign(header, sequence);
        call.buffer.copy_from(START, header);
        self.message = match self.length(call.length) {
            Some(length) => Some((self.protected(call, sequence, length, pool)?, length)),
            None => None,
        };
        self.sequence = Some(sequence);
        Some(())
    }

    /// The protected message, in memory of its own.
    fn protected(
        &self,
        call: &PlainCall<'_>,
        sequence: u32,
        length: usize,
        pool: &Pool,
    ) -> Option<Slice> {
        let mut buffer: Buffer = pool.try_acquire(Class::for_size(START + length)?)?;
        let (before, _) = self.context.around();
        // Arguments come to their place, with the header before them, which is moved then.
        let (room, mut at) = (buffer.get_mut(START..START + length)?, before);
        let mut all = true;
        (call.pieces)(&mut |piece| {
            let place = room.get_mut(at..at + piece.len());
            all &= place.map(|place| piece.copy_to(0, place)).is_some();
            at += piece.len();
        })?;
        let header = self.context.header();
        room.copy_within(before..before + header, 0);
        let (body, arguments) = (room.get_mut(header..)?, call.length.checked_sub(header)?);
        let protected = all && self.context.protect_body(body, arguments, sequence);
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

    /// Protects arguments, or results, of so many bytes that stand at their place in a body.
    pub(super) fn protect_body(&self, body: &mut [u8], arguments: usize, sequence: u32) -> bool {
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
