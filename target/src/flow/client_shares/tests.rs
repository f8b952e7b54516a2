use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use millrace_mempool::{HugepagePolicy, MemoryAccount, PoolConfig, Registry};

use super::super::ClientLimit;
use super::super::rate::Rates;
use super::*;
use crate::export_counters::ExportCall;

const SECOND: Duration = Duration::from_secs(1);

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn pool() -> Pool {
    let registry = Registry::new(HugepagePolicy::Off);
    Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap()
}

fn flow() -> Flow {
    Flow::of_one_reactor(&pool(), Class::Control, &Clock::new(Instant::now()))
}

/// Two reactors of one process, with equal pools.
fn flows() -> [Flow; 2] {
    let (clients, clock) = (ClientTable::new(2), Clock::new(Instant::now()));
    [0, 1].map(|reactor| Flow::new(&clients, reactor, &pool(), Class::Control, &clock))
}

/// Receives that clients may hold together.
fn budget(flow: &Flow) -> u32 {
    let all = flow.pool().attainable(Class::Control) / RECEIVES_PART;
    u32::try_from(all).unwrap()
}

fn pass_time(flow: &Flow, time: Duration) {
    flow.clock().turn(flow.clock().now() + time);
}

fn rates(iops: Option<u64>) -> Rates {
    Rates {
        iops,
        bandwidth: None,
    }
}

fn limit_clients(flow: &Flow, iops: Option<u64>) {
    let limit = ClientLimit {
        networks: vec!["10.0.0.0/8".parse().unwrap()],
        rates: rates(iops),
    };
    flow.clients().set_limits(&[limit], [], flow.clock().now());
    flow.limits_changed();
}

fn limit_export(flow: &Flow, export: ExportId, iops: Option<u64>) {
    let limits = [(export, rates(iops))];
    flow.clients().set_limits(&[], limits, flow.clock().now());
    flow.limits_changed();
}

#[test]
fn a_client_has_the_class_of_the_first_entry_and_counts_of_a_class_that_stays_go_on() {
    let flow = flow();
    let entry = |networks: &[&str]| ClientLimit {
        networks: networks.iter().map(|one| one.parse().unwrap()).collect(),
        rates: rates(Some(1 << 20)),
    };
    let limit = |entries: &[ClientLimit]| {
        flow.clients().set_limits(entries, [], flow.clock().now());
        flow.limits_changed();
    };
    let (wide, narrow) = ("10.0.0.0/8,fd00::/8", "10.1.0.0/16");
    let wide_entry = entry(&["10.0.0.0/8", "fd00::/8"]);
    limit(&[entry(&[narrow]), wide_entry.clone()]);
    let addresses = ["10.1.0.9", "10.2.0.9", "::ffff:10.2.0.8", "192.0.2.1"];
    let clients = addresses.map(|address| flow.client(address.parse().unwrap()));
    let answer = || {
        for client in &clients {
            client.class().of(ExportCall::Read).observe(1);
        }
    };
    let count = |class: &str| {
        let histograms = flow.classes().get(class);
        histograms.map(|of| of.of(ExportCall::Read).snapshot().count())
    };
    answer();
    let all = || [narrow, wide, "other"].map(count);
    assert_eq!(all(), [Some(1), Some(2), Some(1)]);
    // The first entry goes: its client is one of the second. An entry that stays goes on counting,
    // at another position too.
    let other = entry(&["192.0.2.0/24"]);
    limit(&[other, wide_entry]);
    let in_force: Vec<String> = flow
        .clients()
        .classes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(in_force, [wide, "192.0.2.0/24", "other"]);
    answer();
    assert_eq!(all(), [Some(1), Some(5), Some(1)]);
    assert_eq!(count("192.0.2.0/24"), Some(1));
    // One that returns goes on, too.
    limit(&[entry(&[narrow])]);
    answer();
    assert_eq!(all(), [Some(2), Some(5), Some(4)]);
}

type PendingCall = Pin<Box<dyn Future<Output = Result<(), Broken>>>>;

/// A call that has to pass the limits.
fn call(flow: &Flow, client: &Rc<ClientShare>, export: ExportId, bytes: u64) -> PendingCall {
    let (flow, client) = (flow.clone(), Rc::clone(client));
    Box::pin(async move { flow.pass(&client, Some(export), bytes, || false).await })
}

fn has_passed(call: &mut PendingCall) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(call.as_mut().poll(&mut context), Poll::Ready(Ok(())))
}

/// Calls until one has to wait.
fn first_that_waits(flow: &Flow, client: &Rc<ClientShare>, export: ExportId) -> PendingCall {
    for _ in 0..100 {
        let mut one = call(flow, client, export, 0);
        if !has_passed(&mut one) {
            return one;
        }
    }
    panic!("there is no limit");
}

#[test]
fn a_share_has_room_for_the_first_receives_of_every_connection() {
    let flow = flow();
    // Another client holds all but the first receives of three connections.
    let other = flow.join(address(2)).unwrap();
    other.note_held(0, budget(&flow) - 3 * FIRST_RECEIVES);
    let client = flow.join(address(1)).unwrap();
    assert!(flow.join(address(1)).is_some());
    assert!(flow.join(address(1)).is_some());
    assert!(flow.join(address(1)).is_none(), "the share is used");
    assert_eq!(flow.counters().turned_away.get(), 1);
    flow.leave(&client);
    assert!(flow.join(address(1)).is_some());
}

#[test]
fn whoever_is_by_tcp_has_a_part_until_it_leaves() {
    let flow = flow();
    let part = || {
        flow.recount();
        flow.tcp_part(90)
    };
    let connections = || {
        let present = flow.clients().usage().present;
        present.iter().map(|one| one.connections).sum::<u64>()
    };
    assert_eq!(part(), 90);
    let first = flow.join_tcp(address(1));
    let second = flow.join_tcp(address(2));
    assert_eq!((part(), connections()), (30, 2), "one part is reserved");
    assert_eq!(flow.tcp_part(2), 1, "nobody is without");
    flow.leave_tcp(&second);
    assert_eq!((part(), connections()), (45, 1));
    flow.leave_tcp(&first);
    assert_eq!((part(), connections()), (90, 0));
}

#[test]
fn a_client_that_calls_by_tcp_again_has_its_part_at_once() {
    let flow = flow();
    let (first, second) = (flow.join_tcp(address(1)), flow.join_tcp(address(2)));
    pass_time(&flow, 2 * SECOND);
    flow.called_by_tcp(&first);
    flow.recount();
    assert_eq!(flow.tcp_part(90), 45, "the other one is idle");
    flow.called_by_tcp(&second);
    flow.recount();
    assert_eq!(flow.tcp_part(90), 30);
}

#[test]
fn a_client_that_calls_by_rdma_again_has_its_part_at_once() {
    let flow = flow();
    let [first, second] = [1, 2].map(|last| flow.join(address(last)).unwrap());
    pass_time(&flow, 2 * SECOND);
    let sharers = |client: &ClientShare| {
        flow.called(client);
        flow.recount();
        flow.inner.sharers[TransportKind::Rdma as usize].get()
    };
    assert_eq!(sharers(&first), 1, "the other one is idle");
    assert_eq!(sharers(&second), 2);
}

#[test]
fn the_most_calls_in_service_at_once_are_published() {
    let flow = flow();
    let client = flow.join(address(1)).unwrap();
    for _ in 0..3 {
        // Each in a turn of its own.
        pass_time(&flow, SECOND / 1000);
        flow.called(&client);
    }
    for _ in 0..3 {
        flow.ended(&client);
    }
    flow.publish_peak();
    assert_eq!(flow.counters().used_peak.get(), 3);
    assert_eq!(flow.counters().used.get(), 0);
}

#[test]
fn only_a_rate_is_a_limit() {
    let flow = flow();
    let export = ExportId::of("/export");
    let limits = || (flow.has_limits(), flow.has_limited_exports());
    assert_eq!(limits(), (false, false));
    limit_clients(&flow, None);
    assert_eq!(limits(), (false, false), "an entry without rates");
    limit_clients(&flow, Some(1));
    assert_eq!(limits(), (true, false));
    limit_export(&flow, export, Some(1));
    assert_eq!(limits(), (true, true));
    limit_export(&flow, export, None);
    assert_eq!(limits(), (false, false));
}

#[test]
fn calls_of_clients_without_a_limit_wait_for_limits_of_exports_only() {
    let flow = flow();
    let export = ExportId::of("/export");
    let (limited, other) = (
        flow.client(address(1)),
        flow.client("192.0.2.1".parse().unwrap()),
    );
    let may_wait = || [&limited, &other].map(|client| flow.may_wait(client));
    assert_eq!(may_wait(), [false, false]);
    limit_clients(&flow, Some(1));
    assert_eq!(may_wait(), [true, false]);
    limit_export(&flow, export, Some(1));
    assert_eq!(may_wait(), [true, true]);
    limit_export(&flow, export, None);
    assert_eq!(may_wait(), [false, false]);
}

#[test]
fn calls_are_counted_while_they_wait_and_their_time_is_their_clients() {
    let flow = flow();
    let (export, other) = (ExportId::of("/export"), ExportId::of("/other"));
    limit_export(&flow, export, Some(1));
    let (client, idle) = (flow.client(address(1)), flow.client(address(2)));
    let waiting = || {
        let clients = flow.clients();
        let of = |export| clients.export_waiting(export);
        (flow.waiting(), of(export), of(other))
    };
    let mut calls: Vec<_> = (0..2)
        .map(|_| first_that_waits(&flow, &client, export))
        .collect();
    assert_eq!(waiting(), (vec![(address(1), 2)], 2, 0));
    pass_time(&flow, 5 * SECOND);
    assert!(calls.iter_mut().all(has_passed));
    assert_eq!(waiting(), (Vec::new(), 0, 0));
    let usage = flow.clients().usage().present;
    let throttled: Vec<_> = usage.iter().map(|one| one.totals.throttled).collect();
    assert_eq!(throttled, [10 * SECOND, Duration::ZERO]);
    drop(idle);
}

#[test]
fn no_call_passes_those_that_wait_when_a_limit_changes() {
    for (changed, kept) in [(Some(1000), 1), (None, 0)] {
        for bytes in [0, 4096] {
            let flow = flow();
            let export = ExportId::of("/export");
            let client = flow.client(address(1));
            let gates = || flow.inner.exports.borrow().len();
            limit_export(&flow, export, Some(1));
            assert!(has_passed(&mut call(&flow, &client, export, bytes)));
            let mut first = call(&flow, &client, export, bytes);
            assert!(!has_passed(&mut first));
            limit_export(&flow, export, changed);
            assert_eq!(gates(), 1, "calls wait there");
            let mut second = call(&flow, &client, export, bytes);
            assert!(!has_passed(&mut second), "the first still waits");
            assert!(has_passed(&mut first));
            pass_time(&flow, SECOND);
            assert!(has_passed(&mut second));
            flow.limits_changed();
            assert_eq!(gates(), kept, "only with a limit");
        }
    }
}

#[test]
fn the_window_of_a_limit_is_shared_by_whoever_waits_there() {
    // 1000 calls in a second are 10 in the time for which calls should wait.
    let export = ExportId::of("/export");
    let of_one = flow();
    let first = of_one.join(address(1)).unwrap();
    limit_export(&of_one, export, Some(1000));
    let alone = first_that_waits(&of_one, &first, export);
    assert_eq!(first.window(), Some((10, Cause::ExportLimit)));
    let second = of_one.join(address(2)).unwrap();
    let other = first_that_waits(&of_one, &second, export);
    assert_eq!(
        second.window(),
        Some((5, Cause::ExportLimit)),
        "two clients"
    );
    drop((alone, other));
    assert_eq!(second.window(), None);

    let flows = flows();
    let shares = flows.each_ref().map(|flow| flow.join(address(1)).unwrap());
    limit_clients(&flows[0], Some(1000));
    let waits = first_that_waits(&flows[1], &shares[1], export);
    let window = shares[1].window();
    assert_eq!(window, Some((5, Cause::ClientLimit)), "two reactors");
    drop(waits);
}

#[test]
fn a_client_on_several_reactors_has_less_of_each_from_the_moment_it_comes() {
    let [one, two] = flows();
    let share = |client: &ClientShare| one.share(client);
    let client = one.join(address(1)).unwrap();
    one.note_demand(&client, 0, u32::MAX);
    assert_eq!(share(&client), budget(&one) / 2, "a part is reserved");
    let elsewhere = two.join(address(1)).unwrap();
    assert_eq!(share(&client), budget(&one) / 3);
    // Only its first connection and its last one change the shares on other reactors.
    let epoch = one.clients().epoch();
    let again = two.join(address(1)).unwrap();
    two.leave(&again);
    assert_eq!(one.clients().epoch(), epoch);
    two.leave(&elsewhere);
    assert_eq!(share(&client), budget(&one) / 2);
}

#[test]
fn receives_that_idle_clients_hold_are_not_divided() {
    let flow = flow();
    let [client, idle] = [1, 2].map(|last| flow.join(address(last)).unwrap());
    flow.note_demand(&client, 0, u32::MAX);
    idle.note_held(0, 100);
    pass_time(&flow, 2 * SECOND);
    flow.called(&client);
    assert_eq!(flow.share(&client), (budget(&flow) - 100) / 2);
}

#[test]
fn a_request_for_receives_that_goes_up_and_down_changes_no_share() {
    let flow = flow();
    let client = flow.join(address(1)).unwrap();
    assert!(client.note_demand(0, 10));
    flow.recount();
    let changes = [(10, 4), (4, 10), (10, 11)];
    let matter = changes.map(|(before, after)| client.note_demand(before, after));
    assert_eq!(matter, [false, false, true]);
}

#[test]
fn a_client_is_idle_after_a_second_and_counted_as_such_soon_after() {
    let flow = flow();
    let _client = flow.join_tcp(address(1));
    let part = || {
        flow.recount();
        flow.tcp_part(90)
    };
    pass_time(&flow, ACTIVE_FOR);
    assert_eq!(part(), 45);
    pass_time(&flow, Duration::from_nanos(1));
    assert_eq!(part(), 45, "clients were counted a moment ago");
    pass_time(&flow, RECOUNT_AFTER);
    assert_eq!(part(), 90);
}

#[test]
fn clients_are_counted_that_have_rdma_connections() {
    let flow = flow();
    let counted = || {
        flow.recount();
        flow.counters().clients.get()
    };
    let [first, _second] = [1, 2].map(|last| flow.join(address(last)).unwrap());
    let _third = flow.join_tcp(address(3));
    assert_eq!(counted(), 2);
    flow.leave(&first);
    assert_eq!(counted(), 1);
}

/// Buffers of a class that the calls of a client obtain.
fn obtainable(flow: &Flow, client: &ClientShare, class: Class) -> u64 {
    let account = MemoryAccount::new(client.memory());
    let _charging = flow.charging(&account);
    let buffers: Vec<_> = std::iter::from_fn(|| flow.pool().try_obtain(class)).collect();
    buffers.len() as u64
}

#[test]
fn memory_of_calls_is_divided_among_active_clients_without_what_is_for_receives() {
    let flow = flow();
    let [client, _idle] = [1, 2].map(|last| flow.join(address(last)).unwrap());
    let all = |class| flow.pool().attainable(class);
    let obtained =
        || [Class::Control, Class::Medium].map(|class| obtainable(&flow, &client, class));
    let receives = u64::from(budget(&flow));
    let divided = [all(Class::Control) - receives, all(Class::Medium)];
    flow.called(&client);
    assert_eq!(
        obtained(),
        divided.map(|all| all / 3),
        "one part is reserved"
    );
    pass_time(&flow, 2 * SECOND);
    assert_eq!(
        obtained(),
        divided.map(|all| all / 2),
        "the other one is idle"
    );
}

#[test]
fn a_client_is_remembered_for_a_minute_and_while_anything_of_it_is_left() {
    type Left = Box<dyn std::any::Any>;
    type Leave = fn(&Flow, &Rc<ClientShare>) -> Left;
    let nothing = |_: &Flow, _: &Rc<ClientShare>| -> Left { Box::new(()) };
    let connection =
        |flow: &Flow, _: &Rc<ClientShare>| -> Left { Box::new(flow.join_tcp(address(1))) };
    let receives = |_: &Flow, client: &Rc<ClientShare>| -> Left {
        client.note_held(0, 1);
        Box::new(())
    };
    let memory = |flow: &Flow, client: &Rc<ClientShare>| -> Left {
        let account = MemoryAccount::new(client.memory());
        let _charging = flow.charging(&account);
        Box::new(flow.pool().try_obtain(Class::Medium).unwrap())
    };
    let call = |flow: &Flow, client: &Rc<ClientShare>| -> Left {
        let export = ExportId::of("/export");
        limit_export(flow, export, Some(1));
        Box::new(first_that_waits(flow, client, export))
    };
    let cases: [(Leave, bool); 5] = [
        (nothing, false),
        (connection, true),
        (receives, true),
        (memory, true),
        (call, true),
    ];
    for (at, (leave, is_kept)) in cases.into_iter().enumerate() {
        let flow = flow();
        let client = flow.client(address(1));
        let _left = leave(&flow, &client);
        let is_known = || {
            flow.recount();
            flow.inner.shares.borrow().contains_key(&address(1))
        };
        let moment = Duration::from_nanos(1);
        pass_time(&flow, REMEMBERED_FOR - moment);
        assert!(is_known(), "case {at}");
        pass_time(&flow, moment);
        // Clients are counted again.
        flow.inner.stale.set(true);
        assert_eq!(is_known(), is_kept, "case {at}");
    }
}
