//! The responder's credits, its buffers and its send queue (RFC 5666 section 3.3). At every Send
//! the recording provider checks that receives cover the credits announced (RR1-CRED-03, -08 and
//! -09).

use std::time::Duration;

use millrace::rdma::Settings;
use millrace_mempool::Class;
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::rpcrdma::CallChunks;

use crate::support::message::{
    self, PROGRAM, check_chunk_error, inline, is_chunk_error, long, parse, plain, reads, rpc,
    wishing, word, words,
};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script, scripted};
use crate::support::served::Nfs;

fn posted(world: &World<Script>) -> usize {
    let notes = world.notes.borrow();
    notes
        .receives
        .values()
        .map(|receives| receives.posted)
        .sum()
}

#[test]
fn rr1_cred_01_rr1_cred_25_the_credit_word_is_a_grant_within_bounds() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    for (wish, grant) in [(0, 1), (1, 1), (7, 7), (32, 32), (33, 32), (u32::MAX, 32)] {
        let reply = world.exchange(0, &wishing(1, wish));
        assert_eq!(word(&reply, 2), grant, "{wish}");
        // An error is a reply, too.
        let mut bad = wishing(2, wish);
        bad[message::header_length() - 1] = 2;
        let error = world.exchange(0, &bad);
        check_chunk_error(&error, 2);
        assert_eq!(word(&error, 2), grant, "{wish}");
        bad[7] = 9;
        assert_eq!(word(&world.exchange(0, &bad), 2), grant, "{wish}");
    }
    world.check_clean();
}

#[test]
fn rr1_cred_04_an_idle_connection_has_receives_from_the_start() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    assert!(posted(&world) >= 1);
    assert_eq!(world.connections()[0].credits(), (1, 1, 0));
    for wish in [5, 0, 1, 32, 2] {
        world.exchange(0, &wishing(1, wish));
        assert!(posted(&world) > wish.max(1) as usize);
        assert_eq!(world.connections()[0].credits().2, 0);
    }
    // A smaller wish frees receives once the smaller grant has been announced.
    for _ in 0..40 {
        world.exchange(0, &wishing(1, 1));
    }
    assert_eq!(posted(&world), 3);
}

#[test]
fn rr1_cred_05_rr1_cred_08_grants_go_up_and_down_covered_by_receives_and_no_call_is_lost() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    let settings = |credits| Settings::new(4096, credits, 1 << 20, true);
    for credits in [32, 4, 1, 16, 2, 32] {
        world.shared.settings.set(settings(credits));
        world.exchange(0, &wishing(1, 64));
        let grant = word(&world.exchange(0, &wishing(1, 64)), 2);
        assert_eq!(grant, credits);
        // As many calls as were granted, all at once.
        for xid in 0..grant {
            world.post(0, &wishing(xid, 64));
        }
        world.settle();
        assert_eq!(world.received(0).len(), grant as usize);
    }
    world.check_clean();
}

#[test]
fn rr1_cred_05_a_falling_grant_covers_calls_sent_under_the_old_one() {
    let network = loopback();
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    assert_eq!(word(&world.exchange(0, &wishing(1, 32)), 2), 32);
    script.plan(CallScript::held());
    for xid in 0..16 {
        world.post(0, &wishing(xid, 32));
    }
    world.settle();
    // The rest of the old grant is used while replies with the new one are under way.
    world
        .shared
        .settings
        .set(Settings::new(4096, 1, 1 << 20, true));
    network.set_latency(Duration::from_millis(1));
    script.release(8);
    world.settle();
    for xid in 16..32 {
        world.post(0, &wishing(xid, 32));
    }
    world.pass(Duration::from_millis(2));
    assert!(world.is_open(0));
    while script.held() > 0 {
        script.release(script.held());
        world.pass(Duration::from_millis(2));
    }
    world.pass(Duration::from_millis(2));
    let replies = world.received(0);
    assert_eq!(replies.len(), 32);
    assert!(replies.iter().all(|reply| word(reply, 2) == 1));
    network.set_latency(Duration::ZERO);
    world.pass(Duration::from_millis(2));
    world.check_clean();
}

#[test]
fn rr1_cred_05_receives_of_the_larger_grant_stay_until_the_smaller_one_is_announced() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    assert_eq!(word(&world.exchange(0, &wishing(1, 32)), 2), 32);
    assert_eq!(posted(&world), 34);
    let smaller = Settings::new(4096, 4, 1 << 20, true);
    world.shared.settings.set(smaller);
    // The larger grant was in force until this reply, and so are its receives.
    assert_eq!(word(&world.exchange(0, &wishing(2, 32)), 2), 4);
    assert_eq!(posted(&world), 34);
    for left in (6..34).rev() {
        assert_eq!(word(&world.exchange(0, &wishing(3, 32)), 2), 4);
        assert_eq!(posted(&world), left);
    }
    world.exchange(0, &wishing(4, 32));
    assert_eq!(posted(&world), 6);
    world.check_clean();
}

#[test]
fn rr1_cred_11_replies_leave_however_empty_the_pool() {
    let options = Options {
        pool: 2 << 20,
        ..Options::default()
    };
    let (mut world, script) = scripted(CallScript::default(), options);
    let mut clients = vec![0];
    for _ in 0..4 {
        clients.push(world.connect());
    }
    for &client in &clients {
        assert!(world.is_open(client));
        world.exchange(client, &wishing(1, 4));
    }
    // All that is left but the one buffer that goes from reply to reply.
    let mut taken: Vec<_> =
        std::iter::from_fn(|| world.shared.pool.try_acquire(Class::Control)).collect();
    taken.pop();
    let mut xid = 0;
    for &client in &clients {
        xid += 1;
        let reply = world.exchange(client, &wishing(xid, 4096));
        assert_eq!((word(&reply, 0), word(&reply, 2)), (xid, 1));
    }
    // Every connection uses all that it was ever granted at the same time.
    script.plan(CallScript::held());
    for &client in &clients {
        for _ in 0..3 {
            xid += 1;
            world.post(client, &wishing(xid, 4096));
        }
    }
    world.settle();
    let gauges = world.shared.pool.gauges();
    assert!(gauges.class(Class::Control).waiters() > 0, "{gauges:?}");
    while script.held() > 0 {
        script.release(1);
        world.settle();
    }
    for &client in &clients {
        assert_eq!(world.received(client).len(), 3);
        assert!(world.is_open(client));
    }
    drop(taken);
    world.check_clean();
}

#[test]
fn rr1_cred_11_long_calls_do_not_wait_for_each_other_for_ever() {
    let options = Options {
        pool: 2 << 20,
        settings: Settings::new(4096, 256, 1 << 20, true),
        ..Options::default()
    };
    let (mut world, script) = scripted(CallScript::default(), options);
    world.exchange(0, &wishing(1, 256));
    let granted = word(&world.exchange(0, &wishing(1, 256)), 2);
    assert!(granted > 16);
    // Long calls with an item apart, whose replies are long.
    script.plan(CallScript::of_length(20_000));
    let call = rpc(7, PROGRAM, &[5; 5000]);
    let (source, item) = (world.source(0, &call), world.source(0, &[6; 40]));
    let sink = world.sink(0, 20_000);
    let entries = [
        reads(0, &[source.whole()]),
        reads(call.len() - 8, &[item.whole()]),
    ]
    .concat();
    let chunks = CallChunks {
        reads: &entries,
        reply: Some(&[sink.whole()]),
        ..CallChunks::default()
    };
    for _ in 0..granted {
        world.post(0, &long(7, &chunks));
    }
    world.settle();
    let replies = world.received(0);
    assert_eq!(replies.len(), granted as usize);
    assert!(replies.iter().all(|reply| !is_chunk_error(reply)));
    world.check_clean();
}

#[test]
fn rr1_cred_14_three_times_the_grant_harms_nobody_else() {
    // InfiniBand and RoCE let a Send wait for its receive instead of ending the connection.
    let _network = loopback();
    let (mut world, script) = scripted(CallScript::held(), Options::default());
    let other = world.connect();
    for round in 0..3 {
        let client = world.connect();
        script.plan(CallScript::default());
        let granted = word(&world.exchange(client, &wishing(1, 8)), 2);
        script.plan(CallScript::held());
        for xid in 0..3 * granted {
            world.post(client, &wishing(xid, 8));
        }
        world.settle();
        assert!(
            !world.is_open(client),
            "round {round}: more than was announced"
        );
        script.release(script.held());
        world.settle();
        assert_eq!(world.calls(), 0);
        script.plan(CallScript::default());
        assert_eq!(parse(&world.exchange(other, &wishing(3, 8))).xid, 3);
    }
    world.check_clean();
}

#[test]
fn rr1_cred_22_reads_open_at_once_stay_within_the_depth() {
    for ord in [1, 2, 16] {
        let options = Options {
            ord,
            ..Options::default()
        };
        let mut nfs = Nfs::with(options);
        let file = nfs.create(b"f");
        let source = nfs.world.source(0, &[7; 4000]);
        // The fabric holds back what exceeds the depth; all segments arrive.
        nfs.write_from(file, 4000, &source, &[100; 40]);
        assert_eq!(nfs.content(file), [7; 4000]);
    }
}

#[test]
fn rr1_cred_26_a_message_of_exactly_the_limit_arrives_and_one_more_byte_ends_it() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let message = plain(&rpc(
        1,
        PROGRAM,
        &vec![1; 4096 - message::header_length() - 68],
    ));
    assert_eq!(message.len(), 4096);
    assert_eq!(parse(&world.exchange(0, &message)).xid, 1);
    assert_eq!(script.seen().len(), 1);
    let other = world.connect();
    world.send(0, &[&message[..], &[1]].concat());
    assert!(!world.is_open(0));
    assert!(world.is_open(other));
    world.check_clean();
}

#[test]
fn rr1_cred_28_a_new_connection_begins_with_one_credit() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    assert_eq!(word(&world.exchange(0, &wishing(1, 32)), 2), 32);
    world.abort(0);
    world.settle();
    world.connect();
    assert_eq!(world.connections()[0].credits(), (1, 1, 0));
    assert_eq!(posted(&world), 3);
}

#[test]
fn old_09_two_calls_at_once_on_a_fresh_connection_are_served() {
    let (mut world, _) = scripted(CallScript::default(), Options::default());
    world.post(0, &wishing(1, 8));
    world.post(0, &wishing(2, 8));
    world.settle();
    assert_eq!(world.received(0).len(), 2);
    assert!(world.is_open(0));
}

#[test]
fn old_11_one_message_beyond_the_grant_is_borne() {
    let (mut world, script) = scripted(CallScript::default(), Options::default());
    let granted = word(&world.exchange(0, &wishing(1, 4)), 2);
    script.plan(CallScript::held());
    for xid in 0..granted {
        world.post(0, &wishing(xid, 4));
    }
    // A stray RDMA_DONE, and one more after its receive was posted again.
    for _ in 0..2 {
        world.post(0, &words(&[9, 1, 4, 3]));
        world.settle();
    }
    assert!(world.is_open(0));
    script.release(granted as usize);
    world.settle();
    assert_eq!(world.received(0).len(), granted as usize);
    world.check_clean();
}

#[test]
fn a_short_send_queue_serves_all_in_order_and_lets_go_at_the_end() {
    for send_depth in [1, 2, 3, 7] {
        let network = loopback();
        let options = Options {
            send_depth,
            ..Options::default()
        };
        let mut nfs = Nfs::with(options);
        let file = nfs.file(b"f", &[9; 3000]);
        let (source, sink) = (nfs.world.source(0, &[7; 3000]), nfs.world.sink(0, 3000));
        network.set_latency(Duration::from_millis(1));
        let mut xids = Vec::new();
        for _ in 0..8 {
            let rpc = nfs.read_message(file, 3000);
            xids.push(word(&rpc, 0));
            let chunks = CallChunks {
                writes: &[&sink.cut(&[300; 10])],
                ..CallChunks::default()
            };
            nfs.world.post(0, &inline(&chunks, &rpc));
            let (rpc, position) = nfs.write_message(file, 3000);
            xids.push(word(&rpc, 0));
            let entries = reads(position, &source.cut(&[300; 10]));
            let chunks = CallChunks {
                reads: &entries,
                ..CallChunks::default()
            };
            nfs.world.post(0, &inline(&chunks, &rpc));
        }
        for _ in 0..2000 {
            nfs.world.pass(Duration::from_micros(500));
        }
        let mut answered: Vec<u32> = nfs
            .world
            .received(0)
            .iter()
            .map(|reply| parse(reply).xid)
            .collect();
        answered.sort_unstable();
        assert_eq!(answered, xids, "{send_depth}");
        let connection = nfs.world.connections()[0].clone();
        assert!(!connection.has_waiting_senders());
        assert!(connection.counters().send_waits.get() > 0);
        network.set_latency(Duration::ZERO);
        nfs.world.pass(Duration::from_millis(10));
        nfs.world.check_clean();
    }
}

#[test]
fn replies_leave_in_the_order_in_which_they_were_ready() {
    let options = Options {
        send_depth: 1,
        ..Options::default()
    };
    let (mut world, _) = scripted(CallScript::default(), options);
    world.exchange(0, &wishing(1, 32));
    for xid in 0..30 {
        world.post(0, &wishing(xid, 32));
    }
    world.settle();
    let xids: Vec<u32> = world
        .received(0)
        .iter()
        .map(|reply| word(reply, 0))
        .collect();
    assert_eq!(xids, (0..30).collect::<Vec<_>>());
}
