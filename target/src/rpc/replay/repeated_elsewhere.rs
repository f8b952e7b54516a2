//! Calls that their clients cannot repeat as they were, and send as others.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{CallKey, ReplayCache, ReplayEntry, lock};

impl ReplayCache {
    /// Whether a call is known that was begun and abandoned, and whose repetition has not been
    /// executed yet.
    #[must_use]
    pub fn has_interrupted(&self) -> bool {
        self.inner.open.count.load(Relaxed) > 0
    }

    /// The reply to a call that was executed, but cannot be repeated as it is. If it was begun and
    /// abandoned instead, what is known of it holds for the call `next` from now on.
    #[must_use]
    pub fn retire(&self, key: &CallKey, next: CallKey) -> Option<Arc<[u8]>> {
        let (shard, counters) = self.inner.shard(key);
        if let Some(ReplayEntry::Done(reply)) = shard.entries.get(key) {
            counters.replayed.increment();
            return Some(reply.clone());
        }
        drop(shard);
        self.reassign(key, next);
        None
    }

    /// What is known of a call that was begun and abandoned holds for another one from now on,
    /// which is the same to its client.
    pub fn reassign(&self, key: &CallKey, next: CallKey) {
        if !self.has_interrupted() {
            return;
        }
        let open = &self.inner.open;
        // Whoever contests a call holds this lock too, so that no call is missed.
        let mut names = lock(&open.names);
        let (mut shard, counters) = self.inner.shard(key);
        let Some(&ReplayEntry::Begun(begun)) = shard.entries.get(key) else {
            return;
        };
        shard.entries.remove(key);
        shard.order.retain(|(other, _)| other != key);
        shard.tell(counters);
        drop(shard);
        for known in names.values_mut().flatten().filter(|known| *known == key) {
            *known = next;
        }
        for (_, carried) in &mut *lock(&open.carried) {
            carried.rename(key, next, begun.contested);
        }
        let (mut shard, counters) = self.inner.shard(&next);
        if shard.entries.contains_key(&next) {
            open.less(1);
            return;
        }
        shard.entries.insert(next, ReplayEntry::Begun(begun));
        shard.order.push_back((next, Instant::now()));
        shard.tell(counters);
    }
}
