//! All TCP connections of one reactor.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::{MemoryAccount, Pool};
use millrace_reactor::Alarm;
use millrace_reactor::accept::{AcceptPause, is_shortage};
use millrace_reactor::task::{Ended as TaskEnded, TaskId, TaskSet};
use rustix::event::{Timespec, epoll};
use rustix::net::sockopt;

use super::TcpConfig;
use super::connection::{ClientMemory, Connection, Ended, Reading};
use super::gather::Gather;
use super::worker::{Queue, Request, Served, work};
use crate::call::{Answer, Peer, Serve, TransportKind};
use crate::complaint::Complaint;
use crate::flow::{Clients, Flow, Usage};
use crate::latency::Noted;
use crate::transfer::TransferLimits;
use millrace_primitives::Counter;

mod ending;
mod eviction;
mod report;

pub use report::TcpReport;

/// Least time between two looks at the sockets while nothing happens: a system call per turn of a
/// busy reactor would cost its RDMA connections more than TCP clients can notice.
const POLL_PAUSE: Duration = Duration::from_micros(20);

/// Time between two looks at deadlines.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

/// Silence after which the kernel asks whether a peer is still there. One that does not answer for
/// as long again is given up.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Events taken from the sockets at a time.
const EVENTS: usize = 64;

const LISTENER: u64 = u64::MAX;

/// Names a connection; never reused for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn from_token(token: u64) -> Self {
        Self {
            index: token as u32,
            generation: (token >> 32) as u32,
        }
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
    interest: epoll::EventFlags,
    /// Calls have to be answered before more is read.
    held: bool,
}

/// What the TCP transport of one reactor has done. Written by the reactor only.
#[derive(Debug, Default)]
pub struct TcpCounters {
    /// Connections taken.
    pub accepted: Counter,
    /// Connections turned away, as there was no room for them.
    pub refused: Counter,
    /// Connections ended to make room for others.
    pub evicted: Counter,
    /// Times that the listener paused, as descriptors or memory were short.
    pub accept_pauses: Counter,
    /// Connections ended, for whatever reason.
    pub ended: Counter,
    /// Connections ended because the peer broke the rules or was too slow.
    pub misbehaved: Counter,
    /// Records received.
    pub records: Counter,
    /// Replies sent.
    pub replies: Counter,
    /// Times that reading had to stop until calls were answered.
    pub held: Counter,
}

type Worker = Pin<Box<dyn Future<Output = ()>>>;

/// A listener that is ready and has accepted nothing yet.
#[derive(Debug)]
pub struct PreparedListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl PreparedListener {
    /// The address that it is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The TCP transport of one reactor.
pub struct TcpServer<S: Serve> {
    config: TcpConfig,
    pool: Pool,
    service: S,
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    /// Nothing is accepted for a moment.
    pause: AcceptPause,
    cannot_accept: Complaint,
    refuses_some: Complaint,
    slots: Vec<Slot>,
    free: Vec<u32>,
    accepted: Vec<TcpStream>,
    /// No calls and no connections are taken any more.
    refuses: bool,
    queue: Rc<Queue>,
    tasks: TaskSet<Worker>,
    ended: Vec<TaskEnded<()>>,
    workers: Vec<(TaskId, usize)>,
    served: Vec<Served>,
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
    /// Connections to be read or written although no event says so.
    again: Vec<ConnectionId>,
    /// Connections whose calls have to be answered before more is read.
    held: Vec<ConnectionId>,
    polled: Option<Instant>,
    checked: Option<Instant>,
    busy: bool,
    counters: Arc<TcpCounters>,
    /// Whose connections they are, and which of their reactors this is.
    clients: (Clients, usize),
    /// Who may have how much memory, where that is shared out.
    flow: Option<Flow>,
    slow_client: Complaint,
    /// Calls that were answered in this turn, to be timed at its end.
    answered: Noted<Rc<Usage>>,
}

impl<S: Serve> TcpServer<S> {
    /// A server without connections. Calls that wait for something ring `alarm` when they can go
    /// on, which a reactor that sleeps needs.
    ///
    /// # Errors
    /// If the system gives no epoll descriptor.
    pub fn new(
        config: TcpConfig,
        pool: &Pool,
        service: S,
        alarm: Option<&Alarm>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            config,
            pool: pool.clone(),
            service,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            pause: AcceptPause::default(),
            cannot_accept: Complaint::default(),
            refuses_some: Complaint::default(),
            slots: Vec::new(),
            free: Vec::new(),
            accepted: Vec::new(),
            refuses: false,
            queue: Rc::new(Queue::new(&config)),
            tasks: TaskSet::new(config.calls + config.connections, alarm),
            ended: Vec::new(),
            workers: Vec::new(),
            served: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            scratch: vec![0; 64 << 10],
            again: Vec::new(),
            held: Vec::new(),
            polled: None,
            checked: None,
            busy: false,
            counters: Arc::default(),
            clients: (Clients::new(1), 0),
            flow: None,
            slow_client: Complaint::default(),
            answered: Noted::default(),
        })
    }

    /// Counts for these clients, as the reactor with this index.
    #[must_use]
    pub fn with_clients(mut self, clients: &Clients, reactor: usize) -> Self {
        self.clients = (clients.clone(), reactor);
        self
    }

    /// Charges the memory of calls to their clients, whose shares of it this divides.
    #[must_use]
    pub fn with_flow(mut self, flow: &Flow) -> Self {
        self.flow = Some(flow.clone());
        self
    }

    /// Replaces how slowly waiting replies may be taken.
    pub fn limit_transfers(&mut self, transfers: TransferLimits) {
        self.config.transfers = transfers;
    }

    /// Listens at an address and returns the one that it is bound to. At most one listener.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        let prepared = self.prepare_listener(address)?;
        let bound = prepared.address;
        self.take_listener(prepared);
        Ok(bound)
    }

    /// Makes a listener ready beside the one that there is. Nothing is accepted from it before it
    /// is taken ([`TcpServer::take_listener`]); dropping it is all that it takes to give it up.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn prepare_listener(&self, address: SocketAddr) -> std::io::Result<PreparedListener> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let address = socket.local_addr()?;
        Ok(PreparedListener { socket, address })
    }

    /// Listens there from now on, and nowhere else. Connections live on.
    pub fn take_listener(&mut self, prepared: PreparedListener) {
        self.listener = Some(prepared.socket);
        self.pause.end();
    }

    /// Takes no more calls: connections end when their calls are answered. New ones are not taken
    /// over either.
    pub fn refuse(&mut self, now: Instant) {
        self.stop_listening();
        self.refuses = true;
        self.accepted.clear();
        for id in self.live() {
            if let Some(connection) = Self::connection(&mut self.slots, id) {
                connection.stop_reading();
            }
            self.advance(id, now);
        }
    }

    /// Takes calls and connections again.
    pub fn resume(&mut self) {
        self.refuses = false;
    }

    /// Ends all connections at once.
    pub fn close_all(&mut self) {
        for id in self.live() {
            self.end(id, &Ended::Closed);
        }
    }

    /// Calls that are not answered yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let connections = self
            .slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref());
        connections.map(|connection| connection.in_flight).sum()
    }

    fn live(&self) -> Vec<ConnectionId> {
        let slots = (0_u32..).zip(&self.slots);
        let live = slots.filter(|(_, slot)| slot.connection.is_some());
        live.map(|(index, slot)| ConnectionId {
            index,
            generation: slot.generation,
        })
        .collect()
    }

    /// Stops to listen. Connections live on.
    pub fn stop_listening(&mut self) {
        self.listener = None;
        self.pause.end();
    }

    /// Takes over a connection, of this server's listener or another's.
    ///
    /// # Errors
    /// If its socket fails, or there is no room for it.
    pub fn adopt(&mut self, socket: TcpStream, now: Instant) -> std::io::Result<()> {
        if self.refuses {
            self.counters.refused.add(1);
            return Err(ErrorKind::QuotaExceeded.into());
        }
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE / KEEP_ALIVE_PROBES)?;
        sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_PROBES)?;
        // A peer that is gone, or shows no window, while replies wait.
        let silence = self.config.transfers.window.as_millis();
        sockopt::set_tcp_user_timeout(&socket, u32::try_from(silence).unwrap_or(u32::MAX))?;
        let peer = Peer::new(socket.peer_addr()?, TransportKind::Tcp);
        let is_admitted = self.service.admits(peer.address);
        if !self.make_room(peer.address, is_admitted, now) {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(Slot::default());
            self.free.push(index);
        }
        let slot = &mut self.slots[index as usize];
        let id = ConnectionId {
            index,
            generation: slot.generation,
        };
        slot.interest = epoll::EventFlags::IN;
        let data = epoll::EventData::new_u64(id.token());
        epoll::add(&self.epoll, &socket, data, slot.interest)?;
        let (clients, reactor) = &self.clients;
        let (number, usage) = (
            clients.new_connection(),
            clients.open_tcp(peer.address, *reactor),
        );
        let mut connection = Connection::new(number, socket, peer, usage, now);
        (connection.is_admitted, connection.was_admitted) = (is_admitted, is_admitted);
        connection.memory = self.flow.as_ref().map(|flow| {
            let tenant = flow.join_tcp(peer.address);
            let account = MemoryAccount::new(tenant.memory());
            ClientMemory { tenant, account }
        });
        slot.connection = Some(connection);
        self.free.pop();
        self.counters.accepted.add(1);
        Ok(())
    }

    /// New connections, where they are handed over ([`TcpConfig::hand_over`]).
    pub fn accepted(&mut self) -> std::vec::Drain<'_, TcpStream> {
        self.accepted.drain(..)
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Arc<TcpCounters> {
        self.counters.clone()
    }

    /// Descriptors to sleep on: sockets, and tasks that others wake.
    pub fn descriptors(&self, list: &mut Vec<RawFd>) {
        list.push(self.epoll.as_raw_fd());
    }

    /// The next instant at which [`TcpServer::poll`] has deadlines to look at.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let checked = self.checked.filter(|_| self.connections() > 0);
        let check = checked.map(|checked| checked + CHECK_PAUSE);
        check.into_iter().chain(self.pause.deadline()).min()
    }

    /// Does what can be done now. Returns the amount of work done (0: idle).
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if self.pause.expire(now) {
            self.hear_listener(true);
        }
        let due = |last: Option<Instant>, pause| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= pause)
        };
        if self.busy || due(self.polled, POLL_PAUSE) {
            self.polled = Some(now);
            work += self.poll_sockets(now);
        }
        work += self.serve(now);
        if due(self.checked, CHECK_PAUSE) {
            self.checked = Some(now);
            self.look_who_is_admitted();
            self.check_all(now);
        }
        self.busy = work > 0;
        work
    }

    fn poll_sockets(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for id in std::mem::take(&mut self.again) {
            work += self.advance(id, now);
        }
        self.events.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        if let Err(error) = epoll::wait(&self.epoll, spare, Some(&Timespec::default()))
            && error != rustix::io::Errno::INTR
        {
            tracing::error!(%error, "polling TCP sockets failed");
        }
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let (token, flags) = (event.data.u64(), event.flags);
            let id = ConnectionId::from_token(token);
            work += 1;
            if token == LISTENER {
                self.accept(now);
            } else if flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                self.end(id, &Ended::Closed);
            } else {
                self.advance(id, now);
            }
        }
        self.events = events;
        work
    }

    fn accept(&mut self, now: Instant) {
        // A burst of connections must not hold up the rest.
        for _ in 0..EVENTS {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                // Those that no export admits stay here, so that they are few in all.
                Ok((socket, peer))
                    if self.config.hand_over && self.service.admits(peer.ip().to_canonical()) =>
                {
                    if self.accepted.len() < self.config.connections {
                        self.accepted.push(socket);
                    } else {
                        self.counters.refused.add(1);
                    }
                }
                Ok((socket, peer)) => {
                    if let Err(error) = self.adopt(socket, now) {
                        tracing::debug!(%peer, %error, "TCP connection turned away");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_shortage(&error) => {
                    if self.pause.begin(now) {
                        tracing::warn!(%error, "no TCP connections can be accepted for a moment");
                    }
                    self.counters.accept_pauses.add(1);
                    return self.hear_listener(false);
                }
                Err(error) => {
                    if self.cannot_accept.is_due(now) {
                        tracing::warn!(%error, "accepting a TCP connection failed");
                    }
                    return;
                }
            }
        }
    }

    /// Lets the listener report connections, or keep silent about them.
    fn hear_listener(&self, reports: bool) {
        let Some(listener) = &self.listener else {
            return;
        };
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, reports);
        let data = epoll::EventData::new_u64(LISTENER);
        // It fails only for what is not watched.
        let _ = epoll::modify(&self.epoll, listener, data, interest);
    }

    /// Serves what was read and queues the replies.
    fn serve(&mut self, now: Instant) -> usize {
        let room = self.tasks.capacity() - self.workers.len();
        for _ in 0..self.queue.shortage().min(room) {
            let worker = self.queue.add_worker();
            let (queue, pool) = (self.queue.clone(), self.pool.clone());
            let (service, flow) = (self.service.clone(), self.flow.clone());
            let task: Worker = Box::pin(work(worker, queue, pool, service, flow));
            match self.tasks.spawn(task) {
                Ok(id) => self.workers.push((id, worker)),
                Err(_) => break,
            }
        }
        self.queue.wake();
        let mut work = self.tasks.run(&mut self.ended);
        for ended in std::mem::take(&mut self.ended) {
            self.bury(ended.task);
        }
        let mut served = std::mem::take(&mut self.served);
        self.queue.take_served(&mut served);
        work += served.len();
        for call in served.drain(..) {
            self.finish(call, now);
        }
        self.served = served;
        if work > 0 {
            for id in std::mem::take(&mut self.held) {
                if let Some(slot) = self.slots.get_mut(id.index as usize) {
                    slot.held = false;
                }
                self.advance(id, now);
            }
        }
        work
    }

    /// A worker ends only by a panic: so does the connection whose call it served.
    fn bury(&mut self, task: TaskId) {
        let Some(index) = self.workers.iter().position(|(id, _)| *id == task) else {
            return;
        };
        let (_, worker) = self.workers.swap_remove(index);
        if let Some(connection) = self.queue.bury(worker) {
            self.end(connection, &Ended::Failed);
        }
    }

    fn finish(&mut self, call: Served, now: Instant) {
        let id = call.connection;
        let Some(connection) = Self::connection(&mut self.slots, id) else {
            if let Some(parts) = call.parts {
                self.queue.keep_slices(parts.slices);
            }
            return;
        };
        let (usage, moved) = (&connection.usage, call.moved);
        usage.moved(moved.read, moved.written);
        connection.has_called |= call.is_valid;
        match call.answer {
            Answer::Send => match call.parts.and_then(Gather::new) {
                Some(reply) => {
                    let observe = |usage: &Rc<Usage>, took| usage.answered(took);
                    let usage = Rc::clone(usage);
                    self.answered.note(usage, call.arrived, observe);
                    connection.queue(reply);
                }
                None => return self.end(id, &Ended::Unanswerable),
            },
            Answer::Silent => connection.in_flight -= 1,
            Answer::TooLarge(_) | Answer::Broken => return self.end(id, &Ended::Unanswerable),
        }
        self.advance(id, now);
    }

    /// Reads and writes one connection as far as it goes.
    fn advance(&mut self, id: ConnectionId, now: Instant) -> usize {
        let before = self.counters.records.get() + self.counters.replies.get();
        if let Err(reason) = self.try_advance(id, now) {
            self.end(id, &reason);
        }
        (self.counters.records.get() + self.counters.replies.get() - before) as usize
    }

    fn try_advance(&mut self, id: ConnectionId, now: Instant) -> Result<(), Ended> {
        let Self {
            config,
            queue,
            flow,
            counters,
            scratch,
            slots,
            ..
        } = self;
        let Some(slot) = slots
            .get_mut(id.index as usize)
            .filter(|s| s.generation == id.generation)
        else {
            return Ok(());
        };
        let Some(connection) = &mut slot.connection else {
            return Ok(());
        };
        connection.send(&mut |reply| {
            counters.replies.add(1);
            queue.keep_slices(reply.into_slices());
        })?;
        let address = connection.peer.address;
        let allowed =
            |in_flight| in_flight < config.calls_per_connection && queue.has_room(address);
        // Sending makes room as well as serving does.
        if slot.held && allowed(connection.in_flight) {
            slot.held = false;
            self.held.retain(|held| *held != id);
        }
        if connection.is_open() && !slot.held {
            let peer = connection.peer;
            let memory = connection.memory.clone();
            if let (Some(flow), Some(memory)) = (flow, &memory) {
                flow.called_by_tcp(&memory.tenant);
            }
            let mut reading = Reading::Held;
            if allowed(connection.in_flight) {
                reading = connection.read(scratch, now, &mut |record, in_flight| {
                    let record = std::mem::replace(record, queue.spare_record());
                    queue.push(Request {
                        connection: id,
                        peer,
                        arrived: now,
                        record,
                        memory: memory.clone(),
                    });
                    counters.records.add(1);
                    allowed(in_flight)
                })?;
            }
            match reading {
                Reading::Empty => {}
                Reading::More => self.again.push(id),
                Reading::Held => {
                    slot.held = true;
                    counters.held.add(1);
                    self.held.push(id);
                }
            }
        }
        connection.check(config, now)?;
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, connection.is_open() && !slot.held);
        interest.set(epoll::EventFlags::OUT, connection.is_sending());
        if interest != slot.interest {
            slot.interest = interest;
            let data = epoll::EventData::new_u64(id.token());
            let result = epoll::modify(&self.epoll, &connection.socket, data, interest);
            result.map_err(std::io::Error::from)?;
        }
        Ok(())
    }

    fn check_all(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let id = ConnectionId {
                index: index as u32,
                generation: slot.generation,
            };
            if let Some(connection) = &mut slot.connection
                && let Err(reason) = connection.check(&self.config, now)
            {
                self.end(id, &reason);
            }
        }
    }

    fn connection(slots: &mut [Slot], id: ConnectionId) -> Option<&mut Connection> {
        let slot = slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.connection.as_mut()
        } else {
            None
        }
    }
}
