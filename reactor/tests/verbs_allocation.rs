//! The data path of RDMA devices allocates nothing in its steady state. Needs a device: see
//! `verbs/main.rs`.

mod exchange;

use std::net::SocketAddr;

use millrace_reactor::fabric::verbs::{Devices, Verbs, VerbsConfig};

use exchange::{Node, allocations};

#[test]
fn calls_with_reads_and_writes_allocate_nothing() {
    let address = match millrace_testing::rdma_device() {
        Ok(address) => SocketAddr::new(address, 0),
        Err(reason) => {
            millrace_testing::skip!("{reason}");
            return;
        }
    };
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
        assert_eq!(allocations(nodes, address, 200), 0, "{shared_receives}");
    }
}
