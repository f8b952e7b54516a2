//! What one reactor runs: providers, connections, requests and RPC over TCP.

use std::future::Future;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_reactor::fabric::Incoming;
use millrace_reactor::{Context, ReactorHandle, Source, Turn};

use super::capture::Begun;
use super::placement::Placement;
use super::status::{self, ReactorReport};
use crate::call::{Serve, TurnEnd};
use crate::rdma::{Desk, FabricSlot, Responder, Shared, Tap};
use crate::rpcbind::RpcbindServer;
use crate::tcp::TcpServer;

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
    /// Limits have changed.
    Limits,
    /// Close the connection with this identifier, and answer whether it is here.
    Evict(u64, crossbeam_channel::Sender<bool>),
    /// Give copies of a connection's messages to a tap, and answer whether that has begun.
    Capture(u64, Tap, crossbeam_channel::Sender<Begun>),
    /// Report.
    Status(crossbeam_channel::Sender<ReactorReport>),
}

/// A drain in progress.
#[derive(Clone, Copy)]
struct Drain {
    deadline: Instant,
    closed: bool,
}

impl Drain {
    /// When there is something to do: connections are to be closed, or, once they are, their ends
    /// are not waited for any longer.
    fn next_deadline(&self) -> Instant {
        if self.closed {
            self.last()
        } else {
            self.deadline
        }
    }

    /// When it is over, whatever is left.
    fn last(&self) -> Instant {
        self.deadline + LAST_FLUSH
    }
}

/// What one reactor runs. `F` is the future of a task that serves calls.
pub struct Worker<S: Serve, F: Future<Output = ()>, M> {
    context: Context,
    responder: Responder<S, F, M>,
    tcp: TcpServer<S>,
    rpcbind: Option<RpcbindServer>,
    /// Connections that have just arrived and have no place yet.
    arrivals: Vec<(usize, Incoming)>,
    peers: Vec<ReactorHandle<Message>>,
    placement: Placement,
    drain: Option<Drain>,
    stopped: bool,
}

impl<S, F, M> Worker<S, F, M>
where
    S: Serve,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    /// Puts a worker together. `work` makes the future of a task that serves calls.
    pub fn new(
        context: &Context,
        shared: Rc<Shared<S>>,
        fabrics: Vec<FabricSlot>,
        tcp: TcpServer<S>,
        rpcbind: Option<RpcbindServer>,
        work: M,
    ) -> Self {
        Self {
            context: context.clone(),
            responder: Responder::new(shared, fabrics, work, Some(context.alarm())),
            tcp,
            rpcbind,
            arrivals: Vec::new(),
            peers: Vec::new(),
            placement: Placement::new(1, Instant::now()),
            drain: None,
            stopped: false,
        }
    }

    fn poll_fabrics(&mut self, now: Instant) -> usize {
        let arrivals = &mut self.arrivals;
        let mut work = self.responder.poll(now, |fabric, incoming| {
            arrivals.push((fabric, incoming));
        });
        for (fabric, incoming) in std::mem::take(&mut self.arrivals) {
            self.place(fabric, incoming, now);
            work += 1;
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
            self.responder.adopt(fabric, incoming, now);
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

    fn report(&self, now: Instant) -> ReactorReport {
        let shared = self.responder.shared();
        let settings = shared.settings.get();
        let rdma = self.responder.connections();
        let rdma = rdma.map(|one| status::of(one, &settings, now));
        let tcp = self.tcp.reports();
        let tcp = tcp.map(|one| status::of_tcp(&one, now));
        ReactorReport {
            connections: rdma.chain(tcp).collect(),
            tasks: self.responder.calls(),
            waiting: self.responder.waiting(),
        }
    }

    /// Closes the connection with this identifier at once. Whether there is one.
    fn close(&mut self, id: u64) -> bool {
        let mut connections = self.responder.connections();
        match connections.find(|one| one.id() == id) {
            Some(connection) => {
                connection.close(true);
                true
            }
            None => self.tcp.close(id),
        }
    }

    fn capture(&self, id: u64, tap: Tap) -> Begun {
        let mut connections = self.responder.connections();
        match connections.find(|one| one.id() == id) {
            Some(connection) if connection.capture(tap) => Begun::of(connection),
            Some(_) => Begun::Busy,
            None if self.tcp.reports().any(|one| one.id == id) => Begun::NotRdma,
            None => Begun::NotHere,
        }
    }

    /// Carries a drain on. Returns whether it is done.
    fn drain(&mut self, now: Instant) -> bool {
        let Some(mut drain) = self.drain else {
            return false;
        };
        let idle = self.responder.is_idle();
        let late = now >= drain.deadline;
        if !drain.closed && (idle || late) {
            for connection in self.responder.connections() {
                connection.close(late && !idle);
            }
            drain.closed = true;
            self.drain = Some(drain);
        }
        let gone = self.responder.connections().next().is_none();
        (drain.closed && gone) || now >= drain.last()
    }
}

impl<S, F, M> millrace_reactor::Worker for Worker<S, F, M>
where
    S: Serve,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    type Message = Message;

    const ACTIVITIES: &'static [&'static str] = &["fabric", "records", "tasks", "flush"];

    fn turn(&mut self, turn: &Turn) -> usize {
        self.context.activity().enter(0);
        let mut fabric = self.poll_fabrics(turn.now);
        self.context.activity().enter(1);
        let mut records = self.tcp.poll(turn.now);
        records += self
            .rpcbind
            .as_mut()
            .map_or(0, |rpcbind| rpcbind.poll(turn.now));
        self.hand_out_tcp(turn.now);
        self.context.activity().enter(2);
        let tasks = self.responder.run();
        self.context.activity().enter(3);
        fabric += self.responder.flush(turn.now);
        if self.drain(turn.now) {
            self.stopped = true;
        }
        let end = TurnEnd::new(Instant::now);
        let shared = self.responder.shared();
        shared.programs.turned(&end);
        shared.turned(&end);
        self.tcp.turned(&end);
        let counters = self.context.counters();
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
            Message::Adopt(fabric, incoming) => self.responder.adopt(fabric, incoming, turn.now),
            Message::AdoptTcp(socket) => {
                if let Err(error) = self.tcp.adopt(socket, turn.now) {
                    tracing::warn!(%error, "TCP connection could not be taken over");
                }
            }
            Message::Limits => self.responder.shared().flow.limits_changed(),
            Message::Drain(deadline) => {
                self.responder.refuse();
                self.tcp.stop_listening();
                self.rpcbind = None;
                self.drain.get_or_insert(Drain {
                    deadline,
                    closed: false,
                });
            }
            Message::Evict(id, answer) => {
                // Whoever asked may have gone.
                let _ = answer.try_send(self.close(id));
            }
            Message::Capture(id, tap, answer) => {
                // Whoever asked may have gone.
                let _ = answer.try_send(self.capture(id, tap));
            }
            Message::Status(answer) => {
                // Whoever asked may have gone.
                let _ = answer.try_send(self.report(turn.now));
            }
        }
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        list.extend(self.responder.descriptors());
        self.tcp.descriptors(list);
        if let Some(rpcbind) = &self.rpcbind {
            rpcbind.descriptors(list);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let drain = self.drain.map(|drain| drain.next_deadline());
        let rpcbind = self.rpcbind.as_ref().and_then(RpcbindServer::next_deadline);
        let fabrics = self.responder.next_deadline();
        fabrics
            .into_iter()
            .chain(self.tcp.next_deadline())
            .chain(rpcbind)
            .chain(drain)
            .min()
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_does_not_name_a_deadline_that_it_has_acted_on() {
        let deadline = Instant::now();
        let mut drain = Drain {
            deadline,
            closed: false,
        };
        assert_eq!(drain.next_deadline(), deadline);
        drain.closed = true;
        assert!(drain.next_deadline() > deadline);
        assert_eq!(drain.next_deadline(), drain.last());
    }
}
