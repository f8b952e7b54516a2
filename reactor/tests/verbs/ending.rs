//! How connections end.

use std::time::{Duration, Instant};

use millrace_mempool::Class;
use millrace_reactor::fabric::verbs::{Verbs, VerbsConfig};
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Ended, Event, Key, Operation, RemoteAddress, WorkError,
};

use crate::pair::{
    LIMITS, Pair, SEND, Side, TURNS, completed, disconnected, ending, local, parameters, received,
    request,
};
use crate::{address, alone, connected_again, plain, side, with_limits};

#[test]
fn a_close_sends_what_is_posted_first() {
    let Some(_alone) = alone() else { return };
    ending::a_close_sends_what_is_posted_first(plain());
}

#[test]
fn an_abort_flushes_posted_work() {
    let Some(_alone) = alone() else { return };
    ending::an_abort_flushes_posted_work(plain());
}

#[test]
fn a_rejection_reaches_the_connecting_side() {
    let Some(_alone) = alone() else { return };
    let [client, server] = [(); 2].map(|()| side(VerbsConfig::default()));
    ending::a_rejection_reaches_the_connecting_side(client, server, address());
}

#[test]
fn connections_can_be_handed_to_another_provider() {
    let Some(_alone) = alone() else { return };
    let sides = [(); 3].map(|()| side(VerbsConfig::default()));
    ending::connections_can_be_handed_to_another_provider(sides, address());
}

/// What the client's Read of so many bytes at `remote` comes to, and how both sides end.
fn refused_read(pair: &mut Pair<Verbs>, remote: RemoteAddress, length: usize) {
    let sink = pair.client.slice(Class::Control, length);
    let read = request(1, Operation::Read(remote), local([sink]));
    pair.client.post(pair.here, vec![read]);
    let result = pair.until(|pair| {
        pair.client.take(|event| match event {
            Event::Completed {
                token: 1, result, ..
            } => Some(*result),
            _ => None,
        })
    });
    // iWARP devices lose the request with the connection, and tell no more.
    let errors = [Err(WorkError::RemoteAccess), Err(WorkError::Flushed)];
    assert!(errors.contains(&result), "{result:?}");
    let reason = pair.until(|pair| pair.client.take(disconnected));
    assert!(
        matches!(reason, Ended::TerminateReceived(_) | Ended::Peer),
        "{reason:?}"
    );
    let reason = pair.until(|pair| pair.server.take(disconnected));
    assert!(
        matches!(reason, Ended::TerminateSent(_) | Ended::Peer),
        "{reason:?}"
    );
}

#[test]
fn a_read_of_a_key_that_is_none_is_refused() {
    let Some(_alone) = alone() else { return };
    let remote = RemoteAddress {
        key: Key(0x1234_5678),
        offset: 0,
    };
    refused_read(&mut plain(), remote, 100);
}

#[test]
fn one_byte_past_the_exposure_is_refused() {
    let Some(_alone) = alone() else { return };
    let mut pair = plain();
    let source = pair.server.pattern(1000, 3);
    let exposure = pair
        .server
        .provider
        .expose(pair.there, local([source]), Access::RemoteRead)
        .unwrap();
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    // The side that asked speaks first; the key is bound when the message behind it is there.
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    pair.until(|pair| pair.client.take(completed));
    let slice = pair.server.pattern(10, 0);
    pair.server
        .post(pair.there, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.client.take(received));
    refused_read(&mut pair, remote, 1001);
}

#[test]
fn an_exposure_that_was_revoked_is_refused() {
    let Some(_alone) = alone() else { return };
    let mut pair = plain();
    let source = pair.client.pattern(1000, 3);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([source]), Access::RemoteRead)
        .unwrap();
    pair.revoked(exposure.key);
    // The side that asked speaks first.
    pair.client
        .post(pair.here, vec![request(0, SEND, local([]))]);
    pair.until(|pair| pair.server.take(received));
    let sink = pair.server.slice(Class::Control, 1000);
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    let read = request(1, Operation::Read(remote), local([sink]));
    pair.server.post(pair.there, vec![read]);
    let (_, good) = pair.until(|pair| pair.server.take(completed));
    assert!(!good);
    pair.until(|pair| pair.server.take(disconnected));
    pair.until(|pair| pair.client.take(disconnected));
}

#[test]
fn nobody_listening_is_told() {
    let Some(_alone) = alone() else { return };
    let mut client = side(VerbsConfig::default());
    let mut nowhere = address();
    nowhere.set_port(9);
    let connected = client
        .provider
        .connect(nowhere, parameters(LIMITS, b"hello"), Instant::now());
    if connected.is_err() {
        return;
    }
    for _ in 0..TURNS {
        client.turn();
        if let Some(reason) = client.take(disconnected) {
            assert!(matches!(reason, Ended::Network(_)), "{reason:?}");
            assert_eq!(client.provider.connections(), 0);
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never came: {:?}", client.events);
}

#[test]
fn an_application_that_does_not_decide_is_not_waited_for() {
    let Some(_alone) = alone() else { return };
    let mut client = side(VerbsConfig::default());
    let mut server = side(VerbsConfig::default());
    let listener = server.provider.listen(address(), LIMITS, false).unwrap();
    let at = server.provider.listener_address(listener).unwrap();
    let start = Instant::now();
    client
        .provider
        .connect(at, parameters(LIMITS, b"hello"), start)
        .unwrap();
    let mut asked = false;
    for _ in 0..TURNS {
        client.turn();
        server.turn();
        asked = server
            .take(|event| matches!(event, Event::ConnectRequest { .. }).then_some(()))
            .is_some();
        if asked {
            break;
        }
        std::thread::yield_now();
    }
    assert!(asked);
    assert!(server.provider.next_deadline().is_some());
    let late = Instant::now() + Duration::from_secs(6);
    server.provider.poll(late, &mut server.events);
    for _ in 0..TURNS {
        client.turn();
        server.turn();
        let is_last = |side: &Side<Verbs>| {
            side.events
                .iter()
                .any(|event| matches!(event, Event::Disconnected { .. } | Event::Rejected { .. }))
        };
        if is_last(&client) && is_last(&server) {
            break;
        }
        std::thread::yield_now();
    }
    let reason = server.take(disconnected);
    assert!(matches!(reason, Some(Ended::TimedOut(_))), "{reason:?}");
}

#[test]
fn a_peer_that_takes_more_shared_receives_than_it_may_is_disconnected() {
    let Some(_alone) = alone() else { return };
    let shared = VerbsConfig {
        shared_receives: true,
        ..VerbsConfig::default()
    };
    // Of both connections of the server only the second brings receives.
    let mut pair = with_limits(VerbsConfig::default(), shared, LIMITS);
    let (other, there) = connected_again(&mut pair);
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(other, vec![request(0, SEND, local([slice]))]);
    let (queue_pair, reason) = pair.until(|pair| {
        pair.server.take(|event| match event {
            Event::Disconnected { queue_pair, reason } => Some((*queue_pair, reason.clone())),
            _ => None,
        })
    });
    assert_eq!(queue_pair, there);
    assert!(matches!(reason, Ended::TerminateSent(_)), "{reason:?}");
    // The other one has all its receives still.
    for token in 0..32 {
        let slice = pair.client.pattern(10, 0);
        pair.client
            .post(pair.here, vec![request(token, SEND, local([slice]))]);
        pair.until(|pair| pair.server.take(received));
    }
}
