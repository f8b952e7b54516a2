//! The offered programs and their addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use millrace_wire::rpcbind::Netid;
use millrace_wire::{mount, nfs3, rpcbind};

/// A version of a program on a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The transport.
    pub netid: Netid,
    /// Its address; an unspecified address means all addresses of the host.
    pub address: SocketAddr,
}

/// Everything that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    list: Vec<Offer>,
}

impl Offers {
    /// The offers of a service: these versions of NFS at the TCP address and at each RDMA address,
    /// and MOUNT at the TCP address where version 3 is one of them.
    #[must_use]
    pub fn of_service(versions: &[u32], tcp: Option<SocketAddr>, rdma: &[SocketAddr]) -> Self {
        let mut offers = Self::default();
        if let Some(address) = tcp {
            for &version in versions {
                offers.add(nfs3::PROGRAM, version, [Netid::Tcp, Netid::Tcp6], address);
            }
            if versions.contains(&nfs3::VERSION) {
                let tcp = [Netid::Tcp, Netid::Tcp6];
                offers.add(mount::PROGRAM, mount::VERSION, tcp, address);
            }
        }
        for &address in rdma {
            for &version in versions {
                let rdma = [Netid::Rdma, Netid::Rdma6];
                offers.add(nfs3::PROGRAM, version, rdma, address);
            }
        }
        offers
    }

    /// Adds the port mapper itself.
    pub(super) fn add_rpcbind(&mut self, tcp: SocketAddr, udp: SocketAddr) {
        for version in [rpcbind::PORTMAP_VERSION]
            .into_iter()
            .chain(rpcbind::RPCBIND_VERSIONS)
        {
            self.add(rpcbind::PROGRAM, version, [Netid::Tcp, Netid::Tcp6], tcp);
            self.add(rpcbind::PROGRAM, version, [Netid::Udp, Netid::Udp6], udp);
        }
    }

    /// Adds a program under the netid for the address: the first of the two for IPv4. A socket
    /// bound to all of IPv6 takes IPv4 too.
    fn add(&mut self, program: u32, version: u32, netids: [Netid; 2], address: SocketAddr) {
        let [v4, v6] = netids;
        let mut push = |netid, address| {
            let offer = Offer {
                program,
                version,
                netid,
                address,
            };
            if !self.list.contains(&offer) {
                self.list.push(offer);
            }
        };
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => push(v4, SocketAddr::from((ip, address.port()))),
            IpAddr::V6(ip) => {
                push(v6, address);
                if ip.is_unspecified() {
                    push(
                        v4,
                        SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())),
                    );
                }
            }
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Offer> {
        self.list.iter()
    }

    /// The offer of a program on a transport: in exactly this version, or else in any, so that the
    /// program itself can report its versions to the client.
    #[must_use]
    pub fn find(&self, program: u32, version: u32, netid: Netid, exact: bool) -> Option<&Offer> {
        let mut any = self
            .list
            .iter()
            .filter(|o| o.program == program && o.netid == netid);
        any.clone()
            .find(|offer| offer.version == version)
            .or_else(|| any.next().filter(|_| !exact))
    }
}

/// The address by which a client reaches an offer. If the offer is bound to all addresses, this is
/// the host's address on the route to the client.
pub(super) fn towards(address: SocketAddr, client: IpAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // Connecting a datagram socket looks up the route and sends nothing.
    let any = SocketAddr::from((address.ip(), 0));
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(SocketAddr::from((client, rpcbind::PORT)))?;
        socket.local_addr()
    });
    local.map_or(address, |local| {
        SocketAddr::from((local.ip(), address.port()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(offers: &Offers, program: u32) -> Vec<(&'static str, String)> {
        let of_program = offers.iter().filter(|offer| offer.program == program);
        of_program
            .map(|offer| (offer.netid.name(), offer.address.to_string()))
            .collect()
    }

    #[test]
    fn rr1_bind_01_rdma_names_follow_the_address_family() {
        let tcp = "127.0.0.1:2049".parse().unwrap();
        let rdma = [
            "10.0.0.1:20049".parse().unwrap(),
            "[2001:db8::1]:20049".parse().unwrap(),
        ];
        let offers = Offers::of_service(&[nfs3::VERSION], Some(tcp), &rdma);
        let expected = [
            ("tcp", "127.0.0.1:2049".to_owned()),
            ("rdma", "10.0.0.1:20049".to_owned()),
            ("rdma6", "[2001:db8::1]:20049".to_owned()),
        ];
        assert_eq!(names(&offers, nfs3::PROGRAM), expected);
        assert_eq!(names(&offers, mount::PROGRAM), expected[..1]);
    }

    #[test]
    fn without_version_3_there_is_no_mount() {
        let tcp = "127.0.0.1:2049".parse().unwrap();
        let offers = Offers::of_service(&[4], Some(tcp), &[tcp]);
        assert_eq!(names(&offers, mount::PROGRAM), []);
        assert!(offers.iter().all(|offer| offer.version == 4));
        assert_eq!(offers.iter().count(), 2);
    }

    #[test]
    fn rr1_bind_01_sockets_of_both_families_have_both_names() {
        let rdma = ["[::]:20049".parse().unwrap()];
        let offers = Offers::of_service(&[nfs3::VERSION], None, &rdma);
        let expected = [
            ("rdma6", "[::]:20049".to_owned()),
            ("rdma", "0.0.0.0:20049".to_owned()),
        ];
        assert_eq!(names(&offers, nfs3::PROGRAM), expected);
    }

    #[test]
    fn unspecified_addresses_become_the_way_to_the_client() {
        let all = "0.0.0.0:2049".parse().unwrap();
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(towards(all, local), "127.0.0.1:2049".parse().unwrap());
        let one = "192.0.2.1:2049".parse().unwrap();
        assert_eq!(towards(one, local), one);
    }
}
