//! All TCP connections of one reactor.

use std::future::Future;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::Pool;
use millrace_reactor::Alarm;
use millrace_reactor::accept::AcceptPause;
use rustix::event::{Timespec, epoll};
use rustix::net::sockopt;

use super::TcpConfig;
use super::connection::{Ended, Reading, TcpConnection};
use super::records::RecordBudget;
use super::reply_record::ReplyRecord;
use super::reverse::{Outbox, TcpReversePath};
use super::turns::ConnectionTurns;
use super::worker::{ServedCall, TcpCall, TcpShared, serve_at_once, work};
use crate::call::{Answer, Peer, Serve, TransportKind};
use crate::flow::Flow;
use crate::latency::LatencyBatch;
use crate::log_limit::LogLimit;
use crate::rpc::{CallScheduler, ConnectionRef};
use crate::transfer::TransferLimits;
use millrace_primitives::Counter;

mod ending;
mod eviction;
mod listener;
mod report;

pub use listener::PreparedListener;

/// The shortest interval between polls of the sockets while nothing happens there: a system call
/// per turn of a busy reactor would cost its RDMA connections more than TCP clients can notice.
const POLL_PAUSE: Duration = Duration::from_micros(20);

/// Clients that called this recently are likely to call again: every turn polls the sockets.
const ACTIVE: Duration = Duration::from_micros(200);

/// The interval of checking deadlines.
const CHECK_PAUSE: Duration = Duration::from_millis(500);

/// Silence after which the kernel probes the peer. A peer that does not answer for as long again is
/// given up.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_PROBES: u32 = 6;

/// Events taken from the sockets at a time.
const EVENTS: usize = 64;

const LISTENER: u64 = u64::MAX;

/// The directions in which a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// Pending data is sent. The socket reports data to be read.
    Out,
    /// Received data is read as well.
    Both,
}

/// Identifies a connection; never reused.
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
struct TcpSlot {
    generation: u32,
    connection: Option<TcpConnection>,
    interest: epoll::EventFlags,
    /// Calls must be answered before more is read.
    held: bool,
    /// Replies were queued in this turn.
    is_answered: bool,
    /// It is among those to be read or written without an event.
    goes_on: bool,
}

/// Counters of the TCP transport of one reactor. Written by the reactor only.
#[derive(Debug, Default)]
pub struct TcpCounters {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused for lack of space.
    pub refused: Counter,
    /// Connections evicted for others.
    pub evicted: Counter,
    /// Times that the listener paused, as descriptors or memory were short.
    pub accept_pauses: Counter,
    /// Connections ended, for any reason.
    pub ended: Counter,
    /// Connections ended because the peer violated the protocol or was too slow.
    pub misbehaved: Counter,
    /// Records received.
    pub records: Counter,
    /// Replies sent.
    pub replies: Counter,
    /// Times that reading paused until calls were answered.
    pub held: Counter,
}

/// A task that serves calls.
type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The TCP transport of one reactor.
pub struct TcpServer<S: Serve> {
    config: TcpConfig,
    shared: Rc<TcpShared<S>>,
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    /// The pause of accepting.
    pause: AcceptPause,
    cannot_accept: LogLimit,
    refuses_some: LogLimit,
    slots: Vec<TcpSlot>,
    free: Vec<u32>,
    accepted: Vec<TcpStream>,
    /// New calls and connections are refused.
    refuses: bool,
    calls: CallScheduler<TcpCall, Task>,
    records: Rc<RecordBudget>,
    /// Reverse calls to be sent.
    outbox: Outbox,
    served: Vec<ServedCall>,
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
    /// Connections to be read or written without an event.
    again: Vec<ConnectionId>,
    turns: ConnectionTurns,
    /// Turns of the reactor so far.
    turn: u64,
    /// Connections with replies of this turn, which are sent together.
    answered_now: Vec<ConnectionId>,
    /// Connections whose calls must be answered before more is read.
    held: Vec<ConnectionId>,
    polled: Option<Instant>,
    checked: Option<Instant>,
    /// When there was work last.
    worked: Option<Instant>,
    counters: Arc<TcpCounters>,
    slow_client: LogLimit,
    /// Calls answered in this turn, whose latency is recorded at its end.
    answered: LatencyBatch<ConnectionRef>,
}

impl<S: Serve> TcpServer<S> {
    /// A server without connections, with flow control by `flow`. Waiting calls signal `alarm` when
    /// they can continue, for reactors that sleep.
    ///
    /// # Errors
    /// If the system gives no epoll descriptor.
    pub fn new(
        config: TcpConfig,
        pool: &Pool,
        service: S,
        flow: &Flow,
        alarm: Option<&Alarm>,
    ) -> std::io::Result<Self> {
        let shared = Rc::new(TcpShared::new(pool, service, flow));
        let of_task = Rc::clone(&shared);
        let task = move |slot| -> Task { Box::pin(work(Rc::clone(&of_task), slot)) };
        Ok(Self {
            calls: CallScheduler::new(flow, config.task_limits(), task, alarm),
            records: RecordBudget::new(flow, config.bytes),
            outbox: Outbox::default(),
            config,
            shared,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener: None,
            pause: AcceptPause::default(),
            cannot_accept: LogLimit::default(),
            refuses_some: LogLimit::default(),
            slots: Vec::new(),
            free: Vec::new(),
            accepted: Vec::new(),
            refuses: false,
            served: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            scratch: vec![0; 64 << 10],
            again: Vec::new(),
            turns: ConnectionTurns::default(),
            turn: 0,
            answered_now: Vec::new(),
            held: Vec::new(),
            polled: None,
            checked: None,
            worked: None,
            counters: Arc::default(),
            slow_client: LogLimit::default(),
            answered: LatencyBatch::default(),
        })
    }

    /// Replaces the minimum rate of receiving replies.
    pub fn limit_transfers(&mut self, transfers: TransferLimits) {
        self.config.transfers = transfers;
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

    /// Adopts a connection, of this server's listener or another's.
    ///
    /// # Errors
    /// If its socket fails, or there is no space for it.
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
        // A peer that has disappeared, or advertises no window, while replies are pending.
        let silence = self.config.transfers.window.as_millis();
        sockopt::set_tcp_user_timeout(&socket, u32::try_from(silence).unwrap_or(u32::MAX))?;
        let peer = Peer::new(socket.peer_addr()?, TransportKind::Tcp);
        let is_admitted = self.shared.service.admits(peer.address);
        if !self.make_room(peer.address, is_admitted, now) {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(TcpSlot::default());
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
        let flow = &self.shared.flow;
        let identity = ConnectionRef::new(flow, flow.join_tcp(peer.address), peer, now);
        let connection = TcpConnection::new(identity, socket, is_admitted);
        let (calls, clock) = (&connection.reverse, flow.clock());
        let path = TcpReversePath::new(id, calls, &self.outbox, clock);
        connection.identity.set_reverse(path);
        slot.connection = Some(connection);
        self.free.pop();
        self.counters.accepted.add(1);
        Ok(())
    }

    /// New connections, if they are handed over ([`TcpConfig::hand_over`]).
    pub fn accepted(&mut self) -> std::vec::Drain<'_, TcpStream> {
        self.accepted.drain(..)
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Arc<TcpCounters> {
        self.counters.clone()
    }

    /// Does all work available now. Returns the amount of work done (0: idle).
    pub fn poll(&mut self, now: Instant) -> usize {
        let mut work = self.shared.flow.clock().turn(now);
        self.turn += 1;
        if self.pause.expire(now) {
            self.hear_listener(true);
        }
        let due = |last: Option<Instant>, pause| {
            last.is_none_or(|last| now.saturating_duration_since(last) >= pause)
        };
        if !due(self.worked, ACTIVE) || due(self.polled, POLL_PAUSE) {
            self.polled = Some(now);
            work += self.poll_sockets(now);
        }
        work += self.serve(now) + self.send_calls(now) + self.go_on_with_others(now);
        if due(self.checked, CHECK_PAUSE) {
            self.checked = Some(now);
            self.look_who_is_admitted();
            self.check_all(now);
        }
        if work > 0 {
            self.worked = Some(now);
        }
        work
    }

    fn poll_sockets(&mut self, now: Instant) -> usize {
        let mut work = 0;
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

    /// Goes on with connections that have used up a turn, once those with little to do were served.
    fn go_on_with_others(&mut self, now: Instant) -> usize {
        let mut work = 0;
        for id in std::mem::take(&mut self.again) {
            if let Some(slot) = self.slots.get_mut(id.index as usize) {
                slot.goes_on = false;
            }
            work += self.advance(id, now);
        }
        work
    }

    /// Serves what was read and sends the replies.
    fn serve(&mut self, now: Instant) -> usize {
        let mut work = 0;
        // The calls that waited may take long.
        if self.calls.has_waiting() {
            work += self.answer(now);
        }
        let shared = &self.shared;
        work += self.calls.run(|call| serve_at_once(shared, call));
        let failed: Vec<_> = self.calls.failed().collect();
        for connection in failed {
            if let Some(id) = self.find(connection.id()) {
                self.end(id, &Ended::Failed);
            }
        }
        work += self.answer(now);
        // Replies to reverse calls are released by their callers, in turns without work here.
        let released = self.records.take_released();
        if work > 0 || released {
            for id in std::mem::take(&mut self.held) {
                if let Some(slot) = self.slots.get_mut(id.index as usize) {
                    slot.held = false;
                }
                self.advance(id, now);
            }
        }
        work
    }

    /// Sends the replies to served calls. Returns their number.
    fn answer(&mut self, now: Instant) -> usize {
        let mut served = std::mem::take(&mut self.served);
        self.shared.take_served(&mut served);
        let work = served.len();
        for call in served.drain(..) {
            self.finish(call);
        }
        self.served = served;
        let mut answered = std::mem::take(&mut self.answered_now);
        // Clients that receive little do not wait for those that receive much.
        answered.sort_unstable_by_key(|&id| {
            let connection = Self::connection(&mut self.slots, id);
            connection.map(|connection| connection.bytes_waiting())
        });
        for id in answered.drain(..) {
            if let Some(slot) = self.slots.get_mut(id.index as usize) {
                slot.is_answered = false;
            }
            self.go_on(id, now, Direction::Out);
        }
        self.answered_now = answered;
        work
    }

    /// Sends pending reverse calls. Returns their number.
    fn send_calls(&mut self, now: Instant) -> usize {
        let calls = self.outbox.take();
        let count = calls.len();
        for (id, record) in calls {
            if let Some(connection) = Self::connection(&mut self.slots, id) {
                connection.queue_call(record);
                self.advance(id, now);
            }
        }
        count
    }

    /// The connection with this identifier.
    fn find(&self, id: u64) -> Option<ConnectionId> {
        let is_same = |slot: &TcpSlot| {
            let connection = slot.connection.as_ref();
            connection.is_some_and(|connection| connection.identity.id() == id)
        };
        let index = self.slots.iter().position(is_same)?;
        Some(ConnectionId {
            index: u32::try_from(index).ok()?,
            generation: self.slots[index].generation,
        })
    }

    /// Queues the reply to a served call.
    fn finish(&mut self, call: ServedCall) {
        let id = call.id;
        let slot = self.slots.get_mut(id.index as usize);
        let slot = slot.filter(|slot| slot.generation == id.generation);
        let Some((connection, is_answered)) = slot.and_then(|slot| {
            let connection = slot.connection.as_mut()?;
            Some((connection, &mut slot.is_answered))
        }) else {
            if let Some(parts) = call.parts {
                self.shared.keep_slices(parts.slices);
            }
            return;
        };
        let moved = call.moved;
        connection.identity.usage().moved(moved.read, moved.written);
        connection.has_called |= call.is_valid;
        match call.answer {
            Answer::Send => match call.parts.and_then(ReplyRecord::new) {
                Some(reply) => {
                    let observe =
                        |one: &ConnectionRef, took, calls| one.usage().answered(took, calls);
                    let identity = &connection.identity;
                    self.answered.note(identity, call.arrived, observe);
                    connection.queue(reply);
                }
                None => return self.end(id, &Ended::Unanswerable),
            },
            Answer::Silent => connection.in_flight -= 1,
            Answer::TooLarge(_) | Answer::Broken => return self.end(id, &Ended::Unanswerable),
            Answer::Disconnect => return self.end(id, &Ended::Unsigned),
        }
        if !std::mem::replace(is_answered, true) {
            self.answered_now.push(id);
        }
    }

    /// Writes and reads one connection as far as possible.
    fn advance(&mut self, id: ConnectionId, now: Instant) -> usize {
        self.go_on(id, now, Direction::Both)
    }

    fn go_on(&mut self, id: ConnectionId, now: Instant, direction: Direction) -> usize {
        let before = self.counters.records.get() + self.counters.replies.get();
        if let Err(reason) = self.try_advance(id, now, direction) {
            self.end(id, &reason);
        }
        (self.counters.records.get() + self.counters.replies.get() - before) as usize
    }

    fn try_advance(
        &mut self,
        id: ConnectionId,
        now: Instant,
        direction: Direction,
    ) -> Result<(), Ended> {
        let Self {
            config,
            calls,
            records,
            shared,
            counters,
            scratch,
            slots,
            turns,
            turn,
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
        let client = connection.identity.peer().address;
        let most = turns.bytes(client, now);
        connection.begin_turn(*turn);
        let sends_more = connection.send(most, &mut |reply| {
            counters.replies.add(1);
            shared.keep_slices(reply.into_slices());
        })?;
        let mut goes_on = sends_more;
        let identity = connection.identity.clone();
        let allowed =
            |in_flight| in_flight < config.calls_per_connection && records.has_room(&identity);
        let mut reads = direction == Direction::Both;
        // Sending releases space as serving does. No event reports left-over bytes.
        if slot.held && allowed(connection.in_flight) {
            slot.held = false;
            self.held.retain(|held| *held != id);
            reads = true;
        }
        if reads && connection.is_open() && !slot.held {
            shared.flow.called_by_tcp(identity.share());
            let mut reading = Reading::Held;
            if allowed(connection.in_flight) {
                reading =
                    connection.read(most, scratch, now, records, &mut |record, in_flight| {
                        let call = TcpCall {
                            id,
                            arrived: now,
                            record: records.hold(record, &identity),
                            is_authenticated: false,
                        };
                        calls.start(call, |call| serve_at_once(shared, call));
                        counters.records.add(1);
                        allowed(in_flight)
                    })?;
            }
            match reading {
                Reading::Empty => {}
                Reading::More => goes_on = true,
                Reading::Held => {
                    slot.held = true;
                    counters.held.add(1);
                    self.held.push(id);
                }
            }
        }
        if goes_on && !std::mem::replace(&mut slot.goes_on, true) {
            self.again.push(id);
        }
        connection.check(config, now)?;
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, connection.is_open() && !slot.held);
        if connection.is_light() {
            turns.served_light(client, now);
        }
        let waits = connection.is_sending() && !sends_more;
        interest.set(epoll::EventFlags::OUT, waits);
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

    fn connection(slots: &mut [TcpSlot], id: ConnectionId) -> Option<&mut TcpConnection> {
        let slot = slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation {
            slot.connection.as_mut()
        } else {
            None
        }
    }
}
