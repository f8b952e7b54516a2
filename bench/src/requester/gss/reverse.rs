//! Calls of the server under the context of the client's calls (RFC 8881 section 18.36.3). The
//! server's sequence numbers are independent of the client's, and have a window of their own.

use std::sync::Arc;

use millrace_gss::{Sequence, SequenceWindow};
use millrace_wire::nfs4::{CallbackSecurity, GssHandles};
use millrace_wire::rpc::{
    AuthStatus, CallWords, GssCredential, GssProcedure, OpaqueAuth, RPCSEC_GSS,
};
use millrace_wire::xdr::{self, Decoder};

use super::reply::{BEFORE_VERIFIER, PLAIN_HEADER, PLAIN_STATUS};
use super::{AUTH_WORDS, BEFORE_CREDENTIAL, GssContext, MIC_MAX, WORD};

/// The client's handle of its context. Each connection has one context at most.
const HANDLE: &[u8] = b"millrace-bench";

/// A context in the direction of the server's calls.
pub(in crate::requester) struct ReverseContext {
    context: Arc<GssContext>,
    window: SequenceWindow,
}

/// A call of the server's that verifies.
pub(in crate::requester) struct OpenedReverseCall {
    /// The call with empty credential and verifier; `None` if its body does not verify.
    pub plain: Option<Vec<u8>>,
    sequence: u32,
}

/// Why a call of the server's is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::requester) enum ReverseCallFault {
    /// It is refused.
    Denied(AuthStatus),
    /// It is answered with silence: it is no call, or a repetition.
    Dropped,
}

impl GssContext {
    /// This context, as a client offers it for callbacks.
    pub(in crate::requester) fn offer(&self) -> CallbackSecurity<'_> {
        CallbackSecurity::Gss(GssHandles {
            service: self.service,
            server: &self.handle,
            client: HANDLE,
        })
    }
}

impl ReverseContext {
    /// A context that the server has not used yet.
    pub fn new(context: &Arc<GssContext>) -> Self {
        Self {
            context: Arc::clone(context),
            window: SequenceWindow::new(context.window),
        }
    }

    /// Verifies a call, in the order of the checks of RFC 2203 section 5.3.3.3.
    pub fn open(&self, message: &[u8]) -> Result<OpenedReverseCall, ReverseCallFault> {
        use ReverseCallFault::{Denied, Dropped};
        let mut input = Decoder::new(message);
        let words = CallWords::decode(&mut input).map_err(|_| Dropped)?;
        if words.credential.flavor != RPCSEC_GSS {
            return Err(Denied(AuthStatus::TooWeak));
        }
        let credential = GssCredential::from_body(words.credential.body);
        let credential = credential.map_err(|_| Denied(AuthStatus::BadCredential))?;
        let context = &self.context;
        if (credential.procedure, credential.service) != (GssProcedure::Data, context.service) {
            return Err(Denied(AuthStatus::BadCredential));
        }
        if credential.handle != HANDLE {
            return Err(Denied(AuthStatus::GssCredentialProblem));
        }
        let sequence = credential.sequence;
        match self.window.look(sequence) {
            Sequence::Fresh => {}
            Sequence::TooLarge => return Err(Denied(AuthStatus::GssContextProblem)),
            Sequence::Old | Sequence::Seen => return Err(Dropped),
        }
        let covered = message.get(..words.covered).ok_or(Dropped)?;
        let verifier = words.verifier;
        if verifier.flavor != RPCSEC_GSS || !context.verifies(covered, verifier.body) {
            return Err(Denied(AuthStatus::GssCredentialProblem));
        }
        if !self.window.mark(sequence) {
            return Err(Dropped);
        }
        let at = message.len() - input.remaining();
        let mut opened = message.to_vec();
        let arguments = context.open_results(sequence, &mut opened, at);
        let before = &message[..BEFORE_CREDENTIAL];
        let plain = arguments.map(|arguments| {
            const EMPTY: &[u8] = &[0; 2 * AUTH_WORDS];
            [before, EMPTY, &opened[arguments]].concat()
        });
        Ok(OpenedReverseCall { plain, sequence })
    }

    /// The protected message of a plain reply to a call. `None` if it is not a reply.
    pub fn reply(&self, call: &OpenedReverseCall, plain: &[u8]) -> Option<Vec<u8>> {
        let context = &self.context;
        let (before, results) = (plain.get(..BEFORE_VERIFIER)?, plain.get(PLAIN_HEADER..)?);
        let status = plain.get(PLAIN_STATUS..PLAIN_HEADER)?;
        let mut mic = [0; MIC_MAX];
        let length = context
            .protection
            .sign(&call.sequence.to_be_bytes(), &mut mic);
        let mut verifier = [0; AUTH_WORDS + MIC_MAX];
        let written = xdr::to_bytes(&OpaqueAuth::from(&mic[..length]), &mut verifier).ok()?;
        let mut message = [before, &verifier[..written], status].concat();
        // Other statuses than success have no results to protect (RFC 2203 section 5.3.3.2).
        let (front, behind) = match status {
            [0, 0, 0, 0] => context.around(),
            _ => (0, 0),
        };
        let start = message.len();
        message.resize(start + front, 0);
        message.extend_from_slice(results);
        message.resize(message.len() + behind, 0);
        if front >= WORD {
            context.protect_body(&mut message[start..], results.len(), call.sequence);
        }
        Some(message)
    }
}
