//! Limits of memory exposed for clients to fetch (RFC 5666 section 11).
//!
//! Clients that never send RDMA_DONE, alone or together, must not exhaust the service. So besides
//! each connection's own limit there are limits for all connections of one client, and for all
//! clients of all reactors.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limits of read-chunk replies, the same for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposureLimits {
    /// How long a reply may wait for RDMA_DONE, from when it is sent.
    pub window: Duration,
    /// Whether the end of the window closes the connection, or only ends the exposure.
    pub close: bool,
    /// The most replies waiting for RDMA_DONE on one connection.
    pub connection: u32,
    /// The most replies waiting for RDMA_DONE on all connections from one address.
    pub client: u32,
    /// The most replies waiting for RDMA_DONE in the whole service.
    pub total: u32,
    /// The most bytes exposed in the whole service.
    pub bytes: u64,
}

impl Default for ExposureLimits {
    /// The defaults of the configuration's section `flow`.
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            close: false,
            connection: 16,
            client: 64,
            total: 1024,
            bytes: 256 << 20,
        }
    }
}

/// The exposed replies and bytes of the whole service, within their limits.
///
/// Shared by all reactors, behind a lock: only replies with read chunks use it, never the common
/// path of a READ or WRITE.
#[derive(Debug, Default)]
pub struct ExposureBudget {
    totals: Mutex<Totals>,
}

#[derive(Debug, Default)]
struct Totals {
    replies: u32,
    bytes: u64,
    /// Replies by client; clients without any are not listed.
    clients: HashMap<IpAddr, u32>,
}

impl ExposureBudget {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        // Counts are always consistent.
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves one reply of `bytes` for a client. Returns whether the limits permitted it; if not,
    /// nothing was reserved.
    pub(in crate::rdma) fn take(
        &self,
        client: IpAddr,
        bytes: u64,
        limits: &ExposureLimits,
    ) -> bool {
        let totals = &mut *self.totals();
        let of_client = totals.clients.get(&client).copied().unwrap_or(0);
        let after = totals.bytes.saturating_add(bytes);
        if totals.replies >= limits.total || of_client >= limits.client || after > limits.bytes {
            return false;
        }
        totals.replies += 1;
        totals.bytes = after;
        totals.clients.insert(client, of_client + 1);
        true
    }

    /// Releases a reply.
    pub(in crate::rdma) fn give_reply(&self, client: IpAddr) {
        let totals = &mut *self.totals();
        totals.replies = totals.replies.saturating_sub(1);
        if let Some(replies) = totals.clients.get_mut(&client) {
            *replies -= 1;
            if *replies == 0 {
                totals.clients.remove(&client);
            }
        }
    }

    /// Releases bytes, once they are no longer accessible.
    pub(in crate::rdma) fn give_bytes(&self, bytes: u64) {
        let totals = &mut *self.totals();
        totals.bytes = totals.bytes.saturating_sub(bytes);
    }

    /// Replies and bytes exposed now, and the number of clients with any.
    #[must_use]
    pub fn now(&self) -> (u32, u64, usize) {
        let totals = self.totals();
        (totals.replies, totals.bytes, totals.clients.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_holds_by_itself_and_all_comes_back() {
        let budget = ExposureBudget::default();
        let limits = ExposureLimits {
            client: 2,
            total: 3,
            bytes: 100,
            ..ExposureLimits::default()
        };
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        assert!(budget.take(one, 10, &limits));
        assert!(!budget.take(one, 91, &limits), "too many bytes");
        assert!(budget.take(one, 90, &limits));
        assert!(!budget.take(one, 0, &limits), "too many of one client");
        assert!(budget.take(two, 0, &limits));
        assert!(!budget.take(two, 0, &limits), "too many of all");
        assert_eq!(budget.now(), (3, 100, 2));
        for client in [one, one, two] {
            budget.give_reply(client);
        }
        budget.give_bytes(100);
        assert_eq!(budget.now(), (0, 0, 0));
    }
}
