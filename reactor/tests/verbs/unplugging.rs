//! Devices that are unplugged under their connections.

use std::process::Command;

use millrace_mempool::{HugepagePolicy, Registry};
use millrace_reactor::fabric::verbs::{Devices, Transport};
use millrace_reactor::fabric::{ControlPath, Ended, Event};

use crate::pair::{LIMITS, SEND, disconnected, local, parameters, request};
use crate::{alone_with_software_devices, plain};

/// The software device on eth0: its name and kind.
fn device() -> (String, &'static str) {
    let devices = Devices::open(&Registry::new(HugepagePolicy::Off)).expect("a device");
    let report = devices.report().remove(0);
    let kind = match report.transport {
        Transport::Iwarp => "siw",
        Transport::Roce | Transport::InfiniBand => "rxe",
    };
    (report.name, kind)
}

#[test]
fn connections_end_with_their_device_and_the_listener_comes_back_with_it() {
    let Some(_alone) = alone_with_software_devices() else {
        return;
    };
    let (name, kind) = device();
    let mut pair = plain();
    for token in 0..10 {
        let slice = pair.client.pattern(3000, 1);
        pair.client
            .post(pair.here, vec![request(token, SEND, local([slice]))]);
    }
    // The kernel waits until all has been let go of.
    let mut unplug = Command::new("rdma")
        .args(["link", "delete", &name])
        .spawn()
        .expect("iproute2");
    let (mut here, mut there) = (None, None);
    pair.until(|pair| {
        here = here.take().or_else(|| pair.client.take(disconnected));
        there = there.take().or_else(|| pair.server.take(disconnected));
        (here.is_some() && there.is_some()).then_some(())
    });
    for reason in [here, there].into_iter().flatten() {
        assert!(
            matches!(reason, Ended::Network(_) | Ended::Peer),
            "{reason:?}"
        );
    }
    let status = pair.until(|_| unplug.try_wait().expect("a child"));
    assert!(status.success());
    pair.client.events.clear();
    pair.server.events.clear();
    let status = Command::new("rdma")
        .args(["link", "add", &name, "type", kind, "netdev", "eth0"])
        .status();
    assert!(status.expect("iproute2").success());
    // Until it listens again nobody answers, and until all is registered it rejects what comes.
    let at = pair
        .server
        .provider
        .listener_address(pair.listener)
        .expect("it listens or will again");
    let mut asking = None;
    pair.until(|pair| {
        let now = std::time::Instant::now();
        let is_over = |event: &Event| {
            matches!(event, Event::Disconnected { .. } | Event::Rejected { .. }).then_some(())
        };
        if pair.client.take(is_over).is_some() {
            asking = None;
        }
        if asking.is_none() {
            asking = pair
                .client
                .provider
                .connect(at, parameters(LIMITS, b"again"), now)
                .ok();
        }
        pair.server
            .take(|event| matches!(event, Event::ConnectRequest { .. }).then_some(()))
    });
}
