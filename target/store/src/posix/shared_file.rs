//! State of open files shared by all reactors.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
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

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
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
