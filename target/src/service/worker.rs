//! What one reactor runs: providers, connections, requests and RPC over TCP.

use std::future::Future;
use std::net::TcpStream;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_reactor::fabric::Incoming;
use millrace_reactor::{Context, ReactorHandle, SendError, Source, Turn};

use super::capture::Begun;
use super::change::{Drain, Parts, Pending, Programs, Progress, Resume, Ticket, listen_again};
use super::folders::StoreRoom;
use super::placement::Placement;
use super::status::{self, ReactorReport};
use crate::call::{Serve, TurnEnd};
use crate::rdma::{Desk, FabricId, FabricSlot, Responder, Shared, Tap};
use crate::rpcbind::RpcbindServer;
use crate::tcp::TcpServer;

/// What other threads tell a reactor.
pub enum Message {
    /// All reactors, in order: those that connections may be placed on.
    Peers(Vec<ReactorHandle<Message>>),
    /// A connection that arrived elsewhere: by which listener, and the connection.
    Adopt(FabricId, Box<Incoming>),
    /// A TCP connection that arrived elsewhere.
    AdoptTcp(TcpStream),
    /// Take no more connections and calls, and finish those in service until the deadline.
    Drain {
        /// When connections are closed whatever is under way on them.
        deadline: Instant,
        /// Stop when that is done.
        ends: bool,
    },
    /// Take connections and calls again; listen, where this reactor does. The answer is why that
    /// cannot be.
    Serve(
        Option<Arc<Resume>>,
        crossbeam_channel::Sender<Result<(), String>>,
    ),
    /// Tell how far a drain has come.
    Progress(crossbeam_channel::Sender<Progress>),
    /// Make a change ready, and put it in force once that is decided.
    Change(Ticket),
    /// No connection comes by these listeners any more.
    Retire(Vec<FabricId>),
    /// Close the connection with this identifier, and answer whether it is here.
    Evict(u64, crossbeam_channel::Sender<bool>),
    /// Take one message here, and stand still until the other end goes.
    #[cfg(test)]
    Hold(crossbeam_channel::Receiver<()>),
    /// Give copies of a connection's messages to a tap, and answer whether that has begun.
    Capture(u64, Tap, crossbeam_channel::Sender<Begun>),
    /// Report.
    Status(crossbeam_channel::Sender<ReactorReport>),
}

/// Which of the reactors this is.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number; the first one listens.
    pub index: usize,
    /// How many there are.
    pub reactors: usize,
}

/// What one reactor runs. `F` is the future of a task that serves calls.
pub struct Worker<S: Serve, F: Future<Output = ()>, M> {
    context: Context,
    responder: Responder<S, F, M>,
    tcp: TcpServer<S>,
    rpcbind: Option<RpcbindServer>,
    room: StoreRoom,
    /// Connections that have just arrived and have no place yet.
    arrivals: Vec<(FabricId, Incoming)>,
    seat: Seat,
    peers: Vec<ReactorHandle<Message>>,
    placement: Placement,
    drain: Option<Drain>,
    /// A change that is ready and not decided yet.
    pending: Option<Pending>,
    /// Listeners that are gone: which reactors have not been told yet.
    untold: Vec<(usize, Vec<FabricId>)>,
    stopped: bool,
}

impl<S, F, M> Worker<S, F, M>
where
    S: Serve,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    /// Puts a worker together. `work` makes the future of a task that serves calls.
    #[allow(clippy::too_many_arguments)] // Each a part of its own, put together once.
    pub fn new(
        context: &Context,
        seat: Seat,
        shared: Rc<Shared<S>>,
        fabrics: Vec<FabricSlot>,
        tcp: TcpServer<S>,
        rpcbind: Option<RpcbindServer>,
        room: StoreRoom,
        work: M,
    ) -> Self {
        Self {
            context: context.clone(),
            responder: Responder::new(shared, fabrics, work, Some(context.alarm())),
            tcp,
            rpcbind,
            room,
            arrivals: Vec::new(),
            seat,
            peers: Vec::new(),
            placement: Placement::new(1, Instant::now()),
            drain: None,
            pending: None,
            untold: Vec::new(),
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

    fn place(&mut self, fabric: FabricId, incoming: Incoming, now: Instant) {
        let chosen = self.placement.place(now, |index| {
            self.peers
                .get(index)
                .map_or(0, |peer| peer.counters().busy_ns())
        });
        let mut left = Message::Adopt(fabric, Box::new(incoming));
        if let Some(peer) = self.peers.get(chosen) {
            match peer.send(left) {
                Ok(()) => return,
                Err(SendError::Full(message) | SendError::Stopped(message)) => left = message,
            }
        }
        // Its mailbox is full: this reactor serves it.
        if let Message::Adopt(fabric, incoming) = left {
            self.responder.adopt(fabric, *incoming, now);
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
        let rdma = self.responder.connections();
        let rdma = rdma.map(|one| status::of(one, now));
        let tcp = self.tcp.reports(now);
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

    fn capture(&self, id: u64, tap: Tap, now: Instant) -> Begun {
        let mut connections = self.responder.connections();
        match connections.find(|one| one.id() == id) {
            Some(connection) if connection.capture(tap) => Begun::of(connection),
            Some(_) => Begun::Busy,
            None if self.tcp.reports(now).any(|one| one.id == id) => Begun::NotRdma,
            None => Begun::NotHere,
        }
    }
}

impl<S, F, M> Worker<S, F, M>
where
    S: Programs,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    /// The parts that a change may touch.
    fn parts(&mut self) -> Parts<'_, S, F, M> {
        Parts {
            context: &self.context,
            responder: &mut self.responder,
            tcp: &mut self.tcp,
            rpcbind: self.rpcbind.as_ref(),
            room: &self.room,
            drains: self.drain.is_some(),
            hands_over: self.seat.reactors > 1,
        }
    }

    /// Puts a change in force, or gives it up, if it is decided.
    fn settle(&mut self) {
        if let Some(pending) = self.pending.take_if(|pending| pending.is_decided()) {
            let gone = pending.settle(&mut self.parts());
            // Connections come by the listeners of the first reactor, which has handed out the
            // last ones by now. So who is told after them gets none any more.
            if self.seat.index == 0 && !gone.is_empty() {
                let others = (1..self.peers.len()).map(|peer| (peer, gone.clone()));
                self.untold.extend(others);
                self.retire(&gone);
                self.tell();
            }
        }
    }

    fn retire(&mut self, gone: &[FabricId]) {
        for &id in gone {
            self.responder.retire(id);
        }
    }

    /// Tells other reactors of listeners that are gone; those with full mailboxes later.
    fn tell(&mut self) {
        let peers = &self.peers;
        self.untold.retain_mut(|(peer, gone)| {
            let message = Message::Retire(std::mem::take(gone));
            match peers.get(*peer).map(|peer| peer.send(message)) {
                Some(Err(SendError::Full(Message::Retire(left)))) => {
                    *gone = left;
                    true
                }
                _ => false,
            }
        });
    }

    fn begin_drain(&mut self, deadline: Instant, ends: bool, now: Instant) {
        self.responder.refuse();
        self.tcp.refuse(now);
        match &mut self.drain {
            Some(drain) => drain.again(deadline, ends),
            None => self.drain = Some(Drain::new(deadline, ends)),
        }
        if self.drain.is_some_and(|drain| drain.ends()) {
            self.rpcbind = None;
        }
    }

    fn serve_again(&mut self, resume: Option<&Resume>) -> Result<(), String> {
        if self.drain.is_some_and(|drain| drain.ends()) {
            return Err("the service stops".to_owned());
        }
        if let Some(resume) = resume {
            listen_again(resume, &mut self.parts())?;
        }
        self.drain = None;
        self.responder.resume();
        self.tcp.resume();
        Ok(())
    }
}

impl<S, F, M> millrace_reactor::Worker for Worker<S, F, M>
where
    S: Programs,
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    type Message = Message;

    const ACTIVITIES: &'static [&'static str] = &["fabric", "records", "tasks", "store", "flush"];

    fn turn(&mut self, turn: &Turn) -> usize {
        self.settle();
        if !self.untold.is_empty() {
            self.tell();
        }
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
        let store = self.room.poll(turn.now);
        self.context.activity().enter(4);
        fabric += self.responder.flush(turn.now);
        if let Some(drain) = &mut self.drain {
            self.stopped = drain.step(turn.now, &self.responder, &mut self.tcp);
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
        counters.add_work(Source::Store, store);
        fabric + records + tasks + store
    }

    fn message(&mut self, message: Message, turn: &Turn) {
        // What others do by a change comes after it.
        self.settle();
        match message {
            Message::Peers(peers) => {
                self.placement = Placement::new(peers.len(), turn.now);
                self.peers = peers;
            }
            Message::Adopt(fabric, incoming) => self.responder.adopt(fabric, *incoming, turn.now),
            Message::AdoptTcp(socket) => {
                if let Err(error) = self.tcp.adopt(socket, turn.now) {
                    // It is counted, and said now and then.
                    tracing::debug!(%error, "TCP connection could not be taken over");
                }
            }
            Message::Drain { deadline, ends } => self.begin_drain(deadline, ends, turn.now),
            // Whoever asked may have gone, here and below.
            Message::Serve(resume, answer) => {
                let _ = answer.try_send(self.serve_again(resume.as_deref()));
            }
            Message::Progress(answer) => {
                let _ = answer.try_send(Progress::of(&self.responder, &self.tcp));
            }
            Message::Change(ticket) => self.pending = Pending::prepare(ticket, &mut self.parts()),
            #[cfg(test)]
            Message::Hold(until) => while until.recv().is_ok() {},
            Message::Retire(gone) => self.retire(&gone),
            Message::Evict(id, answer) => {
                let _ = answer.try_send(self.close(id));
            }
            Message::Capture(id, tap, answer) => {
                // Whoever asked may have gone.
                let _ = answer.try_send(self.capture(id, tap, turn.now));
            }
            Message::Status(answer) => {
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
        list.extend(self.room.descriptor());
    }

    fn arm(&mut self) -> bool {
        self.responder.arm() && self.room.arm()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let drain = self.drain.and_then(|drain| drain.next_deadline());
        let rpcbind = self.rpcbind.as_ref().and_then(RpcbindServer::next_deadline);
        let fabrics = self.responder.next_deadline();
        fabrics
            .into_iter()
            .chain(self.tcp.next_deadline())
            .chain(rpcbind)
            .chain(self.room.next_deadline())
            .chain(drain)
            .min()
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}
