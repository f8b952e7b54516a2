//! How a call travels: the decision alone, without I/O and without memory.

use arrayvec::ArrayVec;
use millrace_mempool::Class;
use millrace_reactor::fabric::SLICES_MAX;
use millrace_wire::rpcrdma::{
    READ_ENTRY_LENGTH, REPLY_CHUNK_LENGTH, SEGMENT_LENGTH, WRITE_ENTRY_LENGTH,
};
use millrace_wire::xdr::round_up;

/// Most eligible items in the arguments of one call, and most eligible results.
pub const ITEMS_MAX: usize = 4;

/// Most bytes of a transport header that is ever sent.
pub const HEADER_MAX: usize = 1024;

/// Memory given for one item: how many bytes, in how many pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: usize,
    /// Slices.
    pub pieces: usize,
}

/// The layout of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the RPC message without its eligible items.
    pub message: usize,
    /// Eligible items of the arguments.
    pub items: ArrayVec<Extent, ITEMS_MAX>,
    /// Room for the eligible results.
    pub sinks: ArrayVec<Extent, ITEMS_MAX>,
    /// Bytes of the largest reply without its eligible results.
    pub largest_reply: usize,
    /// Bytes of the reply chunk that the server asked for; zero if it has not.
    pub reply_room: usize,
}

/// What connection and settings allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Bytes of a transport header without chunks, in either direction.
    pub shortest: usize,
    /// Most bytes of a Send to the server, header and message together.
    pub send: usize,
    /// Most bytes of a Send from the server.
    pub receive: usize,
    /// Most segments in a chunk.
    pub segments: usize,
    /// Segments of a reply chunk.
    pub reply_segments: usize,
    /// Most pieces under one key, of at most [`SLICES_MAX`].
    pub group: usize,
    /// Eligible data of more bytes does not travel inline.
    pub chunk_above: usize,
    /// All calls travel at position zero.
    pub long_calls: bool,
    /// No item is taken out of the stream, and no result expected apart from it: messages are
    /// protected as a whole (RFC 8166 section 8.2.2.3).
    pub whole: bool,
    /// Results that may not fit inline have write chunks and a reply chunk.
    pub offer_results: bool,
    /// The server does RDMA Reads. Without them there are no read chunks, of which long calls are
    /// made as well (RFC 5666 section 6.2).
    pub read_chunks: bool,
}

/// How pieces of memory become segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// So many pieces under one key each, at most [`SLICES_MAX`]; one is the plain way.
    Pieces(usize),
    /// Gathered by copying, as more keys would not fit into the header.
    Copy,
}

impl Merge {
    /// From the cheapest to the last resort.
    const LADDER: [Self; SLICES_MAX + 1] = [
        Self::Pieces(1),
        Self::Pieces(2),
        Self::Pieces(3),
        Self::Pieces(4),
        Self::Copy,
    ];

    /// Segments that an extent takes.
    #[must_use]
    pub fn segments(self, extent: Extent) -> usize {
        match self {
            _ if extent.length == 0 => 0,
            Self::Pieces(group) => extent.pieces.div_ceil(group),
            Self::Copy => extent.length.div_ceil(Class::Large.size()),
        }
    }
}

/// The placement of a call's RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RDMA_MSG, everything behind the header.
    Inline,
    /// RDMA_MSG with the eligible items in read chunks.
    Chunked,
    /// RDMA_NOMSG with the whole message in a read chunk at position zero.
    Long,
}

/// How a call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// The placement of its message.
    pub form: Form,
    /// How read and write chunks are put together.
    pub merge: Merge,
    /// Whether the room for results is offered as write chunks.
    pub offer_writes: bool,
    /// Bytes of the reply chunk to offer, zero for none.
    pub reply_chunk: usize,
    /// Most bytes that the transport header takes.
    pub header: usize,
}

/// Decides in the order of RFC 5666 section 4: all inline; else eligible items in chunks; else the
/// whole message in a chunk. In each, memory in many pieces is merged as far as the header needs
/// it. A reply chunk is offered whenever the largest possible reply may not fit inline (RFC 8166
/// section 4.3.3). `None` if nothing fits.
#[must_use]
pub fn plan(shape: &Shape, limits: &CallLimits) -> Option<CallPlan> {
    let results: usize = shape.sinks.iter().map(|sink| rounded(sink.length)).sum();
    let inline_reply = limits.shortest + shape.largest_reply + results;
    let bulk: usize = shape.sinks.iter().map(|sink| sink.length).sum();
    let wanted = inline_reply > limits.receive || bulk > limits.chunk_above;
    let offer_writes = bulk > 0 && wanted && limits.offer_results && !limits.whole;
    let forms = [Form::Inline, Form::Chunked, Form::Long];
    for form in forms
        .into_iter()
        .skip(if limits.long_calls { 2 } else { 0 })
    {
        for merge in Merge::LADDER {
            if matches!(merge, Merge::Pieces(group) if group > limits.group.max(1)) {
                continue;
            }
            let offer = Offer {
                offer_writes,
                form,
                merge,
            };
            if let Some(plan) = offer.try_on(shape, limits) {
                return Some(plan);
            }
        }
    }
    None
}

fn rounded(length: usize) -> usize {
    round_up(length as u64) as usize
}

struct Offer {
    offer_writes: bool,
    form: Form,
    merge: Merge,
}

impl Offer {
    /// The plan, if all fits.
    fn try_on(&self, shape: &Shape, limits: &CallLimits) -> Option<CallPlan> {
        let segments = |extent: &Extent| {
            let segments = self.merge.segments(*extent);
            (segments <= limits.segments).then_some(segments)
        };
        let mut header = limits.shortest;
        if self.offer_writes {
            for sink in &shape.sinks {
                header += WRITE_ENTRY_LENGTH + SEGMENT_LENGTH * segments(sink)?;
            }
        }
        let reply_chunk = reply_chunk(shape, limits, header, self.offer_writes);
        if reply_chunk > Class::Large.size() {
            return None;
        }
        if reply_chunk > 0 {
            header += REPLY_CHUNK_LENGTH
                + SEGMENT_LENGTH * limits.reply_segments.clamp(1, limits.segments);
        }
        // A reply repeats these lists, and they must fit there as well.
        if header > limits.receive {
            return None;
        }
        let data: usize = shape.items.iter().map(|item| item.length).sum();
        let padded: usize = shape.items.iter().map(|item| rounded(item.length)).sum();
        let inline = match self.form {
            Form::Inline if data > limits.chunk_above && !limits.whole => return None,
            Form::Inline => shape.message + padded,
            Form::Chunked | Form::Long if !limits.read_chunks => return None,
            Form::Chunked if data == 0 || limits.whole => return None,
            Form::Chunked => {
                for item in &shape.items {
                    header += READ_ENTRY_LENGTH * segments(item)?;
                }
                shape.message
            }
            Form::Long => {
                // Around each item stand a part of the message and perhaps a pad.
                let pieces: usize = shape.items.iter().map(|item| item.pieces + 2).sum();
                let whole = Extent {
                    length: shape.message + padded,
                    pieces: pieces + 1,
                };
                header += READ_ENTRY_LENGTH * segments(&whole)?;
                0
            }
        };
        (header <= HEADER_MAX && header + inline <= limits.send).then_some(CallPlan {
            form: self.form,
            merge: self.merge,
            offer_writes: self.offer_writes,
            reply_chunk,
            header,
        })
    }
}

/// Bytes of the reply chunk that the largest reply needs, given the other content of its header.
fn reply_chunk(shape: &Shape, limits: &CallLimits, header: usize, offer_writes: bool) -> usize {
    let results: usize = if offer_writes {
        0
    } else {
        shape.sinks.iter().map(|sink| rounded(sink.length)).sum()
    };
    let message = shape.largest_reply + results;
    if shape.reply_room > 0 {
        return shape.reply_room;
    }
    if header + message > limits.receive && limits.offer_results {
        rounded(message)
    } else {
        0
    }
}
