//! Software iWARP where the process is out of descriptors. The limit is the process's, so this
//! test has one of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use millrace_reactor::fabric::iwarp::{Iwarp, IwarpConfig};
use millrace_reactor::fabric::{ControlPath, DataPath, QueuePairLimits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 8,
    receive_depth: 8,
    ird: 1,
    ord: 1,
    exposures: 0,
    receive_size: 4096,
};

/// Takes all descriptors that there are.
fn take_all(taken: &mut Vec<OwnedFd>) {
    while let Ok(descriptor) = rustix::io::dup(std::io::stdout()) {
        taken.push(descriptor);
    }
}

/// Whether the provider would wake a reactor that sleeps.
fn is_awake(provider: &Iwarp) -> bool {
    let descriptor = provider.wake_descriptor().unwrap();
    // SAFETY: the provider, which is borrowed, owns the descriptor until it is dropped.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::default())).unwrap() > 0
}

#[test]
fn a_listener_without_descriptors_waits_for_some() {
    let limit = Rlimit {
        current: Some(128),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut provider = Iwarp::new(IwarpConfig::default()).unwrap();
    let counters = provider.counters();
    let pauses = || counters.accept_pauses.get();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = provider.listen(any, LIMITS, false).unwrap();
    let address = provider.listener_address(listener).unwrap();
    let connect = |_| TcpStream::connect(address).unwrap();
    let mut clients: Vec<TcpStream> = (0..4).map(connect).collect();
    let mut taken = Vec::new();
    take_all(&mut taken);
    taken.truncate(taken.len() - 2);

    let now = Instant::now();
    let mut events = Vec::with_capacity(16);
    provider.poll(now, &mut events);
    assert_eq!((provider.connections(), pauses()), (2, 1));
    // Other turns find nothing to do, and the reactor could sleep.
    let work: usize = (0..100).map(|_| provider.poll(now, &mut events)).sum();
    assert_eq!((work, provider.connections(), pauses()), (0, 2, 1));
    assert!(!is_awake(&provider));

    // One that closes makes room for one.
    drop(clients.remove(0));
    take_all(&mut taken);
    for _ in 0..100_000 {
        provider.poll(now, &mut events);
        if pauses() == 2 {
            break;
        }
    }
    assert_eq!((provider.connections(), pauses()), (2, 2));

    // What others close is found in time.
    taken.pop();
    let work: usize = (0..100).map(|_| provider.poll(now, &mut events)).sum();
    assert_eq!((work, provider.connections()), (0, 2));
    let later = now + Duration::from_millis(100);
    assert!(provider.next_deadline().is_some_and(|next| next <= later));
    for _ in 0..2 {
        provider.poll(later, &mut events);
    }
    assert_eq!(provider.connections(), 3);
    drop(taken);
}
