//! The responder: the providers of one reactor, their connections and the calls in service.

use std::future::Future;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Buffer;
use millrace_reactor::Alarm;
use millrace_reactor::fabric::{ControlPath, DataPath, Event, Incoming, QueuePairId, WorkError};

use super::at_once::serve_at_once;
use super::fabrics::{FabricId, FabricSlot};
use super::reverse::RdmaReversePath;
use super::small_data::{SmallFetches, is_fetch};
use super::transfers::TransferDirection;
use super::unadmitted::UnadmittedConnections;
use super::{Arrived, ConnectionRequest, RdmaConnection, ResponderShared, answer, compat};
use crate::call::Serve;
use crate::flow::TaskLimits;
use crate::log_limit::LogLimit;
use crate::rpc::{CallScheduler, RequestSlot};

/// Events taken from a provider at once.
const EVENTS: usize = 256;

/// Replies that are sent before further calls of a turn are served: clients can go on while the
/// server does.
const REPLIES: usize = 16;

/// The responder of one reactor. Its owner calls [`poll`](Self::poll), [`run`](Self::run) and
/// [`flush`](Self::flush) in turn. `F` is the future of a task that serves calls.
pub struct Responder<S, F> {
    pub(super) shared: Rc<ResponderShared<S>>,
    pub(super) fabrics: Vec<FabricSlot>,
    pub(super) calls: CallScheduler<Arrived, F>,
    fetches: SmallFetches,
    events: Vec<Event>,
    /// New calls and connections are refused.
    pub(super) refuses: bool,
    /// Connections with refused calls.
    refused: Vec<Rc<RdmaConnection>>,
    /// Connections of addresses that no export admits.
    pub(super) unadmitted: UnadmittedConnections,
    /// Providers to be dropped with their last connection.
    retiring: usize,
    /// Rate limits of log lines that peers can cause.
    refused_unadmitted: LogLimit,
    refused_others: LogLimit,
    slow_client: LogLimit,
}

impl<S: Serve, F: Future<Output = ()>> Responder<S, F> {
    /// Creates a responder. `work` makes the future of a task ([`super::work`]); `alarm` is
    /// signalled when a task can continue, for reactors that sleep.
    pub fn new(
        shared: Rc<ResponderShared<S>>,
        fabrics: Vec<FabricSlot>,
        work: impl Fn(Rc<ResponderShared<S>>, Rc<RequestSlot<Arrived>>) -> F + 'static,
        alarm: Option<&Alarm>,
    ) -> Self {
        let of_task = Rc::clone(&shared);
        let work = move |slot| work(Rc::clone(&of_task), slot);
        let calls = CallScheduler::new(&shared.flow, TaskLimits::RDMA, work, alarm);
        Self {
            fetches: SmallFetches::new(calls.taskless()),
            calls,
            shared,
            fabrics,
            events: Vec::with_capacity(EVENTS),
            refuses: false,
            refused: Vec::new(),
            unadmitted: UnadmittedConnections::default(),
            retiring: 0,
            refused_unadmitted: LogLimit::default(),
            refused_others: LogLimit::default(),
            slow_client: LogLimit::default(),
        }
    }

    /// The state shared by its connections.
    pub fn shared(&self) -> &Rc<ResponderShared<S>> {
        &self.shared
    }

    /// Sets the clock, and processes the events of the providers. Connections to be placed are
    /// passed to `incoming`, with their listeners. Returns the amount of work done.
    pub fn poll(&mut self, now: Instant, mut incoming: impl FnMut(FabricId, Incoming)) -> usize {
        let mut work = self.shared.clock.turn(now) + compat::expire(&self.shared, now);
        work += self.close_slow(now) + self.unadmitted.review(&self.shared, now);
        if !self.refused.is_empty() {
            self.leave_refused();
        }
        if self.retiring > 0 {
            self.drop_retired_fabrics();
        }
        for index in 0..self.fabrics.len() {
            let mut events = std::mem::take(&mut self.events);
            work += self.fabrics[index]
                .fabric
                .borrow_mut()
                .poll(now, &mut events);
            let mut unsent = 0;
            for event in events.drain(..) {
                // Calls and completions are matched here: an event is expensive to move.
                let is_answered = match event {
                    Event::Received {
                        queue_pair,
                        buffer,
                        length,
                        ..
                    } => self.received(index, queue_pair, buffer, length as usize, now),
                    Event::Completed {
                        queue_pair,
                        token,
                        result,
                        local,
                    } => {
                        // Fetched data has one holder then.
                        drop(local);
                        self.completed(index, queue_pair, token, result)
                    }
                    Event::Incoming(arrived) => {
                        incoming(self.fabrics[index].id, arrived);
                        false
                    }
                    event => {
                        self.event(index, event, now);
                        false
                    }
                };
                unsent += usize::from(is_answered);
                if unsent == REPLIES {
                    let fabric = &self.fabrics[index].fabric;
                    self.calls.between(|| fabric.borrow_mut().flush(now));
                    unsent = 0;
                }
            }
            self.events = events;
            // The calls that waited come next, and may take long.
            if unsent > 0 && self.calls.has_waiting() {
                self.fabrics[index].fabric.borrow_mut().flush(now);
            }
        }
        work
    }

    /// Ends the connections whose clients receive or send data too slowly, as pending data holds
    /// memory. Returns their number.
    fn close_slow(&mut self, now: Instant) -> usize {
        let schedule = &self.shared.transfers;
        if !schedule.is_due(now) {
            return 0;
        }
        let limits = self.shared.settings.get().transfers;
        let counters = self.shared.flow.counters();
        let (mut found, mut closed) = (false, 0);
        for connection in self.fabrics.iter().flat_map(FabricSlot::connections) {
            let slow = connection.too_slow(now, &limits);
            found |= connection.has_transfers();
            let Some(course) = slow else {
                continue;
            };
            let (counter, doing) = match course {
                TransferDirection::Sending => (&counters.stuck_sends, "takes what is sent to it"),
                TransferDirection::Fetching => (&counters.stuck_reads, "answers RDMA Reads"),
            };
            counter.add(1);
            closed += 1;
            if self.slow_client.is_due(now) {
                tracing::warn!(
                    client = %connection.peer().address,
                    port = connection.peer().port,
                    "connection closed: its client {doing} too slowly; logged from time to time"
                );
            }
            connection.close(true);
        }
        schedule.looked(now, found);
        closed
    }

    /// Returns whether a call was answered at once.
    fn received(
        &mut self,
        fabric: usize,
        queue_pair: QueuePairId,
        receive: Buffer,
        length: usize,
        arrived: Instant,
    ) -> bool {
        let Some(connection) = self.fabrics[fabric].connection(queue_pair) else {
            return false;
        };
        connection.received(&self.shared);
        if connection.capture.is_on() {
            connection.capture.received(&receive[..length]);
        }
        // Before all waiting calls, so that its receive is posted again at once (RFC 5666 section
        // 3.8), and its memory is released.
        if let Some(xid) = connection.compat.done_of(&receive[..length]) {
            connection.repost(&self.shared, receive);
            connection.compat.done(&self.shared, connection, xid);
            return false;
        }
        let call = Arrived {
            connection: Rc::clone(connection),
            receive,
            length,
            arrived,
            fetched: None,
            is_authenticated: false,
        };
        if self.refuses || call.connection.has_refused_calls() {
            self.refuse_call(call);
            return false;
        }
        let Self {
            shared, fetches, ..
        } = self;
        let mut is_answered = false;
        self.calls.start(call, |call| {
            let unanswered = serve_at_once(shared, call);
            is_answered = unanswered.is_none();
            fetches.begin(shared, unanswered?)
        });
        is_answered
    }

    /// Refuses a call. Its connection ends when all accepted ones are answered.
    #[cold]
    pub(super) fn refuse_call(&mut self, call: Arrived) {
        let connection = call.connection;
        connection.repost(&self.shared, call.receive);
        if connection.set_refused_calls() {
            self.refused.push(connection);
        }
    }

    /// Ends the connections with refused calls, when they are idle.
    #[cold]
    fn leave_refused(&mut self) {
        self.refused.retain(|connection| {
            let idle = connection.is_idle();
            if idle && !connection.is_broken() {
                connection.leave();
            }
            !idle && !connection.is_broken()
        });
    }

    /// Returns whether a call was answered at once.
    fn completed(
        &mut self,
        fabric: usize,
        queue_pair: QueuePairId,
        token: u64,
        result: Result<(), WorkError>,
    ) -> bool {
        let shared = &self.shared;
        if is_fetch(token) {
            let Some(call) = self.fetches.complete(shared, token, result) else {
                return false;
            };
            let mut is_answered = false;
            self.calls.resume(call, |call| {
                let unanswered = serve_at_once(shared, call);
                is_answered = unanswered.is_none();
                unanswered
            });
            return is_answered;
        }
        let unwanted = self.shared.completions.complete(token, result);
        // The completion of a reply has no waiter. The call is needed if its chunks could not be
        // written.
        if let Err(Err(WorkError::RemoteAccess)) = unwanted
            && let Some(xid) = answer::call_of(token)
            && let Some(connection) = self.fabrics[fabric].connection(queue_pair)
        {
            let client = connection.peer().address;
            self.shared.remote_access_failures.remember(client, xid);
        }
        false
    }

    fn event(&mut self, fabric: usize, event: Event, now: Instant) {
        match event {
            Event::ConnectRequest {
                queue_pair,
                peer,
                private_data,
                ..
            } => {
                let slot = &mut self.fabrics[fabric];
                let address = peer.ip().to_canonical();
                let is_banned = self.shared.flow.clients().bans().has(address, now);
                let is_admitted = self.shared.admits(address);
                let is_refused = !is_banned && !is_admitted && !self.unadmitted.has_room(address);
                if is_refused {
                    self.shared.flow.counters().turned_away.increment();
                    if self.refused_unadmitted.is_due(now) {
                        tracing::warn!(
                            %peer,
                            "connections are rejected: no export admits their addresses"
                        );
                    }
                }
                if is_banned {
                    self.shared.flow.counters().turned_away.increment();
                }
                if self.refuses || is_refused || is_banned {
                    slot.fabric.borrow_mut().reject(queue_pair, &[]);
                    return;
                }
                let (shared, limits) = (&self.shared, slot.limits);
                let request = ConnectionRequest {
                    queue_pair,
                    peer,
                    private_data: &private_data,
                };
                match RdmaConnection::accept(shared, &slot.fabric, slot.id, &request, limits, now) {
                    Some(connection) => {
                        connection.identity().set_reverse(RdmaReversePath {
                            connection: Rc::downgrade(&connection),
                            shared: Rc::downgrade(shared),
                        });
                        if !is_admitted {
                            self.unadmitted.add(&connection, now);
                        }
                        slot.insert(connection);
                    }
                    None if self.refused_others.is_due(now) => tracing::warn!(
                        %peer,
                        "connections are rejected: no buffers are free for them"
                    ),
                    None => {}
                }
            }
            Event::Established {
                queue_pair, depths, ..
            } => {
                if let Some(connection) = self.fabrics[fabric].connection(queue_pair) {
                    connection.established(depths);
                    if connection.is_unadmitted() {
                        return;
                    }
                    let inline = connection.inline();
                    tracing::info!(
                        client = %connection.peer().address,
                        port = connection.peer().port,
                        provider = self.fabrics[fabric].fabric.borrow().name(),
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
                    let shared = &self.shared;
                    self.calls.disconnected(connection.identity(), |call| {
                        connection.repost(shared, call.receive);
                    });
                    if connection.is_unadmitted() {
                        return;
                    }
                    tracing::info!(
                        client = %connection.peer().address,
                        port = connection.peer().port,
                        calls = connection.counters().calls.get(),
                        %reason,
                        "client disconnected"
                    );
                }
            }
            Event::Revoked {
                queue_pair, key, ..
            } => {
                if let Some(connection) = self.fabrics[fabric].connection(queue_pair) {
                    let compat = &connection.compat;
                    compat.revoked(&self.shared, connection, key);
                }
            }
            // The first three were handled before. A responder never connects.
            Event::Received { .. }
            | Event::Completed { .. }
            | Event::Incoming(_)
            | Event::Rejected { .. } => {}
        }
    }

    /// Runs the calls that can continue. Returns the amount of work done.
    pub fn run(&mut self) -> usize {
        let Self {
            shared, fetches, ..
        } = self;
        let work = self
            .calls
            .run(|call| fetches.begin(shared, serve_at_once(shared, call)?));
        for failed in self.calls.failed() {
            let mut connections = self.fabrics.iter().flat_map(FabricSlot::connections);
            if let Some(connection) = connections.find(|one| *one.identity() == failed) {
                connection.close(true);
            }
        }
        self.shared.flow.publish_peak();
        self.shared.wake_senders();
        work
    }

    /// Sends posted requests. Returns the amount of work done.
    pub fn flush(&mut self, now: Instant) -> usize {
        self.fabrics
            .iter()
            .map(|slot| slot.fabric.borrow_mut().flush(now))
            .sum()
    }

    /// Adopts a connection that arrived at another reactor's listener.
    pub fn adopt(&mut self, fabric: FabricId, incoming: Incoming, now: Instant) {
        let Some(slot) = self.fabric(fabric) else {
            return;
        };
        let peer = incoming.peer;
        let adopted = slot.fabric.borrow_mut().adopt(incoming, now);
        if let Err(error) = adopted
            && self.refused_others.is_due(now)
        {
            tracing::warn!(%peer, %error, "connections could not be adopted");
        }
    }

    /// Adds a provider.
    pub fn add_fabric(&mut self, slot: FabricSlot) {
        self.fabrics.push(slot);
    }

    /// Its providers.
    pub fn fabrics(&self) -> impl Iterator<Item = &FabricSlot> {
        self.fabrics.iter()
    }

    /// The provider of a listener.
    pub fn fabric(&mut self, id: FabricId) -> Option<&mut FabricSlot> {
        self.fabrics.iter_mut().find(|slot| slot.id == id)
    }

    /// Drops a provider once its last connection has ended. It must have no listener, and no
    /// connection to be adopted.
    pub fn retire(&mut self, id: FabricId) {
        if let Some(slot) = self.fabric(id) {
            slot.stop_listening();
            slot.retires = true;
            self.retiring += 1;
        }
    }

    /// Drops providers whose last connection has ended.
    fn drop_retired_fabrics(&mut self) {
        self.fabrics.retain(|slot| !slot.is_over());
        self.retiring = self.fabrics.iter().filter(|slot| slot.retires).count();
    }

    /// Permits more posted receives for existing connections: as many as for new ones.
    pub fn deepen_receives(&self) {
        for slot in &self.fabrics {
            for connection in slot.connections() {
                connection.deepen_receives(slot.limits.receive_depth);
            }
        }
    }

    /// Its connections.
    pub fn connections(&self) -> impl Iterator<Item = &Rc<RdmaConnection>> {
        self.fabrics.iter().flat_map(FabricSlot::connections)
    }

    /// Whether no call is in service or waiting, and no reply is to be fetched.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.is_idle() && self.shared.exposed.is_idle()
    }
}
