//! Segments, chunks and lists of chunks (RFC 8166 section 4.3), as views of checked bytes.

use crate::xdr::{Decoder, Taken, xdr_struct};

/// Bytes of a segment.
pub const SEGMENT_LENGTH: usize = 16;
/// Bytes of an entry of the read list: presence, position, segment.
pub const READ_ENTRY_LENGTH: usize = 8 + SEGMENT_LENGTH;
/// Bytes of an entry of the write list without its segments: presence and their number.
pub const WRITE_ENTRY_LENGTH: usize = 8;
/// Bytes of a reply chunk without its segments and without the presence word.
pub const REPLY_CHUNK_LENGTH: usize = 4;

xdr_struct! {
    /// A range of registered memory (RFC 8166 section 4.3, `xdr_rdma_segment`).
    pub fixed struct Segment {
        /// Steering tag.
        pub handle: u32,
        /// Bytes.
        pub length: u32,
        /// Tagged offset of the first byte.
        pub offset: u64,
    }
}

xdr_struct! {
    /// A segment of a read chunk (RFC 8166 section 4.3, `xdr_read_chunk`).
    pub fixed struct ReadSegment {
        /// Position of the chunk's data in the stream.
        pub position: u32,
        /// The memory.
        pub segment: Segment,
    }
}

/// Reads a word of bytes that were checked, which cannot fail.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |word| u32::from_be_bytes(*word))
}

#[inline]
fn segment(bytes: &[u8]) -> Segment {
    let words = Decoder::new(bytes).words();
    let [handle, length, high, low] = words.unwrap_or_default();
    Segment {
        handle,
        length,
        offset: u64::from(high) << 32 | u64::from(low),
    }
}

/// The read list of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadList<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether all entries have one position: one argument, as in most calls with a list.
    pub(super) is_one_chunk: bool,
}

impl<'a> ReadList<'a> {
    /// Entries in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / READ_ENTRY_LENGTH
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The entries in list order.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> ReadSegments<'a> {
        ReadSegments {
            entries: self.bytes.chunks_exact(READ_ENTRY_LENGTH),
        }
    }

    /// The chunks, in ascending order of position. A chunk is all entries of one position.
    #[must_use]
    pub const fn chunks(&self) -> ReadChunks<'a> {
        ReadChunks {
            list: *self,
            from: if self.is_empty() { None } else { Some(0) },
        }
    }

    /// The chunk at a position, if there is one.
    #[must_use]
    pub fn chunk(&self, position: u32) -> Option<ReadChunk<'a>> {
        if self.is_empty() || (self.is_one_chunk && word(self.bytes, 4) != position) {
            return None;
        }
        let chunk = ReadChunk {
            list: *self,
            position,
        };
        chunk.segments().next().map(|_| chunk)
    }

    /// Bytes in all entries.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter()
            .map(|entry| u64::from(entry.segment.length))
            .sum()
    }
}

impl<'a> IntoIterator for &ReadList<'a> {
    type Item = ReadSegment;
    type IntoIter = ReadSegments<'a>;

    fn into_iter(self) -> ReadSegments<'a> {
        self.iter()
    }
}

/// The entries of a read list.
#[derive(Clone, Debug)]
pub struct ReadSegments<'a> {
    entries: core::slice::ChunksExact<'a, u8>,
}

impl Iterator for ReadSegments<'_> {
    type Item = ReadSegment;

    #[inline]
    fn next(&mut self) -> Option<ReadSegment> {
        let entry = self.entries.next()?;
        let segment = segment(entry.get(8..).unwrap_or_default());
        Some(ReadSegment {
            position: word(entry, 4),
            segment,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for ReadSegments<'_> {}

/// The chunks of a read list.
#[derive(Clone, Debug)]
pub struct ReadChunks<'a> {
    list: ReadList<'a>,
    from: Option<u32>,
}

impl<'a> Iterator for ReadChunks<'a> {
    type Item = ReadChunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<ReadChunk<'a>> {
        let from = self.from?;
        if self.list.is_one_chunk {
            self.from = None;
            let chunk = ReadChunk {
                list: self.list,
                position: word(self.list.bytes, 4),
            };
            return (chunk.position >= from).then_some(chunk);
        }
        let ahead = self
            .list
            .iter()
            .map(|entry| entry.position)
            .filter(|&at| at >= from);
        let position = ahead.min()?;
        self.from = position.checked_add(1);
        Some(ReadChunk {
            list: self.list,
            position,
        })
    }
}

/// One argument, or a whole long call, in the requester's memory: the entries of one position.
#[derive(Clone, Copy, Debug)]
pub struct ReadChunk<'a> {
    list: ReadList<'a>,
    /// Position of its data in the stream.
    pub position: u32,
}

impl<'a> ReadChunk<'a> {
    /// Its segments in the order in which their bytes join.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + Clone + use<'a> {
        let position = self.position;
        let here = self
            .list
            .iter()
            .filter(move |entry| entry.position == position);
        here.map(|entry| entry.segment)
    }

    /// Bytes in it.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.segments()
            .map(|segment| u64::from(segment.length))
            .sum()
    }

    /// Its item, for a [`Decoder`](crate::xdr::Decoder); `None` for 2^32 bytes or more.
    #[must_use]
    pub fn taken(&self) -> Option<Taken> {
        let length = u32::try_from(self.length()).ok()?;
        Some(Taken {
            position: self.position,
            length,
        })
    }
}

/// The write list of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteList<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) count: usize,
}

impl<'a> WriteList<'a> {
    /// Chunks in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The chunks in list order.
    #[must_use]
    pub const fn iter(&self) -> WriteChunks<'a> {
        WriteChunks {
            bytes: self.bytes,
            left: self.count,
        }
    }
}

impl<'a> IntoIterator for &WriteList<'a> {
    type Item = WriteChunk<'a>;
    type IntoIter = WriteChunks<'a>;

    fn into_iter(self) -> WriteChunks<'a> {
        self.iter()
    }
}

/// The chunks of a write list.
#[derive(Clone, Debug)]
pub struct WriteChunks<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Iterator for WriteChunks<'a> {
    type Item = WriteChunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<WriteChunk<'a>> {
        self.left = self.left.checked_sub(1)?;
        // Presence word, count word, segments.
        let end = (word(self.bytes, 4) as usize)
            .checked_mul(SEGMENT_LENGTH)?
            .checked_add(WRITE_ENTRY_LENGTH)?;
        let bytes = self.bytes.get(WRITE_ENTRY_LENGTH..end)?;
        self.bytes = self.bytes.get(end..)?;
        Some(WriteChunk { bytes })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for WriteChunks<'_> {}

/// Memory of the requester for one result or a whole long reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteChunk<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> WriteChunk<'a> {
    /// Number of segments. The result of a chunk without segments stays inline.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / SEGMENT_LENGTH
    }

    /// Whether it has no segments.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The segments in the order in which they are filled.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> Segments<'a> {
        Segments {
            entries: self.bytes.chunks_exact(SEGMENT_LENGTH),
        }
    }

    /// Bytes in all segments: the capacity in a call, the bytes written in a reply.
    #[must_use]
    #[inline]
    pub fn total(&self) -> u64 {
        self.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// The segments with the lengths that remain after `bytes` bytes were written, each segment
    /// being filled before the next (RFC 8166 section 3.4.6). Bytes beyond the capacity are not
    /// counted.
    #[must_use]
    pub fn filled(&self, bytes: u64) -> Filled<'a> {
        Filled {
            segments: self.iter(),
            left: bytes,
        }
    }
}

impl<'a> IntoIterator for &WriteChunk<'a> {
    type Item = Segment;
    type IntoIter = Segments<'a>;

    fn into_iter(self) -> Segments<'a> {
        self.iter()
    }
}

/// The segments of a chunk.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    entries: core::slice::ChunksExact<'a, u8>,
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        self.entries.next().map(segment)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Segments<'_> {}

/// The segments of a chunk, with the lengths written.
#[derive(Clone, Debug)]
pub struct Filled<'a> {
    segments: Segments<'a>,
    left: u64,
}

impl Iterator for Filled<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        let segment = self.segments.next()?;
        let length = u32::try_from(self.left).map_or(segment.length, |l| l.min(segment.length));
        self.left -= u64::from(length);
        Some(Segment { length, ..segment })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.segments.size_hint()
    }
}

impl ExactSizeIterator for Filled<'_> {}
