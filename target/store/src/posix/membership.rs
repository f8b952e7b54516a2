//! A cache of users' groups in this host's user database.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Result, StoreError};

/// How long an answer of the user database is valid, including one that the user is unknown.
pub(super) const KEPT: Duration = Duration::from_secs(60);

/// How long an expired answer remains valid while the database cannot be queried.
pub(super) const KEPT_ON: Duration = Duration::from_secs(5);

/// The most callers cached by a reactor, and the most users cached by a volume.
pub(super) const REMEMBERED: usize = 1024;

/// Values with expiry times; at most [`REMEMBERED`].
pub(super) struct Known<K, V> {
    entries: HashMap<K, (V, Instant)>,
}

impl<K: Eq + Hash + Clone, V> Known<K, V> {
    pub fn new() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }

    /// A value and its expiry time, which may have passed.
    pub fn get(&self, key: &K) -> Option<&(V, Instant)> {
        self.entries.get(key)
    }

    pub fn put(&mut self, key: K, value: V, until: Instant, now: Instant) {
        if self.entries.len() >= REMEMBERED && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (_, until)| *until > now);
            if self.entries.len() >= REMEMBERED {
                let first = self.entries.iter().min_by_key(|(_, (_, until))| *until);
                if let Some(first) = first.map(|(key, _)| key.clone()) {
                    self.entries.remove(&first);
                }
            }
        }
        self.entries.insert(key, (value, until));
    }
}

/// The users' groups cached by a volume. Queried on helpers only.
pub(super) struct Membership {
    known: Mutex<Known<u32, Arc<[u32]>>>,
}

impl Membership {
    pub fn new() -> Self {
        Self {
            known: Mutex::new(Known::new()),
        }
    }

    /// A user's groups and their expiry time, queried by `ask` if none are cached. Cached ones
    /// remain valid while the database cannot be queried.
    ///
    /// # Errors
    /// [`StoreError::Delay`]: the database cannot be queried, and nothing is cached.
    pub fn of_user(
        &self,
        uid: u32,
        now: Instant,
        ask: impl FnOnce(u32) -> std::io::Result<Option<Vec<u32>>>,
    ) -> Result<(Arc<[u32]>, Instant)> {
        let before = self.lock().get(&uid).cloned();
        if let Some((groups, until)) = &before
            && *until > now
        {
            return Ok((Arc::clone(groups), *until));
        }
        // Not under the lock: a slow query for one user does not delay others.
        let (groups, until) = match (ask(uid), before) {
            (Ok(found), _) => (found.unwrap_or_default().into(), now + KEPT),
            (Err(error), Some((groups, _))) => {
                tracing::warn!(uid, %error, "the user database does not answer; cached groups are \
                    used");
                (groups, now + KEPT_ON)
            }
            (Err(error), None) => {
                tracing::warn!(uid, %error, "the user database does not answer; the user waits");
                return Err(StoreError::Delay);
            }
        };
        self.lock().put(uid, Arc::clone(&groups), until, now);
        Ok((groups, until))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known<u32, Arc<[u32]>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: u32) -> std::io::Result<Option<Vec<u32>>> {
        panic!("what is known is not asked for")
    }

    fn fails(_: u32) -> std::io::Result<Option<Vec<u32>>> {
        Err(std::io::Error::other("no answer"))
    }

    #[test]
    fn answers_hold_for_a_minute_also_that_there_is_no_such_user() {
        let membership = Membership::new();
        let start = Instant::now();
        let found = membership.of_user(7, start, |_| Ok(Some(vec![3, 4])));
        assert_eq!(found, Ok((vec![3, 4].into(), start + KEPT)));
        let unknown = membership.of_user(8, start, |_| Ok(None));
        assert_eq!(unknown, Ok((Vec::new().into(), start + KEPT)));
        let just = start + KEPT - Duration::from_nanos(1);
        assert_eq!(membership.of_user(7, just, never), found);
        assert_eq!(membership.of_user(8, just, never), unknown);
        let later = start + KEPT;
        let again = membership.of_user(8, later, |_| Ok(Some(vec![9])));
        assert_eq!(again, Ok((vec![9].into(), later + KEPT)));
    }

    #[test]
    fn a_silent_database_leaves_what_was_known() {
        let membership = Membership::new();
        let start = Instant::now();
        assert_eq!(membership.of_user(7, start, fails), Err(StoreError::Delay));
        membership.of_user(7, start, |_| Ok(Some(vec![3]))).unwrap();
        let later = start + KEPT;
        let old = membership.of_user(7, later, fails);
        assert_eq!(old, Ok((vec![3].into(), later + KEPT_ON)));
        assert_eq!(membership.of_user(7, later, never), old);
        let asked = membership.of_user(7, later + KEPT_ON, |_| Ok(Some(vec![5])));
        assert_eq!(asked.unwrap().0[..], [5]);
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let membership = Membership::new();
        let start = Instant::now();
        for uid in 0..REMEMBERED as u32 + 10 {
            let now = start + Duration::from_nanos(uid.into());
            membership.of_user(uid, now, |_| Ok(None)).unwrap();
        }
        assert_eq!(membership.lock().entries.len(), REMEMBERED);
        // The oldest was evicted.
        membership.of_user(10, start, never).unwrap();
        let mut asked = false;
        membership
            .of_user(9, start, |_| {
                asked = true;
                Ok(None)
            })
            .unwrap();
        assert!(asked);
        // Expired entries are evicted first, and all at once.
        let later = start + 2 * KEPT;
        membership.of_user(5000, later, |_| Ok(None)).unwrap();
        assert_eq!(membership.lock().entries.len(), 1);
    }
}
