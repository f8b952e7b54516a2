//! The seam to the library that accepts contexts: token in; keys, principal, end, reply token out.

use std::time::Duration;

use crate::{ContextKeys, Enctype, FailureReason};

/// A library that accepts contexts. It is called on helper threads and may block.
pub trait Mechanism: Send + Sync + 'static {
    /// Takes the first token of a context.
    fn accept(&self, token: &[u8]) -> Accepted;

    /// Looks at the keytab and takes up another version of it. The error is for the log; what was
    /// loaded before stays.
    ///
    /// # Errors
    ///
    /// The keytab cannot be used.
    fn refresh(&self) -> Result<(), String> {
        Ok(())
    }

    /// Realms of the keytab's keys.
    fn realms(&self) -> Vec<String> {
        Vec::new()
    }

    /// Time since the keytab was taken up.
    fn keytab_age(&self) -> Duration {
        Duration::ZERO
    }
}

/// A context that waits for another token of its client.
pub trait PartialContext: Send {
    /// Takes the next token.
    fn proceed(self: Box<Self>, token: &[u8]) -> Accepted;
}

/// What became of a token.
pub enum Accepted {
    /// The context stands.
    Complete(Box<Established>),
    /// Another token is needed.
    Continue {
        /// What takes it.
        context: Box<dyn PartialContext>,
        /// For the client.
        token: Vec<u8>,
    },
    /// No context.
    Failed(Failure),
}

/// A context as a mechanism made it.
pub struct Established {
    /// Its keys.
    pub keys: ContextKeys,
    /// Name of the client's principal, with realm.
    pub principal: String,
    /// Time until the ticket ends.
    pub lifetime: Duration,
    /// For the client; may be empty.
    pub token: Vec<u8>,
}

/// Why a token was refused.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Major status, see [`crate::status`].
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// For counters and the log.
    pub reason: FailureReason,
    /// One sentence for the operator: cause and remedy. No secrets.
    pub text: String,
}

impl Failure {
    /// An encryption type that the settings exclude (RFC 4121 only has 17 and 18 of RFC 3962; 19
    /// and 20 are RFC 8009's).
    pub(crate) fn enctype(number: i32) -> Self {
        let name = match number {
            1..=3 => "DES".to_owned(),
            16 => "triple DES".to_owned(),
            23 | 24 => "RC4".to_owned(),
            known => Enctype::from_number(known).map_or_else(
                || format!("encryption type {known}"),
                |known| known.name().to_owned(),
            ),
        };
        Self {
            major: crate::status::FAILURE,
            minor: 0,
            reason: FailureReason::Enctype,
            text: format!(
                "the context's key has encryption type {name}, which gss.enctypes excludes"
            ),
        }
    }
}
