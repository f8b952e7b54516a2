//! Turns a finished reply into bytes of the stream.

use std::ops::Range;

use crate::call::{BulkResult, ReplyParts};

/// Room that a reply keeps in front of its message for the record mark.
pub(super) const HEADROOM: usize = 4;

/// A reply on its way into the stream: record mark, message, and the data in its place.
#[derive(Debug)]
pub(super) struct Gather {
    parts: ReplyParts,
    /// Of the buffer: mark and message as far as they were not copied.
    rest: Range<usize>,
    /// The result that comes next or is being copied, and how many of its bytes are left, with
    /// those of its round-up.
    item: (usize, usize),
    /// The slice being copied and how much of it has been.
    slice: (usize, usize),
    /// Bytes that have not been copied yet.
    left: usize,
}

impl Gather {
    /// Takes a reply whose message stands right behind [`HEADROOM`], and marks it as one record.
    /// `None` if it is too long for one.
    pub fn new(mut parts: ReplyParts) -> Option<Self> {
        let message = parts.message.clone();
        let data = parts.bulk.iter().map(padded);
        let length = message.len() + data.sum::<usize>();
        let mark = millrace_wire::rpc::RecordMark::whole(length)?;
        let start = message.start.checked_sub(HEADROOM)?;
        parts.buffer[start..message.start].copy_from_slice(&mark.to_bytes());
        let first = parts.bulk.first().map_or(0, padded);
        Some(Self {
            parts,
            rest: start..message.end,
            item: (0, first),
            slice: (0, 0),
            left: HEADROOM + length,
        })
    }

    /// Appends up to `room` more bytes to `out`; whether that was the last of them.
    pub fn fill(&mut self, out: &mut Vec<u8>, mut room: usize) -> bool {
        let before = out.len();
        loop {
            let next = self.parts.bulk.get(self.item.0);
            let until = next.map_or(self.rest.end, |item| {
                self.parts.message.start + item.position
            });
            let part = room.min(until - self.rest.start);
            let from = self.rest.start;
            out.extend_from_slice(&self.parts.buffer[from..from + part]);
            self.rest.start += part;
            room -= part;
            let (Some(item), true) = (next, room > 0) else {
                break;
            };
            let round_up = padded(item) - item.length;
            while room > 0 && self.item.1 > round_up {
                let slice = &self.parts.slices[self.slice.0];
                let part = room.min(slice.len() - self.slice.1);
                let start = out.len();
                out.resize(start + part, 0);
                slice.copy_to(self.slice.1, &mut out[start..]);
                self.slice.1 += part;
                self.item.1 -= part;
                room -= part;
                if self.slice.1 == slice.len() {
                    self.slice = (self.slice.0 + 1, 0);
                }
            }
            if self.item.1 <= round_up {
                let part = room.min(self.item.1);
                out.resize(out.len() + part, 0);
                self.item.1 -= part;
                room -= part;
            }
            if self.item.1 > 0 {
                break;
            }
            let next = self.item.0 + 1;
            self.item = (next, self.parts.bulk.get(next).map_or(0, padded));
        }
        self.left -= out.len() - before;
        self.left == 0
    }

    /// Bytes that have not been appended yet.
    pub fn length(&self) -> usize {
        self.left
    }

    /// The list of slices, for reuse.
    pub fn into_slices(self) -> Vec<millrace_mempool::Slice> {
        self.parts.slices
    }
}

/// Bytes of a result with its round-up.
fn padded(item: &BulkResult) -> usize {
    item.length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

    use super::*;
    use crate::call::{Limits, NO_CHUNKS, Reply};

    #[test]
    fn data_is_gathered_into_its_place() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let limits = Limits {
            headroom: HEADROOM,
            message: 1000,
            apart: NO_CHUNKS,
            tells_shortage: false,
        };
        for room in 1..30 {
            let buffer = pool.try_acquire(Class::Control).unwrap();
            let mut reply = Reply::new(&pool, buffer, limits, Vec::new());
            reply.room()[..8].copy_from_slice(b"headtail");
            reply.set_length(8);
            for text in [&b"abc"[..], b"de", b"fg"] {
                let slice = pool
                    .try_acquire(Class::Control)
                    .unwrap()
                    .into_slice(0..text.len());
                slice.copy_from(0, text);
                reply.slices.push(slice);
            }
            let items = [(4, 5), (6, 2)];
            let items = items.map(|(position, length)| BulkResult { position, length });
            reply.set_bulk(items.into_iter().collect());
            let mut gather = Gather::new(reply.into_parts()).unwrap();
            let mut out = Vec::new();
            assert_eq!(gather.length(), 24);
            while !gather.fill(&mut out, room) {
                assert_eq!(out.len() + gather.length(), 24);
            }
            assert_eq!(gather.length(), 0);
            assert_eq!(out, b"\x80\0\0\x14headabcde\0\0\0tafg\0\0il");
        }
    }
}
