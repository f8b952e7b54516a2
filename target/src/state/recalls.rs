//! Recalls of delegations, and their end (RFC 8881 sections 10.4.4 to 10.4.6).

use std::collections::VecDeque;
use std::time::Duration;

use millrace_store::FileLease;

use super::Revocation;
use super::callbacks::CallbackSubject;
use super::delegations::RecallTimes;
use super::files::FileKey;
use super::home::StateHome;
use super::stateid::StateRecord;
use super::sweeps::SweepAction;
use super::table::AssignedMap;

/// How long a file that others need is not delegated again, the first time and at most.
const WAIT_LEAST: Duration = Duration::from_secs(30);
const WAIT_MOST: Duration = Duration::from_secs(600);
/// How soon a revocation is tried again that waits for the disk.
const RETRY: Duration = Duration::from_millis(100);
/// Files that are remembered.
const FILES_MAX: usize = 1 << 14;

/// What is remembered of a file, also while nobody has it open.
#[derive(Debug, Default)]
struct DelegationPast {
    was_opened: bool,
    /// How long it is not delegated as others needed it, and until when.
    wait: Duration,
    until: Duration,
}

/// Files that were opened or recalled lately.
#[derive(Debug, Default)]
pub(super) struct DelegationHistory {
    files: AssignedMap<FileKey, DelegationPast>,
    order: VecDeque<FileKey>,
}

impl DelegationHistory {
    fn of(&mut self, file: FileKey) -> &mut DelegationPast {
        if !self.files.contains_key(&file) {
            if self.order.len() >= FILES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.files.remove(&oldest);
            }
            self.order.push_back(file);
        }
        self.files.entry(file).or_default()
    }

    /// Notes an open; returns whether there was one before.
    pub fn note_open(&mut self, file: FileKey) -> bool {
        std::mem::replace(&mut self.of(file).was_opened, true)
    }

    /// Whether there was an open.
    pub fn was_opened(&self, file: &FileKey) -> bool {
        self.files.get(file).is_some_and(|past| past.was_opened)
    }

    /// Whether others needed a file a short time ago.
    pub fn is_contended(&self, file: &FileKey, now: Duration) -> bool {
        self.files.get(file).is_some_and(|past| now < past.until)
    }

    /// Notes that others need a file.
    pub fn note_contention(&mut self, file: FileKey, now: Duration) {
        let past = self.of(file);
        // A file that was left in peace for long begins again.
        past.wait = match past.wait {
            wait if wait.is_zero() || now > past.until + WAIT_MOST => WAIT_LEAST,
            wait => (wait * 2).min(WAIT_MOST),
        };
        past.until = now + past.wait;
    }
}

impl StateHome {
    /// Recalls a delegation, unless that was done before.
    pub(super) fn recall(&mut self, state: u32, truncates: bool, now: Duration) {
        let stateid = self.states.stateid(state);
        let Some(record) = self.states.get_mut(state) else {
            return;
        };
        let (client, file) = (record.client, record.file);
        let Some(delegation) = record.delegation_mut() else {
            return;
        };
        if delegation.recall.is_some() {
            return;
        }
        let longest = delegation.lease.as_ref().map(FileLease::time);
        let ends = now + longest.unwrap_or(Duration::MAX).min(self.config.lease);
        delegation.recall = Some(RecallTimes {
            is_over: false,
            began: now,
            ends,
        });
        let granted_by = delegation.granted_by;
        self.recalled.insert((ends, state));
        let Some(file) = self.files.get(file).map(|file| file.key) else {
            return;
        };
        self.delegation_history.note_contention(file, now);
        let subject = CallbackSubject::Recall {
            stateid,
            file,
            truncates,
            granted_by,
        };
        self.call_client(client, subject, (now, now + self.config.lease * 2));
    }

    /// Recalls the delegations whose leases have to end, as others wait for that, a bounded number at
    /// once. Returns the number of leases.
    pub fn end_broken_leases(&mut self, now: Duration) -> usize {
        let mut leases = 0;
        while leases < self.config.states_per_step
            && let Some(file) = self.broken_leases.next()
        {
            self.break_leases(&file, now);
            leases += 1;
        }
        leases
    }

    fn break_leases(&mut self, key: &FileKey, now: Duration) {
        let file = self.files.find(key).and_then(|file| self.files.get(file));
        for state in file
            .map(|file| file.delegations.clone())
            .unwrap_or_default()
        {
            let Some(record) = self.states.get(state) else {
                continue;
            };
            let lease = record.delegation().and_then(|one| one.lease.as_ref());
            let holder = record.client_index;
            if !lease.is_some_and(FileLease::is_broken) {
                continue;
            }
            let is_expired = self.is_expired(holder, now);
            if !is_expired || self.revoke_expired(&[state], now).is_err() {
                self.recall(state, false, now);
            }
        }
    }

    /// A client that writes back what it has cached has longer to return its delegation: up to
    /// twice the lease.
    pub(super) fn prolong_recall(&mut self, state: u32, now: Duration) {
        let lease = self.config.lease;
        let record = self.states.get_mut(state);
        let delegation = record.and_then(|record| record.delegation_mut());
        // Of a lease no longer than others wait.
        let delegation = delegation.filter(|delegation| delegation.lease.is_none());
        let recall = delegation.and_then(|delegation| delegation.recall);
        if let Some(recall) = recall.filter(|recall| !recall.is_over) {
            let ends = recall.ends.max(now + lease).min(recall.began + lease * 2);
            self.end_recall_at(state, ends);
        }
    }

    /// Changes the end of a recall.
    fn end_recall_at(&mut self, state: u32, ends: Duration) {
        let record = self.states.get_mut(state);
        let delegation = record.and_then(StateRecord::delegation_mut);
        if let Some(recall) = delegation.and_then(|delegation| delegation.recall.as_mut()) {
            let before = std::mem::replace(&mut recall.ends, ends);
            self.recalled.remove(&(before, state));
            self.recalled.insert((ends, state));
        }
    }

    /// Revokes delegations that were not returned in time, a bounded number at once. Returns how many
    /// it has looked at. To be called in each turn.
    pub fn end_recalls(&mut self, now: Duration) -> usize {
        let over = self.recalled.range(..(now, 0)).map(|(_, state)| *state);
        let over: Vec<u32> = over.take(self.config.states_per_step).collect();
        for &state in &over {
            self.end_lease(state, now);
            if self.is_revocable(state, now) {
                self.revoke_state(state, Revocation::NotReturned);
            }
        }
        over.len()
    }

    /// Ends the lease of a delegation that was not returned in time, and recalls all others of its
    /// client, so that others wait for it only once.
    fn end_lease(&mut self, state: u32, now: Duration) {
        let record = self.states.get_mut(state);
        let delegation = record.and_then(|record| record.delegation_mut());
        if delegation.and_then(|one| one.lease.take()).is_none() {
            return;
        }
        let Some(holder) = self.states.get(state).map(|record| record.client_index) else {
            return;
        };
        // It gets no more of them, so that once is enough.
        if let Some(client) = self.clients.get_mut(holder)
            && !std::mem::replace(&mut client.has_kept_lease, true)
        {
            let client = client.id;
            self.sweep_client(client, SweepAction::RecallLeased(now));
        }
    }

    /// Whether no restart of the server could bring a delegation back. Otherwise the record of its
    /// holder is being removed, and its recall ends a little later.
    fn is_revocable(&mut self, state: u32, now: Duration) -> bool {
        let record = self.states.get(state);
        let is_lasting = record
            .and_then(StateRecord::delegation)
            .is_some_and(|delegation| delegation.is_lasting);
        if !is_lasting || self.withdraw_records(&[state]).is_ok() {
            return true;
        }
        let Some(record) = self.states.get_mut(state) else {
            return true;
        };
        let holder = record.client_index;
        let recall = record.delegation_mut().and_then(|one| one.recall.as_mut());
        if let Some(recall) = recall {
            let was_over = std::mem::replace(&mut recall.is_over, true);
            if let Some(client) = self.clients.get_mut(holder).filter(|_| !was_over) {
                client.overdue_recalls += 1;
            }
            self.end_recall_at(state, now + RETRY);
        }
        false
    }

    /// When the next recall ends.
    pub(super) fn next_recall_end(&self) -> Duration {
        let first = self.recalled.first();
        first.map_or(Duration::MAX, |(ends, _)| *ends)
    }
}
