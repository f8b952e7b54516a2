//! Extensions of version two: messages of type RDMA2_OPTIONAL (version two draft section 4).
//!
//! None is built in. A message of a type that nobody registered is answered by INVAL_OPTION if its
//! direction is that of a call, and dropped if it is that of a reply, as errors go to requesters
//! only; nothing else changes.
//!
//! Whoever writes an [`Extension`] states its purpose, its XDR, its own errors, whether its
//! messages have a payload, and how it gets on with other extensions (section 4.3).

use std::fmt;

use arrayvec::ArrayVec;
use millrace_mempool::Class;
use millrace_reactor::fabric::Provider;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::{FirstWords, Optional, Refusal, Version, version2};
use millrace_wire::xdr::Encoder;

use super::call::CallError;
use super::connection::{Connection, State};

/// Most messages of extensions without an answer.
const OUT_MAX: usize = 16;

/// Bytes of an RDMA2_OPTIONAL without opaque and payload.
const FRAME: usize = 28;

/// One extension: all of its message types together.
pub trait Extension {
    /// The types of its messages, all of them (section 4.3).
    fn kinds(&self) -> &[u32];

    /// Takes a message of one of its types. A message with direction CALL may be answered: the
    /// answer's opaque bytes are appended to `answer` and its type is returned. A message with
    /// direction REPLY is never answered.
    fn received(
        &mut self,
        xid: u32,
        message: &Optional<'_>,
        answer: &mut Encoder<'_>,
    ) -> Option<u32>;

    /// The server refused a message that [`Connection::send_option`] sent.
    fn refused(&mut self, xid: u32, error: CallError);
}

/// Why an extension was not taken, or a message of it was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// One of its types belongs to another extension, or stands there twice. None of its types
    /// was registered.
    #[error("the message type {0:#010x} is taken")]
    Taken(u32),
    /// It has no types.
    #[error("an extension without message types")]
    Empty,
    /// No extension has this type.
    #[error("the message type {0:#010x} belongs to no extension")]
    Unknown(u32),
    /// The connection does not speak version two.
    #[error("the connection does not speak version two")]
    Version,
    /// No credit, no memory or no room in the send queue now.
    #[error("no message can be sent now")]
    Busy,
    /// The message is longer than the server takes.
    #[error("the message is too long")]
    TooLong,
}

/// The extensions of a connection.
#[derive(Default)]
pub(super) struct Extensions {
    list: Vec<Box<dyn Extension>>,
    /// Messages without an answer: XID and extension.
    out: ArrayVec<(u32, usize), OUT_MAX>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Extensions")
            .field("extensions", &self.list.len())
            .field("out", &self.out)
            .finish()
    }
}

impl Extensions {
    fn register(&mut self, extension: Box<dyn Extension>) -> Result<(), OptionError> {
        let kinds = extension.kinds();
        if kinds.is_empty() {
            return Err(OptionError::Empty);
        }
        for (at, &kind) in kinds.iter().enumerate() {
            if kinds[..at].contains(&kind) || self.find(kind).is_some() {
                return Err(OptionError::Taken(kind));
            }
        }
        self.list.push(extension);
        Ok(())
    }

    fn find(&self, kind: u32) -> Option<usize> {
        let mut list = self.list.iter();
        list.position(|extension| extension.kinds().contains(&kind))
    }

    /// Takes a message off the list of those without an answer.
    fn answered(&mut self, xid: u32) -> Option<usize> {
        let at = self.out.iter().position(|&(out, _)| out == xid)?;
        Some(self.out.swap_remove(at).1)
    }

    /// A new connection owes no answers.
    pub(super) fn forget(&mut self) {
        self.out.clear();
    }
}

impl Connection {
    /// Registers an extension with all its message types.
    ///
    /// # Errors
    /// [`OptionError::Taken`], [`OptionError::Empty`]; then none of its types is registered.
    pub fn register(&mut self, extension: Box<dyn Extension>) -> Result<(), OptionError> {
        self.extensions.register(extension)
    }

    /// Sends a message of an extension without payload, as a call (section 5.2.2), and returns its
    /// XID. It takes a credit until its answer comes.
    ///
    /// # Errors
    /// As [`OptionError`] tells; then nothing was sent.
    pub fn send_option(
        &mut self,
        provider: &mut dyn Provider,
        kind: u32,
        opaque: &[u8],
    ) -> Result<u32, OptionError> {
        let owner = self
            .extensions
            .find(kind)
            .ok_or(OptionError::Unknown(kind))?;
        if self.state != State::Ready || self.version != Version::Two {
            return Err(OptionError::Version);
        }
        if FRAME + opaque.len().next_multiple_of(4) > self.limits().send {
            return Err(OptionError::TooLong);
        }
        if !self.window.has_room() || self.extensions.out.is_full() {
            return Err(OptionError::Busy);
        }
        let xid = self.own_xid();
        let optional = Optional {
            direction: MessageType::Call,
            kind,
            opaque,
            payload: &[],
        };
        self.send_optional(provider, xid, self.window.wish(), &optional)
            .ok_or(OptionError::Busy)?;
        self.window.sent();
        self.extensions.out.push((xid, owner));
        Ok(xid)
    }

    fn send_optional(
        &mut self,
        provider: &mut dyn Provider,
        xid: u32,
        credits: u32,
        optional: &Optional<'_>,
    ) -> Option<()> {
        let most = self.limits().send;
        let mut buffer = self.pool.try_acquire(Class::for_size(most)?)?;
        let mut out = Encoder::new(&mut buffer[..most]);
        version2::encode_optional(&mut out, xid, credits, optional).ok()?;
        let length = out.position();
        self.post_message(provider, buffer.into_slice(0..length))
    }

    /// A message of an extension, known or not. XID and credits of a reply belong to the messages
    /// that [`send_option`](Self::send_option) sent, and to no call (section 5.2.2).
    pub(super) fn on_optional(
        &mut self,
        provider: &mut dyn Provider,
        words: &FirstWords,
        message: &Optional<'_>,
    ) {
        let is_call = message.direction == MessageType::Call;
        let Some(owner) = self.extensions.find(message.kind) else {
            if is_call {
                self.refuse(provider, words, Refusal::Option);
            } else {
                self.counters.dropped += 1;
            }
            return;
        };
        if !is_call && self.extensions.answered(words.xid).is_some() {
            self.window.answered(words.credits, true);
        }
        let mut space = [0; 1024];
        let mut answer = Encoder::new(&mut space);
        let extension = &mut self.extensions.list[owner];
        let kind = extension.received(words.xid, message, &mut answer);
        let Some(kind) = kind.filter(|_| is_call) else {
            return;
        };
        let length = answer.position();
        let optional = Optional {
            direction: MessageType::Reply,
            kind,
            opaque: &space[..length],
            payload: &[],
        };
        let credits = self.reverse_grant(words.credits);
        let most = self.limits().send.min(FRAME + space.len());
        let mut message = [0; FRAME + 1024];
        let mut out = Encoder::new(&mut message[..most]);
        match version2::encode_optional(&mut out, words.xid, credits, &optional) {
            Ok(()) => {
                let length = out.position();
                self.send_answer(provider, &message[..length]);
            }
            Err(_) => self.counters.dropped += 1,
        }
    }

    /// An error for a message of an extension. False if there is no such message.
    pub(super) fn on_option_error(&mut self, xid: u32, credits: u32, error: CallError) -> bool {
        let Some(owner) = self.extensions.answered(xid) else {
            return false;
        };
        self.counters.errors += 1;
        self.window.answered(credits, false);
        self.extensions.list[owner].refused(xid, error);
        true
    }
}
