//! What all who change names and attributes of a volume share: who may change what now, and how
//! often something was made durable.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Handle;

/// Locks of a volume. Objects whose handles come to the same lock wait for each other, which costs
/// time only.
const LOCKS: usize = 256;

/// Locks of objects, which helpers hold from looking before a change to looking after it, so that
/// nothing else that this process does comes between (RFC 1813 section 2.6). Never held on a
/// reactor, nor while something is made durable.
pub(in crate::posix) struct Changes {
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
    syncs: AtomicU64,
}

/// Locks that are held.
pub(in crate::posix) struct Held<'a> {
    _first: MutexGuard<'a, ()>,
    _second: Option<MutexGuard<'a, ()>>,
}

impl Changes {
    pub fn new() -> Self {
        Self {
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
            syncs: AtomicU64::new(0),
        }
    }

    /// The lock of one object.
    pub fn lock(&self, object: &Handle) -> Held<'_> {
        Held {
            _first: self.take(self.place(object)),
            _second: None,
        }
    }

    /// The locks of two objects, which may be the same.
    pub fn lock_both(&self, one: &Handle, other: &Handle) -> Held<'_> {
        let (one, other) = (self.place(one), self.place(other));
        // Always upwards: two that want the same two never wait for each other.
        Held {
            _first: self.take(one.min(other)),
            _second: (one != other).then(|| self.take(one.max(other))),
        }
    }

    /// Counts one request to make something durable.
    pub fn count_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    /// How often something was made durable.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    fn place(&self, object: &Handle) -> usize {
        self.hasher.hash_one(object) as usize % LOCKS
    }

    fn take(&self, place: usize) -> MutexGuard<'_, ()> {
        self.locks[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u8) -> Handle {
        Handle::new(&[number]).unwrap()
    }

    #[test]
    fn two_locks_are_taken_in_any_order_without_a_deadlock() {
        let changes = Changes::new();
        let counts = [const { Mutex::new(0_u32) }; 8];
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (changes, counts) = (&changes, &counts);
                scope.spawn(move || {
                    for round in 0..2000_u16 {
                        let one = (round as u8).wrapping_mul(3).wrapping_add(thread) % 8;
                        let other = (round as u8).wrapping_mul(5) % 8;
                        let _held = changes.lock_both(&handle(one), &handle(other));
                        // Nobody else can be at these two now.
                        *counts[usize::from(one)].try_lock().expect("held alone") += 1;
                        if other != one {
                            *counts[usize::from(other)].try_lock().expect("held alone") += 1;
                        }
                    }
                });
            }
        });
        assert!(counts.iter().all(|count| *count.lock().unwrap() > 0));
    }

    #[test]
    fn an_object_has_one_lock() {
        let changes = Changes::new();
        let held = changes.lock(&handle(1));
        assert!(changes.locks[changes.place(&handle(1))].try_lock().is_err());
        drop(held);
        assert!(changes.locks[changes.place(&handle(1))].try_lock().is_ok());
        // The same twice is taken once.
        let _both = changes.lock_both(&handle(1), &handle(1));
    }
}
