//! Ranges of bytes of a file and the locks on them (RFC 8881 section 9.3).

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::StateError;
use super::clients::ClientId;
use super::table::AssignedMap;

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

/// A part of the union of all locks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnionPart {
    /// Which bytes.
    pub range: ByteRange,
    /// The strongest lock on them, if there is one.
    pub mode: Option<LockMode>,
}

impl UnionPart {
    /// What is left of it without another range.
    pub(super) fn without(&self, other: &ByteRange) -> impl Iterator<Item = Self> {
        let (range, mode) = (self.range, self.mode);
        let before = other.first.checked_sub(1).map(|last| ByteRange {
            first: range.first,
            last: range.last.min(last),
        });
        let behind = other.last.checked_add(1).map(|first| ByteRange {
            first: range.first.max(first),
            last: range.last,
        });
        // Of a range that does not overlap the other one, one of them is all.
        let left = [before, behind].into_iter().flatten();
        let left = left.filter(|left| left.first <= left.last);
        left.map(move |range| Self { range, mode })
    }
}

/// The locked ranges of a file, by first byte. Those of one owner are disjoint.
#[derive(Debug, Default)]
pub(super) struct LockedRanges {
    ranges: Vec<LockedRange>,
    /// For each range the highest byte of it and all before it: where a search may begin.
    reach: Vec<u64>,
    /// How many ranges each owner has, so that nobody looks for those of others.
    owners: AssignedMap<u32, usize>,
    /// How many ranges each lock state has, likewise.
    states: AssignedMap<u32, usize>,
    /// How many exclude readers.
    writes: usize,
}

impl LockedRanges {
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether a lock state has ranges.
    pub fn has_state(&self, state: u32) -> bool {
        self.states.contains_key(&state)
    }

    /// What excludes a lock of an owner, in the order of bytes.
    pub fn conflicts(
        &self,
        owner: Option<u32>,
        range: ByteRange,
        mode: LockMode,
    ) -> impl Iterator<Item = &LockedRange> {
        let is_free = mode == LockMode::Read && self.writes == 0;
        let near = match is_free {
            true => 0..0,
            false => self.near(&range),
        };
        self.ranges[near].iter().filter(move |one| {
            Some(one.owner) != owner && one.mode.excludes(mode) && one.range.overlaps(&range)
        })
    }

    /// Locks a range. Locks of the owner in it are replaced, and equal neighbours are merged.
    pub fn lock(&mut self, new: LockedRange) {
        self.unlock(new.owner, new.range);
        let mut range = new.range;
        self.take(new.owner, range.with_neighbours(), |one| {
            let joins = (one.owner, one.state, one.mode) == (new.owner, new.state, new.mode)
                && one.range.overlaps(&new.range.with_neighbours());
            if joins {
                range.first = range.first.min(one.range.first);
                range.last = range.last.max(one.range.last);
            }
            joins
        });
        self.insert(LockedRange { range, ..new });
    }

    /// Frees what an owner has in a range.
    pub fn unlock(&mut self, owner: u32, range: ByteRange) {
        let mut pieces = [None; 2];
        self.take(owner, range, |one| {
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
    }

    /// Whether freeing a range would leave more ranges than there are.
    pub fn would_split(&self, owner: u32, range: &ByteRange) -> bool {
        self.ranges[self.near(range)].iter().any(|one| {
            one.owner == owner && one.range.first < range.first && one.range.last > range.last
        })
    }

    /// Frees all ranges of some lock states.
    pub fn unlock_states(&mut self, states: &BTreeSet<u32>) {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.retain(|one| {
            let is_freed = states.contains(&one.state);
            if is_freed {
                self.uncount(one);
            }
            !is_freed
        });
        self.ranges = ranges;
        self.find_reach(0);
    }

    /// Where ranges that overlap another one are.
    fn near(&self, range: &ByteRange) -> std::ops::Range<usize> {
        let end = self
            .ranges
            .partition_point(|one| one.range.first <= range.last);
        let start = self.reach.partition_point(|&reach| reach < range.first);
        start.min(end)..end
    }

    /// Takes ranges of an owner out that are near another one.
    fn take(
        &mut self,
        owner: u32,
        range: ByteRange,
        mut is_taken: impl FnMut(&LockedRange) -> bool,
    ) {
        if !self.owners.contains_key(&owner) {
            return;
        }
        let near = self.near(&range);
        let first = self.ranges[near.clone()]
            .iter()
            .position(|one| one.owner == owner);
        let Some(first) = first.map(|first| near.start + first) else {
            return;
        };
        let mut kept = first;
        for index in first..near.end {
            let one = self.ranges[index];
            if one.owner == owner && is_taken(&one) {
                self.uncount(&one);
            } else {
                self.ranges[kept] = one;
                kept += 1;
            }
        }
        if kept == near.end {
            return;
        }
        self.ranges.drain(kept..near.end);
        self.find_reach(first);
    }

    /// Does not count a range any more that is taken out.
    fn uncount(&mut self, one: &LockedRange) {
        self.writes -= usize::from(one.mode == LockMode::Write);
        for (counts, key) in [(&mut self.owners, one.owner), (&mut self.states, one.state)] {
            if let Entry::Occupied(mut count) = counts.entry(key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// Finds the reach of all ranges from an index on. Nothing before it has changed.
    fn find_reach(&mut self, first: usize) {
        self.reach.truncate(first);
        let mut highest = self.reach.last().copied().unwrap_or(0);
        for one in &self.ranges[first..] {
            highest = highest.max(one.range.last);
            self.reach.push(highest);
        }
    }

    /// Adds a range in its order.
    fn insert(&mut self, new: LockedRange) {
        let (first, last) = (new.range.first, new.range.last);
        let at = self.ranges.partition_point(|one| one.range.first <= first);
        let before = at.checked_sub(1).map_or(0, |before| self.reach[before]);
        self.ranges.insert(at, new);
        self.reach.insert(at, before.max(last));
        for reach in &mut self.reach[at + 1..] {
            if *reach >= last {
                break;
            }
            *reach = last;
        }
        *self.owners.entry(new.owner).or_default() += 1;
        *self.states.entry(new.state).or_default() += 1;
        self.writes += usize::from(new.mode == LockMode::Write);
    }

    /// The union of all of them in a range: parts that make up the range, in the order of bytes.
    pub fn union(&self, within: ByteRange) -> Vec<UnionPart> {
        let near = self.ranges[self.near(&within)].iter();
        // Where locks begin and end, and how many of them.
        let mut borders: Vec<(u64, isize, isize)> = Vec::new();
        for LockedRange { range, mode, .. } in near.filter(|one| one.range.overlaps(&within)) {
            let writes = isize::from(*mode == LockMode::Write);
            borders.push((range.first.max(within.first), 1, writes));
            if range.last < within.last {
                borders.push((range.last + 1, -1, -writes));
            }
        }
        borders.sort_unstable();
        let mut parts: Vec<UnionPart> = Vec::new();
        let (mut from, mut locks, mut writes) = (within.first, 0, 0);
        let mut end_part = |from: u64, last: u64, locks: isize, writes: isize| {
            let mode = match (locks, writes) {
                (0, _) => None,
                (_, 0) => Some(LockMode::Read),
                _ => Some(LockMode::Write),
            };
            match parts.last_mut() {
                Some(part) if part.mode == mode => part.range.last = last,
                _ => parts.push(UnionPart {
                    range: ByteRange { first: from, last },
                    mode,
                }),
            }
        };
        for (at, more, more_writes) in borders {
            if at > from {
                end_part(from, at - 1, locks, writes);
                from = at;
            }
            (locks, writes) = (locks + more, writes + more_writes);
        }
        end_part(from, within.last, locks, writes);
        parts
    }

    /// The bytes between the first and the last range of some lock states.
    pub fn hull(&self, states: &BTreeSet<u32>) -> Option<ByteRange> {
        let own = self.ranges.iter();
        let own = own.filter(|one| states.contains(&one.state));
        let own = own.map(|one| (one.range.first, one.range.last));
        let hull = own.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        hull.map(|(first, last)| ByteRange { first, last })
    }

    /// All of them, in the order of bytes.
    pub fn iter(&self) -> impl Iterator<Item = &LockedRange> {
        self.ranges.iter()
    }
}
