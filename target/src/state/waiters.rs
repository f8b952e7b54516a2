//! Requests for locks that were denied and wait (RFC 8881 section 9.6).

use std::sync::Arc;
use std::time::Duration;

use super::clients::ClientId;
use super::home::{StateEvent, StateHome};
use super::ranges::{ByteRange, LockMode};

/// How many ranges the waiters of a file are compared with when some are freed. Waiters beyond are not
/// notified; they ask again from time to time in any case.
const SEARCH_MAX: usize = 1 << 20;

/// A request for a lock that was denied and is willing to wait.
#[derive(Clone, Debug)]
pub(super) struct LockWaiter {
    pub client: ClientId,
    pub client_index: u32,
    pub owner: Arc<[u8]>,
    pub range: ByteRange,
    pub mode: LockMode,
    /// When it was last asked for.
    pub asked: Duration,
    /// Whether the owner has been notified.
    pub is_notified: bool,
}

impl LockWaiter {
    fn is_same(&self, other: &Self) -> bool {
        (self.client, self.range, self.mode) == (other.client, other.range, other.mode)
            && self.owner == other.owner
    }
}

impl StateHome {
    /// Remembers a denied request, or that it was repeated.
    pub(super) fn remember_waiter(&mut self, file: u32, waiter: LockWaiter) {
        let (most, lease) = (self.config.waiters_per_file, self.config.lease);
        let Some(file) = self.files.get_mut(file) else {
            return;
        };
        if let Some(known) = file.waiters.iter_mut().find(|one| one.is_same(&waiter)) {
            (known.asked, known.is_notified) = (waiter.asked, false);
            return;
        }
        if file.waiters.len() >= most {
            file.waiters.retain(|one| waiter.asked <= one.asked + lease);
        }
        if file.waiters.len() < most {
            file.waiters.push(waiter);
        }
    }

    /// Forgets what an owner waited for in a range that it has by now.
    pub(super) fn forget_waiter(
        &mut self,
        file: u32,
        client: ClientId,
        owner: &[u8],
        range: ByteRange,
    ) {
        if let Some(file) = self.files.get_mut(file) {
            file.waiters.retain(|one| {
                one.client != client || *one.owner != *owner || !one.range.overlaps(&range)
            });
        }
    }

    /// Notifies waiters, in their order, of locks that have become available. Waiters that did not
    /// retry for the time of a lease are removed.
    pub(super) fn notify_waiters(&mut self, now: Duration) {
        while let Some(index) = self.freed.pop() {
            let Some(file) = self.files.get_mut(index) else {
                continue;
            };
            let mut waiters = std::mem::take(&mut file.waiters);
            waiters.retain(|one| {
                now <= one.asked + self.config.lease
                    && self.clients.find(one.client) == Some(one.client_index)
            });
            let ranges = self.files.get(index).map_or(0, |file| file.ranges.len());
            let looked_at = SEARCH_MAX / ranges.max(1);
            let mut told: Vec<(ByteRange, LockMode)> = Vec::new();
            for waiter in waiters.iter_mut().take(looked_at) {
                let (range, mode) = (waiter.range, waiter.mode);
                let is_behind = |(other, other_mode): &(ByteRange, LockMode)| {
                    other_mode.excludes(mode) && other.overlaps(&range)
                };
                if waiter.is_notified
                    || told.iter().any(is_behind)
                    || self.is_excluded(index, waiter, now)
                {
                    continue;
                }
                waiter.is_notified = true;
                told.push((range, mode));
                if let Some(file) = self.files.get(index) {
                    self.events.push_back(StateEvent::LockAvailable {
                        client: waiter.client,
                        file: file.key,
                        owner: waiter.owner.clone(),
                    });
                }
            }
            if let Some(file) = self.files.get_mut(index) {
                file.waiters = waiters;
            }
        }
    }

    fn is_excluded(&self, file: u32, waiter: &LockWaiter, now: Duration) -> bool {
        let owner = self.lock_owners.find(waiter.client_index, &waiter.owner);
        let holder = Some(waiter.client_index);
        self.live_conflict(file, (holder, owner), waiter.range, waiter.mode, now)
            .is_some()
    }
}
