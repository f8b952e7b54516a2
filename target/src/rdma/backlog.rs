//! Calls that wait for a task: the clients in turn, and each client's connections in turn.

use std::collections::VecDeque;
use std::rc::Rc;

use super::{Arrived, Connection};
use crate::flow::Tenant;

/// A call that can wait.
pub trait WaitingCall {
    /// What clients are known by.
    type Client;
    /// What connections are known by.
    type Connection;

    /// The client that sent it.
    fn client(&self) -> &Rc<Self::Client>;

    /// The connection that it came by.
    fn connection(&self) -> &Rc<Self::Connection>;
}

impl WaitingCall for Arrived {
    type Client = Tenant;
    type Connection = Connection;

    fn client(&self) -> &Rc<Tenant> {
        self.connection.tenant()
    }

    fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }
}

/// Calls that wait for a task.
pub struct Backlog<T: WaitingCall = Arrived> {
    /// Clients with calls that wait, the next one first.
    clients: VecDeque<ClientCalls<T>>,
    /// Lists without calls, to be used again.
    spare: Vec<VecDeque<T>>,
}

/// The calls of one client.
struct ClientCalls<T: WaitingCall> {
    client: Rc<T::Client>,
    calls: usize,
    /// Connections with calls that wait, the next one first.
    connections: VecDeque<(Rc<T::Connection>, VecDeque<T>)>,
}

impl<T: WaitingCall> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            clients: VecDeque::new(),
            spare: Vec::new(),
        }
    }
}

impl<T: WaitingCall> Backlog<T> {
    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.clients.iter().map(|client| client.calls).sum()
    }

    /// How many calls of each client wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&Rc<T::Client>, usize)> {
        let clients = self.clients.iter();
        clients.map(|client| (&client.client, client.calls))
    }

    /// Whether calls of this client wait, so that its next one has to wait behind them.
    pub fn holds(&self, client: &Rc<T::Client>) -> bool {
        self.position(client).is_some()
    }

    fn position(&self, client: &Rc<T::Client>) -> Option<usize> {
        let is_same = |other: &ClientCalls<T>| Rc::ptr_eq(&other.client, client);
        self.clients.iter().position(is_same)
    }

    /// Puts a call behind the others of its connection.
    pub fn push(&mut self, call: T) {
        let at = self.position(call.client()).unwrap_or_else(|| {
            self.clients.push_back(ClientCalls::of(call.client()));
            self.clients.len() - 1
        });
        let Self { clients, spare } = self;
        let client = &mut clients[at];
        client.calls += 1;
        let connection = call.connection();
        let mut connections = client.connections.iter_mut();
        match connections.find(|(other, _)| Rc::ptr_eq(other, connection)) {
            Some((_, calls)) => calls.push_back(call),
            None => {
                let connection = Rc::clone(connection);
                let mut calls = spare.pop().unwrap_or_default();
                calls.push_back(call);
                client.connections.push_back((connection, calls));
            }
        }
    }

    /// Takes the next call of the next client that `may` have one served: that of the connection
    /// whose turn it is. The client then comes after all others, and the connection after all
    /// others of the client.
    pub fn pop(&mut self, may: impl Fn(&T::Client) -> bool) -> Option<T> {
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
    pub fn put_back(&mut self, call: T) {
        let at = self.position(call.client());
        let mut client = at
            .and_then(|at| self.clients.remove(at))
            .unwrap_or_else(|| ClientCalls::of(call.client()));
        let connection = Rc::clone(call.connection());
        let mut others = client.connections.iter();
        let at = others.position(|(other, _)| Rc::ptr_eq(other, &connection));
        let calls = at.and_then(|at| client.connections.remove(at));
        let mut calls = match calls {
            Some((_, calls)) => calls,
            None => self.spare.pop().unwrap_or_default(),
        };
        calls.push_front(call);
        client.calls += 1;
        client.connections.push_front((connection, calls));
        self.clients.push_front(client);
    }

    /// Takes out the calls of a connection that has ended: their client sends them again.
    pub fn leave(&mut self, connection: &Rc<T::Connection>, mut left: impl FnMut(T)) {
        for client in &mut self.clients {
            let is_same = |(other, _): &(Rc<_>, _)| Rc::ptr_eq(other, connection);
            let at = client.connections.iter().position(is_same);
            if let Some((_, mut calls)) = at.and_then(|at| client.connections.remove(at)) {
                client.calls -= calls.len();
                calls.drain(..).for_each(&mut left);
                self.spare.push(calls);
            }
        }
        self.clients.retain(|client| client.calls > 0);
    }

    /// Takes out all calls.
    pub fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        let clients = std::mem::take(&mut self.clients).into_iter();
        let connections = clients.flat_map(|client| client.connections);
        connections.flat_map(|(_, calls)| calls)
    }
}

impl<T: WaitingCall> ClientCalls<T> {
    fn of(client: &Rc<T::Client>) -> Self {
        Self {
            client: Rc::clone(client),
            calls: 0,
            connections: VecDeque::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call: its client, its connection, and which of the connection's calls it is.
    struct NumberedCall(Rc<u32>, Rc<u32>, u32);

    impl WaitingCall for NumberedCall {
        type Client = u32;
        type Connection = u32;

        fn client(&self) -> &Rc<u32> {
            &self.0
        }

        fn connection(&self) -> &Rc<u32> {
            &self.1
        }
    }

    /// Calls of a client: `calls` of each of so many connections, one connection after the other.
    fn push(backlog: &mut Backlog<NumberedCall>, client: u32, connections: u32, calls: u32) {
        let client = Rc::new(client);
        for connection in (0..connections).map(Rc::new) {
            for call in 0..calls {
                let (client, connection) = (Rc::clone(&client), Rc::clone(&connection));
                backlog.push(NumberedCall(client, connection, call));
            }
        }
    }

    fn numbers(call: &NumberedCall) -> (u32, u32, u32) {
        (*call.0, *call.1, call.2)
    }

    #[test]
    fn a_client_with_200_connections_has_no_more_calls_started_than_one_with_one() {
        let mut backlog = Backlog::default();
        push(&mut backlog, 1, 200, 8);
        push(&mut backlog, 2, 1, 8);
        let mut next = || backlog.pop(|_| true).map(|call| numbers(&call));
        for turn in 0..8 {
            assert_eq!(next(), Some((1, turn, 0)));
            assert_eq!(next(), Some((2, 0, turn)));
        }
        // From here on the other client has nothing left, and each connection has one turn.
        for turn in 8..1600 {
            assert_eq!(next(), Some((1, turn % 200, turn / 200)));
        }
        assert_eq!(next(), None);
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_call_that_is_put_back_is_the_next_one() {
        let mut backlog = Backlog::default();
        push(&mut backlog, 1, 2, 2);
        push(&mut backlog, 2, 1, 1);
        for _ in 0..3 {
            let call = backlog.pop(|_| true).unwrap();
            assert_eq!(numbers(&call), (1, 0, 0));
            backlog.put_back(call);
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
        let mut backlog = Backlog::default();
        push(&mut backlog, 1, 3, 4);
        let call = backlog.pop(|client| *client == 1).unwrap();
        assert!(backlog.pop(|client| *client == 2).is_none());
        let mut left = Vec::new();
        backlog.leave(call.connection(), |call| left.push(numbers(&call)));
        assert_eq!(left, [(1, 0, 1), (1, 0, 2), (1, 0, 3)]);
        assert_eq!((backlog.len(), backlog.take().count()), (8, 8));
        assert!(backlog.is_empty());
    }
}
