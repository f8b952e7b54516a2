//! Peers that reach where they may not.

use millrace_reactor::fabric::loopback::Pair;
use millrace_reactor::fabric::{
    Access, ConnectParameters, ControlPath, DataPath, Ended, Event, ExposeError, Exposure, Key,
    Operation, PostError, QueuePairId, QueuePairLimits, RemoteAddress, Revoked, Slices, Terminate,
    WorkError, WorkRequest,
};

use crate::support::{
    SEND, ask, at, buffer, bytes, ended, memory, pair, pool, private, request, tokens,
};

/// Posts to a peer that exposes ten bytes to be read and ten to be written.
fn offend(make: impl Fn(&Exposure, &Exposure) -> (Operation, usize)) -> (Terminate, WorkError) {
    let (pool, mut pair) = (pool(), pair());
    let mut expose = |access| {
        let memory = memory(&pool, b"0123456789");
        pair.server
            .expose(pair.server_queue_pair, memory, access)
            .unwrap()
    };
    let (readable, writable) = (expose(Access::RemoteRead), expose(Access::RemoteWrite));
    let (operation, length) = make(&readable, &writable);
    let mut chain = vec![
        WorkRequest {
            signalled: false,
            ..request(1, operation, memory(&pool, &vec![b'x'; length]))
        },
        request(2, SEND, memory(&pool, b"behind")),
    ];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    pair.client
        .post_receive(pair.client_queue_pair, buffer(&pool))
        .unwrap();
    let unused = memory(&pool, b"unused");
    let _ = pair
        .client
        .expose(pair.client_queue_pair, unused, Access::RemoteRead)
        .unwrap();
    let (client, server) = pair.settle();
    let completed = tokens(&client);
    let [(1, Err(error)), (2, Err(WorkError::Flushed))] = completed[..] else {
        panic!("{completed:?}");
    };
    let Ended::TerminateReceived(received) = ended(&client) else {
        panic!("{client:?}")
    };
    assert_eq!(
        (ended(&server), server.len()),
        (Ended::TerminateSent(received), 1)
    );
    for (provider, queue_pair) in [
        (&mut pair.client, pair.client_queue_pair),
        (&mut pair.server, pair.server_queue_pair),
    ] {
        let mut chain = vec![request(3, SEND, Slices::new())];
        assert_eq!(
            provider.post(queue_pair, &mut chain),
            Err(PostError::Closed)
        );
        assert_eq!(chain.len(), 1, "stays with the caller");
        let refused = provider
            .post_receive(queue_pair, buffer(&pool))
            .unwrap_err();
        assert_eq!(refused.0, PostError::Closed);
        assert!(matches!(
            provider.revoke(queue_pair, readable.key),
            Revoked::Unknown
        ));
        let memory = memory(&pool, b"late");
        let refused = provider
            .expose(queue_pair, memory, Access::RemoteRead)
            .unwrap_err();
        assert_eq!(refused.0, ExposeError::Closed);
    }
    drop((client, server));
    assert_eq!(pool.gauges().in_use(), 0, "every byte is accounted for");
    (received, error)
}

#[test]
fn access_beyond_what_is_exposed_ends_the_connection() {
    let terminate = |layer, kind, code| Terminate { layer, kind, code };
    let wrong = |exposure: &Exposure| RemoteAddress {
        key: Key(!exposure.key.0),
        offset: exposure.offset,
    };
    let below = |exposure: &Exposure| RemoteAddress {
        key: exposure.key,
        offset: exposure.offset - 1,
    };
    let far = |exposure: &Exposure| RemoteAddress {
        key: exposure.key,
        offset: u64::MAX,
    };
    let denied = |layer, code| (terminate(layer, 1, code), WorkError::RemoteAccess);

    assert_eq!(offend(|_, w| (Operation::Write(wrong(w)), 4)), denied(1, 0));
    assert_eq!(offend(|_, w| (Operation::Write(at(w, 7)), 4)), denied(1, 1));
    assert_eq!(offend(|_, w| (Operation::Write(below(w)), 4)), denied(1, 1));
    assert_eq!(offend(|_, w| (Operation::Write(far(w)), 4)), denied(1, 1));
    assert_eq!(offend(|r, _| (Operation::Write(at(r, 0)), 4)), denied(1, 0));
    assert_eq!(offend(|r, _| (Operation::Read(wrong(r)), 4)), denied(0, 0));
    assert_eq!(offend(|r, _| (Operation::Read(at(r, 7)), 4)), denied(0, 1));
    assert_eq!(offend(|r, _| (Operation::Read(far(r)), 4)), denied(0, 1));
    assert_eq!(offend(|_, w| (Operation::Read(at(w, 0)), 4)), denied(0, 2));
    let no_receive = (terminate(1, 2, 2), WorkError::Flushed);
    assert_eq!(offend(|_, _| (SEND, 4)), no_receive);
}

#[test]
fn messages_that_are_too_long_or_invalidate_wrongly_end_the_connection() {
    let limits = QueuePairLimits {
        receive_size: 8,
        ..Pair::LIMITS
    };
    let stranger = Operation::Send {
        invalidate: Some(Key(5)),
        solicited: false,
    };
    let cases = [(SEND, 9, (1, 2, 5)), (stranger, 4, (0, 1, 9))];
    for (operation, length, (layer, kind, code)) in cases {
        let (pool, mut pair) = (pool(), Pair::connect(Pair::LIMITS, limits));
        pair.server
            .post_receive(pair.server_queue_pair, buffer(&pool))
            .unwrap();
        let mut chain = vec![request(1, operation, memory(&pool, &vec![1; length]))];
        pair.client
            .post(pair.client_queue_pair, &mut chain)
            .unwrap();
        let (client, server) = pair.settle();
        let terminate = Terminate { layer, kind, code };
        assert_eq!(ended(&client), Ended::TerminateReceived(terminate));
        assert_eq!(ended(&server), Ended::TerminateSent(terminate));
        assert_eq!(tokens(&client), [(1, Err(WorkError::Flushed))]);
    }
}

#[test]
fn keys_belong_to_one_queue_pair_and_die_when_revoked() {
    let (mut pair, _) = ask(Pair::LIMITS, Pair::LIMITS);
    let first = pair.server_queue_pair;
    let parameters = ConnectParameters {
        limits: Pair::LIMITS,
        private_data: private(""),
    };
    pair.server.accept(first, parameters).unwrap();
    pair.settle();
    let pool = pool();
    // `Pair` made another connection before, whose server end has index and generation of its own.
    let other = QueuePairId {
        index: 1,
        generation: 0,
    };
    assert_ne!(first, other);
    let memory_of_other = memory(&pool, b"secret");
    let exposure = pair
        .server
        .expose(other, memory_of_other, Access::RemoteRead)
        .unwrap();
    let mut chain = vec![request(
        1,
        Operation::Read(at(&exposure, 0)),
        memory(&pool, b"......"),
    )];
    pair.client
        .post(pair.client_queue_pair, &mut chain)
        .unwrap();
    let (client, _) = pair.settle();
    assert_eq!(tokens(&client), [(1, Err(WorkError::RemoteAccess))]);
    let Event::Completed { local, .. } = &client[0] else {
        panic!("{client:?}")
    };
    assert_eq!(bytes(local), b"......");
    assert!(matches!(
        pair.server.revoke(other, exposure.key),
        Revoked::Now(_)
    ));

    pair.network.set_defer_revocations(true);
    let memory_of_other = memory(&pool, b"secret");
    let exposure = pair
        .server
        .expose(other, memory_of_other, Access::RemoteRead)
        .unwrap();
    assert!(matches!(
        pair.server.revoke(other, exposure.key),
        Revoked::Later
    ));
    assert!(matches!(
        pair.server.revoke(other, exposure.key),
        Revoked::Unknown
    ));
    let (_, server) = pair.settle();
    let [
        Event::Revoked {
            queue_pair,
            key,
            local,
        },
    ] = &server[..]
    else {
        panic!("{server:?}")
    };
    assert_eq!(
        (*queue_pair, *key, bytes(local)),
        (other, exposure.key, b"secret".to_vec())
    );
}
