//! Addresses that may not connect for a time, by order of an operator.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most at once.
const BANS_MAX: usize = 1024;

/// The bans of the process. Clones share them. Asked when a connection is made, never for a call.
#[derive(Clone, Debug, Default)]
pub struct Bans {
    until: Arc<Mutex<HashMap<IpAddr, Instant>>>,
}

/// There are as many bans as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{BANS_MAX} addresses are banned already; lift a ban first")]
pub struct TooManyBans;

impl Bans {
    /// Bans an address until then, in place of an earlier ban of it.
    ///
    /// # Errors
    /// Too many addresses are banned.
    pub fn ban(&self, address: IpAddr, until: Instant, now: Instant) -> Result<(), TooManyBans> {
        let mut bans = self.lock();
        bans.retain(|_, end| *end > now);
        let address = address.to_canonical();
        if bans.len() >= BANS_MAX && !bans.contains_key(&address) {
            return Err(TooManyBans);
        }
        bans.insert(address, until);
        Ok(())
    }

    /// Lifts the ban of an address. False if there is none.
    pub fn lift(&self, address: IpAddr, now: Instant) -> bool {
        let end = self.lock().remove(&address.to_canonical());
        end.is_some_and(|end| end > now)
    }

    /// Whether an address, IPv4 where it can be, is banned.
    #[must_use]
    pub fn has(&self, address: IpAddr, now: Instant) -> bool {
        self.lock().get(&address).is_some_and(|end| *end > now)
    }

    /// The banned addresses, and for how long, by address.
    #[must_use]
    pub fn list(&self, now: Instant) -> Vec<(IpAddr, Duration)> {
        let left = |(address, end): (&IpAddr, &Instant)| {
            let left = end.saturating_duration_since(now);
            (!left.is_zero()).then_some((*address, left))
        };
        let mut list: Vec<_> = self.lock().iter().filter_map(left).collect();
        list.sort_unstable_by_key(|(address, _)| *address);
        list
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(last: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + last).into()
    }

    #[test]
    fn bans_end_by_themselves_and_by_hand() {
        let (bans, start) = (Bans::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        bans.ban(address(1), at(10), start).unwrap();
        bans.ban(address(2), at(20), start).unwrap();
        assert!(bans.has(address(1), at(9)) && !bans.has(address(1), at(10)));
        assert!(!bans.has(address(3), start));
        assert_eq!(
            bans.list(at(5)).first(),
            Some(&(address(1), Duration::from_secs(5)))
        );
        assert_eq!(bans.list(at(15)).len(), 1);
        // A later order replaces an earlier one.
        bans.ban(address(2), at(30), at(15)).unwrap();
        assert!(bans.has(address(2), at(25)));
        assert!(bans.lift(address(2), at(25)) && !bans.has(address(2), at(25)));
        assert!(!bans.lift(address(1), at(25)), "it has ended");
    }

    #[test]
    fn an_ipv4_address_is_the_same_within_ipv6() {
        let (bans, now) = (Bans::default(), Instant::now());
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        bans.ban(mapped.into(), now + Duration::from_secs(1), now)
            .unwrap();
        assert!(bans.has(address(1), now));
        assert!(bans.lift(mapped.into(), now));
    }

    #[test]
    fn the_number_of_bans_is_bounded() {
        let (bans, now) = (Bans::default(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(9));
        for last in 0..BANS_MAX as u32 {
            bans.ban(address(last), soon, now).unwrap();
        }
        assert_eq!(bans.ban(address(9999), soon, now), Err(TooManyBans));
        assert_eq!(
            bans.ban(address(7), later, now),
            Ok(()),
            "it is banned already"
        );
        // Those that have ended make room.
        assert_eq!(bans.ban(address(9999), later, soon), Ok(()));
        assert_eq!(bans.list(soon).len(), 2);
    }
}
