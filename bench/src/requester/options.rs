//! Extensions of version two: messages of type RDMA2_OPTIONAL (version two draft section 4).
//!
//! None is built in. A message of an unregistered type is answered by INVAL_OPTION if it has the
//! direction of a call, and dropped if it has that of a reply, as errors are sent to requesters
//! only; nothing else changes.
//!
//! The documentation of an [`Extension`] states its purpose, its XDR, its own errors, whether its
//! messages have a payload, and its interaction with other extensions (section 4.3).

use millrace_mempool::Class;
use millrace_reactor::fabric::Provider;
use millrace_wire::rpc::MessageType;
use millrace_wire::rpcrdma::version2::{OPTIONAL_LENGTH, encode_optional};
use millrace_wire::rpcrdma::{FirstWords, Optional, Refusal, RegisterError, Version};
use millrace_wire::xdr::Encoder;

use super::call::CallError;
use super::connection::{Connection, RequesterState};
use super::extensions::{Extension, OptionError};

impl Connection {
    /// Registers an extension with all its message types.
    ///
    /// # Errors
    /// [`RegisterError`]; then none of its types is registered.
    pub fn register(&mut self, extension: Box<dyn Extension>) -> Result<(), RegisterError> {
        let kinds = extension.kinds().to_vec();
        self.extensions.table.register(&kinds, extension)
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
        if self.extensions.table.find(kind).is_none() {
            return Err(OptionError::Unknown(kind));
        }
        if self.state != RequesterState::Ready || self.version != Version::Two {
            return Err(OptionError::Version);
        }
        if OPTIONAL_LENGTH + opaque.len().next_multiple_of(4) > self.limits().send {
            return Err(OptionError::TooLong);
        }
        if !self.window.has_room() || self.extensions.out.is_full() {
            return Err(OptionError::Busy);
        }
        let xid = self.own_xid();
        let optional = Optional::new(MessageType::Call, kind, opaque);
        self.send_optional(provider, xid, self.window.wish(), &optional)
            .ok_or(OptionError::Busy)?;
        self.window.sent();
        self.extensions.out.push((xid, kind));
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
        encode_optional(&mut out, xid, credits, optional).ok()?;
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
        let known = self.extensions.table.find(message.kind).is_some();
        if known && !is_call && self.extensions.answered(words.xid).is_some() {
            self.window.answered(words.credits, true);
        }
        let mut space = [0; 1024];
        let mut answer = Encoder::new(&mut space);
        let Some(extension) = self.extensions.table.find_mut(message.kind) else {
            if is_call {
                self.refuse(provider, words, Refusal::Option);
            } else {
                self.counters.dropped += 1;
            }
            return;
        };
        let kind = extension.received(words.xid, message, &mut answer);
        let Some(kind) = kind.filter(|_| is_call) else {
            return;
        };
        let length = answer.position();
        let optional = Optional::new(MessageType::Reply, kind, &space[..length]);
        let credits = self.reverse_grant(words.credits);
        let most = self.limits().send.min(OPTIONAL_LENGTH + space.len());
        let mut message = [0; OPTIONAL_LENGTH + 1024];
        let mut out = Encoder::new(&mut message[..most]);
        match encode_optional(&mut out, words.xid, credits, &optional) {
            Ok(()) => {
                let length = out.position();
                self.send_answer(provider, &message[..length]);
            }
            Err(_) => self.counters.dropped += 1,
        }
    }

    /// An error for a message of an extension. False if there is no such message.
    pub(super) fn on_option_error(&mut self, xid: u32, credits: u32, error: CallError) -> bool {
        let Some(kind) = self.extensions.answered(xid) else {
            return false;
        };
        self.counters.errors += 1;
        self.window.answered(credits, false);
        if let Some(extension) = self.extensions.table.find_mut(kind) {
            extension.refused(xid, error);
        }
        true
    }
}
