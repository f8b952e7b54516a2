//! RPCSEC_GSS (RFC 2203) on the requester's side: calls that a context signs and protects, and their
//! replies.
//!
//! A call is signed when it is sent, not when it is submitted: each transmission has a sequence
//! number of its own, also when a call is repeated under its old XID on a new connection. Without
//! protection of bodies ([`GssService::None`]) the message stays where it is, and its sequence number
//! and verifier are written into it. With protection, the message is copied once, as a whole, and
//! nothing is taken out of it (RFC 8166 section 8.2.2.3).
//!
//! A reply is handed over as plain as one of AUTH_SYS: its verifier is checked and taken off, its
//! results are verified or decrypted in place.

mod protect;
mod reply;
mod reverse;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_gss::{ContextKeys, Protection, Side};
use millrace_mempool::Class;
use millrace_wire::rpc::{GssCredential, GssProcedure, GssService, OpaqueAuth, RPCSEC_GSS};
use millrace_wire::xdr;

use super::settings::CREDENTIAL_MAX;

pub(super) use protect::{CallProtection, PlainCall};
pub(super) use reply::open;
pub(super) use reverse::{ReverseCallFault, ReverseContext};

/// Bytes of a call before its credential: XID, message type, RPC version and what is called.
const BEFORE_CREDENTIAL: usize = 24;
/// Flavor and length of a credential or verifier.
const AUTH_WORDS: usize = 8;
/// Where the sequence number stands in a call: behind version and procedure of the credential.
const SEQUENCE: usize = BEFORE_CREDENTIAL + AUTH_WORDS + 8;
/// Most bytes of a MIC token.
const MIC_MAX: usize = 64;
/// Most bytes of a call's header.
const HEADER_MAX: usize = BEFORE_CREDENTIAL + AUTH_WORDS + CREDENTIAL_MAX + AUTH_WORDS + MIC_MAX;
/// Most bytes of data in a call or reply whose body is protected: its message has to fit into a
/// buffer.
pub const PROTECTED_DATA_MAX: usize = Class::Large.size() - Class::Medium.size();
/// Bytes that are encrypted and signed at a time, so that they stay in the processor's first cache.
const SLICE: usize = 16 << 10;
/// Bytes of a word: a length, or a sequence number.
const WORD: usize = 4;

/// Why the reply to a protected call is none, or why the call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityFault {
    /// RPCSEC_GSS_CREDPROBLEM: the server does not know the context, or refuses the call's MIC.
    ContextUnknown,
    /// RPCSEC_GSS_CTXPROBLEM: the server no longer takes calls of the context.
    ContextEnded,
    /// The verifier is not the server's MIC of the call's sequence number.
    Verifier,
    /// The results are not protected by the context, or are those of another call.
    Results,
}

impl SecurityFault {
    /// What to tell the user.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ContextUnknown => {
                "the server does not know the Kerberos context any more, as after its restart or \
                 `millracectl gss flush`: connect again (RPCSEC_GSS_CREDPROBLEM)"
            }
            Self::ContextEnded => {
                "the server ended the Kerberos context, as at the end of its ticket: renew the \
                 ticket with kinit and connect again (RPCSEC_GSS_CTXPROBLEM)"
            }
            Self::Verifier => "the verifier of a reply is not the server's for this call",
            Self::Results => "the results of a reply are not protected as the server must do it",
        }
    }
}

impl fmt::Display for SecurityFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.text())
    }
}

/// A context that calls are made under. It belongs to no connection; but sequence numbers of several
/// connections overtake each other, and a server drops what falls out of its window, so each
/// connection should have a context of its own.
pub struct GssContext {
    protection: Arc<Protection>,
    handle: Vec<u8>,
    service: GssService,
    /// The size of the server's window of sequence numbers.
    window: u32,
    /// The body of the credential, but for its sequence number.
    credential: Vec<u8>,
    /// The next sequence number.
    sequence: AtomicU32,
}

impl fmt::Debug for GssContext {
    /// Without keys.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("GssContext")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl GssContext {
    /// The client's end of a context that the server knows by a handle, with this window of sequence
    /// numbers. `None` if the key has not the length of its type, or the handle fits into no
    /// credential.
    #[must_use]
    pub fn new(
        keys: &ContextKeys,
        (handle, window): (&[u8], u32),
        service: GssService,
    ) -> Option<Arc<Self>> {
        let protection = Protection::new(keys, Side::Initiator)?;
        let context = Self::under(protection, handle, (GssProcedure::Data, service), 1)?;
        Some(Arc::new(Self { window, ..context }))
    }

    fn under(
        protection: Arc<Protection>,
        handle: &[u8],
        (procedure, service): (GssProcedure, GssService),
        first: u32,
    ) -> Option<Self> {
        let credential = GssCredential {
            procedure,
            sequence: 0,
            service,
            handle,
        };
        let mut encoded = [0; AUTH_WORDS + CREDENTIAL_MAX];
        let length = xdr::to_bytes(&credential, &mut encoded).ok()?;
        Some(Self {
            protection,
            handle: handle.to_vec(),
            service,
            window: 1,
            credential: encoded.get(AUTH_WORDS..length)?.to_vec(),
            sequence: AtomicU32::new(first),
        })
    }

    /// The same context for the call that ends it, which comes after all others.
    pub(super) fn ending(&self) -> Option<Arc<Self>> {
        let call = (GssProcedure::Destroy, GssService::None);
        let first = self.sequence.load(Ordering::Relaxed);
        Self::under(Arc::clone(&self.protection), &self.handle, call, first).map(Arc::new)
    }

    /// How the bodies of calls and replies are protected.
    #[must_use]
    pub const fn service(&self) -> GssService {
        self.service
    }

    /// Whether this is the server's MIC of a message.
    pub(super) fn verifies(&self, message: &[u8], mic: &[u8]) -> bool {
        self.protection.verify_mic(message, mic)
    }

    /// Whether the bodies of calls and replies are protected, so that nothing is taken out of them.
    pub(super) fn protects_bodies(&self) -> bool {
        self.service != GssService::None
    }

    /// The credential of a call that is not signed yet.
    pub(super) fn credential(&self) -> OpaqueAuth<'_> {
        OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: &self.credential,
        }
    }

    /// The verifier of a call that is not signed yet.
    pub(super) fn unsigned(&self) -> OpaqueAuth<'static> {
        const ZEROS: &[u8] = &[0; MIC_MAX];
        OpaqueAuth {
            flavor: RPCSEC_GSS,
            body: &ZEROS[..self.protection.mic_length()],
        }
    }

    /// Bytes of a call that its MIC covers: up to the end of the credential.
    fn covered(&self) -> usize {
        BEFORE_CREDENTIAL + AUTH_WORDS + self.credential.len()
    }

    /// Bytes of a call's header.
    fn header(&self) -> usize {
        self.covered() + AUTH_WORDS + self.mic()
    }

    /// Bytes of a MIC with its round-up.
    fn mic(&self) -> usize {
        self.protection.mic_length().next_multiple_of(WORD)
    }

    /// Bytes that a protected body has before and behind the arguments or results in it. The first
    /// are a sequence number and what stands before it.
    fn around(&self) -> (usize, usize) {
        match self.service {
            GssService::None => (0, 0),
            GssService::Integrity => (2 * WORD, WORD + self.mic()),
            GssService::Privacy => {
                let behind = self.protection.wrap_overhead() - Protection::WRAP_PREFIX;
                let before = WORD + Protection::WRAP_PREFIX + WORD;
                (before, behind.next_multiple_of(WORD))
            }
        }
    }

    /// Bytes that a reply may have more than the same with an empty verifier and plain results.
    pub(super) fn added_to_reply(&self) -> usize {
        let (before, behind) = self.around();
        self.mic() + before + behind
    }

    fn next_sequence(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }
}
