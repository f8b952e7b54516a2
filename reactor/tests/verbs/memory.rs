//! Memory that peers may use, through the provider.

use std::collections::HashSet;

use millrace_mempool::Class;
use millrace_reactor::fabric::verbs::{Devices, Verbs, VerbsConfig};
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, ExposeError, Key, Operation, RemoteAddress, Revoked,
};
use millrace_reactor::primitives::Counter;

use crate::pair::{LIMITS, Pair, SEND, completed, local, pattern, read, received, request};
use crate::{Open, WAYS, address, alone, side_of};

fn pair(open: Open) -> Pair<Verbs> {
    let [client, server] = [(); 2].map(|()| side_of(open, VerbsConfig::default()));
    let mut pair = Pair::connected(client, server, address(), LIMITS);
    // On iWARP the side that asked speaks first.
    pair.client
        .post(pair.here, vec![request(0, SEND, local([]))]);
    pair.until(|pair| pair.server.take(received));
    pair.until(|pair| pair.client.take(completed));
    pair
}

/// One request of the server's, to its end.
fn carry_out(pair: &mut Pair<Verbs>, operation: Operation, memory: millrace_mempool::Slice) {
    pair.server
        .post(pair.there, vec![request(5, operation, local([memory]))]);
    assert_eq!(pair.until(|pair| pair.server.take(completed)), (5, true));
}

#[test]
fn exposures_come_and_go_with_ever_new_keys() {
    const ROUNDS: usize = 500;
    let Some(_alone) = alone() else { return };
    for open in WAYS {
        let mut pair = pair(open);
        let (mut last, mut keys) = (None, HashSet::new());
        for round in 0..ROUNDS {
            let ours = pair.client.pattern(4096, round);
            let access = if round % 2 == 0 {
                Access::RemoteRead
            } else {
                Access::RemoteWrite
            };
            let provider = &mut pair.client.provider;
            let exposed = provider.expose(pair.here, local([ours.clone()]), access);
            let exposure = exposed.expect("room");
            assert_ne!(Some(exposure.key), last);
            let remote = RemoteAddress {
                key: exposure.key,
                offset: exposure.offset,
            };
            let (theirs, operation) = match access {
                Access::RemoteRead => {
                    let sink = pair.server.slice(Class::Control, 4096);
                    (sink, Operation::Read(remote))
                }
                Access::RemoteWrite => {
                    let source = pair.server.pattern(4096, round + 1);
                    (source, Operation::Write(remote))
                }
            };
            // The key holds from the binding on, which goes out with the client's next turn.
            pair.client.turn();
            carry_out(&mut pair, operation, theirs.clone());
            if access == Access::RemoteWrite {
                // What is written is there before what is read behind it.
                let probe = pair.client.pattern(8, 1);
                let provider = &mut pair.client.provider;
                let exposed = provider.expose(pair.here, local([probe]), Access::RemoteRead);
                let exposed = exposed.expect("room");
                pair.client.turn();
                let sink = pair.server.slice(Class::Control, 8);
                let remote = RemoteAddress {
                    key: exposed.key,
                    offset: exposed.offset,
                };
                carry_out(&mut pair, Operation::Read(remote), sink);
                pair.revoked(exposed.key);
            }
            let memory = pair.revoked(exposure.key);
            let expected = pattern(4096, round + usize::from(access == Access::RemoteWrite));
            assert!(read(&memory[0]) == expected && read(&theirs) == expected);
            last = Some(exposure.key);
            keys.insert(exposure.key);
        }
        let counters = pair.client.provider.counters();
        let made = [&counters.windows_bound, &counters.registrations];
        let made = made.map(Counter::get);
        println!(
            "{} keys of {ROUNDS}; windows, registrations: {made:?}",
            keys.len()
        );
        assert_eq!(made[0] + made[1], ROUNDS as u64 * 3 / 2);
    }
}

#[test]
fn one_key_covers_one_slice_and_there_are_so_many() {
    let Some(_alone) = alone() else { return };
    for open in WAYS {
        let mut pair = pair(open);
        assert_eq!(pair.client.provider.exposure_slices(), 1);
        let whole = pair.client.slice(Class::Control, 4096);
        let halves = local([whole.slice(0..2048), whole.slice(2048..4096)]);
        let provider = &mut pair.client.provider;
        let refused = provider.expose(pair.here, halves, Access::RemoteRead);
        let (error, memory) = refused.expect_err("two pieces");
        assert_eq!((error, memory.len()), (ExposeError::Scattered, 2));

        let expose = |pair: &mut Pair<Verbs>| {
            let slice = pair.client.slice(Class::Control, 100);
            let provider = &mut pair.client.provider;
            let exposed = provider.expose(pair.here, local([slice]), Access::RemoteWrite);
            exposed.map_err(|(error, _)| error)
        };
        let keys: Vec<Key> = (0..LIMITS.exposures)
            .map(|_| expose(&mut pair).expect("room").key)
            .collect();
        assert_eq!(expose(&mut pair).expect_err("too many"), ExposeError::Full);
        for &key in &keys {
            pair.revoked(key);
        }
        expose(&mut pair).expect("room again");
        let unknown = pair.client.provider.revoke(pair.here, Key(!keys[0].0));
        assert!(matches!(unknown, Revoked::Unknown));
    }
}

#[test]
fn memory_that_is_added_later_is_used_like_the_first() {
    let Some(_alone) = alone() else { return };
    let mut pair = pair(Devices::open);
    // More than the first arena has.
    let mut taken = Vec::new();
    for side in [&mut pair.client, &mut pair.server] {
        while let Some(buffer) = side.pool.try_acquire(Class::Medium) {
            taken.push(buffer);
        }
        side.pool.grow(16 << 20).expect("memory");
    }
    let ours = pair.client.pattern(Class::Medium.size(), 3);
    let theirs = pair.server.slice(Class::Medium, Class::Medium.size());
    assert!(taken.iter().all(|buffer| buffer.region() != ours.region()));
    let provider = &mut pair.client.provider;
    let exposed = provider.expose(pair.here, local([ours.clone()]), Access::RemoteRead);
    let exposure = exposed.expect("room");
    pair.client.turn();
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    carry_out(&mut pair, Operation::Read(remote), theirs.clone());
    assert!(read(&theirs) == read(&ours));
    pair.revoked(exposure.key);
}
