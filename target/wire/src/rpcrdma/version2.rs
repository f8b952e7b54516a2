//! RPC-over-RDMA version two by its draft 02 (draft-cel-nfsv4-rpcrdma-version-two-02, called
//! "version two draft" elsewhere).
//!
//! Differences from version one: two more words before the chunk lists (the direction of the RPC
//! message, and the key that a reply may invalidate), more detailed errors, a message type for
//! extensions, and neither RDMA_MSGP nor RDMA_DONE. The layouts are written by hand from the
//! meaning of the draft; nothing in this crate is copied from it.

use super::{
    Body, FIRST_WORDS, FirstWords, Header, Lists, Optional, Reason, Refusal, Rules, Version,
    encode_words,
};
use crate::rpc::{self, MessageType};
use crate::xdr::{Decode, Decoder, Encode, Encoder, Error, Result, xdr_enum};

/// The version word.
pub const VERSION: u32 = Version::Two.number();

/// Bytes before the chunk lists: the first words, direction, key.
pub const BEFORE_LISTS: usize = FIRST_WORDS + 8;

/// Bytes of a header without chunks.
pub const SHORTEST: usize = BEFORE_LISTS + Lists::EMPTY_LENGTH;

/// Bytes of an RDMA2_OPTIONAL without opaque bytes and payload: the first words, direction, type,
/// and how many opaque bytes follow.
pub const OPTIONAL_LENGTH: usize = FIRST_WORDS + 12;

/// Bytes that every receiver accepts in one Send (section 2.3).
pub const MIN_INLINE: usize = 4096;

xdr_enum! {
    /// Message types (section 5.2). The numbers of version one's other types are not used.
    pub enum Kind {
        Message = 0, "RDMA2_MSG", "an RPC message follows";
        NoMessage = 1, "RDMA2_NOMSG", "the RPC message is in chunks";
        Error = 4, "RDMA2_ERROR", "a call could not be used, or not be answered";
        Optional = 5, "RDMA2_OPTIONAL", "a message of an extension";
    }
}

xdr_enum! {
    /// Error codes (section 5.2.4).
    pub enum ErrorCode {
        Version = 1, "RDMA2_ERR_VERS", "the version is not served";
        BadXdr = 2, "RDMA2_ERR_BAD_XDR", "the header cannot be parsed";
        CannotReply = 3, "RDMA2_ERR_CANT_REPLY", "there is no room for the reply";
        InvalidProcedure = 4, "RDMA2_ERR_INVAL_PROC", "the message type does not exist";
        InvalidOption = 5, "RDMA2_ERR_INVAL_OPTION", "the optional operation is not known";
    }
}

/// Parses a message that is not an error and has at least 28 bytes.
pub(super) fn parse<'a>(
    message: &'a [u8],
    words: FirstWords,
    rules: &Rules,
) -> core::result::Result<Header<'a>, Refusal> {
    let kind = match Kind::from_number(words.kind) {
        Some(kind) if kind != Kind::Error => kind,
        _ => return Err(Refusal::Procedure),
    };
    let header = parse_body(message, words, kind, rules);
    header.map_err(Refusal::Header)
}

fn parse_body<'a>(
    message: &'a [u8],
    words: FirstWords,
    kind: Kind,
    rules: &Rules,
) -> core::result::Result<Header<'a>, Reason> {
    let mut input = Decoder::new(message.get(FIRST_WORDS..).ok_or(Reason::Truncated)?);
    let direction = match input.u32().map(MessageType::from_number) {
        Ok(Some(direction)) => direction,
        Ok(None) => return Err(Reason::Direction),
        Err(_) => return Err(Reason::Truncated),
    };
    let header = |invalidate, body| Header {
        words,
        version: Version::Two,
        direction: Some(direction),
        invalidate,
        body,
    };
    if kind == Kind::Optional {
        let optional = parse_optional(&mut input, words.xid, direction)?;
        return Ok(header(0, Body::Optional(optional)));
    }
    let invalidate = input.u32().map_err(|_| Reason::Truncated)?;
    let lists = Lists::parse(&mut input, rules)?;
    let message = input.rest();
    if kind == Kind::NoMessage {
        // The RPC message would be both inline and in a chunk.
        return if message.is_empty() {
            Ok(header(invalidate, Body::NoMessage { lists }))
        } else {
            Err(Reason::PositionZero)
        };
    }
    match rpc::peek(message) {
        Ok((_, kind)) if kind == direction => {}
        // An RPC message has at least an XID and a direction.
        _ if message.len() < 8 => return Err(Reason::Truncated),
        _ => return Err(Reason::Direction),
    }
    let body = Body::Message {
        lists,
        message,
        padding: None,
    };
    Ok(header(invalidate, body))
}

fn parse_optional<'a>(
    input: &mut Decoder<'a>,
    xid: u32,
    direction: MessageType,
) -> core::result::Result<Optional<'a>, Reason> {
    let kind = input.u32().map_err(|_| Reason::Truncated)?;
    let opaque = input
        .opaque(input.remaining())
        .map_err(|_| Reason::Truncated)?;
    let payload = input.rest();
    if !agrees(payload, xid, direction) {
        return Err(Reason::Direction);
    }
    Ok(Optional {
        direction,
        kind,
        opaque,
        payload,
    })
}

/// Whether the payload of an optional operation agrees with a direction word (section 5.2.2). A
/// payload may be a part of an RPC message whose offset only the operation knows. So only payloads
/// that begin with the header's XID are checked.
fn agrees(payload: &[u8], xid: u32, direction: MessageType) -> bool {
    let mut input = Decoder::new(payload);
    match (input.u32(), input.u32()) {
        (Ok(first), Ok(second)) if first == xid => second == direction.number(),
        _ => true,
    }
}

/// The direction word of a faulty message with these first words, if it is of this version and of a
/// type that has one. Errors go from responder to requester only, so a faulty reply is not answered
/// (section 5.2.2).
#[must_use]
pub fn claimed_direction(message: &[u8], words: &FirstWords) -> Option<MessageType> {
    let kind = Kind::from_number(words.kind).filter(|&kind| kind != Kind::Error);
    let mut input = Decoder::new(message.get(FIRST_WORDS..).unwrap_or_default());
    let direction = MessageType::decode(&mut input).ok();
    direction.filter(|_| words.version == VERSION && kind.is_some())
}

/// Appends an RDMA2_OPTIONAL with its payload, which may be empty: 28 bytes, the opaque bytes with
/// their round-up, and the payload (section 5.2). Without payload, a requester sends it as a call
/// and a responder as a reply.
///
/// # Errors
/// The buffer is too small; [`Error::Value`] for a payload that begins with the XID and has another
/// direction.
pub fn encode_optional(
    out: &mut Encoder<'_>,
    xid: u32,
    credits: u32,
    optional: &Optional<'_>,
) -> Result<()> {
    if !agrees(optional.payload, xid, optional.direction) {
        return Err(Error::Value);
    }
    encode_words(out, xid, Version::Two, credits, Kind::Optional.number())?;
    optional.direction.encode(out)?;
    out.u32(optional.kind)?;
    out.opaque(optional.opaque)?;
    out.raw(optional.payload)
}
