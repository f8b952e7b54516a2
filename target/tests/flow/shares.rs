//! What each client gets of a reactor, whatever others do.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use millrace::flow::Cause;
use millrace::rdma::Settings;
use millrace_mempool::Class;
use millrace_reactor::fabric::testing::loopback;
use millrace_wire::rpcrdma::CallChunks;

use crate::support::message::{PROGRAM, is_chunk_error, long, reads, rpc, wishing, word};
use crate::support::raw::{Options, Stated, World};
use crate::support::script::{CallScript, Script};

const MOST: u32 = 4096;

fn greedy() -> Options {
    Options {
        pool: 8 << 20,
        settings: Settings::new(4096, MOST, 1 << 20, true),
        ..Options::default()
    }
}

fn at(host: u8, receives: usize) -> Stated {
    Stated {
        source: Ipv4Addr::new(10, 0, 0, host),
        receives,
        ..Stated::default()
    }
}

fn world(options: Options) -> (World<Script>, Script) {
    let script = Script::default();
    (World::new(script.clone(), options), script)
}

/// Calls and gets the credits of the reply.
#[track_caller]
fn credits(world: &mut World<Script>, client: usize, wish: u32) -> u32 {
    word(&world.exchange(client, &wishing(1, wish)), 2)
}

/// Calls by each client in turn, often enough that receives beyond a lower grant, one of which goes
/// with each reply, are gone; the grants are then the same from call to call.
#[track_caller]
fn settled(world: &mut World<Script>, clients: &[usize], wish: u32) -> Vec<u32> {
    let mut last = Vec::new();
    for round in 0..400 {
        let now: Vec<u32> = clients
            .iter()
            .map(|&client| credits(world, client, wish))
            .collect();
        world.pass(Duration::from_millis(2));
        if round > 350 {
            assert!(last.iter().zip(&now).all(|(&one, &other)| near(one, other)));
        }
        last = now;
    }
    last
}

fn near(one: u32, other: u32) -> bool {
    one.abs_diff(other) <= one.max(other) / 10 + 2
}

#[test]
fn shares_shrink_as_clients_come_and_grow_back_as_they_leave() {
    let (mut world, _) = world(greedy());
    let first = world.connect_with(at(1, 4));
    let alone = settled(&mut world, &[first], MOST)[0];
    let total = u32::try_from(world.shared.pool.attainable(Class::Control)).unwrap();
    assert!(
        near(alone, total / 4),
        "half of what receives may take: {alone} of {total}"
    );
    let mut clients = vec![first];
    for host in 2..=6 {
        let newcomer = world.connect_with(at(host, 4));
        assert!(world.is_open(newcomer));
        // There is something for it at once, although the others hold their shares yet.
        assert!(credits(&mut world, newcomer, MOST) >= total / 4 / 64);
        clients.push(newcomer);
        let grants = settled(&mut world, &clients, MOST);
        let fair = total / 2 / (clients.len() as u32 + 1);
        assert!(
            grants.iter().all(|&grant| near(grant, fair)),
            "{grants:?}: {fair}"
        );
    }
    for gone in (1..6).rev() {
        world.abort(clients[gone]);
        world.settle();
        clients.truncate(gone);
        let grants = settled(&mut world, &clients, MOST);
        let fair = total / 2 / (clients.len() as u32 + 1);
        assert!(
            grants.iter().all(|&grant| near(grant, fair)),
            "{grants:?}: {fair}"
        );
    }
    world.check_clean();
}

#[test]
fn a_share_is_of_a_client_however_many_connections_it_has() {
    let (mut world, _) = world(greedy());
    let one = world.connect_with(at(1, 4));
    let many: Vec<usize> = (0..8).map(|_| world.connect_with(at(2, 4))).collect();
    let all: Vec<usize> = many.iter().copied().chain([one]).collect();
    let grants = settled(&mut world, &all, MOST);
    let sum: u32 = grants[..8].iter().sum();
    assert!(near(sum, grants[8]), "{grants:?}");
    assert!(grants[..8].iter().all(|&grant| near(grant, grants[0])));
    world.check_clean();
}

#[test]
fn who_wishes_for_little_leaves_the_rest_to_others() {
    let (mut world, _) = world(greedy());
    let modest = [1, 2, 3].map(|host| world.connect_with(at(host, 4)));
    let big = world.connect_with(at(4, 4));
    for client in modest {
        assert_eq!(credits(&mut world, client, 8), 8);
    }
    let total = u32::try_from(world.shared.pool.attainable(Class::Control)).unwrap();
    let grant = settled(&mut world, &[big], MOST)[0];
    assert!(near(grant, total / 4), "{grant} of {total}");
    for client in modest {
        assert_eq!(credits(&mut world, client, 8), 8);
    }
    world.check_clean();
}

#[test]
fn clients_that_are_idle_leave_their_shares_to_others_until_they_call_again() {
    let (mut world, _) = world(greedy());
    let busy = world.connect_with(at(1, 4));
    let idle: Vec<usize> = (2..8).map(|host| world.connect_with(at(host, 4))).collect();
    let mut all = idle.clone();
    all.push(busy);
    let shared = settled(&mut world, &all, MOST)[6];
    // They give back what they hold beyond their wish, and are silent then.
    for &client in &idle {
        for _ in 0..200 {
            credits(&mut world, client, 1);
        }
    }
    world.pass(Duration::from_secs(2));
    let alone = settled(&mut world, &[busy], MOST)[0];
    assert!(alone > 3 * shared, "{alone} {shared}");
    let again = settled(&mut world, &all, MOST);
    assert!(
        again.iter().all(|&grant| near(grant, shared)),
        "{again:?} {shared}"
    );
    world.check_clean();
}

/// A client whose connection broke without the server noticing holds its whole share, for all that
/// the server knows.
#[test]
fn a_client_that_holds_its_share_can_connect_again() {
    let (mut world, _) = world(greedy());
    let first = world.connect_with(at(1, 4));
    let alone = settled(&mut world, &[first], MOST)[0];
    assert!(alone < MOST, "the share is held, {alone} credits");
    let second = world.connect_with(at(1, 4));
    assert!(world.is_open(second));
    assert!(credits(&mut world, second, 8) >= 1);
    let both = settled(&mut world, &[first, second], MOST);
    assert!(near(both[0] + both[1], alone), "{both:?} of {alone}");
    world.check_clean();
}

/// One client does its worst: it wishes for everything on as many connections as it gets, sends
/// long calls on all its credits, and answers none of the RDMA Reads for them.
#[test]
fn a_hostile_client_keeps_nobody_else_from_being_served() {
    let (mut world, script) = world(greedy());
    let good: Vec<usize> = (1..=3)
        .map(|host| world.connect_with(at(host, 64)))
        .collect();
    for &client in &good {
        assert_eq!(credits(&mut world, client, 16), 16);
    }
    let mut bad = Vec::new();
    loop {
        let client = world.connect_with(at(66, 4));
        if !world.is_open(client) {
            break;
        }
        bad.push(client);
    }
    assert!(bad.len() > 20, "{} connections", bad.len());
    let flow = world.shared.flow.clone();
    assert!(flow.counters().turned_away.get() > 0);
    // With the others, as many as may be.
    let newcomer = world.connect_with(at(4, 64));
    assert!(world.is_open(newcomer));
    let mut good = good;
    good.push(newcomer);

    let mut granted = Vec::new();
    for &client in &bad {
        credits(&mut world, client, u32::MAX);
        granted.push(credits(&mut world, client, u32::MAX));
    }
    for &client in &bad {
        world.clients[client].silent = true;
    }
    let mut flood = 0;
    let body = rpc(9, PROGRAM, &[5; 5000]);
    for (&client, &granted) in bad.iter().zip(&granted) {
        let source = world.source(client, &body[..1000]);
        let entries = reads(0, &[source.whole()]);
        let chunks = CallChunks {
            reads: &entries,
            ..CallChunks::default()
        };
        for xid in 0..granted {
            world.post(client, &long(xid, &chunks));
            flood += 1;
        }
    }
    world.settle();
    let medium = |world: &World<Script>| {
        let gauges = world.shared.pool.gauges();
        let class = gauges.class(Class::Medium);
        (
            class.in_use(),
            class.waiters(),
            world.shared.pool.attainable(Class::Medium),
        )
    };
    let (held, waiters, all) = medium(&world);
    assert!(held > 0 && held <= all / 4, "{held} of {all}");
    assert_eq!(
        waiters, 0,
        "what it may not hold it does not wait for among others"
    );
    assert!(flood > held, "more calls than it may have at once");
    assert!(world.calls() < 1024 / 2, "tasks are left to others");

    // The others: small calls and long ones, whole grants at once.
    script.plan(CallScript::default());
    for round in 0..5 {
        for &client in &good {
            assert!(credits(&mut world, client, 16) >= 16, "round {round}");
            let source = world.source(client, &body);
            let entries = reads(0, &[source.whole()]);
            let chunks = CallChunks {
                reads: &entries,
                ..CallChunks::default()
            };
            for _ in 0..16 {
                world.post(client, &long(9, &chunks));
            }
        }
        world.settle();
        for &client in &good {
            let replies = world.received(client);
            assert_eq!(replies.len(), 16, "round {round}");
            assert!(replies.iter().all(|reply| !is_chunk_error(reply)));
        }
        world.pass(Duration::from_secs(1));
    }
    let silent = flow.client(Ipv4Addr::new(10, 0, 0, 66).into());
    assert!(silent.held() >= bad.len() as u32, "{}", silent.held());
    // In the end the silent connections are closed, and nothing of theirs is left.
    for &client in &bad {
        assert!(world.clients[client].ended.is_none());
    }
    // Some at a time: those whose turn it was, and those whose calls waited for too long.
    for _ in 0..bad.len() {
        world.pass(Duration::from_secs(31));
    }
    assert!(flow.counters().stuck_reads.get() > 0);
    assert_eq!(world.connections().len(), good.len());
    assert_eq!((silent.held(), medium(&world).0), (0, 0));
    for &client in &good {
        assert!(world.is_open(client));
        assert_eq!(credits(&mut world, client, 16), 16);
    }
    world.check_clean();
}

#[test]
fn a_connection_whose_reads_go_on_is_not_closed_however_long_that_takes() {
    let network = loopback();
    let (mut world, script) = world(Options::default());
    let client = world.connect();
    script.plan(CallScript::default());
    let body = rpc(9, PROGRAM, &[5; 5000]);
    let source = world.source(client, &body);
    let entries = reads(0, &[source.whole()]);
    let chunks = CallChunks {
        reads: &entries,
        ..CallChunks::default()
    };
    assert_eq!(credits(&mut world, client, 8), 8);
    // An RDMA Read takes 20 seconds, and there is always one, for two minutes.
    network.set_latency(Duration::from_secs(10));
    for _ in 0..6 {
        world.post(client, &long(9, &chunks));
        for _ in 0..15 {
            world.pass(Duration::from_secs(1));
        }
    }
    for _ in 0..60 {
        world.pass(Duration::from_secs(1));
    }
    assert!(world.is_open(client));
    assert_eq!(world.received(client).len(), 6);
    network.set_latency(Duration::ZERO);
    world.check_clean();
}

#[test]
fn calls_of_many_clients_that_wait_leave_tasks_to_who_comes_next() {
    let options = Options {
        pool: 64 << 20,
        ..Options::default()
    };
    let (mut world, script) = world(options);
    let hold = CallScript {
        hold: true,
        ..CallScript::default()
    };
    // Each takes its share before the next one comes.
    for host in 1..=3 {
        script.plan(CallScript::default());
        let slow: Vec<usize> = (0..17).map(|_| world.connect_with(at(host, 33))).collect();
        for &client in &slow {
            credits(&mut world, client, 32);
        }
        script.plan(hold);
        for &client in &slow {
            let granted = world.connections()[client].credits().1;
            for xid in 0..granted {
                world.post(client, &wishing(xid, 32));
            }
            world.settle();
        }
    }
    let used = world.shared.flow.counters().used.get();
    assert!(world.calls() > 850 && used > 1024, "{used} calls");
    script.plan(CallScript::default());
    for host in [101, 102] {
        let other = world.connect_with(at(host, 40));
        for _ in 0..50 {
            credits(&mut world, other, 32);
        }
    }
    script.release(script.held());
    while script.held() > 0 || !world.is_idle() {
        script.release(script.held());
        world.settle();
    }
    world.check_clean();
}

thread_local! {
    static MOMENT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A time that passes quickly: much of what a turn may take, each time it is read.
fn quickly() -> Instant {
    let moment = MOMENT.get().unwrap_or_else(Instant::now) + Duration::from_micros(40);
    MOMENT.set(Some(moment));
    moment
}

#[test]
fn calls_that_take_long_are_served_in_several_turns_beside_another_client() {
    const CALLS: usize = 20;
    let (mut world, _) = world(Options {
        moments: Some(quickly),
        ..greedy()
    });
    let slow = world.connect_with(at(1, 64));
    let answers = |world: &mut World<Script>, client: usize| world.received(client).len();
    let begin = |world: &mut World<Script>| {
        for _ in 0..CALLS {
            world.post(slow, &wishing(1, 64));
        }
    };
    for _ in 0..4 {
        credits(&mut world, slow, 64);
    }
    // All in one turn while the client is alone.
    begin(&mut world);
    world.turn();
    assert_eq!(answers(&mut world, slow), CALLS);

    let quick = world.connect_with(at(2, 64));
    credits(&mut world, quick, 4);
    begin(&mut world);
    world.post(quick, &wishing(2, 4));
    world.turn();
    let first = answers(&mut world, slow);
    assert!((2..=10).contains(&first), "{first} in one turn");
    assert_eq!(answers(&mut world, quick), 1);
    world.post(quick, &wishing(3, 4));
    world.turn();
    assert_eq!(answers(&mut world, quick), 1, "ahead of those that wait");
    let second = answers(&mut world, slow);
    assert!((1..=6).contains(&second), "{second} in one turn");
    world.settle();
    assert_eq!(first + second + answers(&mut world, slow), CALLS);
    world.check_clean();
}

#[test]
fn calls_that_go_on_at_once_take_several_turns_and_more_beside_another_client() {
    const CALLS: usize = 40;
    let (mut world, script) = world(Options {
        moments: Some(quickly),
        ..greedy()
    });
    let slow = world.connect_with(at(1, 64));
    let answers = |world: &mut World<Script>, client: usize| world.received(client).len();
    for _ in 0..4 {
        credits(&mut world, slow, 64);
    }
    script.plan(CallScript::held());
    let begin = |world: &mut World<Script>| {
        for _ in 0..CALLS {
            world.post(slow, &wishing(1, 64));
        }
        world.settle();
    };
    begin(&mut world);
    script.release(CALLS);
    world.turn();
    let first = answers(&mut world, slow);
    assert!((20..=30).contains(&first), "{first} in one turn, alone");
    world.turn();
    assert_eq!(first + answers(&mut world, slow), CALLS);

    script.plan(CallScript::default());
    let quick = world.connect_with(at(2, 64));
    credits(&mut world, quick, 4);
    script.plan(CallScript::held());
    begin(&mut world);
    world.post(quick, &wishing(2, 4));
    world.settle();
    assert_eq!(script.held(), CALLS + 1);
    script.release(CALLS + 1);
    world.turn();
    let first = answers(&mut world, slow);
    assert!((1..=3).contains(&first), "{first} in one turn");
    assert_eq!(
        answers(&mut world, quick),
        1,
        "behind those of another client"
    );
    let counters = world.shared.flow.counters().clone();
    let before = counters.throttled(Cause::Share);
    world.now += Duration::from_millis(1);
    world.turn();
    let second = answers(&mut world, slow);
    assert!((1..=3).contains(&second), "{second} in one turn");
    let waited = counters.throttled(Cause::Share) - before;
    assert_eq!(waited, Duration::from_millis(1) * second as u32);
    world.settle();
    assert_eq!(first + second + answers(&mut world, slow), CALLS);
    world.check_clean();
}
