//! Parting.

use std::io::ErrorKind;
use std::time::Duration;

use millrace_reactor::fabric::loopback::Pair;
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Ended, Event, PostError, Slices, WorkError, WorkRequest,
};

use crate::support::{SEND, buffer, ended, memory, pair, pool, request, tokens};

#[test]
fn an_orderly_close_sends_what_is_posted() {
    let (pool, mut pair) = (pool(), pair());
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    let mut chain = vec![request(1, SEND, memory(&pool, b"last words"))];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    pair.client.close(pair.client_queue_pair);
    let mut late = vec![request(2, SEND, Slices::new())];
    assert_eq!(
        pair.client.post(pair.client_queue_pair, &mut late),
        Err(PostError::Closed)
    );
    let (client, server) = pair.settle();
    assert_eq!(
        (tokens(&client), ended(&client)),
        (vec![(1, Ok(()))], Ended::Local)
    );
    assert!(matches!(server[0], Event::Received { length: 10, .. }));
    assert_eq!(ended(&server), Ended::Peer);
    assert_eq!(pair.client.next_deadline(), None);
    assert_eq!(pair.server.next_deadline(), None);
}

#[test]
fn an_orderly_close_has_a_deadline() {
    let (pool, mut pair) = (pool(), pair());
    pair.network.set_latency(Duration::from_secs(60));
    let mut chain = vec![
        request(1, SEND, memory(&pool, b"slow")),
        request(2, SEND, memory(&pool, b"slower")),
    ];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    pair.settle();
    pair.client.close(pair.client_queue_pair);
    let before = pair.now;
    let (client, _) = pair.jump();
    assert_eq!(pair.now - before, Duration::from_secs(10));
    let flushed = Err(WorkError::Flushed);
    assert_eq!(
        (tokens(&client), ended(&client)),
        (vec![(1, flushed), (2, flushed)], Ended::Local)
    );
    let (client, server) = pair.pass(Duration::from_secs(120));
    assert!(client.is_empty());
    assert_eq!(ended(&server), Ended::Network(ErrorKind::ConnectionReset));
}

#[test]
fn an_abort_flushes_both_sides_in_order() {
    let (pool, mut pair) = (pool(), pair());
    for (provider, queue_pair) in [
        (&mut pair.client, pair.client_queue_pair),
        (&mut pair.server, pair.server_queue_pair),
    ] {
        let memory_to_read = memory(&pool, b"exposed");
        provider
            .expose(queue_pair, memory_to_read, Access::RemoteRead)
            .unwrap();
        provider.post_receive(queue_pair, buffer(&pool)).unwrap();
        let unsignalled = WorkRequest {
            signalled: false,
            ..request(1, SEND, memory(&pool, b"quiet"))
        };
        let mut chain = vec![unsignalled, request(2, SEND, memory(&pool, b"loud"))];
        provider.post(queue_pair, &mut chain).unwrap();
    }
    pair.client.abort(pair.client_queue_pair);
    let (client, server) = pair.settle();
    let flushed = Err(WorkError::Flushed);
    assert_eq!(tokens(&client), [(1, flushed), (2, flushed)]);
    assert_eq!(tokens(&server), [(1, flushed), (2, flushed)]);
    assert_eq!(ended(&client), Ended::Local);
    assert_eq!(ended(&server), Ended::Network(ErrorKind::ConnectionReset));
    drop((client, server));
    assert_eq!(pool.gauges().in_use(), 0);
    pair.client.abort(pair.client_queue_pair);
    pair.client.close(pair.client_queue_pair);
    let (client, server) = pair.settle();
    assert!(client.is_empty() && server.is_empty(), "the dead stay dead");
}

#[test]
fn a_dropped_provider_resets_its_connections() {
    let pool = pool();
    let Pair {
        network,
        client,
        mut server,
        server_queue_pair,
        now,
        ..
    } = pair();
    server
        .post_receive(server_queue_pair, buffer(&pool))
        .unwrap();
    drop(client);
    let mut events = Vec::with_capacity(4);
    server.poll(now, &mut events);
    assert_eq!(ended(&events), Ended::Network(ErrorKind::ConnectionReset));
    assert_eq!(pool.gauges().in_use(), 0);
    drop(network);
}
