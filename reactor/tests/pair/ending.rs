//! How connections end, and how they are turned away and handed over.

use std::net::SocketAddr;
use std::time::Instant;

use millrace_mempool::Class;
use millrace_reactor::fabric::{
    Ended, Event, Key, Operation, PostError, Provider, RemoteAddress, WorkError,
};

use super::{
    LIMITS, Pair, SEND, Side, TURNS, completed, disconnected, is_padded, local, parameters,
    pattern, received, request,
};

pub fn a_close_sends_what_is_posted_first<P: Provider>(mut pair: Pair<P>) {
    for token in 0..20 {
        let slice = pair.client.pattern(4000, 1);
        pair.client
            .post(pair.here, vec![request(token, SEND, local([slice]))]);
    }
    pair.client.provider.close(pair.here);
    let slice = pair.client.pattern(4000, 1);
    let mut late = vec![request(99, SEND, local([slice]))];
    assert_eq!(
        pair.client.provider.post(pair.here, &mut late),
        Err(PostError::Closed)
    );
    for _ in 0..20 {
        assert_eq!(
            pair.until(|pair| pair.server.take(received)),
            pattern(4000, 1)
        );
    }
    assert_eq!(
        pair.until(|pair| pair.server.take(disconnected)),
        Ended::Peer
    );
    for token in 0..20 {
        assert_eq!(
            pair.until(|pair| pair.client.take(completed)),
            (token, true)
        );
    }
    assert_eq!(
        pair.until(|pair| pair.client.take(disconnected)),
        Ended::Local
    );
}

pub fn an_abort_flushes_posted_work<P: Provider>(mut pair: Pair<P>) {
    let sink = pair.client.slice(Class::Control, 100);
    let remote = RemoteAddress {
        key: Key(1),
        offset: 0,
    };
    let slice = pair.client.pattern(4000, 1);
    let mut silent = request(2, SEND, local([slice]));
    silent.signalled = false;
    pair.client.post(
        pair.here,
        vec![request(1, Operation::Read(remote), local([sink])), silent],
    );
    pair.client.provider.abort(pair.here);
    for token in [1, 2] {
        let (seen, result) = pair.until(|pair| {
            pair.client.take(|event| match event {
                Event::Completed { token, result, .. } => Some((*token, *result)),
                _ => None,
            })
        });
        assert_eq!((seen, result), (token, Err(WorkError::Flushed)));
    }
    assert_eq!(
        pair.until(|pair| pair.client.take(disconnected)),
        Ended::Local
    );
    assert_eq!(
        pair.until(|pair| pair.server.take(disconnected)),
        Ended::Peer
    );
    assert_eq!(pair.client.provider.send_room(pair.here), 0);
}

pub fn a_rejection_reaches_the_connecting_side<P: Provider>(
    mut client: Side<P>,
    mut server: Side<P>,
    any: SocketAddr,
) {
    let listener = server.provider.listen(any, LIMITS, false).unwrap();
    let address = server.provider.listener_address(listener).unwrap();
    let here = client
        .provider
        .connect(address, parameters(LIMITS, b"please"), Instant::now())
        .unwrap();
    let mut rejected = None;
    for _ in 0..TURNS {
        client.turn();
        server.turn();
        if let Some(queue_pair) = server.take(|event| match event {
            Event::ConnectRequest { queue_pair, .. } => Some(*queue_pair),
            _ => None,
        }) {
            server.provider.reject(queue_pair, b"no room");
        }
        rejected = client.take(|event| match event {
            Event::Rejected {
                queue_pair,
                private_data,
                ..
            } if *queue_pair == here => Some(private_data.to_vec()),
            _ => None,
        });
        if rejected.is_some() {
            break;
        }
        std::thread::yield_now();
    }
    assert!(is_padded(&rejected.expect("an answer"), b"no room"));
    assert!(client.events.is_empty() && server.events.is_empty());
}

pub fn connections_can_be_handed_to_another_provider<P: Provider>(
    [mut client, mut server, mut other]: [Side<P>; 3],
    any: SocketAddr,
) {
    let listener = server.provider.listen(any, LIMITS, true).unwrap();
    let address = server.provider.listener_address(listener).unwrap();
    client
        .provider
        .connect(address, parameters(LIMITS, b"hello"), Instant::now())
        .unwrap();
    let mut established = false;
    for _ in 0..TURNS {
        for side in [&mut client, &mut server, &mut other] {
            side.turn();
        }
        while let Some(event) = server.events.pop() {
            let Event::Incoming(incoming) = event else {
                panic!("{event:?}")
            };
            other.provider.adopt(incoming, Instant::now()).unwrap();
        }
        if let Some(queue_pair) = other.take(|event| match event {
            Event::ConnectRequest { queue_pair, .. } => Some(*queue_pair),
            _ => None,
        }) {
            other
                .provider
                .accept(queue_pair, parameters(LIMITS, b"here"))
                .unwrap();
        }
        established |= client
            .take(|event| matches!(event, Event::Established { .. }).then_some(()))
            .is_some();
        if established {
            break;
        }
        std::thread::yield_now();
    }
    assert!(established);
}
