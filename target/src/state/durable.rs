//! Durable records of clients: which ones are wanted, and which are durable by now (RFC 8881 section
//! 8.4.3).
//!
//! The home does no I/O. It hands out changes in order, each with a serial number, and is told by
//! [`RecordProgress`] how far they are durable. Nothing is granted before the changes that it
//! depends on are: the operation fails with [`StateError::Unrecorded`] and has no effect, and is
//! repeated when that change is durable.
//!
//! - The first state of a client depends on its record.
//! - State that another client has lost without its consent depends on the removal of that client's
//!   record: after a restart it must not be reclaimed.
//! - After a grace period all that is granted depends on the end of that being recorded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrace_primitives::Gauge;

use super::StateError;
use super::clients::LeasedClient;
use super::home::StateHome;

/// What is kept of a client that has state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableClient {
    /// Its owner string.
    pub owner: Box<[u8]>,
    /// Its verifier. After its own restart a client has another one, and nothing to reclaim.
    pub verifier: [u8; 8],
    /// Its principal.
    pub principal: Box<[u8]>,
    /// The start of the server in which it last completed its reclaims.
    pub start: u64,
    /// Whether it may have denied others the use of a file, by an open or by a delegation.
    pub denies: bool,
}

/// A change of the durable records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// A client is to be recorded, in place of an earlier record of its owner.
    Keep(DurableClient),
    /// The record of an owner is to be removed.
    Forget(Box<[u8]>),
    /// The grace period of this start has ended: records of earlier starts are void.
    EndGrace,
    /// Clients may rely on a lease as long as this from now on.
    Lease(Duration),
}

/// The serial number of the last change that is durable, together with all before it. One thread
/// writes it.
#[derive(Debug, Default)]
pub struct RecordProgress(Gauge);

impl RecordProgress {
    /// Changes up to this one are durable.
    pub fn advance(&self, serial: u64) {
        self.0.raise(serial);
    }

    /// Whether a change is durable.
    #[must_use]
    pub fn has_reached(&self, serial: u64) -> bool {
        self.0.get() >= serial
    }
}

/// The record of a client, as it was last asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordNote {
    serial: u64,
    start: u64,
    denies: bool,
}

impl RecordNote {
    /// A record that an earlier start of the server has left.
    pub fn of(record: &DurableClient) -> Self {
        Self {
            serial: 0,
            start: record.start,
            denies: record.denies,
        }
    }
}

/// Changes that were not handed out yet.
#[derive(Debug, Default)]
pub(super) struct RecordLog {
    /// The number of this start; `None` if nothing is recorded.
    pub start: Option<u64>,
    queue: VecDeque<RecordChange>,
    /// Of the last change in the queue.
    serial: u64,
    /// Of the last change that was handed out.
    handed_out: u64,
    /// Nothing may be granted before this change is durable.
    barrier: u64,
    pub progress: Arc<RecordProgress>,
}

impl RecordLog {
    fn push(&mut self, change: RecordChange) -> u64 {
        self.queue.push_back(change);
        self.serial += 1;
        self.serial
    }

    /// Records a change that all later grants depend on.
    pub fn push_barrier(&mut self, change: RecordChange) {
        if self.start.is_some() {
            self.barrier = self.push(change);
        }
    }

    /// The last change that was asked for.
    pub fn newest(&self) -> u64 {
        self.serial
    }

    /// Whether a change is durable.
    pub fn is_durable(&self, serial: u64) -> bool {
        self.start.is_none() || self.progress.has_reached(serial)
    }

    /// Lets all later grants depend on a change.
    pub fn wait_for(&mut self, serial: u64) {
        self.barrier = self.barrier.max(serial);
    }

    fn check(&self, serial: u64) -> Result<(), StateError> {
        let is_durable = self.progress.has_reached(serial);
        is_durable
            .then_some(())
            .ok_or(StateError::Unrecorded(serial))
    }

    /// Whether anything may be granted.
    ///
    /// # Errors
    /// [`StateError::Unrecorded`].
    pub fn check_barrier(&self) -> Result<(), StateError> {
        self.check(self.barrier)
    }
}

impl StateHome {
    /// Whether any client could reclaim after a restart.
    #[must_use]
    pub fn has_records(&self) -> bool {
        let mut clients = self.clients.iter();
        self.grace().is_some() || clients.any(|(_, client)| client.record.is_some())
    }

    /// Whether all changes of records that were asked for are durable.
    #[must_use]
    pub fn are_records_durable(&self) -> bool {
        self.records.is_durable(self.records.newest())
    }

    /// Whether there are changes of records to take.
    #[must_use]
    pub fn has_record_changes(&self) -> bool {
        let log = &self.records;
        !log.queue.is_empty() && log.progress.has_reached(log.handed_out)
    }

    /// The changes of records that were asked for since the last call, and the serial number of the
    /// last one. Nothing while those of the last call are not durable, so that a slow disk gets
    /// them in groups.
    pub fn take_record_changes(&mut self) -> Option<(u64, Vec<RecordChange>)> {
        if !self.has_record_changes() {
            return None;
        }
        let log = &mut self.records;
        log.handed_out = log.serial;
        Some((log.serial, log.queue.drain(..).collect()))
    }

    /// Makes sure that a client is recorded before it gets state. A client that loses state has no
    /// record until it knows of the loss, as it could reclaim what it has lost.
    ///
    /// # Errors
    /// [`StateError::Unrecorded`], or [`StateError::Delay`] if too many changes are waiting.
    pub(super) fn require_record(&mut self, index: u32, denies: bool) -> Result<(), StateError> {
        let Some(now) = self.records.start else {
            return Ok(());
        };
        let client = self.clients.get_mut(index).ok_or(StateError::BadSession)?;
        client.wants_record = true;
        if client.loses_state() {
            return Ok(());
        }
        let known = client.record;
        let denies = denies || known.is_some_and(|known| known.denies);
        // Until its reclaims are complete, the record is that of what it has to reclaim.
        let start = match known {
            Some(known) if !client.reclaim_complete && !client.completes => known.start,
            _ => now,
        };
        if let Some(known) = known
            && (known.start, known.denies) == (start, denies)
        {
            return self.records.check(known.serial);
        }
        if self.records.queue.len() >= self.config.clients as usize {
            return Err(StateError::Delay);
        }
        let serial = self.records.push(RecordChange::Keep(DurableClient {
            owner: client.owner.clone(),
            verifier: client.verifier,
            principal: client.principal.clone(),
            start,
            denies,
        }));
        client.record = Some(RecordNote {
            serial,
            start,
            denies,
        });
        self.records.check(serial)
    }

    /// Makes sure that the record of a client is gone before its state is taken.
    ///
    /// # Errors
    /// [`StateError::Unrecorded`].
    pub(super) fn withdraw_record(&mut self, index: u32) -> Result<(), StateError> {
        if let Some(client) = self.clients.get_mut(index)
            && client.record.take().is_some()
        {
            let owner = client.owner.clone();
            self.grace.forget(&owner);
            let serial = self.records.push(RecordChange::Forget(owner));
            if let Some(client) = self.clients.get_mut(index) {
                client.withdrawn = serial;
            }
        }
        let client = self.clients.get(index);
        client.map_or(Ok(()), |client| self.records.check(client.withdrawn))
    }

    /// Makes sure that the records of the clients that have some states are gone.
    ///
    /// # Errors
    /// [`StateError::Unrecorded`].
    pub(super) fn withdraw_records(&mut self, states: &[u32]) -> Result<(), StateError> {
        let mut outcome = Ok(());
        for &state in states {
            if let Some(client) = self.states.get(state).map(|one| one.client_index) {
                // All are asked for at once, and the last one is waited for.
                let withdrawn = self.withdraw_record(client);
                outcome = withdrawn.err().map_or(outcome, Err);
            }
        }
        outcome
    }

    /// Removes the record of the client that has some state. Grants wait until it is gone.
    pub(super) fn withdraw_at_once(&mut self, state: u32) {
        if let Some(client) = self.states.get(state).map(|one| one.client_index)
            && let Err(StateError::Unrecorded(serial)) = self.withdraw_record(client)
        {
            self.records.wait_for(serial);
        }
    }

    /// Removes the record of a client that is gone, or has nothing to reclaim.
    pub(super) fn forget_record(&mut self, owner: &[u8]) {
        if self.records.start.is_some() {
            self.records.push(RecordChange::Forget(owner.into()));
        }
    }

    /// Records clients again that lost their records with state that was taken from them, if they
    /// have returned and know of it.
    pub(super) fn restore_records(&mut self, now: Duration) {
        if self.records.start.is_none() {
            return;
        }
        let clients = self.clients.iter();
        let without = clients.filter(|(index, client)| {
            client.wants_record
                && client.record.is_none()
                && client.reclaim_complete
                && !client.states.is_empty()
                && !client.loses_state()
                && !self.is_expired(*index, now)
        });
        let without: Vec<u32> = without.map(|(index, _)| index).collect();
        for index in without {
            // It does not wait for it.
            let _ = self.require_record(index, true);
        }
    }
}

impl LeasedClient {
    /// Whether state of it was revoked and it has not acknowledged that, or is about to be.
    fn loses_state(&self) -> bool {
        let revoked = self.expired_states + self.admin_revoked_states + self.unreturned_states;
        self.is_swept || revoked + self.overdue_recalls > 0
    }
}
