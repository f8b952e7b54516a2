//! The possible content of a file: for every byte the writes that may have produced it.
//!
//! Writes to one byte never overlap in time, as no write begins where another one is in progress.
//! So each byte has an ordered list of writes. The first one is durable. The byte may be of that
//! write or of any later one.

use millrace_wire::nfs3::{Stability, WriteVerifier};

use crate::load::Pattern;

/// Names a write. Its bytes are those of [`bytes`]; zero stands for bytes never written.
pub type Stamp = u32;

/// The bytes of a write from `offset` on.
pub fn bytes(stamp: Stamp, offset: u64, out: &mut [u8]) {
    if stamp == 0 {
        out.fill(0);
    } else {
        Pattern::new(u64::from(stamp)).fill(offset, out);
    }
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteProgress {
    /// Sent, and not answered.
    InFlight,
    /// Sent, and never answered, or refused for now: done or not.
    Unanswered,
    /// Answered as unstable, with this verifier, as the event of this number.
    Unstable(WriteVerifier, u64),
    /// Durable.
    Stable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    stamp: Stamp,
    state: WriteProgress,
}

const NEVER: Version = Version {
    stamp: 0,
    state: WriteProgress::Stable,
};

/// Bytes with the same history, up to the next piece's start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    versions: Vec<Version>,
}

/// Which answered writes have to be there.
#[derive(Clone, Copy, Debug)]
pub enum Kept {
    /// All: the server has been running.
    All,
    /// The durable ones, and those that were answered with this verifier.
    Verifier(WriteVerifier),
    /// The durable ones: the server may have ended since, and unstable bytes may not be written
    /// again yet.
    Stable,
}

impl Kept {
    fn holds(self, state: WriteProgress) -> bool {
        match (self, state) {
            (_, WriteProgress::Stable) | (Self::All, WriteProgress::Unstable(..)) => true,
            (Self::Verifier(now), WriteProgress::Unstable(then, _)) => now == then,
            (Self::Stable, WriteProgress::Unstable(..))
            | (_, WriteProgress::InFlight | WriteProgress::Unanswered) => false,
        }
    }
}

/// A byte that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where it is.
    pub offset: u64,
    /// Writes that may have left it, the oldest first.
    pub expected: Vec<Stamp>,
    /// The write of the bytes that were found, if it is one of this run.
    pub found: Option<Stamp>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |stamp: Stamp| match stamp {
            0 => "zeros".to_owned(),
            _ => format!("write {stamp}"),
        };
        let expected: Vec<String> = self.expected.iter().map(|&stamp| name(stamp)).collect();
        let found = self.found.map_or("bytes of nobody".to_owned(), name);
        write!(
            out,
            "byte {}: expected {}, found {found}",
            self.offset,
            expected.join(" or ")
        )
    }
}

/// The possible content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pieces: Vec<Piece>,
    /// The size that is durable.
    floor: u64,
    /// The size by what was answered.
    told: u64,
    /// The size if all that was sent is done.
    ceiling: u64,
}

impl Default for Content {
    fn default() -> Self {
        Self {
            pieces: vec![Piece {
                start: 0,
                versions: vec![NEVER],
            }],
            floor: 0,
            told: 0,
            ceiling: 0,
        }
    }
}

impl Content {
    /// The size by what was answered.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.told
    }

    /// Whether a write to any of these bytes is underway.
    #[must_use]
    pub fn is_busy(&self, start: u64, length: u64) -> bool {
        self.pieces_of(start, start + length).any(|(_, _, piece)| {
            let last = piece.versions.last();
            last.is_some_and(|version| version.state == WriteProgress::InFlight)
        })
    }

    /// A write is sent.
    pub fn begin(&mut self, start: u64, length: u64, stamp: Stamp) {
        let range = self.cut(start, start + length);
        for piece in &mut self.pieces[range] {
            piece.versions.push(Version {
                stamp,
                state: WriteProgress::InFlight,
            });
        }
        self.ceiling = self.ceiling.max(start + length);
    }

    /// A write was answered, as the event `number`.
    pub fn end(
        &mut self,
        (start, length): (u64, u64),
        stamp: Stamp,
        stability: Stability,
        verifier: WriteVerifier,
        number: u64,
    ) {
        let state = match stability {
            Stability::Unstable => WriteProgress::Unstable(verifier, number),
            Stability::DataSync | Stability::FileSync => WriteProgress::Stable,
        };
        let range = self.cut(start, start + length);
        for piece in &mut self.pieces[range] {
            let found = piece.versions.iter();
            let Some(at) = found.clone().position(|version| version.stamp == stamp) else {
                continue;
            };
            piece.versions[at].state = state;
            if state == WriteProgress::Stable {
                piece.versions.drain(..at);
            }
        }
        self.told = self.told.max(start + length);
        if state == WriteProgress::Stable {
            self.floor = self.floor.max(start + length);
        }
        self.merge();
    }

    /// A write will have no answer.
    pub fn abandon(&mut self, (start, length): (u64, u64), stamp: Stamp) {
        let range = self.cut(start, start + length);
        for piece in &mut self.pieces[range] {
            for version in &mut piece.versions {
                if version.stamp == stamp {
                    version.state = WriteProgress::Unanswered;
                }
            }
        }
    }

    /// A COMMIT of these bytes, sent after the event `number`, was answered.
    pub fn commit(&mut self, start: u64, end: u64, verifier: WriteVerifier, number: u64) {
        let range = self.cut(start, end);
        for index in range {
            let end = self.pieces.get(index + 1).map(|next| next.start);
            let piece = &mut self.pieces[index];
            let covered = |version: &Version| match version.state {
                WriteProgress::Unstable(then, at) => then == verifier && at <= number,
                _ => false,
            };
            if let Some(at) = piece.versions.iter().rposition(covered) {
                piece.versions[at].state = WriteProgress::Stable;
                piece.versions.drain(..at);
                self.floor = self.floor.max(end.unwrap_or(0));
            }
        }
        self.merge();
    }

    /// The size was set, durably.
    pub fn resize(&mut self, size: u64) {
        let range = self.cut(size, u64::MAX);
        for piece in &mut self.pieces[range] {
            piece.versions = vec![NEVER];
        }
        (self.floor, self.told, self.ceiling) = (size, size, size);
        self.merge();
    }

    /// Sizes that may be found.
    #[must_use]
    pub fn sizes(&self, kept: Kept) -> std::ops::RangeInclusive<u64> {
        let mut floor = self.floor;
        let mut end = u64::MAX;
        for piece in self.pieces.iter().rev() {
            let held = |version: &&Version| version.stamp != 0 && kept.holds(version.state);
            if end != u64::MAX && piece.versions.iter().rev().find(held).is_some() {
                floor = floor.max(end);
                break;
            }
            end = piece.start;
        }
        floor..=self.ceiling.max(floor)
    }

    /// Compares bytes that were read from `offset` on with the possible content. `newest` is the
    /// newest write of the run, to identify the bytes in case of a mismatch.
    ///
    /// # Errors
    /// The first byte that must not be.
    pub fn check(
        &self,
        kept: Kept,
        offset: u64,
        found: &[u8],
        newest: Stamp,
    ) -> Result<Checked, Wrong> {
        let mut checked = Checked::default();
        let mut expected = Vec::new();
        for (start, end, piece) in self.pieces_of(offset, offset + found.len() as u64) {
            let here = &found[(start - offset) as usize..(end - offset) as usize];
            let first = piece.first(kept);
            let possible = &piece.versions[first..];
            let mut matches = vec![false; here.len()];
            for (number, version) in possible.iter().enumerate() {
                expected.resize(here.len(), 0);
                bytes(version.stamp, start, &mut expected);
                let mut whole = true;
                for (at, (a, b)) in here.iter().zip(&expected).enumerate() {
                    matches[at] |= a == b;
                    whole &= a == b;
                }
                let last = number + 1 == possible.len();
                if whole && last && possible.len() > 1 {
                    checked.newest += here.len() as u64;
                }
                if whole {
                    break;
                }
            }
            if let Some(at) = matches.iter().position(|matches| !matches) {
                return Err(Wrong {
                    offset: start + at as u64,
                    expected: possible.iter().map(|version| version.stamp).collect(),
                    found: identify(start + at as u64, &here[at..], newest),
                });
            }
            checked.bytes += here.len() as u64;
            if possible.len() > 1 {
                checked.open += here.len() as u64;
            }
        }
        Ok(checked)
    }

    /// Ranges that are not known to be as requested: writes without an answer, and unstable ones
    /// with another verifier than this. They have to be written again.
    #[must_use]
    pub fn unsettled(&self, verifier: WriteVerifier) -> Vec<(u64, u64)> {
        let mut list: Vec<(u64, u64)> = Vec::new();
        for (start, end, piece) in self.pieces_of(0, u64::MAX) {
            let settled = piece.versions.iter().all(|version| match version.state {
                WriteProgress::InFlight | WriteProgress::Unanswered => false,
                WriteProgress::Unstable(then, _) => then == verifier,
                WriteProgress::Stable => true,
            });
            match list.last_mut() {
                _ if settled => {}
                Some(last) if last.1 == start => last.1 = end,
                _ => list.push((start, end)),
            }
        }
        list
    }

    /// After all that was unsettled has been written again, the file has this size for sure.
    pub fn settle(&mut self, size: u64) {
        (self.told, self.ceiling) = (size, size);
    }

    /// A byte that must be there, whatever happens.
    #[must_use]
    pub fn durable(&self) -> Option<u64> {
        let mut pieces = self.pieces.iter();
        let sure = |piece: &&Piece| piece.versions.len() == 1 && piece.versions[0].stamp != 0;
        pieces.find(sure).map(|piece| piece.start)
    }

    fn pieces_of(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &Piece)> {
        let first = self.pieces.partition_point(|piece| piece.start <= start) - 1;
        let ends = self.pieces[first..].iter().skip(1);
        let ends = ends.map(|next| next.start).chain([u64::MAX]);
        let pieces = self.pieces[first..].iter().zip(ends);
        pieces
            .take_while(move |(piece, _)| piece.start < end)
            .map(move |(piece, until)| (piece.start.max(start), until.min(end), piece))
            .filter(|(start, end, _)| start < end)
    }

    /// Cuts pieces so that some of them are exactly this range.
    fn cut(&mut self, start: u64, end: u64) -> std::ops::Range<usize> {
        if start >= end {
            return 0..0;
        }
        let first = self.cut_at(start);
        let last = match end {
            u64::MAX => self.pieces.len(),
            _ => self.cut_at(end),
        };
        first..last
    }

    fn cut_at(&mut self, at: u64) -> usize {
        let index = self.pieces.partition_point(|piece| piece.start < at);
        if self.pieces.get(index).is_none_or(|piece| piece.start != at) {
            let versions = self.pieces[index - 1].versions.clone();
            self.pieces.insert(
                index,
                Piece {
                    start: at,
                    versions,
                },
            );
        }
        index
    }

    fn merge(&mut self) {
        self.pieces
            .dedup_by(|next, piece| next.versions == piece.versions);
    }
}

impl Piece {
    /// The oldest write that may be found.
    fn first(&self, kept: Kept) -> usize {
        let held = |version: &Version| kept.holds(version.state);
        self.versions.iter().rposition(held).unwrap_or(0)
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// Bytes compared.
    pub bytes: u64,
    /// Those for which there was more than one possibility.
    pub open: u64,
    /// Those of them that hold the newest possibility.
    pub newest: u64,
}

/// The write that these bytes are of.
fn identify(offset: u64, found: &[u8], newest: Stamp) -> Option<Stamp> {
    let found = &found[..found.len().min(16)];
    let mut expected = [0; 16];
    let expected = &mut expected[..found.len()];
    (0..=newest).find(|&stamp| {
        bytes(stamp, offset, expected);
        expected == found
    })
}

#[cfg(test)]
mod tests;
