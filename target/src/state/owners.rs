//! Open owners and lock owners: opaque names within a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::{AssignedMap, IndexedTable};

/// Owners of one kind that have state, each counted by its uses.
#[derive(Debug, Default)]
pub(super) struct OwnerTable {
    owners: IndexedTable<StateOwner>,
    /// By the index of the client.
    by_name: AssignedMap<u32, BTreeMap<Arc<[u8]>, u32>>,
}

/// An owner of opens or locks.
#[derive(Debug)]
pub(super) struct StateOwner {
    pub client: u32,
    pub name: Arc<[u8]>,
    uses: usize,
}

impl OwnerTable {
    /// The owner of a client with this name, if it has state.
    pub fn find(&self, client: u32, name: &[u8]) -> Option<u32> {
        self.by_name.get(&client)?.get(name).copied()
    }

    /// An owner that has state.
    pub fn get(&self, owner: u32) -> Option<&StateOwner> {
        self.owners.get(owner)
    }

    /// The owner of a client with this name, with one use more.
    pub fn acquire(&mut self, client: u32, name: &[u8]) -> u32 {
        if let Some(owner) = self.find(client, name) {
            if let Some(known) = self.owners.get_mut(owner) {
                known.uses += 1;
            }
            return owner;
        }
        let name: Arc<[u8]> = name.into();
        let owner = self.owners.insert(StateOwner {
            client,
            name: name.clone(),
            uses: 1,
        });
        self.by_name.entry(client).or_default().insert(name, owner);
        owner
    }

    /// Takes one use away, and the owner with the last one.
    pub fn release(&mut self, owner: u32) {
        let Some(known) = self.owners.get_mut(owner) else {
            return;
        };
        known.uses -= 1;
        if known.uses > 0 {
            return;
        }
        if let Some(StateOwner { client, name, .. }) = self.owners.remove(owner)
            && let Some(names) = self.by_name.get_mut(&client)
        {
            names.remove(&name);
            if names.is_empty() {
                self.by_name.remove(&client);
            }
        }
    }
}
