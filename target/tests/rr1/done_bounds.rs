//! Clients that do not send RDMA_DONE, or send it late (RFC 5666 sections 3.8 and 11).

use std::time::Duration;

use millrace::call::Serve;
use millrace::rdma::ExposureLimits;
use millrace_mempool::Class;
use millrace_reactor::fabric::loopback::Network;
use millrace_reactor::fabric::testing::{deferring, loopback};
use millrace_reactor::fabric::{Ended, Terminate, WorkError};

use crate::support;
use crate::support::fetch::{done, fetch, segments};
use crate::support::message::{PROGRAM, Parsed, check_chunk_error, null, parse, plain, rpc, word};
use crate::support::raw::{Options, World};
use crate::support::script::{CallScript, Script};
use crate::support::served::Nfs;
use crate::support::trace::Trace;

const WINDOW: Duration = Duration::from_secs(10);

/// Replies too long for the inline limit, and what is held for each.
const LONG: usize = 5000;
const HELD: u64 = Class::Medium.size() as u64;

fn bounded(limits: ExposureLimits) -> Options {
    let mut options = Options::classic();
    options.settings.exposures = limits;
    options
}

fn scripted(options: Options) -> (World<Script>, Script) {
    let script = Script::default();
    script.plan(CallScript::of_length(LONG));
    (World::new(script.clone(), options), script)
}

fn call(xid: u32) -> Vec<u8> {
    plain(&rpc(xid, PROGRAM, &[]))
}

/// Calls and is answered by a read list.
#[track_caller]
fn exposed(world: &mut World<Script>, client: usize, xid: u32) -> Parsed {
    let reply = parse(&world.exchange(client, &call(xid)));
    assert!(reply.reads > 0);
    reply
}

/// The XIDs of the answers that came meanwhile, errors left out, and of the errors.
fn answers(world: &mut World<impl Serve>, client: usize) -> (Vec<u32>, Vec<u32>) {
    let received = world.received(client);
    let (errors, replies): (Vec<_>, Vec<_>) = received
        .into_iter()
        .partition(|message| word(message, 3) == 4);
    let xid = |message: &Vec<u8>| word(message, 0);
    (
        replies.iter().map(xid).collect(),
        errors.iter().map(xid).collect(),
    )
}

#[test]
fn rr1_done_10_at_the_windows_end_the_memory_is_free() {
    for deferred in [false, true] {
        let _network = deferred.then(deferring);
        let (mut world, _) = scripted(Options::classic());
        world.connect();
        exposed(&mut world, 0, 1);
        world.send(0, &done(1));
        let before = world.in_use();
        // Each has its own window, which begins when it is sent.
        exposed(&mut world, 0, 2);
        world.pass(WINDOW / 2);
        exposed(&mut world, 0, 3);
        world.pass(WINDOW / 2 - Duration::from_millis(1));
        assert_eq!(world.connections()[0].compat.awaited_dones(), 2);
        world.pass(Duration::from_millis(2));
        assert_eq!(world.connections()[0].compat.awaited_dones(), 1);
        world.pass(WINDOW / 2);
        assert_eq!(world.connections()[0].compat.awaited_dones(), 0);
        assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
        // Receives are kept for RDMA_DONE messages that come late.
        assert!(world.in_use() <= before + 2);
        assert_eq!(world.shared.counters.exposures_expired.get(), 2);
        assert!(world.is_open(0), "on_window_end: free");
        world.check_clean();
    }
}

#[test]
fn rr1_done_10_a_reactor_that_sleeps_wakes_at_the_windows_end() {
    let (mut world, _) = scripted(Options::classic());
    world.connect();
    let begin = world.now;
    exposed(&mut world, 0, 1);
    while world.connections()[0].compat.awaited_dones() > 0 {
        world.sleep();
    }
    let slept = world.now - begin;
    assert!(slept >= WINDOW && slept < WINDOW + Duration::from_millis(10));
    world.check_clean();
}

#[test]
fn rr1_done_10_or_the_connection_is_closed() {
    let (mut world, _) = scripted(bounded(ExposureLimits {
        close: true,
        ..ExposureLimits::default()
    }));
    let other = (world.connect(), world.connect()).1;
    exposed(&mut world, 0, 1);
    exposed(&mut world, other, 2);
    world.send(other, &done(2));
    world.pass(WINDOW + Duration::from_millis(1));
    assert!(!world.is_open(0));
    assert!(world.is_open(other));
    assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
    exposed(&mut world, other, 3);
    world.check_clean();
}

#[test]
fn rr1_done_11_a_late_read_ends_that_connection_only() {
    let (mut world, _) = scripted(Options::classic());
    let other = (world.connect(), world.connect()).1;
    let late = exposed(&mut world, 0, 1);
    world.pass(WINDOW - Duration::from_millis(1));
    let unharmed = exposed(&mut world, other, 1);
    world.pass(Duration::from_millis(2));
    assert!(world.is_open(0));
    assert_eq!(
        world.fetch(0, segments(&late)),
        Err(WorkError::RemoteAccess)
    );
    // RDMAP, remote protection error, invalid steering tag (RFC 5040 section 4.8).
    let refused = Terminate {
        layer: 0,
        kind: 1,
        code: 0,
    };
    assert_eq!(
        world.clients[0].ended,
        Some(Ended::TerminateReceived(refused))
    );
    assert_eq!(
        fetch(&mut world, other, &unharmed).unwrap(),
        Script::reply(1, LONG)
    );
    assert!(world.is_open(other));
    world.check_clean();
}

#[test]
fn rr1_done_12_many_clients_without_done_leave_the_others_alone() {
    let limits = ExposureLimits {
        // All come from one address here.
        client: u32::MAX,
        total: 40,
        bytes: 30 * HELD,
        ..ExposureLimits::default()
    };
    let mut options = bounded(limits);
    options.pool = 64 << 20;
    let mut nfs = Nfs::with(options);
    let content = vec![7; 30_000];
    let file = nfs.file(b"f", &content);
    for number in 0..200 {
        nfs.create(format!("a file of a name that is not short {number:03}").as_bytes());
    }
    let root = nfs.root;
    let listing = move |xid| {
        let arguments = [
            support::message::encoded(&root),
            support::message::words(&[0, 0, 0, 0, 30_000]),
        ];
        plain(&rpc(xid, (100_003, 3, 16), &arguments.concat()))
    };
    let before = nfs.world.in_use();
    let stated = support::raw::Stated {
        receives: 8,
        ..Default::default()
    };
    let greedy: Vec<usize> = (0..100).map(|_| nfs.world.connect_with(stated)).collect();
    let (mut replies, mut errors) = (0, 0);
    for round in 0..3 {
        for &client in &greedy {
            nfs.world.send(client, &listing(round));
        }
        for &client in &greedy {
            let (got, refused) = answers(&mut nfs.world, client);
            replies += got.len();
            errors += refused.len();
        }
        // Whatever they hold, the first client reads and writes.
        assert_eq!(nfs.content(file), content);
        let (held, bytes, _) = nfs.world.shared.exposed.budget().now();
        assert!(held <= 30 && bytes <= 30 * HELD);
    }
    assert_eq!(replies, 30, "as many as the bytes allow");
    assert!(errors >= 70, "the others were told at once");
    let pending = nfs.world.connections().len() as u64;
    assert!(nfs.world.in_use() - before <= 30 + 64 * pending);
    // Those that wait for their own exposures are answered at the latest after two windows, and
    // memory comes back without any of them doing anything.
    nfs.world.pass(WINDOW + Duration::from_millis(1));
    nfs.world.pass(WINDOW + Duration::from_millis(1));
    for &client in &greedy {
        let (got, refused) = answers(&mut nfs.world, client);
        replies += got.len();
        errors += refused.len();
    }
    assert_eq!(replies + errors, 300);
    nfs.world.pass(WINDOW + Duration::from_millis(1));
    assert_eq!(nfs.world.shared.exposed.budget().now(), (0, 0, 0));
    assert_eq!(nfs.world.calls(), 0);
    nfs.world.check_clean();
}

#[test]
fn rr1_done_12_one_address_and_all_of_them_have_bounds() {
    let (mut world, _) = scripted(bounded(ExposureLimits {
        connection: 2,
        client: 3,
        ..ExposureLimits::default()
    }));
    for _ in 0..3 {
        world.connect();
    }
    for (client, xid) in [(0, 1), (0, 2), (1, 3)] {
        exposed(&mut world, client, xid);
    }
    // A connection without exposures has nothing to wait for.
    check_chunk_error(&world.exchange(2, &call(4)), 4);
    world.send(0, &done(1));
    exposed(&mut world, 2, 5);
    // The third of its connection would pass the client's bound, even if one ends elsewhere.
    world.send(1, &call(6));
    assert_eq!(answers(&mut world, 1), (vec![], vec![]));
    world.send(1, &done(3));
    assert_eq!(answers(&mut world, 1), (vec![6], vec![]));
    assert_eq!(world.shared.counters.exposures_refused.get(), 1);
    assert_eq!(world.shared.counters.exposure_waits.get(), 1);
    world.check_clean();
}

#[test]
fn replies_beyond_the_bound_wait_in_order_and_not_for_ever() {
    let (mut world, script) = scripted(bounded(ExposureLimits {
        connection: 2,
        ..ExposureLimits::default()
    }));
    world.connect();
    for xid in 1..=8 {
        world.send(0, &call(xid));
    }
    assert_eq!(answers(&mut world, 0), (vec![1, 2], vec![]));
    // RDMA_DONE lets the oldest go on, one each, and so does a window.
    world.send(0, &done(2));
    assert_eq!(answers(&mut world, 0), (vec![3], vec![]));
    world.send(0, &done(2));
    assert_eq!(answers(&mut world, 0), (vec![], vec![]));
    world.pass(WINDOW / 2);
    world.send(0, &done(3));
    assert_eq!(answers(&mut world, 0), (vec![4], vec![]));
    // The window of the first ends what they waited for; a reply that has waited for a window by
    // then is not begun any more.
    world.pass(WINDOW / 2 + Duration::from_millis(1));
    let (replies, errors) = answers(&mut world, 0);
    assert_eq!((replies, errors), (vec![5], vec![6, 7, 8]));
    // An ordinary reply never waits.
    script.plan(CallScript::default());
    assert!(parse(&world.exchange(0, &plain(&null(9)))).inline);
    world.check_clean();
}

#[test]
fn a_reply_that_comes_with_the_done_of_the_last_one_gets_in_line() {
    let (mut world, _) = scripted(bounded(ExposureLimits {
        connection: 1,
        ..ExposureLimits::default()
    }));
    world.connect();
    exposed(&mut world, 0, 1);
    world.send(0, &call(2));
    assert_eq!(world.calls(), 1, "it waits");
    // The one in line has not taken its place yet when the next reply is ready.
    world.post(0, &done(1));
    world.post(0, &call(3));
    world.settle();
    assert_eq!(answers(&mut world, 0), (vec![2], vec![]));
    world.send(0, &done(2));
    assert_eq!(answers(&mut world, 0), (vec![3], vec![]));
}

#[test]
fn a_reply_whose_last_key_has_no_room_holds_nothing_while_it_waits() {
    let mut nfs = Nfs::with(Options {
        exposures: 3,
        ..Options::classic()
    });
    // In so many pieces that it takes two keys.
    let length = 5 << 12;
    let file = nfs.file(b"f", &vec![7; length]);
    let budget = |nfs: &Nfs| nfs.world.shared.exposed.budget().now();
    let read = plain(&nfs.read_message(file, length as u32));
    let first = parse(&nfs.world.exchange(0, &read));
    assert_eq!((first.reads, budget(&nfs)), (2, (1, length as u64, 1)));
    let read = plain(&nfs.read_message(file, length as u32));
    nfs.world.send(0, &read);
    assert!(nfs.world.received(0).is_empty());
    assert_eq!(budget(&nfs), (1, length as u64, 1));
    let second = parse(&nfs.world.exchange(0, &done(first.xid)));
    assert_eq!((second.reads, budget(&nfs)), (2, (1, length as u64, 1)));
    nfs.world.send(0, &done(second.xid));
    assert_eq!(budget(&nfs), (0, 0, 0));
    nfs.world.check_clean();
}

#[test]
fn replies_that_wait_end_with_their_connection() {
    let (mut world, _) = scripted(bounded(ExposureLimits {
        connection: 1,
        ..ExposureLimits::default()
    }));
    world.connect();
    for xid in 1..=5 {
        world.send(0, &call(xid));
    }
    assert_eq!(world.calls(), 4);
    world.abort(0);
    world.settle();
    assert_eq!(world.calls(), 0);
    world.check_clean();
}

#[test]
fn old_12_done_may_come_late_or_in_bursts() {
    let (mut world, script) = scripted(Options::classic());
    world.connect();
    for xid in 1..=8 {
        exposed(&mut world, 0, xid);
        world.pass(Duration::from_secs(1));
    }
    // All at once, while as many calls as were granted are under way.
    for xid in 1..=8 {
        world.post(0, &done(xid));
    }
    world.settle();
    assert!(world.is_open(0));
    assert_eq!(world.connections()[0].compat.awaited_dones(), 0);
    // After the window, which is settable: nothing is awaited, and nothing breaks.
    for xid in 11..=18 {
        exposed(&mut world, 0, xid);
    }
    world.pass(WINDOW + Duration::from_millis(1));
    assert_eq!(world.shared.counters.exposures_expired.get(), 8);
    let reply = exposed(&mut world, 0, 19);
    script.plan(CallScript::default());
    for xid in 0..reply.credits {
        world.post(0, &plain(&null(100 + xid)));
    }
    for xid in 11..=18 {
        world.post(0, &done(xid));
    }
    world.settle();
    assert!(world.is_open(0));
    assert_eq!(world.received(0).len(), reply.credits as usize);
    assert_eq!(world.shared.counters.dones_stray.get(), 8);
    world.check_clean();
}

#[test]
fn rr1_done_10_a_late_done_takes_back_the_receive_that_is_kept_for_it() {
    let (mut world, _) = scripted(Options::classic());
    world.connect();
    let kept = |world: &World<Script>| world.connections()[0].compat.receives();
    for xid in 1..=2 {
        exposed(&mut world, 0, xid);
    }
    assert_eq!(kept(&world), 2);
    world.pass(WINDOW + Duration::from_millis(1));
    assert_eq!(world.connections()[0].compat.awaited_dones(), 0);
    assert_eq!(kept(&world), 2, "they may come late");
    for left in [1, 0, 0] {
        world.send(0, &done(1));
        assert_eq!(kept(&world), left);
    }
    world.check_clean();
}

#[test]
fn rr1_done_10_receives_for_late_dones_are_as_many_as_may_be_exposed_and_no_more() {
    let (mut world, _) = scripted(Options::classic());
    world.connect();
    let most = ExposureLimits::default().connection;
    for round in 1..=3 {
        for xid in 0..most / 2 {
            exposed(&mut world, 0, round * most + xid);
        }
        world.pass(WINDOW + Duration::from_millis(1));
        let compat = &world.connections()[0].compat;
        assert_eq!(compat.exposed_replies(), 0);
        assert_eq!(compat.receives(), most.min(round * most / 2));
    }
    world.check_clean();
}

#[test]
fn rr1_cred_16_a_done_always_finds_a_receive() {
    let (mut world, script) = scripted(Options::classic());
    world.connect();
    let mut granted = 0;
    for xid in 1..=10 {
        granted = exposed(&mut world, 0, xid).credits;
    }
    // All calls that were granted are under way, and their receives with them.
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    for xid in 0..granted {
        world.post(0, &call(100 + xid));
    }
    world.settle();
    assert_eq!(script.held(), granted as usize);
    for xid in 1..=10 {
        world.post(0, &done(xid));
    }
    world.settle();
    assert!(world.is_open(0), "no Send was without a receive");
    assert_eq!(world.connections()[0].compat.awaited_dones(), 0);
    script.release(granted as usize);
    world.settle();
    assert_eq!(world.received(0).len(), granted as usize);
    world.check_clean();
}

#[test]
fn rr1_cred_17_the_receive_of_a_done_is_posted_again_before_other_work() {
    let mut options = Options::classic();
    options.pool = 64 << 20;
    let (mut world, script) = scripted(options);
    let stated = support::raw::Stated {
        receives: 40,
        ..Default::default()
    };
    let clients: Vec<usize> = (0..100).map(|_| world.connect_with(stated)).collect();
    exposed(&mut world, 0, 1);
    // More calls than are served side by side for one client: later ones wait for one of those to
    // end.
    script.plan(CallScript::default());
    let mut granted = Vec::new();
    for &client in &clients {
        granted.push(parse(&world.exchange(client, &call(9))).credits);
    }
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    for (&client, &credits) in clients.iter().zip(&granted).rev() {
        for xid in 0..credits {
            world.post(client, &call(100 + xid));
        }
        world.settle();
    }
    let posted = granted.iter().sum::<u32>() as usize;
    assert_eq!((script.held(), world.calls()), (512, 512));
    assert!(posted > 1100);
    world.trace();
    world.send(0, &done(1));
    assert_eq!(
        world.trace(),
        [Trace::Received, Trace::PostReceive, Trace::Revoke(true)]
    );
    while script.held() > 0 {
        script.release(script.held());
        world.settle();
    }
    world.check_clean();
}

#[test]
fn old_11_a_client_that_counts_done_differently_by_one_is_borne() {
    let (mut world, script) = scripted(Options::classic());
    world.connect();
    let granted = exposed(&mut world, 0, 1).credits;
    script.plan(CallScript {
        hold: true,
        ..CallScript::default()
    });
    // The grant, one more, and RDMA_DONE.
    for xid in 0..=granted {
        world.post(0, &call(100 + xid));
    }
    world.post(0, &done(1));
    world.settle();
    assert!(world.is_open(0));
    script.release(granted as usize + 1);
    world.settle();
    assert_eq!(world.received(0).len(), granted as usize + 1);
    world.check_clean();
}

/// Two replies over a network this slow, on a send queue that holds one of them.
fn two_over(network: &Network, latency: Duration) -> World<Script> {
    let mut options = Options::classic();
    options.send_depth = 1;
    let (mut world, script) = scripted(options);
    world.connect();
    script.plan(CallScript::default());
    parse(&world.exchange(0, &call(1)));
    script.plan(CallScript {
        length: LONG,
        hold: true,
        ..CallScript::default()
    });
    for xid in [2, 3] {
        world.send(0, &call(xid));
    }
    network.set_latency(latency);
    script.release(2);
    world.settle();
    let compat = &world.connections()[0].compat;
    assert_eq!((compat.exposed_replies(), compat.awaited_dones()), (2, 1));
    world
}

#[test]
fn rr1_done_10_the_window_begins_when_the_reply_can_leave() {
    let network = loopback();
    let mut world = two_over(&network, WINDOW * 6 / 10);
    world.pass(WINDOW * 6 / 10);
    world.pass(WINDOW * 5 / 10);
    let state = |world: &World<Script>| {
        let compat = &world.connections()[0].compat;
        (compat.exposed_replies(), compat.awaited_dones())
    };
    assert_eq!(
        state(&world),
        (1, 0),
        "the first is over, the second has not left"
    );
    world.pass(WINDOW * 2 / 10);
    assert_eq!(state(&world), (1, 1), "sent");
    world.pass(WINDOW * 8 / 10);
    assert_eq!(state(&world), (1, 1), "its window is not over");
    world.pass(WINDOW * 3 / 10);
    assert_eq!(state(&world), (0, 0));
    assert!(world.is_open(0));
    network.set_latency(Duration::ZERO);
    world.pass(WINDOW);
    world.check_clean();
}

#[test]
fn rr1_done_07_done_for_a_reply_that_has_not_left_changes_nothing() {
    let network = loopback();
    let latency = WINDOW * 6 / 10;
    let mut world = two_over(&network, latency);
    world.send(0, &done(3));
    world.pass(latency);
    assert_eq!(world.shared.counters.dones_stray.get(), 1);
    let compat = &world.connections()[0].compat;
    assert_eq!((compat.exposed_replies(), compat.awaited_dones()), (2, 1));
    // The second leaves when the first has arrived and that is known here.
    world.pass(WINDOW * 7 / 10);
    world.pass(latency);
    network.set_latency(Duration::ZERO);
    assert_eq!(parse(world.received(0).last().unwrap()).xid, 3);
    let compat = &world.connections()[0].compat;
    assert_eq!((compat.exposed_replies(), compat.awaited_dones()), (1, 1));
    world.pass(WINDOW * 2);
    world.check_clean();
}

#[test]
fn rr1_done_10_a_client_that_takes_no_replies_holds_no_memory_for_ever() {
    let network = loopback();
    let mut world = two_over(&network, WINDOW * 100);
    world.pass(WINDOW + Duration::from_millis(1));
    assert_eq!(world.connections().len(), 1);
    world.pass(WINDOW + Duration::from_millis(1));
    assert_eq!(world.connections().len(), 0);
    assert_eq!(world.shared.exposed.budget().now(), (0, 0, 0));
    network.set_latency(Duration::ZERO);
    world.pass(WINDOW * 100);
    world.check_clean();
}
