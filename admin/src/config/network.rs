//! Networks of clients, in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::scalar::text_scalar;

/// A network such as `10.0.0.0/8` or `::1/128`; a bare address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// A network that could not be read; the text says what is accepted.
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
    /// The network of `prefix` leading bits that `address` is in.
    ///
    /// # Errors
    ///
    /// The prefix is longer than the address.
    pub fn around(address: IpAddr, prefix: u8) -> Result<Self, ParseNetworkError> {
        let longest = longest_prefix(address);
        if prefix > longest {
            return Err(ParseNetworkError::Prefix(longest));
        }
        Ok(Self {
            address: masked(address, prefix),
            prefix,
        })
    }

    /// The same as IPv4 if it is one in IPv6 clothes, as its clients are known by that.
    fn canonical(self) -> Self {
        match (self.address.to_canonical(), self.prefix.checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if self.address.is_ipv6() => {
                Self { address, prefix }
            }
            _ => self,
        }
    }

    /// Whether `address` is in the network; an IPv4 address in IPv6 clothes (`::ffff:10.0.0.1`)
    /// counts as the IPv4 address it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        longest_prefix(address) == longest_prefix(self.address)
            && masked(address, self.prefix) == self.address
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits are the network's.
    pub fn prefix(&self) -> u8 {
        self.prefix
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
        if network.address != address {
            return Err(ParseNetworkError::HostBits(network));
        }
        Ok(network.canonical())
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

text_scalar!(
    Network,
    "a network such as 10.0.0.0/8 or fd00::/8, or one address"
);

fn longest_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}
