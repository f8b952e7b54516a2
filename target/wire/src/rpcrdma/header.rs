//! Headers of any version, parsed and checked.

use super::{
    CallChunks, ErrorBody, FIRST_WORDS, Fault, FirstWords, Lists, RDMA_ERROR, Reason, Refusal,
    Rules, Version, version1, version2,
};
use crate::rpc::{self, MessageType};
use crate::xdr::{Encode, Encoder, Padding, Result};

/// What follows the first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// RDMA_MSG, or RDMA_MSGP of version one with its alignment.
    Message {
        /// Chunks.
        lists: Lists<'a>,
        /// The RPC message, reduced by what is in chunks.
        message: &'a [u8],
        /// Alignment pads in the message: none in RDMA_MSG.
        padding: Option<Padding>,
    },
    /// RDMA_NOMSG.
    NoMessage {
        /// Chunks.
        lists: Lists<'a>,
    },
    /// RDMA_DONE of version one.
    Done,
    /// RDMA_ERROR.
    Error(ErrorBody<'a>),
    /// RDMA2_OPTIONAL of version two.
    Optional(Optional<'a>),
}

/// A message of an extension (version two draft section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optional<'a> {
    /// Whose XIDs and credits the header's are.
    pub direction: MessageType,
    /// The optional operation.
    pub kind: u32,
    /// What the operation's own document defines.
    pub opaque: &'a [u8],
    /// All of an RPC message, a part of one, or nothing.
    pub payload: &'a [u8],
}

impl<'a> Optional<'a> {
    /// A message without payload.
    #[must_use]
    pub const fn new(direction: MessageType, kind: u32, opaque: &'a [u8]) -> Self {
        Self {
            direction,
            kind,
            opaque,
            payload: &[],
        }
    }
}

/// A checked header and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The first words.
    pub words: FirstWords,
    /// The version that the message was read by. An RDMA_ERROR with a version word of no version
    /// served counts as version one.
    pub version: Version,
    /// The direction word of version two; version one has none.
    pub direction: Option<MessageType>,
    /// The key that the reply may invalidate, in calls of version two, and its repetition in
    /// replies; zero for none.
    pub invalidate: u32,
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Header<'a> {
    /// Parses a message in either direction. An RDMA_ERROR is taken whatever its version word
    /// says, as old peers put their own version there.
    ///
    /// # Errors
    /// A [`Fault`]; only responders answer it.
    #[inline]
    pub fn parse(message: &'a [u8], rules: &Rules) -> core::result::Result<Self, Fault> {
        let words = FirstWords::read(message).ok_or(Fault::Drop)?;
        let served = rules.versions.find(words.version);
        // The shortest message of each type (RFC 8166 section 4.5; types it does not send have
        // shorter ones of their own).
        let shortest = match words.kind {
            RDMA_ERROR => FIRST_WORDS + 4,
            version1::DONE if served == Some(Version::One) => FIRST_WORDS,
            _ => version1::SHORTEST,
        };
        if message.len() < shortest {
            return Err(Fault::Drop);
        }
        if words.kind == RDMA_ERROR {
            return Self::parse_error(message, words, served.unwrap_or(Version::One));
        }
        let parsed = match served {
            Some(Version::One) => version1::parse(message, words, rules),
            Some(Version::Two) => version2::parse(message, words, rules),
            None => Err(Refusal::Version),
        };
        parsed.map_err(|refusal| Fault::Refuse { words, refusal })
    }

    fn parse_error(
        message: &'a [u8],
        words: FirstWords,
        version: Version,
    ) -> core::result::Result<Self, Fault> {
        let body = message
            .get(FIRST_WORDS..)
            .and_then(|body| ErrorBody::parse(body, version))
            .ok_or(Fault::Drop)?;
        Ok(Self {
            words,
            version,
            direction: None,
            invalidate: 0,
            body: Body::Error(body),
        })
    }

    /// Parses a message that is a call, with the rules that hold for calls only: an RPC message is
    /// inline or at position zero and not in both places, and an inline one has the XID of its
    /// header. A message that is a reply ([`Header::direction`]) is not held to them, and if one
    /// of version two is faulty nothing answers it (RFC 8166 section 4.5).
    ///
    /// # Errors
    /// A [`Fault`], to be answered by [`Fault::answer`].
    #[inline]
    pub fn parse_call(message: &'a [u8], rules: &Rules) -> core::result::Result<Self, Fault> {
        let header = match Self::parse(message, rules) {
            Ok(header) => header,
            Err(Fault::Refuse {
                words,
                refusal: Refusal::Header(_),
            }) if version2::claimed_direction(message, &words) == Some(MessageType::Reply) => {
                return Err(Fault::Drop);
            }
            Err(fault) => return Err(fault),
        };
        if header.direction() == Some(MessageType::Reply) {
            return Ok(header);
        }
        let refuse = |reason| Fault::Refuse {
            words: header.words,
            refusal: Refusal::Header(reason),
        };
        match header.body {
            Body::Message { lists, message, .. } => {
                if lists.reads.chunk(0).is_some() {
                    return Err(refuse(Reason::PositionZero));
                }
                header.check_xid(message, rules).map_err(refuse)?;
            }
            Body::NoMessage { lists } if lists.reads.chunk(0).is_none() => {
                return Err(refuse(Reason::PositionZero));
            }
            Body::NoMessage { .. } | Body::Done | Body::Error(_) | Body::Optional(_) => {}
        }
        Ok(header)
    }

    /// Checks that an RPC message, inline or fetched from chunks, begins with the header's XID
    /// (RFC 8166 section 4.2.1).
    ///
    /// # Errors
    /// [`Reason::Truncated`] if it has no XID and no direction, [`Reason::Xid`].
    pub fn check_xid(&self, message: &[u8], rules: &Rules) -> core::result::Result<(), Reason> {
        match message.first_chunk::<8>() {
            None => Err(Reason::Truncated),
            Some([a, b, c, d, ..])
                if rules.same_xid && u32::from_be_bytes([*a, *b, *c, *d]) != self.words.xid =>
            {
                Err(Reason::Xid)
            }
            Some(_) => Ok(()),
        }
    }

    /// The RPC message of a call from responder to requester, or of its reply: inline, without
    /// chunks and pads, with the header's XID (RFC 8167 section 5).
    ///
    /// # Errors
    /// [`Reason::TooMany`] for chunks, pads, or no inline message; as [`Header::check_xid`].
    pub fn reverse_message(&self, rules: &Rules) -> core::result::Result<&'a [u8], Reason> {
        match self.body {
            Body::Message {
                lists,
                message,
                padding: None,
            } if lists.is_empty() => self.check_xid(message, rules).map(|()| message),
            _ => Err(Reason::TooMany),
        }
    }

    /// The lists, empty for the types that have none.
    #[must_use]
    pub fn lists(&self) -> Lists<'a> {
        match self.body {
            Body::Message { lists, .. } | Body::NoMessage { lists } => lists,
            Body::Done | Body::Error(_) | Body::Optional(_) => Lists::default(),
        }
    }

    /// Whose XIDs and credits the header's are, to be looked at before its XID on connections that
    /// carry calls both ways: the direction word of version two, else that of an inline message
    /// (RFC 8167 section 5.2).
    #[must_use]
    pub fn direction(&self) -> Option<MessageType> {
        match self.body {
            Body::Message { message, .. } if self.direction.is_none() => {
                rpc::peek(message).ok().map(|(_, kind)| kind)
            }
            _ => self.direction,
        }
    }
}

/// What a header to be sent says beside its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The version to write.
    pub version: Version,
    /// Transaction identifier, that of the RPC message.
    pub xid: u32,
    /// Credits: asked for in calls, granted in replies.
    pub credits: u32,
    /// Whether the RPC message follows, or is in chunks.
    pub inline: bool,
    /// Whether the RPC message is a call or a reply. Only version two has a word for it.
    pub direction: MessageType,
    /// The key that the reply may invalidate, zero for none; a reply repeats that of its call.
    /// Only version two has a word for it.
    pub invalidate: u32,
}

/// Appends the header of a message with or without an RPC message behind it: the chunks are
/// [`CallChunks`] or [`ReplyChunks`](super::ReplyChunks).
///
/// # Errors
/// No room; as encoding the chunks.
pub fn encode_header(out: &mut Encoder<'_>, header: &Outgoing, chunks: &impl Encode) -> Result<()> {
    let kind = match header.inline {
        true => version1::Kind::Message,
        false => version1::Kind::NoMessage,
    };
    // The numbers of these types are the same in both versions.
    encode_words(
        out,
        header.xid,
        header.version,
        header.credits,
        kind.number(),
    )?;
    if header.version == Version::Two {
        header.direction.encode(out)?;
        out.u32(header.invalidate)?;
    }
    chunks.encode(out)
}

/// Appends the first words of a message.
pub(super) fn encode_words(
    out: &mut Encoder<'_>,
    xid: u32,
    version: Version,
    credits: u32,
    kind: u32,
) -> Result<()> {
    out.words([xid, version.number(), credits, kind])
}

/// Appends the header of a message without chunks, whose RPC message follows. Its length is
/// [`Version::shortest`].
///
/// # Errors
/// No room.
pub fn encode_plain_header(
    out: &mut Encoder<'_>,
    version: Version,
    xid: u32,
    credits: u32,
    direction: MessageType,
) -> Result<()> {
    let header = Outgoing {
        version,
        xid,
        credits,
        inline: true,
        direction,
        invalidate: 0,
    };
    encode_header(out, &header, &CallChunks::default())
}
