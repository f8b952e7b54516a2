//! How many creations wait or run: in total, and for clients of one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::GssCounters;

/// The limits, and what is taken of them.
pub struct PendingLimits {
    most: usize,
    most_per_client: usize,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    counters: Arc<GssCounters>,
}

/// One creation; it counts until this is dropped.
pub struct PendingPermit {
    client: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    counters: Arc<GssCounters>,
}

impl PendingLimits {
    pub fn new(most: usize, counters: Arc<GssCounters>) -> Self {
        let most = most.max(1);
        Self {
            most,
            most_per_client: most.div_ceil(4),
            taken: Arc::default(),
            counters,
        }
    }

    /// A permit, if a limit does not forbid it.
    pub fn take(&self, client: IpAddr) -> Option<PendingPermit> {
        let mut taken = lock(&self.taken);
        let total: usize = taken.values().sum();
        let own = taken.get(&client).copied().unwrap_or_default();
        if total >= self.most || own >= self.most_per_client {
            return None;
        }
        taken.insert(client, own + 1);
        self.counters.pending.increment();
        Some(PendingPermit {
            client,
            taken: Arc::clone(&self.taken),
            counters: Arc::clone(&self.counters),
        })
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
        self.counters.pending.decrement();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
