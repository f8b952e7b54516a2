//! Networks of clients, in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::scalar::text_scalar;

/// A network such as `10.0.0.0/8` or `::1/128`; a bare address is a network of one. An IPv4-mapped
/// IPv6 network (`::ffff:10.0.0.0/104`) is treated as the IPv4 network, as its clients have IPv4
/// addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(pub IpNet);

/// An invalid network; the text says what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNetworkError {
    /// Neither address nor CIDR.
    #[error("expected a network such as 10.0.0.0/8 or fd00::/8, or one address")]
    Form,
    /// The prefix is longer than the address.
    #[error("the prefix length must be from 0 to {0}")]
    Prefix(u8),
    /// Bits after the prefix are set: a mistyped address or a mistyped prefix.
    #[error("bits after the prefix are set; did you mean {0}, or one address without a prefix?")]
    HostBits(Network),
}

impl Network {
    /// The network with `prefix` leading bits of `address`.
    ///
    /// # Errors
    ///
    /// The prefix is longer than the address.
    pub fn around(address: IpAddr, prefix: u8) -> Result<Self, ParseNetworkError> {
        match IpNet::new(address, prefix) {
            Ok(network) => Ok(Self(network.trunc())),
            Err(_) => Err(ParseNetworkError::Prefix(longest_prefix(address))),
        }
    }

    /// The network of one address.
    #[must_use]
    pub fn of_one(address: IpAddr) -> Self {
        Self(address.into())
    }

    /// Whether `address`, also if IPv4-mapped, is in the network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    fn canonical(self) -> Self {
        let in_clothes = |prefix| match self.0.addr().to_canonical() {
            address @ IpAddr::V4(_) => IpNet::new(address, prefix).ok(),
            IpAddr::V6(_) => None,
        };
        let prefix = self.0.prefix_len().checked_sub(96);
        Self(prefix.and_then(in_clothes).unwrap_or(self.0))
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ParseNetworkError::Form)?;
        let longest = longest_prefix(address);
        let prefix = match prefix {
            None => longest,
            Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                return Err(ParseNetworkError::Form);
            }
            Some(digits) => digits
                .parse()
                .map_err(|_| ParseNetworkError::Prefix(longest))?,
        };
        let network = Self::around(address, prefix)?;
        if network.0.addr() != address {
            return Err(ParseNetworkError::HostBits(network));
        }
        Ok(network.canonical())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text_scalar!(
    Network,
    "a network such as 10.0.0.0/8 or fd00::/8, or one address"
);

fn longest_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
