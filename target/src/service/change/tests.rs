//! Changes while a reactor is stuck.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use millrace_admin::config::{self, Access, Config, Cores};
use millrace_admin::control::Control;
use millrace_reactor::{ReactorHandle, allowed_cores};
use millrace_store::Time;
use millrace_wire::mount;
use millrace_wire::rpc::{CallHeader, Credential, OpaqueAuth, RecordMark};
use millrace_wire::xdr::{Encode, Encoder};

use super::ticket::{Change, ChangeDecision, ChangeTicket, Commit, ReactorAnswer};
use crate::rdma::FabricId;
use crate::rpcbind::{Offers, Registration, Rendezvous};
use crate::service::{ReactorMessage, Service, client_state, plan};

fn start() -> Service {
    let text = "reactors: { poll: adaptive }\n\
                mempool: { hugepages: off, size: 16MiB }\n\
                fabric: [{ provider: iwarp, listen: \"127.0.0.1:0\" }]\n\
                rpc: { listen: \"127.0.0.1:0\" }\n\
                exports: [{ path: /scratch, store: { kind: memory, size: 8MiB } }]\n";
    let mut config = config::parse(text, "test").expect("good");
    // Two reactors on any machine; with one core, both are on it.
    let cores = allowed_cores().into_iter().cycle().take(2).collect();
    config.reactors.cores = Cores::List(cores);
    let service = Service::start(Arc::new(config)).expect("starts");
    assert_eq!(service.reactors.len(), 2);
    service
}

/// Blocks the last reactor until the value is dropped.
fn hold(service: &Service) -> Sender<()> {
    let reactor = service.reactors.last().expect("there is one");
    let release = hold_next(reactor);
    // Taken when it is blocked.
    release.send(()).expect("the reactor turns");
    release
}

/// Blocks a reactor, once it receives this message, until the value is dropped.
fn hold_next(reactor: &ReactorHandle<ReactorMessage>) -> Sender<()> {
    let (release, held) = crossbeam_channel::bounded(0);
    assert!(reactor.send(ReactorMessage::Hold(held)).is_ok());
    release
}

/// Sends a change to all reactors for preparation.
fn ask(service: &Service, change: &Arc<Change>) -> Receiver<(usize, ReactorAnswer)> {
    let (sender, answers) = crossbeam_channel::bounded(2 * service.reactors.len());
    for (number, reactor) in service.reactors.iter().enumerate() {
        let ticket = ChangeTicket {
            change: Arc::clone(change),
            reactor: number,
            answers: sender.clone(),
        };
        assert!(reactor.send(ReactorMessage::Change(ticket)).is_ok());
    }
    for _ in &service.reactors {
        let (_, answer) = answers.recv().expect("an answer");
        assert!(matches!(answer, ReactorAnswer::Prepared(Ok(_))));
    }
    answers
}

/// An empty change, which is not decided yet.
fn no_change() -> Change {
    Change {
        listeners: Vec::new(),
        rpc: None,
        exports: None,
        made: Time::now(),
        devices: None,
        decision: OnceLock::new(),
    }
}

/// Commits a change that removes these listeners.
fn commit(service: &Service, change: &Change, removed: Vec<FabricId>) {
    let in_force = service.control().in_force();
    let config = &in_force.config;
    let decided = change.decision.set(ChangeDecision::Commit(Box::new(Commit {
        settings: plan::settings(config),
        poll: plan::poll_mode(&config.reactors),
        arenas: Vec::new(),
        offers: None,
        removed,
        state_terms: client_state::terms(&config.nfs4),
        limits: Vec::new(),
    })));
    assert!(decided.is_ok());
}

/// The configuration with a change of every kind.
fn changed(service: &Service, added: SocketAddr) -> Arc<Config> {
    let mut next = (*service.control().config()).clone();
    next.flow.credits = 3;
    next.mempool.size = config::ByteSize::mib(32);
    next.exports[0].access = Access::Ro;
    next.exports[0].path = "/other".to_owned();
    next.limits = vec![config::ClientLimits {
        clients: vec!["127.0.0.1/32".parse().expect("a network")],
        iops: Some(100_000),
        bandwidth: None,
    }];
    next.fabric.push(config::Fabric {
        listen: added,
        ..config::Fabric::default()
    });
    Arc::new(next)
}

fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}

/// The status of a MNT, over a connection of its own.
fn mount(address: SocketAddr, path: &str) -> u32 {
    let mut call = vec![0; 512];
    let mut out = Encoder::new(&mut call);
    let header = CallHeader {
        xid: 1,
        program: mount::PROGRAM,
        version: mount::VERSION,
        procedure: mount::Procedure::Mount.number(),
        credential: Credential::None,
        verifier: OpaqueAuth::NONE,
    };
    out.u32(0).expect("room");
    header.encode(&mut out).expect("room");
    mount::Path(path.as_bytes()).encode(&mut out).expect("room");
    let length = out.position();
    let mark = RecordMark::whole(length - 4).expect("short");
    call[..4].copy_from_slice(&mark.to_bytes());
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(&call[..length]).expect("sent");
    let mut reply = [0; 32];
    stream.read_exact(&mut reply).expect("an answer");
    // Behind the mark and six words of an accepted reply.
    u32::from_be_bytes(reply[28..].try_into().expect("a word"))
}

/// The results of two exports for some connections, which are spread over the reactors.
fn seen(service: &Service) -> Vec<(u32, u32)> {
    let rpc = service.addresses().rpc.expect("listens");
    (0..4)
        .map(|_| (mount(rpc, "/scratch"), mount(rpc, "/other")))
        .collect()
}

/// The rate limit of the one client, which is known while it is connected.
fn iops(service: &Service) -> Option<u64> {
    loop {
        if let [client] = service.control().clients.usage().present.as_slice() {
            return client.rates.iops;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_stuck_reactor_ends_a_change_for_all_and_finds_nothing_changed() {
    let service = start();
    let control = service.control();
    let (before, added) = (control.config(), free());
    let rpc = service.addresses().rpc.expect("listens");
    let _client = TcpStream::connect(rpc).expect("connects");
    assert_eq!(iops(&service), None);
    let release = hold(&service);
    let error = control
        .apply(changed(&service, added))
        .expect_err("one does not answer");
    assert_eq!(error.path, "reactors");
    let stuck = error.reactors.last().expect("one for each");
    assert!(error.reason.contains(&stuck.name) && stuck.error.is_some());
    assert!(error.reactors.iter().all(|one| !one.applied));
    assert_eq!(control.config(), before);
    assert_eq!(control.listeners().expect("told").len(), 2);
    assert_eq!(iops(&service), None);
    // It wakes, and finds the aborted change in its mailbox.
    drop(release);
    assert_eq!(seen(&service), [(0, 2); 4]);
    for parts in &control.parts {
        let large = parts.pool.class(millrace_mempool::Class::Large);
        assert!(large.capacity() <= 16, "no memory was added");
    }
    assert!(TcpStream::connect(added).is_err(), "nothing listens there");
    // The same change is possible now.
    let applied = control.apply(changed(&service, added)).expect("all answer");
    assert!(applied.reactors.iter().all(|one| one.applied));
    assert_eq!(applied.pending, [""; 0]);
    assert_eq!(iops(&service), Some(100_000));
    assert_eq!(seen(&service), [(2, 0); 4]);
    TcpStream::connect(added).expect("listens");
    service.drain(Duration::ZERO);
}

#[test]
fn a_reactor_whose_mailbox_is_full_ends_a_change_for_all() {
    let service = start();
    let control = service.control();
    let before = control.config();
    let release = hold(&service);
    let reactor = service.reactors.last().expect("there is one");
    while reactor.send(ReactorMessage::Retire(Vec::new())).is_ok() {}
    let error = control
        .apply(changed(&service, free()))
        .expect_err("one takes no messages");
    assert_eq!(error.path, "reactors");
    assert!(error.reason.contains("does not accept messages"), "{error}");
    assert_eq!(control.config(), before);
    drop(release);
    // While the mailbox is full, connections are not handed over either.
    while control.ask_all(ReactorMessage::Progress).is_err() {}
    assert_eq!(seen(&service), [(0, 2); 4]);
    service.drain(Duration::ZERO);
}

#[test]
fn a_reactor_that_is_stuck_between_the_steps_follows_once_it_turns() {
    let service = start();
    let change = Arc::new(Change {
        exports: Some(Vec::new()),
        ..no_change()
    });
    let answers = ask(&service, &change);
    assert_eq!(seen(&service), [(0, 2); 4], "nothing is decided");
    let release = hold(&service);
    commit(&service, &change, Vec::new());
    drop(release);
    for reactor in &service.reactors {
        reactor.alarm().ring();
    }
    for _ in &service.reactors {
        let (_, answer) = answers.recv().expect("an answer");
        assert!(matches!(answer, ReactorAnswer::Applied));
    }
    assert_eq!(seen(&service), [(2, 2); 4]);
    service.drain(Duration::ZERO);
}

#[test]
fn a_connection_that_arrives_while_its_listener_goes_is_served() {
    let service = start();
    let change = Arc::new(no_change());
    let answers = ask(&service, &change);
    let listener = service.control().in_force().listeners[0].clone();
    // The first reactor accepts, and checks its mailbox several times before it has finished.
    let reactor = &service.reactors[0];
    let (sender, _reports) = crossbeam_channel::unbounded();
    let batch = || {
        for _ in 0..64 {
            let report = ReactorMessage::Status(sender.clone());
            assert!(reactor.send(report).is_ok());
        }
    };
    let first = hold_next(reactor);
    first.send(()).expect("the reactor turns");
    batch();
    let second = hold_next(reactor);
    batch();
    let mut client = TcpStream::connect(listener.address).expect("connects");
    drop(first);
    second.send(()).expect("the reactor turns");
    // The connection is accepted by now.
    commit(&service, &change, vec![listener.id]);
    drop(second);
    for reactor in &service.reactors {
        reactor.alarm().ring();
    }
    for _ in &service.reactors {
        let (_, answer) = answers.recv().expect("an answer");
        assert!(matches!(answer, ReactorAnswer::Applied));
    }
    // A request of revision 1 with CRC, and without private data (RFC 5044 section 7.1.1).
    client
        .write_all(b"MPA ID Req Frame\x40\x01\x00\x00")
        .expect("sent");
    let mut reply = [0; 16];
    client.read_exact(&mut reply).expect("an answer");
    assert_eq!(&reply, b"MPA ID Rep Frame");
    service.drain(Duration::ZERO);
}

#[test]
fn a_port_that_a_listener_has_until_it_goes_is_told_as_that() {
    let service = start();
    let control = service.control();
    let bound = service.addresses().fabric[0];
    let mut next = (*control.config()).clone();
    // Another address, so its socket is not taken over; and the port is not free yet.
    next.fabric[0].listen = SocketAddr::from(([0, 0, 0, 0], bound.port()));
    let error = control.apply(Arc::new(next)).expect_err("it is in use");
    assert_eq!(error.path, "fabric[0].listen");
    let words = format!("the listener at {bound} uses the port: remove it first");
    assert!(error.reason.contains(&words), "{error}");
    // The port of a program that has nothing to do with it.
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut next = (*control.config()).clone();
    next.fabric[0].listen = other.local_addr().expect("bound");
    let error = control.apply(Arc::new(next)).expect_err("it is in use");
    assert!(!error.reason.contains("remove it first"), "{error}");
    TcpStream::connect(bound).expect("it listens as before");
    service.drain(Duration::ZERO);
}

#[test]
fn exports_that_a_reactor_cannot_serve_are_no_part_of_a_change() {
    let service = start();
    let control = service.control();
    let in_force = control.in_force();
    let served = in_force.exports.as_slice();
    let (sender, answers) = crossbeam_channel::bounded(1);
    let change = Arc::new(Change {
        listeners: Vec::new(),
        rpc: None,
        exports: Some([served, served].concat()),
        made: Time::now(),
        devices: None,
        decision: OnceLock::new(),
    });
    let ticket = ChangeTicket {
        change,
        reactor: 0,
        answers: sender,
    };
    assert!(
        service.reactors[0]
            .send(ReactorMessage::Change(ticket))
            .is_ok()
    );
    match answers.recv().expect("an answer") {
        (0, ReactorAnswer::Prepared(Err(refused))) => assert_eq!(refused.path, "exports"),
        (_, answer) => panic!("{answer:?}"),
    }
    assert_eq!(seen(&service), [(0, 2); 4]);
    service.drain(Duration::ZERO);
}

#[test]
fn what_a_change_leaves_outside_of_reactors_is_told() {
    let service = start();
    let control = service.control();
    let nowhere = vec![Rendezvous::Tcp(free())];
    let registration = Registration::start(nowhere, Offers::default(), Vec::new());
    control.lock_changes().registration = Some(registration.expect("there are threads"));
    control.on_log_filter(Box::new(|_| Err("nothing writes it".to_owned())));
    let mut next = (*changed(&service, free())).clone();
    next.rpc.rpcbind = config::Rpcbind::Register;
    next.log = "debug".to_owned();
    let applied = control.apply(Arc::new(next)).expect("reactors answer");
    assert!(applied.reactors.iter().all(|one| one.applied));
    let expected = [
        "log: the filter is unchanged: nothing writes it",
        "rpc.rpcbind: the new addresses are not registered with the port mapper of this host: no port \
         mapper answers",
    ];
    assert_eq!(applied.pending, expected);
    service.drain(Duration::ZERO);
}
