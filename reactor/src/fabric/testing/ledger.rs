//! Work in flight between the providers of one test, as far as their owners can know.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::fabric::{Event, Operation, QueuePairId, WorkError, WorkRequest};

/// A queue pair of one of the providers.
pub(super) type LedgerName = (usize, QueuePairId);

/// All queue pairs that have not ended.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    ends: HashMap<LedgerName, LedgerEnd>,
}

/// One side of a connection.
#[derive(Debug, Default)]
struct LedgerEnd {
    /// It requested the connection.
    asked: bool,
    /// It waits for the connection to be established.
    waits: bool,
    /// It is about to end.
    ends: bool,
    sent: u64,
    received: u64,
    /// Work requests that will be reported.
    signalled: u64,
    /// Keys with a pending revocation.
    dying: u64,
    /// The address of the requesting side.
    address: Option<SocketAddr>,
}

impl Ledger {
    fn end(&mut self, name: LedgerName) -> &mut LedgerEnd {
        self.ends.entry(name).or_default()
    }

    /// A connection is requested.
    pub fn connects(&mut self, name: LedgerName) {
        let end = self.end(name);
        (end.asked, end.waits) = (true, true);
    }

    /// A request is accepted.
    pub fn accepts(&mut self, name: LedgerName) {
        self.end(name).waits = true;
    }

    /// A side ends the connection and will be notified.
    pub fn ends(&mut self, name: LedgerName) {
        if let Some(end) = self.ends.get_mut(&name) {
            end.ends = true;
        }
    }

    /// A side is dropped and will not be notified.
    pub fn forget(&mut self, name: LedgerName) {
        self.ends.remove(&name);
    }

    /// A provider is dropped.
    pub fn forget_all(&mut self, provider: usize) {
        self.ends.retain(|(owner, _), _| *owner != provider);
    }

    /// Work was posted: the number of Sends, and of reports.
    pub fn posted(&mut self, name: LedgerName, (sends, signalled): (u64, u64)) {
        let end = self.end(name);
        end.sent += sends;
        end.signalled += signalled;
    }

    /// A revocation is pending.
    pub fn revokes(&mut self, name: LedgerName) {
        self.end(name).dying += 1;
    }

    /// Our address of an established connection.
    pub fn stands_at(&mut self, name: LedgerName, address: Option<SocketAddr>) {
        let end = self.end(name);
        if end.asked {
            end.address = address;
        }
    }

    /// Processes an event of a provider.
    pub fn note(&mut self, provider: usize, event: &Event) {
        match event {
            Event::ConnectRequest {
                queue_pair, peer, ..
            } => self.end((provider, *queue_pair)).address = Some(*peer),
            Event::Established { queue_pair, .. } => {
                self.end((provider, *queue_pair)).waits = false;
            }
            Event::Received { queue_pair, .. } => {
                self.end((provider, *queue_pair)).received += 1;
            }
            Event::Completed {
                queue_pair, result, ..
            } => {
                let end = self.end((provider, *queue_pair));
                end.signalled = end.signalled.saturating_sub(1);
                // Other failures end the connection.
                end.ends |= result.is_err_and(|error| error != WorkError::NoReads);
            }
            Event::Revoked { queue_pair, .. } => {
                let end = self.end((provider, *queue_pair));
                end.dying = end.dying.saturating_sub(1);
            }
            Event::Rejected { queue_pair, .. } | Event::Disconnected { queue_pair, .. } => {
                self.forget((provider, *queue_pair));
            }
            Event::Incoming(_) => {}
        }
    }

    /// Whether a notification is pending, or a message has not arrived.
    pub fn is_busy(&self) -> bool {
        let (mut asking, mut asked, mut sent, mut received) = (0, 0, 0, 0);
        for end in self.ends.values() {
            if end.waits || end.ends || end.signalled > 0 || end.dying > 0 {
                return true;
            }
            asking += u64::from(end.asked);
            asked += u64::from(!end.asked);
            sent += end.sent;
            received += end.received;
        }
        asking != asked || sent != received
    }

    /// Queue pairs that have not ended.
    pub fn queue_pairs(&self) -> usize {
        self.ends.len()
    }

    /// Whether a side has not ended.
    pub fn lives(&self, name: LedgerName) -> bool {
        self.ends.contains_key(&name)
    }

    /// The queue pair at the other end of a connection that this one requested, while both exist.
    pub fn other_end(&self, asking: LedgerName) -> Option<LedgerName> {
        let end = self.ends.get(&asking).filter(|end| end.asked)?;
        let address = end.address?;
        let matches =
            |(_, end): &(&LedgerName, &LedgerEnd)| !end.asked && end.address == Some(address);
        self.ends.iter().find(matches).map(|(name, _)| *name)
    }
}

/// The number of Sends in a chain, and of its reports without errors.
pub(super) fn count(chain: &[WorkRequest]) -> (u64, u64) {
    let is_send = |request: &&WorkRequest| matches!(request.operation, Operation::Send { .. });
    let is_signalled = |request: &&WorkRequest| request.signalled;
    (
        chain.iter().filter(is_send).count() as u64,
        chain.iter().filter(is_signalled).count() as u64,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Ended, ListenerId, PrivateData, ReadDepths};

    const CLIENT: LedgerName = (0, QUEUE_PAIR);
    const SERVER: LedgerName = (1, QUEUE_PAIR);
    const QUEUE_PAIR: QueuePairId = QueuePairId {
        index: 3,
        generation: 9,
    };

    fn address() -> SocketAddr {
        "192.0.2.1:1000".parse().unwrap()
    }

    fn established() -> Event {
        Event::Established {
            queue_pair: QUEUE_PAIR,
            private_data: PrivateData::new(),
            depths: ReadDepths::default(),
        }
    }

    /// Both sides of an established connection; at every step before, work is in flight.
    fn connected() -> Ledger {
        let mut ledger = Ledger::default();
        assert!(!ledger.is_busy());
        ledger.connects(CLIENT);
        assert!(ledger.is_busy(), "asked");
        let request = Event::ConnectRequest {
            queue_pair: QUEUE_PAIR,
            listener: ListenerId(0),
            peer: address(),
            private_data: PrivateData::new(),
            depths: ReadDepths::default(),
        };
        ledger.note(1, &request);
        ledger.accepts(SERVER);
        ledger.note(0, &established());
        ledger.stands_at(CLIENT, Some(address()));
        assert!(ledger.is_busy(), "the server has not been told");
        ledger.note(1, &established());
        ledger.stands_at(SERVER, None);
        assert!(!ledger.is_busy());
        ledger
    }

    #[test]
    fn what_was_sent_is_under_way_until_it_arrives() {
        let mut ledger = connected();
        assert_eq!(ledger.other_end(CLIENT), Some(SERVER));
        assert_eq!(ledger.other_end(SERVER), None, "it did not ask");
        ledger.posted(CLIENT, (1, 0));
        assert!(ledger.is_busy());
        let buffer = {
            use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
            let registry = Registry::new(HugepagePolicy::Off);
            let pool = Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap();
            pool.try_acquire(Class::Control).unwrap()
        };
        let received = Event::Received {
            queue_pair: QUEUE_PAIR,
            buffer,
            length: 1,
            invalidated: None,
        };
        ledger.note(1, &received);
        assert!(!ledger.is_busy());
    }

    #[test]
    fn both_sides_learn_of_the_end() {
        let mut ledger = connected();
        let ended = |reason| Event::Disconnected {
            queue_pair: QUEUE_PAIR,
            reason,
        };
        ledger.ends(CLIENT);
        assert!(ledger.is_busy());
        ledger.note(0, &ended(Ended::Local));
        assert!(ledger.is_busy() && ledger.lives(SERVER));
        ledger.note(1, &ended(Ended::Peer));
        assert!(!ledger.is_busy() && ledger.queue_pairs() == 0);
    }
}
