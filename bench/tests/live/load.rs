//! Changes under full load lose no call.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use millrace_admin::config::{
    Access, ByteSize, ClientLimits, Config, CrcPolicy, Fabric, PollMode, Squash, Switch, WindowEnd,
};
use millrace_admin::control::Control;
use millrace_admin::status::ListPage;
use millrace_bench::client::{Client, ServerAddress};
use millrace_bench::load::{
    Engine, FileCount, IdlePolicy, Lanes, NfsVersion, Operation, ServerCpu, TcpFile, Until,
    Workload,
};

use super::running::{EndOfLoad, Running, export};

/// Changes that are made, and calls of one round of load.
const CHANGES: usize = 300;
const CALLS: u64 = 2000;

#[derive(Parser)]
struct ProgramArguments {
    #[command(flatten)]
    client: Client,
}

/// The change of this number: every kind in turn, each one different from what is in force.
fn change(config: &mut Config, number: usize) {
    let turn = (number / 8).is_multiple_of(2);
    match number % 8 {
        0 => config.flow.credits = if turn { 8 } else { 32 },
        1 if turn => config.exports.push(export("/extra")),
        1 => config.exports.retain(|one| one.path != "/extra"),
        2 if turn => config.fabric.push(Fabric {
            listen: SocketAddr::from(([127, 0, 0, 2], 0)),
            ..Fabric::default()
        }),
        2 => config.fabric.truncate(1),
        3 => {
            config.fabric[0].crc = Some(if turn {
                CrcPolicy::Off
            } else {
                CrcPolicy::Auto
            });
        }
        4 => {
            let clients = vec!["127.0.0.0/8".parse().expect("a network")];
            config.limits = vec![ClientLimits {
                clients,
                iops: Some(if turn { 10_000_000 } else { 20_000_000 }),
                bandwidth: None,
            }];
        }
        5 => {
            config.reactors.poll = if turn {
                PollMode::Busy
            } else {
                PollMode::Adaptive
            };
            config.flow.on_window_end = if turn {
                WindowEnd::Close
            } else {
                WindowEnd::Free
            };
        }
        6 => {
            config.rpcrdma.padding = if turn { Switch::Off } else { Switch::On };
            config.rpcrdma.versions = if turn { vec![1] } else { vec![1, 2] };
        }
        _ => {
            config.exports[0].squash = if turn { Squash::Root } else { Squash::None };
            config.exports[0].access = Access::Rw;
            config.mempool.size = ByteSize(config.mempool.size.bytes() + (2 << 20));
        }
    }
}

fn client(running: &Running) -> Client {
    let line =
        ProgramArguments::parse_from(["test", "--uid", "1000", "--gid", "1000", "--settle", "0s"]);
    let place = ServerAddress::of(running.fabric(0), running.rpc(), "/scratch");
    Client {
        place,
        ..line.client
    }
}

/// Forwards connections to a server, but holds back all bytes while a connection has sent none yet.
fn forwarder(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let gate = Arc::new(Mutex::new(()));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let held = gate.lock().expect("sound");
            client.peek(&mut [0]).expect("sends something");
            drop(held);
            let server = TcpStream::connect(server).expect("connects");
            let other = |socket: &TcpStream| socket.try_clone().expect("descriptors");
            for (from, to) in [(other(&client), other(&server)), (server, client)] {
                let gate = Arc::clone(&gate);
                thread::spawn(move || forward(from, to, &gate));
            }
        }
    });
    address
}

fn forward(mut from: TcpStream, mut to: TcpStream, gate: &Mutex<()>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        drop(gate.lock());
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    // It may have ended already.
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_load_makes_no_connection_before_it_can_send_on_it() {
    let running = Running::start("nfs4: { minor_versions: [1] }");
    let mut client = client(&running);
    let target = forwarder(running.fabric(0));
    client.place = ServerAddress::of(target, running.rpc(), "/scratch");
    client.options.timeout = Duration::from_secs(5);
    for nfs in [NfsVersion::Three, NfsVersion::FourOne] {
        let engine = Engine::speaking(&client, nfs, 3, 4, 1 << 20).expect("connects");
        engine.finish().expect("ends in order");
    }
}

#[test]
fn loads_of_version_4_move_and_verify_data_on_several_connections() {
    let running = Running::start("nfs4: { minor_versions: [1, 2] }");
    let client = client(&running);
    for nfs in [NfsVersion::FourOne, NfsVersion::FourTwo] {
        let mut engine = Engine::speaking(&client, nfs, 2, 16, 4 << 20).expect("connects");
        for (operation, size, verify) in [
            (Operation::Read, 4096, true),
            (Operation::Write, 64 << 10, true),
            (Operation::Mixed, 16 << 10, true),
            (Operation::Read, 512, true),
            (Operation::Write, 512, true),
            (Operation::Lookup, 0, true),
            (Operation::Lookup, 0, false),
            (Operation::Getattr, 0, true),
            (Operation::Getattr, 0, false),
            (Operation::Open, 0, true),
            (Operation::Open, 0, false),
            (Operation::Read, 4096, false),
            (Operation::Write, 4096, false),
        ] {
            let workload = Workload {
                verify,
                random: true,
                until: Until::Count(200),
                ..Workload::new(operation, size, 16, Duration::ZERO)
            };
            let measured = engine
                .run(&workload, &ServerCpu::default(), &mut |_| {})
                .expect("every call succeeds");
            let (done, wrong) = (measured.operations, measured.mismatches);
            assert_eq!((done, wrong), (200, 0), "{}", workload.name());
        }
        engine.finish().expect("ends in order");
    }
}

/// One connection.
fn lanes(nfs: NfsVersion) -> Lanes {
    Lanes {
        nfs,
        connections: 1,
        idle: 0,
        depth: 4,
        file_size: 4096,
        opens: 0,
        sparse: false,
        files: FileCount::default(),
    }
}

#[test]
fn lookups_are_for_files_in_directories_that_are_removed_afterwards() {
    let running = Running::start("");
    let client = client(&running);
    let lanes = Lanes {
        files: FileCount {
            files: 1000,
            directories: 7,
        },
        ..lanes(NfsVersion::Three)
    };
    let mut engine = Engine::with(&client, lanes).expect("connects");
    engine.fill(&mut |_| {}).expect("there is room");
    let files = || {
        let exports = running.control().exports().expect("stores answer");
        exports[0].files
    };
    assert_eq!(files(), Some(1 + 1 + 7 + 1000));
    let workload = Workload {
        verify: true,
        until: Until::Count(3000),
        ..Workload::new(Operation::Lookup, 0, 4, Duration::ZERO)
    };
    let measured = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
    assert_eq!(measured.expect("every file is found").operations, 3000);
    engine.finish().expect("ends in order");
    assert_eq!(files(), Some(1), "the root alone");

    let lanes = Lanes {
        files: FileCount {
            files: 99_999_999,
            directories: 1,
        },
        ..lanes
    };
    let refused = Engine::with(&client, lanes).err().expect("no room");
    assert!(refused.to_string().contains("room for"), "{refused:#}");
    assert_eq!(files(), Some(1), "the root alone");
}

#[test]
fn a_file_without_data_can_be_larger_than_the_store() {
    let running = Running::start("");
    let client = client(&running);
    let lanes = Lanes {
        file_size: 1 << 40,
        sparse: true,
        ..lanes(NfsVersion::Three)
    };
    let mut engine = Engine::with(&client, lanes).expect("connects");
    let workload = Workload {
        random: true,
        until: Until::Count(300),
        ..Workload::new(Operation::Mixed, 4096, 4, Duration::ZERO)
    };
    let measured = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
    assert_eq!(measured.expect("every call succeeds").operations, 300);
    engine.finish().expect("ends in order");
}

#[test]
fn a_load_ends_with_what_the_server_said() {
    for (version, said) in [
        (NfsVersion::Three, "WRITE: NFS3ERR_NOSPC"),
        (NfsVersion::FourTwo, "WRITE: NFS4ERR_NOSPC"),
    ] {
        let running = Running::start("nfs4: { minor_versions: [2] }");
        let client = client(&running);
        let lanes = Lanes {
            file_size: 1 << 40,
            sparse: true,
            ..lanes(version)
        };
        let mut engine = Engine::with(&client, lanes).expect("connects");
        let workload = Workload {
            random: true,
            until: Until::Count(1 << 20),
            ..Workload::new(Operation::Write, 4096, 4, Duration::ZERO)
        };
        let failed = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
        let failed = format!("{:#}", failed.expect_err("more than the store has"));
        assert!(failed.contains(said), "{failed}");
    }
}

#[test]
fn version_3_opens_nothing() {
    let running = Running::start("");
    let client = client(&running);
    let mut engine = Engine::with(&client, lanes(NfsVersion::Three)).expect("connects");
    let workload = Workload::new(Operation::Open, 0, 1, Duration::ZERO);
    let refused = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
    let refused = refused.expect_err("no such procedure").to_string();
    assert!(refused.contains("--nfs 4.1"), "{refused}");
}

#[test]
fn further_opens_stay_until_a_load_ends() {
    let running = Running::start("nfs4: { minor_versions: [2] }");
    let client = client(&running);
    let lanes = Lanes {
        idle: 2,
        opens: 30,
        ..lanes(NfsVersion::FourTwo)
    };
    let mut engine = Engine::with(&client, lanes).expect("connects");
    let opens = || {
        let control = running.control();
        let nfs4 = control.nfs4().expect("version 4 is served");
        let page = ListPage {
            limit: 10,
            after: 0,
        };
        let found = nfs4.clients(page).expect("the home answers").clients;
        found.iter().map(|client| client.opens).collect::<Vec<_>>()
    };
    assert_eq!(opens(), [31, 31, 31]);
    let workload = Workload {
        until: Until::Count(50),
        ..Workload::new(Operation::Open, 0, 4, Duration::ZERO)
    };
    let measured = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
    assert_eq!(measured.expect("every call succeeds").operations, 50);
    assert_eq!(opens(), [31, 31, 31], "each call has closed what it opened");
    engine.finish().expect("ends in order");
    assert!(opens().is_empty());
}

#[test]
fn a_load_that_cannot_begin_leaves_nothing_behind() {
    let running = Running::start("nfs4: { minor_versions: [2] }");
    let client = client(&running);
    // More than a session may have slots.
    let lanes = Lanes {
        depth: 4096,
        ..lanes(NfsVersion::FourTwo)
    };
    let refused = Engine::with(&client, lanes).err().expect("too many");
    assert!(refused.to_string().contains("--depth"), "{refused:#}");
    let control = running.control();
    let nfs4 = control.nfs4().expect("version 4 is served");
    let page = ListPage {
        limit: 10,
        after: 0,
    };
    let found = nfs4.clients(page).expect("the home answers");
    assert!(found.clients.is_empty(), "{found:?}");
    let exports = control.exports().expect("stores answer");
    assert_eq!(exports[0].files, Some(1), "the root alone");
}

#[test]
fn idle_connections_make_one_call_and_stay() {
    let running = Running::start("flow: { credits: 4 }");
    let client = client(&running);
    let idle = 200;
    let lanes = Lanes {
        idle,
        ..lanes(NfsVersion::Three)
    };
    let mut engine = Engine::with(&client, lanes).expect("connects");
    let workload = Workload {
        until: Until::Count(100),
        ..Workload::new(Operation::Read, 4096, 4, Duration::ZERO)
    };
    let measured = engine.run(&workload, &ServerCpu::default(), &mut |_| {});
    assert_eq!(measured.expect("every call succeeds").operations, 100);
    running.until("all calls are counted", |running| {
        let connections = running.control().connections().expect("reactors answer");
        let calls = connections.iter().map(|one| one.requests);
        let (mut silent, loaded) = calls.partition::<Vec<_>, _>(|calls| *calls < 100);
        silent.dedup();
        connections.len() == idle + 1 && silent == [1] && loaded == [101]
    });
    engine.finish().expect("ends in order");
}

#[test]
fn loads_over_tcp_have_a_file_that_they_fill_and_remove() {
    let running = Running::start("");
    let client = client(&running);
    let file = TcpFile::make(&client, running.rpc(), 100_000).expect("made");
    let root = running.mount("/scratch").expect("mounted");
    let mut other = running.client(0);
    let mut names = || {
        let listed = other.session.readdirplus(root, 0, [0; 8], 4096, 4096);
        let entries = listed.expect("listed").entries;
        let sizes = entries.iter().map(|entry| Some(entry.attributes?.size));
        sizes.flatten().collect::<Vec<_>>()
    };
    assert!(names().contains(&131_072), "whole blocks");
    let mut load = file.load().expect("connects");
    for (operation, size) in [
        (Operation::Read, 64 << 10),
        (Operation::Write, 4096),
        (Operation::Getattr, 0),
    ] {
        let workload = Workload {
            until: Until::Count(100),
            ..Workload::new(operation, size, 16, Duration::ZERO)
        };
        let measured = load.run(&workload, &ServerCpu::default());
        let measured = measured.expect("every call succeeds");
        assert_eq!(measured.operations, 100);
        assert_eq!(measured.bytes, 100 * size as u64);
    }
    file.remove().expect("it is there");
    assert!(!names().contains(&131_072));
}

#[test]
fn loads_of_names_and_stable_writes_leave_nothing_behind() {
    let running = Running::start("");
    let client = client(&running);
    let file = TcpFile::make(&client, running.rpc(), 4096).expect("made");
    let mut tcp = file.load().expect("connects");
    tcp.set_idle_policy(IdlePolicy::Sleep);
    let mut engine = Engine::with(&client, lanes(NfsVersion::Three)).expect("connects");
    engine.set_idle_policy(IdlePolicy::Sleep);
    for (operation, size) in [
        (Operation::Lookup, 0),
        (Operation::Create, 0),
        (Operation::Write, 4096),
    ] {
        // An odd number, after which files are there.
        let workload = Workload {
            stable: true,
            until: Until::Count(61),
            ..Workload::new(operation, size, 4, Duration::ZERO)
        };
        let server = ServerCpu::default();
        let measured = [
            tcp.run(&workload, &server).expect("every call succeeds"),
            engine
                .run(&workload, &server, &mut |_| {})
                .expect("every call succeeds"),
        ];
        for measured in measured {
            let operations = measured.operations;
            match operation {
                Operation::Create => assert_eq!((operations % 2, operations > 61), (0, true)),
                _ => assert_eq!(operations, 61),
            }
        }
    }
    engine.finish().expect("ends in order");
    file.remove().expect("it is there");
    let exports = running.control().exports().expect("stores answer");
    assert_eq!(exports[0].files, Some(1), "the root alone");
}

#[test]
fn a_load_of_version_4_says_what_the_server_does_not_serve() {
    let running = Running::start("nfs4: { minor_versions: [1] }");
    let client = client(&running);
    let two = Engine::speaking(&client, NfsVersion::FourTwo, 1, 1, 1 << 20);
    let error = format!("{:#}", two.err().expect("not served"));
    assert!(error.contains("NFS4ERR_MINOR_VERS_MISMATCH"), "{error}");
    let deep = Engine::speaking(&client, NfsVersion::FourOne, 1, 1000, 1 << 20);
    let error = format!("{:#}", deep.err().expect("too deep"));
    assert!(error.contains("--depth: the server grants"), "{error}");
}

#[test]
fn hundreds_of_changes_under_load_lose_no_call_and_no_byte() {
    let running = Running::start("flow: { credits: 32 }");
    let client = client(&running);
    let over = AtomicBool::new(false);
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut engine = Engine::new(&client, 2, 16, 4 << 20).expect("connects");
            let workload = Workload {
                verify: true,
                random: true,
                until: Until::Count(CALLS),
                ..Workload::new(Operation::Mixed, 16 << 10, 16, Duration::ZERO)
            };
            let mut calls = 0;
            // As long as there are changes; a call that fails or is lost ends it.
            while !over.load(Ordering::Relaxed) {
                let measured = engine
                    .run(&workload, &ServerCpu::default(), &mut |_| {})
                    .expect("every call is answered");
                assert_eq!(measured.mismatches, 0);
                assert_eq!(measured.operations, CALLS);
                calls += measured.operations;
            }
            engine.finish().expect("ends in order");
            calls
        });
        let end = EndOfLoad(&over);
        for number in 0..CHANGES {
            if load.is_finished() {
                break;
            }
            running.change(|config| change(config, number));
            made.fetch_add(1, Ordering::Relaxed);
        }
        drop(end);
        let calls = load.join().expect("the load goes on to its end");
        assert!(calls >= CALLS);
    });
    assert_eq!(made.into_inner(), CHANGES);
}
