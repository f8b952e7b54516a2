//! Replies on their way in: verified, and made as plain as those of AUTH_SYS.

use std::ops::Range;

use millrace_gss::Progress;
use millrace_wire::rpc::{
    Accepted, AuthStatus, CallOutcome, Denied, GssService, IntegrityBody, RPCSEC_GSS, ReplyHeader,
    privacy_token, protected_content,
};
use millrace_wire::xdr::{Decode, Decoder};

use super::{AUTH_WORDS, CallProtection, GssContext, SLICE, SecurityFault, WORD};
use crate::requester::call::CallError;

/// Bytes of a reply before its verifier: XID, message type and reply status.
pub(super) const BEFORE_VERIFIER: usize = 12;
/// Bytes of a plain reply before its accept status, and before the results of a success.
pub(super) const PLAIN_STATUS: usize = BEFORE_VERIFIER + AUTH_WORDS;
pub(super) const PLAIN_HEADER: usize = PLAIN_STATUS + WORD;

/// The reply to a call as one without security, if it is the server's to this call.
pub(in crate::requester) fn open<'m>(
    protection: Option<&CallProtection>,
    message: &'m mut [u8],
) -> Result<&'m [u8], CallError> {
    let Some(protection) = protection else {
        return Ok(message);
    };
    let (context, sequence) = protection.sent();
    let sequence = sequence.ok_or(CallError::BadReply)?;
    let plain = context
        .open(sequence, message)
        .map_err(CallError::Security)?;
    message.get(plain).ok_or(CallError::BadReply)
}

impl GssContext {
    /// Verifies a reply, decrypts its results and writes a plain header before them. Returns where
    /// the plain reply stands.
    fn open(&self, sequence: u32, message: &mut [u8]) -> Result<Range<usize>, SecurityFault> {
        let mut input = Decoder::new(message);
        let header = ReplyHeader::decode(&mut input).map_err(|_| SecurityFault::Verifier)?;
        let (verifier, status) = match header.outcome {
            CallOutcome::Accepted { verifier, status } => (verifier, status),
            // Refusals have no verifier (RFC 2203 section 5.3.3.3): anyone could have sent them.
            CallOutcome::Denied(Denied::Auth(AuthStatus::GssCredentialProblem)) => {
                return Err(SecurityFault::ContextUnknown);
            }
            CallOutcome::Denied(Denied::Auth(AuthStatus::GssContextProblem)) => {
                return Err(SecurityFault::ContextEnded);
            }
            CallOutcome::Denied(_) => return Ok(0..message.len()),
        };
        let is_own = verifier.flavor == RPCSEC_GSS
            && self
                .protection
                .verify_mic(&sequence.to_be_bytes(), verifier.body);
        if !is_own {
            return Err(SecurityFault::Verifier);
        }
        let after_verifier =
            BEFORE_VERIFIER + AUTH_WORDS + verifier.body.len().next_multiple_of(WORD);
        let xid = header.xid;
        // Other statuses than success have no results (RFC 2203 section 5.3.3.2).
        if status != Accepted::Success || !self.protects_bodies() {
            let plain = after_verifier - PLAIN_STATUS..message.len();
            write_front(&mut message[plain.clone()], xid);
            return Ok(plain);
        }
        let results = self.open_results(sequence, message, message.len() - input.remaining());
        let results = results.ok_or(SecurityFault::Results)?;
        let plain = results.start - PLAIN_HEADER..results.end;
        let front = &mut message[plain.clone()];
        write_front(front, xid);
        front[PLAIN_STATUS..PLAIN_HEADER].fill(0);
        Ok(plain)
    }

    /// Where the results, or arguments, stand that are the rest of a message, out of their
    /// protection.
    pub(super) fn open_results(
        &self,
        sequence: u32,
        message: &mut [u8],
        at: usize,
    ) -> Option<Range<usize>> {
        let mut input = Decoder::new(message.get(at..)?);
        // The lengths stand before what they count.
        let content = match self.service {
            GssService::None => return Some(at..message.len()),
            GssService::Integrity => {
                let body = IntegrityBody::decode_all(&mut input).ok()?;
                let is_good = self.protection.verify_mic(body.covered, body.checksum);
                is_good.then_some(at + WORD..at + WORD + body.covered.len())?
            }
            GssService::Privacy => {
                let length = privacy_token(&mut input).ok()?.len();
                let token = message.get_mut(at + WORD..at + WORD + length)?;
                let mut unwrapping = self.protection.unwrapping(token).ok()?;
                let within = loop {
                    if let Progress::Done(within) = unwrapping.step(token, SLICE).ok()? {
                        break within;
                    }
                };
                at + WORD + within.start..at + WORD + within.end
            }
        };
        let (inner, _) = protected_content(&message[content.clone()]).ok()?;
        (inner == sequence).then_some(content.start + WORD..content.end)
    }
}

/// Writes what a plain reply has before its accept status.
fn write_front(message: &mut [u8], xid: u32) {
    message[..WORD].copy_from_slice(&xid.to_be_bytes());
    message[WORD..PLAIN_STATUS].fill(0);
    // A reply.
    message[2 * WORD - 1] = 1;
}
