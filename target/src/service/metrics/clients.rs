//! Selects the clients with series of their own, so that their number is bounded.
//!
//! The busiest clients have series; all others, and those that have left, are counted together. A
//! client's series starts at zero: its earlier counts stay with the others. When the series ends,
//! its counts are added to the others. So no sum over all clients ever decreases.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use millrace_admin::figures::ranking::{self, KEPT_FOR, RANK_AFTER};
use millrace_admin::metrics::{Families, catalogue};

use crate::flow::{ClientUsage, ClientsUsage, Totals};

/// The clients with series, from scrape to scrape.
#[derive(Debug, Default)]
pub struct ClientSeries {
    /// Scrapes take turns; there are no other users.
    state: Mutex<ClientsState>,
}

#[derive(Debug, Default)]
struct ClientsState {
    known: HashMap<IpAddr, Known>,
    ranked: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Its totals at the latest scrape.
    totals: Totals,
    /// Its totals at the last ranking.
    ranked: Totals,
    /// Its recent activity.
    busy: u64,
    /// Its own series, if it has any.
    own: Option<Own>,
}

#[derive(Clone, Copy, Debug)]
struct Own {
    /// Its totals at the start of the series.
    base: Totals,
    since: Instant,
}

/// One client's numbers, or those of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    totals: Totals,
    connections: u64,
    credits: u64,
    memory: u64,
}

/// The result of a scrape.
#[derive(Debug, Default)]
struct Told<'a> {
    own: Vec<(&'a ClientUsage, Numbers)>,
    other: Numbers,
}

impl ClientSeries {
    /// Adds the numbers of at most `most` clients, and those of all others together.
    pub fn collect(&self, out: &mut Families, usage: &ClientsUsage, most: usize, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let told = state.tell(usage, most, now);
        drop(state);
        for (client, numbers) in &told.own {
            let name = client.address.to_string();
            write(out, &name, numbers);
            let limits = [
                (&catalogue::CLIENT_LIMIT_CALLS, client.rates.iops),
                (&catalogue::CLIENT_LIMIT_DATA, client.rates.bandwidth),
            ];
            for (family, limit) in limits {
                if let Some(limit) = limit {
                    out.number(family, &[&name], limit);
                }
            }
        }
        write(out, "other", &told.other);
    }
}

fn write(out: &mut Families, client: &str, numbers: &Numbers) {
    let totals = &numbers.totals;
    for (family, number) in [
        (&catalogue::CLIENT_REQUESTS, totals.requests),
        (&catalogue::CLIENT_CONNECTIONS, numbers.connections),
        (&catalogue::CLIENT_CREDITS, numbers.credits),
        (&catalogue::CLIENT_MEMORY, numbers.memory),
    ] {
        out.number(family, &[client], number);
    }
    for (way, bytes) in [("read", totals.bytes_read), ("write", totals.bytes_written)] {
        out.number(&catalogue::CLIENT_DATA, &[client, way], bytes);
    }
    let throttled = totals.throttled;
    out.seconds(&catalogue::CLIENT_THROTTLED, &[client], throttled);
}

impl ClientsState {
    fn tell<'a>(&mut self, usage: &'a ClientsUsage, most: usize, now: Instant) -> Told<'a> {
        // Clients that have left are in `usage.gone`.
        let present: HashMap<IpAddr, &ClientUsage> =
            usage.present.iter().map(|one| (one.address, one)).collect();
        self.known
            .retain(|address, _| present.contains_key(address));
        self.rank(usage, most, now);
        let mut told = Told::default();
        told.other.totals = usage.gone;
        for client in &usage.present {
            let known = self.known.entry(client.address).or_default();
            known.totals = client.totals;
            let mut numbers = Numbers {
                totals: client.totals,
                connections: client.connections,
                credits: client.credits,
                memory: client.memory,
            };
            if let Some(own) = known.own {
                numbers.totals = less(&client.totals, &own.base);
                told.own.push((client, numbers));
                told.other.totals.add(&own.base);
            } else {
                told.other.totals.add(&numbers.totals);
                told.other.connections += numbers.connections;
                told.other.credits += numbers.credits;
                told.other.memory += numbers.memory;
            }
        }
        told
    }

    /// Selects the clients with series from here on.
    fn rank(&mut self, usage: &ClientsUsage, most: usize, now: Instant) {
        let owners = self.known.values().filter(|known| known.own.is_some());
        let mut free = most.saturating_sub(owners.count());
        let too_many = free == 0 && self.owners().len() > most;
        let due = self.ranked.is_none_or(|ranked| now >= ranked + RANK_AFTER);
        if due {
            self.ranked = Some(now);
            for client in &usage.present {
                let known = self.known.entry(client.address).or_default();
                let done = less(&client.totals, &known.ranked);
                let bytes = done.bytes_read + done.bytes_written;
                known.busy = ranking::activity(known.busy, done.requests, bytes);
                known.ranked = client.totals;
            }
        }
        if too_many {
            // The limit was lowered.
            let owners = self.owners();
            for (_, _, address) in owners.iter().take(owners.len() - most) {
                self.end(*address);
            }
        }
        if !due && free == 0 {
            return;
        }
        let mut waiting: Vec<(u64, &ClientUsage)> = Vec::new();
        for client in &usage.present {
            let known = self.known.get(&client.address);
            if known.is_none_or(|known| known.own.is_none()) {
                waiting.push((known.map_or(0, |known| known.busy), client));
            }
        }
        waiting.sort_unstable_by_key(|(busy, client)| (std::cmp::Reverse(*busy), client.address));
        let mut owners = self.owners().into_iter();
        for (busy, client) in waiting {
            if free > 0 {
                free -= 1;
            } else {
                let least = owners.find(|(_, since, _)| now >= *since + KEPT_FOR);
                match least {
                    Some((less, _, address)) if ranking::replaces(busy, less) => {
                        self.end(address);
                    }
                    _ => break,
                }
            }
            let known = self.known.entry(client.address).or_default();
            // Its counts until the latest scrape were reported with the others.
            let base = known.totals;
            known.own = Some(Own { base, since: now });
        }
    }

    /// The clients with series, the least busy first, with their activity and the start of the
    /// series.
    fn owners(&self) -> Vec<(u64, Instant, IpAddr)> {
        let own = self.known.iter().filter_map(|(address, known)| {
            let own = known.own?;
            Some((known.busy, own.since, *address))
        });
        let mut owners: Vec<_> = own.collect();
        owners.sort_unstable();
        owners
    }

    fn end(&mut self, address: IpAddr) {
        if let Some(known) = self.known.get_mut(&address) {
            known.own = None;
        }
    }
}

/// The difference between these totals and those `before`.
fn less(now: &Totals, before: &Totals) -> Totals {
    Totals {
        requests: now.requests.saturating_sub(before.requests),
        errors: now.errors.saturating_sub(before.errors),
        bytes_read: now.bytes_read.saturating_sub(before.bytes_read),
        bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
        throttled: now.throttled.saturating_sub(before.throttled),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
    }

    /// Clients by number, with the calls that they have made.
    fn usage(calls: &[(u8, u64)], gone: u64) -> ClientsUsage {
        let totals = |requests| Totals {
            requests,
            ..Totals::default()
        };
        let client = |&(number, requests): &(u8, u64)| ClientUsage {
            address: address(number),
            connections: 1,
            credits: 8,
            memory: 4096,
            totals: totals(requests),
            rates: crate::flow::rate::Rates::default(),
        };
        ClientsUsage {
            present: calls.iter().map(client).collect(),
            gone: totals(gone),
        }
    }

    /// The calls of those with series, by number, and those of all others.
    fn tell(state: &mut ClientsState, usage: &ClientsUsage, most: usize, now: Instant) -> Shown {
        let told = state.tell(usage, most, now);
        let own = told
            .own
            .iter()
            .map(|(client, numbers)| match client.address {
                IpAddr::V4(address) => (address.octets()[3], numbers.totals.requests),
                IpAddr::V6(_) => unreachable!("all are of version four"),
            });
        (own.collect(), told.other.totals.requests)
    }

    type Shown = (Vec<(u8, u64)>, u64);

    #[test]
    fn the_busiest_have_series_and_the_rest_is_counted_together() {
        let (mut state, now) = (ClientsState::default(), Instant::now());
        let first = usage(&[(1, 10), (2, 500), (3, 20)], 0);
        assert_eq!(
            tell(&mut state, &first, 2, now),
            (vec![(2, 500), (3, 20)], 10)
        );
        // A new one that is slightly busier waits; an idle one keeps its series for now.
        let later = now + RANK_AFTER;
        let second = usage(&[(1, 60), (2, 500), (3, 70)], 0);
        assert_eq!(
            tell(&mut state, &second, 2, later),
            (vec![(2, 500), (3, 70)], 60)
        );
        let late = now + KEPT_FOR;
        let third = usage(&[(1, 2000), (2, 500), (3, 75)], 0);
        // Its earlier counts stay with the others, and the counts of the other one are added there.
        assert_eq!(
            tell(&mut state, &third, 2, late),
            (vec![(1, 1940), (2, 500)], 60 + 75)
        );
        // A client that leaves removes no counts, and one that returns starts at zero.
        let fourth = usage(&[(2, 500), (3, 75)], 2000);
        assert_eq!(
            tell(&mut state, &fourth, 2, late),
            (vec![(2, 500), (3, 0)], 2075)
        );
        assert_eq!(tell(&mut state, &fourth, 0, late), (vec![], 2575));
    }

    proptest! {
        #[test]
        fn sums_never_fall_and_series_stay_bounded(
            steps in proptest::collection::vec(
                (0_u8..12, 0_u64..1000, 0_u64..200, 0_usize..5, 0_u8..8), 1..200,
            ),
        ) {
            let mut state = ClientsState::default();
            let mut now = Instant::now();
            let mut calls: Vec<(u8, u64)> = Vec::new();
            let (mut gone, mut before) = (0, (HashMap::new(), 0));
            for (number, more, pause, most, leaves) in steps {
                now += Duration::from_secs(pause);
                match calls.iter().position(|(known, _)| *known == number) {
                    Some(at) if leaves == 0 => gone += calls.remove(at).1,
                    Some(at) => calls[at].1 += more,
                    None => calls.push((number, more)),
                }
                let (own, other) = tell(&mut state, &usage(&calls, gone), most, now);
                prop_assert!(own.len() <= most);
                prop_assert!(own.len() == most.min(calls.len()), "none is left unused");
                let sum = own.iter().map(|(_, calls)| calls).sum::<u64>() + other;
                prop_assert_eq!(sum, gone + calls.iter().map(|(_, calls)| calls).sum::<u64>());
                prop_assert!(other >= before.1, "the others fell");
                for (number, calls) in &own {
                    // A continuing series never decreases; a new one starts with new counts.
                    if let Some(last) = before.0.get(number) {
                        prop_assert!(leaves == 0 || calls >= last, "{} fell", number);
                    }
                }
                before = (own.into_iter().collect(), other);
            }
        }
    }
}
