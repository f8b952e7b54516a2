//! Device resources used by a connection request before it is answered.

use std::time::Instant;

use crate::fabric::verbs::{Verbs, VerbsConfig};
use crate::fabric::{
    ConnectParameters, ControlPath, DataPath, Event, PrivateData, QueuePairId, QueuePairLimits,
};

use super::*;

const LIMITS: QueuePairLimits = QueuePairLimits {
    send_depth: 64,
    receive_depth: 64,
    ird: 4,
    ord: 4,
    exposures: 0,
    receive_size: 4096,
};

fn parameters() -> ConnectParameters {
    ConnectParameters {
        limits: LIMITS,
        private_data: PrivateData::new(),
    }
}

/// Turns of both providers until an event of the server, or of the client, matches.
fn until<T>([server, client]: [&mut Verbs; 2], mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
    loop {
        for provider in [&mut *server, &mut *client] {
            let mut events = Vec::with_capacity(64);
            provider.poll(Instant::now(), &mut events);
            provider.flush(Instant::now());
            if let Some(found) = events.iter().find_map(&mut is_it) {
                return found;
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn only_a_request_that_is_accepted_has_a_queue_pair() {
    if !has_device() {
        return;
    }
    let registry = Registry::new(HugepagePolicy::Off);
    let devices = Devices::open(&registry).expect("a device");
    let provider = || Verbs::new(&devices, VerbsConfig::default()).expect("a manager");
    let (mut server, mut client) = (provider(), provider());
    let listener = server
        .listen(SocketAddr::new(address(), 0), LIMITS, false)
        .expect("ours");
    let at = server.listener_address(listener).expect("bound");
    let has_queue_pair = |provider: &Verbs, id: QueuePairId| {
        let connection = provider.slots.get(id).expect("there");
        connection.queue_pair.is_some()
    };
    for accepts in [false, true] {
        client
            .connect(at, parameters(), Instant::now())
            .expect("begun");
        let asked = until([&mut server, &mut client], |event| match event {
            Event::ConnectRequest { queue_pair, .. } => Some(*queue_pair),
            _ => None,
        });
        assert!(!has_queue_pair(&server, asked), "before the answer");
        if accepts {
            server.accept(asked, parameters()).expect("asked");
            assert!(has_queue_pair(&server, asked));
        } else {
            server.reject(asked, &[]);
        }
        let is_accepted = until([&mut server, &mut client], |event| match event {
            Event::Established { .. } => Some(true),
            Event::Rejected { .. } => Some(false),
            _ => None,
        });
        assert_eq!(is_accepted, accepts);
    }
}
