//! The client's side of contexts: tokens for a service, made with a user's tickets.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::sys::{GssLibrary, InitiatorContext, LibraryFailure};
use crate::{ContextKeys, Enctype, status};

/// What a client asks of a context (RFC 2744 5.19, `req_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextFlags(u32);

impl ContextFlags {
    /// Nothing: the service does not prove that it has the key.
    pub const NONE: Self = Self(0);
    /// The service proves that it has the key, and makes the key of the context. For NFS.
    pub const MUTUAL: Self = Self(2);
    /// Delegation, mutual authentication, detection of replays and of wrong order, confidentiality,
    /// integrity.
    pub const ALL: Self = Self(0x3f);
}

/// Why there is no context for a client.
#[derive(Debug, Error)]
pub enum InitiatorError {
    /// The library is not installed.
    #[error("libgssapi_krb5.so.2 cannot be loaded, install libgssapi-krb5-2: {0}")]
    Library(String),
    /// There are no tickets.
    #[error(
        "there is no Kerberos ticket: get one with kinit, or name the cache that has it in \
         KRB5CCNAME ({0})"
    )]
    NoTicket(String),
    /// The tickets have ended.
    #[error("the Kerberos ticket has expired: renew it with kinit ({0})")]
    Expired(String),
    /// The KDC has no such service.
    #[error(
        "the KDC knows no service {target}: name it as in the server's keytab, by host name and \
         not by address ({text})"
    )]
    UnknownService {
        /// The service asked for.
        target: String,
        /// The library's message.
        text: String,
    },
    /// The KDC does not answer.
    #[error("no KDC answers: look at the realm's kdc in krb5.conf, and whether it runs ({0})")]
    NoKdc(String),
    /// The clocks differ.
    #[error("the clocks of this host and of the KDC or server differ: run a time service ({0})")]
    Clock(String),
    /// The key of the context is of a type that RFC 4121 and RFC 8009 do not have.
    #[error("the key of the context has encryption type {0}; types 17 to 20 are known here")]
    Enctype(i32),
    /// Anything else.
    #[error("no context with {target}: {text}")]
    Other {
        /// The service.
        target: String,
        /// The library's message.
        text: String,
    },
}

/// A token for the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorToken {
    /// The token; may be empty once the context is complete.
    pub token: Vec<u8>,
    /// Whether the context is complete: the service's answer, if there is any, is not awaited.
    pub is_complete: bool,
}

/// A context in the making, on its client's side.
///
/// The library is loaded at run time. It may block: it asks the KDC for a ticket of the service
/// where the cache has none.
pub struct Initiator {
    context: InitiatorContext,
    target: String,
}

impl Initiator {
    /// Begins a context with a service: `SERVICE@HOST`, such as `nfs@server.example.com`, or the name
    /// of a principal, such as `nfs/server.example.com@EXAMPLE.COM`. The tickets are those of a
    /// cache: the one that is named, or the environment's (`KRB5CCNAME`, or else the default).
    ///
    /// # Errors
    ///
    /// [`InitiatorError`].
    pub fn new(
        cache: Option<&str>,
        target: &str,
        flags: ContextFlags,
    ) -> Result<Self, InitiatorError> {
        let library = GssLibrary::load().map_err(InitiatorError::Library)?;
        let context = InitiatorContext::new(&Arc::new(library), cache, target, flags.0);
        Ok(Self {
            context: context.map_err(|failure| explain(failure, target))?,
            target: target.to_owned(),
        })
    }

    /// Takes the service's token (none at first), and makes the next one for it.
    ///
    /// # Errors
    ///
    /// [`InitiatorError`].
    pub fn step(&mut self, token: &[u8]) -> Result<InitiatorToken, InitiatorError> {
        match self.context.step(token) {
            Ok((token, is_complete)) => Ok(InitiatorToken { token, is_complete }),
            Err(failure) => Err(explain(failure, &self.target)),
        }
    }

    /// The keys of a complete context, and the time until its ticket ends.
    ///
    /// # Errors
    ///
    /// [`InitiatorError`].
    pub fn into_keys(self) -> Result<(ContextKeys, Duration), InitiatorError> {
        let exported = self.context.export();
        let (key, lifetime) = exported.map_err(|failure| explain(failure, &self.target))?;
        let enctype = Enctype::from_number(key.enctype);
        let keys = ContextKeys {
            enctype: enctype.ok_or(InitiatorError::Enctype(key.enctype))?,
            key: key.key,
            acceptor_subkey: key.acceptor_subkey,
            send_sequence: key.send_sequence,
        };
        Ok((keys, lifetime))
    }
}

/// Tokens of the library itself, to compare ours with. The context must be complete.
#[cfg(feature = "testing")]
impl Initiator {
    /// A MIC token.
    #[must_use]
    pub fn mic(&self, message: &[u8]) -> Vec<u8> {
        self.context.mic(message)
    }

    /// Whether a MIC token of the service is good.
    #[must_use]
    pub fn verifies(&self, message: &[u8], token: &[u8]) -> bool {
        self.context.verifies(message, token)
    }

    /// A Wrap token.
    #[must_use]
    pub fn wrap(&self, message: &[u8], sealed: bool) -> Vec<u8> {
        self.context.wrap(message, sealed)
    }

    /// The message of a Wrap token of the service, and whether it was sealed.
    #[must_use]
    pub fn unwrap(&self, token: &[u8]) -> Option<(Vec<u8>, bool)> {
        self.context.unwrap(token)
    }
}

/// Minor status of the Kerberos error 0 (MIT's error table `krb5`).
const KERBEROS_ERRORS: i32 = -1_765_328_384;
/// `KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN`.
const UNKNOWN_SERVICE: i32 = 7;
/// `KRB5KRB_AP_ERR_TKT_EXPIRED`.
const TICKET_EXPIRED: i32 = 32;
/// `KRB5KRB_AP_ERR_SKEW`.
const SKEW: i32 = 37;
/// `KRB5_KDC_UNREACH`.
const KDC_UNREACHABLE: i32 = 156;

fn explain(failure: LibraryFailure, target: &str) -> InitiatorError {
    let LibraryFailure { major, minor, text } = failure;
    match minor.cast_signed().wrapping_sub(KERBEROS_ERRORS) {
        _ if major == status::CREDENTIALS_EXPIRED => InitiatorError::Expired(text),
        TICKET_EXPIRED => InitiatorError::Expired(text),
        UNKNOWN_SERVICE => InitiatorError::UnknownService {
            target: target.to_owned(),
            text,
        },
        KDC_UNREACHABLE => InitiatorError::NoKdc(text),
        SKEW => InitiatorError::Clock(text),
        _ if major == status::NO_CRED => InitiatorError::NoTicket(text),
        _ => InitiatorError::Other {
            target: target.to_owned(),
            text,
        },
    }
}
