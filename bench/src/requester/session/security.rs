//! Contexts of RPCSEC_GSS: made and ended by NULL calls (RFC 2203 section 5.2 and 5.4).

use std::sync::Arc;

use millrace_gss::{Initiator, InitiatorToken, status};
use millrace_wire::nfs3::Procedure;
use millrace_wire::rpc::{
    AuthStatus, CallOutcome, Denied, GssCredential, GssInitResults, GssProcedure, GssService,
    RPCSEC_GSS, ReplyHeader,
};
use millrace_wire::xdr::{self, BoundedBytes, Decode, Decoder};

use super::{CLOSE_WAIT, Error, Session};
use crate::requester::binding::REPLY_HEADER;
use crate::requester::call::{Call, RpcError};
use crate::requester::connection::RequesterState;
use crate::requester::gss::GssContext;
use crate::requester::settings::{CREDENTIAL_MAX, Identity};

/// Most bytes of a token that is sent, and of one that is answered.
const TOKEN_MAX: usize = 64 << 10;
const ANSWER_MAX: usize = 4 << 10;
/// Most calls for one context. Kerberos takes one.
const STEPS_MAX: usize = 4;

/// What the server answered to a token.
struct TokenAnswer {
    handle: Vec<u8>,
    major: u32,
    minor: u32,
    window: u32,
    token: Vec<u8>,
    verifier: Vec<u8>,
}

impl Session {
    /// Makes a context with the server, by calls on this connection. It may be used on any.
    ///
    /// # Errors
    /// [`Error::Initiator`] if there are no tickets for the service; [`Error::Context`] and
    /// [`Error::NoKerberos`] if the server refuses; [`Error::ContextVerifier`] if it is not the one
    /// that the ticket is for.
    pub fn create_context(
        &mut self,
        mut initiator: Initiator,
        service: GssService,
    ) -> Result<Arc<GssContext>, Error> {
        let mut answer: Option<TokenAnswer> = None;
        for _ in 0..STEPS_MAX {
            let answered = answer.as_ref().map_or(&[][..], |answer| &answer.token);
            let InitiatorToken { token, is_complete } = initiator.step(answered)?;
            if let Some(answer) = answer.take_if(|answer| is_complete && answer.major == 0) {
                let (keys, _) = initiator.into_keys()?;
                let context = GssContext::new(&keys, (&answer.handle, answer.window), service);
                let context = context.ok_or(Error::ContextVerifier)?;
                let window = answer.window.to_be_bytes();
                return match context.verifies(&window, &answer.verifier) {
                    true => Ok(context),
                    false => Err(Error::ContextVerifier),
                };
            }
            let handle = answer.map_or(Vec::new(), |answer| answer.handle);
            let next = self.send_token(&token, &handle)?;
            if next.major >> 16 != 0 {
                return Err(Error::Context {
                    major: next.major,
                    minor: next.minor,
                });
            }
            answer = Some(next);
        }
        Err(Error::Context {
            major: status::FAILURE,
            minor: 0,
        })
    }

    /// One call for a context; the handle is that of the one to continue, empty for a new one.
    fn send_token(&mut self, token: &[u8], handle: &[u8]) -> Result<TokenAnswer, Error> {
        let procedure = match handle {
            [] => GssProcedure::Init,
            _ => GssProcedure::ContinueInit,
        };
        let credential = GssCredential {
            procedure,
            sequence: 0,
            service: GssService::None,
            handle,
        };
        let mut encoded = [0; 8 + CREDENTIAL_MAX];
        let length = xdr::to_bytes(&credential, &mut encoded)?;
        let identity = Identity::opaque(RPCSEC_GSS, &encoded[8..length]);
        let identity = identity.ok_or(Error::Memory)?;
        let token = BoundedBytes::<TOKEN_MAX>(token);
        let call = Call {
            largest_reply: REPLY_HEADER + ANSWER_MAX,
            ..Call::nfs3(0, Procedure::Null, token, 0)
        };
        let answered = self.call_as((identity, None), call, |reply| {
            let mut input = Decoder::new(reply.message);
            let verifier = match ReplyHeader::decode(&mut input)?.outcome {
                CallOutcome::Accepted { verifier, .. } => verifier.body.to_vec(),
                CallOutcome::Denied(_) => Vec::new(),
            };
            let results = reply.results::<GssInitResults<'_>>()?;
            Ok(TokenAnswer {
                handle: results.handle.to_vec(),
                major: results.major,
                minor: results.minor,
                window: results.window,
                token: results.token.to_vec(),
                verifier,
            })
        });
        answered.map_err(|error| match error {
            Error::Rpc(RpcError::Denied(Denied::Auth(AuthStatus::RejectedCredential))) => {
                Error::NoKerberos
            }
            error => error,
        })
    }

    /// Makes all calls from now on under a context, which [`close`](Self::close) ends. Templates of
    /// calls that were encoded before are of no use then.
    pub fn authenticate(&mut self, context: Arc<GssContext>) {
        self.connection.settings.context = Some(context);
    }

    /// Tells the server that a context is not used any more.
    ///
    /// # Errors
    /// Those of calls.
    pub fn end_context(&mut self, context: &GssContext) -> Result<(), Error> {
        let Some(ending) = context.ending() else {
            return Ok(());
        };
        let identity = self.connection.settings.identity.clone();
        let call = Call::nfs3(0, Procedure::Null, (), 0);
        self.call_as((identity, Some(ending)), call, |reply| {
            Ok(reply.results::<()>()?)
        })
    }

    /// Ends the context of the session's calls, if there is one, before the session is closed. A
    /// server that is not told within a few seconds ends it when it has been idle for long enough.
    pub(super) fn end_own_context(&mut self) {
        let Some(context) = self.connection.settings.context.take() else {
            return;
        };
        if self.connection.state() == &RequesterState::Ready {
            let settings = &mut self.connection.settings;
            settings.timeout = settings.timeout.min(CLOSE_WAIT);
            let _ = self.end_context(&context);
        }
    }

    /// Makes one call with another credential.
    fn call_as<A: xdr::Encode, T>(
        &mut self,
        (identity, context): (Identity, Option<Arc<GssContext>>),
        call: Call<'_, A>,
        read: impl FnOnce(&crate::requester::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let settings = &mut self.connection.settings;
        let before = (
            std::mem::replace(&mut settings.identity, identity),
            std::mem::replace(&mut settings.context, context),
        );
        let result = self.call(call, read);
        let settings = &mut self.connection.settings;
        (settings.identity, settings.context) = before;
        result
    }
}
