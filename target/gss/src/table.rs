//! The contexts of the process: slots with generations, read without locks.

use thiserror::Error;

/// What a client names a context by: slot, generation, 64 random bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContextHandle([u8; 16]);

impl ContextHandle {
    /// The bytes on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A handle as a client sent it; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// Why a handle names no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandleError {
    /// RPCSEC_GSS_CREDPROBLEM.
    #[error("the handle is unknown")]
    Unknown,
    /// RPCSEC_GSS_CTXPROBLEM.
    #[error("the context has expired")]
    Expired,
}

/// No slot is free, and no context may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("all contexts are in use")]
pub struct TableFull;
