//! What is left of connections, calls and programs that end badly: nothing.

mod support;

use std::net::Ipv4Addr;
use std::time::Duration;

use millrace::call::{Answer, Shortage};
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::rpcrdma::CallChunks;
use support::message::{
    PROGRAM, inline, is_chunk_error, long, parse, plain, reads, rpc, wishing, word, words,
};
use support::raw::{Options, Stated, World};
use support::script::{CallScript, Script, scripted};
use support::trace::Trace;

const WRITE: (u32, u32, u32) = (100_003, 3, 7);

/// Calls of every kind, to be broken off.
fn everything(world: &mut World<Script>, client: usize) -> Vec<Vec<u8>> {
    let source = world.source(client, &[7; 8000]);
    let sink = world.sink(client, 8000);
    let write = rpc(3, WRITE, &[0; 40]);
    let call = rpc(4, PROGRAM, &[1; 4000]);
    let whole = world.source(client, &call);
    let data = reads(write.len(), &source.cut(&[1000; 4]));
    let item = reads(100, &source.cut(&[10, 10]));
    let zero = reads(0, &whole.cut(&[1000, 3068]));
    let reply_chunk = [sink.whole()];
    let with = |reads| CallChunks {
        reads,
        reply: Some(&reply_chunk),
        ..CallChunks::default()
    };
    vec![
        plain(&rpc(1, PROGRAM, &[])),
        inline(&with(&data), &write),
        inline(&with(&item), &rpc(5, PROGRAM, &[1; 100])),
        long(4, &with(&zero)),
        inline(&with(&[]), &rpc(6, PROGRAM, &[])),
        words(&[7, 1, 16, 9, 0, 0, 0]),
        words(&[7, 1, 16, 3]),
    ]
}

#[test]
fn nothing_is_left_of_a_connection_that_ends_in_any_phase() {
    let network = loopback();
    let plan = CallScript {
        length: 6000,
        pull: true,
        ..CallScript::default()
    };
    let (mut world, script) = scripted(plan, Options::default());
    world.abort(0);
    world.settle();
    for hold in [false, true] {
        script.plan(CallScript { hold, ..plan });
        for turns in 0..24 {
            for from_client in [false, true] {
                network.set_latency(Duration::ZERO);
                let client = world.connect();
                world.exchange_wish(client, &script, CallScript { hold, ..plan });
                let calls = everything(&mut world, client);
                network.set_latency(Duration::from_micros(100));
                for call in &calls {
                    world.post(client, call);
                }
                for _ in 0..turns {
                    world.now += Duration::from_micros(50);
                    world.turn();
                }
                if from_client {
                    world.abort(client);
                } else {
                    world.connections()[0].close(turns % 2 == 0);
                }
                for _ in 0..40 {
                    world.pass(Duration::from_micros(50));
                }
                // An orderly close ends when its time is up at the latest.
                world.pass(Duration::from_secs(20));
                script.release(script.held());
                world.settle();
                assert_eq!(world.calls(), 0, "{turns} turns");
                assert_eq!(world.shared.completions.pending(), 0);
                assert_eq!(world.in_use(), 0, "{turns} turns");
            }
        }
    }
    world.check_clean();
}

impl World<Script> {
    /// Opens the window of a connection.
    fn exchange_wish(&mut self, client: usize, script: &Script, then: CallScript) {
        script.plan(CallScript::default());
        self.exchange(client, &wishing(1, 16));
        script.plan(then);
    }
}

#[test]
fn a_panic_in_a_program_ends_its_connection_only() {
    let (mut world, script) = scripted(CallScript::held(), Options::default());
    let other = world.connect();
    world.send(other, &wishing(1, 8));
    world.send(0, &wishing(2, 8));
    script.plan(CallScript {
        panic: true,
        ..CallScript::default()
    });
    world.send(0, &wishing(3, 8));
    assert!(!world.is_open(0));
    assert!(world.is_open(other));
    script.plan(CallScript::default());
    assert_eq!(parse(&world.exchange(other, &wishing(4, 8))).xid, 4);
    script.release(2);
    world.settle();
    assert_eq!(parse(&world.received(other)[0]).xid, 1);
    world.check_clean();
    world.check_accounts(Ipv4Addr::LOCALHOST);
}

#[test]
fn calls_that_wait_for_a_task_go_with_their_connection() {
    let options = Options {
        pool: 64 << 20,
        ..Options::default()
    };
    let (mut world, script) = scripted(CallScript::default(), options);
    let few = Stated {
        receives: 40,
        ..Stated::default()
    };
    let clients: Vec<usize> = (0..40).map(|_| world.connect_with(few)).collect();
    let mut all = 0;
    for &client in &clients {
        let granted = word(&world.exchange(client, &wishing(1, 32)), 2);
        all += granted as usize;
    }
    script.seen();
    script.plan(CallScript::held());
    for &client in &clients {
        let granted = world.connections()[client].credits().1;
        for xid in 0..granted {
            world.post(client, &wishing(xid, 32));
        }
    }
    world.settle();
    let begun = script.held();
    assert!(begun < all, "some wait");
    let used = |world: &World<Script>| world.shared.flow.counters().used.get() as usize;
    assert_eq!(used(&world), all);
    for &client in &clients {
        world.abort(client);
    }
    world.settle();
    assert_eq!(used(&world), begun, "only those that have begun are left");
    script.release(begun);
    world.settle();
    assert_eq!(script.seen().len(), begun);
    world.check_clean();
    world.check_accounts(Ipv4Addr::LOCALHOST);
}

#[test]
fn answers_without_a_message_leave_nothing_behind() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    for (answer, answers) in [
        (Answer::Silent, 0),
        (Answer::TooLarge(Shortage::default()), 1),
        (Answer::Broken, 0),
    ] {
        script.plan(CallScript {
            answer,
            ..CallScript::default()
        });
        for xid in 0..50 {
            world.send(0, &wishing(xid, 8));
            let received = world.received(0);
            assert_eq!(received.len(), answers);
            assert!(received.iter().all(|reply| is_chunk_error(reply)));
        }
    }
    assert_eq!(world.connections()[0].credits().2, 0);
    script.plan(CallScript::default());
    assert_eq!(word(&world.exchange(0, &wishing(1, 8)), 2), 8);
    world.check_clean();
}

#[test]
fn refusing_takes_no_calls_and_no_connections_and_finishes_what_runs() {
    let (mut world, script) = scripted(CallScript::held(), Options::default());
    world.send(0, &wishing(1, 8));
    world.refuse();
    world.send(0, &wishing(2, 8));
    script.release(1);
    world.settle();
    let replies = world.received(0);
    assert_eq!((replies.len(), word(&replies[0], 0)), (1, 1));
    let late = world.connect_with(Stated::default());
    assert!(!world.is_open(late));
    assert!(!world.trace().contains(&Trace::Expose));
    world.check_clean();
}
