//! A delay for addresses that send wrong tokens.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::neighbour::neighbourhood;

/// Wrong tokens that an address may send at once.
const BURST: u32 = 8;
/// Time until it may send one more.
const INTERVAL: Duration = Duration::from_secs(1);
/// Addresses with an entry of their own. All others share one.
const ADDRESSES_MAX: usize = 1024;

/// Addresses that sent wrong tokens recently. An address that sent eight may send one more each
/// second. Wrong tokens before that are refused with the time to wait, and are not recorded. Right
/// tokens are not delayed.
#[derive(Default)]
pub struct Throttle {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// By address, the time when its wrong tokens expire.
    by_address: HashMap<IpAddr, Instant>,
    /// The same for all addresses without an entry.
    others: Option<Instant>,
}

impl Throttle {
    /// How long this address has to wait; `None` if it may try now.
    pub fn wait(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = *places.place(address, now);
        let wait = forgotten.saturating_duration_since(now + INTERVAL * (BURST - 1));
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a wrong token of this address.
    pub fn wrong(&self, address: IpAddr, now: Instant) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        *places.place(address, now) += INTERVAL;
    }
}

impl Places {
    fn place(&mut self, address: IpAddr, now: Instant) -> &mut Instant {
        let address = neighbourhood(address);
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, forgotten| *forgotten > now);
        }
        let full = self.by_address.len() >= ADDRESSES_MAX;
        let forgotten = match full && !self.by_address.contains_key(&address) {
            true => self.others.get_or_insert(now),
            false => self.by_address.entry(address).or_insert(now),
        };
        *forgotten = now.max(*forgotten);
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn after_a_few_wrong_tokens_an_address_waits_a_second_for_each() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let bad = address("192.0.2.1");
        for _ in 0..BURST {
            assert_eq!(throttle.wait(bad, start), None);
            throttle.wrong(bad, start);
        }
        assert_eq!(throttle.wait(bad, start), Some(INTERVAL));
        assert_eq!(throttle.wait(address("192.0.2.2"), start), None);
        assert_eq!(
            throttle.wait(address("::ffff:192.0.2.1"), start),
            Some(INTERVAL)
        );

        let later = start + INTERVAL;
        assert_eq!(throttle.wait(bad, later), None);
        throttle.wrong(bad, later);
        assert_eq!(throttle.wait(bad, later), Some(INTERVAL));
        let much_later = later + INTERVAL * BURST;
        for _ in 0..BURST {
            assert_eq!(throttle.wait(bad, much_later), None);
            throttle.wrong(bad, much_later);
        }
        assert_eq!(throttle.wait(bad, much_later), Some(INTERVAL));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for host in 0..BURST {
            throttle.wrong(address(&format!("2001:db8::{host:x}")), now);
        }
        assert!(throttle.wait(address("2001:db8::ffff"), now).is_some());
        assert!(throttle.wait(address("2001:db8:0:1::"), now).is_none());
    }

    #[test]
    fn the_memory_is_bounded_and_those_without_a_place_share_one() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let numbered = |number: u32| IpAddr::V4((0x0a00_0000 + number).into());
        let most = u32::try_from(ADDRESSES_MAX).unwrap();
        for number in 0..most + BURST {
            throttle.wrong(numbered(number), now);
        }
        assert_eq!(
            throttle.places.lock().unwrap().by_address.len(),
            ADDRESSES_MAX
        );
        assert!(throttle.wait(address("192.0.2.1"), now).is_some());
        assert!(throttle.wait(numbered(0), now).is_none());
        // Once the others have expired there are entries again.
        let later = now + INTERVAL;
        assert!(throttle.wait(address("192.0.2.1"), later).is_none());
        assert_eq!(throttle.places.lock().unwrap().by_address.len(), 1);
    }
}
