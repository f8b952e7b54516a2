//! One context, and uses of it.

use crate::krb5::{Damaged, MicParts, Side, Unwrapping, Wrapping};
use crate::{ContextHandle, Identity};

/// What a look at a sequence number shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Not seen, in or above the window.
    Fresh,
    /// Seen before.
    Seen,
    /// Below the window.
    Old,
    /// MAXSEQ or more.
    TooLarge,
}

/// A use of a context. The keys live until the last use is dropped, whatever becomes of the
/// context.
#[derive(Clone)]
pub struct ContextRef;

impl ContextRef {
    /// Who made it.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        todo!()
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> ContextHandle {
        todo!()
    }

    /// A look at the window; changes nothing.
    #[must_use]
    pub fn sequence(&self, number: u32) -> Sequence {
        todo!()
    }

    /// Marks a number as seen. False: another was quicker, or it has left the window.
    #[must_use]
    pub fn mark(&self, number: u32) -> bool {
        todo!()
    }

    /// Bytes of a MIC token.
    #[must_use]
    pub fn mic_length(&self) -> usize {
        todo!()
    }

    /// Bytes that a Wrap token has more than its plaintext.
    #[must_use]
    pub fn wrap_overhead(&self) -> usize {
        todo!()
    }

    /// Bytes of a Wrap token before the plaintext.
    #[must_use]
    pub fn wrap_prefix(&self) -> usize {
        todo!()
    }

    /// Whether a MIC token of the initiator is good for a message.
    #[must_use]
    pub fn verify_mic(&self, message: &[u8], token: &[u8]) -> bool {
        todo!()
    }

    /// Writes the acceptor's MIC token for a message; returns its length, 0 if `out` is too short.
    #[must_use]
    pub fn sign(&self, message: &[u8], out: &mut [u8]) -> usize {
        todo!()
    }

    /// A MIC by parts of its message: the initiator's, to verify, or the acceptor's, to make.
    #[must_use]
    pub fn mic_in_parts(&self, side: Side) -> MicParts {
        todo!()
    }

    /// Begins to unwrap a Wrap token of the initiator, in place.
    ///
    /// # Errors
    ///
    /// The token's header is not what it must be.
    pub fn unwrapping(&self, token: &mut [u8]) -> Result<Unwrapping, Damaged> {
        todo!()
    }

    /// Begins to wrap a plaintext of `length` bytes, in place.
    #[must_use]
    pub fn wrapping(&self, length: usize) -> Wrapping {
        todo!()
    }
}
