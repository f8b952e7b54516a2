//! Encoding of chunk lists, in one pass.

use super::lists::Lists;
use super::segment::{ReadSegment, Segment, WriteChunk};
use crate::xdr::{Encode, Encoder, Error, Result};

/// The chunks that a requester offers with a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallChunks<'c> {
    /// Read list, in order.
    pub reads: &'c [ReadSegment],
    /// Write list: chunks of segments.
    pub writes: &'c [&'c [Segment]],
    /// Reply chunk.
    pub reply: Option<&'c [Segment]>,
}

impl Encode for CallChunks<'_> {
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        encode_reads(self.reads, out)?;
        for chunk in self.writes {
            out.u32(1)?;
            encode_chunk(chunk.len(), chunk.iter().copied(), out)?;
        }
        out.u32(0)?;
        out.bool(self.reply.is_some())?;
        self.reply.map_or(Ok(()), |chunk| {
            encode_chunk(chunk.len(), chunk.iter().copied(), out)
        })
    }
}

/// The chunks that a responder returns with a reply: those of the call, with the lengths that were
/// written (RFC 8166 sections 3.4.6 and 4.3.2).
#[derive(Clone, Copy, Debug)]
pub struct ReplyChunks<'c, 'a> {
    /// Read chunks for the requester to fetch (RFC 5666 section 3.8); empty in all other cases.
    pub reads: &'c [ReadSegment],
    /// The lists of the call.
    pub call: &'c Lists<'a>,
    /// Bytes written into each write chunk, in list order. Chunks beyond it were not used.
    pub written: &'c [u64],
    /// Bytes of the RPC message written into the reply chunk, zero for an inline reply.
    pub reply_written: u64,
}

impl Encode for ReplyChunks<'_, '_> {
    /// [`Error::Value`] if more bytes were written than a chunk has.
    fn encode(&self, out: &mut Encoder<'_>) -> Result<()> {
        encode_reads(self.reads, out)?;
        let mut written = self.written.iter().copied();
        for chunk in &self.call.writes {
            out.u32(1)?;
            encode_filled(chunk, written.next().unwrap_or(0), out)?;
        }
        if written.any(|bytes| bytes > 0) {
            return Err(Error::Value);
        }
        out.u32(0)?;
        match self.call.reply {
            Some(chunk) => {
                out.u32(1)?;
                encode_filled(chunk, self.reply_written, out)
            }
            None if self.reply_written > 0 => Err(Error::Value),
            None => out.u32(0),
        }
    }
}

fn encode_reads(reads: &[ReadSegment], out: &mut Encoder<'_>) -> Result<()> {
    for entry in reads {
        out.u32(1)?;
        entry.encode(out)?;
    }
    out.u32(0)
}

fn encode_filled(chunk: WriteChunk<'_>, written: u64, out: &mut Encoder<'_>) -> Result<()> {
    if written > chunk.total() {
        return Err(Error::Value);
    }
    encode_chunk(chunk.len(), chunk.filled(written), out)
}

fn encode_chunk(
    count: usize,
    mut segments: impl Iterator<Item = Segment>,
    out: &mut Encoder<'_>,
) -> Result<()> {
    out.u32(u32::try_from(count).map_err(|_| Error::TooLong)?)?;
    segments.try_for_each(|segment| segment.encode(out))
}
