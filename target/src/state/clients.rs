//! Clients: who they are, and how they come and go (RFC 8881 section 18.35).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::backchannel::Backchannel;
use super::create_session::{SessionGrant, SessionOrigin};
use super::durable::RecordNote;
use super::home::{StateEvent, StateHome};
use super::protection::{GuardedOperation, GuardedOperations, StateCaller, StateProtection};
use super::reports::StateCounts;
use super::sweeps::StateSweep;
use super::table::{AssignedMap, IndexedTable};
use super::{SessionId, StateError};

/// For how many leases more a silent client has what others may want who cannot ask this server for it:
/// locks that the host has taken as well, and what other gateways are told of.
const LEASES_OF_OTHERS: u32 = 3;

/// Most clients that are removed at once as their leases have run out. The others are next.
const EXPIRED_AT_ONCE: usize = 256;

/// How often the lease of a silent client is looked at.
const SILENT_CHECK: Duration = Duration::from_secs(1);

/// A client, as sessions and state refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// What EXCHANGE_ID asks for.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeRequest<'a> {
    /// The client owner.
    pub owner: &'a [u8],
    /// The instance of the client.
    pub verifier: [u8; 8],
    /// Who calls.
    pub caller: &'a StateCaller,
    /// What the machine credential is to protect, if anything. A confirmed record keeps what it
    /// has.
    pub guarded: Option<GuardedOperations>,
    /// Whether a confirmed record is to be updated.
    pub update: bool,
}

/// What EXCHANGE_ID returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeOutcome {
    /// The client.
    pub client_id: ClientId,
    /// The sequence number of its next CREATE_SESSION.
    pub sequence_id: u32,
    /// Whether a session has confirmed it.
    pub confirmed: bool,
    /// What its machine credential protects, if it has one.
    pub guarded: Option<GuardedOperations>,
}

/// A record of a client.
#[derive(Debug)]
pub(super) struct LeasedClient {
    pub id: ClientId,
    pub owner: Box<[u8]>,
    pub verifier: [u8; 8],
    pub principal: Box<[u8]>,
    pub protection: Option<StateProtection>,
    /// Where its latest session came from, and the minor version of the protocol there.
    pub origin: Option<SessionOrigin>,
    /// The address of its first session, for which its state counts.
    pub address: Option<IpAddr>,
    pub is_confirmed: bool,
    /// When its lease is looked at next.
    pub lease_check: Duration,
    /// When its lease began: it was made or confirmed.
    pub lease_began: Duration,
    /// The longest lease that it may have been told of.
    pub lease_told: Duration,
    /// Sequence number of the last CREATE_SESSION.
    pub sequence: u32,
    /// What that returned.
    pub created: Result<SessionGrant, StateError>,
    pub sessions: Vec<ClientSession>,
    pub reclaim_complete: bool,
    /// Whether it has said so. Its record may still be waited for.
    pub completes: bool,
    /// Whether it had state before the server's restart.
    pub may_reclaim: bool,
    /// Its durable record, if it has one or will have it.
    pub record: Option<RecordNote>,
    /// Whether it has had state that outlives the process.
    pub wants_record: bool,
    /// Serial number of the removal of its record.
    pub withdrawn: u64,
    /// State by index, revoked one included.
    pub states: BTreeSet<u32>,
    /// State in force, by kind.
    pub counts: StateCounts,
    /// State revoked with an expired lease.
    pub expired_states: usize,
    /// State revoked by an administrator.
    pub admin_revoked_states: usize,
    /// Delegations revoked as they were not returned.
    pub unreturned_states: usize,
    /// Delegations that are revoked as soon as it has no record.
    pub overdue_recalls: usize,
    /// It has not returned a delegation while others waited for its lease: it gets no more of them.
    pub has_kept_lease: bool,
    /// It has been silent for long, and has nothing that others may want elsewhere.
    is_out_of_the_way: bool,
    /// All state that it had some time ago is being revoked.
    pub is_swept: bool,
    /// Locked ranges.
    pub ranges: usize,
}

/// A session of a client as its home knows it.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub id: SessionId,
    /// The address that it counts for.
    pub address: Option<IpAddr>,
    /// When its end was asked for first, while requests were executed.
    pub draining: Option<Duration>,
    pub back: Backchannel,
}

/// The records of an owner: at most one confirmed and one unconfirmed.
#[derive(Debug, Default)]
struct OwnerRecords {
    confirmed: Option<u32>,
    unconfirmed: Option<u32>,
}

/// All clients.
#[derive(Debug)]
pub(super) struct ClientTables {
    /// The random half of client IDs.
    start: u32,
    serial: u32,
    records: IndexedTable<LeasedClient>,
    by_id: AssignedMap<ClientId, u32>,
    by_owner: HashMap<Box<[u8]>, OwnerRecords>,
    /// Unconfirmed records, the oldest first.
    unconfirmed: BTreeSet<(ClientId, u32)>,
    /// When each lease is to be looked at: it does not run out before.
    lease_checks: BTreeSet<(Duration, u32)>,
    /// Clients whose lease had run out when it was looked at.
    silent: BTreeSet<u32>,
}

impl ClientTables {
    pub fn new(start: [u8; 16]) -> Self {
        let [.., a, b, c, d] = start;
        Self {
            start: u32::from_be_bytes([a, b, c, d]),
            serial: 0,
            records: IndexedTable::default(),
            by_id: AssignedMap::default(),
            by_owner: HashMap::new(),
            unconfirmed: BTreeSet::new(),
            lease_checks: BTreeSet::new(),
            silent: BTreeSet::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Clients, and those that are gone but for some of their state.
    fn indexes(&self) -> usize {
        self.records.len()
    }

    /// Lets the index of a client be used again whose state is gone, too.
    pub fn free_index(&mut self, index: u32) {
        self.records.free_index(index);
    }

    pub fn get(&self, index: u32) -> Option<&LeasedClient> {
        self.records.get(index)
    }

    pub fn get_mut(&mut self, index: u32) -> Option<&mut LeasedClient> {
        self.records.get_mut(index)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut LeasedClient)> {
        self.records.iter_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &LeasedClient)> {
        self.records.iter()
    }

    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &LeasedClient)> {
        self.records.iter_from(first)
    }

    pub fn find(&self, id: ClientId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The confirmed record of an owner.
    pub fn confirmed(&self, owner: &[u8]) -> Option<u32> {
        self.by_owner.get(owner)?.confirmed
    }

    /// The unconfirmed record of an owner.
    pub fn unconfirmed(&self, owner: &[u8]) -> Option<u32> {
        self.by_owner.get(owner)?.unconfirmed
    }

    /// The oldest unconfirmed record, and how many there are.
    fn oldest_unconfirmed(&self) -> Option<(u32, usize)> {
        let (_, index) = self.unconfirmed.first()?;
        Some((*index, self.unconfirmed.len()))
    }

    fn new_id(&mut self) -> ClientId {
        loop {
            self.serial = self.serial.wrapping_add(1);
            let id = ClientId(u64::from(self.start) << 32 | u64::from(self.serial));
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    fn add(&mut self, request: &ExchangeRequest<'_>, now: Duration) -> u32 {
        let id = self.new_id();
        let ExchangeRequest {
            owner,
            verifier,
            caller: StateCaller { principal, .. },
            ..
        } = *request;
        let protection = request.guarded.map(|operations| StateProtection {
            principal: principal.clone(),
            operations,
        });
        let index = self.records.insert(LeasedClient {
            id,
            owner: owner.into(),
            verifier,
            principal: principal.clone(),
            protection,
            origin: None,
            address: None,
            is_confirmed: false,
            lease_check: now,
            lease_began: now,
            lease_told: Duration::ZERO,
            sequence: 0,
            created: Err(StateError::SeqMisordered),
            sessions: Vec::new(),
            reclaim_complete: false,
            completes: false,
            may_reclaim: false,
            record: None,
            wants_record: false,
            withdrawn: 0,
            states: BTreeSet::new(),
            counts: StateCounts::default(),
            expired_states: 0,
            admin_revoked_states: 0,
            unreturned_states: 0,
            overdue_recalls: 0,
            has_kept_lease: false,
            is_out_of_the_way: false,
            is_swept: false,
            ranges: 0,
        });
        self.by_id.insert(id, index);
        self.unconfirmed.insert((id, index));
        self.lease_checks.insert((now, index));
        let records = self.by_owner.entry(owner.into()).or_default();
        records.unconfirmed = Some(index);
        index
    }

    /// Makes a record the confirmed one of its owner. There is no other.
    pub fn confirm(&mut self, index: u32, address: Option<IpAddr>, now: Duration) {
        let Some(client) = self.records.get_mut(index) else {
            return;
        };
        client.is_confirmed = true;
        client.address = address;
        self.unconfirmed.remove(&(client.id, index));
        client.lease_began = now;
        if let Some(records) = self.by_owner.get_mut(&client.owner) {
            records.unconfirmed = None;
            records.confirmed = Some(index);
        }
    }

    /// Clients whose leases are to be looked at now.
    fn due_leases(&self, now: Duration) -> Vec<u32> {
        let due = self.lease_checks.range(..(now, u32::MAX));
        due.map(|(_, index)| *index).collect()
    }

    /// Clients whose leases may have run out.
    pub fn maybe_silent(&self, now: Duration) -> impl Iterator<Item = u32> {
        let due = self.due_leases(now).into_iter();
        let others = due.filter(|index| !self.silent.contains(index));
        self.silent.iter().copied().chain(others)
    }

    /// Has a lease looked at later.
    fn check_lease_at(&mut self, index: u32, at: Duration, is_silent: bool) {
        let Some(client) = self.records.get_mut(index) else {
            return;
        };
        let before = std::mem::replace(&mut client.lease_check, at);
        self.lease_checks.remove(&(before, index));
        self.lease_checks.insert((at, index));
        match is_silent {
            true => self.silent.insert(index),
            false => self.silent.remove(&index),
        };
    }

    /// Removes a client. Its index stays in use, as its state is still there.
    fn remove(&mut self, index: u32) -> Option<LeasedClient> {
        let client = self.records.take(index)?;
        self.by_id.remove(&client.id);
        self.lease_checks.remove(&(client.lease_check, index));
        self.silent.remove(&index);
        self.unconfirmed.remove(&(client.id, index));
        if let Some(records) = self.by_owner.get_mut(&client.owner) {
            for record in [&mut records.confirmed, &mut records.unconfirmed] {
                if *record == Some(index) {
                    *record = None;
                }
            }
            if records.confirmed.is_none() && records.unconfirmed.is_none() {
                self.by_owner.remove(&client.owner);
            }
        }
        Some(client)
    }
}

impl StateHome {
    /// Finds or makes the record of a client owner.
    ///
    /// # Errors
    /// [`StateError::ClidInuse`], and with `update` [`StateError::NoEnt`],
    /// [`StateError::NotSame`], [`StateError::Perm`]. [`StateError::Delay`] if there are too many
    /// clients.
    pub fn exchange_id(
        &mut self,
        request: &ExchangeRequest<'_>,
        now: Duration,
    ) -> Result<ExchangeOutcome, StateError> {
        let &ExchangeRequest {
            owner,
            verifier,
            caller,
            update,
            ..
        } = request;
        let confirmed = self.clients.confirmed(owner);
        if let Some((index, client)) =
            confirmed.and_then(|index| Some((index, self.clients.get(index)?)))
        {
            let is_same = client.verifier == verifier;
            let by_same = match &client.protection {
                Some(protection) => protection.is_by(caller),
                None => client.principal == caller.principal,
            };
            match (update, is_same, by_same) {
                (true, false, _) => return Err(StateError::NotSame),
                (true, true, false) => return Err(StateError::Perm),
                (_, true, true) => return Ok(client.exchanged()),
                // A restart of the client: its old record lives until the new one is confirmed.
                (false, false, true) => {}
                (false, _, false) => {
                    let is_kept = !client.states.is_empty() || client.protection.is_some();
                    if is_kept && !self.is_expired(index, now) {
                        return Err(StateError::ClidInuse);
                    }
                    self.remove_client(index);
                }
            }
        } else if update {
            return Err(StateError::NoEnt);
        }
        if let Some(index) = self.clients.unconfirmed(owner) {
            self.remove_client(index);
        }
        if !self.make_room_for_client(now) {
            return Err(StateError::Delay);
        }
        let index = self.clients.add(request, now);
        let client = self.clients.get(index);
        Ok(client.expect("it was added").exchanged())
    }

    /// Refuses an operation on a client that needs its machine credential. The session that confirms
    /// a client needs it in any case (RFC 8881 section 18.35.3).
    ///
    /// # Errors
    /// [`StateError::WrongCred`].
    pub fn check_caller(
        &self,
        client: ClientId,
        operation: GuardedOperation,
        caller: &StateCaller,
    ) -> Result<(), StateError> {
        let known = self.clients.find(client);
        let Some(client) = known.and_then(|index| self.clients.get(index)) else {
            return Ok(());
        };
        let Some(protection) = &client.protection else {
            return Ok(());
        };
        let confirms = !client.is_confirmed && operation == GuardedOperation::CreateSession;
        if confirms && !protection.is_by(caller) {
            return Err(StateError::WrongCred);
        }
        protection.check(operation, caller)
    }

    /// Removes a client that has neither sessions nor state.
    ///
    /// # Errors
    /// [`StateError::StaleClientid`], [`StateError::ClientidBusy`].
    pub fn destroy_client(&mut self, client: ClientId, now: Duration) -> Result<(), StateError> {
        let index = self.live_record(client, now)?;
        let known = self.clients.get(index).ok_or(StateError::StaleClientid)?;
        let is_used = !known.sessions.is_empty() || !known.states.is_empty();
        if is_used && !self.is_expired(index, now) {
            return Err(StateError::ClientidBusy);
        }
        self.remove_client(index);
        Ok(())
    }

    /// Clients, confirmed or not.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Whether the lease of a client has run out. One that is gone has none.
    pub(super) fn is_expired(&self, index: u32, now: Duration) -> bool {
        self.clients.get(index).is_none() || now > self.lease_end(index)
    }

    /// When the lease of a client runs out, if nothing renews it.
    pub(super) fn lease_end(&self, index: u32) -> Duration {
        let client = self.clients.get(index);
        let began = client.map(|client| client.lease_began);
        let told = client.map(|client| client.lease_told);
        let renewed = self.leases.latest(index);
        let lease = told.unwrap_or_default().max(self.config.lease);
        began.unwrap_or_default().max(renewed) + lease
    }

    /// The record of a client ID, unless it was never confirmed and has expired.
    pub(super) fn live_record(&mut self, id: ClientId, now: Duration) -> Result<u32, StateError> {
        let index = self.clients.find(id).ok_or(StateError::StaleClientid)?;
        let unconfirmed = self.clients.get(index).filter(|one| !one.is_confirmed);
        if unconfirmed.is_some() && self.is_expired(index, now) {
            self.remove_client(index);
            return Err(StateError::StaleClientid);
        }
        Ok(index)
    }

    /// Removes expired clients: unconfirmed ones after a lease, others after the courtesy period
    /// too. Ends the grace period. To be called about once a second.
    ///
    /// Clients that have what others may want without this server's knowledge lose their state
    /// earlier.
    pub fn expire_clients(&mut self, now: Duration) {
        let mut removed = 0;
        for index in self.clients.due_leases(now) {
            let Some(client) = self.clients.get(index) else {
                continue;
            };
            let courtesy = match client.is_confirmed {
                true => self.config.courtesy,
                false => Duration::ZERO,
            };
            let end = self.lease_end(index);
            if now <= end {
                self.clear_the_way(index, false, now);
                self.clients.check_lease_at(index, end, false);
            } else if now <= end.saturating_add(courtesy) {
                let others = self.config.lease * LEASES_OF_OTHERS;
                self.clear_the_way(index, now > end.saturating_add(others), now);
                let next = (now + SILENT_CHECK).min(end.saturating_add(courtesy));
                self.clients.check_lease_at(index, next, true);
            } else if removed < EXPIRED_AT_ONCE {
                removed += 1;
                self.remove_client(index);
            }
        }
        self.advance_grace(now);
        self.restore_records(now);
    }

    /// Has a client that was silent for long lose its state, if others may want it elsewhere. Its
    /// state is searched until there is none: it gets no more while it is silent.
    fn clear_the_way(&mut self, index: u32, is_long_silent: bool, now: Duration) {
        let client = self.clients.get(index);
        if client.is_none_or(|client| client.is_out_of_the_way == is_long_silent) {
            return;
        }
        let wanted = match is_long_silent {
            true => self.met_by_others(index),
            false => Vec::new(),
        };
        if wanted.is_empty() {
            if let Some(client) = self.clients.get_mut(index) {
                client.is_out_of_the_way = is_long_silent;
            }
            return;
        }
        // What has to be durable before is tried again at the next check.
        let _ = self.revoke_expired(&wanted, now);
    }

    /// Makes room for another client. If the table is full, the oldest unconfirmed client is
    /// removed if it has expired, or if such clients fill half of the table: a live client confirms
    /// at once. Otherwise the client with the lease that expired first is removed.
    fn make_room_for_client(&mut self, now: Duration) -> bool {
        let most = self.config.clients as usize;
        if self.clients.indexes() >= most {
            self.sweep_states();
        }
        if self.clients.indexes() < most {
            return true;
        }
        if self.clients.len() < most {
            // Others are about to leave room.
            return false;
        }
        if let Some((oldest, count)) = self.clients.oldest_unconfirmed()
            && (self.is_expired(oldest, now) || count > most / 2)
        {
            self.remove_client(oldest);
        } else if !self.remove_courteous(now, |_| true) {
            return false;
        }
        self.clients.indexes() < most
    }

    /// Removes the client with the lease that expired first among some; returns whether there was
    /// one.
    pub(super) fn remove_courteous(
        &mut self,
        now: Duration,
        among: impl Fn(&LeasedClient) -> bool,
    ) -> bool {
        if now <= self.earliest_lease_end {
            return false;
        }
        let clients = self.clients.iter();
        let ends = clients.map(|(index, client)| (self.lease_end(index), index, among(client)));
        let (mut earliest, mut found) = (Duration::MAX, None::<(Duration, u32)>);
        for (end, index, is_among) in ends {
            earliest = earliest.min(end);
            let is_over = is_among && now > end;
            if is_over && found.is_none_or(|(first, _)| end < first) {
                found = Some((end, index));
            }
        }
        self.earliest_lease_end = earliest;
        let Some((_, index)) = found else {
            return false;
        };
        self.remove_client(index);
        true
    }

    /// Removes a client with its sessions. Its state goes in steps; nobody waits for that.
    pub(super) fn remove_client(&mut self, index: u32) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        let sessions: Vec<SessionId> = client.sessions.iter().map(|one| one.id).collect();
        for session in sessions {
            self.end_session(index, session);
        }
        let Some(client) = self.clients.remove(index) else {
            return;
        };
        let (address, states) = (client.address, client.states);
        self.states_by_address.remove(address, states.len());
        if client.is_confirmed {
            if client.record.is_some() {
                self.forget_client(client.id, &client.owner, !states.is_empty());
            } else {
                self.records.wait_for(client.withdrawn);
            }
            let client = client.id;
            self.events.push_back(StateEvent::ClientRemoved { client });
        }
        self.begin_sweep(StateSweep::Departed { index, states });
    }
}

impl LeasedClient {
    fn exchanged(&self) -> ExchangeOutcome {
        ExchangeOutcome {
            client_id: self.id,
            sequence_id: self.sequence.wrapping_add(1),
            confirmed: self.is_confirmed,
            guarded: self.protection.as_ref().map(|one| one.operations),
        }
    }
}
