//! The worker of a reactor: providers, connections, requests and RPC over TCP.

use std::future::Future;
use std::net::TcpStream;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_reactor::fabric::Incoming;
use millrace_reactor::{Context, ReactorHandle, SendError, Turn, WorkSource};

use super::capture::CaptureStart;
use super::change::{
    ChangeTicket, ChangeablePrograms, Drain, Parts, Pending, Resume, listen_again,
};
use super::client_state::HomePost;
use super::folders::ReactorStores;
use super::placement::Placement;
use super::state_reports::StateQuestion;
use super::status::ReactorReport;
use crate::call::{Serve, TurnEnd};
use crate::capture::CaptureSink;
use crate::nfs4::ClientState;
use crate::rdma::{Arrived, FabricId, FabricSlot, Responder, ResponderShared};
use crate::rpc::{OpenWork, RequestSlot, Transport};
use crate::rpcbind::RpcbindServer;
use crate::state::{CallbackOrder, HomeAnswer, HomeRequest};
use crate::tcp::TcpServer;

/// A message to a reactor.
pub enum ReactorMessage {
    /// All reactors, in order, for placing connections.
    Peers(Vec<ReactorHandle<ReactorMessage>>),
    /// A connection that arrived at another reactor.
    Adopt(Arrival),
    /// Refuse new connections and calls, and finish those in progress until the deadline.
    Drain {
        /// When connections are closed even with calls in progress.
        deadline: Instant,
        /// Stop when that is done.
        ends: bool,
    },
    /// Accept connections and calls again; listen, if this reactor does. The answer is the reason
    /// of a failure.
    Serve(
        Option<Arc<Resume>>,
        crossbeam_channel::Sender<Result<(), String>>,
    ),
    /// Return the progress of a drain.
    Progress(crossbeam_channel::Sender<OpenWork>),
    /// Prepare a change, and apply it once it is decided.
    Change(ChangeTicket),
    /// Return second handles on the TCP sockets that listen.
    ListeningSockets(crossbeam_channel::Sender<Vec<OwnedFd>>),
    /// No more connections will come from these listeners.
    Retire(Vec<FabricId>),
    /// Close the connection with this identifier, and return whether it is here.
    Evict(u64, crossbeam_channel::Sender<bool>),
    /// Answer a question about the state of clients, which this reactor keeps.
    AskHome(HomeRequest),
    /// The answer to a question of this reactor.
    HomeAnswer(HomeAnswer),
    /// Answer a question of the management plane about that state, or change it.
    AskState(StateQuestion),
    /// Call a client by a connection of this reactor.
    CallClient(Box<CallbackOrder>),
    /// Take one message from here, and block until the other end is dropped.
    #[cfg(test)]
    Hold(crossbeam_channel::Receiver<()>),
    /// Copy a connection's messages to a sink, and return whether that has started.
    Capture(u64, CaptureSink, crossbeam_channel::Sender<CaptureStart>),
    /// Report.
    Status(crossbeam_channel::Sender<ReactorReport>),
}

/// An arrived connection without a reactor.
pub enum Arrival {
    /// From the listener with this identifier.
    Rdma(FabricId, Box<Incoming>),
    /// Over TCP.
    Tcp(TcpStream),
}

/// The index of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct ReactorIndex {
    /// Its number; the first one listens.
    pub index: usize,
    /// The number of reactors.
    pub reactors: usize,
}

/// The worker of a reactor. `F` is the future of a task that serves calls.
pub struct Worker<S: Serve, F: Future<Output = ()>> {
    context: Context,
    responder: Responder<S, F>,
    tcp: TcpServer<S>,
    rpcbind: Option<RpcbindServer>,
    room: ReactorStores,
    /// Newly arrived connections that are not placed yet.
    arrivals: Vec<Arrival>,
    reactor_index: ReactorIndex,
    peers: Vec<ReactorHandle<ReactorMessage>>,
    placement: Placement,
    drain: Option<Drain>,
    /// A prepared change that is not decided yet.
    pending: Option<Pending>,
    /// Questions about the state of clients, where NFS version 4 is served.
    home: Option<HomePost>,
    /// Removed listeners: the reactors that have not been notified yet.
    untold: Vec<(usize, Vec<FabricId>)>,
    stopped: bool,
}

impl<S, F> Worker<S, F>
where
    S: Serve,
    F: Future<Output = ()>,
{
    /// Creates a worker. `work` makes the future of a task that serves calls.
    #[allow(clippy::too_many_arguments)] // Each a part of its own, put together once.
    pub fn new(
        context: &Context,
        reactor_index: ReactorIndex,
        shared: Rc<ResponderShared<S>>,
        fabrics: Vec<FabricSlot>,
        tcp: TcpServer<S>,
        rpcbind: Option<RpcbindServer>,
        room: ReactorStores,
        home: Option<HomePost>,
        work: impl Fn(Rc<ResponderShared<S>>, Rc<RequestSlot<Arrived>>) -> F + 'static,
    ) -> Self {
        Self {
            context: context.clone(),
            responder: Responder::new(shared, fabrics, work, Some(context.alarm())),
            tcp,
            rpcbind,
            room,
            arrivals: Vec::new(),
            reactor_index,
            peers: Vec::new(),
            placement: Placement::new(1, Instant::now()),
            drain: None,
            pending: None,
            home,
            untold: Vec::new(),
            stopped: false,
        }
    }

    fn poll_fabrics(&mut self, now: Instant) -> usize {
        let arrivals = &mut self.arrivals;
        self.responder.poll(now, |fabric, incoming| {
            arrivals.push(Arrival::Rdma(fabric, Box::new(incoming)));
        })
    }

    /// Assigns arrived connections to reactors. Returns their number.
    fn place_arrivals(&mut self, now: Instant) -> usize {
        self.arrivals.extend(self.tcp.accepted().map(Arrival::Tcp));
        let arrivals = std::mem::take(&mut self.arrivals);
        let count = arrivals.len();
        for arrival in arrivals {
            self.place(arrival, now);
        }
        count
    }

    fn place(&mut self, arrival: Arrival, now: Instant) {
        let chosen = self.placement.place(now, |index| {
            self.peers
                .get(index)
                .map_or(0, |peer| peer.counters().busy_ns())
        });
        // A connection that stays here is adopted at once: in the mailbox it would wait while its
        // listener may be removed.
        if chosen == self.reactor_index.index {
            return self.adopt(arrival, now);
        }
        let mut left = ReactorMessage::Adopt(arrival);
        if let Some(peer) = self.peers.get(chosen) {
            match peer.send(left) {
                Ok(()) => return,
                Err(SendError::Full(message) | SendError::Stopped(message)) => left = message,
            }
        }
        // Its mailbox is full: this reactor serves it.
        if let ReactorMessage::Adopt(arrival) = left {
            self.adopt(arrival, now);
        }
    }

    /// Adopts a connection.
    fn adopt(&mut self, arrival: Arrival, now: Instant) {
        match arrival {
            Arrival::Rdma(fabric, incoming) => self.responder.adopt(fabric, *incoming, now),
            Arrival::Tcp(socket) => {
                if let Err(error) = self.tcp.adopt(socket, now) {
                    // It is counted, and logged from time to time.
                    tracing::debug!(%error, "the TCP connection could not be adopted");
                }
            }
        }
    }

    fn report(&self, now: Instant) -> ReactorReport {
        let mut report = ReactorReport::default();
        for transport in self.transports() {
            transport.report(now, &mut report.connections);
            transport.waiting(&mut report.waiting);
            report.tasks += transport.calls();
        }
        report
    }

    fn transports(&self) -> [&dyn Transport; 2] {
        [&self.responder, &self.tcp]
    }

    fn transports_mut(&mut self) -> [&mut dyn Transport; 2] {
        [&mut self.responder, &mut self.tcp]
    }

    fn capture(&self, id: u64, sink: CaptureSink) -> CaptureStart {
        let mut connections = self.responder.connections();
        match connections.find(|one| one.id() == id) {
            Some(connection) if connection.capture(sink) => CaptureStart::of(connection),
            Some(_) => CaptureStart::Busy,
            None if self.tcp.has_connection(id) => CaptureStart::NotRdma,
            None => CaptureStart::NotHere,
        }
    }
}

impl<S, F> Worker<S, F>
where
    S: ChangeablePrograms,
    F: Future<Output = ()>,
{
    /// The parts that a change may modify.
    fn parts(&mut self) -> Parts<'_, S, F> {
        Parts {
            context: &self.context,
            responder: &mut self.responder,
            tcp: &mut self.tcp,
            rpcbind: self.rpcbind.as_ref(),
            room: &self.room,
            drains: self.drain.is_some(),
            hands_over: self.reactor_index.reactors > 1,
        }
    }

    /// Applies a change, or aborts it, if it is decided.
    fn settle(&mut self) {
        if let Some(pending) = self.pending.take_if(|pending| pending.is_decided()) {
            let gone = pending.settle(&mut self.parts());
            // Connections come from the listeners of the first reactor, which has distributed the
            // last ones by now. So a reactor notified after them gets no more.
            if self.reactor_index.index == 0 && !gone.is_empty() {
                let others = (1..self.peers.len()).map(|peer| (peer, gone.clone()));
                self.untold.extend(others);
                self.retire(&gone);
                self.tell();
            }
        }
    }

    /// Sends questions and answers about the state of clients, and calls clients. Returns the
    /// amount of work done.
    fn ask_home(&mut self, now: Instant) -> usize {
        if let Some(home) = &mut self.home
            && let Some(state) = self.responder.shared().programs.client_state()
        {
            let programs = &self.responder.shared().programs;
            let mut work = home.lock_on_host(state, |export| programs.volume(export));
            work += home.announce_shares(state);
            work += home.call_clients(state);
            home.send(&self.peers);
            home.scan(state, self.responder.shared().flow.pressure(), now);
            home.record(state);
            return work;
        }
        0
    }

    fn retire(&mut self, gone: &[FabricId]) {
        for &id in gone {
            self.responder.retire(id);
        }
    }

    /// Notifies other reactors of removed listeners; those with full mailboxes later.
    fn tell(&mut self) {
        let peers = &self.peers;
        self.untold.retain_mut(|(peer, gone)| {
            let message = ReactorMessage::Retire(std::mem::take(gone));
            match peers.get(*peer).map(|peer| peer.send(message)) {
                Some(Err(SendError::Full(ReactorMessage::Retire(left)))) => {
                    *gone = left;
                    true
                }
                _ => false,
            }
        });
    }

    fn begin_drain(&mut self, deadline: Instant, ends: bool, now: Instant) {
        for transport in self.transports_mut() {
            transport.refuse(now);
        }
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
        for transport in self.transports_mut() {
            transport.resume();
        }
        Ok(())
    }
}

impl<S, F> millrace_reactor::Worker for Worker<S, F>
where
    S: ChangeablePrograms,
    F: Future<Output = ()>,
{
    type Message = ReactorMessage;

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
        records += self.place_arrivals(turn.now);
        self.context.activity().enter(2);
        let mut tasks = self.responder.run();
        tasks += self.ask_home(turn.now);
        self.context.activity().enter(3);
        let store = self.room.poll(turn.now);
        self.context.activity().enter(4);
        fabric += self.responder.flush(turn.now);
        if let Some(drain) = &mut self.drain {
            self.stopped = drain.step(turn.now, &mut [&mut self.responder, &mut self.tcp]);
        }
        let end = TurnEnd::new(Instant::now);
        self.responder.shared().programs.turned(&end);
        self.responder.turned(&end);
        self.tcp.turned(&end);
        let counters = self.context.counters();
        counters.add_work(WorkSource::Fabric, fabric);
        counters.add_work(WorkSource::Records, records);
        counters.add_work(WorkSource::Tasks, tasks);
        counters.add_work(WorkSource::Store, store);
        fabric + records + tasks + store
    }

    fn message(&mut self, message: ReactorMessage, turn: &Turn) {
        // Effects of the change on other reactors come after it.
        self.settle();
        match message {
            ReactorMessage::Peers(peers) => {
                self.placement = Placement::new(peers.len(), turn.now);
                self.peers = peers;
            }
            ReactorMessage::Adopt(arrival) => self.adopt(arrival, turn.now),
            ReactorMessage::Drain { deadline, ends } => self.begin_drain(deadline, ends, turn.now),
            // The receiver may be gone, here and below.
            ReactorMessage::Serve(resume, answer) => {
                let _ = answer.try_send(self.serve_again(resume.as_deref()));
            }
            ReactorMessage::Progress(answer) => {
                let mut open = self.responder.open_work();
                open += self.tcp.open_work();
                let _ = answer.try_send(open);
            }
            ReactorMessage::Change(ticket) => {
                self.pending = Pending::prepare(ticket, &mut self.parts());
            }
            #[cfg(test)]
            ReactorMessage::Hold(until) => while until.recv().is_ok() {},
            ReactorMessage::AskHome(request) => {
                let shared = self.responder.shared();
                if let (Some(home), Some(state)) = (&mut self.home, shared.programs.client_state())
                {
                    home.serve(state, request);
                }
            }
            ReactorMessage::AskState(question) => {
                if let Some(state) = self.responder.shared().programs.client_state() {
                    let _ = state.link().ask_here(question);
                }
            }
            ReactorMessage::HomeAnswer(answer) => {
                if let Some(state) = self.responder.shared().programs.client_state() {
                    state.link().take(answer);
                }
            }
            ReactorMessage::CallClient(order) => {
                if let Some(state) = self.responder.shared().programs.client_state() {
                    state.send_callback(&order);
                }
            }
            ReactorMessage::ListeningSockets(answer) => {
                let fabrics = self.responder.fabrics().map(FabricSlot::socket);
                let tcp = self.tcp.listening_socket().into_iter();
                let _ = answer.try_send(fabrics.chain(tcp).flatten().collect());
            }
            ReactorMessage::Retire(gone) => self.retire(&gone),
            ReactorMessage::Evict(id, answer) => {
                let mut transports = self.transports_mut().into_iter();
                let _ = answer.try_send(transports.any(|one| one.evict(id)));
            }
            ReactorMessage::Capture(id, sink, answer) => {
                // The receiver may be gone.
                let _ = answer.try_send(self.capture(id, sink));
            }
            ReactorMessage::Status(answer) => {
                let _ = answer.try_send(self.report(turn.now));
            }
        }
    }

    fn descriptors(&self, list: &mut Vec<RawFd>) {
        self.responder.descriptors(list);
        self.tcp.descriptors(list);
        if let Some(rpcbind) = &self.rpcbind {
            rpcbind.descriptors(list);
        }
        list.extend(self.room.descriptor());
    }

    fn arm(&mut self) -> bool {
        let state = self.responder.shared().programs.client_state();
        let home = self.home.as_ref().zip(state);
        let is_asking = home.is_some_and(|(home, state)| home.is_waiting(state));
        !is_asking && self.responder.arm() && self.room.arm()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let drain = self.drain.and_then(|drain| drain.next_deadline());
        let rpcbind = self.rpcbind.as_ref().and_then(RpcbindServer::next_deadline);
        let fabrics = self.responder.next_deadline();
        let state = self.responder.shared().programs.client_state();
        let callbacks = state.and_then(ClientState::next_callback);
        let home = self.home.as_ref().zip(state);
        let home = home.and_then(|(home, state)| home.next_deadline(state));
        fabrics
            .into_iter()
            .chain(self.tcp.next_deadline())
            .chain(rpcbind)
            .chain(self.room.next_deadline())
            .chain(drain)
            .chain(callbacks)
            .chain(home)
            .min()
    }

    fn stopped(&self) -> bool {
        self.stopped
    }
}
