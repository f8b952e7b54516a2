//! Bodies with integrity and privacy.

use std::rc::Rc;

use millrace::access::Security;
use millrace::call::{Answer, Serve, one_chunk};
use millrace_gss::Enctype;
use millrace_mempool::{Class, MemoryAccount, MemoryShare};
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, GetattrResults, NameInDirectory, Procedure,
    ReadArguments, ReadResults, SetAttributes, Stability, WriteArguments, WriteResults,
};
use millrace_wire::rpc::{Accepted, CallOutcome, GssService, answer_to};
use millrace_wire::xdr::{Bulk, Data, from_bytes};

use super::initiator::{Initiator, user};
use super::{NULL, SERVICES, World, encoded, nfs};
use crate::support::LIMITS;

const ALL: [Security; 3] = [Security::Krb5p, Security::Krb5i, Security::Krb5];

/// Bytes that no shift leaves the same.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + index / 251) as u8)
        .collect()
}

/// A file that the client has created.
pub fn create(
    world: &World,
    client: &Initiator,
    service: GssService,
) -> millrace_wire::nfs3::FileHandle {
    let arguments = CreateArguments {
        entry: NameInDirectory {
            directory: world.root(),
            name: b"file",
        },
        how: CreateHow::Unchecked(SetAttributes::default()),
    };
    let results = world.call_by(client, nfs(Procedure::Create), service, &arguments);
    let results = results.unwrap();
    from_bytes::<CreateResults>(&results)
        .unwrap()
        .unwrap()
        .object
        .unwrap()
}

#[test]
fn gss_int_01_gss_priv_01_data_goes_there_and_back() {
    for enctype in Enctype::ALL {
        let world = World::new(ALL);
        let client = Initiator::new(&world.contexts, user(0), enctype);
        for service in SERVICES {
            let file = create(&world, &client, service);
            for length in [0, 1, 5, 63, 64, 65, 3000, 4096, 60_000, 900_000] {
                let data = pattern(length);
                let write = WriteArguments {
                    file,
                    offset: 0,
                    count: length as u32,
                    stable: Stability::FileSync,
                    data: Bulk::inline(&data),
                };
                let results = world.call_by(&client, nfs(Procedure::Write), service, &write);
                let results = results.unwrap();
                let written = from_bytes::<WriteResults>(&results).unwrap().unwrap();
                assert_eq!(written.count, length as u32);
                let read = ReadArguments {
                    file,
                    offset: 0,
                    count: length as u32,
                };
                let results = world.call_by(&client, nfs(Procedure::Read), service, &read);
                let results = results.unwrap();
                let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
                assert!(
                    found.data.data == Data::Inline(&data),
                    "{service:?} {length}"
                );
            }
        }
        let counters = world.contexts.all_call_counters();
        assert!(counters[0].received_bytes[1].get() > 900_000);
        assert!(counters[0].sent_bytes[2].get() > 900_000);
    }
}

#[test]
fn gss_int_02_gss_priv_02_gss_priv_06_a_changed_body_is_garbage_and_changes_nothing() {
    let world = World::new(ALL);
    let client = &world.client;
    let file = create(&world, client, GssService::Integrity);
    let write = encoded(&WriteArguments {
        file,
        offset: 0,
        count: 100,
        stable: Stability::FileSync,
        data: Bulk::inline(&pattern(100)),
    });
    for service in [GssService::Integrity, GssService::Privacy] {
        let length = {
            let message = client.call(1, nfs(Procedure::Write), service, &write);
            client.body(service, 0, &write).len().min(message.len())
        };
        for at in 0..length {
            let mut message = client.call(5, nfs(Procedure::Write), service, &write);
            let start = message.len() - length;
            message[start + at] ^= 1 << (at % 8);
            let reply = world.send(&message).message;
            let refused = client.results(service, client.sequence.get(), &reply);
            let garbage = answer_to(5, Accepted::GarbageArguments);
            assert_eq!(refused, Err(garbage), "{service:?} {at}");
        }
        // A number that is not that of the header, although everything is sealed.
        let sequence = client.next();
        let header = client.header(
            6,
            nfs(Procedure::Write),
            &client.credential(service, sequence),
        );
        let body = client.body(service, sequence + 1, &write);
        let reply = world.send(&[header, body].concat()).message;
        let refused = client.results(service, sequence, &reply);
        assert_eq!(refused, Err(answer_to(6, Accepted::GarbageArguments)));
    }
    // GSS-PRIV-06: nothing of all that is in the file.
    let read = ReadArguments {
        file,
        offset: 0,
        count: 100,
    };
    let results = world
        .call(nfs(Procedure::Read), GssService::Privacy, &read)
        .unwrap();
    let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
    assert_eq!(found.count, 0);
}

#[test]
fn gss_int_03_bodies_cut_anywhere_are_garbage() {
    let world = World::new(ALL);
    let client = &world.client;
    let root = encoded(&world.root());
    for service in [GssService::Integrity, GssService::Privacy] {
        let length = client.body(service, 0, &root).len();
        for cut in 1..=length {
            let message = client.call(5, nfs(Procedure::Getattr), service, &root);
            let reply = world.send(&message[..message.len() - cut]).message;
            let refused = client.results(service, client.sequence.get(), &reply);
            assert_eq!(refused, Err(answer_to(5, Accepted::GarbageArguments)));
        }
        for rest in [1, 4, 100] {
            let mut message = client.call(5, nfs(Procedure::Getattr), service, &root);
            message.extend(vec![0; rest]);
            let reply = world.send(&message).message;
            let refused = client.results(service, client.sequence.get(), &reply);
            assert_eq!(refused, Err(answer_to(5, Accepted::GarbageArguments)));
        }
    }
}

#[test]
fn a_body_that_finds_no_memory_is_not_garbage() {
    let world = World::new(ALL);
    let share = Rc::new(MemoryShare::new());
    let account = MemoryAccount::new(&share);
    // Whoever would have to wait for memory has waited long enough.
    let _late = world.pool.charging(&account, true);
    let all = Class::ALL.map(|class| {
        share.set_most(class, 1);
        world.pool.try_obtain(class).unwrap()
    });
    let root = encoded(&world.root());
    let message = world
        .client
        .call(5, nfs(Procedure::Getattr), GssService::Privacy, &root);
    assert_eq!(world.send(&message).answer, Answer::Broken);
    assert_eq!(
        world.contexts.all_call_counters()[0].damaged_bodies.get(),
        0
    );
    drop(all);
    let results = world.call(nfs(Procedure::Getattr), GssService::Privacy, &world.root());
    results.unwrap();
}

#[test]
fn gss_rdma_02_protected_calls_have_no_items_in_chunks() {
    let world = World::new(ALL);
    let client = &world.client;
    for (procedure, items) in [(Procedure::Write, true), (Procedure::Read, false)] {
        let plain = client.call(5, nfs(procedure), GssService::None, &[]);
        let info = world.service.procedure(&plain).unwrap();
        assert_eq!(info.arguments.is_some(), items);
        assert_eq!(info.results, usize::from(!items));
        for service in [GssService::Integrity, GssService::Privacy] {
            let protected = client.call(5, nfs(procedure), service, &[]);
            let info = world.service.procedure(&protected).unwrap();
            assert!(info.arguments.is_none() && info.results == 0 && !info.immediate);
            assert_eq!(info.whole, 1 << 20);
        }
    }
}

#[test]
fn gss_rdma_03_results_stay_in_the_message_although_there_is_a_write_chunk() {
    let world = World::new(ALL);
    let client = &world.client;
    let file = create(&world, client, GssService::None);
    let data = pattern(1000);
    let write = WriteArguments {
        file,
        offset: 0,
        count: 1000,
        stable: Stability::FileSync,
        data: Bulk::inline(&data),
    };
    world
        .call(nfs(Procedure::Write), GssService::None, &write)
        .unwrap();
    world.limits.set(millrace::call::Limits {
        apart: one_chunk(1000),
        ..LIMITS
    });
    let read = encoded(&ReadArguments {
        file,
        offset: 0,
        count: 1000,
    });
    for service in SERVICES {
        let message = client.call(5, nfs(Procedure::Read), service, &read);
        let reply = world.send(&message);
        let apart = if service == GssService::None { 1000 } else { 0 };
        assert_eq!(reply.data.len(), apart);
        let results = client.results(service, client.sequence.get(), &reply.gathered());
        let results = results.unwrap();
        let found = from_bytes::<ReadResults<'_>>(&results).unwrap().unwrap();
        assert!(found.data.data == Data::Inline(&data));
    }
}

#[test]
fn gss_rdma_05_rr1_sec_04_replies_are_sized_with_what_protects_them() {
    let world = World::new(ALL);
    let client = &world.client;
    let root = encoded(&world.root());
    for service in SERVICES {
        let send = |message| {
            world
                .limits
                .set(millrace::call::Limits { message, ..LIMITS });
            let call = client.call(5, nfs(Procedure::Getattr), service, &root);
            world.send(&call)
        };
        let whole = send(4000);
        let length = whole.message.len();
        let parts = match service {
            GssService::None => 0,
            GssService::Integrity => 8 + 4 + 28,
            GssService::Privacy => 4 + 60 + 4,
        };
        // Status and attributes behind a header with a verifier.
        assert_eq!(length, 24 + 28 + 4 + 84 + parts, "{service:?}");
        let reply = send(length);
        let results = client.results(service, client.sequence.get(), &reply.message);
        from_bytes::<GetattrResults>(&results.unwrap())
            .unwrap()
            .unwrap();
        let short = send(length - 4);
        assert!(matches!(short.answer, Answer::TooLarge(_)), "{service:?}");
    }
}

#[test]
fn gss_int_04_other_statuses_are_plain() {
    let world = World::new(ALL);
    let client = &world.client;
    for service in [GssService::Integrity, GssService::Privacy] {
        let message = client.call(5, (100_003, 9, 0), service, &[]);
        let reply = world.send(&message).message;
        let header = from_bytes::<millrace_wire::rpc::ReplyHeader<'_>>(&reply).unwrap();
        let CallOutcome::Accepted { status, .. } = header.outcome else {
            panic!("{header:?}");
        };
        assert!(matches!(status, Accepted::ProgramMismatch { .. }));
        assert_eq!(reply.len(), 24 + 28 + 8);
        // NULL has empty results, which are protected.
        assert_eq!(world.call(NULL, service, &()), Ok(Vec::new()));
    }
}
