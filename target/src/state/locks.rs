//! Byte-range locks, and stateids that are tested and freed (RFC 8881 sections 18.10 to 18.12,
//! 18.38 and 18.48).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::delegations::FileUse;
use super::files::FileKey;
use super::home::StateHome;
use super::ranges::{ByteRange, LockConflict, LockMode, LockedRange, LockedRanges};
use super::share::ShareMode;
use super::stateid::{LockRecord, StateDetail, StateRecord, Stateid};
use super::waiters::LockWaiter;

/// Who locks.
#[derive(Clone, Copy, Debug)]
pub enum LockHolder<'a> {
    /// A new lock owner, based on an open of its client.
    New {
        /// The open.
        open: Stateid,
        /// The lock owner.
        owner: &'a [u8],
    },
    /// An owner that has a lock stateid.
    Existing(Stateid),
}

/// What LOCK asks for.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// The client.
    pub client: ClientId,
    /// The file.
    pub file: FileKey,
    /// Who locks.
    pub holder: LockHolder<'a>,
    /// Which bytes.
    pub range: ByteRange,
    /// How.
    pub mode: LockMode,
    /// Whether to notify the owner when the range becomes free, if it is not free now.
    pub waits: bool,
    /// Whether it was granted before the server's restart.
    pub reclaims: bool,
}

/// How far the host is with a lock that it takes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostStep {
    /// It takes no locks of this file.
    Without,
    /// It is asked before the lock is granted.
    Ask,
    /// It has granted the lock.
    Has,
}

impl StateHome {
    /// Locks a range.
    ///
    /// # Errors
    /// [`StateError::Denied`], [`StateError::OpenMode`], [`StateError::Grace`], those of stateids,
    /// and [`StateError::NoSpc`] or [`StateError::Delay`] at limits; for reclaims
    /// [`StateError::NoGrace`] and [`StateError::ReclaimConflict`]. [`StateError::Unrecorded`].
    pub fn lock(
        &mut self,
        request: &LockRequest<'_>,
        now: Duration,
    ) -> Result<Stateid, StateError> {
        let locked = self.lock_in_step(request, HostStep::Without, now)?;
        locked.ok_or(StateError::Delay)
    }

    /// Locks a range, also on the host; `None` if the host has to be asked first.
    pub(super) fn lock_in_step(
        &mut self,
        request: &LockRequest<'_>,
        host: HostStep,
        now: Duration,
    ) -> Result<Option<Stateid>, StateError> {
        let &LockRequest {
            client,
            range,
            mode,
            ..
        } = request;
        let index = self.check_grant(client, request.reclaims, now)?;
        let (open, known, name) = match request.holder {
            LockHolder::New { open, owner } => {
                let open = self.find_open(client, &request.file, &open)?;
                let known = self.lock_owners.find(index, owner);
                let known = known.and_then(|owner| self.lock_states.get(&(owner, open)));
                (open, known.copied(), owner.into())
            }
            LockHolder::Existing(stateid) => {
                let state = self.find_lock(client, &request.file, &stateid)?;
                let lock = self.states.lock(state).ok_or(StateError::BadStateid)?;
                let owner = self.lock_owners.get(lock.owner);
                let owner = owner.ok_or(StateError::BadStateid)?;
                (lock.open, Some(state), owner.name.clone())
            }
        };
        let needed = match mode {
            LockMode::Read => ShareMode::READ,
            LockMode::Write => ShareMode::WRITE,
        };
        let opened = self.states.open(open).ok_or(StateError::BadStateid)?;
        if !opened.access.includes(needed) {
            return Err(StateError::OpenMode);
        }
        let record = self.states.get(open).ok_or(StateError::BadStateid)?;
        let file = record.file;
        let owner = self.lock_owners.find(index, &name);
        if let Some(conflict) = self.live_conflict(file, (Some(index), owner), range, mode, now) {
            if request.reclaims {
                return Err(StateError::ReclaimConflict);
            }
            let conflict = self.describe(&conflict);
            if request.waits {
                self.remember_waiter(
                    file,
                    LockWaiter {
                        client,
                        client_index: index,
                        owner: name,
                        range,
                        mode,
                        asked: now,
                        is_notified: false,
                    },
                );
            }
            return Err(conflict);
        }
        self.check_range_limits(index, file)?;
        if known.is_none() {
            if opened.locks.len() >= self.config.lock_owners_per_open {
                return Err(StateError::NoSpc);
            }
            self.make_room_for_state(index, now)?;
        }
        if self.clients.get(index).is_some_and(|one| one.wants_record) {
            self.require_record(index, false)?;
        }
        // What is taken from others is given back, unless the host is being asked about it.
        let is_others = self.has_conflict(file, owner, range, mode);
        if host == HostStep::Ask && (is_others || !self.host_has(&request.file, range, mode)) {
            return Ok(None);
        }
        self.revoke_conflicts(file, owner, range, mode, now)?;
        let state = match known {
            Some(state) => {
                if let Some(record) = self.states.get_mut(state) {
                    record.advance();
                }
                state
            }
            None => self.add_lock_state((client, index), &name, open, file, now),
        };
        let owner = self.states.lock(state).ok_or(StateError::BadStateid)?.owner;
        self.change_ranges(file, index, range, |ranges| {
            ranges.lock(LockedRange {
                range,
                mode,
                owner,
                state,
            });
        });
        self.forget_waiter(file, client, &name, range);
        self.forget_host_wait(client, &request.file, &name, range);
        Ok(Some(self.states.stateid(state)))
    }

    /// Whether a range could be locked. Changes nothing but that delegations are recalled.
    ///
    /// # Errors
    /// [`StateError::Denied`]; [`StateError::Delay`] while a delegation for writing is recalled.
    pub fn test_lock(
        &mut self,
        client: ClientId,
        owner: &[u8],
        file: &FileKey,
        range: ByteRange,
        mode: LockMode,
        now: Duration,
    ) -> Result<(), StateError> {
        let index = self.check_reclaimed(client)?;
        let Some(file) = self.files.find(file) else {
            return Ok(());
        };
        // Its holder may have locks that only it knows of.
        self.settle_delegations(Some(index), file, FileUse::Read, now)?;
        let owner = self.lock_owners.find(index, owner);
        match self.live_conflict(file, (Some(index), owner), range, mode, now) {
            Some(conflict) => Err(self.describe(&conflict)),
            None => Ok(()),
        }
    }

    /// Frees the locks that the owner of a lock stateid has in a range.
    ///
    /// # Errors
    /// Those of stateids; [`StateError::NoSpc`] if a limit of ranges prevents splitting one.
    pub fn unlock(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        range: ByteRange,
        _now: Duration,
    ) -> Result<Stateid, StateError> {
        let state = self.find_lock(client, file, stateid)?;
        let owner = self.states.lock(state).ok_or(StateError::BadStateid)?.owner;
        let record = self.states.get_mut(state).ok_or(StateError::BadStateid)?;
        let (file, index) = (record.file, record.client_index);
        let known = self.files.get(file).ok_or(StateError::BadStateid)?;
        if known.ranges.would_split(owner, &range) {
            self.check_range_limits(index, file)?;
        }
        if let Some(record) = self.states.get_mut(state) {
            record.advance();
        }
        self.change_ranges(file, index, range, |ranges| ranges.unlock(owner, range));
        Ok(self.states.stateid(state))
    }

    /// Forgets a stateid that has no locks, or that was revoked, with the locks of a revoked open.
    ///
    /// # Errors
    /// [`StateError::LocksHeld`], and those of stateids.
    pub fn free_stateid(&mut self, client: ClientId, stateid: &Stateid) -> Result<(), StateError> {
        let state = self.states.find(client, stateid)?;
        let record = self.states.get(state).ok_or(StateError::BadStateid)?;
        let is_held = match record.detail {
            StateDetail::Revoked(_) => false,
            StateDetail::Open(_) | StateDetail::Delegation(_) => true,
            StateDetail::Lock(_) => {
                record.check_sequence(stateid.sequence)?;
                let file = self.files.get(record.file);
                file.is_some_and(|file| file.ranges.has_state(state))
            }
        };
        if is_held {
            return Err(StateError::LocksHeld);
        }
        self.remove_revoked(state);
        Ok(())
    }

    /// The status of each of some stateids, of any kind and file.
    #[must_use]
    pub fn test_stateids(
        &self,
        client: ClientId,
        stateids: &[Stateid],
    ) -> Vec<Result<(), StateError>> {
        let test = |stateid: &Stateid| {
            let state = self.find_state(client, None, stateid)?;
            let record = self.states.get(state).ok_or(StateError::BadStateid)?;
            record.check_sequence(stateid.sequence)
        };
        stateids.iter().map(test).collect()
    }

    /// A conflicting lock, except for locks of clients with expired leases.
    pub(super) fn live_conflict(
        &self,
        file: u32,
        (holder, owner): (Option<u32>, Option<u32>),
        range: ByteRange,
        mode: LockMode,
        now: Duration,
    ) -> Option<LockedRange> {
        let file = self.files.get(file)?;
        let mut conflicts = file.ranges.conflicts(owner, range, mode);
        let is_live = |one: &&LockedRange| {
            let client = self.states.get(one.state).map(|lock| lock.client_index);
            client.is_some_and(|client| Some(client) == holder || !self.is_expired(client, now))
        };
        conflicts.find(is_live).copied()
    }

    /// Whether somebody else has a conflicting lock, whose lease may have expired.
    fn has_conflict(
        &self,
        file: u32,
        owner: Option<u32>,
        range: ByteRange,
        mode: LockMode,
    ) -> bool {
        let file = self.files.get(file);
        file.is_some_and(|file| file.ranges.conflicts(owner, range, mode).next().is_some())
    }

    /// Revokes all state of the clients with conflicting locks, whose leases have expired.
    fn revoke_conflicts(
        &mut self,
        file: u32,
        owner: Option<u32>,
        range: ByteRange,
        mode: LockMode,
        now: Duration,
    ) -> Result<(), StateError> {
        let Some(file) = self.files.get(file) else {
            return Ok(());
        };
        let conflicts = file.ranges.conflicts(owner, range, mode);
        let states: Vec<u32> = conflicts.map(|one| one.state).collect();
        self.revoke_expired(&states, now)
    }

    fn describe(&self, conflict: &LockedRange) -> StateError {
        let record = self.states.get(conflict.state);
        let owner = self.lock_owners.get(conflict.owner);
        StateError::Denied(Box::new(LockConflict {
            range: conflict.range,
            mode: conflict.mode,
            client: record.map_or(ClientId(0), |record| record.client),
            owner: owner.map_or_else(|| [].into(), |owner| owner.name.clone()),
        }))
    }

    fn find_lock(
        &self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<u32, StateError> {
        let state = self.find_state(client, Some(file), stateid)?;
        match self.states.get(state) {
            Some(record) if matches!(record.detail, StateDetail::Lock(_)) => {
                record.check_sequence(stateid.sequence)?;
                Ok(state)
            }
            _ => Err(StateError::BadStateid),
        }
    }

    fn add_lock_state(
        &mut self,
        (client, index): (ClientId, u32),
        owner: &[u8],
        open: u32,
        file: u32,
        since: Duration,
    ) -> u32 {
        let owner = self.lock_owners.acquire(index, owner);
        self.files.share(file);
        let state = self.add_state(StateRecord {
            client,
            client_index: index,
            file,
            since,
            sequence: 1,
            detail: StateDetail::Lock(LockRecord { owner, open }),
        });
        self.lock_states.insert((owner, open), state);
        if let Some(open) = self.states.open_mut(open) {
            open.locks.insert(state);
        }
        state
    }

    /// Whether two more ranges, the most that one change adds, are within the limits.
    fn check_range_limits(&self, client: u32, file: u32) -> Result<(), StateError> {
        let of_file = self.files.get(file).map_or(0, |file| file.ranges.len());
        let of_client = self.clients.get(client).map_or(0, |client| client.ranges);
        let fits = of_file + 2 <= self.config.ranges_per_file
            && of_client + 2 <= self.config.ranges_per_client;
        fits.then_some(()).ok_or_else(|| self.no_room())
    }

    /// Frees all that is locked under an open, at once. Returns the lock states.
    pub(super) fn free_locks_of(&mut self, open: u32) -> BTreeSet<u32> {
        let record = self.states.get(open);
        let Some((record, known)) = record.zip(self.states.open(open)) else {
            return BTreeSet::new();
        };
        let (file, client, locks) = (record.file, record.client_index, known.locks.clone());
        self.free_ranges(file, client, &locks);
        locks
    }

    /// Frees all ranges that some lock states of a client have in a file.
    pub(super) fn free_ranges(&mut self, file: u32, client: u32, locks: &BTreeSet<u32>) {
        let known = self.files.get(file);
        let known = known.filter(|file| locks.iter().any(|lock| file.ranges.has_state(*lock)));
        if let Some(hull) = known.and_then(|file| file.ranges.hull(locks)) {
            self.change_ranges(file, client, hull, |ranges| ranges.unlock_states(locks));
        }
    }

    /// The name of the owner of a lock stateid.
    pub(super) fn lock_owner(&self, client: ClientId, stateid: &Stateid) -> Option<Arc<[u8]>> {
        let state = self.states.find(client, stateid).ok()?;
        let owner = self.lock_owners.get(self.states.lock(state)?.owner)?;
        Some(owner.name.clone())
    }

    /// Changes ranges of a client on a file, within one of them. Waiters are told before the next
    /// event is taken.
    pub(super) fn change_ranges(
        &mut self,
        index: u32,
        client: u32,
        within: ByteRange,
        change: impl FnOnce(&mut LockedRanges),
    ) {
        let Some(key) = self.files.get(index).map(|file| file.key) else {
            return;
        };
        let on_host = self.host_union(&key, within);
        let Some(file) = self.files.get_mut(index) else {
            return;
        };
        let before = file.ranges.len();
        change(&mut file.ranges);
        let after = file.ranges.len();
        if !file.waiters.is_empty() && !self.freed.contains(&index) {
            self.freed.push(index);
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.ranges = (client.ranges + after).saturating_sub(before);
        }
        if let Some(on_host) = on_host {
            self.settle_host(&key, within, &on_host);
        }
    }
}
