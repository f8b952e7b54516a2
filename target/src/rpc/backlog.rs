//! Calls that wait, to be begun or to go on: the clients in turn, and each client's connections in
//! turn.

use std::collections::VecDeque;
use std::rc::Rc;

use super::connection::ConnectionRef;
use crate::flow::ClientShare;

/// Calls that wait, or tasks with calls.
pub struct Backlog<T> {
    /// Clients with calls that wait, the next one first.
    clients: VecDeque<ClientCalls<T>>,
    /// Lists without calls, to be used again.
    spare: Vec<VecDeque<T>>,
}

/// The calls of one client.
struct ClientCalls<T> {
    client: Rc<ClientShare>,
    calls: usize,
    /// Connections with calls that wait, the next one first.
    connections: VecDeque<(ConnectionRef, VecDeque<T>)>,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            clients: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl<T> Backlog<T> {
    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.clients.iter().map(|client| client.calls).sum()
    }

    /// How many calls of each client wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&Rc<ClientShare>, usize)> {
        let clients = self.clients.iter();
        clients.map(|client| (&client.client, client.calls))
    }

    /// Whether calls of this client wait, so that its next one has to wait behind them.
    pub fn holds(&self, client: &Rc<ClientShare>) -> bool {
        self.position(client).is_some()
    }

    fn position(&self, client: &Rc<ClientShare>) -> Option<usize> {
        let is_same = |other: &ClientCalls<T>| Rc::ptr_eq(&other.client, client);
        self.clients.iter().position(is_same)
    }

    /// Puts a call behind the others of its connection.
    pub fn push(&mut self, connection: &ConnectionRef, call: T) {
        let at = self.position(connection.share()).unwrap_or_else(|| {
            self.clients.push_back(ClientCalls::of(connection.share()));
            self.clients.len() - 1
        });
        let Self { clients, spare } = self;
        let client = &mut clients[at];
        client.calls += 1;
        let mut connections = client.connections.iter_mut();
        match connections.find(|(other, _)| other == connection) {
            Some((_, calls)) => calls.push_back(call),
            None => {
                let connection = connection.clone();
                let mut calls = spare.pop().unwrap_or_default();
                calls.push_back(call);
                client.connections.push_back((connection, calls));
            }
        }
    }

    /// Takes the next call of the next client that `may` have one served. Clients take turns, and
    /// so do the connections of a client: both move to the end of their queue.
    pub fn pop(&mut self, may: impl Fn(&ClientShare) -> bool) -> Option<T> {
        let at = self.clients.iter().position(|client| may(&client.client))?;
        let mut client = self.clients.remove(at)?;
        let (connection, mut calls) = client.connections.pop_front()?;
        let call = calls.pop_front();
        client.calls -= 1;
        if calls.is_empty() {
            self.spare.push(calls);
        } else {
            client.connections.push_back((connection, calls));
        }
        if client.calls > 0 {
            self.clients.push_back(client);
        }
        call
    }

    /// Puts back a call that was taken and found no task: it is the next one again.
    pub fn put_back(&mut self, connection: &ConnectionRef, call: T) {
        let at = self.position(connection.share());
        let mut client = at
            .and_then(|at| self.clients.remove(at))
            .unwrap_or_else(|| ClientCalls::of(connection.share()));
        let mut others = client.connections.iter();
        let at = others.position(|(other, _)| other == connection);
        let calls = at.and_then(|at| client.connections.remove(at));
        let mut calls = match calls {
            Some((_, calls)) => calls,
            None => self.spare.pop().unwrap_or_default(),
        };
        calls.push_front(call);
        client.calls += 1;
        client.connections.push_front((connection.clone(), calls));
        self.clients.push_front(client);
    }

    /// Removes the calls of a connection that has ended: their client sends them again.
    pub fn leave(&mut self, connection: &ConnectionRef, mut left: impl FnMut(T)) {
        for client in &mut self.clients {
            let is_same = |(other, _): &(ConnectionRef, _)| other == connection;
            let at = client.connections.iter().position(is_same);
            if let Some((_, mut calls)) = at.and_then(|at| client.connections.remove(at)) {
                client.calls -= calls.len();
                calls.drain(..).for_each(&mut left);
                self.spare.push(calls);
            }
        }
        self.clients.retain(|client| client.calls > 0);
    }

    /// Removes all calls.
    pub fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        let clients = std::mem::take(&mut self.clients).into_iter();
        let connections = clients.flat_map(|client| client.connections);
        connections.flat_map(|(_, calls)| calls)
    }
}

impl<T> ClientCalls<T> {
    fn of(client: &Rc<ClientShare>) -> Self {
        Self {
            client: Rc::clone(client),
            calls: 0,
            connections: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::time::Instant;

    use millrace_mempool::{Class, HugepagePolicy, Pool, PoolConfig, Registry};
    use millrace_reactor::Clock;

    use super::*;
    use crate::call::{Peer, TransportKind};
    use crate::flow::Flow;

    /// A call: its connection, and which of the connection's calls it is.
    struct NumberedCall(ConnectionRef, u32);

    fn flow() -> Flow {
        let registry = Registry::new(HugepagePolicy::Off);
        let pool = Pool::new(&registry, PoolConfig { bytes: 8 << 20 }).unwrap();
        Flow::of_one_reactor(&pool, Class::Control, &Clock::new(Instant::now()))
    }

    /// Calls of a client: `calls` of each of so many connections, one connection after the other,
    /// each with its number as port.
    fn push(
        backlog: &mut Backlog<NumberedCall>,
        flow: &Flow,
        client: u8,
        connections: u16,
        calls: u32,
    ) {
        let share = flow.client(IpAddr::from([10, 0, 0, client]));
        for port in 0..connections {
            let address = SocketAddr::new(share.record().address(), port);
            let peer = Peer::new(address, TransportKind::Rdma);
            let connection = ConnectionRef::new(flow, Rc::clone(&share), peer, Instant::now());
            for call in 0..calls {
                backlog.push(&connection, NumberedCall(connection.clone(), call));
            }
        }
    }

    fn last_octet(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => panic!("an IPv4 address"),
        }
    }

    fn is(share: &ClientShare, client: u8) -> bool {
        last_octet(share.record().address()) == client
    }

    /// Client, connection and number of a call.
    fn numbers(call: &NumberedCall) -> (u8, u16, u32) {
        let peer = call.0.peer();
        (last_octet(peer.address), peer.port, call.1)
    }

    #[test]
    fn a_client_with_200_connections_has_no_more_calls_started_than_one_with_one() {
        let (flow, mut backlog) = (flow(), Backlog::default());
        push(&mut backlog, &flow, 1, 200, 8);
        push(&mut backlog, &flow, 2, 1, 8);
        let mut next = || backlog.pop(|_| true).map(|call| numbers(&call));
        for turn in 0..8 {
            assert_eq!(next(), Some((1, turn, 0)));
            assert_eq!(next(), Some((2, 0, u32::from(turn))));
        }
        // From here on the other client has nothing left, and each connection has one turn.
        for turn in 8..1600 {
            assert_eq!(next(), Some((1, turn % 200, u32::from(turn / 200))));
        }
        assert_eq!(next(), None);
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_call_that_is_put_back_is_the_next_one() {
        let (flow, mut backlog) = (flow(), Backlog::default());
        push(&mut backlog, &flow, 1, 2, 2);
        push(&mut backlog, &flow, 2, 1, 1);
        for _ in 0..3 {
            let call = backlog.pop(|_| true).unwrap();
            assert_eq!(numbers(&call), (1, 0, 0));
            backlog.put_back(&call.0.clone(), call);
            assert_eq!(backlog.len(), 5);
        }
        let mut order = Vec::new();
        while let Some(call) = backlog.pop(|_| true) {
            order.push(numbers(&call));
        }
        assert_eq!(
            order,
            [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]
        );
    }

    #[test]
    fn a_connection_takes_its_calls_along() {
        let (flow, mut backlog) = (flow(), Backlog::default());
        push(&mut backlog, &flow, 1, 3, 4);
        let call = backlog.pop(|share| is(share, 1)).unwrap();
        assert!(backlog.pop(|share| is(share, 2)).is_none());
        let mut left = Vec::new();
        backlog.leave(&call.0, |call| left.push(numbers(&call)));
        assert_eq!(left, [(1, 0, 1), (1, 0, 2), (1, 0, 3)]);
        assert_eq!((backlog.len(), backlog.take().count()), (8, 8));
        assert!(backlog.is_empty());
    }
}
