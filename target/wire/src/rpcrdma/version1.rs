//! RPC-over-RDMA version one (RFC 8166; RFC 5666 for RDMA_MSGP and RDMA_DONE).

use super::{
    Body, FIRST_WORDS, FirstWords, Header, Lists, Reason, Refusal, Rules, Version, encode_words,
};
use crate::xdr::{Decoder, Encode, Encoder, Padding, Result, xdr_enum};

/// The version word.
pub const VERSION: u32 = Version::One.number();

/// Bytes of a header without chunks.
pub const SHORTEST: usize = FIRST_WORDS + Lists::EMPTY_LENGTH;

/// Additional bytes in the header of an RDMA_MSGP: alignment and threshold.
pub const PADDING_LENGTH: usize = 8;

xdr_enum! {
    /// Message types (RFC 8166 section 4.2.4).
    pub enum Kind {
        Message = 0, "RDMA_MSG", "an RPC message follows";
        NoMessage = 1, "RDMA_NOMSG", "the RPC message is in chunks";
        Padded = 2, "RDMA_MSGP", "an RPC message with alignment pads follows";
        Done = 3, "RDMA_DONE", "read chunks of a reply have been fetched";
        Error = 4, "RDMA_ERROR", "a call's header could not be used";
    }
}

/// The type that is shorter than the others.
pub(super) const DONE: u32 = Kind::Done.number();

/// Parses a message that is not an error and has the least length of its type.
#[inline]
pub(super) fn parse<'a>(
    message: &'a [u8],
    words: FirstWords,
    rules: &Rules,
) -> core::result::Result<Header<'a>, Refusal> {
    let body = parse_body(message, words.kind, rules)?;
    Ok(Header {
        words,
        version: Version::One,
        direction: None,
        invalidate: 0,
        body,
    })
}

#[inline]
fn parse_body<'a>(
    message: &'a [u8],
    kind: u32,
    rules: &Rules,
) -> core::result::Result<Body<'a>, Refusal> {
    let truncated = Refusal::Header(Reason::Truncated);
    let mut input = Decoder::new(message.get(FIRST_WORDS..).ok_or(truncated)?);
    let padding = match Kind::from_number(kind) {
        Some(Kind::Message | Kind::NoMessage) => None,
        Some(Kind::Padded) if rules.padding => {
            let mut word = || input.u32().map_err(|_| truncated);
            Some(Padding {
                align: word()?,
                threshold: word()?,
            })
        }
        Some(Kind::Done) => return Ok(Body::Done),
        _ => return Err(Refusal::Procedure),
    };
    let lists = Lists::parse(&mut input, rules).map_err(Refusal::Header)?;
    if kind == Kind::NoMessage.number() {
        return Ok(Body::NoMessage { lists });
    }
    Ok(Body::Message {
        lists,
        message: input.rest(),
        padding,
    })
}

/// Appends the header of an RDMA_MSGP, to be followed by a message encoded with the same padding.
///
/// # Errors
/// The buffer is too small; or as encoding the chunks.
pub fn encode_padded_header(
    out: &mut Encoder<'_>,
    xid: u32,
    credits: u32,
    padding: Padding,
    chunks: &impl Encode,
) -> Result<()> {
    encode_words(out, xid, Version::One, credits, Kind::Padded.number())?;
    out.u32(padding.align)?;
    out.u32(padding.threshold)?;
    chunks.encode(out)
}

/// Appends an RDMA_DONE (RFC 5666 section 3.8): 16 bytes.
///
/// # Errors
/// The buffer is too small.
pub fn encode_done(out: &mut Encoder<'_>, xid: u32, credits: u32) -> Result<()> {
    encode_words(out, xid, Version::One, credits, Kind::Done.number())
}
