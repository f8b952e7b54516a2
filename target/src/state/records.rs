//! Addition, revocation and removal of state of any kind.

use std::collections::BTreeSet;

use super::clients::{ClientSession, LeasedClient};
use super::home::{StateEvent, StateHome};
use super::session::SessionConditions;
use super::stateid::{Revocation, RevokedRecord, StateDetail, StateRecord};

impl StateHome {
    /// Adds state to the table of all states and to that of its client.
    pub(super) fn add_state(&mut self, record: StateRecord) -> u32 {
        let index = record.client_index;
        let state = self.states.insert(record);
        let detail = self.states.get(state).map(|record| &record.detail);
        if let (Some(client), Some(detail)) = (self.clients.get_mut(index), detail) {
            client.states.insert(state);
            self.states_by_address.add(client.address);
            client.counts.count(detail, true);
        }
        self.publish_conditions(index);
        state
    }

    /// Takes what state has on its file away. The state itself stays, without force.
    fn release_state(&mut self, state: u32, reason: Revocation) -> Option<StateDetail> {
        let record = self.states.get_mut(state)?;
        let (file, id, client) = (record.file, record.client, record.client_index);
        let revoked = StateDetail::Revoked(RevokedRecord {
            reason,
            open: match &record.detail {
                StateDetail::Lock(lock) => Some(lock.open),
                _ => None,
            },
            locks: BTreeSet::new(),
        });
        let detail = std::mem::replace(&mut record.detail, revoked);
        if let Some(client) = self.clients.get_mut(client) {
            client.counts.count(&detail, false);
        }
        if let StateDetail::Open(open) = &detail {
            self.opens.remove(&(open.owner, file));
            self.open_owners.release(open.owner);
            if let Some(known) = self.files.get_mut(file) {
                known.opens.remove(&state);
                known.shares.count(open.access, open.deny, false);
                self.announced_shares.note_change(&known.key);
            }
        }
        if let StateDetail::Delegation(delegation) = &detail {
            if delegation.recall.is_some_and(|recall| recall.is_over)
                && let Some(client) = self.clients.get_mut(client)
            {
                client.overdue_recalls -= 1;
            }
            self.release_delegation(state, (id, file), delegation);
        }
        if let StateDetail::Lock(lock) = &detail {
            self.lock_states.remove(&(lock.owner, lock.open));
            self.lock_owners.release(lock.owner);
            if let Some(open) = self.states.open_mut(lock.open) {
                open.locks.remove(&state);
            }
            self.free_ranges(file, client, &BTreeSet::from([state]));
        }
        Some(detail)
    }

    /// Removes state altogether.
    pub(super) fn remove_state(&mut self, state: u32) {
        let was_revoked = self.release_state(state, Revocation::Administrative);
        let Some(record) = self.states.remove(state) else {
            return;
        };
        self.files.release(record.file);
        if let Some(client) = self.clients.get_mut(record.client_index) {
            client.states.remove(&state);
            self.states_by_address.remove(client.address, 1);
            if let Some(StateDetail::Revoked(revoked)) = was_revoked {
                *client.revoked_states(revoked.reason) -= 1;
            }
        }
        self.publish_conditions(record.client_index);
    }

    /// State of a client that is in the way of processes of the host or of clients of other gateways.
    pub(super) fn met_by_others(&self, client: u32) -> Vec<u32> {
        let states = self.clients.get(client).map(|client| &client.states);
        let is_met = |state: &u32| {
            let Some(record) = self.states.get(*state) else {
                return false;
            };
            let Some(file) = self.files.get(record.file) else {
                return false;
            };
            match record.detail {
                StateDetail::Lock(_) => {
                    file.ranges.has_state(*state) && self.host_locks.has(&file.key)
                }
                StateDetail::Open(_) => self.announced_shares.has(&file.key),
                StateDetail::Delegation(_) | StateDetail::Revoked(_) => false,
            }
        };
        states
            .into_iter()
            .flatten()
            .copied()
            .filter(is_met)
            .collect()
    }

    /// What is revoked to take some state from a client: for a lock, its open. Linux forgets its
    /// lock stateids when it sees that any state was revoked, and until its recovery has marked the
    /// locks as lost, it would read and write by the stateid of the open.
    pub(super) fn basis_of(&self, state: u32) -> u32 {
        match self.states.get(state).map(|record| &record.detail) {
            Some(StateDetail::Lock(lock)) => lock.open,
            _ => state,
        }
    }

    /// Revokes state of a client, and the lock states that are based on it. Its stateids designate
    /// the revoked state until the client frees them.
    pub(super) fn revoke_state(&mut self, state: u32, reason: Revocation) {
        let record = self.states.get(state);
        let Some(record) = record.filter(|record| record.check_in_force().is_ok()) else {
            return;
        };
        let client = record.client_index;
        self.void_state(state, reason);
        self.tell_of_revocation(client);
    }

    /// Tells a client that state of it was revoked, and has the I/O end that it has begun.
    pub(super) fn tell_of_revocation(&self, index: u32) {
        self.publish_conditions(index);
        if let Some(client) = self.clients.get(index) {
            self.fences.raise(client.id);
        }
    }

    /// Revokes state likewise, without [telling](Self::tell_of_revocation).
    pub(super) fn void_state(&mut self, state: u32, reason: Revocation) {
        let Some(record) = self.states.get(state) else {
            return;
        };
        if record.check_in_force().is_err() {
            return;
        }
        let (client, index, file) = (record.client, record.client_index, record.file);
        let locks = self.free_locks_of(state);
        for &lock in &locks {
            self.void_state(lock, reason);
        }
        let stateid = self.states.stateid(state);
        self.release_state(state, reason);
        if let Some(StateDetail::Revoked(revoked)) =
            self.states.get_mut(state).map(|record| &mut record.detail)
        {
            revoked.locks = locks;
        }
        if let Some(client) = self.clients.get_mut(index) {
            *client.revoked_states(reason) += 1;
        }
        if let Some(file) = self.files.get(file) {
            self.events.push_back(StateEvent::Revoked {
                client,
                stateid,
                file: file.key,
                reason,
            });
        }
    }

    /// Removes revoked state of which a client has taken note, and the lock states that were revoked
    /// with it. Linux frees the stateid of a revoked open, and forgets those of its locks.
    pub(super) fn remove_revoked(&mut self, state: u32) {
        let record = self.states.get(state);
        let locks = match record.map(|record| &record.detail) {
            Some(StateDetail::Revoked(revoked)) => revoked.locks.clone(),
            _ => BTreeSet::new(),
        };
        self.remove_state(state);
        for lock in locks {
            // Those that were freed before may have given their index to others.
            if let Some(record) = self.states.get(lock)
                && let StateDetail::Revoked(revoked) = &record.detail
                && revoked.open == Some(state)
            {
                self.remove_state(lock);
            }
        }
    }

    /// Lets the sessions of a client report the condition of its state.
    pub(super) fn publish_conditions(&self, index: u32) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        let conditions = SessionConditions::default()
            .with(SessionConditions::EXPIRED_SOME, client.expired_states > 0)
            .with(
                SessionConditions::ADMIN_REVOKED,
                client.admin_revoked_states > 0,
            )
            .with(
                SessionConditions::RECALLABLE_REVOKED,
                client.unreturned_states > 0,
            )
            .with(
                SessionConditions::RECLAIM_NEEDED,
                client.may_reclaim && !client.reclaim_complete,
            )
            .with(
                SessionConditions::RECLAIMS_ONLY,
                !client.reclaim_complete || self.grace.is_active(),
            );
        let is_down = |session: &ClientSession| session.back.is_down();
        let all_down = client.sessions.iter().any(is_down)
            && client.sessions.iter().all(|one| one.back.path().is_none());
        for session in &client.sessions {
            let back = &session.back;
            let conditions = conditions
                .with(SessionConditions::PATH_DOWN, all_down)
                .with(SessionConditions::PATH_DOWN_SESSION, back.is_down())
                .with(SessionConditions::BACKCHANNEL_FAULT, back.is_faulty())
                .with(back.context_conditions, true);
            if let Ok(session) = self.sessions.find(session.id) {
                session.set_conditions(conditions);
            }
        }
    }
}

impl LeasedClient {
    /// The count of its states that were revoked for a reason.
    pub(super) fn revoked_states(&mut self, reason: Revocation) -> &mut usize {
        match reason {
            Revocation::LeaseExpired => &mut self.expired_states,
            Revocation::Administrative => &mut self.admin_revoked_states,
            Revocation::NotReturned => &mut self.unreturned_states,
        }
    }
}
