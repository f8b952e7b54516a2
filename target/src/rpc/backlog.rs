//! Calls that wait, to be begun or to go on: the clients in turn, and each client's connections in
//! turn.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use super::connection::ConnectionRef;
use crate::flow::ClientShare;

/// Calls that wait, or tasks with calls. Thousands of clients may have some, so a call is queued without
/// a search through them.
pub struct Backlog<T> {
    /// Clients with calls that wait. A share stays where it is while it is here.
    clients: Turns<*const ClientShare, ClientCalls<T>>,
    calls: usize,
    /// Queues and lists without calls, to be used again.
    spare_queues: Vec<ConnectionQueue<T>>,
    spare_lists: Vec<VecDeque<T>>,
}

/// The calls of one client.
struct ClientCalls<T> {
    client: Rc<ClientShare>,
    calls: usize,
    connections: ConnectionQueue<T>,
}

/// The calls of connections, by the identifiers of these.
type ConnectionQueue<T> = Turns<u64, VecDeque<T>>;

/// Values by keys, which take turns.
struct Turns<K, V> {
    values: HashMap<K, V>,
    /// The keys, the next one first.
    order: VecDeque<K>,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, V> Turns<K, V> {
    /// The value of a key. A new key is the last one.
    fn value(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        match self.values.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                self.order.push_back(key);
                place.insert(new())
            }
        }
    }

    /// Makes a key the next one.
    fn put_first(&mut self, key: K) {
        self.leave_order(key);
        self.order.push_front(key);
    }

    /// Removes a key.
    fn remove(&mut self, key: K) -> Option<V> {
        let value = self.values.remove(&key)?;
        self.leave_order(key);
        Some(value)
    }

    fn leave_order(&mut self, key: K) {
        // One that has just had its turn is the last one.
        if let Some(at) = self.order.iter().rposition(|other| *other == key) {
            self.order.remove(at);
        }
    }
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            clients: Turns::default(),
            calls: 0,
            spare_queues: Vec::new(),
            spare_lists: Vec::new(),
        }
    }
}

impl<T> Backlog<T> {
    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.calls
    }

    /// How many calls of each client wait.
    pub fn waiting(&self) -> impl Iterator<Item = (&Rc<ClientShare>, usize)> {
        let clients = self.clients.values.values();
        clients.map(|one| (&one.client, one.calls))
    }

    /// Whether calls of this client wait, so that its next one has to wait behind them.
    pub fn holds(&self, client: &Rc<ClientShare>) -> bool {
        self.clients.values.contains_key(&Rc::as_ptr(client))
    }

    /// The list of a connection, for one more call.
    fn list_for_one(&mut self, connection: &ConnectionRef) -> &mut VecDeque<T> {
        let share = connection.share();
        let client = self.clients.value(Rc::as_ptr(share), || ClientCalls {
            client: Rc::clone(share),
            calls: 0,
            connections: self.spare_queues.pop().unwrap_or_default(),
        });
        client.calls += 1;
        self.calls += 1;
        let spare = || self.spare_lists.pop().unwrap_or_default();
        client.connections.value(connection.id(), spare)
    }

    /// Puts a call behind the others of its connection.
    pub fn push(&mut self, connection: &ConnectionRef, call: T) {
        self.list_for_one(connection).push_back(call);
    }

    /// Puts back a call that was taken and found no task: it is the next one again.
    pub fn put_back(&mut self, connection: &ConnectionRef, call: T) {
        self.list_for_one(connection).push_front(call);
        let key = Rc::as_ptr(connection.share());
        self.clients.put_first(key);
        if let Some(client) = self.clients.values.get_mut(&key) {
            client.connections.put_first(connection.id());
        }
    }

    /// Takes the next call of the next client that `may` have one served. Clients take turns, and
    /// so do the connections of a client: both move to the end of their queue.
    pub fn pop(&mut self, may: impl Fn(&ClientShare) -> bool) -> Option<T> {
        let Turns { values, order } = &mut self.clients;
        let of = |key| values.get(key).is_some_and(|one| may(&one.client));
        let at = order.iter().position(of)?;
        let key = order.remove(at)?;
        let client = values.get_mut(&key)?;
        let connections = &mut client.connections;
        let id = connections.order.pop_front()?;
        let list = connections.values.get_mut(&id)?;
        let call = list.pop_front();
        if list.is_empty() {
            self.spare_lists.extend(connections.values.remove(&id));
        } else {
            connections.order.push_back(id);
        }
        self.calls -= 1;
        client.calls -= 1;
        if client.calls > 0 {
            order.push_back(key);
        } else if let Some(client) = values.remove(&key) {
            self.spare_queues.push(client.connections);
        }
        call
    }

    /// Removes the calls of a connection that has ended: their client sends them again.
    pub fn leave(&mut self, connection: &ConnectionRef, left: impl FnMut(T)) {
        let key = Rc::as_ptr(connection.share());
        let Some(client) = self.clients.values.get_mut(&key) else {
            return;
        };
        let Some(mut list) = client.connections.remove(connection.id()) else {
            return;
        };
        client.calls -= list.len();
        self.calls -= list.len();
        if client.calls == 0
            && let Some(client) = self.clients.remove(key)
        {
            self.spare_queues.push(client.connections);
        }
        list.drain(..).for_each(left);
        self.spare_lists.push(list);
    }

    /// Removes all calls.
    pub fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        let clients = std::mem::take(self).clients.values.into_values();
        let lists = clients.flat_map(|client| client.connections.values.into_values());
        lists.flatten()
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
