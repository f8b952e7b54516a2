//! What one reactor runs: providers, connections, requests and RPC over TCP.

use std::collections::VecDeque;
use std::future::Future;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_mempool::Buffer;
use millrace_reactor::fabric::{Event, Incoming, ListenerId, QueuePairId, QueuePairLimits};
use millrace_reactor::task::{Ended, TaskSet};
use millrace_reactor::{Context, ReactorHandle, Source, Turn};

use super::placement::Placement;
use super::status::{self, ReactorReport};
use crate::call::Serve;
use crate::rdma::{Connection, Fabric, Shared};
use crate::rpcbind::RpcbindServer;
use crate::tcp::TcpServer;

/// Calls of one reactor that are served side by side; more wait in order of arrival.
const TASKS: usize = 1024;

/// Events taken from a provider in one go.
const EVENTS: usize = 256;

/// After the deadline of a drain, connections are given this long to end.
const LAST_FLUSH: Duration = Duration::from_secs(1);

/// What other threads tell a reactor.
pub enum Message {
    /// All reactors, in order: those that connections may be placed on.
    Peers(Vec<ReactorHandle<Message>>),
    /// A connection that arrived elsewhere: which fabric of the configuration, and the connection.
    Adopt(usize, Incoming),
    /// A TCP connection that arrived elsewhere.
    AdoptTcp(TcpStream),
    /// Take no more calls, finish those in service until the deadline, and stop.
    Drain(Instant),
    /// Report.
    Status(crossbeam_channel::Sender<ReactorReport>),
}

/// One provider and the connections that it carries.
pub struct FabricSlot {
    /// The provider.
    pub fabric: Fabric,
    /// Limits of its connections.
    pub limits: QueuePairLimits,
    listener: Option<ListenerId>,
    connections: Vec<Option<Rc<Connection>>>,
}

impl FabricSlot {
    /// Without connections yet; with a listener where this reactor has one.
    #[must_use]
    pub fn new(fabric: Fabric, limits: QueuePairLimits, listener: Option<ListenerId>) -> Self {
        Self {
            fabric,
            limits,
            listener,
            connections: Vec::new(),
        }
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.fabric.borrow_mut().stop_listening(listener);
        }
    }

    fn connection(&self, id: QueuePairId) -> Option<&Rc<Connection>> {
        let connection = self.connections.get(id.index as usize)?.as_ref()?;
        (connection.queue_pair() == id).then_some(connection)
    }

    fn insert(&mut self, connection: Rc<Connection>) {
        let index = connection.queue_pair().index as usize;
        if self.connections.len() <= index {
            self.connections.resize(index + 1, None);
        }
        self.connections[index] = Some(connection);
    }

    fn remove(&mut self, id: QueuePairId) -> Option<Rc<Connection>> {
        self.connection(id)?;
        self.connections[id.index as usize].take()
    }
}

/// A call that waits for a task.
struct Waiting {
    connection: Rc<Connection>,
    receive: Buffer,
    length: usize,
    arrived: Instant,
}

/// A drain in progress.
#[derive(Clone, Copy)]
struct Drain {
    deadline: Instant,
    closed: bool,
}

/// What one reactor runs. `F` is the future that `serve` makes of a call.
pub struct Worker<S: Serve, F: Future<Output = ()>, M> {
    context: Context,
    shared: Rc<Shared<S>>,
    fabrics: Vec<FabricSlot>,
    tcp: TcpServer<S>,
    rpcbind: Option<RpcbindServer>,
    serve: M,
    tasks: TaskSet<F>,
    /// Whose call each task serves, by its index.
    serving: Vec<Option<Rc<Connection>>>,
    backlog: VecDeque<Waiting>,
    events: Vec<Event>,
    ended: Vec<Ended<()>>,
    peers: Vec<ReactorHandle<Message>>,
    placement: Placement,
    drain: Option<Drain>,
    stopped: bool,
}

impl<S, F, M> Worker<S, F, M>
where
    S: Serve,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Connection>, Buffer, usize, Instant) -> F,
{
    /// Puts a worker together. `serve` makes the future that serves one call.
    pub fn new(
        context: &Context,
        shared: Rc<Shared<S>>,
        fabrics: Vec<FabricSlot>,
        tcp: TcpServer<S>,
        rpcbind: Option<RpcbindServer>,
        serve: M,
    ) -> Self {
        Self {
            context: context.clone(),
            shared,
            fabrics,
            tcp,
            rpcbind,
            serve,
            tasks: TaskSet::new(TASKS, Some(context.alarm())),
            serving: vec![None; TASKS],
            backlog: VecDeque::new(),
            events: Vec::with_capacity(EVENTS),
            ended: Vec::with_capacity(TASKS),
            peers: Vec::new(),
            placement: Placement::new(1, Instant::now()),
            drain: None,
            stopped: false,
        }
    }

    fn poll_fabrics(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for index in 0..self.fabrics.len() {
            let mut events = std::mem::take(&mut self.events);
            work += self.fabrics[index]
                .fabric
                .borrow_mut()
                .poll(now, &mut events);
            for event in events.drain(..) {
                self.event(index, event, now);
            }
            self.events = events;
        }
        work
    }

    fn event(&mut self, fabric: usize, event: Event, now: Instant) {
        match event {
            Event::Received {
                queue_pair,
                buffer,
                length,
                ..
            } => {
                let Some(connection) = self.fabrics[fabric].connection(queue_pair) else {
                    return;
                };
                connection.received();
                if self.drain.is_none() {
                    let connection = Rc::clone(connection);
                    let length = length as usize;
                    self.start(Waiting {
                        connection,
                        receive: buffer,
                        length,
                        arrived: now,
                    });
                }
            }
            Event::Completed {
                token,
                result,
                local,
                ..
            } => {
                let outcome = result.map(|()| local);
                // Nobody waits for most work requests.
                let _ = self.shared.completions.complete(token, outcome);
            }
            Event::Incoming(incoming) => self.place(fabric, incoming, now),
            Event::ConnectRequest {
                queue_pair,
                peer,
                private_data,
                ..
            } => {
                let slot = &mut self.fabrics[fabric];
                if self.drain.is_some() {
                    slot.fabric.borrow_mut().reject(queue_pair, &[]);
                    return;
                }
                let (shared, limits) = (&self.shared, slot.limits);
                let request = crate::rdma::Request {
                    queue_pair,
                    peer,
                    private_data: &private_data,
                };
                match Connection::accept(shared, &slot.fabric, fabric, &request, limits, now) {
                    Some(connection) => slot.insert(connection),
                    None => tracing::warn!(%peer, "connection rejected: no buffers are free"),
                }
            }
            Event::Established {
                queue_pair, depths, ..
            } => {
                if let Some(connection) = self.fabrics[fabric].connection(queue_pair) {
                    let inline = connection.inline();
                    tracing::info!(
                        client = %connection.peer().address,
                        port = connection.peer().port,
                        provider = self.fabrics[fabric].fabric.borrow().name(),
                        reactor = self.context.name(),
                        inline_send = inline.send,
                        remote_invalidation = inline.invalidate,
                        read_depth = depths.ord,
                        "client connected"
                    );
                }
            }
            Event::Disconnected { queue_pair, reason } => {
                if let Some(connection) = self.fabrics[fabric].remove(queue_pair) {
                    connection.disconnected(&self.shared);
                    tracing::info!(
                        client = %connection.peer().address,
                        port = connection.peer().port,
                        calls = connection.counters().calls.get(),
                        %reason,
                        "client disconnected"
                    );
                }
            }
            // The service never connects, and exposes no memory.
            Event::Rejected { .. } | Event::Revoked { .. } => {}
        }
    }

    /// Starts to serve a call, or lets it wait in line.
    fn start(&mut self, call: Waiting) {
        if !self.backlog.is_empty() || self.tasks.len() == self.tasks.capacity() {
            self.backlog.push_back(call);
            return;
        }
        self.spawn(call);
    }

    fn spawn(&mut self, call: Waiting) {
        let Waiting {
            connection,
            receive,
            length,
            arrived,
        } = call;
        let shared = Rc::clone(&self.shared);
        let future = (self.serve)(shared, Rc::clone(&connection), receive, length, arrived);
        if let Ok(task) = self.tasks.spawn(future) {
            self.serving[task.index as usize] = Some(connection);
        }
    }

    fn run_tasks(&mut self) -> usize {
        let work = self.tasks.run(&mut self.ended);
        for ended in self.ended.drain(..) {
            let connection = self.serving[ended.task.index as usize].take();
            if let (Err(_), Some(connection)) = (ended.outcome, connection) {
                tracing::error!(
                    client = %connection.peer().address,
                    "a request panicked; its connection is closed"
                );
                connection.close(true);
            }
        }
        while self.tasks.len() < self.tasks.capacity() {
            let Some(call) = self.backlog.pop_front() else {
                break;
            };
            self.spawn(call);
        }
        work
    }

    fn place(&mut self, fabric: usize, incoming: Incoming, now: Instant) {
        let chosen = self.placement.place(now, |index| {
            self.peers
                .get(index)
                .map_or(0, |peer| peer.counters().busy_ns())
        });
        let mut left = Message::Adopt(fabric, incoming);
        if let Some(peer) = self.peers.get(chosen) {
            use millrace_reactor::SendError;
            match peer.send(left) {
                Ok(()) => return,
                Err(SendError::Full(message) | SendError::Stopped(message)) => left = message,
            }
        }
        // Its mailbox is full: this reactor serves it.
        if let Message::Adopt(fabric, incoming) = left {
            self.adopt(fabric, incoming, now);
        }
    }

    fn adopt(&mut self, fabric: usize, incoming: Incoming, now: Instant) {
        let Some(slot) = self.fabrics.get(fabric) else {
            return;
        };
        let peer = incoming.peer;
        if let Err(error) = slot.fabric.borrow_mut().adopt(incoming, now) {
            tracing::warn!(%peer, %error, "connection could not be taken over");
        }
    }

    fn hand_out_tcp(&mut self, now: Instant) {
        let arrived: Vec<TcpStream> = self.tcp.accepted().collect();
        for socket in arrived {
            let chosen = self.placement.place(now, |index| {
                self.peers
                    .get(index)
                    .map_or(0, |peer| peer.counters().busy_ns())
            });
            // A reactor whose mailbox is full takes no more; the client tries again.
            let _ = self
                .peers
                .get(chosen)
                .map(|peer| peer.send(Message::AdoptTcp(socket)));
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.fabrics
            .iter()
            .flat_map(|slot| slot.connections.iter().flatten())
    }

    /// Carries a drain on. Returns whether it is done.
    fn drain(&mut self, now: Instant) -> bool {
        let Some(mut drain) = self.drain else {
            return false;
        };
        let idle = self.tasks.is_empty() && self.backlog.is_empty();
        let late = now >= drain.deadline;
        if !drain.closed && (idle || late) {
            for connection in self.connections() {
                connection.close(late && !idle);
            }
            drain.closed = true;
            self.drain = Some(drain);
        }
        let gone = self.connections().next().is_none();
        (drain.closed && gone) || now >= drain.deadline + LAST_FLUSH
    }
}

impl<S, F, M> millrace_reactor::Worker for Worker<S, F, M>
where
    S: Serve,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Connection>, Buffer, usize, Instant) -> F,
{
    type Message = Message;

    const ACTIVITIES: &'static [&'static str] = &["fabric", "records", "tasks", "flush"];

    fn turn(&mut self, turn: &Turn) -> usize {
        let (counters, activity) = (
            self.context.counters().clone(),
            self.context.activity().clone(),
        );
        activity.enter(0);
        let mut fabric = self.poll_fabrics(turn.now);
        activity.enter(1);
        let mut records = self.tcp.poll(turn.now);
        records += self
            .rpcbind
            .as_mut()
            .map_or(0, |rpcbind| rpcbind.poll(turn.now));
        self.hand_out_tcp(turn.now);
        activity.enter(2);
        let tasks = self.run_tasks();
        self.shared.wake_senders();
        activity.enter(3);
        for slot in &self.fabrics {
            fabric += slot.fabric.borrow_mut().flush(turn.now);
        }
        if self.drain(turn.now) {
            self.stopped = true;
        }
        counters.add_work(Source::Fabric, fabric);
        counters.add_work(Source::Records, records);
        counters.add_work(Source::Tasks, tasks);
        fabric + records + tasks
    }

    fn message(&mut self, message: Message, turn: &Turn) {
        match message {
            Message::Peers(peers) => {
                self.placement = Placement::new(peers.len(), turn.now);
                self.peers = peers;
            }
            Message::Adopt(fabric, incoming) => self.adopt(fabric, incoming, turn.now),
            Message::AdoptTcp(socket) => {
                if let Err(error) = self.tcp.adopt(socket, turn.now) {
                    tracing::warn!(%error, "TCP connection could not be taken over");
                }
            }
            Message::Drain(deadline) => {
                for slot in &mut self.fabrics {
                    slot.stop_listening();
                }
                self.tcp.stop_listening();
                self.rpcbind = None;
                // Calls that wait are not begun any more: their clients send them again.
                self.backlog.clear();
                self.drain.get_or_insert(Drain {
                    deadline,
                    closed: false,
                });
            }
            Message::Status(answer) => {
                let connections = self
                    .connections()
                    .map(|one| status::of(one, turn.now))
                    .collect();
                // Whoever asked may have gone.
                let _ = answer.try_send(ReactorReport {
                    connections,
                    tcp_connections: self.tcp.connections(),
                    tasks: self.tasks.len(),
                });
            }
        }
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        for slot in &self.fabrics {
            list.extend(slot.fabric.borrow().wake_descriptor());
        }
        self.tcp.descriptors(list);
        if let Some(rpcbind) = &self.rpcbind {
            rpcbind.descriptors(list);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let fabrics = self
            .fabrics
            .iter()
            .filter_map(|slot| slot.fabric.borrow().next_deadline());
        let drain = self.drain.map(|drain| drain.deadline);
        let rpcbind = self.rpcbind.as_ref().and_then(RpcbindServer::next_deadline);
        fabrics
            .chain(self.tcp.next_deadline())
            .chain(rpcbind)
            .chain(drain)
            .min()
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}
