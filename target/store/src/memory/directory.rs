//! Directories: names in order of creation, and an index by name.
//!
//! The cookie of an entry is the next number of its directory and is never reused. So a listing can
//! be continued after any entries were added or removed. The index is an extendible hash: a full
//! bucket is split in two, two with few entries are joined, and the others stay, so that no single
//! change has to rehash a directory of a million names.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::inode::InodeHandle;
use crate::{Result, StoreError};

/// Cookies of `.` and `..`; those of entries follow.
pub(super) const COOKIE_SELF: u64 = 1;
pub(super) const COOKIE_PARENT: u64 = 2;

/// Entries of a bucket before it splits: few enough to search in one go.
const BUCKET_ENTRIES: usize = 32;
/// Entries of two buckets that are joined: so few that the next ones do not split them again.
const JOINED_ENTRIES: usize = 16;
/// Hash bits used at most. Beyond, buckets grow; with a keyed hash that is never reached.
const DEPTH_MAX: u32 = 28;

/// A name in a directory.
#[derive(Debug)]
pub(super) struct NameEntry {
    pub cookie: u64,
    pub name: Box<[u8]>,
    pub handle: InodeHandle,
}

/// The content of a directory.
pub(super) struct Directory {
    /// Set when the directory has been removed: nothing is made in it any more.
    pub removed: bool,
    index: NameIndex,
    order: BTreeMap<u64, Arc<NameEntry>>,
    next_cookie: u64,
}

impl Directory {
    pub fn new() -> Self {
        Self {
            removed: false,
            index: NameIndex::default(),
            order: BTreeMap::new(),
            next_cookie: COOKIE_PARENT + 1,
        }
    }

    /// [`StoreError::Stale`] if the directory has been removed.
    pub fn check(&self) -> Result<()> {
        if self.removed {
            Err(StoreError::Stale)
        } else {
            Ok(())
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn find(&self, name: &[u8]) -> Option<InodeHandle> {
        self.index.find(name).map(|entry| entry.handle)
    }

    /// Adds a name that is not there.
    pub fn insert(&mut self, name: &[u8], handle: InodeHandle) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let entry = Arc::new(NameEntry {
            cookie,
            name: name.into(),
            handle,
        });
        self.index.insert(entry.clone());
        self.order.insert(cookie, entry);
    }

    /// Takes a name out.
    pub fn remove(&mut self, name: &[u8]) -> Option<InodeHandle> {
        let entry = self.index.remove(name)?;
        self.order.remove(&entry.cookie);
        Some(entry.handle)
    }

    /// The entries after a cookie, in order.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = &NameEntry> {
        let start = (
            std::ops::Bound::Excluded(cookie),
            std::ops::Bound::Unbounded,
        );
        self.order.range(start).map(|(_, entry)| &**entry)
    }
}

/// Finds entries by name: an extendible hash.
#[derive(Default)]
struct NameIndex {
    /// Low hash bits that choose the bucket.
    depth: u32,
    /// Bucket of each combination of these bits.
    table: Vec<u32>,
    buckets: Vec<Bucket>,
    /// Buckets that need all these bits.
    deepest: usize,
    hasher: RandomState,
}

struct Bucket {
    /// Low hash bits that all its entries share.
    depth: u32,
    /// These bits.
    bits: usize,
    entries: Vec<(u64, Arc<NameEntry>)>,
}

impl NameIndex {
    fn find(&self, name: &[u8]) -> Option<&Arc<NameEntry>> {
        let hash = self.hasher.hash_one(name);
        let bucket = &self.buckets[self.bucket_of(hash)?];
        bucket
            .position(hash, name)
            .map(|position| &bucket.entries[position].1)
    }

    fn insert(&mut self, entry: Arc<NameEntry>) {
        if self.table.is_empty() {
            self.table.push(0);
            self.buckets.push(Bucket {
                depth: 0,
                bits: 0,
                entries: Vec::new(),
            });
            self.deepest = 1;
        }
        let hash = self.hasher.hash_one(&entry.name[..]);
        let mut number = self.table[self.slot(hash)] as usize;
        while self.buckets[number].entries.len() >= BUCKET_ENTRIES
            && self.buckets[number].depth < DEPTH_MAX
        {
            self.split(number);
            number = self.table[self.slot(hash)] as usize;
        }
        self.buckets[number].entries.push((hash, entry));
    }

    fn remove(&mut self, name: &[u8]) -> Option<Arc<NameEntry>> {
        let hash = self.hasher.hash_one(name);
        let number = self.bucket_of(hash)?;
        let bucket = &mut self.buckets[number];
        let position = bucket.position(hash, name)?;
        let (_, entry) = bucket.entries.swap_remove(position);
        if bucket.entries.is_empty() {
            bucket.entries = Vec::new();
        }
        self.join(number);
        Some(entry)
    }

    fn bucket_of(&self, hash: u64) -> Option<usize> {
        self.table
            .get(self.slot(hash))
            .map(|bucket| *bucket as usize)
    }

    fn slot(&self, hash: u64) -> usize {
        hash as usize & ((1 << self.depth) - 1)
    }

    /// Moves the entries of a bucket that have the next hash bit set into a new one.
    fn split(&mut self, number: usize) {
        let bit = self.buckets[number].depth;
        if bit == self.depth {
            self.table.extend_from_within(..);
            self.depth += 1;
            self.deepest = 0;
        }
        let fresh = self.buckets.len();
        let bucket = &mut self.buckets[number];
        bucket.depth += 1;
        let (moved, kept) = std::mem::take(&mut bucket.entries)
            .into_iter()
            .partition(|(hash, _)| hash >> bit & 1 == 1);
        bucket.entries = kept;
        let bits = bucket.bits | 1 << bit;
        self.buckets.push(Bucket {
            depth: bit + 1,
            bits,
            entries: moved,
        });
        self.point_at(fresh);
        if bit + 1 == self.depth {
            self.deepest += 2;
        }
    }

    /// Joins a bucket with the one that differs from it in the last bit, as long as both together
    /// have few entries: memory of removed entries is not charged.
    fn join(&mut self, mut number: usize) {
        loop {
            let Bucket { depth, bits, .. } = self.buckets[number];
            if depth == 0 {
                break;
            }
            let last = 1 << (depth - 1);
            let other = self.table[bits ^ last] as usize;
            let together = self.buckets[number].entries.len() + self.buckets[other].entries.len();
            if self.buckets[other].depth != depth || together > JOINED_ENTRIES {
                break;
            }
            let moved = std::mem::take(&mut self.buckets[other].entries);
            let bucket = &mut self.buckets[number];
            bucket.entries.extend(moved);
            bucket.entries.shrink_to_fit();
            (bucket.depth, bucket.bits) = (depth - 1, bits & !last);
            self.point_at(number);
            if depth == self.depth {
                self.deepest -= 2;
            }
            // The last one takes the place of the other.
            self.buckets.swap_remove(other);
            if other < self.buckets.len() {
                self.point_at(other);
            }
            if number == self.buckets.len() {
                number = other;
            }
            self.shorten();
        }
    }

    /// Halves the table as long as no bucket needs all bits.
    fn shorten(&mut self) {
        while self.deepest == 0 {
            self.depth -= 1;
            self.table.truncate(1 << self.depth);
            self.table.shrink_to_fit();
            self.buckets.shrink_to(2 * self.buckets.len());
            let deepest = |bucket: &&Bucket| bucket.depth == self.depth;
            self.deepest = self.buckets.iter().filter(deepest).count();
        }
    }

    /// Has the table point at a bucket for all hashes that belong into it.
    fn point_at(&mut self, number: usize) {
        let Bucket { depth, bits, .. } = self.buckets[number];
        for slot in (bits..self.table.len()).step_by(1 << depth) {
            self.table[slot] = number as u32;
        }
    }
}

impl Bucket {
    fn position(&self, hash: u64, name: &[u8]) -> Option<usize> {
        self.entries
            .iter()
            .position(|(other, entry)| *other == hash && &*entry.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(inode: u64) -> InodeHandle {
        InodeHandle {
            inode,
            generation: 0,
        }
    }

    fn name(number: u64) -> Vec<u8> {
        format!("name-{number}").into_bytes()
    }

    #[test]
    fn names_are_found_through_many_splits() {
        let mut directory = Directory::new();
        for number in 0..5000 {
            directory.insert(&name(number), handle(number));
        }
        assert!(directory.index.depth > 6);
        for number in 0..5000 {
            assert_eq!(directory.find(&name(number)), Some(handle(number)));
        }
        for number in (0..5000).step_by(2) {
            assert_eq!(directory.remove(&name(number)), Some(handle(number)));
            assert_eq!(directory.remove(&name(number)), None);
        }
        for number in 0..5000 {
            let expected = (number % 2 == 1).then(|| handle(number));
            assert_eq!(directory.find(&name(number)), expected);
        }
        assert_eq!(directory.len(), 2500);
        for number in (1..5000).step_by(2) {
            directory.remove(&name(number));
        }
        assert!(directory.is_empty());
        assert_eq!(directory.find(b"name-1"), None);
    }

    #[test]
    fn an_index_shrinks_with_its_entries() {
        let mut directory = Directory::new();
        for number in 0..10_000 {
            directory.insert(&name(number), handle(number));
        }
        assert!(directory.index.buckets.len() > 300);
        for number in 10..10_000 {
            directory.remove(&name(number));
            let NameIndex {
                depth,
                table,
                buckets,
                ..
            } = &directory.index;
            // On average, two with as many entries as are not joined.
            assert!(buckets.len() <= 1 + directory.len() / 4);
            assert_eq!(table.len(), 1 << depth);
            assert!(buckets.iter().any(|bucket| bucket.depth == *depth));
            assert!(
                buckets
                    .iter()
                    .all(|bucket| bucket.entries.len() <= BUCKET_ENTRIES)
            );
        }
        for number in 0..10 {
            assert_eq!(directory.find(&name(number)), Some(handle(number)));
        }
        for number in 0..10 {
            directory.remove(&name(number));
        }
        let NameIndex { table, buckets, .. } = &directory.index;
        assert_eq!((table.capacity(), buckets.len()), (1, 1));
        assert_eq!(buckets[0].entries.capacity(), 0);
    }

    #[test]
    fn names_are_found_while_buckets_split_and_join() {
        let mut directory = Directory::new();
        let mut random = 1_u64;
        let mut known = std::collections::HashMap::new();
        // The number of names rises and falls.
        for step in 0..60_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (random >> 33) % 6000;
            let is_rising = step / 10_000 % 2 == 0;
            let is_added = (random >> 20) % 8 < if is_rising { 7 } else { 1 };
            match (is_added, known.contains_key(&number)) {
                (true, false) => {
                    directory.insert(&name(number), handle(step));
                    known.insert(number, handle(step));
                }
                (false, true) => {
                    assert_eq!(directory.remove(&name(number)), known.remove(&number));
                }
                _ => assert_eq!(directory.find(&name(number)), known.get(&number).copied()),
            }
        }
        for number in 0..6000 {
            assert_eq!(directory.find(&name(number)), known.get(&number).copied());
        }
        assert_eq!(directory.len(), known.len());
    }

    #[test]
    fn listing_goes_on_after_a_removed_entry() {
        let mut directory = Directory::new();
        for number in 0..10 {
            directory.insert(&name(number), handle(number));
        }
        let cookie = directory.after(0).nth(4).unwrap().cookie;
        directory.remove(&name(4));
        directory.remove(&name(6));
        directory.insert(&name(6), handle(60));
        let rest: Vec<_> = directory
            .after(cookie)
            .map(|entry| entry.handle.inode)
            .collect();
        assert_eq!(rest, [5, 7, 8, 9, 60]);
    }
}
