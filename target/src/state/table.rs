//! Values by a small number that is used again, and by keys that the server has assigned.
//!
//! There may be a million of them. Large tables grow by segments, so that nobody waits until all values
//! have moved to a larger place.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

/// Values of a segment of a [`SegmentedVec`].
const SEGMENT: usize = 1 << 10;
/// Segments of a [`SegmentedMap`].
const SEGMENTS: usize = 1 << 8;

/// Values by numbers and handles that the server has assigned. Clients cannot choose keys that
/// collide, so a fast hash does. What they can choose, such as names of owners, is in maps of the
/// standard library.
pub(super) type AssignedMap<K, V> = HashMap<K, V, RandomState>;

/// Such a map for many values.
#[derive(Debug)]
pub(super) struct SegmentedMap<K, V> {
    segments: Box<[AssignedMap<K, V>]>,
    hasher: RandomState,
    len: usize,
}

impl<K, V> Default for SegmentedMap<K, V> {
    fn default() -> Self {
        Self {
            segments: (0..SEGMENTS).map(|_| AssignedMap::default()).collect(),
            hasher: RandomState::default(),
            len: 0,
        }
    }
}

impl<K: Hash + Eq, V> SegmentedMap<K, V> {
    #[allow(clippy::cast_possible_truncation)] // The remainder is small.
    fn segment(&self, key: &K) -> usize {
        (self.hasher.hash_one(key) % SEGMENTS as u64) as usize
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.segments[self.segment(key)].get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        let segment = self.segment(&key);
        let before = self.segments[segment].insert(key, value);
        self.len += usize::from(before.is_none());
    }

    pub fn remove(&mut self, key: &K) {
        let segment = self.segment(key);
        let removed = self.segments[segment].remove(key);
        self.len -= usize::from(removed.is_some());
    }
}

/// A list of many values.
#[derive(Debug)]
pub(super) struct SegmentedVec<T> {
    /// All but the last one are full.
    segments: Vec<Vec<T>>,
}

impl<T> Default for SegmentedVec<T> {
    fn default() -> Self {
        Self {
            segments: Vec::new(),
        }
    }
}

impl<T> SegmentedVec<T> {
    pub fn len(&self) -> usize {
        let last = self.segments.last().map_or(0, Vec::len);
        self.segments.len().saturating_sub(1) * SEGMENT + last
    }

    pub fn push(&mut self, value: T) {
        match self.segments.last_mut() {
            Some(last) if last.len() < SEGMENT => last.push(value),
            _ => self.segments.push(vec![value]),
        }
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        self.segments.get(index / SEGMENT)?.get(index % SEGMENT)
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let segment = self.segments.get_mut(index / SEGMENT)?;
        segment.get_mut(index % SEGMENT)
    }

    /// Values from an index on.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = &T> {
        let segments = self.segments.iter().skip(first / SEGMENT);
        segments.flatten().skip(first % SEGMENT)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.segments.iter_mut().flatten()
    }
}

/// Values by index. The index of a removed value is used again.
#[derive(Debug)]
pub(super) struct IndexedTable<T> {
    values: SegmentedVec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for IndexedTable<T> {
    fn default() -> Self {
        Self {
            values: SegmentedVec::default(),
            free: Vec::new(),
        }
    }
}

impl<T> IndexedTable<T> {
    /// Indexes in use.
    pub fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// The index that the next value gets.
    pub fn next_index(&self) -> u32 {
        let end = u32::try_from(self.values.len()).expect("tables are bounded");
        self.free.last().copied().unwrap_or(end)
    }

    pub fn insert(&mut self, value: T) -> u32 {
        let index = self.next_index();
        match self.values.get_mut(index as usize) {
            Some(place) => {
                self.free.pop();
                *place = Some(value);
            }
            None => self.values.push(Some(value)),
        }
        index
    }

    pub fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.take(index)?;
        self.free_index(index);
        Some(value)
    }

    /// Removes a value. Its index is not used again before it is [freed](Self::free_index).
    pub fn take(&mut self, index: u32) -> Option<T> {
        self.values.get_mut(index as usize)?.take()
    }

    /// Lets the index of a value that was taken be used again.
    pub fn free_index(&mut self, index: u32) {
        self.free.push(index);
    }

    pub fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)?.as_mut()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let values = (0..).zip(self.values.iter_mut());
        values.filter_map(|(index, value)| Some((index, value.as_mut()?)))
    }

    /// Values from an index on.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let values = (first..).zip(self.values.iter_from(first as usize));
        values.filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.iter_from(0)
    }
}
