//! What each address has of a table that all clients share. An address may have at most as much as it
//! leaves for others, so that there is always something for a newcomer, however many clients one
//! address makes up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};

/// Entries of one table by the address that they count for. Those of unknown addresses are not
/// counted.
#[derive(Debug, Default)]
pub(super) struct AddressShares {
    counts: HashMap<IpAddr, usize>,
}

impl AddressShares {
    pub fn add(&mut self, address: Option<IpAddr>) {
        if let Some(address) = address {
            *self.counts.entry(address).or_default() += 1;
        }
    }

    pub fn remove(&mut self, address: Option<IpAddr>, entries: usize) {
        let Some(address) = address else {
            return;
        };
        if let Entry::Occupied(mut count) = self.counts.entry(address) {
            *count.get_mut() -= entries;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Whether an address may have another entry of a table with so many free ones. It may have
    /// `few` in any case.
    pub fn permits(&self, address: Option<IpAddr>, few: usize, free: usize) -> bool {
        let count = address.and_then(|address| self.counts.get(&address));
        count.is_none_or(|&count| count < few || count <= free)
    }

    /// All that are counted.
    #[cfg(test)]
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }
}

/// The address that what comes from an address counts for: of IPv6 the subnet of 64 bits, from which
/// one host can choose (RFC 4291 section 2.5.1).
pub(super) fn charged_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host = u128::from(u64::MAX);
            Ipv6Addr::from_bits(address.to_bits() & !host).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}
