//! Remote procedure calls, RPC version 2 (RFC 5531).
//!
//! [`CallHeader`] and [`ReplyHeader`] precede arguments and results. [`CallError`] gives the reply
//! to an invalid call.

mod auth;
mod call;
mod gss;
mod record;
mod reply;

pub use auth::{
    AUTH_NONE, AUTH_SHORT, AUTH_SYS, AuthSys, Credential, Groups, OpaqueAuth, RPCSEC_GSS,
};
pub use call::{CallError, CallHeader, CallWords};
pub use gss::{
    GSS_SEQUENCES, GssCredential, GssCredentialError, GssInitResults, GssProcedure, GssService,
    IntegrityBody, gss_token, has_protected_body, privacy_token, protected_content,
};
pub use record::{Fragment, RecordError, RecordMark, RecordScanner};
pub use reply::{Accepted, AuthStatus, CallOutcome, Denied, ReplyHeader, answer_to};

use crate::xdr::{Decoder, Error, Result, xdr_enum};

/// The version of RPC that this module speaks.
pub const RPC_VERSION: u32 = 2;

xdr_enum! {
    /// Whether a message is a call or a reply (RFC 5531 section 9).
    pub enum MessageType {
        Call = 0, "CALL", "a call";
        Reply = 1, "REPLY", "a reply";
    }
}

/// The first two words of an RPC message: transaction identifier and direction.
///
/// # Errors
/// Fewer than eight bytes, or a direction that is neither.
#[inline]
pub fn peek(message: &[u8]) -> Result<(u32, MessageType)> {
    let [xid, kind] = Decoder::new(message).words()?;
    Ok((xid, MessageType::from_number(kind).ok_or(Error::Value)?))
}
