//! The reckoning of memory against what a running service really does with it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use millrace::service::Service;
use millrace::service::sizing::{self, Load, Sizing};
use millrace_admin::config::{self, ByteSize, Config};
use millrace_admin::control::Control;
use millrace_admin::status::PoolStatus;
use millrace_bench::requester::{Session, Settings};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What was seen with all clients there.
struct Seen {
    /// The credits that each connection has.
    credits: Vec<u32>,
    pools: Vec<PoolStatus>,
}

fn configuration(inline: &str) -> Config {
    let text = format!(
        "reactors: {{ cores: [0], poll: adaptive }}\n\
         mempool: {{ hugepages: off }}\n\
         fabric: [{{ provider: iwarp, listen: \"127.0.0.1:0\" }}]\n\
         rpc: {{ listen: \"127.0.0.1:0\" }}\n\
         rpcrdma: {{ inline: {inline} }}\n\
         exports: [{{ path: /scratch, store: {{ kind: memory, size: 8MiB }} }}]\n"
    );
    config::parse(&text, "test").expect("good")
}

fn planned(config: &Config, load: Load) -> Sizing {
    sizing::size(config, load).expect("not absurd")
}

/// Runs a service with a pool of this size, and all clients of the load with it at once.
fn run(mut config: Config, load: Load, pool_bytes: u64) -> Seen {
    config.mempool.size = ByteSize(pool_bytes);
    config.flow.credits = load.depth;
    let service = Service::start(Arc::new(config)).expect("starts");
    let address = service.addresses().fabric[0];
    let registry = Registry::new(HugepagePolicy::Off);
    let bytes = (load.connections * load.depth) as usize * 16384 + (16 << 20);
    let pool = Pool::new(&registry, PoolConfig { bytes }).expect("memory");
    let connect = |number: u32| {
        // Each client has an address of its own, or shares it with others.
        let host = u8::try_from(1 + number % load.clients).expect("few clients");
        let provider = Iwarp::new(IwarpConfig {
            source: Some(IpAddr::V4(Ipv4Addr::new(127, 0, 1, host))),
            ..IwarpConfig::default()
        });
        let settings = Settings {
            credits: load.depth,
            calls: load.depth as usize,
            timeout: TEST_TIMEOUT,
            ..Settings::default()
        };
        let provider = Box::new(provider.expect("descriptors"));
        Session::connect(provider, &pool, address, settings).expect("connects")
    };
    let mut sessions: Vec<Session> = (0..load.connections).map(connect).collect();
    // Grants that were cut while connections came rise step by step.
    for _ in 0..20 {
        for session in &mut sessions {
            session.null().expect("an answer");
        }
    }
    let control = service.control();
    let connections = control.connections().expect("reactors answer");
    let seen = Seen {
        credits: connections
            .iter()
            .filter_map(|connection| connection.credits_granted)
            .collect(),
        pools: control.pools().expect("reactors answer"),
    };
    drop(sessions);
    service.drain(Duration::ZERO);
    seen
}

fn class<'a>(seen: &'a Seen, name: &str) -> &'a PoolStatus {
    let found = seen.pools.iter().find(|pool| pool.class == name);
    found.expect("every class is told of")
}

const LOAD: Load = Load {
    connections: 40,
    depth: 32,
    clients: 40,
    long: 0,
    reactors: 1,
};

#[test]
fn a_planned_pool_gives_every_client_all_credits_and_is_used_as_reckoned() {
    for load in [
        LOAD,
        Load { clients: 4, ..LOAD },
        Load { depth: 8, ..LOAD },
        Load {
            connections: 3,
            clients: 1,
            depth: 256,
            ..LOAD
        },
    ] {
        let sizing = planned(&configuration("4KiB"), load);
        let seen = run(configuration("4KiB"), load, sizing.pool_bytes);
        let all = vec![load.depth; load.connections as usize];
        assert_eq!(seen.credits, all, "{load:?} {sizing:?}");
        let control = class(&seen, "control");
        // At rest: the receives, and the one reply that each connection keeps in hand.
        let at_rest = sizing.need.receives + u64::from(load.connections);
        assert_eq!(control.in_use, at_rest, "{load:?}");
        assert!(control.high_water <= sizing.need.buffers[0], "{load:?}");
        assert!(seen.pools.iter().all(|pool| pool.waits == 0), "{load:?}");
    }
}

#[test]
fn receives_longer_than_4_kib_come_from_the_class_that_was_reckoned() {
    let load = Load {
        connections: 4,
        depth: 16,
        clients: 4,
        ..LOAD
    };
    let sizing = planned(&configuration("8KiB"), load);
    let seen = run(configuration("8KiB"), load, sizing.pool_bytes);
    assert_eq!(seen.credits, [16; 4]);
    assert_eq!(class(&seen, "medium").in_use, sizing.need.receives);
    assert_eq!(class(&seen, "control").in_use, 4, "replies in hand");
}

#[test]
fn two_thirds_of_a_planned_pool_are_not_enough() {
    let sizing = planned(&configuration("4KiB"), LOAD);
    let two_thirds = (sizing.pool_bytes * 2 / 3) >> 21 << 21;
    let seen = run(configuration("4KiB"), LOAD, two_thirds);
    let cut = seen.credits.iter().filter(|&&credits| credits < LOAD.depth);
    assert!(cut.count() > 0, "{:?} of {sizing:?}", seen.credits);
}
