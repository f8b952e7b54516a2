//! The responder and remote invalidation in version two (version two draft sections 3 and 5.2.3).

use millrace_reactor::fabric::Key;
use millrace_wire::rpcrdma::{CallChunks, Version};

use crate::support::message::{
    PROGRAM, WISH, check_error, nominate, optional, parse, plain, reads, rpc, speak, word,
};
use crate::support::raw::{Memory, Options, Stated, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::trace::Trace;

/// The keys that Sends were to invalidate.
fn sends(world: &mut World<Script>) -> Vec<Option<Key>> {
    let trace = world.trace().into_iter();
    let invalidated = trace.filter_map(|trace| match trace {
        Trace::Send { invalidate, .. } => Some(invalidate),
        _ => None,
    });
    invalidated.collect()
}

/// A call with a read chunk, a write chunk of two memories and a Reply chunk, each with a key of
/// its own, that nominates one.
fn call(xid: u32, key: u32, memories: &[Memory; 4]) -> Vec<u8> {
    let [source, first, second, reply] = memories;
    let rpc = rpc(xid, PROGRAM, &[1; 40]);
    let chunks = CallChunks {
        reads: &reads(rpc.len() - 20, &[source.segment(0, 8)]),
        writes: &[&[first.whole(), second.whole()]],
        reply: Some(&[reply.whole()]),
    };
    nominate(key, &chunks, &rpc)
}

fn memories(world: &mut World<Script>) -> [Memory; 4] {
    [
        world.source(0, &[7; 100]),
        world.sink(0, 100),
        world.sink(0, 100),
        world.sink(0, 6000),
    ]
}

#[test]
fn rr2_inv_03_the_reply_repeats_what_the_call_nominated() {
    for invalidates in [true, false] {
        let (mut world, script) = scripted(
            CallScript::default(),
            Options {
                invalidates,
                ..Options::default()
            },
        );
        for which in 0..4 {
            for length in [24, 5000] {
                script.plan(CallScript {
                    length,
                    ..CallScript::default()
                });
                let memories = memories(&mut world);
                let key = memories[which].exposure.key.0;
                let reply = parse(&world.exchange(0, &call(1, key, &memories)));
                assert_eq!((reply.invalidate, reply.inline), (key, length == 24));
                // Zero, and what is none of its keys.
                for key in [0, !key] {
                    let memories = self::memories(&mut world);
                    let reply = parse(&world.exchange(0, &call(1, key, &memories)));
                    assert_eq!(reply.invalidate, key);
                }
            }
        }
        world.check_clean();
    }
}

#[test]
fn rr2_inv_04_nothing_nominated_is_a_plain_send() {
    // Whatever private data says of version one.
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let client = world.connect_with(Stated {
        invalidation: true,
        ..Stated::default()
    });
    let sink = world.sink(client, 100);
    let chunks = CallChunks {
        reply: Some(&[sink.whole()]),
        ..CallChunks::default()
    };
    world.trace();
    world.exchange(client, &nominate(0, &chunks, &rpc(1, PROGRAM, &[])));
    world.exchange(client, &plain(&rpc(1, PROGRAM, &[])));
    assert_eq!(sends(&mut world), [None, None]);
    // Nor is a segment whose handle is zero taken for a nominated one.
    let mut segment = sink.whole();
    segment.handle = 0;
    let chunks = CallChunks {
        reply: Some(&[segment]),
        ..CallChunks::default()
    };
    world.exchange(client, &nominate(0, &chunks, &rpc(1, PROGRAM, &[])));
    assert_eq!(sends(&mut world), [None]);
    assert!(world.clients[client].invalidated.is_empty());
    world.check_clean();
}

#[test]
fn rr2_inv_05_exactly_what_was_nominated_is_invalidated() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    for which in 0..4 {
        for length in [24, 5000] {
            script.plan(CallScript {
                length,
                ..CallScript::default()
            });
            let memories = memories(&mut world);
            let key = memories[which].exposure.key;
            world.trace();
            world.exchange(0, &call(1, key.0, &memories));
            assert_eq!(sends(&mut world), [Some(key)]);
            assert_eq!(std::mem::take(&mut world.clients[0].invalidated), [key]);
            if length > 24 {
                assert_eq!(memories[3].bytes()[..length], Script::reply(1, length));
            }
        }
    }
    assert_eq!(world.shared.counters.invalidations.get(), 8);
    world.check_clean();
}

#[test]
fn rr2_inv_06_what_is_none_of_its_keys_is_not_invalidated() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let other = world.sink(0, 100);
    let memories = memories(&mut world);
    world.trace();
    for key in [other.exposure.key.0, 1, u32::MAX] {
        assert_eq!(parse(&world.exchange(0, &call(1, key, &memories))).xid, 1);
        let rpc = rpc(2, PROGRAM, &[]);
        let without = nominate(key, &CallChunks::default(), &rpc);
        assert_eq!(parse(&world.exchange(0, &without)).xid, 2);
    }
    assert_eq!(sends(&mut world), [None; 6]);
    assert_eq!(world.clients[0].invalidated, []);
    assert_eq!(script.seen().len(), 6);
    assert!(world.is_open(0));
    world.check_clean();
}

#[test]
fn rr2_inv_08_a_provider_that_cannot_sends_plainly() {
    let (mut world, _) = scripted(
        CallScript::default(),
        Options {
            invalidates: false,
            ..Options::default()
        },
    );
    let memories = memories(&mut world);
    world.trace();
    let key = memories[1].exposure.key.0;
    world.exchange(0, &call(1, key, &memories));
    // In version one neither, though the client agrees.
    speak(Version::One);
    let client = world.connect_with(Stated {
        invalidation: true,
        ..Stated::default()
    });
    let sink = world.sink(client, 100);
    let chunks = CallChunks {
        reply: Some(&[sink.whole()]),
        ..CallChunks::default()
    };
    world.exchange(client, &nominate(0, &chunks, &rpc(1, PROGRAM, &[])));
    assert_eq!(sends(&mut world), [None, None]);
    world.check_clean();
}

#[test]
fn rr2_inv_10_errors_and_options_are_plain_sends() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let memories = memories(&mut world);
    let key = memories[1].exposure.key.0;
    world.trace();
    // An error before the procedure runs, and one after.
    let mut message = call(1, key, &memories);
    message[28..32].copy_from_slice(&[0, 0, 0, 3]);
    check_error(&world.exchange(0, &message), 1, &[2]);
    script.plan(CallScript::of_length(6004));
    let error = world.exchange(0, &call(1, key, &memories));
    check_error(&error, 1, &[3, 1, 3, 6004]);
    assert_eq!(word(&error, 2), WISH);
    world.exchange(0, &optional(1, false, 3, &key.to_be_bytes(), &[]));
    assert_eq!(sends(&mut world), [None; 3]);
    assert_eq!(world.clients[0].invalidated, []);
    world.check_clean();
}
