//! Validation of replies against the offered chunks.

use arrayvec::ArrayVec;
use millrace_wire::rpcrdma::{Header, Lists, WriteChunk};
use millrace_wire::xdr::pad;

use super::call::CallError;
use super::plan::ITEMS_MAX;
use super::slot::{Offered, Purpose};

/// A message that claims to answer a call.
pub(super) struct ReplyMessage<'a> {
    pub header: Header<'a>,
    pub body: AnswerBody<'a>,
}

pub(super) enum AnswerBody<'a> {
    /// An RPC reply of so many bytes, the last ones of the message.
    Inline { lists: Lists<'a>, length: usize },
    /// An RPC reply in the reply chunk.
    Long { lists: Lists<'a> },
    /// An RDMA_ERROR.
    Error(CallError),
}

/// Bytes that the server says it wrote into each write chunk that was offered.
///
/// Handles and offsets of the reply are ignored. Fewer chunks than offered, and chunks with fewer
/// segments, are allowed where no result was written. `None` for lengths beyond the offered ones,
/// or with gaps: such a reply is bad.
pub(super) fn written(
    lists: &Lists<'_>,
    offers: &[Offered],
    chunks: usize,
) -> Option<ArrayVec<Option<u32>, ITEMS_MAX>> {
    if lists.writes.len() > chunks {
        return None;
    }
    let mut returned = lists.writes.iter();
    (0..chunks)
        .map(|chunk| match returned.next() {
            Some(returned) if !returned.is_empty() => {
                filled(&returned, offers, Purpose::Write(chunk)).map(Some)
            }
            _ => Some(None),
        })
        .collect()
}

/// Bytes of the message in the reply chunk; `None` if there is none, or it cannot be.
pub(super) fn long_length(lists: &Lists<'_>, offers: &[Offered]) -> Option<u32> {
    let chunk = lists.reply?;
    filled(&chunk, offers, Purpose::Reply).filter(|&length| length > 0)
}

/// The sum of the lengths returned for a chunk. Segments are filled in order, each before the
/// next; the last one may claim the pad of its data as well, as old servers do.
fn filled(returned: &WriteChunk<'_>, offers: &[Offered], purpose: Purpose) -> Option<u32> {
    let mut offers = offers.iter().filter(|offer| offer.purpose == purpose);
    let (mut sum, mut room, mut open) = (0_u32, 0_u32, true);
    for segment in returned {
        let offer = offers.next()?;
        if segment.length > 0 && !open {
            return None;
        }
        open = segment.length >= offer.length;
        sum = sum.checked_add(segment.length)?;
        room = room.checked_add(offer.length)?;
        let slack = pad(room as usize) as u32;
        if sum > room + slack || segment.length > offer.length + slack {
            return None;
        }
    }
    Some(sum)
}
