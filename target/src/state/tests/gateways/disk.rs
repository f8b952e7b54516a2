//! The durable records of the clients of a gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::dice::GatewayDice;
use crate::state::{DurableClient, RecordChange, RecordProgress, RecoveredClients, StateHome};

/// Records that a gateway has taken from another one.
#[derive(Clone, Debug, Default)]
pub(super) struct TakenRecords {
    pub clients: Vec<DurableClient>,
    pub lease: Duration,
    /// Whether the clients may reclaim.
    pub is_proved: bool,
}

/// What a gateway has in the folder of its records. It outlives the process.
#[derive(Debug, Default)]
pub(super) struct GatewayDisk {
    clients: BTreeMap<Box<[u8]>, DurableClient>,
    start: u64,
    ended: u64,
    lease: Duration,
    /// By the gateway that had them.
    pub taken: BTreeMap<usize, TakenRecords>,
    /// Changes that are being written.
    in_flight: Option<(u64, Vec<RecordChange>)>,
    progress: Arc<RecordProgress>,
    /// Whether another gateway has taken the records: what is written then is in vain.
    is_moved: bool,
    /// Whether the next home does not learn of the clients.
    is_hidden: bool,
}

impl GatewayDisk {
    /// Whether somebody would reclaim.
    pub fn has_clients(&self) -> bool {
        let mut clients = self.clients.values();
        clients.any(|client| client.start >= self.ended) || !self.taken.is_empty()
    }

    /// Opens the records for another start, with the clients that were taken from others.
    pub fn open(&mut self, lease: Duration) {
        let ended = self.ended;
        self.clients.retain(|_, client| client.start >= ended);
        self.start += 1;
        self.progress = Arc::default();
        self.is_moved = false;
        self.lease = self.lease.max(lease);
        for taken in std::mem::take(&mut self.taken).into_values() {
            self.lease = self.lease.max(taken.lease);
            for client in taken.clients {
                let start = self.start;
                let client = DurableClient { start, ..client };
                self.clients.entry(client.owner.clone()).or_insert(client);
            }
        }
    }

    /// Forgets all clients for good.
    pub fn clear(&mut self) {
        self.clients.clear();
        self.taken.clear();
    }

    /// Forgets all clients until the next start.
    pub fn hide(&mut self) {
        self.is_hidden = true;
    }

    /// What a home recovers, and how it learns what is durable.
    pub fn recovered(&mut self) -> (RecoveredClients, Arc<RecordProgress>) {
        let is_hidden = std::mem::take(&mut self.is_hidden);
        let clients = self.clients.values().filter(|_| !is_hidden);
        let recovered = RecoveredClients {
            start: self.start,
            clients: clients.cloned().collect(),
            lease: self.lease,
        };
        (recovered, Arc::clone(&self.progress))
    }

    /// Begins to write what a home wants to be durable. Returns whether there is something.
    pub fn begin(&mut self, home: &mut StateHome) -> bool {
        if self.in_flight.is_none() {
            self.in_flight = home.take_record_changes();
        }
        self.in_flight.is_some() && !self.is_moved
    }

    /// What is being written is durable.
    pub fn finish(&mut self) {
        if self.is_moved {
            return;
        }
        if let Some((serial, changes)) = self.in_flight.take() {
            changes.into_iter().for_each(|change| self.apply(change));
            self.progress.advance(serial);
        }
    }

    pub fn is_writing(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether all that a home wants is durable.
    pub fn is_settled(&self, home: &StateHome) -> bool {
        self.in_flight.is_none() && !home.has_record_changes()
    }

    /// The process ends. Some of what was being written is durable.
    pub fn crash(&mut self, dice: &mut GatewayDice) {
        if let Some((_, changes)) = self.in_flight.take()
            && !self.is_moved
        {
            let count = dice.index(changes.len() + 1);
            let durable = changes.into_iter().take(count);
            durable.for_each(|change| self.apply(change));
        }
    }

    /// Moves the records away.
    pub fn take_away(&mut self) -> TakenRecords {
        self.is_moved = true;
        let ended = self.ended;
        let clients = std::mem::take(&mut self.clients).into_values();
        TakenRecords {
            clients: clients.filter(|client| client.start >= ended).collect(),
            lease: self.lease,
            is_proved: false,
        }
    }

    fn apply(&mut self, change: RecordChange) {
        match change {
            RecordChange::Keep(client) => {
                self.clients.insert(client.owner.clone(), client);
            }
            RecordChange::Forget(owner) => {
                self.clients.remove(&owner);
            }
            RecordChange::EndGrace => self.ended = self.start,
            RecordChange::Lease(lease) => self.lease = self.lease.max(lease),
        }
    }
}
