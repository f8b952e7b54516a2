//! Listeners that come and go under their connections.

use std::net::{SocketAddr, TcpListener};

use millrace_admin::config::{Access, CrcPolicy, Fabric, Switch};
use millrace_admin::control::Control;
use millrace_admin::metrics::Metrics;
use millrace_admin::status::ListenerStatus;

use super::running::{Client, Running, sum};

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A port that nobody has just now.
fn free() -> SocketAddr {
    let listener = TcpListener::bind(any()).expect("a free port");
    listener.local_addr().expect("bound")
}

fn fabric(listen: SocketAddr) -> Fabric {
    Fabric {
        listen,
        ..Fabric::default()
    }
}

fn listeners(running: &Running) -> Vec<ListenerStatus> {
    running.control().listeners().expect("reactors answer")
}

#[test]
fn a_listener_comes_and_when_it_goes_its_connections_live_on() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let address = free();
    running.change(|config| config.fabric.push(fabric(address)));
    assert_eq!(running.fabric(1), address);
    let mut clients = [running.client(1), running.client(1), running.client(0)];
    let file = clients[0].create(root, "file", b"content");

    running.change(|config| config.fabric.truncate(1));
    assert!(Client::connect(address, 1).is_err());
    for client in &mut clients {
        assert_eq!(client.read(file, 7).expect("served"), b"content");
    }
    let all = listeners(&running);
    let gone = all.iter().find(|one| one.address == address.to_string());
    let gone = gone.expect("it has connections yet");
    assert_eq!((gone.index, gone.accepting), (None, false));
    assert_eq!((gone.connections, gone.accepted), (2, 2));

    // Another at the same address is another one.
    running.change(|config| config.fabric.insert(0, fabric(address)));
    assert_eq!(running.fabric(0), address);
    let mut another = running.client(0);
    assert_eq!(another.read(file, 7).expect("served"), b"content");
    for client in &mut clients {
        assert_eq!(client.read(file, 7).expect("served"), b"content");
    }
    let [first, second, third] = clients;
    drop((first, second));
    running.until("the last connections have ended", |running| {
        listeners(running).len() == 3
    });
    let mut third = third;
    assert_eq!(third.read(file, 7).expect("served"), b"content");
}

#[test]
fn a_listener_changes_in_place_at_the_same_address() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let address = running.fabric(0);
    let mut before = running.client(0);
    let file = before.create(root, "file", b"content");
    for crc in [CrcPolicy::Required, CrcPolicy::Off, CrcPolicy::Auto] {
        running.change(|config| config.fabric[0].crc = Some(crc));
        assert_eq!(running.fabric(0), address);
        let mut after = running.client(0);
        for client in [&mut before, &mut after] {
            assert_eq!(client.read(file, 7).expect("served"), b"content");
        }
    }
    // Classic mode is of connections, so the listener stays.
    let accepted = listeners(&running)[0].accepted;
    running.change(|config| config.fabric[0].read_chunk_replies = Some(Switch::On));
    let mut classic = running.client(0);
    assert_eq!(classic.read(file, 7).expect("served"), b"content");
    assert_eq!(listeners(&running)[0].accepted, accepted + 1);
}

#[test]
fn a_port_that_is_taken_leaves_everything_as_it_was() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let mut client = running.client(0);
    let taken = TcpListener::bind(any()).expect("a free port");
    let address = taken.local_addr().expect("bound");
    let before = listeners(&running);
    let added = free();
    let refused = running
        .try_change(|config| {
            config.exports[0].access = Access::Ro;
            config.flow.credits = 2;
            config.fabric.remove(0);
            config.fabric.push(fabric(added));
            config.fabric.push(fabric(address));
        })
        .expect_err("the port is taken");
    assert_eq!(refused.path, "fabric[1].listen");
    assert!(refused.reason.contains(&address.to_string()));
    assert!(refused.reactors.iter().all(|one| !one.applied));
    assert!(refused.reactors[0].error.is_some());
    client.create(root, "file", b"written");
    assert_eq!(listeners(&running)[0].address, before[0].address);
    drop(running.client(0));
    assert!(Client::connect(added, 1).is_err(), "given up, too");

    let refused = running
        .try_change(|config| config.rpc.listen = address)
        .expect_err("the port is taken");
    assert_eq!(refused.path, "rpc.listen");
    assert_eq!(running.rpc().to_string(), before[1].address);
    running.mount("/scratch").expect("still there");
    drop(taken);
    running.change(|config| config.rpc.listen = address);
    assert_eq!(running.rpc(), address);
    running.mount("/scratch").expect("there now");
}

#[test]
fn counters_never_fall_when_listeners_go() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    let metrics = Metrics::new();
    metrics.register(running.service().control());
    let accepted = || {
        sum(
            &metrics.render().expect("text"),
            "millrace_fabric_frames_total",
        )
    };
    let mut last = 0.0;
    for round in 0..4 {
        let address = free();
        running.change(|config| config.fabric.push(fabric(address)));
        let mut client = running.client(1);
        client.create(root, &format!("file{round}"), b"content");
        running.change(|config| config.fabric.truncate(1));
        drop(client);
        running.until("the connection has ended", |running| {
            listeners(running).len() == 2
        });
        let now = accepted();
        assert!(now > last, "{now} after {last}");
        last = now;
    }
}
