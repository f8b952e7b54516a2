//! Repetitions of calls that must not be executed twice.

use millrace::access::Security;
use millrace::replay::{ReplayCache, ReplayLimits};
use millrace_gss::{Enctype, Identity};
use millrace_mempool::{HugepagePolicy, Registry};
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
