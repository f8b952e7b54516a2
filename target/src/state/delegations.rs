//! Delegations: when they are granted, and how they end (RFC 8881 sections 10.2 to 10.4).

use std::time::Duration;

use millrace_store::FileLease;

use super::StateError;
use super::callbacks::ReferringRequest;
use super::clients::ClientId;
use super::files::FileKey;
use super::home::StateHome;
use super::opens::{IoGrant, IoKind};
use super::share::ShareMode;
use super::stateid::{StateDetail, StateRecord, Stateid};

/// A delegation.
#[derive(Debug)]
pub(super) struct DelegationRecord {
    /// Whether it is for writing.
    pub writes: bool,
    /// The request that it was granted with.
    pub granted_by: Option<ReferringRequest>,
    /// Its place in the order of grants.
    pub serial: u64,
    /// Whether the file outlives the process, so that its holder may reclaim it after a restart.
    pub is_lasting: bool,
    /// The change number of the file that its holder begins with, if it is for writing.
    pub change: Option<u64>,
    /// When it was recalled, and when it is revoked if it is not returned.
    pub recall: Option<RecallTimes>,
    /// Keeps other servers from changing the file, where there are some.
    pub lease: Option<FileLease>,
}

/// The course of a recall.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecallTimes {
    /// Whether the time is over, and only the record of the holder is in the way.
    pub is_over: bool,
    pub began: Duration,
    pub ends: Duration,
}

/// The delegation that a client wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationWish {
    /// What the server finds useful.
    Unspecified,
    /// One for reading.
    Read,
    /// One for writing.
    Write,
    /// Any.
    Any,
    /// None.
    Nothing,
    /// None, and an earlier wish is withdrawn.
    Cancel,
}

/// Who changes a file beside the clients of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSharing {
    /// Nobody, so that all conflicts are known here.
    Sole,
    /// Others, unless there is a lease of the file.
    Leased,
    /// Others at any time.
    Unknown,
}

/// What OPEN asks for beside the open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationRequest {
    /// The wish of the client.
    pub wish: DelegationWish,
    /// Who else changes the file.
    pub sharing: FileSharing,
    /// Whether the file outlives the process.
    pub is_lasting: bool,
    /// The request.
    pub granted_by: Option<ReferringRequest>,
}

/// A delegation that was granted, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationOutcome {
    /// It was granted.
    Granted {
        /// Its stateid.
        stateid: Stateid,
        /// Whether it is for writing.
        writes: bool,
        /// Whether it is recalled already.
        is_recalled: bool,
    },
    /// One for reading is [granted with a lease](StateHome::delegate_leased) of the file.
    NeedsLease,
    /// None was wanted.
    NotWanted,
    /// An earlier wish was withdrawn.
    Cancelled,
    /// Others use the file, or did so a short time ago.
    Contention,
    /// Not to this client or for this file now.
    Resource,
}

/// How the use of a file by others conflicts with its delegations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// Contents are read.
    Read,
    /// Contents, attributes or names are changed.
    Change,
    /// The file is truncated to nothing.
    Truncate,
}

impl StateHome {
    /// Makes sure that no other client has a delegation that conflicts with the use of a file;
    /// `client` is `None` for other protocols. Delegations that do are recalled.
    ///
    /// # Errors
    /// [`StateError::Delay`] until they are returned or revoked.
    pub fn check_delegations(
        &mut self,
        client: Option<ClientId>,
        file: &FileKey,
        file_use: FileUse,
        now: Duration,
    ) -> Result<(), StateError> {
        let holder = client.and_then(|client| self.clients.find(client));
        match self.files.find(file) {
            Some(file) => self.settle_delegations(holder, file, file_use, now),
            None => Ok(()),
        }
    }

    /// The same for a use that no stateid stands for. It waits until no open that denies access can
    /// be reclaimed any more.
    ///
    /// # Errors
    /// [`StateError::Grace`], and as there.
    pub fn check_use(
        &mut self,
        client: Option<ClientId>,
        file: &FileKey,
        file_use: FileUse,
        now: Duration,
    ) -> Result<(), StateError> {
        self.advance_grace(now);
        if self.grace.may_be_denied() {
            return Err(StateError::Grace);
        }
        self.check_delegations(client, file, file_use, now)
    }

    /// Recalls the delegations that conflict with the use of a file. Clients with expired leases that
    /// have such ones lose all of their state.
    pub(super) fn settle_delegations(
        &mut self,
        holder: Option<u32>,
        file: u32,
        file_use: FileUse,
        now: Duration,
    ) -> Result<(), StateError> {
        let known = self
            .files
            .get(file)
            .filter(|file| !file.delegations.is_empty());
        let Some(known) = known else {
            return Ok(());
        };
        let mut is_settled = true;
        for state in known.delegations.clone() {
            let record = self.states.get(state);
            let Some((record, delegation)) =
                record.and_then(|record| Some((record, record.delegation()?)))
            else {
                continue;
            };
            let conflicts = delegation.writes || file_use != FileUse::Read;
            let client = record.client_index;
            // A lease is in the way of the own changes, too.
            let is_exempt = Some(client) == holder && delegation.lease.is_none();
            if !conflicts || is_exempt {
                continue;
            }
            if self.is_expired(client, now) {
                self.revoke_expired(&[state], now)?;
                continue;
            }
            is_settled = false;
            self.recall(state, file_use == FileUse::Truncate, now);
        }
        is_settled.then_some(()).ok_or(StateError::Delay)
    }

    /// Whether [`delegate`](Self::delegate) may grant a delegation that has to be recorded before,
    /// as its holder may reclaim it. Rather true than false.
    #[must_use]
    pub fn may_record_delegation(
        &self,
        client: ClientId,
        key: &FileKey,
        access: ShareMode,
        request: &DelegationRequest,
        now: Duration,
    ) -> bool {
        let is_wanted = match request.wish {
            DelegationWish::Nothing | DelegationWish::Cancel => false,
            // With an earlier open of its owner it may get more access than it asks for.
            DelegationWish::Unspecified => {
                access.includes(ShareMode::BOTH)
                    || self.delegation_history.was_opened(key)
                    || self.files.find(key).is_some()
            }
            _ => true,
        };
        let holder = self.clients.find(client);
        is_wanted
            && request.is_lasting
            && holder.is_some_and(|holder| self.may_delegate_to(holder, request))
            && !self.delegation_history.is_contended(key, now)
    }

    fn delegates(&self) -> bool {
        self.config.delegations && !self.config.handles_vary
    }

    /// Whether a client may have any delegation now.
    fn may_delegate_to(&self, holder: u32, request: &DelegationRequest) -> bool {
        let is_usual = self.delegates() && !self.grace.is_active();
        let is_shareable = match request.sharing {
            FileSharing::Sole => true,
            FileSharing::Leased => {
                let client = self.clients.get(holder);
                client.is_some_and(|client| !client.has_kept_lease)
            }
            FileSharing::Unknown => false,
        };
        is_usual && is_shareable && self.can_call(holder)
    }

    /// Grants a delegation with an open, if that is useful.
    pub fn delegate(
        &mut self,
        client: ClientId,
        key: FileKey,
        access: ShareMode,
        request: &DelegationRequest,
        now: Duration,
    ) -> DelegationOutcome {
        match self.choose_delegation(client, key, access, request, now) {
            Ok(_) if request.sharing == FileSharing::Leased => DelegationOutcome::NeedsLease,
            Ok((holder, writes)) => {
                self.grant_delegation((client, holder), key, writes, request, None, now)
            }
            Err(outcome) => outcome,
        }
    }

    /// The same for a delegation for reading that [needs a lease](DelegationOutcome::NeedsLease). The
    /// file may have been opened for writing meanwhile; without a lease it is used elsewhere.
    pub fn delegate_leased(
        &mut self,
        client: ClientId,
        key: FileKey,
        request: &DelegationRequest,
        lease: Option<FileLease>,
        now: Duration,
    ) -> DelegationOutcome {
        // If it is broken after this, that is told when the delegation is known.
        let Some(lease) = lease.filter(|lease| !lease.is_broken()) else {
            self.delegation_history.note_contention(key, now);
            return DelegationOutcome::Contention;
        };
        match self.choose_delegation(client, key, ShareMode::READ, request, now) {
            Ok((holder, _)) => {
                self.grant_delegation((client, holder), key, false, request, Some(lease), now)
            }
            Err(outcome) => outcome,
        }
    }

    /// The client that gets a delegation, and whether it is for writing; or why there is none.
    fn choose_delegation(
        &mut self,
        client: ClientId,
        key: FileKey,
        access: ShareMode,
        request: &DelegationRequest,
        now: Duration,
    ) -> Result<(u32, bool), DelegationOutcome> {
        match request.wish {
            DelegationWish::Nothing => return Err(DelegationOutcome::NotWanted),
            DelegationWish::Cancel => return Err(DelegationOutcome::Cancelled),
            _ => {}
        }
        let found = self.clients.find(client).zip(self.files.find(&key));
        let Some((holder, file)) =
            found.filter(|(holder, _)| self.may_delegate_to(*holder, request))
        else {
            return Err(DelegationOutcome::Resource);
        };
        let is_unspecified = request.wish == DelegationWish::Unspecified;
        let opened_before = is_unspecified && self.delegation_history.note_open(key);
        if self.delegation_history.is_contended(&key, now) {
            return Err(DelegationOutcome::Contention);
        }
        let Some(known) = self.files.get(file) else {
            return Err(DelegationOutcome::Resource);
        };
        let holder_of = |state: &u32| self.states.get(*state).map(|record| record.client_index);
        let is_own = |state: &u32| holder_of(state) == Some(holder);
        if known.delegations.iter().any(is_own) {
            // One for each client and file.
            return Err(DelegationOutcome::Resource);
        }
        let has_others = !known.delegations.is_empty() || !known.opens.iter().all(is_own);
        let is_sole = request.sharing == FileSharing::Sole;
        let can_write = access.includes(ShareMode::BOTH) && !has_others && is_sole;
        let is_written = known.shares.access().meets(ShareMode::WRITE)
            || known.delegations.iter().any(|&state| {
                let other = self.states.get(state).and_then(StateRecord::delegation);
                other.is_some_and(|other| other.writes)
            });
        let can_read = access.includes(ShareMode::READ)
            && !is_written
            && !known.shares.deny().meets(ShareMode::READ);
        let (wants_read, wants_write) = match request.wish {
            DelegationWish::Unspecified => (opened_before, true),
            DelegationWish::Read => (true, false),
            DelegationWish::Write => (false, true),
            _ => (true, true),
        };
        match (can_write && wants_write, can_read && wants_read) {
            (true, _) => Ok((holder, true)),
            (false, true) => Ok((holder, false)),
            _ if can_read => Err(DelegationOutcome::Resource),
            _ => Err(DelegationOutcome::Contention),
        }
    }

    fn grant_delegation(
        &mut self,
        (client, holder): (ClientId, u32),
        key: FileKey,
        writes: bool,
        request: &DelegationRequest,
        lease: Option<FileLease>,
        now: Duration,
    ) -> DelegationOutcome {
        if self.make_room_for_state(holder, now).is_err() {
            return DelegationOutcome::Resource;
        }
        let state = self.add_delegation((client, holder), key, writes, request, lease, now);
        DelegationOutcome::Granted {
            stateid: self.states.stateid(state),
            writes,
            is_recalled: false,
        }
    }

    /// Whether a delegation from before a restart can have been granted beside what others have
    /// reclaimed by now.
    ///
    /// # Errors
    /// [`StateError::ReclaimBad`] for a file that nobody can have had, and
    /// [`StateError::ReclaimConflict`].
    pub fn check_delegation_reclaim(
        &self,
        client: ClientId,
        key: &FileKey,
        writes: bool,
        request: &DelegationRequest,
    ) -> Result<(), StateError> {
        let can_have_been = match request.sharing {
            FileSharing::Sole => true,
            FileSharing::Leased => !writes,
            FileSharing::Unknown => false,
        };
        if !request.is_lasting || !can_have_been {
            return Err(StateError::ReclaimBad);
        }
        let holder = self.clients.find(client);
        let known = self.files.find(key).and_then(|file| self.files.get(file));
        let states = known
            .into_iter()
            .flat_map(|file| file.opens.iter().chain(&file.delegations));
        let conflicts = states
            .filter_map(|&state| self.states.get(state))
            .any(|record| {
                let is_written = match &record.detail {
                    StateDetail::Open(open) => open.access.meets(ShareMode::WRITE),
                    StateDetail::Delegation(other) => other.writes,
                    _ => false,
                };
                Some(record.client_index) != holder && (writes || is_written)
            });
        match conflicts {
            true => Err(StateError::ReclaimConflict),
            false => Ok(()),
        }
    }

    /// Grants a delegation from before a restart again, which was
    /// [checked](Self::check_delegation_reclaim). It is recalled at once if there are to be none
    /// any more (RFC 8881 section 10.2.1), and if its lease ended with the restart.
    pub fn reclaim_delegation(
        &mut self,
        client: ClientId,
        key: FileKey,
        writes: bool,
        request: &DelegationRequest,
        now: Duration,
    ) -> DelegationOutcome {
        let Some(holder) = self.clients.find(client) else {
            return DelegationOutcome::Resource;
        };
        let known = self.files.find(&key).and_then(|file| self.files.get(file));
        let own = known.and_then(|known| {
            let mut states = known.delegations.iter().copied();
            states.find(|&state| {
                let record = self.states.get(state);
                record.is_some_and(|record| record.client_index == holder)
            })
        });
        // A client names it with each of its opens.
        let state = match own {
            Some(state) => state,
            None if self.make_room_for_state(holder, now).is_err() => {
                return DelegationOutcome::Resource;
            }
            None => self.add_delegation((client, holder), key, writes, request, None, now),
        };
        if !self.delegates() || request.sharing != FileSharing::Sole {
            self.recall(state, false, now);
        }
        let delegation = self.states.get(state).and_then(StateRecord::delegation);
        DelegationOutcome::Granted {
            stateid: self.states.stateid(state),
            writes: delegation.is_some_and(|delegation| delegation.writes),
            is_recalled: delegation.is_some_and(|delegation| delegation.recall.is_some()),
        }
    }

    fn add_delegation(
        &mut self,
        (client, client_index): (ClientId, u32),
        key: FileKey,
        writes: bool,
        request: &DelegationRequest,
        lease: Option<FileLease>,
        since: Duration,
    ) -> u32 {
        let file = self.files.acquire(key);
        let latest = self.delegated.last_key_value();
        let serial = latest.map_or(0, |(serial, _)| serial + 1);
        let state = self.add_state(StateRecord {
            client,
            client_index,
            file,
            since,
            sequence: 1,
            detail: StateDetail::Delegation(DelegationRecord {
                writes,
                granted_by: request.granted_by,
                serial,
                is_lasting: request.is_lasting,
                change: None,
                recall: None,
                lease,
            }),
        });
        if let Some(known) = self.files.get_mut(file) {
            known.delegations.push(state);
        }
        self.delegated.insert(serial, state);
        self.delegation_guards.count(&key, true);
        self.publish_delegation(state);
        state
    }

    /// Takes the delegation from its file.
    pub(super) fn release_delegation(
        &mut self,
        state: u32,
        (client, file): (ClientId, u32),
        delegation: &DelegationRecord,
    ) {
        let stateid = self.states.stateid(state);
        self.callbacks.forget_recall(client, &stateid);
        self.delegated.remove(&delegation.serial);
        if let Some(known) = self.files.get_mut(file) {
            known.delegations.retain(|&one| one != state);
            self.delegation_guards.count(&known.key, false);
        }
        if let Some(recall) = delegation.recall {
            self.recalled.remove(&(recall.ends, state));
        }
    }

    /// Returns a delegation.
    ///
    /// # Errors
    /// Those of stateids.
    pub fn return_delegation(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<(), StateError> {
        let state = self.find_delegation(client, file, stateid)?;
        self.remove_state(state);
        Ok(())
    }

    /// Whether a client may open a file as one that it has delegated, which is also allowed while
    /// the delegation is recalled.
    ///
    /// # Errors
    /// Those of stateids.
    pub fn claim_delegation(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        now: Duration,
    ) -> Result<(), StateError> {
        let state = self.find_delegation(client, file, stateid)?;
        self.prolong_recall(state, now);
        Ok(())
    }

    /// Whether I/O with a delegation is allowed.
    pub(super) fn check_delegated_io(
        &mut self,
        state: u32,
        kind: IoKind,
        now: Duration,
    ) -> Result<IoGrant, StateError> {
        let record = self.states.get(state).ok_or(StateError::BadStateid)?;
        let delegation = record.delegation().ok_or(StateError::BadStateid)?;
        if kind != IoKind::Read && !delegation.writes {
            return Err(StateError::OpenMode);
        }
        if kind != IoKind::Read {
            self.prolong_recall(state, now);
        }
        self.publish_delegation(state);
        // The caller may be another user than the one of the open.
        Ok(IoGrant::Permissions)
    }

    /// Publishes what a delegation allows, unless it is recalled: then each WRITE prolongs the
    /// recall, and has to come here.
    fn publish_delegation(&self, state: u32) {
        let record = self.states.get(state);
        let known = record.and_then(|record| {
            let delegation = record.delegation().filter(|one| one.recall.is_none())?;
            Some((self.files.get(record.file)?, delegation))
        });
        if let Some((file, delegation)) = known {
            let access = match delegation.writes {
                true => ShareMode::BOTH,
                false => ShareMode::READ,
            };
            self.states.publish(state, &file.key, access);
        }
    }

    fn find_delegation(
        &self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<u32, StateError> {
        let state = self.find_state(client, Some(file), stateid)?;
        let record = self.states.get(state).ok_or(StateError::BadStateid)?;
        record.delegation().ok_or(StateError::BadStateid)?;
        record.check_sequence(stateid.sequence)?;
        Ok(state)
    }
}
