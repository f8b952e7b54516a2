//! Ranges of bytes of a file and the locks on them (RFC 8881 section 9.3).

use std::sync::Arc;

use super::StateError;
use super::clients::ClientId;

/// A range of bytes of a file, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// The range of an offset and a length. A length of all ones means all bytes from the offset
    /// on, for any size of the file.
    ///
    /// # Errors
    /// [`StateError::Inval`] for a length of 0, and for ranges past 2^64-1.
    pub fn new(offset: u64, length: u64) -> Result<Self, StateError> {
        let last = match length {
            0 => return Err(StateError::Inval),
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length).ok_or(StateError::Inval)? - 1,
        };
        Ok(Self {
            first: offset,
            last,
        })
    }

    /// The first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.first
    }

    /// The length; all ones if there is no end.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self.last {
            u64::MAX => u64::MAX,
            last => last - self.first + 1,
        }
    }

    /// Whether two ranges have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// This range with the bytes next to it on both sides.
    fn with_neighbours(&self) -> Self {
        Self {
            first: self.first.saturating_sub(1),
            last: self.last.saturating_add(1),
        }
    }
}

/// Whether a lock excludes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Excludes writers.
    Read,
    /// Excludes readers and writers.
    Write,
}

impl LockMode {
    /// Whether locks of two owners exclude each other.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Write || other == Self::Write
    }
}

/// A lock that conflicts with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// Which bytes it has.
    pub range: ByteRange,
    /// Its mode.
    pub mode: LockMode,
    /// Its client.
    pub client: ClientId,
    /// Its owner within the client.
    pub owner: Arc<[u8]>,
}

/// A locked range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockedRange {
    pub range: ByteRange,
    pub mode: LockMode,
    pub owner: u32,
    /// The lock state that it was locked with.
    pub state: u32,
}

/// The locked ranges of a file, by first byte. Those of one owner are disjoint.
#[derive(Debug, Default)]
pub(super) struct LockedRanges {
    ranges: Vec<LockedRange>,
    /// For each range the highest byte of it and all before it: where a search may begin.
    reach: Vec<u64>,
}

impl LockedRanges {
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether a lock state has ranges.
    pub fn has_state(&self, state: u32) -> bool {
        self.ranges.iter().any(|one| one.state == state)
    }

    /// What excludes a lock of an owner, in the order of bytes.
    pub fn conflicts(
        &self,
        owner: Option<u32>,
        range: ByteRange,
        mode: LockMode,
    ) -> impl Iterator<Item = &LockedRange> {
        let near = &self.ranges[self.near(&range)];
        near.iter().filter(move |one| {
            Some(one.owner) != owner && one.mode.excludes(mode) && one.range.overlaps(&range)
        })
    }

    /// Locks a range. Locks of the owner in it are replaced, and equal neighbours are merged.
    pub fn lock(&mut self, new: LockedRange) {
        self.unlock(new.owner, new.range);
        let mut range = new.range;
        let from = self.near(&range.with_neighbours());
        let start = from.start;
        self.take(from, |one| {
            let joins = (one.owner, one.state, one.mode) == (new.owner, new.state, new.mode)
                && one.range.overlaps(&new.range.with_neighbours());
            if joins {
                range.first = range.first.min(one.range.first);
                range.last = range.last.max(one.range.last);
            }
            joins
        });
        self.insert(LockedRange { range, ..new });
        self.measure(start);
    }

    /// Frees what an owner has in a range.
    pub fn unlock(&mut self, owner: u32, range: ByteRange) {
        let near = self.near(&range);
        let start = near.start;
        let mut pieces = [None; 2];
        let taken = self.take(near, |one| {
            let is_hit = one.owner == owner && one.range.overlaps(&range);
            if is_hit && one.range.first < range.first {
                let last = range.first - 1;
                pieces[0] = Some(LockedRange {
                    range: ByteRange { last, ..one.range },
                    ..*one
                });
            }
            if is_hit && one.range.last > range.last {
                let first = range.last + 1;
                pieces[1] = Some(LockedRange {
                    range: ByteRange { first, ..one.range },
                    ..*one
                });
            }
            is_hit
        });
        for piece in pieces.into_iter().flatten() {
            self.insert(piece);
        }
        if taken {
            self.measure(start);
        }
    }

    /// Whether freeing a range would leave more ranges than there are.
    pub fn would_split(&self, owner: u32, range: &ByteRange) -> bool {
        self.ranges[self.near(range)].iter().any(|one| {
            one.owner == owner && one.range.first < range.first && one.range.last > range.last
        })
    }

    /// Frees all ranges of a lock state.
    pub fn unlock_state(&mut self, state: u32) {
        self.take(0..self.ranges.len(), |one| one.state == state);
        self.measure(0);
    }

    /// Where ranges that overlap another one are.
    fn near(&self, range: &ByteRange) -> std::ops::Range<usize> {
        let end = self
            .ranges
            .partition_point(|one| one.range.first <= range.last);
        let start = self.reach.partition_point(|&reach| reach < range.first);
        start.min(end)..end
    }

    /// Takes ranges out of a part; returns whether there were any. To be followed by
    /// [`measure`](Self::measure).
    fn take(
        &mut self,
        part: std::ops::Range<usize>,
        mut is_taken: impl FnMut(&LockedRange) -> bool,
    ) -> bool {
        let mut kept = part.start;
        for index in part.clone() {
            let one = self.ranges[index];
            if !is_taken(&one) {
                self.ranges[kept] = one;
                kept += 1;
            }
        }
        self.ranges.drain(kept..part.end);
        kept < part.end
    }

    /// Adds a range in its order. To be followed by [`measure`](Self::measure).
    fn insert(&mut self, new: LockedRange) {
        let at = self
            .ranges
            .partition_point(|one| one.range.first <= new.range.first);
        self.ranges.insert(at, new);
    }

    /// Brings what search needs up to date, from an index on before which nothing has changed.
    fn measure(&mut self, from: usize) {
        self.reach.truncate(from.min(self.ranges.len()));
        let mut highest = self.reach.last().copied().unwrap_or(0);
        for one in &self.ranges[self.reach.len()..] {
            highest = highest.max(one.range.last);
            self.reach.push(highest);
        }
    }

    /// All of them, in the order of bytes.
    pub fn iter(&self) -> impl Iterator<Item = &LockedRange> {
        self.ranges.iter()
    }
}
