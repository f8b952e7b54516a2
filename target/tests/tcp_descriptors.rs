//! RPC over TCP where the process is out of descriptors. The limit is the process's, so this test
//! has one of its own.

mod support;

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace::rpc::Transport;
use millrace::tcp::{TcpConfig, TcpServer};
use millrace_mempool::{HugepagePolicy, Pool, PoolConfig, Registry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Takes all descriptors that there are.
fn take_all(taken: &mut Vec<OwnedFd>) {
    while let Ok(descriptor) = rustix::io::dup(std::io::stdout()) {
        taken.push(descriptor);
    }
}

#[test]
fn a_listener_without_descriptors_waits_for_some() {
    let registry = Registry::new(HugepagePolicy::Off);
    let pool = Pool::new(&registry, PoolConfig { bytes: 16 << 20 }).unwrap();
    let store = support::memory_store(&registry);
    let service = support::service([(support::rules("/export"), store)]);
    let flow = support::flow(&pool);
    let mut server = TcpServer::new(TcpConfig::default(), &pool, service, &flow, None).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let counters = server.counters();
    let pauses = || counters.accept_pauses.get();
    let limit = Rlimit {
        current: Some(128),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let connect = |_| TcpStream::connect(address).unwrap();
    let mut clients: Vec<TcpStream> = (0..4).map(connect).collect();
    let mut taken = Vec::new();
    take_all(&mut taken);
    taken.truncate(taken.len() - 2);

    let now = Instant::now();
    server.poll(now);
    assert_eq!((server.connections(), pauses()), (2, 1));
    // Other turns find nothing to do, and the reactor could sleep until the pause is over.
    let turn = Duration::from_micros(20);
    let work: usize = (1..100).map(|turns| server.poll(now + turn * turns)).sum();
    assert_eq!((work, server.connections(), pauses()), (0, 2, 1));
    assert!(server.next_deadline().unwrap() <= now + Duration::from_millis(100));

    // One that closes makes room for one.
    drop(clients.remove(0));
    take_all(&mut taken);
    for turns in 100..4000 {
        server.poll(now + turn * turns);
        if pauses() == 2 {
            break;
        }
    }
    assert_eq!((server.connections(), pauses()), (2, 2));

    // What others close is found in time.
    taken.pop();
    server.poll(now + turn * 4000);
    assert_eq!(server.connections(), 2);
    server.poll(now + turn * 4000 + Duration::from_millis(100));
    assert_eq!(server.connections(), 3);
    drop(taken);
}
