//! RPCSEC_GSS of calls to clients (RFC 2203 section 5.3, RFC 8881 section 18.36.3). The server calls
//! under a context that the client made: its tokens are those of the acceptor, its sequence numbers
//! are independent of those of the client's calls.
//!
//! Calls to clients are short, so that they are protected at once, and in memory of their own.

use std::fmt;
use std::ops::Range;

use millrace_gss::{ContextRef, Progress};
use millrace_wire::rpc::{
    Accepted, CallOutcome, GssCredential, GssProcedure, GssService, IntegrityBody, OpaqueAuth,
    RPCSEC_GSS, ReplyHeader, privacy_token, protected_content,
};
use millrace_wire::xdr::{Decode, Decoder, Encode, Encoder};

use super::gss::MIC_MAX;

/// Bytes of a word.
const WORD: usize = 4;
/// Bytes of a call before its credential, and of an empty credential or verifier.
const BEFORE_CREDENTIAL: usize = 24;
const EMPTY: usize = 8;
/// Bytes of a call with empty credential and verifier before its arguments.
const PLAIN_HEADER: usize = BEFORE_CREDENTIAL + 2 * EMPTY;

/// The protection of one transmission of a call to a client. A repetition has another one, with a
/// sequence number of its own.
pub struct ReverseProtection {
    context: ContextRef,
    service: GssService,
    /// The client's handle of the context.
    handle: Box<[u8]>,
    sequence: u32,
}

impl fmt::Debug for ReverseProtection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReverseProtection")
            .field("service", &self.service)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl ReverseProtection {
    /// The protection of the next transmission under a context, which the client knows by `handle`.
    /// `None` when all sequence numbers are used up.
    #[must_use]
    pub fn new(context: ContextRef, service: GssService, handle: &[u8]) -> Option<Self> {
        Some(Self {
            sequence: context.next_reverse_sequence()?,
            context,
            service,
            handle: handle.into(),
        })
    }

    /// Bytes of the protected message of a plain one of so many.
    #[must_use]
    pub fn length(&self, plain: usize) -> usize {
        let arguments = plain.saturating_sub(PLAIN_HEADER);
        let mic = self.context.mic_length().next_multiple_of(WORD);
        let content = WORD + arguments;
        let body = match self.service {
            GssService::None => arguments,
            GssService::Integrity => WORD + content + WORD + mic,
            GssService::Privacy => WORD + content + self.context.wrap_overhead(),
        };
        let credential = EMPTY + 5 * WORD + self.handle.len().next_multiple_of(WORD);
        BEFORE_CREDENTIAL + credential + EMPTY + mic + body.next_multiple_of(WORD)
    }

    /// The protected message of a plain one with empty credential and verifier. `None` if it is none,
    /// or cannot be protected.
    #[must_use]
    pub fn protect(&self, plain: &[u8], xid: u32) -> Option<Vec<u8>> {
        let (before, arguments) = (
            plain.get(WORD..BEFORE_CREDENTIAL)?,
            plain.get(PLAIN_HEADER..)?,
        );
        let mut message = vec![0; self.length(plain.len())];
        let mut out = Encoder::new(&mut message);
        out.u32(xid).ok()?;
        out.raw(before).ok()?;
        let credential = GssCredential {
            procedure: GssProcedure::Data,
            sequence: self.sequence,
            service: self.service,
            handle: &self.handle,
        };
        credential.encode(&mut out).ok()?;
        let mut mic = [0; MIC_MAX];
        let verifier = OpaqueAuth::from(self.sign(out.written(), &mut mic)?);
        verifier.encode(&mut out).ok()?;
        let content = || [&self.sequence.to_be_bytes(), arguments].concat();
        match self.service {
            GssService::None => out.raw(arguments).ok()?,
            GssService::Integrity => {
                let covered = &content();
                let checksum = self.sign(covered, &mut mic)?;
                let body = IntegrityBody { covered, checksum };
                body.encode(&mut out).ok()?;
            }
            GssService::Privacy => out.opaque(&self.wrap(&content())?).ok()?,
        }
        debug_assert_eq!(out.position(), message.len());
        Some(message)
    }

    fn sign<'m>(&self, message: &[u8], mic: &'m mut [u8]) -> Option<&'m [u8]> {
        let length = self.context.sign(message, mic);
        mic.get(..length).filter(|mic| !mic.is_empty())
    }

    fn wrap(&self, content: &[u8]) -> Option<Vec<u8>> {
        let mut token = vec![0; content.len() + self.context.wrap_overhead()];
        let start = self.context.wrap_prefix();
        token
            .get_mut(start..start + content.len())?
            .copy_from_slice(content);
        let (mut wrapping, all) = (self.context.wrapping(content.len()), token.len());
        while wrapping.step(&mut token, all).ok()? == Progress::More {}
        Some(token)
    }

    /// The plain message of a reply, with an empty verifier; `None` if it is not the client's to this
    /// transmission. Refusals have no verifier (RFC 2203 section 5.3.3.3).
    #[must_use]
    pub fn open(&self, reply: &[u8]) -> Option<Vec<u8>> {
        let mut input = Decoder::new(reply);
        let header = ReplyHeader::decode(&mut input).ok()?;
        let CallOutcome::Accepted { verifier, status } = header.outcome else {
            return Some(reply.to_vec());
        };
        let number = self.sequence.to_be_bytes();
        if verifier.flavor != RPCSEC_GSS || !self.context.verify_mic(&number, verifier.body) {
            return None;
        }
        let mut token;
        let results = match self.service {
            // Other statuses than success have no results.
            _ if status != Accepted::Success => input.rest(),
            GssService::None => input.rest(),
            GssService::Integrity => {
                let body = IntegrityBody::decode_all(&mut input).ok()?;
                let is_good = self.context.verify_mic(body.covered, body.checksum);
                self.results(is_good.then_some(body.covered)?)?
            }
            GssService::Privacy => {
                token = privacy_token(&mut input).ok()?.to_vec();
                let content = self.unwrap(&mut token)?;
                self.results(&token[content])?
            }
        };
        let plain = ReplyHeader {
            xid: header.xid,
            outcome: CallOutcome::Accepted {
                verifier: OpaqueAuth::NONE,
                status,
            },
        };
        // The verifier alone takes more than what an empty one does.
        let mut message = vec![0; reply.len()];
        let mut out = Encoder::new(&mut message);
        plain.encode(&mut out).ok()?;
        out.raw(results).ok()?;
        let length = out.position();
        message.truncate(length);
        Some(message)
    }

    fn unwrap(&self, token: &mut [u8]) -> Option<Range<usize>> {
        let (mut unwrapping, all) = (self.context.unwrapping(token).ok()?, token.len());
        loop {
            if let Progress::Done(content) = unwrapping.step(token, all).ok()? {
                return Some(content);
            }
        }
    }

    /// The results of a body whose sequence number is that of the call.
    fn results<'b>(&self, content: &'b [u8]) -> Option<&'b [u8]> {
        let (sequence, results) = protected_content(content).ok()?;
        (sequence == self.sequence).then_some(results)
    }
}
