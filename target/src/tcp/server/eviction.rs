//! Limits of TCP connections, and eviction.
//!
//! Clients that an export admits can connect however many connections others hold: if the limit is
//! reached, a connection without recent use is evicted. Addresses that no export admits have a few
//! connections for a short time, enough for the answer that they may not mount (RFC 1813 section
//! 5.2.1), and are evicted first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{ConnectionId, Ended, TcpConfig, TcpServer};
use crate::call::Serve;

/// Connections with data within this time are not evicted, unless their client exceeds its share.
const SETTLED: Duration = Duration::from_secs(5);

/// Properties that determine whether a connection is evicted for another.
#[derive(Clone, Copy, Debug)]
struct ConnectionStanding {
    id: ConnectionId,
    address: IpAddr,
    /// An export admits its address.
    is_admitted: bool,
    /// It has sent a valid call.
    has_called: bool,
    /// It has unanswered calls.
    is_busy: bool,
    heard: Instant,
}

/// The decision on a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoomDecision {
    /// There is space.
    Take,
    /// There is space after evicting this one.
    Evict(ConnectionId),
    /// There is none.
    Refuse,
}

/// Decides on a connection from `address`.
fn decide(
    config: &TcpConfig,
    address: IpAddr,
    is_admitted: bool,
    open: &[ConnectionStanding],
    now: Instant,
) -> RoomDecision {
    let is_full = open.len() >= config.connections;
    let unadmitted = || open.iter().filter(|one| !one.is_admitted);
    let evict = |one: Option<&ConnectionStanding>| match one {
        Some(one) => RoomDecision::Evict(one.id),
        None => RoomDecision::Refuse,
    };
    if !is_admitted {
        let own = unadmitted().filter(|one| one.address == address).count();
        if own >= config.unadmitted_per_address {
            return RoomDecision::Refuse;
        }
        if !is_full && unadmitted().count() < config.unadmitted {
            return RoomDecision::Take;
        }
        let idle = unadmitted().filter(|one| !one.is_busy);
        return evict(idle.min_by_key(|one| one.heard));
    }
    if !is_full {
        return RoomDecision::Take;
    }
    if let Some(one) = unadmitted().min_by_key(|one| one.heard) {
        return RoomDecision::Evict(one.id);
    }
    let mut counts = HashMap::<IpAddr, usize>::new();
    for one in open {
        *counts.entry(one.address).or_default() += 1;
    }
    let own = counts.get(&address).copied().unwrap_or(0);
    let idle = open.iter().filter(|one| {
        let since = now.saturating_duration_since(one.heard);
        let may = one.address == address || counts[&one.address] > own;
        may && !one.is_busy && since >= SETTLED
    });
    let longest_idle =
        idle.max_by_key(|one| (!one.has_called, counts[&one.address], Reverse(one.heard)));
    if longest_idle.is_some() {
        return evict(longest_idle);
    }
    // None is idle. A client below its share gets space from one above.
    let clients = counts.len() + usize::from(own == 0);
    let share = (config.connections / clients).max(1);
    let beyond = open
        .iter()
        .filter(|one| counts[&one.address] > share.max(own + 1));
    evict(beyond.max_by_key(|one| (counts[&one.address], !one.is_busy, Reverse(one.heard))))
}

impl<S: Serve> TcpServer<S> {
    /// Makes space for a connection. Returns whether there is some.
    pub(super) fn make_room(&mut self, address: IpAddr, is_admitted: bool, now: Instant) -> bool {
        if is_admitted && self.connections() < self.config.connections {
            return true;
        }
        let slots = (0..).zip(&self.slots);
        let open = slots.filter_map(|(index, slot)| {
            let connection = slot.connection.as_ref()?;
            Some(ConnectionStanding {
                id: ConnectionId {
                    index,
                    generation: slot.generation,
                },
                address: connection.identity.address(),
                is_admitted: connection.is_admitted,
                has_called: connection.has_called,
                is_busy: connection.in_flight > 0 || connection.is_sending(),
                heard: connection.heard(),
            })
        });
        let open: Vec<_> = open.collect();
        match decide(&self.config, address, is_admitted, &open, now) {
            RoomDecision::Take => true,
            RoomDecision::Evict(id) => {
                self.end(id, &Ended::MadeRoom);
                self.counters.evicted.add(1);
                true
            }
            RoomDecision::Refuse => {
                self.counters.refused.add(1);
                if self.refuses_some.is_due(now) {
                    tracing::warn!(
                        %address,
                        is_admitted,
                        "TCP connections are refused: there is no room for them"
                    );
                }
                false
            }
        }
    }

    /// Updates which clients an export admits: exports may have changed.
    pub(super) fn look_who_is_admitted(&mut self) {
        for slot in &mut self.slots {
            if let Some(connection) = &mut slot.connection {
                connection.is_admitted = self.shared.service.admits(connection.identity.address());
                connection.was_admitted |= connection.is_admitted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 8;

    struct Room {
        config: TcpConfig,
        now: Instant,
        open: Vec<ConnectionStanding>,
    }

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    impl Room {
        fn new() -> Self {
            let config = TcpConfig {
                connections: FULL,
                unadmitted: 3,
                unadmitted_per_address: 2,
                ..TcpConfig::default()
            };
            Self {
                config,
                now: Instant::now() + Duration::from_secs(1000),
                open: Vec::new(),
            }
        }

        /// Adds a connection with a previous call, whose last data was received this many seconds
        /// ago.
        fn add(&mut self, last: u8, seconds: u64) -> &mut ConnectionStanding {
            let id = ConnectionId {
                index: self.open.len() as u32,
                generation: 0,
            };
            self.open.push(ConnectionStanding {
                id,
                address: host(last),
                is_admitted: true,
                has_called: true,
                is_busy: false,
                heard: self.now - Duration::from_secs(seconds),
            });
            self.open.last_mut().unwrap()
        }

        fn decide(&self, last: u8, is_admitted: bool) -> RoomDecision {
            decide(&self.config, host(last), is_admitted, &self.open, self.now)
        }

        /// The connection evicted for one from this host, by its number.
        fn victim(&self, last: u8) -> Option<u32> {
            match self.decide(last, true) {
                RoomDecision::Evict(id) => Some(id.index),
                RoomDecision::Refuse => None,
                RoomDecision::Take => panic!("there is room"),
            }
        }
    }

    #[test]
    fn places_are_free_for_all_that_are_admitted_until_they_are_taken() {
        let mut room = Room::new();
        for seconds in 0..FULL as u64 {
            assert_eq!(room.decide(1, true), RoomDecision::Take);
            room.add(1, seconds);
        }
        // Its own longest idle one is evicted.
        assert_eq!(room.victim(1), Some(7));
        assert_eq!(room.victim(2), Some(7));
    }

    #[test]
    fn the_address_with_the_most_makes_room_and_those_without_a_call_before_it() {
        let mut room = Room::new();
        room.add(1, 900);
        for seconds in [30, 60, 40] {
            room.add(2, seconds);
        }
        for _ in 0..2 {
            room.add(3, 900);
        }
        room.add(4, 900);
        room.add(5, 900);
        assert_eq!(room.victim(9), Some(2), "the longest idle of the most");
        room.open[5].has_called = false;
        assert_eq!(room.victim(9), Some(5), "it never sent a call");
        // A client does not evict one of another with no more connections than its own.
        assert_eq!(room.victim(2), Some(2));
        room.open[5].has_called = true;
        room.open[5].heard = room.now;
        for index in 1..4 {
            room.open[index].is_busy = true;
        }
        assert_eq!(room.victim(3), Some(4));
    }

    #[test]
    fn where_all_are_busy_shares_hold() {
        let mut room = Room::new();
        for seconds in 0..6 {
            room.add(1, seconds).is_busy = true;
        }
        for _ in 0..2 {
            room.add(2, 0).is_busy = true;
        }
        assert_eq!(room.victim(3), Some(5));
        assert_eq!(room.victim(2), Some(5));
        assert_eq!(room.victim(1), None, "it has more than its share");
        let mut room = Room::new();
        for last in 0..FULL as u8 {
            room.add(last, 0);
        }
        assert_eq!(room.victim(99), None, "each has its share, and uses it");
        room.open[3].heard = room.now - SETTLED;
        assert_eq!(room.victim(99), Some(3));
    }

    #[test]
    fn addresses_that_no_export_admits_have_a_few_places_and_take_none_from_others() {
        let mut room = Room::new();
        for (last, seconds) in [(1, 1), (1, 2)] {
            assert_eq!(room.decide(last, false), RoomDecision::Take);
            room.add(last, seconds).is_admitted = false;
        }
        assert_eq!(room.decide(1, false), RoomDecision::Refuse);
        room.add(2, 0).is_admitted = false;
        let longest_idle = RoomDecision::Evict(room.open[1].id);
        assert_eq!(room.decide(3, false), longest_idle);
        while room.open.len() < FULL {
            room.add(4, 900);
        }
        assert_eq!(room.decide(3, false), longest_idle);
        assert_eq!(room.victim(5), Some(1), "they are the first to go");
        for one in &mut room.open {
            one.is_admitted = true;
        }
        assert_eq!(room.decide(3, false), RoomDecision::Refuse);
    }
}
