//! Networks in the notation `10.0.0.0/8` or `::1/128`, and whether a client is in one.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network: expected an address such as 10.0.0.0/8, 192.0.2.7 or ::1/128")]
pub struct BadNetwork(String);

impl Network {
    /// Whether an address belongs to the network. IPv4-mapped IPv6 addresses count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let difference = network.to_bits() ^ address.to_bits();
                difference.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let difference = network.to_bits() ^ address.to_bits();
                difference.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| bad())?,
            None => width,
        };
        if prefix > width {
            return Err(bad());
        }
        // A network inside ::ffff:0:0/96 means IPv4 clients.
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
            && prefix >= 96
        {
            return Ok(Self {
                address: IpAddr::V4(v4),
                prefix: prefix - 96,
            });
        }
        Ok(Self { address, prefix })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

/// Whether any of the networks contains the address. No networks at all admit nobody.
#[must_use]
pub fn admits(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// The two networks that admit everybody.
#[must_use]
pub fn everybody() -> [Network; 2] {
    [
        Network {
            address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            prefix: 0,
        },
        Network {
            address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            prefix: 0,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network
            .parse::<Network>()
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn prefixes() {
        assert!(contains("10.0.0.0/8", "10.255.1.2"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.1.2.3/31", "10.1.2.2"));
        assert!(!contains("10.1.2.3/31", "10.1.2.4"));
        assert!(contains("0.0.0.0/0", "192.0.2.1"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(contains("192.0.2.7", "192.0.2.7"));
        assert!(!contains("192.0.2.7", "192.0.2.6"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::1"));
        assert!(contains("::1/128", "::1"));
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::/0", "::ffff:10.1.2.3"));
    }

    #[test]
    fn bad_networks_are_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "host",
            "10.0.0.0/8/8",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn no_networks_admit_nobody() {
        assert!(!admits(&[], IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert!(admits(&everybody(), IpAddr::V6(Ipv6Addr::LOCALHOST)));
    }
}
