//! Shared state of all changes of names and attributes of a volume: the locks, and the number of
//! syncs.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Handle, Result, StoreError};

/// The number of shards, each with a lock held only briefly.
const SHARDS: usize = 64;

/// How long a change waits for another one of the same object. Helpers that wait for one that hangs
/// are not available for other objects.
const CONFLICT_TIMEOUT: Duration = Duration::from_secs(2);

/// Locks of objects. Helpers hold them from the query before a change to the query after it, so
/// that no other change by this process is made in between (RFC 1813 section 2.6). Never held on a
/// reactor, nor during a sync.
pub(in crate::posix) struct Changes {
    shards: [Shard; SHARDS],
    hasher: RandomState,
    timeout: Duration,
    syncs: AtomicU64,
}

/// Locked objects.
#[derive(Default)]
struct Shard {
    changing: Mutex<HashSet<Handle>>,
    /// Notified when one is unlocked.
    freed: Condvar,
}

/// A locked object; unlocked when dropped.
struct Locked<'a> {
    shard: &'a Shard,
    object: Handle,
}

/// Held locks.
pub(in crate::posix) struct HeldLocks<'a> {
    _first: Locked<'a>,
    _second: Option<Locked<'a>>,
}

impl Changes {
    pub fn new() -> Self {
        Self::with_timeout(CONFLICT_TIMEOUT)
    }

    fn with_timeout(timeout: Duration) -> Self {
        Self {
            shards: std::array::from_fn(|_| Shard::default()),
            hasher: RandomState::new(),
            timeout,
            syncs: AtomicU64::new(0),
        }
    }

    /// Locks one object.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: another change of it takes too long.
    pub fn lock(&self, object: &Handle) -> Result<HeldLocks<'_>> {
        Ok(HeldLocks {
            _first: self.take(object)?,
            _second: None,
        })
    }

    /// Locks two objects, which may be the same.
    ///
    /// # Errors
    /// As [`Changes::lock`].
    pub fn lock_both(&self, one: &Handle, other: &Handle) -> Result<HeldLocks<'_>> {
        // In ascending order, against deadlocks.
        let mut both = [one, other];
        both.sort_by_key(|object| object.as_bytes());
        Ok(HeldLocks {
            _first: self.take(both[0])?,
            _second: if one == other {
                None
            } else {
                Some(self.take(both[1])?)
            },
        })
    }

    /// Counts one sync.
    pub fn count_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    /// The number of syncs.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    fn take(&self, object: &Handle) -> Result<Locked<'_>> {
        let shard = &self.shards[self.hasher.hash_one(object) as usize % SHARDS];
        let start = Instant::now();
        let mut changing = shard.changing();
        while !changing.insert(*object) {
            let left = self.timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(StoreError::Delay);
            }
            let waited = shard.freed.wait_timeout(changing, left);
            changing = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Locked {
            shard,
            object: *object,
        })
    }
}

impl Shard {
    fn changing(&self) -> MutexGuard<'_, HashSet<Handle>> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.shard.changing().remove(&self.object);
        self.shard.freed.notify_all();
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
        let changes = Changes::with_timeout(Duration::from_secs(600));
        let counts = [const { Mutex::new(0_u32) }; 8];
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (changes, counts) = (&changes, &counts);
                scope.spawn(move || {
                    for round in 0..2000_u16 {
                        let one = (round as u8).wrapping_mul(3).wrapping_add(thread) % 8;
                        let other = (round as u8).wrapping_mul(5) % 8;
                        let held = changes.lock_both(&handle(one), &handle(other));
                        let _held = held.expect("all get on");
                        // No other thread can hold these two now.
                        *counts[usize::from(one)].try_lock().expect("held alone") += 1;
                        if other != one {
                            *counts[usize::from(other)].try_lock().expect("held alone") += 1;
                        }
                    }
                });
            }
        });
        assert!(counts.iter().all(|count| *count.lock().unwrap() > 0));
        assert!(
            changes
                .shards
                .iter()
                .all(|shard| shard.changing().is_empty())
        );
    }

    #[test]
    fn who_waits_for_a_change_that_hangs_is_sent_away() {
        let changes = Changes::with_timeout(Duration::ZERO);
        let delay = Some(StoreError::Delay);
        let held = changes.lock(&handle(1)).expect("free");
        assert_eq!(changes.lock(&handle(1)).err(), delay);
        for pair in [(0, 1), (1, 2)] {
            let both = changes.lock_both(&handle(pair.0), &handle(pair.1));
            assert_eq!(both.err(), delay);
        }
        // Locks acquired on the way are free again, and so are all others.
        for number in (0..=255).filter(|number| *number != 1) {
            assert!(changes.lock(&handle(number)).is_ok());
        }
        drop(held);
        assert!(changes.lock(&handle(1)).is_ok());
        // The same object twice is locked once.
        assert!(changes.lock_both(&handle(1), &handle(1)).is_ok());
    }
}
