//! Calls that the server makes on the same connection (RFC 8167, version two draft section 5.2.2).
//!
//! They have credits, XIDs and receives of their own, come and are answered inline, and use the
//! version that forward calls use. Chunks are not taken in this direction, which the peer is told
//! by BAD_XDR, or ERR_CHUNK in version one (RFC 8167 section 5.3).

use std::fmt;

use millrace_mempool::Class;
use millrace_reactor::fabric::Provider;
use millrace_wire::rpc::{Accepted, CallHeader, Credential, MessageType, answer_to};
use millrace_wire::rpcrdma::{
    Body, CallChunks, FirstWords, Header, Outgoing, Reason, Refusal, Version, encode_header,
};
use millrace_wire::xdr::{self, Decoder, Encode, Encoder};

use super::connection::Connection;

/// A call of the server's.
#[derive(Clone, Copy, Debug)]
pub struct ReverseCall<'a> {
    /// Transaction identifier, from the server's own numbers.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Who calls.
    pub credential: &'a Credential<'a>,
    /// The arguments as they came.
    pub arguments: &'a [u8],
}

/// Who answers the server's calls.
pub trait ReverseService {
    /// Answers a call at once, and appends its results if it succeeds. The results must fit
    /// inline; of a status that is no success none are sent.
    ///
    /// # Errors
    /// [`xdr::Error::Full`] if the results do not fit: the server is told that there is no room
    /// for the reply. Other errors count as [`Accepted::SystemError`].
    fn serve(&mut self, call: &ReverseCall<'_>, results: &mut Encoder<'_>)
    -> xdr::Result<Accepted>;
}

/// The service, if there is one.
#[derive(Default)]
pub(super) struct Reverse {
    service: Option<Box<dyn ReverseService>>,
}

impl fmt::Debug for Reverse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reverse")
            .field("service", &self.service.is_some())
            .finish()
    }
}

impl Connection {
    /// Takes a service for the server's calls. They are answered if
    /// [`Settings::reverse_credits`](super::Settings::reverse_credits) is more than zero; without
    /// a service by PROG_UNAVAIL.
    pub fn set_reverse_service(&mut self, service: Box<dyn ReverseService>) {
        self.reverse.service = Some(service);
    }

    /// Whether the server may call.
    pub(super) const fn serves_reverse(&self) -> bool {
        self.settings.reverse_credits > 0
    }

    /// What is granted to the server: what it asks for, up to the setting.
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
        let message = match header.body {
            Body::Message {
                lists,
                message,
                padding: None,
            } if lists.is_empty() => message,
            _ => {
                self.refuse(provider, &header.words, Refusal::Header(Reason::TooMany));
                return;
            }
        };
        if let Err(reason) = header.check_xid(message, &self.rules) {
            self.refuse(provider, &header.words, Refusal::Header(reason));
            return;
        }
        if self.answer_reverse(provider, header, message).is_none() {
            self.counters.dropped += 1;
        }
    }

    /// `None` if there is no memory, no room in the send queue, or no answer to such a message.
    fn answer_reverse(
        &mut self,
        provider: &mut dyn Provider,
        header: &Header<'_>,
        message: &[u8],
    ) -> Option<()> {
        let most = self.limits().send;
        let mut buffer = self.pool.try_acquire(Class::for_size(most)?)?;
        let mut out = Encoder::new(&mut buffer[..most]);
        let outgoing = Outgoing {
            version: self.version,
            xid: header.words.xid,
            credits: self.reverse_grant(header.words.credits),
            inline: true,
            direction: MessageType::Reply,
            invalidate: header.invalidate,
        };
        encode_header(&mut out, &outgoing, &CallChunks::default()).ok()?;
        let start = out.position();
        let mut input = Decoder::new(message);
        let served = match CallHeader::decode(&mut input) {
            Err(error) => error.answer()?.encode(&mut out).map(|()| None),
            Ok(call) => self.serve(&call, input.rest(), &mut out),
        };
        let end = match served {
            Ok(None) => out.position(),
            // No results: the header alone, again.
            Ok(Some(status)) => {
                let mut out = Encoder::new(&mut buffer[start..most]);
                answer_to(header.words.xid, status).encode(&mut out).ok()?;
                start + out.position()
            }
            Err(_) => {
                let refusal = Refusal::CannotReply {
                    processed: true,
                    segment: 0,
                    needed: 0,
                };
                self.refuse(provider, &header.words, refusal);
                return Some(());
            }
        };
        self.post_message(provider, buffer.into_slice(0..end))
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

    /// Answers a message of the server's with an error. Where that cannot be sent, the message is
    /// dropped: what does not keep to its credits has no claim to an answer.
    pub(super) fn refuse(
        &mut self,
        provider: &mut dyn Provider,
        words: &FirstWords,
        refusal: Refusal,
    ) {
        let credits = self.reverse_grant(words.credits);
        let versions = self.rules.versions;
        let buffer = self.pool.try_acquire(Class::Control);
        let sent = buffer.and_then(|mut buffer| {
            let mut out = Encoder::new(&mut buffer);
            refusal.encode(words, credits, versions, &mut out).ok()?;
            let length = out.position();
            self.post_message(provider, buffer.into_slice(0..length))
        });
        match sent {
            Some(()) => self.counters.refused += 1,
            None => self.counters.dropped += 1,
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
