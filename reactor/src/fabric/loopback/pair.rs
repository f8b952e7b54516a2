//! Two providers with one connection between them, and a manual clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::{Loopback, Network};
use crate::fabric::{
    ConnectParameters, ControlPath, DataPath, Event, ListenerId, PrivateData, QueuePairId,
    QueuePairLimits,
};

/// The number of rounds after which two sides with work are considered endless.
const ROUNDS_MAX: usize = 10_000;

/// A connection over loopback, for tests.
#[derive(Debug)]
pub struct Pair {
    /// The network between them.
    pub network: Network,
    /// The connecting side.
    pub client: Loopback,
    /// The accepting side.
    pub server: Loopback,
    /// The connection's identifier at the client.
    pub client_queue_pair: QueuePairId,
    /// The connection's identifier at the server.
    pub server_queue_pair: QueuePairId,
    /// The server's listener.
    pub listener: ListenerId,
    /// The time.
    pub now: Instant,
}

impl Pair {
    /// Limits that do not affect most tests.
    pub const LIMITS: QueuePairLimits = QueuePairLimits {
        send_depth: 64,
        receive_depth: 64,
        ird: 16,
        ord: 16,
        exposures: 64,
        receive_size: 4096,
    };

    /// Connects two new providers, with `client` and `server` as their limits.
    ///
    /// # Panics
    /// If the connection fails.
    pub fn connect(client: QueuePairLimits, server: QueuePairLimits) -> Self {
        let network = Network::new();
        let mut pair = Self {
            client: network.provider(),
            server: network.provider(),
            network,
            client_queue_pair: QueuePairId {
                index: 0,
                generation: 0,
            },
            server_queue_pair: QueuePairId {
                index: 0,
                generation: 0,
            },
            listener: ListenerId(0),
            now: Instant::now(),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        pair.listener = pair
            .server
            .listen(anywhere, server, false)
            .expect("a free port");
        let address = pair
            .server
            .listener_address(pair.listener)
            .expect("listening");
        let private_data = PrivateData::new();
        let parameters = ConnectParameters {
            limits: client,
            private_data: private_data.clone(),
        };
        pair.client_queue_pair = pair
            .client
            .connect(address, parameters, pair.now)
            .expect("never fails at once");
        let (_, events) = pair.settle();
        let [Event::ConnectRequest { queue_pair, .. }] = events[..] else {
            panic!("not a connection request: {events:?}");
        };
        pair.server_queue_pair = queue_pair;
        let parameters = ConnectParameters {
            limits: server,
            private_data,
        };
        pair.server
            .accept(queue_pair, parameters)
            .expect("just asked");
        let (client, server) = pair.settle();
        assert!(
            matches!(client[..], [Event::Established { .. }]),
            "{client:?}"
        );
        assert!(
            matches!(server[..], [Event::Established { .. }]),
            "{server:?}"
        );
        pair
    }

    /// Flushes and polls both sides until nothing more happens at this time. Returns the events of
    /// the client and of the server.
    ///
    /// # Panics
    /// If they never become idle.
    pub fn settle(&mut self) -> (Vec<Event>, Vec<Event>) {
        let (mut client, mut server) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS_MAX {
            let mut work = self.client.flush(self.now) + self.server.flush(self.now);
            client.reserve(64);
            server.reserve(64);
            work += self.client.poll(self.now, &mut client);
            work += self.server.poll(self.now, &mut server);
            if work == 0 {
                return (client, server);
            }
        }
        panic!("no rest");
    }

    /// Advances the time, then settles.
    pub fn pass(&mut self, time: Duration) -> (Vec<Event>, Vec<Event>) {
        self.now += time;
        self.settle()
    }

    /// Advances to the next time at which either side has work, then settles.
    pub fn jump(&mut self) -> (Vec<Event>, Vec<Event>) {
        let next = [self.client.next_deadline(), self.server.next_deadline()];
        self.now = next
            .into_iter()
            .flatten()
            .min()
            .map_or(self.now, |next| next.max(self.now));
        self.settle()
    }
}
