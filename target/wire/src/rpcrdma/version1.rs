//! RPC-over-RDMA version one (RFC 8166; RFC 5666 for RDMA_MSGP and RDMA_DONE).
//!
//! A responder calls [`Header::parse_call`] and answers a [`Fault`] by [`Fault::answer`]; a
//! requester calls [`Header::parse`] and drops what is faulty (RFC 8166 section 4.5).

use super::{
    ERR_CHUNK, ERR_VERS, FIRST_WORDS, FirstWords, Lists, RDMA_ERROR, Reason, Rules,
    encode_version_error, error_words,
};
use crate::rpc;
use crate::xdr::{Decoder, Encode, Encoder, Padding, Result, xdr_enum};

/// The version word.
pub const VERSION: u32 = 1;

/// Bytes of a header without chunks.
pub const SHORTEST: usize = FIRST_WORDS + Lists::EMPTY_LENGTH;

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

/// What an RDMA_ERROR says (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody<'a> {
    /// The version is not served; these are, both included.
    Version {
        /// Lowest version served.
        low: u32,
        /// Highest version served.
        high: u32,
    },
    /// Header or chunks could not be used.
    Chunk,
    /// A code that the version does not define.
    Unknown {
        /// The code.
        code: u32,
        /// Up to eight words behind it.
        words: &'a [u8],
    },
}

/// What follows the first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// RDMA_MSG, or RDMA_MSGP with its alignment.
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
    /// RDMA_DONE.
    Done,
    /// RDMA_ERROR.
    Error(ErrorBody<'a>),
}

/// A checked header and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The first words.
    pub words: FirstWords,
    /// The rest.
    pub body: Body<'a>,
}

/// Why a message is not taken, and what its sender may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too short to be trusted, or an error that does not decode: no answer.
    #[error("a message that cannot be trusted")]
    Drop,
    /// A version that is not this one: ERR_VERS, unless another module serves it.
    #[error("version {} is not served", .0.version)]
    Version(FirstWords),
    /// A header that cannot be used: ERR_CHUNK.
    #[error("header of call {:#010x}: {reason}", .words.xid)]
    Chunk {
        /// The first words of the message.
        words: FirstWords,
        /// What is wrong with it.
        reason: Reason,
    },
}

impl Fault {
    /// Appends the answer that a responder owes, and says whether there is one. `versions` are
    /// the lowest and the highest version served.
    ///
    /// # Errors
    /// No room for 28 bytes.
    pub fn answer(
        &self,
        credits: u32,
        versions: (u32, u32),
        out: &mut Encoder<'_>,
    ) -> Result<bool> {
        match self {
            Self::Drop => return Ok(false),
            Self::Version(words) => {
                encode_version_error(out, words, credits, versions.0, versions.1)?;
            }
            Self::Chunk { words, .. } => encode_chunk_error(out, words, credits)?,
        }
        Ok(true)
    }
}

impl<'a> Header<'a> {
    /// Parses a message in either direction. An RDMA_ERROR is taken whatever its version word
    /// says, as old peers put their own version there.
    ///
    /// # Errors
    /// A [`Fault`]; only responders answer it.
    pub fn parse(message: &'a [u8], rules: &Rules) -> core::result::Result<Self, Fault> {
        let words = FirstWords::read(message).ok_or(Fault::Drop)?;
        // The shortest message of each type (RFC 8166 section 4.5; types it does not send have
        // shorter ones of their own).
        let served = words.version == VERSION;
        let shortest = match Kind::from_number(words.kind) {
            Some(Kind::Done) if served => FIRST_WORDS,
            Some(Kind::Error) => FIRST_WORDS + 4,
            _ => SHORTEST,
        };
        if message.len() < shortest {
            return Err(Fault::Drop);
        }
        if words.kind == RDMA_ERROR {
            let body = message
                .get(FIRST_WORDS..)
                .and_then(parse_error)
                .ok_or(Fault::Drop)?;
            return Ok(Self {
                words,
                body: Body::Error(body),
            });
        }
        if !served {
            return Err(Fault::Version(words));
        }
        let body = parse_body(message, words.kind, rules);
        let body = body.map_err(|reason| Fault::Chunk { words, reason })?;
        Ok(Self { words, body })
    }

    /// Parses a message that is a call, with the rules that hold for calls only: an RPC message is
    /// inline or at position zero and not in both places, and an inline one has the XID of its
    /// header.
    ///
    /// # Errors
    /// A [`Fault`], to be answered by [`Fault::answer`].
    pub fn parse_call(message: &'a [u8], rules: &Rules) -> core::result::Result<Self, Fault> {
        let header = Self::parse(message, rules)?;
        let chunk = |reason| Fault::Chunk {
            words: header.words,
            reason,
        };
        match header.body {
            Body::Message { lists, message, .. } => {
                if lists.reads.chunk(0).is_some() {
                    return Err(chunk(Reason::PositionZero));
                }
                header.check_xid(message, rules).map_err(chunk)?;
            }
            Body::NoMessage { lists } if lists.reads.chunk(0).is_none() => {
                return Err(chunk(Reason::PositionZero));
            }
            Body::NoMessage { .. } | Body::Done | Body::Error(_) => {}
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

    /// The lists, empty for the types that have none.
    #[must_use]
    pub fn lists(&self) -> Lists<'a> {
        match self.body {
            Body::Message { lists, .. } | Body::NoMessage { lists } => lists,
            Body::Done | Body::Error(_) => Lists::default(),
        }
    }

    /// Direction of an inline message, to be looked at before its XID on connections that carry
    /// calls both ways (RFC 8167 section 5.2).
    #[must_use]
    pub fn direction(&self) -> Option<rpc::MessageType> {
        match self.body {
            Body::Message { message, .. } => rpc::peek(message).ok().map(|(_, kind)| kind),
            _ => None,
        }
    }
}

fn parse_error(body: &[u8]) -> Option<ErrorBody<'_>> {
    let mut input = Decoder::new(body);
    match input.u32().ok()? {
        ERR_VERS => Some(ErrorBody::Version {
            low: input.u32().ok()?,
            high: input.u32().ok()?,
        }),
        ERR_CHUNK => Some(ErrorBody::Chunk),
        code => {
            let rest = input.rest();
            let words = rest.get(..rest.len().min(8 * 4) & !3)?;
            Some(ErrorBody::Unknown { code, words })
        }
    }
}

fn parse_body<'a>(
    message: &'a [u8],
    kind: u32,
    rules: &Rules,
) -> core::result::Result<Body<'a>, Reason> {
    let mut input = Decoder::new(message.get(FIRST_WORDS..).ok_or(Reason::Truncated)?);
    let padding = match Kind::from_number(kind) {
        Some(Kind::Message | Kind::NoMessage) => None,
        Some(Kind::Padded) if rules.padding => {
            let mut word = || input.u32().map_err(|_| Reason::Truncated);
            Some(Padding {
                align: word()?,
                threshold: word()?,
            })
        }
        Some(Kind::Done) => return Ok(Body::Done),
        _ => return Err(Reason::Kind),
    };
    let lists = Lists::parse(&mut input, rules)?;
    if kind == Kind::NoMessage.number() {
        return Ok(Body::NoMessage { lists });
    }
    Ok(Body::Message {
        lists,
        message: input.rest(),
        padding,
    })
}

/// Appends the header of an RDMA_MSG or RDMA_NOMSG: the chunks are
/// [`CallChunks`](super::CallChunks) or [`ReplyChunks`](super::ReplyChunks).
///
/// # Errors
/// No room; as encoding the chunks.
pub fn encode_header(
    out: &mut Encoder<'_>,
    xid: u32,
    credits: u32,
    inline: bool,
    chunks: &impl Encode,
) -> Result<()> {
    let kind = if inline {
        Kind::Message
    } else {
        Kind::NoMessage
    };
    encode_words(out, xid, credits, kind)?;
    chunks.encode(out)
}

/// Appends the header of an RDMA_MSGP, to be followed by a message encoded with the same padding.
///
/// # Errors
/// As [`encode_header`].
pub fn encode_padded_header(
    out: &mut Encoder<'_>,
    xid: u32,
    credits: u32,
    padding: Padding,
    chunks: &impl Encode,
) -> Result<()> {
    encode_words(out, xid, credits, Kind::Padded)?;
    out.u32(padding.align)?;
    out.u32(padding.threshold)?;
    chunks.encode(out)
}

/// Appends an RDMA_DONE (RFC 5666 section 3.8): 16 bytes.
///
/// # Errors
/// No room.
pub fn encode_done(out: &mut Encoder<'_>, xid: u32, credits: u32) -> Result<()> {
    encode_words(out, xid, credits, Kind::Done)
}

/// Appends an RDMA_ERROR with ERR_CHUNK (RFC 8166 section 4.5.2): 20 bytes.
///
/// # Errors
/// No room.
pub fn encode_chunk_error(out: &mut Encoder<'_>, call: &FirstWords, credits: u32) -> Result<()> {
    error_words(out, call, credits, ERR_CHUNK)
}

fn encode_words(out: &mut Encoder<'_>, xid: u32, credits: u32, kind: Kind) -> Result<()> {
    FirstWords {
        xid,
        version: VERSION,
        credits,
        kind: kind.number(),
    }
    .encode(out)
}
