//! Call headers.

use super::{Credential, Denied, MessageType, OpaqueAuth, RPC_VERSION};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result};

/// The header of a call (RFC 5531 section 9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Transaction identifier.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// The credential.
    pub credential: Credential<'a>,
    /// The verifier of the credential; empty for flavors without one.
    pub verifier: OpaqueAuth<'a>,
}

/// The header of a call with its credential as it came: for a responder that decodes that once it
/// knows the flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWords<'a> {
    /// Transaction identifier.
    pub xid: u32,
    /// Program, its version, and a procedure of that version.
    pub called: (u32, u32, u32),
    /// The credential.
    pub credential: OpaqueAuth<'a>,
    /// Bytes of the message up to the credential's end, its round-up included: what the verifier of
    /// RPCSEC_GSS covers (RFC 2203 section 5.3.1).
    pub covered: usize,
    /// The verifier of the credential.
    pub verifier: OpaqueAuth<'a>,
}

/// Why a message is not a valid call, and how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Without transaction identifier or direction, or not a call: dropped.
    #[error("not an RPC call")]
    NotACall,
    /// Another version of RPC: answered by RPC_MISMATCH ([`answer`](CallError::answer)).
    #[error("RPC version {version} is not spoken here")]
    Version {
        /// Transaction identifier of the call.
        xid: u32,
        /// The version asked for.
        version: u32,
    },
    /// The header ends early or has a credential beyond 400 bytes: answered by AUTH_ERROR.
    #[error("RPC call header does not decode: {error}")]
    Malformed {
        /// Transaction identifier of the call.
        xid: u32,
        /// The error.
        error: Error,
    },
}

impl CallError {
    /// The reply that refuses the call; `None` if it is dropped.
    #[must_use]
    pub const fn answer(self) -> Option<super::ReplyHeader<'static>> {
        let (xid, denied) = match self {
            Self::NotACall => return None,
            Self::Version { xid, .. } => (
                xid,
                Denied::RpcMismatch {
                    low: RPC_VERSION,
                    high: RPC_VERSION,
                },
            ),
            Self::Malformed { xid, .. } => (xid, Denied::Auth(super::AuthStatus::BadCredential)),
        };
        Some(super::ReplyHeader {
            xid,
            outcome: super::CallOutcome::Denied(denied),
        })
    }
}

impl<'a> CallWords<'a> {
    /// Reads the header; the arguments follow.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline]
    pub fn decode(input: &mut Decoder<'a>) -> core::result::Result<Self, CallError> {
        decode(input)
    }
}

impl<'a> CallHeader<'a> {
    /// Reads the header; the arguments follow.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn decode(input: &mut Decoder<'a>) -> core::result::Result<Self, CallError> {
        let words = decode(input)?;
        let (program, version, procedure) = words.called;
        Ok(Self {
            xid: words.xid,
            program,
            version,
            procedure,
            credential: words.credential.into(),
            verifier: words.verifier,
        })
    }
}

/// Reads a header.
#[inline]
fn decode<'a>(input: &mut Decoder<'a>) -> core::result::Result<CallWords<'a>, CallError> {
    let [xid, kind] = input.words().map_err(|_| CallError::NotACall)?;
    if kind != MessageType::Call.number() {
        return Err(CallError::NotACall);
    }
    let malformed = |error| CallError::Malformed { xid, error };
    let version = input.u32().map_err(malformed)?;
    if version != RPC_VERSION {
        return Err(CallError::Version { xid, version });
    }
    let [program, version, procedure] = input.words().map_err(malformed)?;
    let credential = OpaqueAuth::decode(input).map_err(malformed)?;
    let covered = input.position();
    let verifier = OpaqueAuth::decode(input).map_err(malformed)?;
    Ok(CallWords {
        xid,
        called: (program, version, procedure),
        credential,
        covered,
        verifier,
    })
}

impl Encode for CallHeader<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.u32(self.xid)?;
        MessageType::Call.encode(out)?;
        out.u32(RPC_VERSION)?;
        out.u32(self.program)?;
        out.u32(self.version)?;
        out.u32(self.procedure)?;
        self.credential.encode(out)?;
        self.verifier.encode(out)
    }
}
