//! Network identifiers and universal addresses (RFC 5665).

use core::fmt::Write;
use core::net::{IpAddr, SocketAddr};
use core::str;

use arrayvec::ArrayString;

/// A transport that this project has. Names of others are kept as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Netid {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp,
    /// UDP over IPv6.
    Udp6,
    /// RDMA with IPv4 addresses (RFC 8166 section 9).
    Rdma,
    /// RDMA with IPv6 addresses (RFC 8166 section 9).
    Rdma6,
}

impl Netid {
    /// All transports.
    pub const ALL: [Self; 6] = [
        Self::Tcp,
        Self::Tcp6,
        Self::Udp,
        Self::Udp6,
        Self::Rdma,
        Self::Rdma6,
    ];

    /// The registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Udp => "udp",
            Self::Udp6 => "udp6",
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
        }
    }

    /// The transport with this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|netid| netid.name().as_bytes() == name)
    }

    /// Whether its addresses are IPv6.
    #[must_use]
    pub const fn is_ipv6(self) -> bool {
        matches!(self, Self::Tcp6 | Self::Udp6 | Self::Rdma6)
    }
}

/// Room for the longest universal address: 45 bytes of IPv6 address and twice `.255`.
pub type AddressText = ArrayString<56>;

/// The universal address of an IP address and port: the address, then the high and the low byte of
/// the port, with dots between (RFC 5665 sections 5.2.3.3 and 5.2.3.4).
#[must_use]
pub fn universal_address(address: SocketAddr) -> AddressText {
    let [high, low] = address.port().to_be_bytes();
    let mut text = AddressText::new();
    // Cannot fail: the longest address fits.
    let _ = write!(text, "{}.{high}.{low}", address.ip());
    text
}

/// The IP address and port of a universal address.
#[must_use]
pub fn parse_address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (address, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([parse_byte(high)?, parse_byte(low)?]);
    Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, port))
}

/// Digits only: the standard parser would also take a plus sign.
fn parse_byte(text: &str) -> Option<u8> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}
