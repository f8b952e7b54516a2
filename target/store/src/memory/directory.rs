//! Directories: names in order of creation, and an index by name.
//!
//! The cookie of an entry is the next number of its directory and is never reused. So a listing can
//! be continued after any entries were added or removed. The index is an extendible hash: a full
//! bucket is split in two and the others stay, so that no single create has to rehash a directory
//! of a million names.

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
        if self.index.is_sparse(self.order.len()) {
            self.index = self.order.values().cloned().collect();
        }
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
    hasher: RandomState,
}

struct Bucket {
    /// Low hash bits that all its entries share.
    depth: u32,
    entries: Vec<(u64, Arc<NameEntry>)>,
}

/// Buckets for each entry above which an index is rebuilt.
const SPARSE_BUCKETS: usize = 4;

impl FromIterator<Arc<NameEntry>> for NameIndex {
    fn from_iter<I: IntoIterator<Item = Arc<NameEntry>>>(entries: I) -> Self {
        let mut index = Self::default();
        entries.into_iter().for_each(|entry| index.insert(entry));
        index
    }
}

impl NameIndex {
    /// Whether most of its memory is left over from removed entries, if `entries` remain. It is
    /// then rebuilt, since memory of removed entries is not charged.
    fn is_sparse(&self, entries: usize) -> bool {
        self.buckets.len() > SPARSE_BUCKETS * entries
    }

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
                entries: Vec::new(),
            });
        }
        let hash = self.hasher.hash_one(&entry.name[..]);
        let mut number = self.table[self.slot(hash)] as usize;
        while self.buckets[number].entries.len() >= BUCKET_ENTRIES
            && self.buckets[number].depth < DEPTH_MAX
        {
            self.split(number, hash);
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

    /// Moves the entries of a bucket that have the next hash bit set into a new one. `hash` is of
    /// any entry of the bucket.
    fn split(&mut self, number: usize, hash: u64) {
        let bit = self.buckets[number].depth;
        if bit == self.depth {
            self.table.extend_from_within(..);
            self.depth += 1;
        }
        let fresh = self.buckets.len();
        let bucket = &mut self.buckets[number];
        bucket.depth += 1;
        let (moved, kept) = std::mem::take(&mut bucket.entries)
            .into_iter()
            .partition(|(hash, _)| hash >> bit & 1 == 1);
        bucket.entries = kept;
        self.buckets.push(Bucket {
            depth: bit + 1,
            entries: moved,
        });
        let first = hash as usize & ((1 << bit) - 1) | 1 << bit;
        for slot in (first..self.table.len()).step_by(2 << bit) {
            self.table[slot] = fresh as u32;
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
        assert_eq!(directory.index.buckets.len(), 0);
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
            let most = SPARSE_BUCKETS * directory.len();
            assert!(directory.index.buckets.len() <= most);
        }
        for number in 0..10 {
            assert_eq!(directory.find(&name(number)), Some(handle(number)));
        }
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
