//! Usage of clients and their connections. One reactor writes each number, any thread reads.
//!
//! A call is counted twice: for its connection ([`Usage`], with its own histogram) and for its
//! client, in the slot of the reactor that served it. Both are plain loads and stores; a scrape
//! sums the slots and queries no reactor.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_primitives::{CoreBlock, Counter, Gauge, Histogram};

use super::ClientRecord;
use super::rate::Rates;

/// The usage of one client on one reactor.
#[derive(Debug, Default)]
pub(super) struct ClientSlot {
    /// Open RDMA connections.
    pub rdma: Gauge,
    /// Open TCP connections.
    pub tcp: Gauge,
    /// Credits announced last, over its connections.
    pub credits: Gauge,
    /// Pool memory held by its calls.
    pub memory: Arc<CoreBlock<Gauge>>,
    requests: Counter,
    errors: Counter,
    bytes_read: Counter,
    bytes_written: Counter,
    /// In nanoseconds.
    throttled: Counter,
}

impl ClientSlot {
    /// Adds time that a call had to wait for a limit or for its client's share.
    pub fn add_throttled(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.throttled.add(nanoseconds);
    }

    fn totals(&self) -> Totals {
        Totals {
            errors: self.errors.get(),
            requests: self.requests.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            throttled: Duration::from_nanos(self.throttled.get()),
        }
    }
}

/// Totals of calls, of one client or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls answered.
    pub requests: u64,
    /// Calls answered by a program with a status other than success. They are counted a little
    /// before they are answered.
    pub errors: u64,
    /// Bytes of file data read.
    pub bytes_read: u64,
    /// Bytes of file data written.
    pub bytes_written: u64,
    /// Time that calls had to wait for a limit or for their client's share, summed over calls.
    pub throttled: Duration,
}

impl Totals {
    /// Adds other totals.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.throttled = self.throttled.saturating_add(other.throttled);
    }
}

/// One client, summed over its connections and reactors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientUsage {
    /// Its address.
    pub address: IpAddr,
    /// Its open connections, RDMA and TCP.
    pub connections: u64,
    /// Credits granted now.
    pub credits: u64,
    /// Bytes of pool buffers held by its calls and their replies.
    pub memory: u64,
    /// The totals since it connected.
    pub totals: Totals,
    /// Its limit.
    pub rates: Rates,
}

/// All clients at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientsUsage {
    /// The known ones, by address: with connections, or disconnected for about a minute at most.
    pub present: Vec<ClientUsage>,
    /// The totals of all removed clients. They only grow, and by at least the totals of clients
    /// removed from `present`.
    pub gone: Totals,
}

impl ClientRecord {
    /// Its slot of a reactor.
    pub(super) fn slot(&self, reactor: usize) -> &ClientSlot {
        // There is always at least one, as ensured by `Clients::new`.
        &self.slots[reactor.min(self.slots.len() - 1)]
    }

    /// The totals of its calls, on all reactors.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for slot in &self.slots {
            totals.add(&slot.totals());
        }
        totals
    }

    pub(super) fn usage(&self, rates: Rates) -> ClientUsage {
        let sum = |of: fn(&ClientSlot) -> u64| self.slots.iter().map(|slot| of(slot)).sum();
        ClientUsage {
            address: self.address(),
            connections: sum(|slot| slot.rdma.get() + slot.tcp.get()),
            credits: sum(|slot| slot.credits.get()),
            memory: sum(|slot| slot.memory.get()),
            totals: self.totals(),
            rates,
        }
    }
}

/// The usage of one connection, which counts for its client as well. Written by its reactor only.
#[derive(Debug)]
pub struct Usage {
    client: Arc<ClientRecord>,
    reactor: usize,
    latency: Arc<Histogram>,
    bytes_read: Counter,
    bytes_written: Counter,
}

impl Usage {
    /// For a new connection of a client on a reactor.
    #[must_use]
    pub fn new(client: &Arc<ClientRecord>, reactor: usize) -> Self {
        Self {
            client: Arc::clone(client),
            reactor,
            latency: Arc::default(),
            bytes_read: Counter::new(),
            bytes_written: Counter::new(),
        }
    }

    pub(super) fn slot(&self) -> &ClientSlot {
        self.client.slot(self.reactor)
    }

    /// Counts answered calls with their latency.
    pub fn answered(&self, took: Duration, calls: u64) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency.observe_equal(nanoseconds, calls);
        self.slot().requests.add(calls);
    }

    /// Counts a call with a status other than success.
    #[cold]
    pub fn failed(&self) {
        self.slot().errors.increment();
    }

    /// Adds file data moved by a call, in bytes.
    pub fn moved(&self, read: u32, written: u32) {
        if read > 0 {
            self.bytes_read.add(u64::from(read));
            self.slot().bytes_read.add(u64::from(read));
        }
        if written > 0 {
            self.bytes_written.add(u64::from(written));
            self.slot().bytes_written.add(u64::from(written));
        }
    }

    /// Records a change of the credits granted to the connection.
    pub fn granted(&self, before: u32, after: u32) {
        let credits = &self.slot().credits;
        credits.add(u64::from(after));
        credits.sub(u64::from(before));
    }

    /// The latency of its answered calls.
    #[must_use]
    pub fn latency(&self) -> &Arc<Histogram> {
        &self.latency
    }

    /// Bytes of file data read and written by its calls.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_read.get(), self.bytes_written.get())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::ClientTable;
    use super::*;

    const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn open(clients: &ClientTable, address: IpAddr, reactor: usize) -> Usage {
        let usage = Usage::new(&clients.client(address), reactor);
        usage.slot().tcp.add(1);
        usage
    }

    fn close(usage: Usage) {
        usage.slot().tcp.sub(1);
        drop(usage);
    }

    #[test]
    fn a_client_counts_over_its_connections_and_reactors() {
        let clients = ClientTable::new(2);
        let of = |address, reactor| open(&clients, address, reactor);
        let (one, two, other) = (of(FIRST, 0), of(FIRST, 1), of(SECOND, 1));
        one.answered(Duration::from_micros(3), 1);
        one.moved(100, 0);
        one.failed();
        two.failed();
        two.answered(Duration::from_micros(5), 1);
        two.moved(0, 7);
        two.granted(0, 32);
        two.granted(32, 16);
        other.answered(Duration::from_micros(1), 1);
        close(one);
        let usage = clients.usage();
        let expected = Totals {
            requests: 2,
            errors: 2,
            bytes_read: 100,
            bytes_written: 7,
            throttled: Duration::ZERO,
        };
        assert_eq!(usage.present.len(), 2);
        assert_eq!(
            usage.present[0],
            ClientUsage {
                address: FIRST,
                connections: 1,
                credits: 16,
                memory: 0,
                totals: expected,
                rates: Rates::default(),
            }
        );
        assert_eq!(usage.present[1].totals.requests, 1);
        assert_eq!(usage.gone, Totals::default());
        assert_eq!(two.latency().snapshot().count(), 1);
        assert_eq!(two.bytes(), (0, 7));
    }

    #[test]
    fn what_clients_did_that_have_gone_is_not_forgotten() {
        let clients = ClientTable::new(1);
        let sum = || {
            let usage = clients.usage();
            let present = usage.present.iter().map(|client| client.totals.requests);
            (usage.gone.requests, present.sum::<u64>())
        };
        // Enough to trigger removals while there are no readers.
        for round in 0..200_u32 {
            let usage = open(&clients, IpAddr::V4((round + 1).into()), 0);
            usage.answered(Duration::ZERO, 1);
            close(usage);
        }
        let kept = open(&clients, FIRST, 0);
        kept.answered(Duration::ZERO, 1);
        assert_eq!(sum(), (200, 1));
        close(kept);
        assert_eq!(sum(), (201, 0));
        // A client that returns starts at zero, and the sums continue.
        let back = open(&clients, FIRST, 0);
        back.answered(Duration::ZERO, 1);
        assert_eq!(sum(), (201, 1));
    }

    #[test]
    fn a_reactor_beyond_those_of_the_table_counts_as_the_last_one() {
        let clients = ClientTable::new(2);
        let usages = [1, 2, 3].map(|reactor| open(&clients, FIRST, reactor));
        usages
            .iter()
            .for_each(|one| one.answered(Duration::ZERO, 1));
        let record = clients.client(FIRST);
        assert_eq!(record.slots[1].requests.get(), 3);
    }

    #[test]
    fn every_connection_has_an_identifier_of_its_own() {
        let clients = ClientTable::new(1);
        let copy = clients.clone();
        assert_eq!((clients.new_connection(), copy.new_connection()), (1, 2));
    }
}
