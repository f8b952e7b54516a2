//! Who the clients are: of the whole process, by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrace_admin::metrics::CoreBlock;

/// The clients of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct Clients {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    reactors: usize,
    /// Changes whenever a client comes to a reactor or leaves it.
    epoch: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    clients: HashMap<IpAddr, Weak<Client>>,
    /// Entries at which those whose clients have gone are swept out.
    sweep_at: usize,
}

/// A client: an address, summed over its connections on all reactors.
#[derive(Debug)]
pub struct Client {
    address: IpAddr,
    /// Connections on each reactor. Only that reactor writes.
    connections: Box<[CoreBlock<AtomicU32>]>,
}

impl Clients {
    /// None yet, for a process with so many reactors.
    #[must_use]
    pub fn new(reactors: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                reactors: reactors.max(1),
                epoch: AtomicU64::new(0),
                table: Mutex::default(),
            }),
        }
    }

    /// The client at an address.
    pub(super) fn client(&self, address: IpAddr) -> Arc<Client> {
        let mut table = self.lock();
        if let Some(client) = table.clients.get(&address).and_then(Weak::upgrade) {
            return client;
        }
        if table.clients.len() >= table.sweep_at {
            table.clients.retain(|_, client| client.strong_count() > 0);
            table.sweep_at = 2 * table.clients.len() + 16;
        }
        let connections = std::iter::repeat_with(CoreBlock::default);
        let client = Arc::new(Client {
            address,
            connections: connections.take(self.inner.reactors).collect(),
        });
        table.clients.insert(address, Arc::downgrade(&client));
        client
    }

    /// Changes whenever a client comes to a reactor or leaves it.
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

impl Client {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Reactors that it has connections on.
    #[must_use]
    pub fn reactors(&self) -> u32 {
        let on = |block: &&CoreBlock<AtomicU32>| block.load(Ordering::Relaxed) > 0;
        u32::try_from(self.connections.iter().filter(on).count()).unwrap_or(u32::MAX)
    }

    /// Notes how many connections it has on a reactor.
    pub(super) fn set_connections(&self, clients: &Clients, reactor: usize, count: u32) {
        if let Some(slot) = self.connections.get(reactor) {
            let before = slot.load(Ordering::Relaxed);
            slot.store(count, Ordering::Relaxed);
            if (before == 0) != (count == 0) {
                clients.inner.epoch.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
