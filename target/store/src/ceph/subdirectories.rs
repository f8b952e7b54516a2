//! How many directories are in a directory. To ask the cluster takes a round trip, while the library
//! knows the directory's version: a count is kept with the version that has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lru::Lru;

/// The counts of the directories that were used last, by their numbers.
pub(super) struct SubdirectoryCounts {
    /// With their versions.
    counts: Mutex<Lru<u64, (u64, u32)>>,
    most: usize,
}

impl SubdirectoryCounts {
    /// None yet, and room for so many.
    pub fn new(most: usize) -> Self {
        Self {
            counts: Mutex::new(Lru::new()),
            most,
        }
    }

    /// The count of a directory of this version, if it is known.
    pub fn get(&self, directory: u64, version: u64) -> Option<u32> {
        let mut counts = self.lock();
        let &mut (counted, count) = counts.get(&directory)?;
        (counted == version).then_some(count)
    }

    /// Keeps a count.
    pub fn keep(&self, directory: u64, version: u64, count: u32) {
        let mut counts = self.lock();
        counts.insert(directory, (version, count));
        while counts.len() > self.most
            && let Some((&oldest, _)) = counts.oldest()
        {
            counts.remove(&oldest);
        }
    }

    /// A directory of the version `before` was changed, and then had the version `after`. The change
    /// left as many directories in it, and raised the version by one: if that is higher, there were
    /// other changes.
    pub fn pass_on(&self, directory: u64, before: u64, after: u64) {
        if let Some(known) = self.lock().get(&directory)
            && known.0 == before
            && after == before.wrapping_add(1)
        {
            known.0 = after;
        }
    }

    /// Forgets the count of a directory.
    pub fn forget(&self, directory: u64) {
        self.lock().remove(&directory);
    }

    fn lock(&self) -> MutexGuard<'_, Lru<u64, (u64, u32)>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_that_of_one_version() {
        let counts = SubdirectoryCounts::new(2);
        counts.keep(1, 10, 3);
        assert_eq!((counts.get(1, 10), counts.get(1, 11)), (Some(3), None));
        assert_eq!(counts.get(2, 10), None);
        counts.forget(1);
        assert_eq!(counts.get(1, 10), None);
        // The one that was used least goes.
        for directory in 1..=3 {
            counts.keep(directory, 10, 3);
        }
        assert_eq!((counts.get(1, 10), counts.get(3, 10)), (None, Some(3)));
    }

    #[test]
    fn a_count_outlives_a_change_of_other_names_and_no_other_one() {
        let counts = SubdirectoryCounts::new(2);
        counts.keep(1, 10, 3);
        counts.pass_on(1, 10, 11);
        assert_eq!((counts.get(1, 10), counts.get(1, 11)), (None, Some(3)));
        // Nothing was changed yet, as far as is known, or by somebody else, too.
        for after in [11, 13] {
            counts.pass_on(1, 11, after);
            assert_eq!(counts.get(1, 11), Some(3));
            assert_eq!(counts.get(1, 13), None);
        }
        // Somebody made a directory before.
        counts.pass_on(1, 12, 13);
        assert_eq!(counts.get(1, 13), None);
    }
}
