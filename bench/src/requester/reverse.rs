//! Calls that the server makes on the same connection (RFC 8167, version two draft section 5.2.2).
//!
//! They have credits, XIDs and receives of their own, are received and answered inline, and use the
//! version of the forward calls. Chunks in this direction are refused by BAD_XDR, or ERR_CHUNK in
//! version one (RFC 8167 section 5.3).
//!
//! Calls are served in order of arrival. An answer that cannot be sent at once, for lack of memory
//! or room in the send queue, waits for [`Connection::pump`]. The number of waiting answers is
//! limited by the server's credits, since it needs the answers before it may call again.

use std::sync::Arc;

use millrace_mempool::Class;
use millrace_reactor::fabric::Provider;
use millrace_wire::rpc::{
    Accepted, CallHeader, CallOutcome, Denied, MessageType, ReplyHeader, answer_to, peek,
};
use millrace_wire::rpcrdma::{
    Body, CallChunks, ERROR_MAX, FirstWords, Header, Outgoing, Refusal, Version, encode_header,
};
use millrace_wire::xdr::{self, Decoder, Encode, Encoder};

use super::connection::Connection;
use super::gss::{GssContext, ReverseCallFault, ReverseContext};
use super::reverse_service::{ReverseCall, ReverseService};

impl Connection {
    /// Takes a service for the server's calls. They are answered if
    /// [`Settings::reverse_credits`](super::Settings::reverse_credits) is more than zero; without
    /// a service by PROG_UNAVAIL.
    pub fn set_reverse_service(&mut self, service: Box<dyn ReverseService>) {
        self.reverse.service = Some(service);
    }

    /// Serves only calls of the server under this context from now on, and signs the answers; any
    /// call without one. The server knows it by the offer of the client's CREATE_SESSION
    /// (RFC 8881 section 18.36.3).
    pub fn protect_reverse(&mut self, context: Option<&Arc<GssContext>>) {
        self.reverse.context = context.map(ReverseContext::new);
    }

    /// Whether the server may call.
    pub(super) const fn serves_reverse(&self) -> bool {
        self.settings.reverse_credits > 0
    }

    /// The credits granted to the server: the requested number, up to the setting.
    pub(super) fn reverse_grant(&self, wish: u32) -> u32 {
        wish.clamp(1, self.settings.reverse_credits.max(1))
    }

    /// Answers a call of the server's.
    pub(super) fn on_reverse_call(&mut self, provider: &mut dyn Provider, header: &Header<'_>) {
        if !self.serves_reverse() {
            self.counters.dropped += 1;
            return;
        }
        self.counters.reverse_calls += 1;
        let message = match header.reverse_message(&self.rules) {
            Ok(message) => message,
            Err(reason) => {
                return self.refuse(provider, &header.words, Refusal::Header(reason));
            }
        };
        let mut space = std::mem::take(&mut self.reverse.space);
        space.resize(self.limits().send, 0);
        match self.answer_reverse(header, message, &mut space) {
            Ok(Some(length)) => self.send_answer(provider, &space[..length]),
            Ok(None) => self.counters.dropped += 1,
            Err(refusal) => self.refuse(provider, &header.words, refusal),
        }
        self.reverse.space = space;
    }

    /// Serves a call and makes its answer; returns the bytes of that. `None` if such a message has
    /// no answer.
    ///
    /// # Errors
    /// The fault, if the answer does not fit.
    fn answer_reverse(
        &mut self,
        header: &Header<'_>,
        message: &[u8],
        space: &mut [u8],
    ) -> Result<Option<usize>, Refusal> {
        let no_room = Refusal::CannotReply {
            processed: true,
            segment: 0,
            needed: 0,
        };
        let mut out = Encoder::new(space);
        let outgoing = Outgoing {
            version: self.version,
            xid: header.words.xid,
            credits: self.reverse_grant(header.words.credits),
            inline: true,
            direction: MessageType::Reply,
            invalidate: header.invalidate,
        };
        encode_header(&mut out, &outgoing, &CallChunks::default()).map_err(|_| no_room)?;
        let start = out.position();
        let room = &mut space[start..];
        // The service may not see the context.
        let context = self.reverse.context.take();
        let answer = match &context {
            None => self.answer_plain(message, room),
            Some(context) => self.answer_protected(context, message, room),
        };
        self.reverse.context = context;
        let answer = answer.map_err(|_| no_room)?;
        Ok(answer.map(|length| start + length))
    }

    /// Serves a call under a context; returns the bytes of its answer.
    fn answer_protected(
        &mut self,
        context: &ReverseContext,
        message: &[u8],
        space: &mut [u8],
    ) -> xdr::Result<Option<usize>> {
        let Ok((xid, _)) = peek(message) else {
            return Ok(None);
        };
        let opened = match context.open(message) {
            Ok(opened) => opened,
            Err(ReverseCallFault::Dropped) => return Ok(None),
            Err(ReverseCallFault::Denied(status)) => {
                self.counters.refused += 1;
                let outcome = CallOutcome::Denied(Denied::Auth(status));
                return xdr::to_bytes(&ReplyHeader { xid, outcome }, space).map(Some);
            }
        };
        let length = match &opened.plain {
            Some(plain) => self.answer_plain(plain, space)?,
            None => Some(xdr::to_bytes(
                &answer_to(xid, Accepted::GarbageArguments),
                space,
            )?),
        };
        let answer = length.and_then(|length| context.reply(&opened, &space[..length]));
        let Some(answer) = answer else {
            return Ok(None);
        };
        let room = space.get_mut(..answer.len()).ok_or(xdr::Error::Full)?;
        room.copy_from_slice(&answer);
        Ok(Some(answer.len()))
    }

    /// Serves a call that is not protected, or not any more; returns the bytes of its answer.
    fn answer_plain(&mut self, message: &[u8], space: &mut [u8]) -> xdr::Result<Option<usize>> {
        let mut out = Encoder::new(space);
        let mut input = Decoder::new(message);
        let served = match CallHeader::decode(&mut input) {
            Err(error) => {
                let Some(answer) = error.answer() else {
                    return Ok(None);
                };
                answer.encode(&mut out)?;
                return Ok(Some(out.position()));
            }
            Ok(call) => (call.xid, self.serve(&call, input.rest(), &mut out)?),
        };
        match served {
            (_, None) => Ok(Some(out.position())),
            // No results: the header alone, again.
            (xid, Some(status)) => xdr::to_bytes(&answer_to(xid, status), space).map(Some),
        }
    }

    /// Sends an answer to a message of the server's, as soon as that can be. False if more of them
    /// wait than the server has credits: what does not keep to those has no claim to an answer.
    pub(super) fn try_send_answer(&mut self, provider: &mut dyn Provider, answer: &[u8]) -> bool {
        let waiting = self.reverse.waiting.len();
        if waiting == 0 && self.post_answer(provider, answer).is_some() {
            return true;
        }
        let most = self.settings.reverse_credits.max(1) as usize;
        if waiting < most {
            self.reverse.waiting.push_back(answer.into());
        }
        waiting < most
    }

    /// The same; those that are too many are counted.
    pub(super) fn send_answer(&mut self, provider: &mut dyn Provider, answer: &[u8]) {
        if !self.try_send_answer(provider, answer) {
            self.counters.dropped += 1;
        }
    }

    /// Sends answers that wait, as far as memory and the send queue allow. Returns how many.
    pub(super) fn pump_answers(&mut self, provider: &mut dyn Provider) -> usize {
        let mut sent = 0;
        while let Some(answer) = self.reverse.waiting.pop_front() {
            if self.post_answer(provider, &answer).is_none() {
                self.reverse.waiting.push_front(answer);
                break;
            }
            sent += 1;
        }
        sent
    }

    fn post_answer(&mut self, provider: &mut dyn Provider, answer: &[u8]) -> Option<()> {
        if provider.send_room(self.queue_pair) == 0 {
            return None;
        }
        let class = Class::for_size(answer.len())?;
        let mut buffer = self.pool.try_acquire(class)?;
        buffer[..answer.len()].copy_from_slice(answer);
        self.post_message(provider, buffer.into_slice(0..answer.len()))
    }

    /// Appends header and results; returns the status if the call failed.
    fn serve(
        &mut self,
        call: &CallHeader<'_>,
        arguments: &[u8],
        out: &mut Encoder<'_>,
    ) -> xdr::Result<Option<Accepted>> {
        let Some(service) = &mut self.reverse.service else {
            return Ok(Some(Accepted::ProgramUnavailable));
        };
        let reverse = ReverseCall {
            xid: call.xid,
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            credential: &call.credential,
            arguments,
        };
        answer_to(call.xid, Accepted::Success).encode(out)?;
        match service.serve(&reverse, out) {
            Ok(Accepted::Success) => Ok(None),
            Ok(status) => Ok(Some(status)),
            Err(xdr::Error::Full) => Err(xdr::Error::Full),
            Err(_) => Ok(Some(Accepted::SystemError)),
        }
    }

    /// Answers a message of the server's with an error.
    pub(super) fn refuse(
        &mut self,
        provider: &mut dyn Provider,
        words: &FirstWords,
        refusal: Refusal,
    ) {
        let credits = self.reverse_grant(words.credits);
        let versions = self.rules.versions;
        let mut space = [0; ERROR_MAX];
        let mut out = Encoder::new(&mut space);
        let encoded = refusal.encode(words, credits, versions, &mut out).is_ok();
        let length = out.position();
        if encoded && self.try_send_answer(provider, &space[..length]) {
            self.counters.refused += 1;
        } else {
            self.counters.dropped += 1;
        }
    }

    /// A message that awaits no call of ours and has a read chunk at position zero, in version
    /// one: a long call, which has no direction word to say so.
    pub(super) fn is_long_call(&self, header: &Header<'_>) -> bool {
        self.serves_reverse()
            && self.version == Version::One
            && matches!(header.body, Body::NoMessage { lists } if lists.reads.chunk(0).is_some())
    }
}
