//! Files that have state.

use std::collections::BTreeSet;

use millrace_store::{FileHold, Handle};

use super::ranges::LockedRanges;
use super::share::ShareCounts;
use super::table::{IndexedTable, SegmentedMap};
use super::waiters::LockWaiter;

/// A file: an export and an object of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The export.
    pub export: u64,
    /// The object.
    pub object: Handle,
}

/// A file that has state.
#[derive(Debug)]
pub(super) struct StatefulFile {
    pub key: FileKey,
    /// Pieces of state that refer to it, revoked ones included.
    uses: usize,
    /// Keeps it when its last name is removed.
    hold: Option<FileHold>,
    /// Its opens.
    pub opens: BTreeSet<u32>,
    pub shares: ShareCounts,
    /// Its delegations.
    pub delegations: Vec<u32>,
    /// Its byte-range locks.
    pub ranges: LockedRanges,
    /// Requests for locks that were denied and wait, in their order.
    pub waiters: Vec<LockWaiter>,
}

/// All files that have state.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    files: IndexedTable<StatefulFile>,
    by_key: SegmentedMap<FileKey, u32>,
}

impl FileTable {
    pub fn find(&self, key: &FileKey) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    pub fn get(&self, file: u32) -> Option<&StatefulFile> {
        self.files.get(file)
    }

    pub fn get_mut(&mut self, file: u32) -> Option<&mut StatefulFile> {
        self.files.get_mut(file)
    }

    /// The file with a key, with one use more.
    pub fn acquire(&mut self, key: FileKey) -> u32 {
        let index = self.find(&key).unwrap_or_else(|| {
            let index = self.files.insert(StatefulFile {
                key,
                uses: 0,
                hold: None,
                opens: BTreeSet::new(),
                shares: ShareCounts::default(),
                delegations: Vec::new(),
                ranges: LockedRanges::default(),
                waiters: Vec::new(),
            });
            self.by_key.insert(key, index);
            index
        });
        self.share(index);
        index
    }

    /// Keeps a file that has state when its last name is removed.
    pub fn hold(&mut self, key: &FileKey, hold: FileHold) {
        if let Some(file) = self.find(key).and_then(|index| self.files.get_mut(index)) {
            file.hold.get_or_insert(hold);
        }
    }

    /// Counts one use more of a file.
    pub fn share(&mut self, index: u32) {
        if let Some(file) = self.files.get_mut(index) {
            file.uses += 1;
        }
    }

    /// Takes one use away, and the file with the last one.
    pub fn release(&mut self, index: u32) {
        let Some(file) = self.files.get_mut(index) else {
            return;
        };
        file.uses -= 1;
        if file.uses == 0 {
            self.by_key.remove(&file.key);
            self.files.remove(index);
        }
    }
}
