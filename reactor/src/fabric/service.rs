//! The order in which a provider serves its connections.
//!
//! Connections with work wait in a [`ServiceQueue`], which the provider processes once in each
//! turn. Clients (addresses) have equal parts of a turn, however many connections they have: a
//! number of events, and a number of bytes. A client that exceeds its bytes with a long message pays
//! for it in its next round (deficit round robin). The connections of one client take turns: none is
//! served again before all others that waited. New connections in the queue come before those served
//! in the turn before, and of these the ones that had nothing come first. With more clients than a
//! turn can serve well, a round lasts several turns.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use super::QueuePairId;

/// The events of a client in a round with others, and the fewest of a connection when it is served.
/// More would spread the fixed cost of a turn over more events, but calls of other clients wait
/// meanwhile: 100 us for 32 READs of 4 KiB over TCP.
pub(super) const EVENTS_SHARED: usize = 32;

/// The fewest bytes of a connection when it is served.
const BYTES_MIN: usize = 256 << 10;

/// The number of clients at which those without connections are removed from the table.
const SWEEP_AT: usize = 16;

/// The use of one client's part of a round.
#[derive(Debug)]
pub(super) struct ServiceAccount {
    /// Its connections in the queue.
    queued: Cell<u32>,
    /// The round of the other fields.
    round: Cell<u64>,
    /// Events left.
    events: Cell<usize>,
    /// Bytes left; if negative, a debt to its next round.
    bytes: Cell<isize>,
}

/// A connection in a [`ServiceQueue`].
#[derive(Debug)]
pub(super) struct QueuedConnection {
    pub(super) id: QueuePairId,
    account: Rc<ServiceAccount>,
}

/// What a connection may use when it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServiceAllowance {
    /// Events to report.
    pub(super) events: usize,
    /// Bytes to move; the last step may exceed this.
    pub(super) bytes: usize,
}

/// What a connection has used when it was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceUse {
    /// Events reported.
    pub(super) events: usize,
    /// Bytes moved.
    pub(super) bytes: usize,
}

/// Connections that wait to be served.
#[derive(Debug)]
pub(super) struct ServiceQueue {
    /// In the order of service.
    waiting: VecDeque<QueuedConnection>,
    /// Visited in this turn, when their client had used its part.
    skipped: Vec<QueuedConnection>,
    /// Served in the latest turn. They come last in the next one.
    served: Vec<QueuedConnection>,
    /// Visited in the latest turn, and found without work. They come before the served ones.
    idle: Vec<QueuedConnection>,
    accounts: HashMap<IpAddr, Rc<ServiceAccount>>,
    sweep_at: usize,
    /// Clients with connections in the queue.
    clients: usize,
    round: u64,
    /// The round began in an earlier turn, which could not serve all.
    goes_on: bool,
    /// Events that fit into this turn.
    room: usize,
    /// Events of one client in this round.
    share: usize,
    /// Bytes of one client in a round.
    quantum: usize,
}

impl ServiceQueue {
    /// An empty queue, where each client moves about `quantum` bytes in a round.
    pub(super) fn new(quantum: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            skipped: Vec::new(),
            served: Vec::new(),
            idle: Vec::new(),
            accounts: HashMap::new(),
            sweep_at: SWEEP_AT,
            clients: 0,
            round: 0,
            goes_on: false,
            room: 0,
            share: 1,
            quantum,
        }
    }

    /// The account of the client at an address, for [`ServiceQueue::push`].
    pub(super) fn account(&mut self, address: IpAddr) -> Rc<ServiceAccount> {
        if self.accounts.len() >= self.sweep_at {
            self.accounts
                .retain(|_, account| Rc::strong_count(account) > 1);
            self.sweep_at = SWEEP_AT.max(2 * self.accounts.len());
        }
        let account = self
            .accounts
            .entry(address.to_canonical())
            .or_insert_with(|| {
                Rc::new(ServiceAccount {
                    queued: Cell::new(0),
                    round: Cell::new(0),
                    events: Cell::new(0),
                    bytes: Cell::new(0),
                })
            });
        Rc::clone(account)
    }

    /// Waiting connections.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.served.len() + self.idle.len()
    }

    /// Clients with connections in the queue.
    pub(super) fn clients(&self) -> usize {
        self.clients
    }

    /// Changes the number of bytes that each client moves in a round.
    pub(super) fn set_quantum(&mut self, quantum: usize) {
        self.quantum = quantum;
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a connection. It must not be in the queue.
    pub(super) fn push(&mut self, id: QueuePairId, account: &Rc<ServiceAccount>) {
        let queued = account.queued.get();
        self.clients += usize::from(queued == 0);
        account.queued.set(queued + 1);
        self.waiting.push_back(QueuedConnection {
            id,
            account: Rc::clone(account),
        });
    }

    /// Begins a turn with space for this number of events.
    pub(super) fn begin(&mut self, room: usize) {
        self.waiting.extend(self.idle.drain(..));
        self.waiting.extend(self.served.drain(..));
        self.room = room;
        if !self.goes_on {
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.share = match self.clients {
            0 | 1 => self.room,
            _ => self.room.min(EVENTS_SHARED),
        };
    }

    /// Removes the next connection whose client has some of its part left. It is to be returned
    /// with [`ServiceQueue::served`].
    pub(super) fn next(&mut self) -> Option<(QueuedConnection, ServiceAllowance)> {
        loop {
            while let Some(next) = self.waiting.pop_front() {
                match self.allowance(&next.account) {
                    Some(allowance) => return Some((next, allowance)),
                    None => self.skipped.push(next),
                }
            }
            // The rest of an old round must not leave the turn empty.
            if !std::mem::take(&mut self.goes_on) || self.skipped.is_empty() {
                return None;
            }
            self.begin_round();
            self.waiting.extend(self.skipped.drain(..));
        }
    }

    fn allowance(&self, account: &ServiceAccount) -> Option<ServiceAllowance> {
        if account.round.get() != self.round {
            account.round.set(self.round);
            account.events.set(self.share);
            let quantum = self.quantum.cast_signed();
            account.bytes.set(account.bytes.get().min(0) + quantum);
        }
        let events = account.events.get();
        let bytes = usize::try_from(account.bytes.get()).unwrap_or(0);
        if events == 0 || bytes == 0 {
            return None;
        }
        let connections = account.queued.get() as usize;
        if connections < 2 {
            return Some(ServiceAllowance { events, bytes });
        }
        Some(ServiceAllowance {
            events: events.min((self.share / connections).max(EVENTS_SHARED)),
            bytes: bytes.min((self.quantum / connections).max(BYTES_MIN)),
        })
    }

    /// Charges a client for its connection, which is appended if it `stays`.
    pub(super) fn served(&mut self, connection: QueuedConnection, used: ServiceUse, stays: bool) {
        let account = &connection.account;
        account
            .events
            .set(account.events.get().saturating_sub(used.events));
        // A debt never exceeds what the next round pays.
        let least = 1 - self.quantum.cast_signed();
        let bytes = account.bytes.get().saturating_sub_unsigned(used.bytes);
        account.bytes.set(bytes.max(least));
        if stays {
            let list = match used == ServiceUse::default() {
                true => &mut self.idle,
                false => &mut self.served,
            };
            list.push(connection);
        } else {
            let queued = account.queued.get() - 1;
            account.queued.set(queued);
            self.clients -= usize::from(queued == 0);
        }
    }

    /// Ends a turn. Connections that had to wait come first in the next one, then those that are
    /// added before it begins: whoever sends little is not behind those with much to send.
    pub(super) fn end(&mut self) {
        self.goes_on = !self.waiting.is_empty();
        while let Some(connection) = self.skipped.pop() {
            self.waiting.push_front(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 256;
    const QUANTUM: usize = 1 << 20;

    /// A queue and the pending events: by client, by connection.
    struct Provider {
        queue: ServiceQueue,
        clients: Vec<Vec<Pending>>,
    }

    #[derive(Clone, Copy)]
    struct Pending {
        events: usize,
        /// Bytes moved by a step, and steps pending.
        step: usize,
    }

    /// The service of clients in a turn: events and bytes of each connection.
    type Got = Vec<Vec<ServiceUse>>;

    impl Provider {
        fn new(clients: Vec<Vec<Pending>>) -> Self {
            let mut queue = ServiceQueue::new(QUANTUM);
            for (client, connections) in clients.iter().enumerate() {
                let address = IpAddr::from([10, 0, (client / 256) as u8, client as u8]);
                let account = queue.account(address);
                for number in 0..connections.len() {
                    queue.push(name(client, number), &account);
                }
            }
            Self { queue, clients }
        }

        /// Serves like a provider. The work of a connection never runs out.
        fn turn(&mut self) -> Got {
            let mut got: Got = self
                .clients
                .iter()
                .map(|c| vec![ServiceUse::default(); c.len()])
                .collect();
            let mut room = ROOM;
            self.queue.begin(room);
            while room > 0
                && let Some((connection, allowance)) = self.queue.next()
            {
                let (client, number) = (
                    connection.id.generation as usize,
                    connection.id.index as usize,
                );
                let pending = self.clients[client][number];
                let mut used = ServiceUse {
                    events: pending.events.min(allowance.events).min(room),
                    bytes: 0,
                };
                while pending.step > 0 && used.bytes < allowance.bytes {
                    used.bytes += pending.step;
                }
                room -= used.events;
                let sum = &mut got[client][number];
                sum.events += used.events;
                sum.bytes += used.bytes;
                self.queue.served(connection, used, true);
            }
            self.queue.end();
            got
        }
    }

    fn name(client: usize, number: usize) -> QueuePairId {
        QueuePairId {
            index: number as u32,
            generation: client as u32,
        }
    }

    fn events(of: &[ServiceUse]) -> usize {
        of.iter().map(|one| one.events).sum()
    }

    const BUSY: Pending = Pending {
        events: 128,
        step: 0,
    };

    #[test]
    fn a_client_with_many_connections_gets_no_more_of_a_turn_than_one_with_one() {
        let mut provider = Provider::new(vec![vec![BUSY; 200], vec![BUSY]]);
        let mut times = vec![0; 200];
        for turn in 0..1000 {
            let got = provider.turn();
            assert_eq!(events(&got[0]), EVENTS_SHARED, "turn {turn}");
            assert_eq!(events(&got[1]), EVENTS_SHARED, "turn {turn}");
            for (times, got) in times.iter_mut().zip(&got[0]) {
                *times += usize::from(got.events > 0);
            }
            let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            assert!(most - least <= 1, "turn {turn}: {least} and {most} times");
        }
        assert_eq!(times, [5; 200], "one connection in each turn");
    }

    #[test]
    fn connections_that_had_nothing_are_looked_at_first() {
        let mut provider = Provider::new(vec![vec![BUSY], vec![BUSY]]);
        for (client, events) in [(0, 128), (1, 0)] {
            provider.clients[client][0].events = events;
        }
        provider.turn();
        let queue = &mut provider.queue;
        queue.begin(ROOM);
        assert_eq!(queue.len(), 2);
        let order: Vec<_> = std::iter::from_fn(|| Some(queue.next()?.0.id.generation)).collect();
        assert_eq!(order, [1, 0]);
    }

    #[test]
    fn one_connection_alone_has_the_whole_turn() {
        let all = Pending {
            events: 1000,
            step: 0,
        };
        let mut provider = Provider::new(vec![vec![all]]);
        assert_eq!(provider.turn()[0][0].events, ROOM);
        let mut provider = Provider::new(vec![vec![all; 2]]);
        let got = provider.turn();
        assert_eq!([got[0][0].events, got[0][1].events], [128, 128]);
    }

    #[test]
    fn more_clients_than_a_turn_has_room_for_come_in_rounds() {
        let mut clients = vec![vec![BUSY]; 999];
        clients[3] = vec![BUSY; 500];
        let mut provider = Provider::new(clients);
        let mut sums = vec![0; 999];
        for turn in 0..999 {
            let got = provider.turn();
            assert_eq!(
                got.iter().map(|of| events(of)).sum::<usize>(),
                ROOM,
                "turn {turn}"
            );
            for (sum, of) in sums.iter_mut().zip(&got) {
                *sum += events(of);
            }
            let (least, most) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
            let ahead = most - least;
            assert!(
                ahead <= EVENTS_SHARED,
                "turn {turn}: {least} and {most} events"
            );
        }
        assert_eq!(sums, [ROOM; 999]);
    }

    #[test]
    fn bytes_beyond_the_quantum_are_owed_to_the_next_round() {
        // A step of one client moves far more than one of the other.
        let long = Pending {
            events: 1,
            step: 700 << 10,
        };
        let short = Pending {
            events: 1,
            step: 1 << 10,
        };
        let mut provider = Provider::new(vec![vec![long; 200], vec![short]]);
        let mut sums = [0; 2];
        for turn in 1..=500 {
            for (sum, of) in sums.iter_mut().zip(provider.turn()) {
                *sum += of.iter().map(|one| one.bytes).sum::<usize>();
            }
            for sum in sums {
                let due = turn * QUANTUM;
                assert!(
                    sum.abs_diff(due) < 700 << 10,
                    "turn {turn}: {sum} of {due} bytes"
                );
            }
        }
    }

    #[test]
    fn a_new_connection_comes_before_those_with_more_to_send() {
        let bulk = Pending {
            events: 1,
            step: 64 << 10,
        };
        let mut provider = Provider::new(vec![vec![bulk]; 3]);
        provider.turn();
        let queue = &mut provider.queue;
        let account = queue.account(IpAddr::from([10, 0, 0, 3]));
        queue.push(name(3, 0), &account);
        queue.begin(ROOM);
        let order: Vec<_> = std::iter::from_fn(|| {
            let (connection, _) = queue.next()?;
            let client = connection.id.generation;
            queue.served(connection, ServiceUse::default(), true);
            Some(client)
        })
        .collect();
        assert_eq!(order, [3, 0, 1, 2]);
    }

    #[test]
    fn a_smaller_quantum_counts_from_the_next_round_on() {
        let bulk = Pending {
            events: 1,
            step: 64 << 10,
        };
        let mut provider = Provider::new(vec![vec![bulk]; 2]);
        assert_eq!(provider.turn()[0][0].bytes, QUANTUM);
        provider.queue.set_quantum(128 << 10);
        let got = provider.turn();
        assert_eq!([got[0][0].bytes, got[1][0].bytes], [128 << 10; 2]);
    }

    #[test]
    fn no_debt_stops_a_client_for_good() {
        let huge = Pending {
            events: 1,
            step: 100 << 20,
        };
        let mut provider = Provider::new(vec![vec![huge]]);
        for _ in 0..5 {
            assert_eq!(provider.turn()[0][0].bytes, 100 << 20);
        }
    }

    #[test]
    fn accounts_of_clients_that_are_gone_are_swept_out() {
        let mut queue = ServiceQueue::new(QUANTUM);
        let kept = queue.account(IpAddr::from([10, 0, 0, 1]));
        for host in 0..10_000_u32 {
            queue.account(IpAddr::V4(host.into()));
            assert!(queue.accounts.len() <= SWEEP_AT);
        }
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(Rc::ptr_eq(&kept, &queue.account(mapped)));
    }
}
