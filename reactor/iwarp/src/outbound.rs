//! FPDUs on their way out (RFC 5044 sections 4.1 to 4.4).
//!
//! Headers, pads, check values and short payloads lie in an arena, back to back, so that the end
//! of one FPDU and the head of the next are one piece; long payloads stay in the memory that they
//! come from. The storage is lent for as long as bytes are on their way, so that an idle stream
//! holds none.
//!
//! With check values or markers payloads go through the arena too. A check value has to match the
//! bytes that the kernel takes later, perhaps much later, and the memory may be a file's that
//! another client writes meanwhile: then every peer would see damage where there is only a race
//! that file protocols allow.

use std::ops::ControlFlow;

use crate::crc::Crc32c;
use crate::header::{CRC_BYTES, LENGTH_BYTES, ULPDU_BYTES_MAX, pad_bytes};
use crate::memory::Memory;
use crate::work::WorkId;

/// Payloads outside of the arena on their way at once. With scattered memory each may take several
/// entries of a gathered write, which has at most 1024.
const PARTS_MAX: usize = 384;
/// Payloads up to this length are copied into the arena: below it, one more entry in a gathered
/// write costs more than the copy.
const COPY_MAX: usize = 192;
/// Distance of markers in the stream.
const MARKER_INTERVAL: u64 = 512;
const MARKER_BYTES: usize = 4;
/// The longest end of an FPDU, pad and check value, as a whole word.
const END_BYTES: usize = 8;
/// Largest FPDU with everything around it that [`Outbound::fpdu`] may write into the arena.
const STAGED_FPDU_MAX: usize =
    LENGTH_BYTES + ULPDU_BYTES_MAX + END_BYTES + (ULPDU_BYTES_MAX / 500 + 2) * MARKER_BYTES;
/// The same where the payload stays outside.
const OUTLINE_FPDU_MAX: usize = 128 + COPY_MAX;
/// Bytes of an arena: three of the largest FPDUs.
const ARENA_BYTES: usize = 3 * 65536 + 4096;

/// Where a payload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Work(WorkId),
    Exposure(u32),
}

/// A payload outside of the arena, and the bytes of the arena before it.
#[derive(Clone, Copy, Debug)]
struct Part {
    source: Source,
    offset: usize,
    length: usize,
    before: usize,
}

/// Storage for bytes on their way, lent to a stream while it sends.
#[derive(Debug)]
pub struct Staging {
    arena: Box<[u8]>,
    parts: Vec<Part>,
}

impl Staging {
    /// Reserves storage: about 220 KiB, for as many streams as send at the same time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            parts: Vec::with_capacity(PARTS_MAX),
        }
    }
}

impl Default for Staging {
    fn default() -> Self {
        Self::new()
    }
}

/// A payload to send.
#[derive(Debug)]
pub(crate) struct Payload<'a, L> {
    pub(crate) source: Source,
    pub(crate) local: &'a L,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// A piece of the data to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    Memory {
        source: Source,
        offset: usize,
        length: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Outbound {
    staging: Option<Staging>,
    /// Bytes of the arena in use.
    written: usize,
    /// Those behind the last part.
    open: usize,
    /// Parts that were accepted.
    front: usize,
    /// Where the bytes before the next part begin in the arena.
    front_start: usize,
    /// Bytes of the next part, with those before it, that were accepted.
    front_sent: usize,
    /// Stream position behind the last byte staged.
    staged: u64,
    /// Stream position behind the last byte accepted.
    accepted: u64,
    crc: bool,
    /// An FPDU without its markers; present if the peer requires markers.
    plain: Option<Vec<u8>>,
}

impl Outbound {
    pub(crate) fn new() -> Self {
        Self {
            staging: None,
            written: 0,
            open: 0,
            front: 0,
            front_start: 0,
            front_sent: 0,
            staged: 0,
            accepted: 0,
            crc: false,
            plain: None,
        }
    }

    pub(crate) fn start(&mut self, crc: bool, markers: bool) {
        self.crc = crc;
        self.plain = markers.then(|| Vec::with_capacity(STAGED_FPDU_MAX));
    }

    /// Whether storage is lent.
    pub(crate) fn has_staging(&self) -> bool {
        self.staging.is_some()
    }

    pub(crate) fn lend(&mut self, staging: Staging) {
        debug_assert!(self.staging.is_none() && staging.parts.is_empty());
        self.staging = Some(staging);
    }

    /// Takes the storage back when nothing is on its way.
    pub(crate) fn reclaim(&mut self) -> Option<Staging> {
        if self.bytes_left() > 0 {
            return None;
        }
        self.staging.take()
    }

    /// Takes the storage back whatever is in it; the stream has ended.
    pub(crate) fn abandon(&mut self) -> Option<Staging> {
        self.clear();
        self.staging.take()
    }

    fn clear(&mut self) {
        if let Some(staging) = &mut self.staging {
            staging.parts.clear();
        }
        (self.written, self.open) = (0, 0);
        (self.front, self.front_start, self.front_sent) = (0, 0, 0);
    }

    /// Bytes that are staged and not accepted.
    #[inline]
    pub(crate) fn bytes_left(&self) -> u64 {
        self.staged - self.accepted
    }

    /// Stream position behind the last byte staged.
    #[inline]
    pub(crate) fn staged(&self) -> u64 {
        self.staged
    }

    /// Whether one more FPDU can be staged.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        let need = if self.copies_all() {
            STAGED_FPDU_MAX
        } else {
            OUTLINE_FPDU_MAX
        };
        self.staging.as_ref().is_some_and(|staging| {
            staging.parts.len() < PARTS_MAX && ARENA_BYTES - self.written >= need
        })
    }

    #[inline]
    fn copies_all(&self) -> bool {
        self.crc || self.plain.is_some()
    }

    /// Stages one FPDU: `header` is the DDP header and what RDMAP adds to it. The caller has asked
    /// for [`Self::has_room`].
    #[inline(always)] // The lengths of most headers are constants of the caller.
    pub(crate) fn fpdu<M: Memory>(
        &mut self,
        header: &(impl AsRef<[u8]> + ?Sized),
        payload: Option<Payload<'_, M::Local>>,
    ) {
        let header = header.as_ref();
        let length = payload.as_ref().map_or(0, |payload| payload.length);
        let ulpdu = header.len() + length;
        debug_assert!(ulpdu <= ULPDU_BYTES_MAX);
        if self.plain.is_some() {
            return self.fpdu_with_markers::<M>(header, payload);
        }
        let Some(Staging { arena, parts }) = &mut self.staging else {
            return;
        };
        let begin = self.written;
        let room = &mut arena[begin..];
        let (opening, rest) = room.split_at_mut(LENGTH_BYTES);
        opening.copy_from_slice(&[(ulpdu >> 8) as u8, ulpdu as u8]);
        rest[..header.len()].copy_from_slice(header);
        let mut at = LENGTH_BYTES + header.len();
        match payload {
            Some(payload) if self.crc || length <= COPY_MAX => {
                M::fetch(payload.local, payload.offset, &mut room[at..at + length]);
                at += length;
            }
            Some(Payload { source, offset, .. }) => {
                parts.push(Part {
                    source,
                    offset,
                    length,
                    before: self.open + at,
                });
                self.staged += (at + length) as u64;
                self.open = 0;
                self.written += at;
                self.end_fpdu(pad_bytes(ulpdu));
                return;
            }
            None => {}
        }
        let checked = at + pad_bytes(ulpdu);
        room[at..at + END_BYTES].copy_from_slice(&[0; END_BYTES]);
        if self.crc {
            let (body, check) = room.split_at_mut(checked);
            check[..CRC_BYTES].copy_from_slice(&Crc32c::of(body));
        }
        self.advance(checked + CRC_BYTES);
    }

    /// Stages the pad, and a check value of zero, behind a payload that is not in the arena.
    #[inline]
    fn end_fpdu(&mut self, pad: usize) {
        let begin = self.written;
        if let Some(staging) = &mut self.staging {
            staging.arena[begin..begin + END_BYTES].copy_from_slice(&[0; END_BYTES]);
        }
        self.advance(pad + CRC_BYTES);
    }

    /// The next `length` bytes of the arena are staged.
    #[inline]
    fn advance(&mut self, length: usize) {
        self.written += length;
        self.open += length;
        self.staged += length as u64;
    }

    #[cold]
    fn fpdu_with_markers<M: Memory>(
        &mut self,
        header: &[u8],
        payload: Option<Payload<'_, M::Local>>,
    ) {
        let Some(mut plain) = self.plain.take() else {
            return;
        };
        let length = payload.as_ref().map_or(0, |payload| payload.length);
        let ulpdu = header.len() + length;
        plain.clear();
        plain.extend_from_slice(&u16::try_from(ulpdu).unwrap_or(u16::MAX).to_be_bytes());
        plain.extend_from_slice(header);
        let at = plain.len();
        plain.resize(at + length + pad_bytes(ulpdu), 0);
        if let Some(payload) = payload {
            M::fetch(payload.local, payload.offset, &mut plain[at..at + length]);
        }
        self.put_with_markers(&plain);
        self.plain = Some(plain);
    }

    /// Stages an FPDU, complete but for its check value, with markers (RFC 5044 section 4.3).
    fn put_with_markers(&mut self, plain: &[u8]) {
        let begin = self.written;
        if self.staged.is_multiple_of(MARKER_INTERVAL) {
            self.put(&[0; MARKER_BYTES]);
        }
        let start = self.staged;
        let mut rest = plain;
        while !rest.is_empty() {
            self.put_due_marker(start);
            let until_marker = MARKER_INTERVAL - self.staged % MARKER_INTERVAL;
            let count = usize::try_from(until_marker)
                .unwrap_or(usize::MAX)
                .min(rest.len());
            let (now, later) = rest.split_at(count);
            self.put(now);
            rest = later;
        }
        self.put_due_marker(start);
        let crc = if self.crc {
            self.crc_from(begin)
        } else {
            [0; CRC_BYTES]
        };
        self.put(&crc);
    }

    fn put_due_marker(&mut self, start: u64) {
        if self.staged.is_multiple_of(MARKER_INTERVAL) {
            let pointer = u16::try_from(self.staged - start).unwrap_or(0);
            let [high, low] = pointer.to_be_bytes();
            self.put(&[0, 0, high, low]);
        }
    }

    fn crc_from(&self, start: usize) -> [u8; CRC_BYTES] {
        self.staging.as_ref().map_or([0; CRC_BYTES], |staging| {
            Crc32c::of(&staging.arena[start..self.written])
        })
    }

    fn put(&mut self, bytes: &[u8]) {
        let begin = self.written;
        if let Some(staging) = &mut self.staging {
            staging.arena[begin..begin + bytes.len()].copy_from_slice(bytes);
        }
        self.advance(bytes.len());
    }

    /// Passes the data to send to `take`, from the first byte that is not accepted yet, until it
    /// breaks.
    #[inline]
    pub(crate) fn pieces<'a>(&'a self, mut take: impl FnMut(Piece<'a>) -> ControlFlow<()>) {
        let Some(Staging { arena, parts }) = &self.staging else {
            return;
        };
        let (mut at, mut skip) = (self.front_start, self.front_sent);
        for part in &parts[self.front..] {
            let end = at + part.before;
            let bytes = &arena[(at + skip).min(end)..end];
            skip = skip.saturating_sub(part.before);
            at = end;
            if !bytes.is_empty() && take(Piece::Bytes(bytes)).is_break() {
                return;
            }
            let memory = Piece::Memory {
                source: part.source,
                offset: part.offset + skip,
                length: part.length - skip,
            };
            skip = 0;
            if take(memory).is_break() {
                return;
            }
        }
        let bytes = &arena[at + skip..self.written];
        if !bytes.is_empty() {
            let _ = take(Piece::Bytes(bytes));
        }
    }

    /// The first `count` bytes to be sent were accepted. Returns the stream position behind them.
    pub(crate) fn accept(&mut self, count: usize) -> u64 {
        debug_assert!(count as u64 <= self.bytes_left());
        self.accepted += count as u64;
        if self.bytes_left() == 0 {
            self.clear();
        } else if let Some(staging) = &self.staging {
            self.front_sent += count;
            while let Some(part) = staging.parts.get(self.front)
                && part.before + part.length <= self.front_sent
            {
                self.front_sent -= part.before + part.length;
                self.front_start += part.before;
                self.front += 1;
            }
        }
        self.accepted
    }
}
