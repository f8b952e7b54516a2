//! The memory of records that wait or are served: calls of clients, and replies to reverse calls.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::RECORD_MAX;
use crate::flow::Flow;
use crate::rpc::ConnectionRef;

/// Buffers kept for reuse.
const SPARES_MAX: usize = 32;

/// The limit of records on one reactor: clients have equal parts, but each may have one record.
pub(super) struct RecordBudget {
    flow: Flow,
    /// The limit in bytes, plus one record of each client.
    most: usize,
    held: Cell<usize>,
    /// Records were released since the last query.
    released: Cell<bool>,
    spares: RefCell<Vec<Vec<u8>>>,
}

impl RecordBudget {
    pub fn new(flow: &Flow, most: usize) -> Rc<Self> {
        Rc::new(Self {
            flow: flow.clone(),
            most,
            held: Cell::new(0),
            released: Cell::new(false),
            spares: RefCell::default(),
        })
    }

    /// Whether a client may hold one more record.
    pub fn has_room(&self, connection: &ConnectionRef) -> bool {
        let held = connection.share().record_bytes();
        held == 0 || (self.held.get() < self.most && held < self.flow.tcp_part(self.most))
    }

    /// Whether records were released since the last time.
    pub fn take_released(&self) -> bool {
        self.released.take()
    }

    /// Whether [`take_released`](Self::take_released) would say so.
    pub fn has_released(&self) -> bool {
        self.released.get()
    }

    /// Holds a record until the returned value is dropped. Replaces it by memory for the next one.
    pub fn hold(self: &Rc<Self>, record: &mut Vec<u8>, connection: &ConnectionRef) -> HeldRecord {
        let spare = self.spares.borrow_mut().pop().unwrap_or_default();
        let bytes = std::mem::replace(record, spare);
        self.held.set(self.held.get() + bytes.len());
        connection.share().hold_record(bytes.len());
        HeldRecord {
            bytes,
            connection: connection.clone(),
            budget: Rc::clone(self),
        }
    }
}

/// A record and its connection.
pub(super) struct HeldRecord {
    pub bytes: Vec<u8>,
    pub connection: ConnectionRef,
    budget: Rc<RecordBudget>,
}

impl Drop for HeldRecord {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let (budget, length) = (&*self.budget, bytes.len());
        budget.held.set(budget.held.get() - length);
        budget.released.set(true);
        self.connection.share().release_record(length);
        let mut spares = budget.spares.borrow_mut();
        if spares.len() < SPARES_MAX && bytes.capacity() <= 2 * RECORD_MAX {
            bytes.clear();
            spares.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
    use millrace_reactor::Clock;

    use super::*;
    use crate::call::{Peer, TransportKind};

    #[test]
    fn a_client_that_holds_its_part_gets_no_more_until_it_releases_a_record() {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        let clock = Clock::new(Instant::now());
        let flow = Flow::of_one_reactor(&pool, Class::Control, &clock);
        let connect = |last: u8| {
            let peer = Peer::new(
                SocketAddr::from(([10, 0, 0, last], 700)),
                TransportKind::Tcp,
            );
            let share = flow.join_tcp(peer.address);
            ConnectionRef::new(&flow, share, peer, clock.now())
        };
        let (greedy, other) = (connect(1), connect(2));
        let _ = flow.share(greedy.share());
        // One part is reserved for the next client.
        let budget = RecordBudget::new(&flow, 300);
        let hold = |connection| budget.hold(&mut vec![7; 40], connection);
        let mut held = Vec::new();
        for _ in 0..3 {
            assert!(budget.has_room(&greedy));
            held.push(hold(&greedy));
        }
        assert!(!budget.has_room(&greedy) && budget.has_room(&other));
        held.pop();
        assert!(budget.has_room(&greedy));
        held.push(hold(&greedy));
        assert!(!budget.has_room(&greedy), "as much as before");
        held.clear();
        assert!(budget.has_room(&greedy));
    }
}
