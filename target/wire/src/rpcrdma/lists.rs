//! The three lists of a header, checked.

use super::Versions;
use super::segment::{
    READ_ENTRY_LENGTH, REPLY_CHUNK_LENGTH, ReadList, SEGMENT_LENGTH, Segment, WRITE_ENTRY_LENGTH,
    WriteChunk, WriteList,
};
use crate::xdr::{self, Decoder};

/// The limits of a receiver for incoming messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Versions that are served; messages of others are refused.
    pub versions: Versions,
    /// Most segments in one chunk of any kind.
    pub segments_per_chunk: usize,
    /// Most read chunks, that is distinct positions, in one message.
    pub read_chunks: usize,
    /// Most chunks in a write list.
    pub write_chunks: usize,
    /// Most bytes in the read list.
    pub read_bytes: u64,
    /// Whether RDMA_MSGP is understood (RFC 5666 section 3.9); RFC 8166 section 4.6.1 refuses it.
    pub padding: bool,
    /// Whether an RPC message must have the XID of its header (RFC 8166 section 4.2.1), or may
    /// have another, as early peers were allowed.
    pub same_xid: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            versions: Versions::BOTH,
            segments_per_chunk: 64,
            read_chunks: 4,
            write_chunks: 4,
            read_bytes: 8 << 20,
            padding: true,
            same_xid: true,
        }
    }
}

/// Why a header of a served version is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It ends inside a list.
    #[error("the header ends inside a list")]
    Truncated,
    /// A presence word is neither 0 nor 1.
    #[error("a presence word is neither 0 nor 1")]
    Presence,
    /// More segments or chunks than the receiver allows.
    #[error("too many segments or chunks")]
    TooMany,
    /// More bytes to read than the receiver allows.
    #[error("too many bytes to read")]
    TooLarge,
    /// A position that is no multiple of four.
    #[error("a position is no multiple of four")]
    Position,
    /// A segment that wraps around the end of the address space.
    #[error("a segment wraps around")]
    Wrap,
    /// The RPC message does not begin with the header's XID.
    #[error("the XIDs of header and RPC message differ")]
    Xid,
    /// A position zero chunk where the RPC message is inline, or none where it is not.
    #[error("the RPC message is in two places, or in none")]
    PositionZero,
    /// A direction word that is not defined, or differs from the direction of the RPC message.
    #[error("the direction is none, or not that of the RPC message")]
    Direction,
}

/// Read list, write list and reply chunk, in this order (RFC 8166 section 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Lists<'a> {
    /// Arguments to fetch.
    pub reads: ReadList<'a>,
    /// Memory for results.
    pub writes: WriteList<'a>,
    /// Memory for a long reply.
    pub reply: Option<WriteChunk<'a>>,
}

impl<'a> Lists<'a> {
    /// Bytes of three lists that are all empty.
    pub const EMPTY_LENGTH: usize = 12;

    /// Whether all three are absent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// The segment of lists that have no other, if that is for a result: as in most calls that read.
    #[must_use]
    #[inline]
    pub fn only_result(&self) -> Option<Segment> {
        let is_one = self.writes.bytes.len() == WRITE_ENTRY_LENGTH + SEGMENT_LENGTH;
        if !is_one || !self.reads.is_empty() || self.reply.is_some() {
            return None;
        }
        self.writes.iter().next()?.iter().next()
    }

    /// Bytes of the lists in a reply that returns these.
    #[must_use]
    pub fn reply_length(&self) -> usize {
        let reply = self
            .reply
            .map_or(0, |chunk| REPLY_CHUNK_LENGTH + chunk.bytes.len());
        Self::EMPTY_LENGTH + self.writes.bytes.len() + reply
    }

    /// Decodes and checks the lists at the front of `input`.
    #[inline]
    pub(super) fn parse(input: &mut Decoder<'a>, rules: &Rules) -> Result<Self, Reason> {
        // Most calls have none.
        let mut ahead = *input;
        if ahead.words() == Ok([0; 3]) {
            *input = ahead;
            return Ok(Self::default());
        }
        match Self::parse_one_segment(input, rules) {
            Some(lists) => Ok(lists),
            None => Self::parse_any(input, rules),
        }
    }

    /// The same of lists with one segment, for an argument or a result; `None` if they are others,
    /// or not to be accepted.
    #[inline]
    fn parse_one_segment(input: &mut Decoder<'a>, rules: &Rules) -> Option<Self> {
        let mut ahead = *input;
        let words: [u32; 9] = ahead.words().ok()?;
        let (is_argument, [length, high, low]) = match words {
            [1, position, _, length, high, low, 0, 0, 0] if position.is_multiple_of(4) => {
                (true, [length, high, low])
            }
            [0, 1, 1, _, length, high, low, 0, 0] => (false, [length, high, low]),
            _ => return None,
        };
        (u64::from(high) << 32 | u64::from(low)).checked_add(u64::from(length))?;
        let most = match is_argument {
            true if u64::from(length) > rules.read_bytes => 0,
            true => rules.read_chunks,
            false => rules.write_chunks,
        };
        if most == 0 || rules.segments_per_chunk == 0 {
            return None;
        }
        let mut lists = Self::default();
        if is_argument {
            lists.reads = ReadList {
                bytes: input.rest().get(..READ_ENTRY_LENGTH)?,
                is_one_chunk: true,
            };
        } else {
            // Behind the word for no reads.
            let entry = 4..4 + WRITE_ENTRY_LENGTH + SEGMENT_LENGTH;
            lists.writes = WriteList {
                bytes: input.rest().get(entry)?,
                count: 1,
            };
        }
        *input = ahead;
        Some(lists)
    }

    fn parse_any(input: &mut Decoder<'a>, rules: &Rules) -> Result<Self, Reason> {
        let reads = parse_reads(input, rules)?;
        let writes = parse_writes(input, rules)?;
        let reply = if present(input)? {
            Some(parse_chunk(input, rules)?)
        } else {
            None
        };
        Ok(Self {
            reads,
            writes,
            reply,
        })
    }
}

/// Decoding of words fails in two ways only.
fn reason(error: xdr::Error) -> Reason {
    match error {
        xdr::Error::Value => Reason::Presence,
        _ => Reason::Truncated,
    }
}

fn present(input: &mut Decoder<'_>) -> Result<bool, Reason> {
    input.bool().map_err(reason)
}

#[inline]
fn check_segment(input: &mut Decoder<'_>) -> Result<Segment, Reason> {
    let [handle, length, high, low] = input.words().map_err(reason)?;
    let segment = Segment {
        handle,
        length,
        offset: u64::from(high) << 32 | u64::from(low),
    };
    match segment.offset.checked_add(u64::from(segment.length)) {
        Some(_) => Ok(segment),
        None => Err(Reason::Wrap),
    }
}

fn parse_reads<'a>(input: &mut Decoder<'a>, rules: &Rules) -> Result<ReadList<'a>, Reason> {
    let bytes = input.rest();
    let most = rules.segments_per_chunk.saturating_mul(rules.read_chunks);
    let mut count = 0;
    let mut total = 0;
    let mut first = None;
    let mut is_one_chunk = true;
    while present(input)? {
        if count == most {
            return Err(Reason::TooMany);
        }
        count += 1;
        let position = input.u32().map_err(reason)?;
        if !position.is_multiple_of(4) {
            return Err(Reason::Position);
        }
        is_one_chunk &= *first.get_or_insert(position) == position;
        total += u64::from(check_segment(input)?.length);
    }
    if total > rules.read_bytes {
        return Err(Reason::TooLarge);
    }
    let list = ReadList {
        bytes: bytes
            .get(..count * READ_ENTRY_LENGTH)
            .ok_or(Reason::Truncated)?,
        is_one_chunk: is_one_chunk && count > 0,
    };
    if list.is_one_chunk && count <= rules.segments_per_chunk && rules.read_chunks > 0 {
        return Ok(list);
    }
    let mut chunks = list.chunks();
    for chunk in chunks.by_ref().take(rules.read_chunks) {
        if chunk.segments().count() > rules.segments_per_chunk {
            return Err(Reason::TooMany);
        }
    }
    match chunks.next() {
        Some(_) => Err(Reason::TooMany),
        None => Ok(list),
    }
}

fn parse_writes<'a>(input: &mut Decoder<'a>, rules: &Rules) -> Result<WriteList<'a>, Reason> {
    let bytes = input.rest();
    let mut length = 0;
    let mut count = 0;
    while present(input)? {
        if count == rules.write_chunks {
            return Err(Reason::TooMany);
        }
        count += 1;
        length += WRITE_ENTRY_LENGTH + parse_chunk(input, rules)?.bytes.len();
    }
    Ok(WriteList {
        bytes: bytes.get(..length).ok_or(Reason::Truncated)?,
        count,
    })
}

fn parse_chunk<'a>(input: &mut Decoder<'a>, rules: &Rules) -> Result<WriteChunk<'a>, Reason> {
    let count = input.u32().map_err(reason)? as usize;
    if count > input.remaining() / SEGMENT_LENGTH {
        return Err(Reason::Truncated);
    }
    if count > rules.segments_per_chunk {
        return Err(Reason::TooMany);
    }
    let bytes = input
        .rest()
        .get(..count * SEGMENT_LENGTH)
        .ok_or(Reason::Truncated)?;
    for _ in 0..count {
        check_segment(input)?;
    }
    Ok(WriteChunk { bytes })
}
