//! Grouping of addresses for limits.

use std::net::{IpAddr, Ipv4Addr};

/// The address that stands for all addresses available to the owner of `address`: an IPv6 host has
/// the 2^64 of its network, and this host has all of loopback.
pub fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one() {
        for (address, stands_for) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
            ("127.9.9.9", "127.0.0.1"),
            ("::1", "127.0.0.1"),
            ("::ffff:127.0.0.2", "127.0.0.1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(neighbourhood(address).to_string(), stands_for);
        }
    }
}
