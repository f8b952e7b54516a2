//! Messages, Writes, Reads and their queues.

use std::time::{Duration, Instant};

use millrace_mempool::Pool;
use millrace_reactor::fabric::chain::{Direction, NOBODY, RemoteSegment, transfer};
use millrace_reactor::fabric::loopback::{Faults, Pair, Record};
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Event, ExposeError, Key, Operation, PostError, QueuePairLimits,
    READ_SLICES_MAX, RemoteAddress, Revoked, Slices, WorkError, WorkRequest,
};

use crate::support::{SEND, at, buffer, bytes, memory, pair, pool, request, tokens};

#[test]
fn messages_fill_receives_in_order() {
    let (pool, mut pair) = (pool(), pair());
    for _ in 0..2 {
        pair.server
            .post_receive(pair.server_queue_pair, buffer(&pool))
            .unwrap();
    }
    let mut chain = vec![
        WorkRequest {
            signalled: false,
            ..request(1, SEND, memory(&pool, b"first"))
        },
        request(2, SEND, memory(&pool, b"second one")),
    ];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    assert!(chain.is_empty());
    let mut events = Vec::with_capacity(8);
    pair.server.poll(pair.now, &mut events);
    assert!(events.is_empty(), "nothing leaves before the flush");
    let (client, server) = pair.settle();
    let texts: Vec<_> = server
        .iter()
        .map(|event| match event {
            Event::Received {
                buffer,
                length,
                invalidated: None,
                ..
            } => buffer[..*length as usize].to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, [b"first".to_vec(), b"second one".to_vec()]);
    assert_eq!(
        tokens(&client),
        [(2, Ok(()))],
        "the unsignalled one is silent"
    );
    let Event::Completed { local, .. } = &client[0] else {
        panic!("{client:?}")
    };
    assert_eq!(bytes(local), b"second one", "the memory comes back");
    drop((client, server));
    assert_eq!(pool.gauges().in_use(), 0);
}

#[test]
fn writes_are_placed_before_the_send_that_follows() {
    let (pool, mut pair) = (pool(), pair());
    pair.client
        .post_receive(pair.client_queue_pair, buffer(&pool))
        .unwrap();
    let sink = memory(&pool, b"................");
    let exposure = pair
        .client
        .expose(pair.client_queue_pair, sink, Access::RemoteWrite)
        .unwrap();
    assert_eq!(exposure.length, 16);
    let invalidate = Some(exposure.key);
    let mut chain = vec![
        request(
            1,
            Operation::Write(at(&exposure, 2)),
            memory(&pool, b"over the cut"),
        ),
        request(2, Operation::Write(at(&exposure, 16)), Slices::new()),
        request(
            3,
            Operation::Send {
                invalidate,
                solicited: true,
            },
            memory(&pool, b"done"),
        ),
    ];
    pair.server
        .post(pair.server_queue_pair, &mut chain)
        .unwrap();
    let (client, server) = pair.settle();
    assert!(
        matches!(client[..], [Event::Received { length: 4, invalidated, .. }] if invalidated == invalidate)
    );
    assert_eq!(tokens(&server), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    let Revoked::Now(local) = pair.client.revoke(pair.client_queue_pair, exposure.key) else {
        panic!("invalidated keys are revoked at once");
    };
    assert_eq!(bytes(&local), b"..over the cut..");
    let again = pair.client.revoke(pair.client_queue_pair, exposure.key);
    assert!(matches!(again, Revoked::Unknown));
}

#[test]
fn old_13_local_memory_needs_no_key() {
    // The first drafts had both ends register memory; here a side that can have no key at all is
    // the source and the sink of everything.
    let keyless = QueuePairLimits {
        exposures: 0,
        ..Pair::LIMITS
    };
    let (pool, mut pair) = (pool(), Pair::connect(keyless, Pair::LIMITS));
    let none = pair.client.expose(
        pair.client_queue_pair,
        memory(&pool, b"mine"),
        Access::RemoteRead,
    );
    assert!(none.is_err());
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    let mut expose = |access| {
        let theirs = memory(&pool, b"theirs");
        let exposed = pair.server.expose(pair.server_queue_pair, theirs, access);
        exposed.unwrap()
    };
    let (sink, source) = (expose(Access::RemoteWrite), expose(Access::RemoteRead));
    let mut chain = vec![
        request(1, Operation::Write(at(&sink, 0)), memory(&pool, b"placed")),
        request(2, Operation::Read(at(&source, 0)), memory(&pool, b"......")),
        request(3, SEND, memory(&pool, b"sent")),
    ];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, server) = pair.settle();
    assert_eq!(tokens(&client), [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    let fetched = client.iter().find_map(|event| match event {
        Event::Completed {
            token: 2, local, ..
        } => Some(bytes(local)),
        _ => None,
    });
    assert_eq!(fetched.unwrap(), b"theirs");
    assert!(matches!(server[..], [Event::Received { length: 4, .. }]));
    let Revoked::Now(placed) = pair.server.revoke(pair.server_queue_pair, sink.key) else {
        panic!("nothing is under way");
    };
    assert_eq!(bytes(&placed), b"placed");
}

#[test]
fn rr1_ccp_08_reads_are_held_to_the_number_that_the_peer_gave() {
    let (pool, mut pair) = (pool(), pair());
    let source = memory(&pool, b"source");
    let exposure = pair
        .server
        .expose(pair.server_queue_pair, source, Access::RemoteRead)
        .unwrap();
    pair.client.limit_reads(pair.client_queue_pair, 2);
    let read = |token| {
        request(
            token,
            Operation::Read(at(&exposure, 0)),
            memory(&pool, b"......"),
        )
    };
    let mut chain = (0..6).map(read).collect();
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let mut done = Vec::new();
    for _ in 0..3 {
        // One round trip: what is asked for now is answered, and no more.
        pair.client.flush(pair.now);
        let mut events = Vec::with_capacity(16);
        pair.server.poll(pair.now, &mut events);
        pair.server.flush(pair.now);
        pair.client.poll(pair.now, &mut events);
        let ended = tokens(&events);
        assert!(ended.len() <= 2, "{ended:?}");
        done.extend(ended);
    }
    assert_eq!(
        done,
        (0..6).map(|token| (token, Ok(()))).collect::<Vec<_>>()
    );

    // None at all: what waits ends, and what is posted later.
    pair.client.limit_reads(pair.client_queue_pair, 0);
    let mut chain = vec![read(7)];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(tokens(&client), [(7, Err(WorkError::NoReads))]);
    // And again.
    pair.client.limit_reads(pair.client_queue_pair, u16::MAX);
    let mut chain = vec![read(8)];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(tokens(&client), [(8, Ok(()))]);
}

/// Memory of ten pieces of two bytes, and a chain of one Read that fills it.
fn read_in_pieces(pool: &Pool, from: RemoteAddress) -> (Slices, Vec<WorkRequest>) {
    let whole = memory(pool, b"....................");
    let mut pieces = Vec::new();
    for slice in &whole {
        let places = (0..slice.len()).step_by(2);
        pieces.extend(places.map(|at| slice.slice(at..slice.len().min(at + 2))));
    }
    let segment = RemoteSegment {
        address: from,
        length: 20,
    };
    let direction = Direction::FromPeer {
        slices: READ_SLICES_MAX,
    };
    let mut chain = Vec::new();
    assert_eq!(transfer(direction, &pieces, [segment], &mut chain), 20);
    assert!(chain.len() > 2);
    (whole, chain)
}

#[test]
fn one_read_fills_many_pieces() {
    for reorder in [false, true] {
        let (pool, mut pair) = (pool(), pair());
        pair.network.keep_log();
        pair.network.set_faults(Faults {
            reorder,
            ..Faults::default()
        });
        assert_eq!(
            pair.client.read_slices(pair.client_queue_pair),
            READ_SLICES_MAX
        );
        let source = memory(&pool, b"abcdefghijklmnopqrstuvwxyz");
        let exposure = pair
            .server
            .expose(pair.server_queue_pair, source, Access::RemoteRead)
            .unwrap();
        let mut sinks = Vec::new();
        for token in 0..2 {
            let (whole, mut chain) = read_in_pieces(&pool, at(&exposure, token));
            let last = chain.last_mut().unwrap();
            (last.token, last.signalled) = (token, true);
            pair.client
                .post(pair.client_queue_pair, &mut chain)
                .unwrap();
            sinks.push(whole);
        }
        let (mut client, _) = pair.settle();
        while tokens(&client).len() < 2 {
            client.extend(pair.jump().0);
        }
        assert_eq!(tokens(&client), [(0, Ok(())), (1, Ok(()))]);
        assert_eq!(bytes(&sinks[0]), b"abcdefghijklmnopqrst");
        assert_eq!(bytes(&sinks[1]), b"bcdefghijklmnopqrstu");
        let log = pair.network.take_log();
        let fetched = log.iter().filter_map(|(_, record)| match record {
            Record::Fetched { length, .. } => Some(*length),
            _ => None,
        });
        let fetched: Vec<_> = fetched.collect();
        assert_eq!(fetched.iter().sum::<usize>(), 40);
        // Pieces of one Read may come by themselves where the network reorders.
        if !reorder {
            assert_eq!(fetched, [20, 20], "one Read each");
        }
        assert_eq!(
            pair.client.send_room(pair.client_queue_pair),
            Pair::LIMITS.send_depth as usize
        );
    }
}

#[test]
fn a_read_into_pieces_that_is_refused_ends_whole() {
    // None are allowed.
    let limits = QueuePairLimits {
        ord: 0,
        ..Pair::LIMITS
    };
    let (pool, mut pair) = (pool(), Pair::connect(limits, Pair::LIMITS));
    let anywhere = RemoteAddress {
        key: Key(1),
        offset: 0,
    };
    let (_whole, mut chain) = read_in_pieces(&pool, anywhere);
    let count = chain.len();
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(
        tokens(&client),
        vec![(NOBODY, Err(WorkError::NoReads)); count]
    );
    // What continues no Read has nothing to be filled from.
    let mut chain = vec![request(3, Operation::ReadMore, memory(&pool, b"...."))];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(tokens(&client), [(3, Err(WorkError::LocalLength))]);
    // The key is none.
    let (pool, mut pair) = (crate::support::pool(), crate::support::pair());
    let (whole, mut chain) = read_in_pieces(&pool, anywhere);
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    let mut expected = vec![(NOBODY, Err(WorkError::Flushed)); count];
    expected[0].1 = Err(WorkError::RemoteAccess);
    assert_eq!(tokens(&client), expected);
    assert_eq!(bytes(&whole), [b'.'; 20]);
}

#[test]
fn reads_are_held_to_the_read_depth() {
    let limits = QueuePairLimits {
        ord: 2,
        ..Pair::LIMITS
    };
    let (pool, mut pair) = (pool(), Pair::connect(limits, Pair::LIMITS));
    pair.network.set_latency(Duration::from_millis(1));
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    let source = memory(&pool, b"0123456789");
    let exposure = pair
        .server
        .expose(pair.server_queue_pair, source, Access::RemoteRead)
        .unwrap();
    let read = |token, place| {
        request(
            token,
            Operation::Read(at(&exposure, place)),
            memory(&pool, b"...."),
        )
    };
    let mut chain: Vec<_> = (0..5).map(|token| read(token, token)).collect();
    chain.push(request(5, SEND, memory(&pool, b"after")));
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (mut client, mut server) = pair.settle();
    let mut trips = 0;
    while tokens(&client).len() < 6 {
        assert!(server.is_empty(), "the Send waits behind the Reads");
        let (more, received) = pair.jump();
        assert!(tokens(&more).len() <= 2);
        client.extend(more);
        server.extend(received);
        trips += 1;
        if !server.is_empty() {
            assert!(
                tokens(&client).len() >= 4,
                "the Send left with the last Read"
            );
            client.extend(pair.jump().0);
        }
    }
    assert!(
        trips >= 5,
        "five Reads, two at a time, there and back: {trips}"
    );
    for (token, event) in client.iter().take(5).enumerate() {
        let Event::Completed {
            local,
            result: Ok(()),
            ..
        } = event
        else {
            panic!("{event:?}")
        };
        assert_eq!(bytes(local), b"0123456789"[token..token + 4]);
    }
    assert_eq!(server.len(), 1);
}

#[test]
fn without_read_depth_reads_fail_and_the_connection_stays() {
    let none = QueuePairLimits {
        ird: 0,
        ..Pair::LIMITS
    };
    let (pool, mut pair) = (pool(), Pair::connect(Pair::LIMITS, none));
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    let address = RemoteAddress {
        key: Key(1),
        offset: 0,
    };
    let mut chain = vec![
        request(1, SEND, memory(&pool, b"before")),
        WorkRequest {
            signalled: false,
            ..request(2, Operation::Read(address), memory(&pool, b"...."))
        },
    ];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(tokens(&client), [(1, Ok(())), (2, Err(WorkError::NoReads))]);
    assert_eq!(pair.client.send_room(pair.client_queue_pair), 64);
}

#[test]
fn queues_are_bounded() {
    let limits = QueuePairLimits {
        send_depth: 2,
        receive_depth: 1,
        exposures: 1,
        ..Pair::LIMITS
    };
    let (pool, mut pair) = (pool(), Pair::connect(limits, Pair::LIMITS));
    let queue_pair = pair.client_queue_pair;
    let send = |token| request(token, SEND, Slices::new());
    let mut chain = vec![send(1), send(2), send(3)];
    assert_eq!(pair.client.send_room(queue_pair), 2);
    assert_eq!(
        pair.client.post(queue_pair, &mut chain),
        Err(PostError::Full)
    );
    assert_eq!(chain.len(), 3, "all or nothing");
    chain.pop();
    pair.client.post(queue_pair, &mut chain).unwrap();
    assert_eq!(pair.client.send_room(queue_pair), 0);
    pair.client.post_receive(queue_pair, buffer(&pool)).unwrap();
    let refused = pair
        .client
        .post_receive(queue_pair, buffer(&pool))
        .unwrap_err();
    assert_eq!(refused.0, PostError::Full);
    let expose = |pair: &mut Pair| {
        let memory = memory(&pool, b"memory");
        let exposed = pair.client.expose(queue_pair, memory, Access::RemoteRead);
        exposed.map_err(|(error, _)| error)
    };
    let exposure = expose(&mut pair).unwrap();
    assert_eq!(expose(&mut pair).unwrap_err(), ExposeError::Full);
    pair.client.revoke(queue_pair, exposure.key);
    assert!(expose(&mut pair).is_ok());
}

#[test]
fn latency_is_by_the_callers_clock() {
    let (pool, mut pair) = (pool(), pair());
    pair.network.set_latency(Duration::from_millis(3));
    pair.server
        .post_receive(pair.server_queue_pair, buffer(&pool))
        .unwrap();
    let mut chain = vec![request(1, SEND, memory(&pool, b"hello"))];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let start = pair.now;
    pair.settle();
    let after = |milliseconds: u64| -> Option<Instant> {
        Some(start + Duration::from_millis(milliseconds))
    };
    assert_eq!(pair.server.next_deadline(), after(3));
    let (_, server) = pair.pass(Duration::from_micros(2999));
    assert!(server.is_empty());
    let (client, server) = pair.pass(Duration::from_micros(1));
    assert_eq!((client.len(), server.len()), (0, 1));
    assert_eq!(pair.client.next_deadline(), after(6));
    let (client, _) = pair.jump();
    assert_eq!(tokens(&client), [(1, Ok(()))]);
}

#[test]
fn events_wait_for_spare_capacity() {
    let (pool, mut pair) = (pool(), pair());
    for _ in 0..3 {
        pair.server
            .post_receive(pair.server_queue_pair, buffer(&pool))
            .unwrap();
    }
    let mut chain = (0..3)
        .map(|token| request(token, SEND, Slices::new()))
        .collect();
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    pair.client.flush(pair.now);
    let mut events = Vec::with_capacity(2);
    let spare = events.capacity();
    pair.server.poll(pair.now, &mut events);
    assert_eq!((events.len(), events.capacity()), (2, spare));
    assert_eq!(pair.server.next_deadline(), Some(pair.now), "there is more");
    events.clear();
    pair.server.poll(pair.now, &mut events);
    assert_eq!(events.len(), 1);
}
