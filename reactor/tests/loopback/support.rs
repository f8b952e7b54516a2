//! What the tests share.

use std::net::{Ipv4Addr, SocketAddr};

use millrace_mempool::{Buffer, Class, HugepagePolicy, Pool, PoolConfig, Registry, Slice};
use millrace_reactor::fabric::loopback::Pair;
use millrace_reactor::fabric::{
    ConnectParameters, ControlPath, Ended, Event, Exposure, Operation, PrivateData,
    QueuePairLimits, ReadDepths, RemoteAddress, Slices, WorkError, WorkRequest,
};

pub fn pool() -> Pool {
    let registry = Registry::new(HugepagePolicy::Off);
    Pool::new(&registry, PoolConfig { bytes: 2 << 20 }).unwrap()
}

pub fn pair() -> Pair {
    Pair::connect(Pair::LIMITS, Pair::LIMITS)
}

pub fn buffer(pool: &Pool) -> Buffer {
    pool.try_acquire(Class::Control).unwrap()
}

/// The bytes in two slices of one buffer.
pub fn memory(pool: &Pool, bytes: &[u8]) -> Slices {
    let mut buffer = buffer(pool);
    buffer[..bytes.len()].copy_from_slice(bytes);
    let (head, tail) = buffer.into_slice(0..bytes.len()).split_at(bytes.len() / 3);
    [head, tail].into_iter().collect()
}

pub fn bytes(slices: &[Slice]) -> Vec<u8> {
    let mut all = Vec::new();
    for slice in slices {
        let mut part = vec![0; slice.len()];
        slice.copy_to(0, &mut part);
        all.extend(part);
    }
    all
}

pub fn request(token: u64, operation: Operation, local: Slices) -> WorkRequest {
    WorkRequest {
        token,
        operation,
        local,
        signalled: true,
    }
}

pub const SEND: Operation = Operation::Send {
    invalidate: None,
    solicited: false,
};

pub fn at(exposure: &Exposure, place: u64) -> RemoteAddress {
    RemoteAddress {
        key: exposure.key,
        offset: exposure.offset + place,
    }
}

pub fn tokens(events: &[Event]) -> Vec<(u64, Result<(), WorkError>)> {
    let completed = |event: &Event| match event {
        Event::Completed { token, result, .. } => Some((*token, *result)),
        _ => None,
    };
    events.iter().filter_map(completed).collect()
}

pub fn ended(events: &[Event]) -> Ended {
    match events.last() {
        Some(Event::Disconnected { reason, .. }) => reason.clone(),
        other => panic!("not the end: {other:?}"),
    }
}

pub fn private(text: &str) -> PrivateData {
    text.bytes().collect()
}

/// Two providers, a listener with these limits, and a request with those.
pub fn ask(client: QueuePairLimits, server: QueuePairLimits) -> (Pair, ReadDepths) {
    let mut pair = pair();
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    pair.listener = pair.server.listen(anywhere, server, false).unwrap();
    let address = pair.server.listener_address(pair.listener).unwrap();
    let parameters = ConnectParameters {
        limits: client,
        private_data: private("hello"),
    };
    pair.client_queue_pair = pair.client.connect(address, parameters, pair.now).unwrap();
    let (_, events) = pair.settle();
    let [
        Event::ConnectRequest {
            queue_pair,
            listener,
            private_data,
            depths,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (private_data.as_slice(), *listener),
        (&b"hello"[..], pair.listener)
    );
    pair.server_queue_pair = *queue_pair;
    (pair, *depths)
}
