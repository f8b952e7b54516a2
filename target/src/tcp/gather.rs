//! Turns a finished reply into bytes of the stream.

use std::ops::Range;

use crate::call::ReplyParts;

/// Room that a reply keeps in front of its message for the record mark.
pub(super) const HEADROOM: usize = 4;

/// A reply on its way into the stream: record mark, message, and the data in its place.
#[derive(Debug)]
pub(super) struct Gather {
    parts: ReplyParts,
    /// Of the buffer: mark and message up to the data.
    head: Range<usize>,
    /// Zeros behind the data.
    pad: usize,
    /// Of the buffer: the message behind the data.
    tail: Range<usize>,
    /// The slice being copied and how much of it has been.
    slice: (usize, usize),
}

impl Gather {
    /// Takes a reply whose message stands right behind [`HEADROOM`], and marks it as one record.
    /// `None` if it is too long for one.
    pub fn new(mut parts: ReplyParts) -> Option<Self> {
        let message = parts.message.clone();
        let (position, length) = parts
            .bulk
            .map_or((message.len(), 0), |bulk| (bulk.position, bulk.length));
        let pad = length.wrapping_neg() % 4;
        let mark = millrace_wire::rpc::RecordMark::whole(message.len() + length + pad)?;
        let start = message.start.checked_sub(HEADROOM)?;
        parts.buffer[start..message.start].copy_from_slice(&mark.to_bytes());
        let middle = message.start + position;
        Some(Self {
            parts,
            head: start..middle,
            pad,
            tail: middle..message.end,
            slice: (0, 0),
        })
    }

    /// Appends up to `room` more bytes to `out`; whether that was the last of them.
    pub fn fill(&mut self, out: &mut Vec<u8>, mut room: usize) -> bool {
        append(out, &self.parts.buffer, &mut self.head, &mut room);
        while let Some(slice) = self.parts.slices.get(self.slice.0).filter(|_| room > 0) {
            let part = room.min(slice.len() - self.slice.1);
            let start = out.len();
            out.resize(start + part, 0);
            slice.copy_to(self.slice.1, &mut out[start..]);
            self.slice.1 += part;
            room -= part;
            if self.slice.1 == slice.len() {
                self.slice = (self.slice.0 + 1, 0);
            }
        }
        if self.slice.0 < self.parts.slices.len() || !self.head.is_empty() {
            return false;
        }
        let part = room.min(self.pad);
        out.resize(out.len() + part, 0);
        self.pad -= part;
        room -= part;
        append(out, &self.parts.buffer, &mut self.tail, &mut room);
        self.pad == 0 && self.tail.is_empty()
    }

    /// Bytes that have not been appended yet.
    pub fn length(&self) -> usize {
        let (at, copied) = self.slice;
        let slices = self
            .parts
            .slices
            .iter()
            .skip(at)
            .map(millrace_mempool::Slice::len);
        self.head.len() + slices.sum::<usize>() - copied + self.pad + self.tail.len()
    }

    /// The list of slices, for reuse.
    pub fn into_slices(self) -> Vec<millrace_mempool::Slice> {
        self.parts.slices
    }
}

fn append(out: &mut Vec<u8>, bytes: &[u8], range: &mut Range<usize>, room: &mut usize) {
    let part = range.len().min(*room);
    out.extend_from_slice(&bytes[range.start..range.start + part]);
    range.start += part;
    *room -= part;
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};

    use super::*;
    use crate::call::{BulkResult, Limits, Reply};

    #[test]
    fn data_is_gathered_into_its_place() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let limits = Limits {
            headroom: HEADROOM,
            message: 1000,
            apart: None,
            tells_shortage: false,
        };
        for room in 1..30 {
            let buffer = pool.try_acquire(Class::Control).unwrap();
            let mut reply = Reply::new(&pool, buffer, limits, Vec::new());
            reply.room()[..8].copy_from_slice(b"headtail");
            reply.set_length(8);
            for text in [&b"abc"[..], b"de"] {
                let slice = pool
                    .try_acquire(Class::Control)
                    .unwrap()
                    .into_slice(0..text.len());
                slice.copy_from(0, text);
                reply.slices.push(slice);
            }
            reply.set_bulk(BulkResult {
                position: 4,
                length: 5,
            });
            let mut gather = Gather::new(reply.into_parts()).unwrap();
            let mut out = Vec::new();
            assert_eq!(gather.length(), 20);
            while !gather.fill(&mut out, room) {
                assert_eq!(out.len() + gather.length(), 20);
            }
            assert_eq!(gather.length(), 0);
            assert_eq!(out, b"\x80\0\0\x10headabcde\0\0\0tail");
        }
    }
}
