//! Credits and what they depend on: receives, RDMA_DONE, the configuration (RFC 5666 sections 3.3
//! and 11).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrace::rdma::Settings;
use millrace_wire::nfs3::Procedure;
use proptest::prelude::*;

use crate::support::fetch::done;
use crate::support::message::{asking, nfs, parse, wishing, word};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script};
use crate::support::trace::Trace;

const WINDOW: Duration = Duration::from_secs(10);

/// A reply too long for the inline limit.
const LONG: CallScript = CallScript {
    length: 5000,
    pull: false,
    hold: false,
    panic: false,
    answer: millrace::call::Answer::Send,
};

/// Classic mode with so many credits at most.
fn classic(credits: u32) -> (World<Script>, Script) {
    let mut options = Options::classic();
    options.settings.credits = credits;
    let script = Script::default();
    script.plan(LONG);
    let mut world = World::new(script.clone(), options);
    world.connect();
    (world, script)
}

/// The credits of a reply.
fn credits(reply: &[u8]) -> u32 {
    word(reply, 2)
}

fn set_credits(world: &World<Script>, credits: u32) {
    let settings = world.shared.settings.get();
    world.shared.settings.set(Settings {
        credits,
        ..settings
    });
}

#[test]
fn rr1_cred_08_receives_are_posted_before_the_reply_that_grants_them() {
    let script = Script::default();
    let mut world = World::new(script, Options::default());
    world.connect();
    for wish in [1, 7, 32, 5, 32] {
        world.trace();
        let reply = world.exchange(0, &wishing(1, wish));
        assert_eq!(credits(&reply), wish);
        let trace = world.trace();
        let sent = |trace: &Trace| matches!(trace, Trace::Send { .. });
        let at = trace.iter().position(sent).expect("a reply");
        let posted = |trace: &&Trace| **trace == Trace::PostReceive;
        let all = trace.iter().filter(posted).count();
        let before = trace[..at].iter().filter(posted).count();
        assert_eq!(
            before, all,
            "no receive is posted after the reply: {trace:?}"
        );
        assert!(world.connections()[0].posted() > wish);
    }
    world.check_clean();
}

#[test]
fn rr1_cred_18_four_pending_dones_of_eight_leave_four_credits() {
    let (mut world, script) = classic(8);
    for (xid, expected) in [(1, 8), (2, 7), (3, 6), (4, 5)] {
        let reply = world.exchange(0, &wishing(xid, 8));
        assert!(parse(&reply).reads > 0);
        assert_eq!(credits(&reply), expected);
    }
    script.plan(CallScript::default());
    assert_eq!(credits(&world.exchange(0, &wishing(5, 8))), 4);
    world.send(0, &done(2));
    assert_eq!(credits(&world.exchange(0, &wishing(6, 8))), 5);
    for xid in [1, 3, 4] {
        world.send(0, &done(xid));
    }
    assert_eq!(credits(&world.exchange(0, &wishing(7, 8))), 8);
    world.check_clean();
}

#[test]
fn rr1_cred_20_the_last_reply_waits_for_a_done_and_brings_a_credit() {
    for most in [1, 2, 5] {
        let (mut world, _) = classic(most);
        for xid in 0..most {
            let reply = world.exchange(0, &wishing(xid, 8));
            assert_eq!(credits(&reply), (most - xid).max(1));
        }
        let flow = world.shared.flow.clone();
        world.send(0, &wishing(100, 8));
        world.pass(WINDOW / 2);
        assert_eq!(world.received(0).len(), 0, "held back");
        assert_eq!(flow.counters().withheld.get(), 1);
        world.send(0, &done(0));
        let replies = world.received(0);
        assert_eq!(replies.len(), 1);
        assert_eq!((word(&replies[0], 0), credits(&replies[0])), (100, 1));
        assert_eq!(flow.counters().withheld.get(), 0);
        assert_eq!(flow.counters().withheld_total.get(), 1);
        world.check_clean();
    }
}

#[test]
fn rr1_cred_20_only_the_last_reply_owed_is_held_back() {
    let (mut world, script) = classic(4);
    world.exchange(0, &wishing(1, 4));
    world.send(0, &done(1));
    script.plan(CallScript { hold: true, ..LONG });
    for xid in 10..14 {
        world.post(0, &wishing(xid, 4));
    }
    world.settle();
    set_credits(&world, 2);
    script.release(4);
    world.settle();
    let replies: Vec<(u32, u32)> = world
        .received(0)
        .iter()
        .map(|reply| (word(reply, 0), credits(reply)))
        .collect();
    assert_eq!(replies, [(10, 2), (11, 1), (12, 1)]);
    // More than one has to end until a credit is free.
    world.send(0, &done(10));
    assert_eq!(world.received(0).len(), 0);
    world.send(0, &done(11));
    let last = world.received(0);
    assert_eq!((word(&last[0], 0), credits(&last[0])), (13, 1));
    world.check_clean();
}

#[test]
fn rr1_cred_21_without_any_done_the_reply_leaves_and_memory_is_free_when_the_window_ends() {
    let (mut world, _) = classic(2);
    for xid in 0..2 {
        world.exchange(0, &wishing(xid, 8));
    }
    world.send(0, &wishing(2, 8));
    world.pass(WINDOW - Duration::from_secs(1));
    assert_eq!(world.received(0).len(), 0);
    world.pass(Duration::from_secs(2));
    let replies = world.received(0);
    assert_eq!((replies.len(), credits(&replies[0])), (1, 2));
    assert!(world.is_open(0));
    world.pass(WINDOW + Duration::from_secs(1));
    assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
    assert_eq!(world.shared.counters.exposures_expired.get(), 3);
    world.check_clean();
}

#[test]
fn rr1_cred_20_a_connection_that_ends_takes_the_reply_that_is_held_back_with_it() {
    let (mut world, _) = classic(1);
    world.exchange(0, &wishing(1, 8));
    world.send(0, &wishing(2, 8));
    assert_eq!(world.shared.flow.counters().withheld.get(), 1);
    world.abort(0);
    world.settle();
    assert_eq!(world.shared.flow.counters().withheld.get(), 0);
    world.check_clean();
    let counters = world.shared.flow.counters();
    let left = (
        counters.granted.get(),
        counters.requested.get(),
        counters.used.get(),
    );
    assert_eq!(left, (0, 0, 0));
}

/// Deep load whose calls are all answered in the turns that they come in.
#[test]
fn credits_in_use_are_the_most_at_once_of_the_latest_seconds() {
    let mut world = World::new(Script::default(), Options::default());
    world.connect();
    world.exchange(0, &wishing(1, 32));
    world.pass(Duration::from_secs(3));
    let counters = Arc::clone(world.shared.flow.counters());
    let seen = |world: &World<Script>| {
        let connection = world.connections()[0].in_service_peak(world.now);
        (counters.used_peak.get(), connection)
    };
    assert_eq!(seen(&world), (0, 0));
    for xid in 2..12 {
        world.post(0, &wishing(xid, 32));
    }
    world.settle();
    assert_eq!(world.received(0).len(), 10);
    assert_eq!(counters.used.get(), 0);
    assert_eq!(seen(&world), (10, 10));
    // A reactor that sleeps wakes to take the peak back.
    let second = Duration::from_secs(1);
    assert_eq!(world.shared.flow.next_deadline(), Some(world.now + second));
    world.pass(second * 3 / 2);
    assert_eq!(seen(&world), (10, 10));
    world.pass(second / 2);
    assert_eq!(seen(&world), (0, 0));
    assert_eq!(world.shared.flow.next_deadline(), None);
    world.check_clean();
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call { long: bool },
    Done,
    Pass(u64),
    Configure(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<bool>().prop_map(|long| Step::Call { long }),
        2 => Just(Step::Done),
        1 => (1_u64..8).prop_map(Step::Pass),
        1 => (1_u32..5).prop_map(Step::Configure),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A client that keeps to the lower of grant and wish, and sends RDMA_DONE when it likes.
    #[test]
    fn rr1_cred_19_whoever_keeps_to_its_credits_is_never_stuck(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let (mut world, script) = classic(4);
        let (mut granted, mut in_flight, mut xid) = (1, 0_u32, 0);
        let mut exposed = VecDeque::new();
        let take = |world: &mut World<Script>, in_flight: &mut u32, granted: &mut u32| {
            let mut new = Vec::new();
            for reply in world.received(0) {
                assert!(credits(&reply) >= 1);
                *granted = credits(&reply);
                *in_flight -= 1;
                if parse(&reply).reads > 0 {
                    new.push(word(&reply, 0));
                }
            }
            new
        };
        for step in steps {
            match step {
                Step::Call { long } if in_flight < granted => {
                    script.plan(if long { LONG } else { CallScript::default() });
                    xid += 1;
                    in_flight += 1;
                    world.send(0, &wishing(xid, 4));
                }
                Step::Call { .. } => {}
                Step::Done => {
                    if let Some(xid) = exposed.pop_front() {
                        world.send(0, &done(xid));
                    }
                }
                Step::Pass(seconds) => world.pass(Duration::from_secs(seconds)),
                Step::Configure(credits) => set_credits(&world, credits),
            }
            exposed.extend(take(&mut world, &mut in_flight, &mut granted));
            prop_assert!(in_flight < granted || in_flight > 0, "nothing can happen any more");
            prop_assert!(world.is_open(0));
        }
        // Whatever is owed comes with the end of the windows.
        world.pass(WINDOW * 2);
        exposed.extend(take(&mut world, &mut in_flight, &mut granted));
        prop_assert_eq!(in_flight, 0);
        world.check_clean();
    }
}

/// A client with many calls goes on with the first replies while the server makes the rest.
#[test]
fn replies_of_a_long_turn_are_sent_in_parts() {
    let mut world = World::new(Script::default(), Options::default());
    world.connect();
    world.exchange(0, &wishing(1, 32));
    // Calls of odd numbers are answered at once; the others by tasks, whose Sends are all flushed
    // at the end of the turn.
    for (first, parts) in [(101, vec![16, 16]), (202, vec![32])] {
        for number in 0..32 {
            let call = nfs(first + 2 * number, Procedure::Getattr, &());
            world.post(0, &asking(&call, 32));
        }
        world.notes.borrow_mut().flushed.clear();
        world.turn();
        assert_eq!(world.notes.borrow().flushed, parts);
        world.settle();
        assert_eq!(world.received(0).len(), 32);
    }
    world.check_clean();
}
