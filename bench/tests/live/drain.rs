//! Draining on request, and serving again.

use millrace_admin::config::{Fabric, Limits};
use millrace_admin::control::{Control, ControlError};
use millrace_admin::status::{DrainOrder, DrainPhase, DrainStatus, Readiness};

use super::running::{Client, Running};

fn order(deadline_seconds: f64) -> DrainOrder {
    DrainOrder { deadline_seconds }
}

fn status(running: &Running) -> DrainStatus {
    running.control().drain_status().expect("reactors answer")
}

fn drained(running: &Running) {
    running.until("it is drained", |running| {
        status(running).phase == DrainPhase::Drained
    });
}

#[test]
fn a_drain_ends_idle_connections_and_cancelling_it_serves_again() {
    let running = Running::start("");
    let root = running.mount("/scratch").expect("mounted");
    assert_eq!(status(&running).phase, DrainPhase::Serving);
    let (fabric, rpc) = (running.fabric(0), running.rpc());
    for round in 0..3 {
        let mut clients = [running.client(0), running.client(0)];
        let name = format!("file{round}");
        let file = clients[0].create(root, &name, b"content");
        running.control().drain(order(60.0)).expect("drains");
        assert_eq!(running.control().readiness(), Readiness::Draining);
        running.until("it is drained", |running| {
            // Both ends close.
            clients.iter_mut().for_each(Client::turn);
            status(running).phase == DrainPhase::Drained
        });
        let now = status(&running);
        assert_eq!((now.connections, now.remaining_seconds), (0, None));
        assert!(Client::connect(fabric, 1).is_err(), "nothing listens");
        assert!(running.mount("/scratch").is_err());
        assert!(clients.iter_mut().all(|one| one.session.null().is_err()));
        let listeners = running.control().listeners().expect("reactors answer");
        assert!(listeners.iter().all(|one| !one.accepting));

        let served = running.control().cancel_drain().expect("listens again");
        assert_eq!(served.phase, DrainPhase::Serving);
        assert_eq!(running.control().readiness(), Readiness::Ready);
        assert_eq!((running.fabric(0), running.rpc()), (fabric, rpc));
        let mut clients = [running.client(0), running.client(0)];
        for client in &mut clients {
            assert_eq!(client.read(file, 7).expect("served"), b"content");
        }
        running.mount("/scratch").expect("mounted");
    }
}

/// A limit of one call a second, and a client with calls that wait for it.
fn stuck(running: &Running) -> Client {
    let root = running.mount("/scratch").expect("mounted");
    let mut client = Client::connect(running.fabric(0), 4).expect("connects");
    client.session.null().expect("served");
    running.change(|config| {
        config.exports[0].limits = Some(Limits {
            iops: Some(1),
            bandwidth: None,
        });
    });
    client.submit_getattrs(root, 4);
    running.until("calls are in service", |running| {
        client.turn();
        let list = running.control().connections().expect("reactors answer");
        list.iter().any(|one| one.requests_in_flight > 0)
    });
    client
}

#[test]
fn calls_in_service_are_waited_for_until_the_deadline() {
    let running = Running::start("");
    let mut client = stuck(&running);
    let began = running.control().drain(order(3600.0)).expect("drains");
    assert_eq!(began.phase, DrainPhase::Draining);
    assert!(began.requests_in_flight > 0 && began.connections > 0);
    assert!(began.remaining_seconds.is_some_and(|left| left > 3000.0));
    // A new deadline takes the place of the old one.
    running.control().drain(order(0.0)).expect("drains");
    running.until("it is drained", |running| {
        client.turn();
        status(running).phase == DrainPhase::Drained
    });
    assert!(client.session.null().is_err());
}

#[test]
fn calls_in_service_are_answered_before_their_connection_ends() {
    let running = Running::start("");
    let mut client = stuck(&running);
    running.control().drain(order(3600.0)).expect("drains");
    running.change(|config| config.exports[0].limits = None);
    running.until("it is drained", |running| {
        client.turn();
        status(running).phase == DrainPhase::Drained
    });
    assert_eq!(client.answered, 4);
}

#[test]
fn nothing_listens_anew_during_a_drain() {
    let running = Running::start("");
    running.control().drain(order(60.0)).expect("drains");
    let refused = running
        .try_change(|config| {
            config.fabric.push(Fabric {
                listen: std::net::SocketAddr::from(([127, 0, 0, 2], 0)),
                ..Fabric::default()
            });
        })
        .expect_err("it drains");
    assert_eq!(refused.path, "fabric");
    running.change(|config| config.flow.credits = 7);
    running.control().cancel_drain().expect("listens again");
    running.client(0).session.null().expect("served");
}

#[test]
fn an_address_that_is_lost_meanwhile_is_told_and_the_drain_stays() {
    let running = Running::start("");
    let address = running.fabric(0);
    running.control().drain(order(60.0)).expect("drains");
    drained(&running);
    let taken = std::net::TcpListener::bind(address).expect("nobody listens there");
    let refused = running.control().cancel_drain();
    let Err(ControlError::Unavailable(reason)) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains(&address.to_string()), "{reason}");
    assert_eq!(running.control().readiness(), Readiness::Draining);
    assert_eq!(status(&running).phase, DrainPhase::Drained);
    drop(taken);
    running.control().cancel_drain().expect("listens again");
    running.client(0).session.null().expect("served");
}

#[test]
fn the_service_stops_during_and_after_a_drain() {
    for deadline in [0.0, 3600.0] {
        let running = Running::start("");
        let client = running.client(0);
        running.control().drain(order(deadline)).expect("drains");
        let control = running.control();
        // Stops, and waits for the reactors' end.
        drop(running);
        drop(client);
        assert!(matches!(
            control.drain(order(1.0)),
            Err(ControlError::Conflict(_))
        ));
        assert!(matches!(
            control.cancel_drain(),
            Err(ControlError::Conflict(_))
        ));
    }
}
