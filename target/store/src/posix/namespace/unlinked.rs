//! Objects whose last names this process removed.
//!
//! An unlinked object keeps its space while it is open, and every reactor may have it open: so all
//! reactors are notified, and close it in their next turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Handle;

/// The most objects listed. A reactor that misses one closes it after the idle time.
const TOLD: usize = 1024;

/// The latest unlinked objects.
pub(in crate::posix) struct UnlinkedObjects {
    /// Their total number.
    count: AtomicU64,
    last: Mutex<VecDeque<Handle>>,
}

impl UnlinkedObjects {
    pub fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Adds an object.
    pub fn tell(&self, object: Handle) {
        let mut last = self.lock();
        if last.len() == TOLD {
            last.pop_front();
        }
        last.push_back(object);
        self.count.fetch_add(1, SeqCst);
    }

    /// Whether there are more than `seen`; checked first, without a lock.
    pub fn has_more(&self, seen: u64) -> bool {
        self.count.load(SeqCst) != seen
    }

    /// Those since `seen`, as far as they are still listed, and the current total.
    pub fn since(&self, seen: u64) -> (Vec<Handle>, u64) {
        let last = self.lock();
        let count = self.count.load(SeqCst);
        let new = usize::try_from(count - seen).unwrap_or(usize::MAX);
        let known = last.len().saturating_sub(new);
        (last.range(known..).copied().collect(), count)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Handle>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u16) -> Handle {
        Handle::new(&number.to_be_bytes()).unwrap()
    }

    #[test]
    fn everybody_is_told_once_of_each() {
        let unlinked = UnlinkedObjects::new();
        assert!(!unlinked.has_more(0));
        assert_eq!(unlinked.since(0), (Vec::new(), 0));
        unlinked.tell(handle(1));
        unlinked.tell(handle(2));
        assert!(unlinked.has_more(0) && unlinked.has_more(1));
        assert_eq!(unlinked.since(0), (vec![handle(1), handle(2)], 2));
        assert_eq!(unlinked.since(1), (vec![handle(2)], 2));
        assert_eq!(unlinked.since(2), (Vec::new(), 2));
        assert!(!unlinked.has_more(2));
    }

    #[test]
    fn who_comes_late_is_told_of_the_last() {
        let unlinked = UnlinkedObjects::new();
        let all = TOLD as u16 + 5;
        for number in 0..all {
            unlinked.tell(handle(number));
        }
        let (last, count) = unlinked.since(2);
        assert_eq!((last.len(), count), (TOLD, u64::from(all)));
        assert_eq!((last[0], last[TOLD - 1]), (handle(5), handle(all - 1)));
    }
}
