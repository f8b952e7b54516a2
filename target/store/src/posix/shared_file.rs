//! State of open files shared by all reactors.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::Handle;

/// The number of shards, each with its own lock.
const SHARDS: usize = 64;

/// State of one object shared by all reactors that have it open. `data` is defined in the module of
/// that name.
#[derive(Default)]
pub(super) struct SharedFile {
    /// The lock of write modes, and the bytes not durable yet.
    pub data: super::data::file_state::FileState,
    holds: Mutex<Holds>,
}

/// Who needs an object beyond its last name.
#[derive(Default)]
struct Holds {
    count: u32,
    /// Opened as a path only when its last name was removed.
    removed: Option<Arc<OwnedFd>>,
}

impl SharedFile {
    /// Counts one more hold.
    pub fn hold(&self) {
        lock(&self.holds).count += 1;
    }

    /// Takes a hold back. With the last one goes the descriptor of a removed object.
    pub fn release(&self) -> Option<Arc<OwnedFd>> {
        let mut holds = lock(&self.holds);
        holds.count -= 1;
        match holds.count {
            0 => holds.removed.take(),
            _ => None,
        }
    }

    /// Keeps an object whose last name is being removed, if it is held and one more may be kept.
    pub fn keep_removed(&self, path: &Arc<OwnedFd>, may_keep: impl FnOnce() -> bool) -> bool {
        let mut holds = lock(&self.holds);
        if holds.count > 0 && holds.removed.is_none() && may_keep() {
            holds.removed = Some(Arc::clone(path));
        }
        holds.removed.is_some()
    }

    /// The object, opened as a path only, if it is held and its last name was removed.
    pub fn removed(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.holds).removed.clone()
    }
}

/// The shared state of all objects of a volume, by handle. Used only when an object is opened or
/// closed.
pub(super) struct SharedFiles {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

type Shard = HashMap<Handle, Weak<SharedFile>>;

impl Default for SharedFiles {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl SharedFiles {
    /// The shared state of the object with this handle.
    pub fn get(&self, handle: Handle) -> Arc<SharedFile> {
        let mut shard = self.shard(&handle);
        if let Some(shared) = shard.get(&handle).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Arc::default();
        shard.insert(handle, Arc::downgrade(&shared));
        shared
    }

    /// Applies a function to the shared state of an object, if anybody has it.
    pub fn look<T>(&self, handle: &Handle, look: impl FnOnce(&SharedFile) -> T) -> Option<T> {
        let shared = self.shard(handle).get(handle).and_then(Weak::upgrade)?;
        let found = look(&shared);
        self.release(*handle, shared);
        Some(found)
    }

    /// Returns the result of [`SharedFiles::get`]; the last one removes it.
    pub fn release(&self, handle: Handle, shared: Arc<SharedFile>) {
        let mut shard = self.shard(&handle);
        drop(shared);
        if shard
            .get(&handle)
            .is_some_and(|shared| shared.strong_count() == 0)
        {
            shard.remove(&handle);
        }
    }

    /// The number of shared objects.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, handle: &Handle) -> MutexGuard<'_, Shard> {
        let place = self.hasher.hash_one(handle) as usize % SHARDS;
        lock(&self.shards[place])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_value_for_as_long_as_anybody_has_it() {
        let files = SharedFiles::default();
        let handles = [1, 2].map(|byte| Handle::new(&[byte]).unwrap());
        let first = files.get(handles[0]);
        let again = files.get(handles[0]);
        let other = files.get(handles[1]);
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &other));
        files.release(handles[0], first);
        assert!(Arc::ptr_eq(&files.get(handles[0]), &again));
        assert_eq!(files.len(), 2);
        files.release(handles[0], again);
        files.release(handles[1], other);
        assert_eq!(files.len(), 0);
    }
}
