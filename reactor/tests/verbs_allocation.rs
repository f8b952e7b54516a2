//! The data path of RDMA devices allocates nothing in its steady state. Needs a device: see
//! `verbs/main.rs`.

mod exchange;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use millrace_reactor::fabric::verbs::{Devices, Verbs, VerbsConfig};

use exchange::{Node, allocations};

/// Where to listen.
fn address() -> SocketAddr {
    let fabric = std::env::var("MILLRACE_TEST_FABRIC").unwrap_or_default();
    let address = match fabric.strip_prefix("verbs:") {
        Some(address) => address.parse().expect("verbs:ADDRESS"),
        None => IpAddr::from(Ipv4Addr::new(10, 0, 2, 15)),
    };
    SocketAddr::new(address, 0)
}

#[test]
#[ignore = "needs an RDMA device"]
fn calls_with_reads_and_writes_allocate_nothing() {
    for shared_receives in [false, true] {
        let config = VerbsConfig {
            shared_receives,
            ..VerbsConfig::default()
        };
        let nodes = [(); 2].map(|()| {
            Node::new(|registry| {
                let devices = Devices::open(registry).expect("a device");
                Verbs::new(&devices, config.clone()).expect("a provider")
            })
        });
        assert_eq!(allocations(nodes, address(), 200), 0, "{shared_receives}");
    }
}
