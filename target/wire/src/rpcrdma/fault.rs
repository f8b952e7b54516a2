//! Refused messages, and the errors that answer them.

use super::{
    ERR_CHUNK, ERR_VERS, FIRST_WORDS, FirstWords, RDMA_ERROR, Reason, Version, Versions, version2,
};
use crate::xdr::{Decoder, Encoder, Result};

/// The content of an RDMA_ERROR (RFC 8166 section 4.5, version two draft section 5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody<'a> {
    /// The version is not served; this range is. The same error in all versions.
    Version {
        /// Lowest version served.
        low: u32,
        /// Highest version served.
        high: u32,
    },
    /// Version one: header or chunks could not be used.
    Chunk,
    /// Version two: the header could not be parsed.
    BadXdr,
    /// Version two: the chunks for results are too small for the reply.
    CannotReply {
        /// Whether the procedure had run when that was found out.
        processed: bool,
        /// The first segment that is too short, counted from one at the first segment of the write
        /// list and on into the reply chunk; zero if it could not be determined.
        segment: u32,
        /// Bytes needed in that segment.
        needed: u32,
    },
    /// Version two: the message type does not exist.
    InvalidProcedure,
    /// Version two: the optional operation is not known.
    InvalidOption,
    /// A code that the version does not define.
    Unknown {
        /// The code.
        code: u32,
        /// Up to eight words behind it.
        words: &'a [u8],
    },
}

impl<'a> ErrorBody<'a> {
    /// Decodes an RDMA_ERROR of a version, behind its first words. Bytes behind the error are
    /// ignored.
    pub(super) fn parse(body: &'a [u8], version: Version) -> Option<Self> {
        use version2::ErrorCode;
        let mut input = Decoder::new(body);
        let code = input.u32().ok()?;
        let of_two = match version {
            Version::One => None,
            Version::Two => ErrorCode::from_number(code),
        };
        Some(match (code, of_two) {
            (ERR_VERS, _) => Self::Version {
                low: input.u32().ok()?,
                high: input.u32().ok()?,
            },
            (_, Some(ErrorCode::BadXdr)) => Self::BadXdr,
            (_, Some(ErrorCode::CannotReply)) => Self::CannotReply {
                processed: input.bool().ok()?,
                segment: input.u32().ok()?,
                needed: input.u32().ok()?,
            },
            (_, Some(ErrorCode::InvalidProcedure)) => Self::InvalidProcedure,
            (_, Some(ErrorCode::InvalidOption)) => Self::InvalidOption,
            (ERR_CHUNK, _) if version == Version::One => Self::Chunk,
            (code, _) => {
                let rest = input.rest();
                let words = rest.get(..rest.len().min(8 * 4) & !3)?;
                Self::Unknown { code, words }
            }
        })
    }

    /// The error code.
    #[must_use]
    pub const fn code(&self) -> u32 {
        use version2::ErrorCode;
        match self {
            Self::Version { .. } => ERR_VERS,
            Self::Chunk => ERR_CHUNK,
            Self::BadXdr => ErrorCode::BadXdr.number(),
            Self::CannotReply { .. } => ErrorCode::CannotReply.number(),
            Self::InvalidProcedure => ErrorCode::InvalidProcedure.number(),
            Self::InvalidOption => ErrorCode::InvalidOption.number(),
            Self::Unknown { code, .. } => *code,
        }
    }
}

/// Appends an RDMA_ERROR with the XID and the version word of the message that it answers: 20
/// bytes, 28 with versions, 32 for a reply that does not fit.
///
/// # Errors
/// The buffer is too small.
pub fn encode_error(
    out: &mut Encoder<'_>,
    failing: &FirstWords,
    credits: u32,
    error: &ErrorBody<'_>,
) -> Result<()> {
    out.u32(failing.xid)?;
    out.u32(failing.version)?;
    out.u32(credits)?;
    out.u32(RDMA_ERROR)?;
    out.u32(error.code())?;
    match *error {
        ErrorBody::Version { low, high } => {
            out.u32(low)?;
            out.u32(high)
        }
        ErrorBody::CannotReply {
            processed,
            segment,
            needed,
        } => {
            out.bool(processed)?;
            out.u32(segment)?;
            out.u32(needed)
        }
        ErrorBody::Unknown { words, .. } => out.raw(words),
        ErrorBody::Chunk
        | ErrorBody::BadXdr
        | ErrorBody::InvalidProcedure
        | ErrorBody::InvalidOption => Ok(()),
    }
}

/// Why a call is refused by the transport. Each version has its own error for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A version that is not served: ERR_VERS.
    #[error("its version is not served")]
    Version,
    /// A header or chunks that cannot be used: ERR_CHUNK, or BAD_XDR in version two.
    #[error("{0}")]
    Header(Reason),
    /// A message type that does not exist or is not served: ERR_CHUNK, or INVAL_PROC in version
    /// two.
    #[error("its message type is not served")]
    Procedure,
    /// An optional operation that is not known: INVAL_OPTION of version two.
    #[error("its optional operation is not known")]
    Option,
    /// A reply that does not fit the chunks offered: ERR_CHUNK, or CANT_REPLY in version two.
    #[error("its reply needs {needed} bytes in segment {segment}")]
    CannotReply {
        /// Whether the procedure had run when that was found out.
        processed: bool,
        /// The first segment that is too short, counted from one at the first segment of the write
        /// list and on into the reply chunk; zero if it cannot be determined.
        segment: u32,
        /// Bytes needed in that segment.
        needed: u32,
    },
}

impl Refusal {
    /// The error of a version. `versions` is the range served.
    #[must_use]
    pub const fn error(self, version: Version, versions: Versions) -> ErrorBody<'static> {
        match (self, version) {
            (Self::Version, _) => ErrorBody::Version {
                low: versions.low().number(),
                high: versions.high().number(),
            },
            (_, Version::One) => ErrorBody::Chunk,
            (Self::Header(_), Version::Two) => ErrorBody::BadXdr,
            (Self::Procedure, Version::Two) => ErrorBody::InvalidProcedure,
            (Self::Option, Version::Two) => ErrorBody::InvalidOption,
            (
                Self::CannotReply {
                    processed,
                    segment,
                    needed,
                },
                Version::Two,
            ) => ErrorBody::CannotReply {
                processed,
                segment,
                needed,
            },
        }
    }

    /// Appends the error in the version of the failing message, whose first words are `words`.
    /// `versions` is the range served.
    ///
    /// # Errors
    /// No room for [`ERROR_MAX`] bytes.
    pub fn encode(
        self,
        words: &FirstWords,
        credits: u32,
        versions: Versions,
        out: &mut Encoder<'_>,
    ) -> Result<()> {
        let error = match Version::from_number(words.version) {
            Some(version) => self.error(version, versions),
            // Only the version error has the same layout in all versions.
            None => Self::Version.error(Version::One, versions),
        };
        encode_error(out, words, credits, &error)
    }
}

/// Bytes of the longest error that a responder sends.
pub const ERROR_MAX: usize = FIRST_WORDS + 16;

/// Why a message is not taken, and what its sender may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too short to be trusted, or an error that does not decode, or a faulty reply: no answer.
    #[error("a message that cannot be trusted")]
    Drop,
    /// A call that gets an error.
    #[error("call {:#010x} of version {}: {refusal}", .words.xid, .words.version)]
    Refuse {
        /// The first words of the message.
        words: FirstWords,
        /// The reason for the refusal.
        refusal: Refusal,
    },
}

impl Fault {
    /// Appends the answer that a responder owes, and says whether there is one. `versions` are
    /// those served.
    ///
    /// # Errors
    /// No room for [`ERROR_MAX`] bytes.
    pub fn answer(&self, credits: u32, versions: Versions, out: &mut Encoder<'_>) -> Result<bool> {
        match self {
            Self::Drop => Ok(false),
            Self::Refuse { words, refusal } => {
                refusal.encode(words, credits, versions, out)?;
                Ok(true)
            }
        }
    }
}
