//! Socket addresses in the connection manager's form.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Space for an address of either family.
#[derive(Clone, Copy)]
pub(super) union Address {
    any: libc::sockaddr,
    four: libc::sockaddr_in,
    six: libc::sockaddr_in6,
}

impl Address {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self {
                four: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(address) => Self {
                six: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                },
            },
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut *self).cast()
    }

    /// Reads an address of either family; `None` for any other and for null.
    ///
    /// # Safety
    /// `address` points to as many bytes as an IPv6 address takes.
    pub(super) unsafe fn read(address: *const libc::sockaddr) -> Option<SocketAddr> {
        // SAFETY: the caller promises bytes for either family, and any bytes are valid for both.
        let read = unsafe { address.cast::<Self>().read_unaligned() };
        // SAFETY: as above; the family says which it is.
        match i32::from(unsafe { read.any.sa_family }) {
            libc::AF_INET => {
                // SAFETY: as above.
                let four = unsafe { read.four };
                let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(four.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let six = unsafe { read.six };
                let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
                let port = u16::from_be(six.sin6_port);
                Some(SocketAddrV6::new(ip, port, six.sin6_flowinfo, six.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["10.0.2.15:20049", "[fe80::1%3]:1", "[2001:db8::7]:65535"] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut raw = Address::new(address);
            // SAFETY: the union is as long as an address of either family.
            assert_eq!(unsafe { Address::read(raw.as_mut_ptr()) }, Some(address));
        }
        let none = Address {
            six: libc::sockaddr_in6 {
                sin6_family: 0,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
                sin6_scope_id: 0,
            },
        };
        let mut none = none;
        // SAFETY: the union is as long as an address of either family.
        assert_eq!(unsafe { Address::read(none.as_mut_ptr()) }, None);
    }
}
