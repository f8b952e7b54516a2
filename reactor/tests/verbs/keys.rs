//! For which connections keys are good, and what protects them from being guessed.

use millrace_mempool::Class;
use millrace_reactor::fabric::verbs::{Transport, Verbs, VerbsConfig, survey};
use millrace_reactor::fabric::{
    Access, ControlPath, DataPath, Event, Exposure, Operation, QueuePairId, RemoteAddress,
};

use crate::pair::{LIMITS, Pair, SEND, completed, disconnected, local, read, received, request};
use crate::{Open, WAYS, address, alone, connected_again, side_of};

const LENGTH: usize = 1000;

fn pair(open: Open) -> Pair<Verbs> {
    let [client, server] = [(); 2].map(|()| side_of(open, VerbsConfig::default()));
    Pair::connected(client, server, address(), LIMITS)
}

/// On iWARP the side that asked speaks first.
fn first_word(pair: &mut Pair<Verbs>, from: QueuePairId) {
    let slice = pair.client.pattern(10, 0);
    pair.client
        .post(from, vec![request(0, SEND, local([slice]))]);
    pair.until(|pair| pair.server.take(received));
    pair.until(|pair| pair.client.take(completed));
}

/// Whether the server can read the client's exposure by this queue pair, with its bytes.
fn reads(pair: &mut Pair<Verbs>, by: QueuePairId, exposure: &Exposure) -> Option<Vec<u8>> {
    let remote = RemoteAddress {
        key: exposure.key,
        offset: exposure.offset,
    };
    let sink = pair.server.slice(Class::Control, LENGTH);
    let read_request = request(1, Operation::Read(remote), local([sink.clone()]));
    pair.server.post(by, vec![read_request]);
    let (_, good) = pair.until(|pair| pair.server.take(completed));
    good.then(|| read(&sink))
}

#[test]
fn rr1_sec_05_keys_of_windows_hold_on_their_connection_and_those_of_registrations_on_all() {
    let Some(_alone) = alone() else { return };
    for open in WAYS {
        let mut pair = pair(open);
        let (other, there) = connected_again(&mut pair);
        pair.server.post_receives(there, 4);
        for from in [pair.here, other] {
            first_word(&mut pair, from);
        }
        let memory = pair.client.pattern(LENGTH, 3);
        let bytes = read(&memory);
        let (provider, owner) = (&mut pair.client.provider, pair.here);
        let exposed = provider.expose(owner, local([memory]), Access::RemoteRead);
        let exposure = exposed.expect("room");
        // A window is bound by a request, which precedes what its owner sends next.
        first_word(&mut pair, owner);
        let found = reads(&mut pair, there, &exposure);
        if pair.client.provider.remote_invalidation().receives {
            assert_eq!(found, None, "a window of another connection");
            for (queue_pair, at_client) in [(there, false), (other, true)] {
                pair.until(|pair| {
                    let side = if at_client {
                        &mut pair.client
                    } else {
                        &mut pair.server
                    };
                    side.take(|event| match event {
                        Event::Disconnected { queue_pair: it, .. } => Some(*it == queue_pair),
                        _ => None,
                    })
                    .inspect(|is_thief| assert!(is_thief, "only its user's connection ends"))
                });
            }
        } else {
            assert_eq!(
                found.as_ref(),
                Some(&bytes),
                "a registration is of the device"
            );
        }
        let by = pair.there;
        assert_eq!(reads(&mut pair, by, &exposure), Some(bytes));
        assert!(pair.client.take(disconnected).is_none());
        pair.revoked(exposure.key);
    }
}

/// Bits that were one in some and zero in others.
fn varied(values: &[u64]) -> u64 {
    let ones = values.iter().fold(0, |all, value| all | value);
    let zeros = values.iter().fold(0, |all, value| all | !value);
    ones & zeros
}

#[test]
fn rr1_sec_06_registrations_have_random_addresses_or_random_keys() {
    const ROUNDS: usize = 100;
    let Some(_alone) = alone() else { return };
    let mut pair = pair(millrace_reactor::fabric::verbs::Devices::open);
    if pair.client.provider.remote_invalidation().receives {
        // Windows: their keys are the device's, and hold on one connection.
        return;
    }
    let (mut keys, mut offsets) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let memory = pair.client.slice(Class::Control, LENGTH);
        let (provider, owner) = (&mut pair.client.provider, pair.here);
        let exposed = provider.expose(owner, local([memory]), Access::RemoteRead);
        let exposure = exposed.expect("room");
        keys.push(u64::from(exposure.key.0));
        offsets.push(exposure.offset);
        pair.revoked(exposure.key);
    }
    let reports = survey().expect("a device");
    if reports[0].transport == Transport::Iwarp {
        assert_eq!(varied(&keys) >> 8, 0xff_ffff, "the index of an STag");
    } else {
        let random = (1 << 62) - (1 << 21);
        assert_eq!(varied(&offsets) & random, random);
        assert_eq!(varied(&keys) & 0xff, 0xff, "the part that is not an index");
    }
}
