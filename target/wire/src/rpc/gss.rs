//! RPCSEC_GSS, version 1 (RFC 2203): the credential, the creation of contexts, and the bodies of
//! calls and replies with integrity or privacy. The tokens in them are opaque here.

use super::{OpaqueAuth, RPCSEC_GSS};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result, xdr_enum};

/// The version of RPCSEC_GSS (RFC 2203 section 5).
const VERSION: u32 = 1;
/// Sequence numbers are below this (RFC 2203 section 5.3.3.3).
pub const GSS_SEQUENCES: u32 = 0x8000_0000;
/// Most bytes of a handle: what fits into a credential's body.
const HANDLE_MAX: usize = 400;

xdr_enum! {
    /// What a call is for (RFC 2203 section 5, `rpc_gss_proc_t`).
    pub enum GssProcedure {
        Data = 0, "RPCSEC_GSS_DATA", "a call under a context";
        Init = 1, "RPCSEC_GSS_INIT", "the creation of a context";
        ContinueInit = 2, "RPCSEC_GSS_CONTINUE_INIT", "the next step of a creation";
        Destroy = 3, "RPCSEC_GSS_DESTROY", "the end of a context";
    }
}

xdr_enum! {
    /// How arguments and results are protected (RFC 2203 section 5, `rpc_gss_service_t`).
    pub enum GssService {
        None = 1, "rpc_gss_svc_none", "not at all; the header is authenticated";
        Integrity = 2, "rpc_gss_svc_integrity", "against changes";
        Privacy = 3, "rpc_gss_svc_privacy", "against readers and changes";
    }
}

/// The body of an RPCSEC_GSS credential (RFC 2203 section 5, `rpc_gss_cred_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssCredential<'a> {
    /// What the call is for.
    pub procedure: GssProcedure,
    /// The sequence number; without meaning in the creation of a context.
    pub sequence: u32,
    /// The service. Where a context is created it has no meaning, and reads as [`GssService::None`].
    pub service: GssService,
    /// The handle of the context; empty to create one.
    pub handle: &'a [u8],
}

/// Why a credential is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GssCredentialError {
    /// Another version of RPCSEC_GSS (RFC 2203 section 5.2.3.2: AUTH_REJECTEDCRED).
    #[error("RPCSEC_GSS version {0} is not spoken here")]
    Version(u32),
    /// It does not decode (RFC 2203 section 5.3.3.3: AUTH_BADCRED).
    #[error("RPCSEC_GSS credential does not decode: {0}")]
    Malformed(#[from] Error),
}

impl<'a> GssCredential<'a> {
    /// Reads the body of a credential of flavor RPCSEC_GSS.
    ///
    /// # Errors
    /// [`GssCredentialError`].
    #[inline]
    pub fn from_body(body: &'a [u8]) -> core::result::Result<Self, GssCredentialError> {
        let mut input = Decoder::new(body);
        let version = input.u32()?;
        if version != VERSION {
            return Err(GssCredentialError::Version(version));
        }
        let procedure = GssProcedure::decode(&mut input)?;
        let sequence = input.u32()?;
        let service = GssService::from_number(input.u32()?);
        let service = match procedure {
            GssProcedure::Data | GssProcedure::Destroy => service.ok_or(Error::Value)?,
            GssProcedure::Init | GssProcedure::ContinueInit => GssService::None,
        };
        let handle = input.opaque(HANDLE_MAX)?;
        match input.remaining() {
            0 => Ok(Self {
                procedure,
                sequence,
                service,
                handle,
            }),
            _ => Err(Error::TooLong.into()),
        }
    }
}

impl Encode for GssCredential<'_> {
    /// Writes the credential with flavor and length.
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        let body = 20 + self.handle.len().next_multiple_of(4);
        out.u32(RPCSEC_GSS)?;
        out.u32(u32::try_from(body).map_err(|_| Error::TooLong)?)?;
        out.u32(VERSION)?;
        self.procedure.encode(out)?;
        out.u32(self.sequence)?;
        self.service.encode(out)?;
        out.opaque(self.handle)
    }
}

/// Whether the body of a call is not what its procedure alone determines: a call that creates or
/// ends a context, or one with integrity or privacy. Read from the words at fixed places; whatever
/// they are, the call is judged later.
#[must_use]
#[inline]
pub fn has_protected_body(message: &[u8]) -> bool {
    const FLAVOR: usize = 24;
    let word = |at: usize| {
        let bytes = message.get(at..at + 4).and_then(<[u8]>::first_chunk);
        bytes.map(|bytes| u32::from_be_bytes(*bytes))
    };
    word(FLAVOR) == Some(RPCSEC_GSS)
        && (word(FLAVOR + 12) != Some(GssProcedure::Data.number())
            || word(FLAVOR + 20) != Some(GssService::None.number()))
}

/// The results of a step of a creation (RFC 2203 section 5.2.3.1, `rpc_gss_init_res`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GssInitResults<'a> {
    /// The handle of the context; empty if there is none.
    pub handle: &'a [u8],
    /// Major status of GSS-API.
    pub major: u32,
    /// Minor status, of the mechanism.
    pub minor: u32,
    /// The size of the window of sequence numbers.
    pub window: u32,
    /// The token for the client.
    pub token: &'a [u8],
}

impl Encode for GssInitResults<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.opaque(self.handle)?;
        out.words([self.major, self.minor, self.window])?;
        out.opaque(self.token)
    }
}

impl<'a> Decode<'a> for GssInitResults<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self> {
        let handle = input.opaque(HANDLE_MAX)?;
        let [major, minor, window] = input.words()?;
        Ok(Self {
            handle,
            major,
            minor,
            window,
            token: input.opaque(input.remaining())?,
        })
    }
}

/// Reads the argument of a step of a creation: one token of at most `most` bytes, and nothing
/// behind it (RFC 2203 section 5.2.2).
///
/// # Errors
/// It is something else.
pub fn gss_token<'a>(input: &mut Decoder<'a>, most: usize) -> Result<&'a [u8]> {
    let token = input.opaque(most)?;
    all_read(input).map(|()| token)
}

/// A body with integrity (RFC 2203 section 5.3.2.2, `rpc_gss_integ_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityBody<'a> {
    /// What the checksum covers: the sequence number, then arguments or results.
    pub covered: &'a [u8],
    /// The checksum.
    pub checksum: &'a [u8],
}

impl<'a> IntegrityBody<'a> {
    /// Reads all that is left.
    ///
    /// # Errors
    /// It is something else.
    pub fn decode_all(input: &mut Decoder<'a>) -> Result<Self> {
        let body = Self {
            covered: input.opaque(input.remaining())?,
            checksum: input.opaque(input.remaining())?,
        };
        all_read(input).map(|()| body)
    }
}

impl Encode for IntegrityBody<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        out.opaque(self.covered)?;
        out.opaque(self.checksum)
    }
}

/// Reads all that is left as a body with privacy: one token (RFC 2203 section 5.3.2.3,
/// `rpc_gss_priv_data`).
///
/// # Errors
/// It is something else.
pub fn privacy_token<'a>(input: &mut Decoder<'a>) -> Result<&'a [u8]> {
    gss_token(input, input.remaining())
}

/// Takes what a protected body holds apart: the sequence number, and the arguments or results.
///
/// # Errors
/// There is no sequence number.
pub fn protected_content(content: &[u8]) -> Result<(u32, &[u8])> {
    let (number, rest) = content.split_first_chunk().ok_or(Error::Truncated)?;
    Ok((u32::from_be_bytes(*number), rest))
}

fn all_read(input: &Decoder<'_>) -> Result<()> {
    match input.remaining() {
        0 => Ok(()),
        _ => Err(Error::TooLong),
    }
}

impl<'a> From<&'a [u8]> for OpaqueAuth<'a> {
    /// The verifier with this checksum.
    fn from(body: &'a [u8]) -> Self {
        Self {
            flavor: RPCSEC_GSS,
            body,
        }
    }
}
