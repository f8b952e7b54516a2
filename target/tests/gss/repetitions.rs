//! Repetitions of calls that must not be executed twice.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use millrace::access::Security;
use millrace::exports::ExportId;
use millrace::flow::rate::Rates;
use millrace::flow::{ClientTable, Flow};
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_gss::{Enctype, Identity};
use millrace_mempool::{Class, HugepagePolicy, Registry};
use millrace_reactor::Clock;
use millrace_wire::nfs3::{
    CreateResults, MkdirArguments, NameInDirectory, Procedure, SetAttributes, Status,
};
use millrace_wire::rpc::GssService;
use millrace_wire::xdr::from_bytes;

use super::initiator::{self, Initiator, user};
use super::{SERVICES, World, encoded, nfs};
use crate::support::{self, Bench};

const ALL: [Security; 3] = [Security::Krb5p, Security::Krb5i, Security::Krb5];

fn mkdir(world: &World) -> Vec<u8> {
    encoded(&MkdirArguments {
        entry: NameInDirectory {
            directory: world.root(),
            name: b"folder",
        },
        attributes: SetAttributes::default(),
    })
}

/// The results of a call with this XID.
fn send(world: &World, client: &Initiator, xid: u32, service: GssService) -> Vec<u8> {
    let message = client.call(xid, nfs(Procedure::Mkdir), service, &mkdir(world));
    let reply = world.send(&message).gathered();
    client
        .results(service, client.sequence.get(), &reply)
        .unwrap()
}

#[test]
fn gss_rep_01_03_and_04_a_repetition_has_the_reply_protected_anew() {
    let world = World::new(ALL);
    let first = send(&world, &world.client, 1, GssService::Privacy);
    assert!(from_bytes::<CreateResults>(&first).unwrap().is_ok());
    // Other numbers and other ciphertext, with any service, and under another context of the
    // principal.
    let renewed = Initiator::new(&world.contexts, user(0), Enctype::Aes128Sha1);
    for client in [&world.client, &renewed] {
        for service in SERVICES {
            assert_eq!(send(&world, client, 1, service), first);
        }
    }
    assert_eq!(world.service.counters().replayed.get(), 6);
    // Another principal does not get it, nor does a call with another XID.
    let exists = |bytes: &[u8]| {
        let results = from_bytes::<CreateResults>(bytes).unwrap();
        results.unwrap_err().status
    };
    let other = Identity {
        principal: "other@EXAMPLE.COM".into(),
        ..user(0)
    };
    let other = Initiator::new(&world.contexts, other, Enctype::Aes256Sha1);
    let found = send(&world, &other, 1, GssService::Privacy);
    assert_eq!(exists(&found), Status::Exists);
    assert_eq!(
        exists(&send(&world, &world.client, 2, GssService::None)),
        Status::Exists
    );
}

#[test]
fn gss_rep_05_dropped_and_damaged_calls_leave_no_trace() {
    let world = World::new(ALL);
    let client = &world.client;
    let mut damaged = client.call(
        1,
        nfs(Procedure::Mkdir),
        GssService::Integrity,
        &mkdir(&world),
    );
    *damaged.last_mut().unwrap() ^= 1;
    let reply = world.send(&damaged).message;
    let sequence = client.sequence.get();
    assert!(
        client
            .results(GssService::Integrity, sequence, &reply)
            .is_err()
    );
    let made = send(&world, client, 1, GssService::Integrity);
    assert!(from_bytes::<CreateResults>(&made).unwrap().is_ok());
}

#[test]
fn gss_rep_02_what_is_remembered_is_the_plain_reply() {
    let registry = Registry::new(HugepagePolicy::Off);
    let store = support::memory_store(&registry);
    let cache = ReplayCache::new(ReplayLimits::default());
    let mut rules = support::rules("/export");
    rules.security = ALL.into();
    let service = support::service_with([(rules, store.clone())], cache.clone());
    let bench = Bench::over(&registry, store, service);
    let world = World::over(initiator::contexts(), bench);
    let made = send(&world, &world.client, 1, GssService::Privacy);
    // A header with an empty verifier, and the results: no checksum, no ciphertext.
    assert_eq!(cache.usage(), (1, 24 + made.len()));
}

/// Who polls its calls itself.
struct Polled;

impl Wake for Polled {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn gss_rep_06_a_repetition_that_waits_has_its_own_number_and_service() {
    let mut world = World::new(ALL);
    let clock = Clock::new(Instant::now());
    let clients = ClientTable::new(1);
    let flow = Flow::new(&clients, 0, &world.pool, Class::Control, &clock);
    let rates = Rates {
        iops: Some(1),
        bandwidth: None,
    };
    clients.set_limits(&[], [(ExportId::of("/export"), rates)], clock.now());
    let _ = world.service.clone().with_flow(&flow);
    world.bench.flow = flow;
    let peer = world.connection().peer();
    world.call_from(peer);

    // The limit is used up, so that the next call waits while it is in execution.
    let client = &world.client;
    send(&world, client, 1, GssService::None);
    let services = [GssService::Privacy, GssService::Integrity];
    let folder = mkdir(&world);
    let messages = services.map(|service| client.call(2, nfs(Procedure::Mkdir), service, &folder));
    let last = client.sequence.get();
    let (mut first, mut second) = (
        pin!(world.exchange(&messages[0])),
        pin!(world.exchange(&messages[1])),
    );
    let waker = Waker::from(Arc::new(Polled));
    let context = &mut Context::from_waker(&waker);
    for _ in 0..100 {
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
    }
    clock.turn(clock.now() + Duration::from_secs(2));
    let replies = support::ready(async { [first.await, second.await] });
    let results = [0, 1].map(|at| {
        let number = last - 1 + at as u32;
        client.results(services[at], number, &replies[at]).unwrap()
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(world.service.counters().replayed.get(), 1);
}
