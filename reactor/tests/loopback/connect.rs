//! Coming together.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use millrace_reactor::fabric::loopback::{Network, Pair};
use millrace_reactor::fabric::{
    ConnectParameters, ControlPath, DataPath, Ended, Event, PostError, QueuePairLimits, ReadDepths,
};

use crate::support::{ask, buffer, ended, pool, private};

#[test]
fn connections_exchange_private_data_and_read_depths() {
    let client = QueuePairLimits {
        ird: 4,
        ord: 64,
        ..Pair::LIMITS
    };
    let server = QueuePairLimits {
        ird: 16,
        ord: 16,
        ..Pair::LIMITS
    };
    let (mut pair, depths) = ask(client, server);
    let expected = ReadDepths {
        peer_ird: Some(4),
        peer_ord: Some(64),
        ird: 16,
        ord: 4,
    };
    assert_eq!(depths, expected);
    let parameters = ConnectParameters {
        limits: server,
        private_data: private("welcome"),
    };
    pair.server
        .accept(pair.server_queue_pair, parameters.clone())
        .unwrap();
    let again = pair.server.accept(pair.server_queue_pair, parameters);
    assert_eq!(again, Err(PostError::Closed));
    let (client, server) = pair.settle();
    let [
        Event::Established {
            private_data,
            depths,
            ..
        },
    ] = &client[..]
    else {
        panic!("{client:?}");
    };
    assert_eq!(private_data.as_slice(), b"welcome");
    let expected = ReadDepths {
        peer_ird: Some(16),
        peer_ord: Some(4),
        ird: 4,
        ord: 16,
    };
    assert_eq!(*depths, expected);
    let [Event::Established { private_data, .. }] = &server[..] else {
        panic!("{server:?}")
    };
    assert!(private_data.is_empty());
}

#[test]
fn rejections_carry_their_reason() {
    let (mut pair, _) = ask(
        Pair::LIMITS,
        QueuePairLimits {
            ord: 9,
            ..Pair::LIMITS
        },
    );
    let pool = pool();
    pair.client
        .post_receive(pair.client_queue_pair, buffer(&pool))
        .unwrap();
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    pair.server.reject(pair.server_queue_pair, b"full");
    let (client, server) = pair.settle();
    let [
        Event::Rejected {
            queue_pair,
            private_data,
            depths,
        },
    ] = &client[..]
    else {
        panic!("{client:?}");
    };
    assert_eq!(
        (*queue_pair, private_data.as_slice()),
        (pair.client_queue_pair, &b"full"[..])
    );
    assert_eq!(depths.peer_ord, Some(9));
    assert!(server.is_empty());
    assert_eq!(pool.gauges().in_use(), 0, "receives are dropped");
    assert_eq!(pair.client.send_room(pair.client_queue_pair), 0);
}

#[test]
fn connecting_fails_without_listener_or_answer() {
    let (mut pair, _) = ask(Pair::LIMITS, Pair::LIMITS);
    let (client, server) = pair.pass(Duration::from_secs(9));
    assert!(client.is_empty() && server.is_empty());
    let (client, server) = pair.jump();
    assert!(matches!(ended(&client), Ended::TimedOut(_)));
    assert_eq!(ended(&server), Ended::Network(ErrorKind::ConnectionReset));

    let address = pair.server.listener_address(pair.listener).unwrap();
    pair.server.stop_listening(pair.listener);
    assert_eq!(pair.server.listener_address(pair.listener), None);
    let parameters = ConnectParameters {
        limits: Pair::LIMITS,
        private_data: private(""),
    };
    pair.client.connect(address, parameters, pair.now).unwrap();
    let (client, _) = pair.settle();
    assert_eq!(ended(&client), Ended::Network(ErrorKind::ConnectionRefused));
}

#[test]
fn listeners_have_their_own_addresses() {
    let network = Network::new();
    let (mut one, mut two) = (network.provider(), network.provider());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 20049));
    let listener = one.listen(address, Pair::LIMITS, false).unwrap();
    assert_eq!(one.listener_address(listener), Some(address));
    let taken = two.listen(address, Pair::LIMITS, false).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let handing = two.listen(address, Pair::LIMITS, true).unwrap_err();
    assert_eq!(handing.kind(), ErrorKind::Unsupported);
    one.stop_listening(listener);
    assert!(two.listen(address, Pair::LIMITS, false).is_ok());
    assert_eq!((one.name(), one.wake_descriptor()), ("loopback", None));
}

#[test]
fn places_are_used_again_under_new_names() {
    let (mut pair, _) = ask(Pair::LIMITS, Pair::LIMITS);
    let old = pair.server_queue_pair;
    pair.server.reject(old, b"");
    pair.settle();
    let address = pair.server.listener_address(pair.listener).unwrap();
    let parameters = ConnectParameters {
        limits: Pair::LIMITS,
        private_data: private("again"),
    };
    pair.client
        .connect(address, parameters.clone(), pair.now)
        .unwrap();
    let (_, server) = pair.settle();
    let [Event::ConnectRequest { queue_pair, .. }] = server[..] else {
        panic!("{server:?}")
    };
    assert_ne!(queue_pair, old);
    assert_eq!(pair.server.accept(old, parameters), Err(PostError::Closed));
    pair.server.reject(old, b"no effect");
    let (client, _) = pair.settle();
    assert!(client.is_empty());
}
