//! The responder and the negotiation of the version (version two draft section 6).

use millrace::rdma::Settings;
use millrace_mempool::Class;
use millrace_wire::rpcrdma::{Version, Versions};

use crate::support;
use crate::support::message::{PROGRAM, WISH, parse, plain, rpc, speak, word};
use crate::support::raw::{Options, Stated, World};
use crate::support::script::{CallScript, Script};
use crate::support::trace::Trace;

fn serving(inline: usize, versions: Versions) -> (World<Script>, Script) {
    let script = Script::default();
    let options = Options {
        settings: Settings::new(inline, 32, 1 << 20, true).serving(versions),
        ..Options::default()
    };
    (World::new(script.clone(), options), script)
}

/// Without private data.
fn silent() -> Stated {
    Stated {
        inline: None,
        ..Stated::default()
    }
}

fn call(xid: u32, version: Version, arguments: usize) -> Vec<u8> {
    speak(version);
    plain(&rpc(xid, PROGRAM, &vec![1; arguments]))
}

#[test]
fn rr2_neg_03_version_two_is_answered_and_then_used_with_4096_bytes() {
    let (mut world, script) = serving(4096, Versions::BOTH);
    let client = world.connect_with(silent());
    let first = call(0x42, Version::Two, 0);
    assert!(first.len() <= 1024);
    let reply = world.exchange(client, &first);
    assert_eq!(
        (word(&reply, 0), word(&reply, 1), word(&reply, 3)),
        (0x42, 2, 0)
    );
    // The second call has 3000 bytes, and so has its reply.
    script.plan(CallScript::of_length(3000));
    let reply = parse(&world.exchange(client, &call(0x43, Version::Two, 3000)));
    assert_eq!((reply.inline, reply.message.len()), (true, 3000));
    world.check_clean();
}

#[test]
fn rr2_neg_04_a_server_of_version_one_names_its_range() {
    let (mut world, script) = serving(4096, Versions::ONE);
    world.connect();
    let error = world.exchange(0, &call(0x42, Version::Two, 0));
    let words = [0, 1, 3, 4, 5, 6].map(|at| word(&error, at));
    assert_eq!((error.len(), words), (28, [0x42, 2, 4, 1, 1, 1]));
    assert!(script.seen().is_empty());
    assert_eq!(world.shared.counters.errors_version.get(), 1);
    // It goes on in version one.
    let one = call(0x43, Version::One, 0);
    assert_eq!(parse(&world.exchange(0, &one)).xid, 0x43);
    world.check_clean();
}

#[test]
fn rr2_neg_08_receives_of_4096_bytes_are_posted_from_the_start() {
    for (versions, size) in [
        (Versions::BOTH, 4096),
        (Versions::TWO, 4096),
        (Versions::ONE, 1024),
    ] {
        let (mut world, _) = serving(1024, versions);
        assert_eq!(world.shared.settings.get().receive_size(), size);
        world.connect_with(silent());
        let trace = world.trace();
        assert!(trace.contains(&Trace::PostReceive), "{trace:?}");
        // The very first message may be as long.
        let version = versions.high();
        let rest = size - version.before_lists() - 12 - 68;
        let first = call(1, version, rest);
        assert_eq!(first.len(), size);
        assert_eq!(parse(&world.exchange(0, &first)).xid, 1);
        assert!(Class::Control.size() >= size);
        world.check_clean();
    }
}

#[test]
fn rr2_neg_09_version_one_keeps_to_1024_bytes_where_nothing_else_is_known() {
    let (mut world, script) = serving(4096, Versions::BOTH);
    let client = world.connect_with(silent());
    for (length, fits) in [(1024 - 28, true), (1028 - 28, false)] {
        script.plan(CallScript {
            length,
            ..CallScript::default()
        });
        let reply = world.exchange(client, &call(1, Version::One, 0));
        assert_eq!(word(&reply, 3) == 0, fits);
        assert!(reply.len() <= 1024);
    }
    world.check_clean();
}

#[test]
fn rr2_neg_10_a_reply_has_the_version_of_its_call() {
    let (mut world, script) = serving(4096, Versions::BOTH);
    world.connect();
    let versions = [Version::One, Version::Two, Version::Two, Version::One];
    for (xid, version) in (1..).zip(versions.into_iter().cycle().take(12)) {
        let reply = world.exchange(0, &call(xid, version, 0));
        assert_eq!(
            (parse(&reply).xid, word(&reply, 1)),
            (xid, version.number())
        );
        assert_eq!(world.connections()[0].version(), Some(version));
    }
    // Also of calls that are served at the same time, and of errors.
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    for (xid, version) in (1..).zip(versions) {
        world.send(0, &call(xid, version, 0));
    }
    script.release(4);
    world.settle();
    let replies = world.received(0);
    let told = replies.iter().map(|reply| (word(reply, 0), word(reply, 1)));
    let asked = (1..).zip(versions.map(Version::number));
    assert_eq!(told.collect::<Vec<_>>(), asked.collect::<Vec<_>>());
    for (reply, version) in replies.iter().zip(versions) {
        speak(version);
        parse(reply);
    }
    for version in versions {
        let mut bad = call(9, version, 0);
        bad[version.before_lists() + 3] = 2;
        assert_eq!(word(&world.exchange(0, &bad), 1), version.number());
    }
    world.check_clean();
}

#[test]
fn rr2_neg_11_a_server_of_both_says_so() {
    for (versions, low, high) in [(Versions::BOTH, 1, 2), (Versions::TWO, 2, 2)] {
        let (mut world, _) = serving(4096, versions);
        world.connect();
        for version in [0, 3, 5, u32::MAX] {
            let mut message = call(7, Version::Two, 0);
            message[4..8].copy_from_slice(&version.to_be_bytes());
            let error = world.exchange(0, &message);
            let words = [0, 1, 3, 4, 5, 6].map(|at| word(&error, at));
            assert_eq!((error.len(), words), (28, [7, version, 4, 1, low, high]));
        }
        world.check_clean();
    }
}

#[test]
fn rr2_neg_14_version_two_switched_off_leaves_version_one_as_it_was() {
    let (mut world, script) = serving(1024, Versions::ONE);
    let client = world.connect_with(silent());
    let reply = world.exchange(client, &call(7, Version::One, 0));
    let mut expected = support::message::words(&[7, 1, WISH, 0, 0, 0, 0]);
    expected.extend(Script::reply(7, 24));
    assert_eq!(reply, expected);
    script.plan(CallScript::of_length(2000));
    let error = world.exchange(client, &call(7, Version::One, 0));
    assert_eq!((error.len(), word(&error, 1), word(&error, 4)), (20, 1, 2));
    // And the other way round.
    let (mut world, _) = serving(1024, Versions::TWO);
    world.connect();
    let error = world.exchange(0, &call(7, Version::One, 0));
    assert_eq!([1, 4, 5, 6].map(|at| word(&error, at)), [1, 1, 2, 2]);
    assert_eq!(parse(&world.exchange(0, &call(8, Version::Two, 0))).xid, 8);
}
