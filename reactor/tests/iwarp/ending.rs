//! How connections end.

use std::time::{Duration, Instant};

use millrace_mempool::Class;
use millrace_reactor::fabric::iwarp::IwarpConfig;
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Ended, Event, Key, Operation, RemoteAddress, Terminate,
    WorkError,
};

use crate::pair::{
    LIMITS, SEND, completed, disconnected, ending, local, parameters, pattern, received, request,
};
use crate::{LOOPBACK, plain, side};

#[test]
fn a_close_sends_what_is_posted_first() {
    ending::a_close_sends_what_is_posted_first(plain());
}

#[test]
fn an_abort_flushes_posted_work() {
    ending::an_abort_flushes_posted_work(plain());
}

#[test]
fn a_rejection_reaches_the_connecting_side() {
    let any = "[::1]:0".parse().unwrap();
    let [client, server] = [(); 2].map(|()| side(IwarpConfig::default()));
    ending::a_rejection_reaches_the_connecting_side(client, server, any);
}

#[test]
fn connections_can_be_handed_to_another_provider() {
    let sides = [(); 3].map(|()| side(IwarpConfig::default()));
    ending::connections_can_be_handed_to_another_provider(sides, LOOPBACK);
}

#[test]
fn a_read_of_a_key_that_is_none_is_refused_and_says_so() {
    let mut pair = plain();
    let sink = pair.client.slice(Class::Control, 100);
    let remote = RemoteAddress {
        key: Key(0x1234_5678),
        offset: 0,
    };
    pair.client.post(
        pair.here,
        vec![request(1, Operation::Read(remote), local([sink]))],
    );
    let result = pair.until(|pair| {
        pair.client.take(|event| match event {
            Event::Completed {
                token: 1, result, ..
            } => Some(*result),
            _ => None,
        })
    });
    assert_eq!(result, Err(WorkError::RemoteAccess));
    let terminate = Terminate {
        layer: 0,
        kind: 1,
        code: 0,
    };
    let reason = pair.until(|pair| pair.client.take(disconnected));
    assert_eq!(reason, Ended::TerminateReceived(terminate));
    let reason = pair.until(|pair| pair.server.take(disconnected));
    assert_eq!(reason, Ended::TerminateSent(terminate));
}

#[test]
fn rr1_sec_05_keys_hold_on_their_own_connection_only() {
    let mut pair = plain();
    let address = pair
        .server
        .provider
        .listener_address(pair.listener)
        .unwrap();
    let parameters = || parameters(LIMITS, b"hello");
    let other = pair
        .client
        .provider
        .connect(address, parameters(), Instant::now())
        .unwrap();
    let there = pair.until(|pair| {
        pair.server.take(|event| match event {
            Event::ConnectRequest { queue_pair, .. } => Some(*queue_pair),
            _ => None,
        })
    });
    pair.server.provider.accept(there, parameters()).unwrap();
    for queue_pair in [other, there] {
        pair.until(|pair| {
            let wanted = |event: &Event| {
                matches!(event, Event::Established { queue_pair: seen, .. } if *seen == queue_pair)
                    .then_some(())
            };
            pair.client
                .take(wanted)
                .or_else(|| pair.server.take(wanted))
        });
    }
    let secret = pair.server.pattern(4096, 9);
    let exposure = pair
        .server
        .provider
        .expose(pair.there, local([secret]), Access::RemoteRead)
        .unwrap();
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    let sink = pair.client.slice(Class::Control, 100);
    pair.client.post(
        other,
        vec![request(1, Operation::Read(remote), local([sink]))],
    );
    let (queue_pair, reason) = pair.until(|pair| {
        pair.client.take(|event| match event {
            Event::Disconnected { queue_pair, reason } => Some((*queue_pair, reason.clone())),
            _ => None,
        })
    });
    assert_eq!(queue_pair, other);
    assert!(matches!(reason, Ended::TerminateReceived(_)));
    // The connection that the key belongs to lives on.
    let sink = pair.client.slice(Class::Control, 100);
    pair.client.post(
        pair.here,
        vec![request(2, Operation::Read(remote), local([sink]))],
    );
    assert_eq!(
        pair.until(|pair| pair
            .client
            .take(|event| completed(event).filter(|seen| seen.0 == 2))),
        (2, true)
    );
}

#[test]
fn rr1_sec_08_one_byte_past_the_exposure_is_refused() {
    let mut pair = plain();
    let source = pair.client.pattern(1000, 3);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([source]), Access::RemoteRead)
        .unwrap();
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    let sink = pair.server.slice(Class::Control, 1001);
    pair.server.post(
        pair.there,
        vec![request(1, Operation::Read(remote), local([sink]))],
    );
    let reason = pair.until(|pair| pair.client.take(disconnected));
    assert_eq!(
        reason,
        Ended::TerminateSent(Terminate {
            layer: 0,
            kind: 1,
            code: 1
        })
    );
}

#[test]
fn a_send_without_a_receive_ends_the_connection() {
    let mut pair = plain();
    for token in 0..33 {
        let slice = pair.client.pattern(10, 0);
        pair.client
            .post(pair.here, vec![request(token, SEND, local([slice]))]);
    }
    let reason = pair.until(|pair| pair.server.take(disconnected));
    assert_eq!(
        reason,
        Ended::TerminateSent(Terminate {
            layer: 1,
            kind: 2,
            code: 2
        })
    );
    for _ in 0..32 {
        assert_eq!(
            pair.until(|pair| pair.server.take(received)),
            pattern(10, 0)
        );
    }
}

#[test]
fn a_silent_server_is_given_up_by_the_clock() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = side(IwarpConfig::default());
    let start = Instant::now();
    let address = listener.local_addr().unwrap();
    client
        .provider
        .connect(address, parameters(LIMITS, b"hello"), start)
        .unwrap();
    let mut events = Vec::with_capacity(8);
    for _ in 0..100_000 {
        client.provider.poll(start, &mut events);
        client.provider.flush(start);
    }
    assert!(events.is_empty());
    let deadline = client.provider.next_deadline().expect("a deadline");
    assert!(deadline <= start + Duration::from_secs(10));
    client
        .provider
        .poll(start + Duration::from_secs(11), &mut events);
    assert!(matches!(
        events[..],
        [Event::Disconnected {
            reason: Ended::TimedOut(_),
            ..
        }]
    ));
}

#[test]
fn mpa_interop_10_connections_that_never_speak_do_not_keep_a_good_one_out() {
    let mut client = side(IwarpConfig::default());
    let mut server = side(IwarpConfig {
        half_open_max: 8,
        ..IwarpConfig::default()
    });
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = server.provider.listen(any, LIMITS, false).unwrap();
    let address = server.provider.listener_address(listener).unwrap();
    let silent: Vec<_> = (0..100)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    client
        .provider
        .connect(address, parameters(LIMITS, b"hello"), Instant::now())
        .unwrap();
    let mut asked = false;
    for _ in 0..1_000_000 {
        client.turn();
        server.turn();
        asked |= server
            .take(|event| matches!(event, Event::ConnectRequest { .. }).then_some(()))
            .is_some();
        let connections = server.provider.counters().fabric.connections.get();
        if asked && connections <= 9 {
            break;
        }
        std::thread::yield_now();
    }
    assert!(asked);
    let counters = server.provider.counters();
    assert!(counters.fabric.setups_failed.get() >= 92);
    assert!(
        server.events.is_empty(),
        "the application hears nothing of them"
    );
    drop(silent);
}
