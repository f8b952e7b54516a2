//! Opens and what they allow (RFC 8881 sections 9.7, 18.2, 18.16 and 18.18).

use std::collections::BTreeSet;
use std::time::Duration;

use millrace_store::FileHold;

use super::StateError;
use super::clients::ClientId;
use super::delegations::FileUse;
use super::files::FileKey;
use super::home::StateHome;
use super::share::ShareMode;
use super::stateid::{EarlierOpen, OpenRecord, Revocation, StateDetail, StateRecord, Stateid};
use super::sweeps::StateSweep;

/// What OPEN returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOutcome {
    /// The open.
    pub stateid: Stateid,
    /// Whether it was joined with an earlier one of the same owner.
    pub joined: bool,
    /// The access that is open now.
    pub access: ShareMode,
    /// The access that is denied now.
    pub deny: ShareMode,
}

/// What an operation does with the data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// SETATTR of the size.
    SetSize,
}

impl IoKind {
    /// The access that it needs.
    #[must_use]
    pub fn access(self) -> ShareMode {
        match self {
            Self::Read => ShareMode::READ,
            Self::Write | Self::SetSize => ShareMode::WRITE,
        }
    }
}

/// By what I/O is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoGrant {
    /// By a stateid of the client. The file was opened for this.
    Open,
    /// By nothing but the permissions of the caller, which remain to be checked.
    Permissions,
}

/// What an open is about, beside its file and its share mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTerms {
    /// Whether it was granted before the server's restart.
    pub reclaims: bool,
    /// Whether the file outlives the process.
    pub is_lasting: bool,
    /// Whether a delegation of such a file may come with it.
    pub is_delegable: bool,
    /// Whether other servers may open the file as well.
    pub is_shared: bool,
}

impl StateHome {
    /// Opens a file that ends with the process, or joins an open of the same owner.
    ///
    /// # Errors
    /// Those of [`open_under`](Self::open_under).
    pub fn open(
        &mut self,
        client: ClientId,
        owner: &[u8],
        key: FileKey,
        access: ShareMode,
        deny: ShareMode,
        now: Duration,
    ) -> Result<OpenOutcome, StateError> {
        let terms = OpenTerms::default();
        self.open_under(terms, client, owner, key, (access, deny), now)
    }

    /// Opens a file, or joins an open of the same owner.
    ///
    /// # Errors
    /// [`StateError::Inval`] without access, [`StateError::Grace`] before the client's
    /// RECLAIM_COMPLETE and in the grace period, [`StateError::ShareDenied`], and
    /// [`StateError::NoSpc`] or [`StateError::Delay`] at limits; for reclaims
    /// [`StateError::NoGrace`], [`StateError::ReclaimConflict`], and [`StateError::ReclaimBad`] of
    /// what is not granted here. [`StateError::Unannounced`], [`StateError::Unrecorded`], and
    /// [`StateError::BadSession`] if the client is gone.
    pub fn open_under(
        &mut self,
        terms: OpenTerms,
        client: ClientId,
        owner: &[u8],
        key: FileKey,
        (access, deny): (ShareMode, ShareMode),
        now: Duration,
    ) -> Result<OpenOutcome, StateError> {
        if access.is_none() {
            return Err(StateError::Inval);
        }
        let holder = self.check_grant(client, terms.reclaims, now)?;
        if let Some(file) = self.files.find(&key) {
            let file_use = match access.meets(ShareMode::WRITE) || deny.meets(ShareMode::READ) {
                true => FileUse::Change,
                false => FileUse::Read,
            };
            self.settle_delegations(Some(holder), file, file_use, now)?;
            let settled = self.settle_share_conflict(holder, file, (access, deny), now);
            settled.map_err(|error| match error {
                StateError::ShareDenied if terms.reclaims => StateError::ReclaimConflict,
                error => error,
            })?;
        }
        if terms.is_shared {
            self.check_announced(&key, (access, deny), terms.reclaims)?;
        }
        if terms.is_lasting {
            self.require_record(holder, !deny.is_none() || terms.is_delegable)?;
        }
        let file = self.files.find(&key);
        let known = file.and_then(|file| {
            let owner = self.open_owners.find(holder, owner)?;
            self.opens.get(&(owner, file)).copied()
        });
        let state = match known {
            Some(state) => self.join_open(state, access, deny),
            None => {
                self.make_room_for_open(holder, file, now)?;
                self.add_open((client, holder), owner, key, (access, deny), now)
            }
        };
        let open = self.states.open(state).ok_or(StateError::BadStateid)?;
        self.states.publish(state, &key, open.access);
        self.announced_shares.note_use(&key);
        Ok(OpenOutcome {
            stateid: self.states.stateid(state),
            joined: known.is_some(),
            access: open.access,
            deny: open.deny,
        })
    }

    /// Keeps a file when its last name is removed, for as long as it has state.
    pub fn hold(&mut self, file: &FileKey, hold: FileHold) {
        self.files.hold(file, hold);
    }

    /// Reduces an open to the union of some of the OPENs that it was joined of.
    ///
    /// # Errors
    /// [`StateError::Inval`] for anything else, and those of stateids.
    pub fn open_downgrade(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        access: ShareMode,
        deny: ShareMode,
    ) -> Result<Stateid, StateError> {
        let state = self.find_open(client, file, stateid)?;
        let open = self.states.open(state).ok_or(StateError::BadStateid)?;
        let (joined, joined_access, joined_deny) =
            ShareMode::pairs_within(open.joined, access, deny);
        if access.is_none() || (joined_access, joined_deny) != (access, deny) {
            return Err(StateError::Inval);
        }
        self.change_open(state, access, deny, joined);
        Ok(self.states.stateid(state))
    }

    /// Undoes the OPEN that a stateid was made for, as its client is not told of it, unless the open
    /// was changed since.
    pub fn undo_open(&mut self, client: ClientId, file: &FileKey, stateid: &Stateid) {
        let Ok(state) = self.find_open(client, file, stateid) else {
            return;
        };
        let open = self.states.open_mut(state);
        match open.and_then(|open| open.before.take()) {
            Some(before) => {
                self.change_open(state, before.access, before.deny, before.joined);
                if let Some(record) = self.states.get_mut(state) {
                    record.sequence = before.sequence;
                }
            }
            None => self.remove_state(state),
        }
    }

    /// Ends an open with the lock states that began with it. Returns a stateid that no operation
    /// accepts.
    ///
    /// # Errors
    /// Those of stateids.
    pub fn close(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        _now: Duration,
    ) -> Result<Stateid, StateError> {
        let state = self.find_open(client, file, stateid)?;
        for lock in self.free_locks_of(state) {
            self.remove_state(lock);
        }
        self.remove_state(state);
        Ok(Stateid::INVALID)
    }

    /// Whether I/O on a file is allowed. With a special stateid, and for other protocols with
    /// [`Stateid::ANONYMOUS`], what opens deny decides.
    ///
    /// # Errors
    /// [`StateError::OpenMode`], [`StateError::Locked`], and those of stateids.
    pub fn check_io(
        &mut self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
        kind: IoKind,
        now: Duration,
    ) -> Result<IoGrant, StateError> {
        let access = kind.access();
        if stateid.is_special() {
            let file_use = match kind {
                IoKind::Read => FileUse::Read,
                IoKind::Write | IoKind::SetSize => FileUse::Change,
            };
            self.check_delegations(Some(client), file, file_use, now)?;
        }
        if *stateid == Stateid::READ_BYPASS && kind == IoKind::Read {
            return Ok(IoGrant::Permissions);
        }
        if *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS {
            return self.check_denials(file, access, now);
        }
        let state = self.find_state(client, Some(file), stateid)?;
        let record = self.states.get(state).ok_or(StateError::BadStateid)?;
        record.check_sequence(stateid.sequence)?;
        let open = match &record.detail {
            StateDetail::Open(open) => Some(open),
            StateDetail::Lock(lock) => self.states.open(lock.open),
            StateDetail::Delegation(_) => return self.check_delegated_io(state, kind, now),
            StateDetail::Revoked(_) => None,
        };
        let opened = open.ok_or(StateError::BadStateid)?.access;
        self.states.publish(state, file, opened);
        if opened.includes(access) {
            return Ok(IoGrant::Open);
        }
        if kind == IoKind::Read {
            // Clients read the rest of a page that they write in part.
            return self.check_denials(file, access, now);
        }
        Err(StateError::OpenMode)
    }

    /// Revokes state of a client by order of an administrator. A lock goes with its open.
    ///
    /// # Errors
    /// [`StateError::BadStateid`] if there is none.
    pub fn revoke(&mut self, client: ClientId, stateid: &Stateid) -> Result<(), StateError> {
        let state = self.basis_of(self.states.find(client, stateid)?);
        self.withdraw_at_once(state);
        self.revoke_state(state, Revocation::Administrative);
        Ok(())
    }

    /// Refuses access that opens deny, unless all of those belong to clients with expired leases,
    /// which lose their state.
    fn check_denials(
        &mut self,
        file: &FileKey,
        access: ShareMode,
        now: Duration,
    ) -> Result<IoGrant, StateError> {
        self.advance_grace(now);
        if self.grace.may_be_denied() {
            return Err(StateError::Grace);
        }
        if let Some(file) = self.files.find(file)
            && !self.settle_denials(None, file, (access, ShareMode::NONE), now)?
        {
            return Err(StateError::Locked);
        }
        Ok(IoGrant::Permissions)
    }

    fn settle_share_conflict(
        &mut self,
        holder: u32,
        file: u32,
        wanted: (ShareMode, ShareMode),
        now: Duration,
    ) -> Result<(), StateError> {
        let is_settled = self.settle_denials(Some(holder), file, wanted, now)?;
        is_settled.then_some(()).ok_or(StateError::ShareDenied)
    }

    /// Whether an access and a denial no longer conflict with opens. Clients with expired leases that
    /// have conflicting opens lose all of their state, but only if no other opens conflict.
    fn settle_denials(
        &mut self,
        holder: Option<u32>,
        file: u32,
        (access, deny): (ShareMode, ShareMode),
        now: Duration,
    ) -> Result<bool, StateError> {
        let Some(known) = self.files.get(file) else {
            return Ok(true);
        };
        if !known.shares.deny().meets(access) && !known.shares.access().meets(deny) {
            return Ok(true);
        }
        let mut expired = Vec::new();
        for &state in &known.opens {
            let Some(open) = self.states.open(state) else {
                continue;
            };
            if !open.deny.meets(access) && !open.access.meets(deny) {
                continue;
            }
            let client = self.states.get(state).map(|record| record.client_index);
            match client.filter(|&client| Some(client) != holder) {
                Some(client) if self.is_expired(client, now) => expired.push(state),
                _ => return Ok(false),
            }
        }
        self.revoke_expired(&expired, now)?;
        Ok(true)
    }

    /// The index of a client that may get state without a reclaim.
    pub(super) fn check_reclaimed(&self, client: ClientId) -> Result<u32, StateError> {
        let index = self.clients.find(client).ok_or(StateError::BadSession)?;
        match self.clients.get(index) {
            Some(known) if known.reclaim_complete && !self.grace.is_active() => Ok(index),
            Some(_) => Err(StateError::Grace),
            None => Err(StateError::BadSession),
        }
    }

    /// State of a client in force. Its kind and its sequence number are not compared.
    pub(super) fn find_state(
        &self,
        client: ClientId,
        file: Option<&FileKey>,
        stateid: &Stateid,
    ) -> Result<u32, StateError> {
        let state = self.states.find(client, stateid)?;
        let record = self.states.get(state).ok_or(StateError::BadStateid)?;
        let known = self.files.get(record.file);
        if file.is_some_and(|file| known.is_none_or(|known| known.key != *file)) {
            return Err(StateError::BadStateid);
        }
        record.check_in_force()?;
        Ok(state)
    }

    pub(super) fn find_open(
        &self,
        client: ClientId,
        file: &FileKey,
        stateid: &Stateid,
    ) -> Result<u32, StateError> {
        let state = self.find_state(client, Some(file), stateid)?;
        match self.states.get(state) {
            Some(record) if matches!(record.detail, StateDetail::Open(_)) => {
                record.check_sequence(stateid.sequence)?;
                Ok(state)
            }
            _ => Err(StateError::BadStateid),
        }
    }

    /// Makes sure that there is room for another open.
    fn make_room_for_open(
        &mut self,
        holder: u32,
        file: Option<u32>,
        now: Duration,
    ) -> Result<(), StateError> {
        self.make_room_for_state(holder, now)?;
        let is_full = |home: &Self| {
            let opens = file.and_then(|file| home.files.get(file));
            opens.is_some_and(|file| file.opens.len() >= home.config.opens_per_file)
        };
        if is_full(self) {
            self.sweep_states();
        }
        match is_full(self) {
            true => Err(self.no_room()),
            false => Ok(()),
        }
    }

    /// Makes sure that there is room for another piece of state.
    pub(super) fn make_room_for_state(
        &mut self,
        holder: u32,
        now: Duration,
    ) -> Result<(), StateError> {
        let client = self.clients.get(holder).ok_or(StateError::BadSession)?;
        if client.states.len() >= self.config.states_per_client {
            return Err(StateError::NoSpc);
        }
        let (id, address) = (client.id, client.address);
        let few = self.config.states_per_address;
        let free = self.config.states.saturating_sub(self.states.len());
        if !self.states_by_address.permits(address, few, free)
            && !self.remove_courteous(now, |one| {
                one.id != id && one.address == address && !one.states.is_empty()
            })
        {
            return Err(StateError::NoSpc);
        }
        while self.states.len() >= self.config.states {
            let is_sweep_in_front =
                matches!(self.sweeps.front(), Some(StateSweep::Departed { .. }));
            if is_sweep_in_front {
                self.sweep_states();
                continue;
            }
            if !self.remove_courteous(now, |one| one.id != id && !one.states.is_empty()) {
                return Err(StateError::Delay);
            }
        }
        Ok(())
    }

    fn add_open(
        &mut self,
        (client, holder): (ClientId, u32),
        owner: &[u8],
        key: FileKey,
        (access, deny): (ShareMode, ShareMode),
        since: Duration,
    ) -> u32 {
        let owner = self.open_owners.acquire(holder, owner);
        let file = self.files.acquire(key);
        let state = self.add_state(StateRecord {
            client,
            client_index: holder,
            file,
            since,
            sequence: 1,
            detail: StateDetail::Open(OpenRecord {
                owner,
                access,
                deny,
                joined: ShareMode::pair_bit(access, deny),
                before: None,
                locks: BTreeSet::new(),
            }),
        });
        self.opens.insert((owner, file), state);
        if let Some(known) = self.files.get_mut(file) {
            known.opens.insert(state);
            known.shares.count(access, deny, true);
        }
        state
    }

    fn join_open(&mut self, state: u32, access: ShareMode, deny: ShareMode) -> u32 {
        let sequence = self.states.stateid(state).sequence;
        if let Some(open) = self.states.open_mut(state) {
            open.before = Some(EarlierOpen {
                sequence,
                access: open.access,
                deny: open.deny,
                joined: open.joined,
            });
            let joined = open.joined | ShareMode::pair_bit(access, deny);
            let (access, deny) = (open.access.union(access), open.deny.union(deny));
            self.change_open(state, access, deny, joined);
        }
        state
    }

    fn change_open(&mut self, state: u32, access: ShareMode, deny: ShareMode, joined: u16) {
        let Some(record) = self.states.get_mut(state) else {
            return;
        };
        record.advance();
        let file = record.file;
        if let StateDetail::Open(open) = &mut record.detail
            && let Some(known) = self.files.get_mut(file)
        {
            known.shares.count(open.access, open.deny, false);
            known.shares.count(access, deny, true);
            self.announced_shares.note_change(&known.key);
            (open.access, open.deny, open.joined) = (access, deny, joined);
        }
        // The access of lock states is that of their open.
        for &lock in self.states.open(state).iter().flat_map(|open| &open.locks) {
            self.states.withdraw(lock);
        }
    }
}
