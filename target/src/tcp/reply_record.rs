//! A finished reply as pieces of the stream.

use std::ops::Range;

use millrace_mempool::Slice;
use millrace_reactor::gather::GatheredWrite;

use crate::call::{BulkResult, ReplyParts};

/// Space reserved before a reply's message for the record mark.
pub(super) const HEADROOM: usize = 4;

/// Round-up of data (RFC 4506 section 4.10).
const PAD: [u8; 3] = [0; 3];

/// A reply to be sent: record mark, message, and the data in its place.
#[derive(Debug)]
pub(super) struct ReplyRecord {
    parts: ReplyParts,
    length: usize,
    sent: usize,
}

impl ReplyRecord {
    /// Takes a reply whose message begins after [`HEADROOM`], and marks it as one record. `None` if
    /// it is too long for one.
    pub fn new(mut parts: ReplyParts) -> Option<Self> {
        let message = parts.message.clone();
        let data = parts.bulk.iter().map(padded);
        let length = message.len() + data.sum::<usize>();
        let mark = millrace_wire::rpc::RecordMark::whole(length)?;
        let start = message.start.checked_sub(HEADROOM)?;
        parts.buffer[start..message.start].copy_from_slice(&mark.to_bytes());
        Some(Self {
            parts,
            length: HEADROOM + length,
            sent: 0,
        })
    }

    /// Adds the bytes not sent yet; `false` if not all of them fit.
    pub fn gather<'a>(&'a self, write: &mut GatheredWrite<'a>) -> bool {
        let ReplyParts {
            buffer,
            message,
            bulk,
            slices,
            ..
        } = &self.parts;
        let mut rest = Rest {
            skip: self.sent,
            write,
        };
        let mut at = message.start - HEADROOM;
        let (mut slices, mut from) = (slices.iter().peekable(), 0);
        for item in bulk {
            let place = message.start + item.position;
            if !rest.bytes(&buffer[at..place]) {
                return false;
            }
            at = place;
            let mut left = item.length;
            while let Some(slice) = slices.peek().filter(|_| left > 0) {
                let part = left.min(slice.len() - from);
                if !rest.slice(slice, from..from + part) {
                    return false;
                }
                left -= part;
                from += part;
                if from == slice.len() {
                    slices.next();
                    from = 0;
                }
            }
            if !rest.bytes(&PAD[..padded(item) - item.length]) {
                return false;
            }
        }
        rest.bytes(&buffer[at..message.end])
    }

    /// Records a number of bytes sent, some of which may belong to later records. Returns those of
    /// later records; `None` if this one is incomplete.
    pub fn sent(&mut self, count: usize) -> Option<usize> {
        let left = self.left();
        self.sent += count.min(left);
        count.checked_sub(left)
    }

    /// Bytes not sent yet.
    pub fn left(&self) -> usize {
        self.length - self.sent
    }

    /// The list of slices, for reuse.
    pub fn into_slices(self) -> Vec<Slice> {
        self.parts.slices
    }
}

/// Bytes of a result with its round-up.
fn padded(item: &BulkResult) -> usize {
    item.length.next_multiple_of(4)
}

/// Adds pieces of a record to a write, without bytes already sent.
struct Rest<'a, 'w> {
    skip: usize,
    write: &'w mut GatheredWrite<'a>,
}

impl<'a> Rest<'a, '_> {
    fn bytes(&mut self, bytes: &'a [u8]) -> bool {
        let sent = self.pass(bytes.len());
        sent == bytes.len() || self.write.add_bytes(&bytes[sent..])
    }

    fn slice(&mut self, slice: &'a Slice, range: Range<usize>) -> bool {
        let sent = self.pass(range.len());
        sent == range.len() || self.write.add_slice(slice, range.start + sent..range.end)
    }

    /// The number of bytes of a piece already sent.
    fn pass(&mut self, length: usize) -> usize {
        let sent = self.skip.min(length);
        self.skip -= sent;
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

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
            flattens: false,
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
            let mut record = ReplyRecord::new(reply.into_parts()).unwrap();
            assert_eq!(record.left(), 24);
            let mut out = Vec::new();
            loop {
                // All the rest is sent, of which the peer received a part.
                let (near, mut far) = UnixStream::pair().unwrap();
                let mut write = GatheredWrite::new(usize::MAX);
                assert!(record.gather(&mut write));
                assert_eq!(write.bytes(), record.left());
                assert_eq!(write.send(near.as_fd()).unwrap(), record.left());
                drop(near);
                let mut rest = Vec::new();
                far.read_to_end(&mut rest).unwrap();
                rest.truncate(room);
                out.extend_from_slice(&rest);
                if let Some(beyond) = record.sent(room) {
                    assert_eq!(beyond, room - rest.len());
                    break;
                }
            }
            assert_eq!(record.left(), 0);
            assert_eq!(out, b"\x80\0\0\x14headabcde\0\0\0tafg\0\0il");
        }
    }
}
