//! Finding objects where the kernel has no handles for them, or does not let this process open any:
//! by the names that led to them.
//!
//! This is weaker than handles. It lasts as long as the process, for a bounded number of objects.
//! An object renamed by other programs of the host is stale once it is closed, and so is an object
//! with two names that lost the one used last. The folder itself is always found.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::handle::Key;
use crate::lru::Lru;

/// The most objects in the cache, each of about 200 bytes.
const MOST: usize = 131_072;

/// The longest path from the folder to an object, in names.
const DEEPEST: usize = 4096;

/// The names of objects.
pub(super) struct NameCache {
    names: Mutex<Lru<Key, Name>>,
    most: usize,
}

struct Name {
    directory: Key,
    name: Box<[u8]>,
}

impl Default for NameCache {
    fn default() -> Self {
        Self::with_bound(MOST)
    }
}

impl NameCache {
    fn with_bound(most: usize) -> Self {
        Self {
            names: Mutex::new(Lru::new()),
            most,
        }
    }

    /// Records that an object was found by a name in a directory.
    pub fn put(&self, object: Key, directory: Key, name: &[u8]) {
        let mut names = self.lock();
        // Counts as a use, so that the directory is not evicted first: without it the object is not
        // found.
        let _ = names.get(&directory);
        if let Some(there) = names.get(&object)
            && there.directory == directory
            && *there.name == *name
        {
            return;
        }
        let name = Name {
            directory,
            name: name.into(),
        };
        names.insert(object, name);
        while names.len() > self.most {
            let oldest = names.oldest().map(|(key, _)| *key);
            oldest.and_then(|key| names.remove(&key));
        }
    }

    /// Whether the cache has an object.
    pub fn knows(&self, object: &Key) -> bool {
        self.lock().get(object).is_some()
    }

    /// The names from the folder to an object.
    pub fn way(&self, root: &Key, object: &Key) -> Option<Vec<Box<[u8]>>> {
        let mut names = self.lock();
        let mut way = Vec::new();
        let mut here = *object;
        while here != *root {
            let name = names.get(&here).filter(|_| way.len() < DEEPEST)?;
            way.push(name.name.clone());
            here = name.directory;
        }
        way.reverse();
        Some(way)
    }

    /// Removes an object whose names turned out to be wrong.
    pub fn forget(&self, object: &Key) {
        self.lock().remove(object);
    }

    fn lock(&self) -> MutexGuard<'_, Lru<Key, Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> Key {
        Key {
            device: 1,
            inode,
            born: (0, 0),
        }
    }

    fn way(names: &NameCache, inode: u64) -> Option<Vec<String>> {
        let way = names.way(&key(0), &key(inode))?;
        let text = way.iter().map(|name| String::from_utf8_lossy(name).into());
        Some(text.collect())
    }

    #[test]
    fn ways_follow_what_was_found_last() {
        let names = NameCache::default();
        names.put(key(1), key(0), b"a");
        names.put(key(2), key(1), b"b");
        names.put(key(3), key(2), b"c");
        assert_eq!(way(&names, 3).unwrap(), ["a", "b", "c"]);
        assert_eq!(way(&names, 0).unwrap(), [""; 0]);
        // The directory in the middle moves.
        names.put(key(2), key(0), b"moved");
        assert_eq!(way(&names, 3).unwrap(), ["moved", "c"]);
        names.forget(&key(2));
        assert_eq!(way(&names, 3), None);
        assert!(!names.knows(&key(2)));
    }

    #[test]
    fn a_ring_of_directories_ends() {
        let names = NameCache::default();
        names.put(key(1), key(2), b"a");
        names.put(key(2), key(1), b"b");
        assert_eq!(way(&names, 1), None);
    }

    #[test]
    fn directories_stay_as_long_as_what_is_in_them() {
        let names = NameCache::with_bound(10);
        names.put(key(1), key(0), b"a");
        for inode in 2..100 {
            names.put(key(inode), key(1), b"x");
        }
        assert_eq!(way(&names, 99).unwrap(), ["a", "x"]);
        assert_eq!(way(&names, 90), None);
        assert_eq!(names.lock().len(), 10);
    }
}
