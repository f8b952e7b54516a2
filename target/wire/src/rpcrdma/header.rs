//! Headers of any version, parsed and checked.

use super::{
    ErrorBody, FIRST_WORDS, Fault, FirstWords, Lists, RDMA_ERROR, Reason, Refusal, Rules, Segment,
    Version, version1, version2,
};
use crate::rpc::{self, MessageType};
use crate::xdr::{Encode, Encoder, Padding, Result};

/// The content of a message behind the first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// RDMA_MSG, or RDMA_MSGP of version one with its alignment.
    Message {
        /// Chunks.
        lists: Lists<'a>,
        /// The RPC message, without the items that are in chunks.
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
    /// The direction that the header's XID and credits belong to.
    pub direction: MessageType,
    /// The optional operation.
    pub kind: u32,
    /// Opaque bytes, as the operation's specification defines them.
    pub opaque: &'a [u8],
    /// An RPC message, a part of one, or nothing.
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

/// A checked header and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The first words.
    pub words: FirstWords,
    /// The version by which the message was decoded. An RDMA_ERROR whose version word is of no
    /// served version counts as version one.
    pub version: Version,
    /// The direction word of version two; version one has none.
    pub direction: Option<MessageType>,
    /// The key that the reply may invalidate, in calls of version two, and its repetition in
    /// replies; zero for none.
    pub invalidate: u32,
    /// The content.
    pub body: Body<'a>,
}

impl<'a> Header<'a> {
    /// Parses a message in either direction. An RDMA_ERROR is accepted with any version word, as
    /// old peers put their own version there.
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

    /// Parses a message, with the additional rules for calls: the RPC message is inline or at
    /// position zero, not both, and an inline one has the XID of its header. These rules do not
    /// apply to a reply ([`Header::direction`]). A faulty reply of version two is not answered (RFC
    /// 8166 section 4.5).
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

    /// The direction that the header's XID and credits belong to, for connections that carry calls
    /// in both directions: the direction word of version two, else the direction of an inline
    /// message (RFC 8167 section 5.2).
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

/// The fields of a header to send, without its chunks.
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
    /// The key that the reply may invalidate, zero for none. A reply repeats the key of its call.
    /// Only version two has a word for it.
    pub invalidate: u32,
}

/// Appends the header of a message with or without an RPC message behind it: the chunks are
/// [`CallChunks`](super::CallChunks) or [`ReplyChunks`](super::ReplyChunks).
///
/// # Errors
/// The buffer is too small; or as encoding the chunks.
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

/// Whether an inline message has a read list, by the word where that begins. Nothing else is checked.
#[must_use]
#[inline]
pub fn has_reads(message: &[u8]) -> bool {
    let version = FirstWords::read(message).and_then(|words| Version::from_number(words.version));
    version.is_some_and(|version| {
        let lists = message.get(version.before_lists()..);
        lists.and_then(<[u8]>::first_chunk) == Some(&1_u32.to_be_bytes())
    })
}

/// Appends the first words of a message.
#[inline]
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
/// The buffer is too small.
#[inline]
pub fn encode_plain_header(
    out: &mut Encoder<'_>,
    version: Version,
    xid: u32,
    credits: u32,
    direction: MessageType,
) -> Result<()> {
    encode_words(out, xid, version, credits, version1::Kind::Message.number())?;
    match version {
        Version::One => out.words([0; 3]),
        // No key to invalidate.
        Version::Two => out.words([direction.number(), 0, 0, 0, 0]),
    }
}

/// Appends the header of a reply whose only chunk is one segment with a result, and whose RPC message
/// follows. `segment` is that of the call ([`Lists::only_result`](super::Lists::only_result)), with the
/// bytes that were written for its length.
///
/// # Errors
/// The buffer is too small.
#[inline]
pub fn encode_result_header(
    out: &mut Encoder<'_>,
    version: Version,
    xid: u32,
    credits: u32,
    segment: Segment,
) -> Result<()> {
    encode_words(out, xid, version, credits, version1::Kind::Message.number())?;
    if version == Version::Two {
        // No key to invalidate.
        out.words([MessageType::Reply.number(), 0])?;
    }
    let (high, low) = ((segment.offset >> 32) as u32, segment.offset as u32);
    out.words([0, 1, 1, segment.handle, segment.length, high, low, 0, 0])
}
