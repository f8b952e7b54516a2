//! Sends, Writes and Reads between two providers.

use millrace_mempool::{Class, Slice};
use millrace_reactor::fabric::chain::{Direction, RemoteSegment, transfer};
use millrace_reactor::fabric::{
    Access, Event, Key, Operation, Provider, RemoteAddress, Revoked, WorkError,
};

use super::{Pair, SEND, completed, local, pattern, read, received, request};

pub fn sends_go_both_ways<P: Provider>(mut pair: Pair<P>) {
    let slices = [pair.client.pattern(100, 1), pair.client.pattern(3000, 2)];
    pair.client
        .post(pair.here, vec![request(7, SEND, local(slices))]);
    let message = pair.until(|pair| pair.server.take(received));
    assert_eq!(message, [pattern(100, 1), pattern(3000, 2)].concat());
    assert_eq!(pair.until(|pair| pair.client.take(completed)), (7, true));
    let slice = pair.server.pattern(1, 3);
    pair.server
        .post(pair.there, vec![request(8, SEND, local([slice]))]);
    assert_eq!(pair.until(|pair| pair.client.take(received)), pattern(1, 3));
    pair.server
        .post(pair.there, vec![request(9, SEND, local([]))]);
    assert_eq!(
        pair.until(|pair| pair.client.take(received)),
        Vec::<u8>::new()
    );
}

pub fn writes_are_placed_before_the_send_behind_them<P: Provider>(mut pair: Pair<P>) {
    let room = pair.client.slice(Class::Large, 1 << 20);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([room]), Access::RemoteWrite)
        .unwrap();
    // The server may only send once the client has, and the key is good then.
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    let (data, reply) = (pair.server.pattern(1 << 20, 4), pair.server.pattern(64, 5));
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    pair.server.post(
        pair.there,
        vec![
            request(1, Operation::Write(remote), local([data])),
            request(2, SEND, local([reply])),
        ],
    );
    assert_eq!(
        pair.until(|pair| pair.client.take(received)),
        pattern(64, 5)
    );
    let memory = pair.revoked(exposure.key);
    assert!(read(&memory[0]) == pattern(1 << 20, 4));
    assert_eq!(pair.until(|pair| pair.server.take(completed)), (1, true));
    assert_eq!(pair.until(|pair| pair.server.take(completed)), (2, true));
    assert!(matches!(
        pair.client.provider.revoke(pair.here, exposure.key),
        Revoked::Unknown
    ));
}

pub fn reads_fill_scattered_memory_and_wait_for_their_turn<P: Provider>(mut pair: Pair<P>) {
    let source = pair.client.pattern(1 << 20, 6);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([source]), Access::RemoteRead)
        .unwrap();
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    // More than the read depth of eight.
    let length = 40_000;
    let chain = (0..20_u64)
        .map(|token| {
            let sinks = [
                pair.server.slice(Class::Medium, 30_000),
                pair.server.slice(Class::Medium, 10_000),
            ];
            let offset = exposure.offset + token * length;
            let operation = Operation::Read(RemoteAddress {
                key: exposure.key,
                offset,
            });
            request(token, operation, local(sinks))
        })
        .collect();
    pair.server.post(pair.there, chain);
    let whole = pattern(1 << 20, 6);
    for expected in 0..20 {
        let (token, bytes) = pair.until(|pair| {
            pair.server.take(|event| match event {
                Event::Completed {
                    token,
                    result: Ok(()),
                    local,
                    ..
                } => Some((*token, [read(&local[0]), read(&local[1])].concat())),
                _ => None,
            })
        });
        assert_eq!(token, expected);
        let start = (token * length) as usize;
        assert!(bytes == whole[start..start + length as usize]);
    }
    pair.revoked(exposure.key);
}

/// The answer to a Read goes to many pieces of memory, in as few Reads as the provider allows.
pub fn a_read_fills_many_pieces<P: Provider>(mut pair: Pair<P>) -> Pair<P> {
    let source = pair.client.pattern(1 << 20, 6);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([source]), Access::RemoteRead)
        .unwrap();
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    // A page less seven bytes, fifteen pages, and blocks of 64 KiB: with bytes between that stay.
    let lengths = [4089]
        .into_iter()
        .chain([4096; 15])
        .chain([65_536; 14])
        .chain([8]);
    let whole = pair.server.slice(Class::Large, 1 << 20);
    whole.fill_zero(0..1 << 20);
    let mut end = 0;
    let sinks: Vec<_> = lengths
        .map(|length| {
            end += length + 1;
            whole.slice(end - length..end)
        })
        .collect();
    let bytes: usize = sinks.iter().map(Slice::len).sum();
    let segment = RemoteSegment {
        address: RemoteAddress {
            key: exposure.key,
            offset: exposure.offset + 7,
        },
        length: bytes as u32,
    };
    let slices = pair.server.provider.read_slices(pair.there);
    let direction = Direction::FromPeer { slices };
    let mut chain = Vec::new();
    assert_eq!(
        transfer(direction, &sinks, [segment], &mut chain),
        bytes as u64
    );
    let last = chain.last_mut().unwrap();
    (last.token, last.signalled) = (9, true);
    pair.server.post(pair.there, chain);
    assert_eq!(pair.until(|pair| pair.server.take(completed)), (9, true));
    let source = pattern(1 << 20, 6);
    let (mut expected, mut at) = (vec![0; 1 << 20], 0);
    for (number, sink) in sinks.iter().enumerate() {
        let place = at + number + 1;
        expected[place..place + sink.len()].copy_from_slice(&source[at + 7..][..sink.len()]);
        at += sink.len();
    }
    assert!(read(&whole) == expected);
    pair.revoked(exposure.key);
    pair
}

pub fn a_send_may_invalidate_a_key<P: Provider>(mut pair: Pair<P>) {
    let room = pair.client.slice(Class::Control, 4096);
    let exposure = pair
        .client
        .provider
        .expose(pair.here, local([room]), Access::RemoteWrite)
        .unwrap();
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(pair.here, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    let reply = pair.server.pattern(64, 5);
    let operation = Operation::Send {
        invalidate: Some(exposure.key),
        solicited: true,
    };
    pair.server
        .post(pair.there, vec![request(2, operation, local([reply]))]);
    let invalidated = pair.until(|pair| {
        pair.client.take(|event| match event {
            Event::Received { invalidated, .. } => Some(*invalidated),
            _ => None,
        })
    });
    assert_eq!(invalidated, Some(exposure.key));
    assert!(matches!(
        pair.client.provider.revoke(pair.here, exposure.key),
        Revoked::Now(memory) if memory[0].len() == 4096
    ));
}

pub fn sends_complete_in_order_with_their_lengths<P: Provider>(mut pair: Pair<P>) {
    let (mut next, mut seen) = (0_u64, 0_u64);
    let length = |token: u64| (token.wrapping_mul(2_654_435_761) >> 7) as usize % 4097;
    pair.until(|pair| {
        while next < 10_000 && pair.client.provider.send_room(pair.here) > 0 && next - seen < 30 {
            let slice = pair
                .client
                .pattern(4096, next as usize)
                .slice(0..length(next));
            let mut send = request(next, SEND, local([slice]));
            send.signalled = next % 7 == 0;
            pair.client.post(pair.here, vec![send]);
            next += 1;
        }
        while let Some(message) = pair.server.take(received) {
            assert_eq!(message.len(), length(seen));
            assert!(message == pattern(4096, seen as usize)[..message.len()]);
            pair.server.post_receives(pair.there, 1);
            seen += 1;
        }
        (seen == 10_000).then_some(())
    });
    let mut expected = 0;
    while expected < 10_000 {
        assert_eq!(
            pair.until(|pair| pair.client.take(completed)),
            (expected, true)
        );
        expected += 7;
    }
}

/// On a connection made with an outbound read depth of zero.
pub fn reads_fail_at_once_where_none_are_allowed<P: Provider>(mut pair: Pair<P>) {
    let sink = pair.client.slice(Class::Control, 100);
    let remote = RemoteAddress {
        key: Key(1),
        offset: 0,
    };
    pair.client.post(
        pair.here,
        vec![request(5, Operation::Read(remote), local([sink]))],
    );
    let result = pair.until(|pair| {
        pair.client.take(|event| match event {
            Event::Completed {
                token: 5, result, ..
            } => Some(*result),
            _ => None,
        })
    });
    assert_eq!(result, Err(WorkError::NoReads));
}

pub fn queues_refuse_what_has_no_room<P: Provider>(mut pair: Pair<P>) {
    let mut chain: Vec<_> = (0..65)
        .map(|token| request(token, SEND, local([pair.client.pattern(10, 0)])))
        .collect();
    assert!(pair.client.provider.post(pair.here, &mut chain).is_err());
    assert_eq!(chain.len(), 65);
    chain.truncate(30);
    assert!(pair.client.provider.post(pair.here, &mut chain).is_ok());
    assert_eq!(pair.client.provider.send_room(pair.here), 34);
    for _ in 0..30 {
        pair.until(|pair| pair.server.take(received));
    }
    for _ in 0..30 {
        pair.until(|pair| pair.client.take(completed));
    }
    assert_eq!(pair.client.provider.send_room(pair.here), 64);
}
