//! The establishment of contexts on helper threads.

use crate::{ContextHandle, ContextRef};

/// The result of a token, as the reply to INIT or CONTINUE_INIT carries it.
pub struct Establishment {
    /// The context's handle; none if the major status is an error.
    pub handle: Option<ContextHandle>,
    /// Major status, see [`crate::status`].
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// Size of the sequence window.
    pub window: u32,
    /// For the client; may be empty.
    pub token: Vec<u8>,
    /// The completed context, which makes the reply's verifier.
    pub context: Option<ContextRef>,
}
