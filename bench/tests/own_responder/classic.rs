//! Classic mode, padding and the configuration protocol.

use std::time::Duration;

use millrace::rdma;
use millrace_bench::requester::{Alignment, Call, Ccp, Identity, Settings};
use millrace_mempool::Slice;
use millrace_wire::ccp;
use millrace_wire::nfs3::{FileHandle, Procedure, ReadArguments, ReaddirArguments, ReaddirResults};

use crate::world::{World, pattern, server};

/// A server with the configuration protocol, in classic mode or not.
fn world(classic: bool, settings: Settings) -> World {
    let server = server().configuring(rdma::Ccp {
        program: ccp::PROGRAM,
        anonymous: false,
    });
    World::with(server, classic, settings)
}

fn write(world: &mut World, file: FileHandle, length: usize) {
    let data = world.memory(length);
    world.write(file, &[data]);
}

fn bare() -> Settings {
    Settings {
        credits: 16,
        calls: 16,
        settle: Duration::ZERO,
        offer_results: false,
        ..Settings::default()
    }
}

#[test]
fn rr1_done_03_reads_and_listings_come_by_read_chunks_of_our_own_server() {
    let mut world = world(true, bare());
    let file = world.create(b"file");
    for length in [1, 1000, 3900, 5001, 65_536, 1 << 20] {
        write(&mut world, file, length);
        let before = world.connection.counters().dones;
        let (bytes, apart) = world.read(file, length);
        assert!(bytes == pattern(length), "{length} bytes");
        let dones = world.connection.counters().dones - before;
        assert_eq!(dones, u64::from(length > 4000));
        assert_eq!(apart, length > 4000);
    }
    for number in 0..150 {
        world.create(format!("a name that is not short at all {number:03}").as_bytes());
    }
    let arguments = ReaddirArguments {
        directory: world.root,
        cookie: 0,
        verifier: [0; 8],
        count: 32_768,
    };
    let before = *world.connection.counters();
    let call = Call::nfs3(1, Procedure::Readdir, arguments, 32_768);
    let entries = world.call(&call, |reply| {
        let listed = reply.results::<ReaddirResults<'_>>().expect("decodes");
        listed.expect("listed").entries.iter().count()
    });
    // With the directory itself, its parent, and the file.
    assert_eq!(entries, Ok(153));
    let after = *world.connection.counters();
    assert_eq!(after.read_chunk_replies, before.read_chunk_replies + 1);
    assert_eq!(after.dones, after.read_chunk_replies);
    assert!(!world.connection.is_fetching());
}

#[test]
fn rr1_cred_15_many_replies_with_read_chunks_at_once() {
    let mut world = world(true, bare());
    let file = world.create(b"file");
    write(&mut world, file, 50_000);
    let rooms: Vec<_> = (0..16).map(|_| [world.memory(50_000)]).collect();
    for round in 0..10 {
        for (token, room) in rooms.iter().enumerate() {
            room[0].fill_zero(0..50_000);
            let arguments = ReadArguments {
                file,
                offset: 0,
                count: 50_000,
            };
            let call = Call::nfs3(token as u64, Procedure::Read, arguments, 0);
            let sinks: [&[Slice]; 1] = [room];
            let call = call.with_sinks(&sinks);
            world.connection.submit(&call, world.now).expect("taken");
        }
        let mut replies = 0;
        world.settle_with(&mut |_, result| {
            assert_eq!(result.expect("a reply").written, [Some(50_000)]);
            replies += 1;
        });
        assert_eq!(replies, 16, "round {round}");
        for room in &rooms {
            let mut bytes = vec![0; 50_000];
            room[0].copy_to(0, &mut bytes);
            assert!(bytes == pattern(50_000));
        }
    }
    assert_eq!(world.connection.counters().dones, 160);
}

#[test]
fn rr1_done_16_in_ordinary_mode_nothing_is_fetched() {
    let ordinary = Settings {
        offer_results: true,
        ..bare()
    };
    for classic in [false, true] {
        let mut world = world(classic, ordinary.clone());
        let file = world.create(b"file");
        write(&mut world, file, 50_000);
        let (bytes, apart) = world.read(file, 50_000);
        assert!(apart && bytes == pattern(50_000));
        let counters = world.connection.counters();
        assert_eq!((counters.reads, counters.dones), (0, 0));
    }
}

#[test]
fn a_server_in_ordinary_mode_shortens_what_has_no_room() {
    let mut world = world(false, bare());
    let file = world.create(b"file");
    write(&mut world, file, 50_000);
    let (bytes, apart) = world.read(file, 50_000);
    assert!(!apart && bytes.len() < 4096);
    assert!(bytes == pattern(bytes.len()));
    assert_eq!(world.connection.counters().dones, 0);
}

#[test]
fn rr1_pad_20_padded_writes_are_executed_by_our_own_server() {
    for align in [4, 64, 100, 512, 1024] {
        let mine = Settings {
            alignment: Alignment::Fixed {
                align,
                threshold: 100,
            },
            offer_results: true,
            ..bare()
        };
        let mut world = world(false, mine);
        let file = world.create(b"file");
        for length in [500, 1001, 2000, 3000] {
            let before = world.connection.counters().padded;
            write(&mut world, file, length);
            let padded = world.connection.counters().padded - before;
            assert_eq!(padded, 1, "{length} bytes");
            assert!(world.read(file, length).0 == pattern(length));
        }
    }
}

#[test]
fn rr1_ccp_01_limits_and_alignment_are_learnt_from_our_own_server() {
    let mine = Settings {
        private_data: None,
        ccp: Some(Ccp::default()),
        alignment: Alignment::Learnt { threshold: 512 },
        offer_results: true,
        ..bare()
    };
    let mut world = world(false, mine);
    let limits = world.connection.configured().expect("told");
    assert!(limits.call_size > 1024 && limits.call_size <= 4096);
    assert!(limits.alignment >= 64 && limits.reads > 0);
    assert_eq!(world.connection.limits().send, limits.call_size as usize);
    let file = world.create(b"file");
    for length in [600, 2000, 3001, 10_000] {
        let before = *world.connection.counters();
        write(&mut world, file, length);
        let after = *world.connection.counters();
        let padded = u64::from(length < 4000);
        assert_eq!(after.padded - before.padded, padded, "{length} bytes");
        assert!(world.read(file, length).0 == pattern(length));
    }
}

#[test]
fn rr1_ccp_14_our_own_server_is_not_asked_by_nobody() {
    let nobody = Settings {
        private_data: None,
        ccp: Some(Ccp::default()),
        identity: Identity::none(),
        ..bare()
    };
    let mut world = world(false, nobody);
    assert_eq!(world.connection.configured(), None);
    let null = Call::nfs3(1, Procedure::Null, (), 0);
    assert_eq!(world.call(&null, |_| ()), Ok(()));
    assert_eq!(world.connection.limits().send, 1024);
}
