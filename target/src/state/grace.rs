//! The grace period after a start of the server: clients that had state reclaim it, and nobody gets
//! other state (RFC 8881 section 8.4.2).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::StateError;
use super::clients::ClientId;
use super::durable::{DurableClient, RecordChange, RecordNote, RecordProgress};
use super::home::StateHome;

/// A client that reclaims within this time of the end prolongs the period.
const LAST_MOMENTS: Duration = Duration::from_secs(10);

/// What the server's earlier starts have left.
#[derive(Clone, Debug, Default)]
pub struct RecoveredClients {
    /// The number of this start. It is greater than all before.
    pub start: u64,
    /// Records that are valid.
    pub clients: Vec<DurableClient>,
    /// The longest lease that they may rely on.
    pub lease: Duration,
}

/// A grace period, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceStatus {
    /// When it ends at the latest, if it is not prolonged.
    pub ends: Duration,
    /// Clients that have not completed their reclaims.
    pub waits_for: usize,
}

/// A client that has reclaims to complete.
#[derive(Debug)]
struct DueClient {
    record: DurableClient,
    /// The client as it is known by now.
    returned: Option<ClientId>,
    /// Whether it is a client of this start as well, which has a record of its own.
    is_known: bool,
}

/// The grace period.
#[derive(Debug, Default)]
pub(super) struct GracePeriod {
    is_active: bool,
    ends: Duration,
    is_prolonged: bool,
    last_reclaim: Option<Duration>,
    due: HashMap<Box<[u8]>, DueClient>,
    /// Whether clients of another server of the same files may reclaim.
    is_elsewhere: bool,
}

impl GracePeriod {
    /// Whether it lasts, here or elsewhere.
    pub fn is_active(&self) -> bool {
        self.is_active || self.is_elsewhere
    }

    /// Whether clients of another server of the same files may reclaim.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// Does not wait for a client any longer.
    pub fn forget(&mut self, owner: &[u8]) {
        self.due.remove(owner);
    }

    /// The names of clients that it waits for, each with the client that has returned under it.
    pub fn awaited(&self) -> impl Iterator<Item = (Box<[u8]>, Option<ClientId>)> {
        let due = self.due.iter();
        due.map(|(owner, due)| (owner.clone(), due.returned))
    }

    /// Whether an open or a delegation that is still to be reclaimed may deny access.
    pub fn may_be_denied(&self) -> bool {
        self.is_active && self.due.values().any(|due| due.record.denies)
    }

    /// Whether it is over at a time. It is prolonged once, if clients reclaim in its last moments.
    fn is_over(&mut self, now: Duration, lease: Duration) -> bool {
        if self.due.is_empty() {
            return true;
        }
        if now < self.ends {
            return false;
        }
        let reclaims = self.last_reclaim;
        if self.is_prolonged || reclaims.is_none_or(|at| at + LAST_MOMENTS < self.ends) {
            return true;
        }
        self.is_prolonged = true;
        self.ends += lease / 2;
        now >= self.ends
    }
}

impl StateHome {
    /// Records clients from now on; `progress` says how far the records are durable. If earlier
    /// starts have left records, a grace period begins.
    pub fn recover(
        &mut self,
        recovered: RecoveredClients,
        progress: Arc<RecordProgress>,
        now: Duration,
    ) {
        self.records.progress = progress;
        self.records.start = Some(recovered.start);
        let due = recovered.clients.into_iter().map(|record| {
            let (returned, is_known) = (None, false);
            let owner = record.owner.clone();
            (
                owner,
                DueClient {
                    record,
                    returned,
                    is_known,
                },
            )
        });
        self.grace = GracePeriod {
            is_active: true,
            ends: now + recovered.lease.max(self.config.lease),
            is_prolonged: false,
            last_reclaim: None,
            due: due.collect(),
            is_elsewhere: self.grace.is_elsewhere,
        };
        self.advance_grace(now);
    }

    /// Lets clients of another server, whose place this one takes, reclaim here what they had there.
    /// A grace period begins, or goes on. Nothing may have been granted to others since they had it,
    /// and they are recorded here before they reclaim.
    pub fn adopt(&mut self, clients: Vec<DurableClient>, lease: Duration, now: Duration) {
        let Some(start) = self.records.start else {
            return;
        };
        if !self.grace.is_active {
            // What an earlier period let them reclaim may have been granted to others.
            for (_, client) in self.clients.iter_mut() {
                client.completes = true;
            }
        }
        for record in clients {
            let record = DurableClient { start, ..record };
            let owner = record.owner.clone();
            let known = self.clients.confirmed(&owner);
            let known = known.and_then(|index| self.clients.get_mut(index));
            let is_same = known.as_ref().is_none_or(|client| {
                (client.verifier, &client.principal) == (record.verifier, &record.principal)
            });
            if !is_same {
                // It has been restarted itself, and come here.
                continue;
            }
            let returned = known.map(|client| {
                client.may_reclaim = true;
                client.completes = false;
                client.id
            });
            if returned.is_none() {
                self.records
                    .push_barrier(RecordChange::Keep(record.clone()));
            }
            let due = DueClient {
                record,
                returned,
                is_known: returned.is_some(),
            };
            self.grace.due.insert(owner, due);
        }
        let ends = now + lease.max(self.config.lease);
        self.grace.ends = match self.grace.is_active {
            true => self.grace.ends.max(ends),
            false => ends,
        };
        self.grace.is_active = true;
        self.grace.is_prolonged = false;
        self.publish_all_conditions();
        self.advance_grace(now);
    }

    /// Grants nothing but by reclaims as long as clients of another server of the same files may
    /// reclaim.
    pub fn hold_grants(&mut self, holds: bool) {
        self.grace.is_elsewhere = holds;
        self.publish_all_conditions();
    }

    /// The grace period, while it lasts.
    #[must_use]
    pub fn grace(&self) -> Option<GraceStatus> {
        self.grace.is_active.then_some(GraceStatus {
            ends: self.grace.ends,
            waits_for: self.grace.due.len(),
        })
    }

    /// Ends the grace period if it is over.
    pub(super) fn advance_grace(&mut self, now: Duration) {
        if self.grace.is_active && self.grace.is_over(now, self.config.lease) {
            self.end_grace();
        }
        self.delegation_guards
            .await_denials(self.grace.may_be_denied());
    }

    /// Ends the grace period. What was not reclaimed is lost, also after another restart.
    pub fn end_grace(&mut self) {
        if !self.grace.is_active {
            return;
        }
        self.grace.is_active = false;
        let due = std::mem::take(&mut self.grace.due);
        self.delegation_guards.await_denials(false);
        self.records.push_barrier(RecordChange::EndGrace);
        for (owner, due) in due.into_iter().filter(|(_, due)| !due.is_known) {
            self.forget_record(&owner);
            let returned = due.returned.and_then(|id| self.clients.find(id));
            if let Some(client) = returned.and_then(|index| self.clients.get_mut(index)) {
                client.record = None;
            }
        }
        self.publish_all_conditions();
    }

    fn publish_all_conditions(&self) {
        for (index, _) in self.clients.iter() {
            self.publish_conditions(index);
        }
    }

    /// A client was confirmed: it may reclaim if it is recorded.
    pub(super) fn recognize_client(&mut self, index: u32, now: Duration) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let Some(due) = self.grace.due.get_mut(&client.owner) else {
            return;
        };
        if due.record.principal != client.principal {
            return;
        }
        if due.record.verifier == client.verifier {
            due.returned = Some(client.id);
            client.may_reclaim = true;
            client.record = Some(RecordNote::of(&due.record));
            return;
        }
        // It has been restarted itself.
        let owner = client.owner.clone();
        self.grace.forget(&owner);
        self.forget_record(&owner);
        self.advance_grace(now);
    }

    /// A confirmed client is gone.
    pub(super) fn forget_client(&mut self, id: ClientId, owner: &[u8], had_state: bool) {
        let due = self.grace.due.get(owner);
        if due.is_some_and(|due| due.returned == Some(id)) {
            self.grace.forget(owner);
        }
        if had_state {
            // What it had may be granted to others by now.
            let forgotten = RecordChange::Forget(owner.into());
            self.records.push_barrier(forgotten);
        } else {
            self.forget_record(owner);
        }
    }

    /// Records that a client has finished reclaiming.
    ///
    /// # Errors
    /// [`StateError::CompleteAlready`] the second time, [`StateError::BadSession`] if the client is
    /// gone, and [`StateError::Unrecorded`] until its record is renewed.
    pub fn reclaim_complete(&mut self, client: ClientId, now: Duration) -> Result<(), StateError> {
        let index = self.clients.find(client).ok_or(StateError::BadSession)?;
        let known = self.clients.get_mut(index).ok_or(StateError::BadSession)?;
        if known.reclaim_complete {
            // It may have had state at another server, too.
            known.completes = true;
            let owner = known.owner.clone();
            if self.grace.due.get(&owner).is_some_and(|due| due.is_known) {
                self.grace.forget(&owner);
                self.advance_grace(now);
            }
            return Err(StateError::CompleteAlready);
        }
        // No more reclaims, whatever becomes of the record.
        known.completes = true;
        let owner = known.owner.clone();
        if !known.states.is_empty() {
            self.require_record(index, false)?;
        } else if known.record.take().is_some() {
            self.forget_record(&owner);
        }
        if let Some(known) = self.clients.get_mut(index) {
            known.reclaim_complete = true;
        }
        let due = self.grace.due.get(&owner);
        if due.is_some_and(|due| due.returned == Some(client)) {
            self.grace.forget(&owner);
        }
        self.publish_conditions(index);
        self.advance_grace(now);
        Ok(())
    }

    /// The index of a client that may get state now, by a reclaim or otherwise.
    ///
    /// # Errors
    /// [`StateError::Grace`], [`StateError::NoGrace`], [`StateError::Unrecorded`], and
    /// [`StateError::BadSession`] if the client is gone.
    pub fn check_grant(
        &mut self,
        client: ClientId,
        reclaims: bool,
        now: Duration,
    ) -> Result<u32, StateError> {
        self.advance_grace(now);
        let index = self.clients.find(client).ok_or(StateError::BadSession)?;
        let known = self.clients.get(index).ok_or(StateError::BadSession)?;
        if reclaims {
            if !self.grace.is_active || !known.may_reclaim || known.completes {
                return Err(StateError::NoGrace);
            }
            self.grace.last_reclaim = Some(now);
        } else {
            self.check_reclaimed(client)?;
        }
        self.records.check_barrier()?;
        Ok(index)
    }
}
