//! One context, and uses of it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::krb5::{Damaged, MicParts, Protection, Side, Unwrapping, Wrapping};
use crate::window::{Sequence, SequenceWindow};
use crate::{ContextHandle, Enctype, Identity, SEQUENCE_MAX};

/// A context.
pub struct Context {
    pub handle: ContextHandle,
    pub identity: Identity,
    /// Address of the client that made it, which accounts for it.
    pub client: IpAddr,
    pub expires: Instant,
    pub protection: Arc<Protection>,
    pub window: SequenceWindow,
    /// Sequence number of the next call to the client.
    reverse_sequence: AtomicU32,
    born: Instant,
    /// Seconds after `born`.
    last_used: AtomicU64,
}

impl Context {
    pub fn new(
        handle: ContextHandle,
        identity: Identity,
        client: IpAddr,
        protection: Arc<Protection>,
        window: u32,
        life: (Instant, Instant),
    ) -> Self {
        let (born, expires) = life;
        Self {
            handle,
            identity,
            client,
            expires,
            protection,
            window: SequenceWindow::new(window),
            reverse_sequence: AtomicU32::new(1),
            born,
            last_used: AtomicU64::new(0),
        }
    }

    /// Remembers a use. Writes once in a second at most, as reactors share this.
    pub fn touch(&self, now: Instant) {
        let seconds = now.saturating_duration_since(self.born).as_secs();
        if self.last_used.load(Ordering::Relaxed) < seconds {
            self.last_used.store(seconds, Ordering::Relaxed);
        }
    }

    /// Time since it was last used.
    pub fn idle(&self, now: Instant) -> Duration {
        let used = Duration::from_secs(self.last_used.load(Ordering::Relaxed));
        now.saturating_duration_since(self.born)
            .saturating_sub(used)
    }
}

/// A use of a context. The keys live until the last use is dropped, whatever becomes of the
/// context.
#[derive(Clone)]
pub struct ContextRef(pub(crate) Arc<Context>);

impl fmt::Debug for ContextRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ContextRef")
            .field(&self.0.identity.principal)
            .finish()
    }
}

impl ContextRef {
    /// Who made it.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> ContextHandle {
        self.0.handle
    }

    /// The encryption type.
    #[must_use]
    pub fn enctype(&self) -> Enctype {
        self.0.protection.enctype()
    }

    /// A look at the window; changes nothing.
    #[must_use]
    pub fn sequence(&self, number: u32) -> Sequence {
        self.0.window.look(number)
    }

    /// Marks a number as seen. False: another was quicker, or it has left the window.
    #[must_use]
    pub fn mark(&self, number: u32) -> bool {
        self.0.window.mark(number)
    }

    /// The sequence number of one more call to the client. Those of its own calls are others
    /// (RFC 8881 section 18.36.3). `None` when all are used up.
    #[must_use]
    pub fn next_reverse_sequence(&self) -> Option<u32> {
        let next = |number| (number < SEQUENCE_MAX).then_some(number + 1);
        let sequence = &self.0.reverse_sequence;
        sequence
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()
    }

    /// Bytes of a MIC token.
    #[must_use]
    pub fn mic_length(&self) -> usize {
        self.0.protection.mic_length()
    }

    /// Bytes that a Wrap token has more than its plaintext.
    #[must_use]
    pub fn wrap_overhead(&self) -> usize {
        self.0.protection.wrap_overhead()
    }

    /// Bytes of a Wrap token before the plaintext.
    #[must_use]
    pub const fn wrap_prefix(&self) -> usize {
        Protection::WRAP_PREFIX
    }

    /// Whether a MIC token of the initiator is good for a message.
    #[must_use]
    pub fn verify_mic(&self, message: &[u8], token: &[u8]) -> bool {
        self.0.protection.verify_mic(message, token)
    }

    /// Writes the acceptor's MIC token for a message; returns its length, 0 if `out` is too short.
    #[must_use]
    pub fn sign(&self, message: &[u8], out: &mut [u8]) -> usize {
        self.0.protection.sign(message, out)
    }

    /// Has so many more tokens be made, and none after them.
    #[cfg(feature = "testing")]
    pub fn limit_tokens(&self, most: u64) {
        self.0.protection.limit_tokens(most);
    }

    /// A MIC by parts of its message: the initiator's, to verify, or the acceptor's, to make.
    #[must_use]
    pub fn mic_in_parts(&self, side: Side) -> MicParts {
        self.0.protection.mic_in_parts(side)
    }

    /// Begins to unwrap a Wrap token of the initiator, in place.
    ///
    /// # Errors
    ///
    /// The token's header is not what it must be.
    pub fn unwrapping(&self, token: &[u8]) -> Result<Unwrapping, Damaged> {
        self.0.protection.unwrapping(token)
    }

    /// Begins to wrap a plaintext of `length` bytes, in place.
    #[must_use]
    pub fn wrapping(&self, length: usize) -> Wrapping {
        self.0.protection.wrapping(length)
    }
}
