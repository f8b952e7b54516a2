//! Limits of clients and exports: calls and bytes in a second, changed while calls wait.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use millrace::call::{Answer, Call, NoBulk, Peer, Reply, Serve, TransportKind};
use millrace::exports::ExportId;
use millrace::flow::rate::Rates;
use millrace::flow::{Cause, ClientLimit, ClientTable, Flow};
use millrace_mempool::Class;
use millrace_reactor::Clock;
use millrace_store::memory::MemoryStore;
use millrace_wire::nfs3::{FileHandle, Procedure, ReadArguments};
use millrace_wire::rpcrdma::CallChunks;
use millrace_wire::xdr::Padding;

use crate::support;
use crate::support::message::{self, null, parse, plain, word};
use crate::support::raw::{Memory, Options, Stated, World};
use crate::support::served::Nfs;
use crate::support::{Bench, LIMITS};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

const LIMITED: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// The call, with a wish for all credits that there are.
fn wishing(mut call: Vec<u8>) -> Vec<u8> {
    call[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    call
}

/// A server with limits, a file of 256 KiB, and a connection from [`LIMITED`].
struct Metered {
    nfs: Nfs,
    clients: ClientTable,
    client: usize,
    file: FileHandle,
    sink: Memory,
}

impl Metered {
    fn new() -> Self {
        let mut nfs = Nfs::with(Options::default());
        // The programs ask the flow that the responder meters by.
        let shared = &nfs.world.shared;
        let clients = shared.flow.clients().clone();
        let _ = shared.programs.clone().with_flow(&shared.flow);
        let client = nfs.world.connect_with(Stated {
            source: LIMITED,
            ..Stated::default()
        });
        let file = nfs.file(b"f", &[7; 256 << 10]);
        let sink = nfs.world.sink(client, 256 << 10);
        for client in [0, client] {
            nfs.world.exchange(client, &wishing(plain(&null(1))));
        }
        Self {
            nfs,
            clients,
            client,
            file,
            sink,
        }
    }

    fn limit(&self, iops: Option<u64>, bandwidth: Option<u64>) {
        let limit = ClientLimit {
            networks: vec!["10.1.0.0/16".parse().unwrap()],
            rates: Rates { iops, bandwidth },
        };
        self.clients.set_limits(&[limit], [], self.nfs.world.now);
        self.nfs.world.shared.flow.limits_changed();
    }

    fn limit_export(&self, iops: Option<u64>, bandwidth: Option<u64>) {
        let export = ExportId::of("/export");
        let rates = Rates { iops, bandwidth };
        self.clients
            .set_limits(&[], [(export, rates)], self.nfs.world.now);
        self.nfs.world.shared.flow.limits_changed();
    }

    /// A READ of so many bytes.
    fn read(&mut self, client: usize, xid: u32, count: u32) {
        let arguments = ReadArguments {
            file: self.file,
            offset: 0,
            count,
        };
        let rpc = message::nfs(xid, Procedure::Read, &arguments);
        let segments = self.sink.cut(&[count]);
        let chunks = CallChunks {
            writes: &[&segments],
            ..CallChunks::default()
        };
        let call = if client == self.client {
            message::inline(&chunks, &rpc)
        } else {
            plain(&rpc)
        };
        self.nfs.world.post(client, &wishing(call));
    }

    fn getattr(&mut self, client: usize, xid: u32) {
        let call = plain(&message::nfs(xid, Procedure::Getattr, &self.file));
        self.nfs.world.post(client, &wishing(call));
    }

    /// Lets time pass in steps of a millisecond; the XIDs of what was answered.
    fn pass(&mut self, time: Duration) -> Vec<u32> {
        let mut answered = Vec::new();
        for _ in 0..time.as_millis() {
            self.nfs.world.pass(MILLISECOND);
            answered.extend(self.answered(self.client));
        }
        answered
    }

    fn answered(&mut self, client: usize) -> Vec<u32> {
        let replies = self.nfs.world.received(client);
        replies.iter().map(|reply| parse(reply).xid).collect()
    }

    /// Keeps so many calls in flight as long as credits allow; how many were answered.
    fn load(&mut self, time: Duration, bytes: u32) -> (u64, u32) {
        let world = &mut self.nfs.world;
        let (mut granted, mut in_flight, mut answered) = (32, 0_u32, 0);
        world.settle();
        for _ in 0..time.as_millis() {
            while in_flight < granted {
                self.read(self.client, 5, bytes);
                in_flight += 1;
            }
            self.nfs.world.pass(MILLISECOND);
            for reply in self.nfs.world.received(self.client) {
                granted = word(&reply, 2);
                in_flight -= 1;
                answered += 1;
            }
        }
        for _ in 0..60_000 {
            if in_flight == 0 {
                break;
            }
            self.nfs.world.pass(MILLISECOND);
            in_flight -= self.nfs.world.received(self.client).len() as u32;
        }
        (answered, granted)
    }
}

#[test]
fn a_client_gets_its_calls_per_second_in_the_order_in_which_they_came() {
    let mut metered = Metered::new();
    metered.limit(Some(100), None);
    metered.pass(SECOND);
    for xid in 0..20 {
        metered.read(metered.client, xid, 4096);
    }
    metered.nfs.world.settle();
    // What 10 ms of rest are worth, and the one whose time it is.
    assert_eq!(metered.answered(metered.client), [0, 1]);
    let later = metered.pass(Duration::from_millis(185));
    assert_eq!(later, (2..20).collect::<Vec<_>>());
    metered.nfs.world.check_clean();
}

#[test]
fn nobody_else_is_slowed_down() {
    let mut metered = Metered::new();
    metered.limit(Some(1), None);
    for xid in 0..10 {
        metered.read(metered.client, xid, 4096);
    }
    let other = 0;
    for xid in 0..16 {
        metered.read(other, xid, 2048);
    }
    metered.nfs.world.settle();
    assert_eq!(metered.answered(other).len(), 16);
    assert!(metered.answered(metered.client).len() <= 2);
    metered.limit(None, None);
    metered.nfs.world.settle();
    metered.nfs.world.check_clean();
}

#[test]
fn bytes_are_limited_whatever_the_size_of_calls() {
    for bytes in [4096, 64 << 10, 256 << 10] {
        let mut metered = Metered::new();
        let rate = 16 << 20;
        metered.limit(None, Some(rate));
        let (answered, _) = metered.load(SECOND, bytes);
        let got = answered * u64::from(bytes);
        let slack = rate / 20 + u64::from(bytes);
        assert!(got.abs_diff(rate) < slack, "{got} of {rate} by {bytes}");
        metered.nfs.world.check_clean();
    }
}

#[test]
fn a_change_holds_for_calls_that_wait_already() {
    let mut metered = Metered::new();
    metered.limit(Some(1), None);
    for xid in 0..30 {
        metered.read(metered.client, xid, 4096);
    }
    metered.nfs.world.settle();
    let begun = metered.answered(metered.client).len();
    assert!(begun <= 2);
    metered.limit(Some(1000), None);
    let soon = metered.pass(Duration::from_millis(5)).len();
    assert!(
        (4..=16).contains(&soon),
        "{soon} in 5 ms at 1000/s, and a burst"
    );
    metered.limit(None, None);
    metered.nfs.world.settle();
    let rest = metered.answered(metered.client).len();
    assert_eq!(begun + soon + rest, 30, "at once, without a limit");
    // And down again.
    metered.limit(Some(10), None);
    assert!(metered.load(SECOND, 4096).0 <= 12);
    metered.nfs.world.check_clean();
}

#[test]
fn a_change_costs_nobody_who_waits_a_second_share_of_the_rate() {
    let mut metered = Metered::new();
    metered.limit(Some(1), None);
    for xid in 0..30 {
        metered.read(metered.client, xid, 4096);
    }
    metered.nfs.world.settle();
    metered.answered(metered.client);
    metered.limit(Some(10), None);
    let second = metered.pass(SECOND).len();
    assert!((10..=11).contains(&second), "{second} in a second");
    metered.limit(None, None);
    metered.nfs.world.settle();
    metered.nfs.world.check_clean();
}

#[test]
fn calls_leave_their_line_with_their_connection_and_take_nothing_of_the_rate() {
    for (iops, bandwidth) in [(Some(1), None), (None, Some(4096)), (Some(1), Some(1))] {
        for of_export in [false, true] {
            let mut metered = Metered::new();
            if of_export {
                metered.limit_export(iops, bandwidth);
            } else {
                metered.limit(iops, bandwidth);
            }
            metered.pass(SECOND);
            for xid in 0..10 {
                metered.read(metered.client, xid, 4096);
            }
            metered.nfs.world.settle();
            // What a second of rest is worth, and the one whose time it is.
            let begun = metered.answered(metered.client).len();
            assert!((1..=2).contains(&begun), "{begun}");
            metered.nfs.world.abort(metered.client);
            metered.nfs.world.settle();
            assert_eq!(metered.nfs.world.calls(), 0, "nobody waits for them");
            metered.nfs.world.check_accounts(LIMITED);
            metered.client = metered.nfs.world.connect_with(Stated {
                source: LIMITED,
                ..Stated::default()
            });
            metered.sink = metered.nfs.world.sink(metered.client, 4096);
            if bandwidth != Some(1) {
                metered.read(metered.client, 20, 4096);
                metered.nfs.world.settle();
                let next = metered.pass(Duration::from_millis(1100));
                assert_eq!(next, [20], "as if the others had never come");
            }
            metered.nfs.world.check_clean();
        }
    }
}

#[test]
fn an_export_is_limited_for_all_its_clients_together() {
    let mut metered = Metered::new();
    metered.limit_export(Some(100), None);
    metered.pass(SECOND);
    let other = 0;
    for xid in 0..15 {
        metered.read(metered.client, xid, 4096);
        metered.read(other, xid, 2048);
        metered.nfs.world.settle();
    }
    let mine = metered.pass(Duration::from_millis(200)).len();
    let others = metered.answered(other).len();
    assert!((19..=23).contains(&(mine + others)), "{mine} and {others}");
    assert!(
        mine.abs_diff(others) <= 2,
        "{mine} and {others}: first come, first served"
    );
    let counters = metered.nfs.world.shared.flow.counters().clone();
    assert!(counters.throttled(Cause::ExportLimit) > SECOND);
    assert_eq!(counters.throttled(Cause::ClientLimit), Duration::ZERO);
    metered.limit_export(None, None);
    metered.nfs.world.settle();
    metered.nfs.world.check_clean();
}

#[test]
fn the_grant_falls_to_what_the_rate_can_use_and_rises_again() {
    let mut metered = Metered::new();
    metered.limit(Some(300), None);
    let (answered, granted) = metered.load(SECOND, 4096);
    assert!(
        (290..=310).contains(&answered),
        "the whole rate: {answered}"
    );
    // 10 ms of it wait, and the one that is being answered.
    assert!((1..=6).contains(&granted), "{granted}");
    metered.limit(None, None);
    let mut grants = Vec::new();
    for xid in 0..40 {
        metered.getattr(metered.client, xid);
        metered.nfs.world.settle();
        let replies = metered.nfs.world.received(metered.client);
        grants.push(word(&replies[0], 2));
    }
    assert!(grants.is_sorted(), "no oscillation: {grants:?}");
    assert!(grants.contains(&10), "step by step: {grants:?}");
    assert_eq!(grants.last(), grants.iter().max());
    metered.nfs.world.check_clean();
}

#[test]
fn small_calls_do_not_wait_behind_bulk_data() {
    let mut metered = Metered::new();
    metered.limit(None, Some(1 << 20));
    for xid in 0..10 {
        metered.read(metered.client, xid, 256 << 10);
    }
    metered.nfs.world.settle();
    metered.answered(metered.client);
    for xid in 100..105 {
        metered.getattr(metered.client, xid);
    }
    metered.nfs.world.settle();
    assert_eq!(metered.answered(metered.client), [100, 101, 102, 103, 104]);
    metered.limit(None, None);
    metered.nfs.world.settle();
    metered.nfs.world.check_clean();
}

#[test]
fn null_never_waits() {
    let mut metered = Metered::new();
    metered.limit(Some(1), Some(1));
    for xid in 0..20 {
        let call = wishing(plain(&null(xid)));
        metered.nfs.world.post(metered.client, &call);
    }
    metered.nfs.world.settle();
    assert_eq!(metered.answered(metered.client).len(), 20);
    metered.nfs.world.check_clean();
}

#[test]
fn connections_of_a_client_share_its_limit_and_coming_back_is_no_way_around_it() {
    let mut metered = Metered::new();
    let second = metered.nfs.world.connect_with(Stated {
        source: LIMITED,
        ..Stated::default()
    });
    metered.limit(Some(10), None);
    for _ in 0..3 {
        metered.getattr(metered.client, 1);
        metered.getattr(second, 2);
    }
    metered.nfs.world.settle();
    let both = |metered: &mut Metered| {
        metered.answered(metered.client).len() + metered.answered(second).len()
    };
    let begun = both(&mut metered);
    assert!(begun <= 2, "{begun}");
    for _ in 0..600 {
        metered.nfs.world.pass(MILLISECOND);
    }
    assert_eq!(begun + both(&mut metered), 6);
    metered.nfs.world.abort(second);
    metered.nfs.world.abort(metered.client);
    metered.nfs.world.settle();
    let mut answered = 0;
    for _ in 0..10 {
        let again = metered.nfs.world.connect_with(Stated {
            source: LIMITED,
            ..Stated::default()
        });
        metered.getattr(again, 1);
        metered.nfs.world.settle();
        answered += metered.answered(again).len();
        metered.nfs.world.abort(again);
        metered.nfs.world.settle();
    }
    assert!(answered <= 2, "{answered}");
    metered.limit(None, None);
    metered.nfs.world.settle();
    metered.nfs.world.check_clean();
}

#[test]
fn the_first_entry_with_a_network_of_the_client_counts() {
    let clients = ClientTable::new(2);
    let world: World<millrace::service::ReactorPrograms<MemoryStore>> = Nfs::new().world;
    let shared = &world.shared;
    let class = shared.settings.get().receive_class();
    let flow = Flow::new(&clients, 1, &shared.pool, class, &shared.clock);
    let entry = |network: &str, iops| ClientLimit {
        networks: vec![network.parse().unwrap()],
        rates: Rates {
            iops: Some(iops),
            bandwidth: None,
        },
    };
    let limits = [entry("10.1.0.0/16", 5), entry("10.0.0.0/8", 7)];
    clients.set_limits(&limits, [], world.now);
    assert!(flow.has_limits());
    let cost = |address: [u8; 4]| {
        let client = flow.client(IpAddr::from(address));
        client.record().limit().cost(1)
    };
    assert_eq!(cost([10, 1, 2, 3]), 1_000_000_000 / 5);
    assert_eq!(cost([10, 2, 2, 3]), 1_000_000_000 / 7);
    assert_eq!(cost([192, 0, 2, 1]), 0);
    clients.set_limits(&[], [], world.now);
    assert!(!flow.has_limits());
    assert_eq!(cost([10, 1, 2, 3]), 0);
}

#[test]
fn callers_over_tcp_have_the_same_limits() {
    let bench = Bench::new();
    let clock = Clock::new(Instant::now());
    let clients = ClientTable::new(1);
    let flow = Flow::new(&clients, 0, &bench.pool, Class::Control, &clock);
    let service = bench.service.clone().with_flow(&flow);
    let address = SocketAddr::from((LIMITED, 1000));
    let limit = ClientLimit {
        networks: vec!["10.1.0.1/32".parse().unwrap()],
        rates: Rates {
            iops: Some(10),
            bandwidth: None,
        },
    };
    clients.set_limits(&[limit], [], clock.now());
    let message = message::nfs(1, Procedure::Getattr, &bench.root());
    let connection = support::connection(&flow, Peer::new(address, TransportKind::Tcp));
    let call = Call {
        connection: &connection,
        arrived: clock.now(),
        message: &message,
        bulk: &[],
        fetched: None,
        padding: Padding::default(),
        is_authenticated: false,
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut serve = |time: Instant| {
        let buffer = bench.pool.try_acquire(Class::Control).unwrap();
        let mut reply = Reply::new(&bench.pool, buffer, LIMITS, Vec::new());
        let mut bulk = NoBulk;
        let mut served = pin!(service.serve(call, &mut bulk, &mut reply));
        if served.as_mut().poll(&mut context).is_ready() {
            return true;
        }
        assert_eq!(flow.client(address.ip()).waiting(), 1);
        clock.turn(time);
        let answer = served.as_mut().poll(&mut context);
        assert_eq!(answer, Poll::Ready(Answer::Send), "its time has come");
        false
    };
    let start = clock.now();
    let tenths = |count: u32| start + Duration::from_millis(100) * count;
    assert!(serve(tenths(0)));
    assert!(!serve(tenths(3)));
    assert!(serve(tenths(3)), "the time of this one has come meanwhile");
    assert!(!serve(tenths(5)));
}

#[test]
fn clients_that_came_by_tcp_only_are_forgotten_in_time() {
    let bench = Bench::new();
    let clock = Clock::new(Instant::now());
    let clients = ClientTable::new(1);
    let flow = Flow::new(&clients, 0, &bench.pool, Class::Control, &clock);
    let pass = |last: u8| {
        let address = IpAddr::from([10, 1, 0, last]);
        let share = flow.client(address);
        let passed = pin!(flow.pass(&share, None, 0, || false));
        assert!(
            passed
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
        address
    };
    let present = || {
        let present = clients.usage().present.into_iter();
        present.map(|client| client.address).collect::<Vec<_>>()
    };
    let first = pass(1);
    assert_eq!(present(), [first]);
    clock.turn(clock.now() + 61 * SECOND);
    let second = pass(2);
    assert_eq!(present(), [second], "no client comes by RDMA");
}
