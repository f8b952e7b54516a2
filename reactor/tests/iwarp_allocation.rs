//! The software iWARP data path allocates nothing in its steady state.

mod exchange;

use millrace_reactor::fabric::iwarp::{CrcPolicy, Iwarp, IwarpConfig};

use exchange::{Node, allocations};

#[test]
fn calls_with_reads_and_writes_allocate_nothing() {
    let any = "127.0.0.1:0".parse().unwrap();
    for crc in [CrcPolicy::Off, CrcPolicy::Required] {
        let config = IwarpConfig {
            crc,
            ..IwarpConfig::default()
        };
        let nodes = [(); 2].map(|()| Node::new(|_| Iwarp::new(config.clone()).unwrap()));
        assert_eq!(allocations(nodes, any, 1000), 0, "{crc:?}");
    }
}
