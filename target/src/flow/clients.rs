//! The clients of the whole process, by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;
use millrace_primitives::CoreBlock;

use super::bans::Bans;
use super::client_classes::ClassNames;
use super::gate::Origin;
use super::rate::{Limit, Rates};
use super::usage::{ClientSlot, ClientsUsage, Totals};
use crate::exports::ExportId;

/// The clients of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct ClientTable {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reactors: usize,
    /// The origin of time, for rates.
    origin: Origin,
    /// Whether there is any limit, of a client or an export.
    limited: AtomicBool,
    /// Whether there is any limit of an export.
    exports_limited: AtomicBool,
    /// Changes whenever a client is added to a reactor or removed from it.
    epoch: AtomicU64,
    /// The identifier of the next connection.
    next_connection: AtomicU64,
    bans: Bans,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<IpAddr, Arc<ClientRecord>>,
    /// The number of entries at which those without holders are removed.
    sweep_at: usize,
    /// The totals of removed clients.
    gone: Totals,
    limits: Vec<ClientLimit>,
    classes: ClassNames,
    exports: HashMap<ExportId, Arc<Limit>>,
}

/// A limit for each client of some networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// The networks.
    pub networks: Vec<IpNet>,
    /// The limit of each client.
    pub rates: Rates,
}

/// A client: an address, summed over its connections on all reactors.
#[derive(Debug)]
pub struct ClientRecord {
    address: IpAddr,
    limit: Arc<Limit>,
    /// The name of its class. Locked for new shares of reactors, and by changes of limits.
    class: Mutex<Arc<str>>,
    /// Its usage on each reactor, at least one. Written by that reactor only.
    pub(super) slots: Box<[CoreBlock<ClientSlot>]>,
}

impl ClientTable {
    /// An empty table, for a process with this number of reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                reactors: reactors.max(1),
                origin: Origin(Instant::now()),
                limited: AtomicBool::new(false),
                exports_limited: AtomicBool::new(false),
                epoch: AtomicU64::new(0),
                next_connection: AtomicU64::new(1),
                bans: Bans::default(),
                table: Mutex::default(),
            }),
        }
    }

    /// The client at an address.
    pub(super) fn client(&self, address: IpAddr) -> Arc<ClientRecord> {
        let mut table = self.lock();
        if let Some(client) = table.clients.get(&address) {
            return Arc::clone(client);
        }
        if table.clients.len() >= table.sweep_at {
            table.sweep();
        }
        let slots = std::iter::repeat_with(CoreBlock::default);
        let limit = Arc::<Limit>::default();
        let entry = table.entry_of(address);
        limit.set(table.rates_at(entry), 0);
        let client = Arc::new(ClientRecord {
            address,
            limit,
            class: Mutex::new(table.classes.at(entry)),
            slots: slots.take(self.inner.reactors).collect(),
        });
        table.clients.insert(address, Arc::clone(&client));
        client
    }

    /// An identifier for a connection: unique in the process, and small enough for the numbers of
    /// every language.
    pub(crate) fn new_connection(&self) -> u64 {
        self.inner.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    /// Addresses that may not connect.
    #[must_use]
    pub fn bans(&self) -> &Bans {
        &self.inner.bans
    }

    /// The clients and their usage. Waits for no reactor, and delays only reactors that add a
    /// connection at the same time.
    #[must_use]
    pub fn usage(&self) -> ClientsUsage {
        let mut table = self.lock();
        table.sweep();
        let rates = |address| table.rates_at(table.entry_of(address));
        let of = |client: &Arc<ClientRecord>| client.usage(rates(client.address));
        let mut present: Vec<_> = table.clients.values().map(of).collect();
        let gone = table.gone;
        drop(table);
        present.sort_unstable_by_key(|client| client.address);
        ClientsUsage { present, gone }
    }

    /// The limit of an export, over all reactors.
    pub(super) fn export(&self, export: ExportId) -> Arc<Limit> {
        Arc::clone(self.lock().exports.entry(export).or_default())
    }

    /// Replaces all limits: for each client by that of the first entry with a network of the
    /// client, and for each export by its own. They apply to calls from now on; waiting calls
    /// observe them after [`super::Flow::limits_changed`] of their reactor.
    pub fn set_limits(
        &self,
        clients: &[ClientLimit],
        exports: impl IntoIterator<Item = (ExportId, Rates)>,
        now: Instant,
    ) {
        let now = self.inner.origin.nanoseconds(now);
        let mut table = self.lock();
        clients.clone_into(&mut table.limits);
        table.classes.set(clients);
        for (address, client) in &table.clients {
            let entry = table.entry_of(*address);
            client.limit.set(table.rates_at(entry), now);
            *client.lock_class() = table.classes.at(entry);
        }
        let mut new: HashMap<ExportId, Rates> = exports.into_iter().collect();
        for (export, limit) in &table.exports {
            limit.set(new.remove(export).unwrap_or_default(), now);
        }
        for (export, rates) in new {
            table.exports.entry(export).or_default().set(rates, now);
        }
        // Exports without a limit and without waiters are removed.
        table
            .exports
            .retain(|_, limit| !limit.is_unlimited() || Arc::strong_count(limit) > 1);
        let limited = |rates: &Rates| !rates.is_unlimited();
        let exports = table.exports.values().any(|limit| !limit.is_unlimited());
        let clients = clients.iter().any(|entry| limited(&entry.rates));
        let inner = &*self.inner;
        inner.exports_limited.store(exports, Ordering::Relaxed);
        inner.limited.store(exports || clients, Ordering::Relaxed);
    }

    /// The classes that clients may have now.
    #[must_use]
    pub fn classes(&self) -> Vec<Arc<str>> {
        self.lock().classes.all()
    }

    /// Calls that wait for the limit of an export, on all reactors.
    #[must_use]
    pub fn export_waiting(&self, export: ExportId) -> u32 {
        let table = self.lock();
        table
            .exports
            .get(&export)
            .map_or(0, |limit| limit.waiting())
    }

    /// Whether there is any limit.
    pub(super) fn is_limited(&self) -> bool {
        self.inner.limited.load(Ordering::Relaxed)
    }

    /// Whether there is any limit of an export.
    pub(super) fn has_limited_exports(&self) -> bool {
        self.inner.exports_limited.load(Ordering::Relaxed)
    }

    pub(super) fn origin(&self) -> Origin {
        self.inner.origin
    }

    /// Changes whenever a client is added to a reactor or removed from it.
    pub(super) fn epoch(&self) -> u64 {
        self.inner.epoch.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.inner
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Removes clients without holders, keeping their totals. New holders come through the table
    /// only, which is locked.
    fn sweep(&mut self) {
        let gone = &mut self.gone;
        self.clients.retain(|_, client| match Arc::get_mut(client) {
            Some(client) => {
                gone.add(&client.totals());
                false
            }
            None => true,
        });
        self.sweep_at = 2 * self.clients.len() + 16;
    }

    fn rates_at(&self, entry: Option<usize>) -> Rates {
        let entry = entry.and_then(|position| self.limits.get(position));
        entry.map_or_else(Rates::default, |entry| entry.rates)
    }

    /// The position of the first entry of the limits with a network of a client.
    fn entry_of(&self, address: IpAddr) -> Option<usize> {
        let address = address.to_canonical();
        let of = |entry: &ClientLimit| entry.networks.iter().any(|n| n.contains(&address));
        self.limits.iter().position(of)
    }
}

impl ClientRecord {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Its limit, over all reactors.
    #[must_use]
    pub fn limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// The name of its class: of the entry of the limits that applies to it.
    #[must_use]
    pub fn class(&self) -> Arc<str> {
        Arc::clone(&self.lock_class())
    }

    fn lock_class(&self) -> MutexGuard<'_, Arc<str>> {
        self.class.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of reactors with RDMA connections of it.
    #[must_use]
    pub fn reactors(&self) -> u32 {
        let on = self.slots.iter().filter(|slot| slot.rdma.get() > 0);
        u32::try_from(on.count()).unwrap_or(u32::MAX)
    }

    /// Sets the number of its RDMA connections on a reactor.
    pub(super) fn set_connections(&self, clients: &ClientTable, reactor: usize, count: u32) {
        let rdma = &self.slot(reactor).rdma;
        let before = rdma.get();
        rdma.set(u64::from(count));
        if (before == 0) != (count == 0) {
            clients.inner.epoch.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_gone_are_kept_only_where_calls_may_wait() {
        let clients = ClientTable::new(1);
        let (used, unused) = (ExportId::of("/used"), ExportId::of("/unused"));
        let limit = Rates {
            iops: Some(1),
            bandwidth: None,
        };
        let limits = [(used, limit), (unused, limit)];
        clients.set_limits(&[], limits, Instant::now());
        let held = clients.export(used);
        clients.set_limits(&[], [], Instant::now());
        let kept: Vec<_> = clients.lock().exports.keys().copied().collect();
        assert_eq!(kept, [used]);
        // A new limit holds for calls that wait at the old one.
        clients.set_limits(&[], [(used, limit)], Instant::now());
        assert!(!held.is_unlimited());
    }

    #[test]
    fn clients_without_holders_do_not_fill_the_table() {
        let clients = ClientTable::new(1);
        let address = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let connected: Vec<_> = (0..100).map(|one| clients.client(address(one))).collect();
        let sizes = (100..2000).map(|one| {
            drop(clients.client(address(one)));
            clients.lock().clients.len()
        });
        // They are looked for when there may be as many as the others, not each time.
        assert_eq!(sizes.max(), Some(2 * connected.len() + 16));
    }

    #[test]
    fn a_ban_is_of_the_whole_process() {
        let (clients, now) = (ClientTable::new(1), Instant::now());
        let address = IpAddr::from([10, 0, 0, 1]);
        let until = now + std::time::Duration::from_secs(1);
        clients.bans().ban(address, until, now).unwrap();
        assert!(clients.clone().bans().has(address, now));
        assert!(!ClientTable::new(1).bans().has(address, now));
    }
}
