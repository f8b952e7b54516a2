//! How callbacks are authenticated: the credentials that a client offers, and the one that is used
//! (RFC 8881 sections 18.33 and 18.36.3).
//!
//! RPCSEC_GSS is preferred to AUTH_SYS, and that to AUTH_NONE. Of a context the handles are kept, which
//! keep nothing alive: when the context has ended, the next credential is used.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_gss::{CallCounters, GssService as Contexts};
use millrace_primitives::CoreBlock;
use millrace_wire::nfs4::{CallbackSecurities, CallbackSecurity, GssHandles};
use millrace_wire::rpc::Credential;
use millrace_wire::xdr::{self, Decode, Decoder, Encode};

use crate::log_limit::LogLimit;
use crate::nfs4::seam::CallOrigin;
use crate::rpc::reverse::ReverseProtection;
use crate::state::{CallbackCredentials, StateError};

/// Longest credential, and longest pair of handles.
const CREDENTIAL_MAX: usize = 512;
/// Longest handle that fits into a credential.
const HANDLE_MAX: usize = 380;

/// The security contexts of the process, for callbacks of one reactor.
pub(super) struct CallbackContexts {
    all: Contexts,
    counters: Arc<CoreBlock<CallCounters>>,
    unverified: RefCell<LogLimit>,
}

impl CallbackContexts {
    pub fn new(contexts: &Contexts) -> Self {
        Self {
            all: contexts.clone(),
            counters: contexts.call_counters(),
            unverified: RefCell::default(),
        }
    }

    pub fn all(&self) -> &Contexts {
        &self.all
    }

    /// Counts a reply that is not the client's, and logs it now and then.
    pub fn report_unverified(&self, client: IpAddr) {
        self.counters.unverified_replies.add(1);
        if self.unverified.borrow_mut().is_due(Instant::now()) {
            tracing::warn!(
                %client,
                "the reply to a callback under Kerberos does not verify, and counts as none"
            );
        }
    }
}

/// What one callback is sent with.
pub(super) enum ChosenSecurity {
    /// A credential that is sent as it is.
    Plain(Arc<[u8]>),
    /// A security context.
    Context(ReverseProtection),
}

impl ChosenSecurity {
    /// The credential of the plain message.
    pub fn credential(&self) -> Option<Credential<'_>> {
        match self {
            Self::Plain(encoded) => Credential::decode(&mut Decoder::new(encoded)).ok(),
            Self::Context(_) => Some(Credential::None),
        }
    }

    /// Bytes of the message that is sent for a plain one of so many.
    pub fn length(&self, plain: usize) -> usize {
        let protection = self.protection();
        protection.map_or(plain, |protection| protection.length(plain))
    }

    pub fn protection(&self) -> Option<&ReverseProtection> {
        match self {
            Self::Plain(_) => None,
            Self::Context(protection) => Some(protection),
        }
    }
}

/// The credentials that a client offers.
///
/// # Errors
/// [`StateError::UnknownCredential`] for a context that is not known, or not of the principal that
/// calls; [`StateError::Inval`] for a handle that fits into no credential.
pub(super) fn credentials(
    offered: &CallbackSecurities<'_>,
    contexts: Option<&CallbackContexts>,
    origin: &CallOrigin<'_>,
) -> Result<CallbackCredentials, StateError> {
    let mut credentials = CallbackCredentials::default();
    let mut lasting = None;
    for one in offered.iter() {
        match (&one, &lasting) {
            (CallbackSecurity::Gss(handles), _) => {
                let contexts = contexts.ok_or(StateError::UnknownCredential)?;
                check(handles, contexts, origin)?;
                credentials.contexts.push(encoded(&one)?);
            }
            (CallbackSecurity::Sys(_), Some(Credential::Sys(_)))
            | (CallbackSecurity::None, Some(_)) => {}
            (CallbackSecurity::Sys(body), _) => lasting = Some(Credential::Sys(body.clone())),
            (CallbackSecurity::None, None) => lasting = Some(Credential::None),
        }
    }
    credentials.lasting = lasting.map(|lasting| encoded(&lasting)).transpose()?;
    Ok(credentials)
}

fn check(
    handles: &GssHandles<'_>,
    contexts: &CallbackContexts,
    origin: &CallOrigin<'_>,
) -> Result<(), StateError> {
    let context = contexts.all.context(handles.server, origin.arrived);
    let context = context.map_err(|_| StateError::UnknownCredential)?;
    if context.identity().principal.as_bytes() != origin.identity.principal {
        return Err(StateError::UnknownCredential);
    }
    match handles.client.len() <= HANDLE_MAX {
        true => Ok(()),
        false => Err(StateError::Inval),
    }
}

fn encoded(value: &impl Encode) -> Result<Arc<[u8]>, StateError> {
    let mut bytes = [0; CREDENTIAL_MAX];
    let length = xdr::to_bytes(value, &mut bytes).map_err(|_| StateError::Inval)?;
    Ok(bytes[..length].into())
}

fn handles(credential: &[u8]) -> Option<GssHandles<'_>> {
    match CallbackSecurity::decode(&mut Decoder::new(credential)) {
        Ok(CallbackSecurity::Gss(handles)) => Some(handles),
        _ => None,
    }
}

/// How long the context of a credential can still be used; `None` if it cannot.
pub(super) fn remaining(credential: &[u8], contexts: &Contexts, now: Instant) -> Option<Duration> {
    contexts.remaining(handles(credential)?.server, now)
}

/// What the next transmission of a callback is sent with: the first context that has not ended, or
/// else the lasting credential.
pub(super) fn choose(
    credentials: &CallbackCredentials,
    contexts: Option<&CallbackContexts>,
    now: Instant,
) -> Option<ChosenSecurity> {
    let protection = |credential: &Arc<[u8]>| {
        let handles = handles(credential)?;
        let context = contexts?.all.context(handles.server, now).ok()?;
        ReverseProtection::new(context, handles.service, handles.client)
    };
    match credentials.contexts.iter().find_map(protection) {
        Some(protection) => Some(ChosenSecurity::Context(protection)),
        None => credentials.lasting.clone().map(ChosenSecurity::Plain),
    }
}
