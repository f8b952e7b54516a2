//! Replies as slots of sessions keep them: lengths and places, the results, then their data.

use arrayvec::ArrayVec;
use millrace_mempool::Slice;
use millrace_wire::xdr::ITEMS_MAX;

use super::seam::{CachedCompound, FinishedReply};
use crate::call::{BulkResult, BulkResults};

/// Bytes of a count, a place or a length.
const WORD: usize = 4;
/// Longest part before the results: two lengths, and two words for each item.
const HEAD_MAX: usize = WORD * (2 + 2 * ITEMS_MAX);

/// The part of a reply before the results. It is on the stack, as each WRITE has one.
pub(super) fn head(reply: &FinishedReply<'_>) -> ArrayVec<u8, HEAD_MAX> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let mut head = ArrayVec::new();
    head.extend(word(reply.results.len()));
    head.extend(word(reply.items.len()));
    for item in reply.items {
        head.extend(word(item.position));
        head.extend(word(item.length));
    }
    head
}

/// The data of all items.
pub(super) fn data(reply: &FinishedReply<'_>) -> Vec<u8> {
    let length = reply.data.iter().map(Slice::len).sum();
    let mut data = vec![0; length];
    let mut rest = &mut data[..];
    for slice in reply.data {
        let (here, behind) = rest.split_at_mut(slice.len());
        slice.copy_to(0, here);
        rest = behind;
    }
    data
}

/// The reply that was kept; `None` if it is none.
pub(super) fn decode(kept: &[u8]) -> Option<CachedCompound> {
    let mut rest = kept;
    let mut word = || {
        let (word, behind) = rest.split_first_chunk::<WORD>()?;
        rest = behind;
        Some(u32::from_be_bytes(*word) as usize)
    };
    let (length, count) = (word()?, word()?);
    let mut items = BulkResults::new();
    for _ in 0..count {
        let (position, length) = (word()?, word()?);
        items.try_push(BulkResult { position, length }).ok()?;
    }
    let (results, data) = rest.split_at_checked(length)?;
    Some(CachedCompound {
        results: results.to_vec(),
        items,
        data: data.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_comes_back_as_it_was_kept() {
        let mut items = BulkResults::new();
        items.push(BulkResult {
            position: 12,
            length: 3,
        });
        let reply = FinishedReply {
            results: &[1, 2, 3, 4],
            items: &items,
            data: &[],
            changes: false,
        };
        let kept = [&head(&reply)[..], &[1, 2, 3, 4], &[7, 8, 9]].concat();
        let cached = CachedCompound {
            results: vec![1, 2, 3, 4],
            items,
            data: vec![7, 8, 9],
        };
        assert_eq!(decode(&kept), Some(cached));
        assert_eq!(decode(&kept[..16]), None);
        assert_eq!(decode(&kept[..7]), None);
    }
}
