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

use std::collections::VecDeque;

use crate::crc::Crc32c;
use crate::header::{CRC_BYTES, LENGTH_BYTES, ULPDU_BYTES_MAX, pad_bytes};
use crate::memory::Memory;
use crate::work::WorkId;

/// Parts in flight at once. With scattered memory a part may take several entries of a gathered
/// write, which has at most 1024.
const PARTS_MAX: usize = 768;
/// Payloads up to this length are copied into the arena: below it, one more entry in a gathered
/// write costs more than the copy.
const COPY_MAX: usize = 192;
/// Distance of markers in the stream.
const MARKER_INTERVAL: u64 = 512;
const MARKER_BYTES: usize = 4;
/// Largest FPDU with everything around it that [`Outbound::fpdu`] may write into the arena.
const STAGED_FPDU_MAX: usize =
    LENGTH_BYTES + ULPDU_BYTES_MAX + 3 + CRC_BYTES + (ULPDU_BYTES_MAX / 500 + 2) * MARKER_BYTES;
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

/// An item that is complete when its last byte is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    Work(WorkId),
    Response,
    Indication,
    Terminate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Bytes {
        start: usize,
        length: usize,
    },
    Memory {
        source: Source,
        offset: usize,
        length: usize,
    },
}

impl Part {
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Bytes { length, .. } | Self::Memory { length, .. } => *length,
        }
    }
}

#[derive(Debug)]
struct Mark {
    position: u64,
    finished: Finished,
}

/// Storage for bytes on their way, lent to a stream while it sends.
#[derive(Debug)]
pub struct Staging {
    arena: Box<[u8]>,
    parts: VecDeque<Part>,
    marks: VecDeque<Mark>,
}

impl Staging {
    /// Reserves storage: about 240 KiB, for as many streams as send at the same time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            parts: VecDeque::with_capacity(PARTS_MAX),
            marks: VecDeque::with_capacity(PARTS_MAX),
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

#[derive(Debug)]
pub(crate) struct Outbound {
    staging: Option<Staging>,
    /// Bytes of the arena in use.
    written: usize,
    /// Bytes of the front part that were accepted.
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
        let mut staging = self.staging.take()?;
        staging.parts.clear();
        staging.marks.clear();
        Some(staging)
    }

    /// Bytes that are staged and not accepted.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.staged - self.accepted
    }

    /// Whether one more FPDU can be staged.
    pub(crate) fn has_room(&self) -> bool {
        let need = if self.copies_all() {
            STAGED_FPDU_MAX
        } else {
            OUTLINE_FPDU_MAX
        };
        self.staging.as_ref().is_some_and(|staging| {
            staging.parts.len() + 3 <= PARTS_MAX
                && staging.marks.len() < PARTS_MAX
                && ARENA_BYTES - self.written >= need
        })
    }

    fn copies_all(&self) -> bool {
        self.crc || self.plain.is_some()
    }

    /// Stages one FPDU: `header` is the DDP header and what RDMAP adds to it. `finished` is
    /// reported when the last byte has been accepted. The caller has asked for
    /// [`Self::has_room`].
    pub(crate) fn fpdu<M: Memory>(
        &mut self,
        header: &[u8],
        payload: Option<Payload<'_, M::Local>>,
        finished: Option<Finished>,
    ) {
        let length = payload.as_ref().map_or(0, |payload| payload.length);
        let ulpdu = header.len() + length;
        let pad = pad_bytes(ulpdu);
        debug_assert!(ulpdu <= ULPDU_BYTES_MAX);
        let [high, low] = u16::try_from(ulpdu).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(mut plain) = self.plain.take() {
            plain.clear();
            plain.extend_from_slice(&[high, low]);
            plain.extend_from_slice(header);
            let at = plain.len();
            plain.resize(at + length + pad, 0);
            if let Some(payload) = payload {
                M::fetch(payload.local, payload.offset, &mut plain[at..at + length]);
            }
            self.put_with_markers(&plain);
            self.plain = Some(plain);
        } else {
            let crc = self.crc;
            let begin = LENGTH_BYTES + header.len();
            let put_head = |room: &mut [u8]| {
                room[..LENGTH_BYTES].copy_from_slice(&[high, low]);
                room[LENGTH_BYTES..].copy_from_slice(header);
            };
            match payload {
                Some(Payload {
                    source,
                    offset,
                    length,
                    ..
                }) if !crc && length > COPY_MAX => {
                    self.put_with(begin, put_head);
                    self.part(Part::Memory {
                        source,
                        offset,
                        length,
                    });
                    self.put_with(pad + CRC_BYTES, |room| room.fill(0));
                }
                payload => self.put_with(begin + length + pad + CRC_BYTES, |room| {
                    let (head, rest) = room.split_at_mut(begin);
                    put_head(head);
                    let (data, end) = rest.split_at_mut(length);
                    if let Some(payload) = payload {
                        M::fetch(payload.local, payload.offset, data);
                    }
                    end.fill(0);
                    if crc {
                        let (checked, check) = room.split_at_mut(begin + length + pad);
                        check.copy_from_slice(&Crc32c::of(checked));
                    }
                }),
            }
        }
        if let (Some(finished), Some(staging)) = (finished, &mut self.staging) {
            staging.marks.push_back(Mark {
                position: self.staged,
                finished,
            });
        }
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
        self.put_with(bytes.len(), |room| room.copy_from_slice(bytes));
    }

    fn put_with(&mut self, length: usize, write: impl FnOnce(&mut [u8])) {
        if length == 0 {
            return;
        }
        let start = self.written;
        if let Some(staging) = &mut self.staging {
            write(&mut staging.arena[start..start + length]);
        }
        self.written += length;
        self.part(Part::Bytes { start, length });
    }

    fn part(&mut self, part: Part) {
        let Some(staging) = &mut self.staging else {
            return;
        };
        self.staged += part.length() as u64;
        if let Part::Bytes { start, length } = part
            && let Some(Part::Bytes {
                start: before,
                length: extended,
            }) = staging.parts.back_mut()
            && *before + *extended == start
        {
            *extended += length;
            return;
        }
        staging.parts.push_back(part);
    }

    /// The data to send, from the first byte that is not accepted yet.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        let mut skip = self.front_sent;
        self.staging
            .iter()
            .flat_map(|staging| &staging.parts)
            .map(move |&part| {
                let skipped = std::mem::take(&mut skip);
                match part {
                    Part::Bytes { start, length } => Part::Bytes {
                        start: start + skipped,
                        length: length - skipped,
                    },
                    Part::Memory {
                        source,
                        offset,
                        length,
                    } => Part::Memory {
                        source,
                        offset: offset + skipped,
                        length: length - skipped,
                    },
                }
            })
    }

    /// Bytes of the arena.
    pub(crate) fn bytes(&self, start: usize, length: usize) -> &[u8] {
        self.staging
            .as_ref()
            .map_or(&[], |staging| &staging.arena[start..start + length])
    }

    /// The first `count` bytes to be sent were accepted.
    pub(crate) fn accept(&mut self, count: usize) {
        let Some(staging) = &mut self.staging else {
            return;
        };
        debug_assert!(count as u64 <= self.staged - self.accepted);
        self.accepted += count as u64;
        let mut left = self.front_sent + count;
        while let Some(part) = staging.parts.front()
            && part.length() <= left
        {
            left -= part.length();
            staging.parts.pop_front();
        }
        self.front_sent = left;
        if staging.parts.is_empty() {
            self.written = 0;
        }
    }

    /// What has been accepted to its last byte since the last call.
    pub(crate) fn finished(&mut self) -> Option<Finished> {
        let marks = &mut self.staging.as_mut()?.marks;
        if marks.front()?.position > self.accepted {
            return None;
        }
        marks.pop_front().map(|mark| mark.finished)
    }
}
