//! What answers: the providers of one reactor, their connections and the calls in service.

use std::future::Future;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Buffer;
use millrace_reactor::Alarm;
use millrace_reactor::fabric::{Event, Incoming, QueuePairId, WorkError};
use millrace_reactor::task::{Ended, TaskSet};

use super::backlog::Backlog;
use super::fabrics::{FabricId, FabricSlot};
use super::transfers::Course;
use super::unadmitted::UnadmittedConnections;
use super::{Arrived, Connection, Desk, Request, Shared, answer, exposures};
use crate::complaint::Complaint;
use crate::flow::{Cause, TASKS, Tenant};

/// Events taken from a provider in one go.
const EVENTS: usize = 256;

/// Calls that waited and are begun in one turn. More would keep those waiting that arrive
/// meanwhile, of other clients too.
const STARTS: usize = 256;

/// The responder of one reactor, to be turned by whoever owns it: [`poll`](Self::poll),
/// [`run`](Self::run), [`flush`](Self::flush), over and over. `F` is the future of a task that
/// serves calls.
pub struct Responder<S, F: Future<Output = ()>, M> {
    shared: Rc<Shared<S>>,
    fabrics: Vec<FabricSlot>,
    work: M,
    tasks: TaskSet<F>,
    /// The desk of each task, by its index.
    desks: Vec<Option<Rc<Desk>>>,
    backlog: Backlog,
    events: Vec<Event>,
    ended: Vec<Ended<()>>,
    /// No calls and no connections are taken any more.
    refuses: bool,
    /// Connections of which calls were not taken.
    neglected: Vec<Rc<Connection>>,
    /// Connections of addresses that no export admits.
    unadmitted: UnadmittedConnections,
    /// Providers that go with their last connection.
    retiring: usize,
    /// Lines in the log that peers can cause.
    refused_unadmitted: Complaint,
    refused_others: Complaint,
    slow_client: Complaint,
}

impl<S, F, M> Responder<S, F, M>
where
    F: Future<Output = ()>,
    M: Fn(Rc<Shared<S>>, Rc<Desk>) -> F,
{
    /// Puts a responder together. `work` makes the future of a task
    /// ([`super::work`]); `alarm` is rung when a task can go on, which a reactor that sleeps needs.
    pub fn new(
        shared: Rc<Shared<S>>,
        fabrics: Vec<FabricSlot>,
        work: M,
        alarm: Option<&Alarm>,
    ) -> Self {
        Self {
            shared,
            fabrics,
            work,
            tasks: TaskSet::new(TASKS, alarm),
            desks: vec![None; TASKS],
            backlog: Backlog::default(),
            events: Vec::with_capacity(EVENTS),
            ended: Vec::with_capacity(TASKS),
            refuses: false,
            neglected: Vec::new(),
            unadmitted: UnadmittedConnections::default(),
            retiring: 0,
            refused_unadmitted: Complaint::default(),
            refused_others: Complaint::default(),
            slow_client: Complaint::default(),
        }
    }

    /// What its connections share.
    pub fn shared(&self) -> &Rc<Shared<S>> {
        &self.shared
    }

    /// Sets the clock, and takes in what the providers report. Connections that are to be placed are handed to
    /// `incoming`, with the listener they came by. Returns the amount of work done.
    pub fn poll(&mut self, now: Instant, mut incoming: impl FnMut(FabricId, Incoming)) -> usize {
        let mut work = self.shared.clock.turn(now) + exposures::expire(&self.shared, now);
        work += self.close_slow(now) + self.unadmitted.review(&self.shared, now);
        if !self.neglected.is_empty() {
            self.leave_neglected();
        }
        if self.retiring > 0 {
            self.bury_fabrics();
        }
        for index in 0..self.fabrics.len() {
            let mut events = std::mem::take(&mut self.events);
            work += self.fabrics[index]
                .fabric
                .borrow_mut()
                .poll(now, &mut events);
            for event in events.drain(..) {
                // Calls come first and are taken apart here: an event is large to move.
                match event {
                    Event::Received {
                        queue_pair,
                        buffer,
                        length,
                        ..
                    } => self.received(index, queue_pair, buffer, length as usize, now),
                    Event::Incoming(arrived) => incoming(self.fabrics[index].id, arrived),
                    event => self.event(index, event, now),
                }
            }
            self.events = events;
        }
        work
    }

    /// Ends the connections whose clients take or give data too slowly: what waits for them holds
    /// memory. Returns how many.
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
                Course::Sending => (&counters.stuck_sends, "takes what is sent to it"),
                Course::Fetching => (&counters.stuck_reads, "answers RDMA Reads"),
            };
            counter.add(1);
            closed += 1;
            if self.slow_client.is_due(now) {
                tracing::warn!(
                    client = %connection.peer().address,
                    port = connection.peer().port,
                    "connection closed: its client {doing} too slowly; told once in a while"
                );
            }
            connection.close(true);
        }
        schedule.looked(now, found);
        closed
    }

    fn received(
        &mut self,
        fabric: usize,
        queue_pair: QueuePairId,
        receive: Buffer,
        length: usize,
        arrived: Instant,
    ) {
        let Some(connection) = self.fabrics[fabric].connection(queue_pair) else {
            return;
        };
        connection.received(&self.shared);
        if connection.tapped.is_on() {
            connection.copy_received(&receive[..length]);
        }
        // Before all calls that wait, so that its receive is posted again at once (RFC 5666
        // section 3.8), and its memory comes back whatever they wait for.
        if connection.exposures.is_on()
            && let Some(xid) = exposures::done_of(&receive[..length])
        {
            connection.settle_unanswered(&self.shared, receive);
            connection.exposures.done(&self.shared, connection, xid);
            return;
        }
        let call = Arrived {
            connection: Rc::clone(connection),
            receive,
            length,
            arrived,
        };
        if self.refuses || call.connection.is_neglected() {
            self.neglect(call);
        } else {
            self.start(call);
        }
    }

    /// Does not take a call. Its connection ends when all that were taken are answered.
    #[cold]
    fn neglect(&mut self, call: Arrived) {
        let connection = call.connection;
        connection.settle_unanswered(&self.shared, call.receive);
        if connection.neglect() {
            self.neglected.push(connection);
        }
    }

    /// Ends the connections of which calls were not taken, as they fall idle.
    #[cold]
    fn leave_neglected(&mut self) {
        self.neglected.retain(|connection| {
            let idle = connection.is_idle();
            if idle && !connection.is_broken() {
                connection.leave();
            }
            !idle && !connection.is_broken()
        });
    }

    fn event(&mut self, fabric: usize, event: Event, now: Instant) {
        match event {
            Event::Completed {
                queue_pair,
                token,
                result,
                local,
            } => {
                let outcome = result.map(|()| local);
                let unwanted = self.shared.completions.complete(token, outcome);
                // Nobody waits for a reply to leave. Which call its chunks were of matters if they
                // could not be written.
                if let Err(Err(WorkError::RemoteAccess)) = unwanted
                    && let Some(xid) = answer::call_of(token)
                    && let Some(connection) = self.fabrics[fabric].connection(queue_pair)
                {
                    let client = connection.peer().address;
                    self.shared.poisoned.remember(client, xid);
                }
            }
            Event::ConnectRequest {
                queue_pair,
                peer,
                private_data,
                ..
            } => {
                let slot = &mut self.fabrics[fabric];
                let address = peer.ip().to_canonical();
                let is_admitted = self.shared.admits(address);
                let is_refused = !is_admitted && !self.unadmitted.has_room(address);
                if is_refused {
                    self.shared.flow.counters().turned_away.increment();
                    if self.refused_unadmitted.is_due(now) {
                        tracing::warn!(
                            %peer,
                            "connections are rejected: no export admits their addresses"
                        );
                    }
                }
                if self.refuses || is_refused {
                    slot.fabric.borrow_mut().reject(queue_pair, &[]);
                    return;
                }
                let (shared, limits) = (&self.shared, slot.limits);
                let request = Request {
                    queue_pair,
                    peer,
                    private_data: &private_data,
                };
                match Connection::accept(shared, &slot.fabric, slot.id, &request, limits, now) {
                    Some(connection) => {
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
                    self.wake_calls_of(&connection);
                    let shared = &self.shared;
                    self.backlog.leave(&connection, |call| {
                        connection.settle_unanswered(shared, call.receive);
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
                    connection.exposures.revoked(&self.shared, connection, key);
                }
            }
            // Receives and arrivals were taken before. A responder never connects.
            Event::Received { .. } | Event::Incoming(_) | Event::Rejected { .. } => {}
        }
    }

    /// Gives a call to a task, or lets it wait in its client's line: for a task, or until fewer of
    /// the client's calls have one.
    fn start(&mut self, call: Arrived) {
        let tenant = call.connection.tenant();
        let may = self.shared.flow.may_serve(tenant, self.calls())
            && (self.backlog.is_empty() || !self.backlog.holds(tenant));
        if !may {
            self.backlog.push(call);
        } else if let Some(call) = self.give(call) {
            self.backlog.push(call);
        }
    }

    /// Gives a call to an idle task or a new one, and lets the task begin at once: a call that
    /// needs not wait for anything is over before the next one is looked at, while all that it
    /// touches is in the core's cache. The call comes back if there is no task for it.
    fn give(&mut self, call: Arrived) -> Option<Arrived> {
        let idle = self.shared.idle.borrow_mut().pop();
        let desk = match idle {
            Some(desk) => desk,
            None if self.tasks.len() == self.tasks.capacity() => return Some(call),
            None => self.hire(),
        };
        call.connection.tenant().begin();
        desk.put(call);
        if let Some(task) = desk.task.get() {
            self.tasks.run_one(task, &mut self.ended);
            self.bury();
        }
        None
    }

    /// A new task, which sits at a desk without a call.
    fn hire(&mut self) -> Rc<Desk> {
        let desk = Rc::new(Desk::default());
        let task = (self.work)(Rc::clone(&self.shared), Rc::clone(&desk));
        if let Ok(task) = self.tasks.spawn(task) {
            desk.task.set(Some(task));
            self.desks[task.index as usize] = Some(Rc::clone(&desk));
        }
        desk
    }

    /// Has the tasks run that serve calls of a connection: what they wait for may never come.
    fn wake_calls_of(&mut self, connection: &Rc<Connection>) {
        for desk in self.desks.iter().flatten() {
            if desk.serves(connection)
                && let Some(task) = desk.task.get()
            {
                self.tasks.wake(task);
            }
        }
    }

    /// Ends the connections whose calls made their tasks panic; no task ends otherwise.
    fn bury(&mut self) {
        for ended in self.ended.drain(..) {
            let desk = self.desks[ended.task.index as usize].take();
            if let Some(connection) = desk.and_then(|desk| desk.clear()) {
                self.shared.flow.counters().panics.increment();
                tracing::error!(
                    client = %connection.peer().address,
                    "a request panicked; its connection is closed"
                );
                connection.tenant().end();
                connection.close(true);
            }
        }
    }

    /// Goes on with the calls that can go on. Returns the amount of work done.
    pub fn run(&mut self) -> usize {
        let mut work = self.tasks.run(&mut self.ended);
        self.bury();
        if !self.backlog.is_empty() {
            work += self.take_from_backlog();
        }
        let counters = self.shared.flow.counters();
        counters.tasks.set(self.calls() as u64);
        counters.backlog.set(self.backlog.len() as u64);
        self.shared.flow.publish_peak();
        self.shared.wake_senders();
        work
    }

    /// Begins calls that waited. Returns how many.
    fn take_from_backlog(&mut self) -> usize {
        let shared = Rc::clone(&self.shared);
        let mut begun = 0;
        while begun < STARTS {
            let served = self.calls();
            let may = |tenant: &Tenant| shared.flow.may_serve(tenant, served);
            let Some(call) = self.backlog.pop(may) else {
                break;
            };
            let waited = shared.clock.now().saturating_duration_since(call.arrived);
            let tenant = Rc::clone(call.connection.tenant());
            if let Some(call) = self.give(call) {
                self.backlog.put_back(call);
                break;
            }
            shared.flow.throttled(&tenant, Cause::Share, waited);
            begun += 1;
        }
        begun
    }

    /// Sends what was posted. Returns the amount of work done.
    pub fn flush(&mut self, now: Instant) -> usize {
        self.fabrics
            .iter()
            .map(|slot| slot.fabric.borrow_mut().flush(now))
            .sum()
    }

    /// Takes over a connection that arrived at another reactor's listener.
    pub fn adopt(&mut self, fabric: FabricId, incoming: Incoming, now: Instant) {
        let Some(slot) = self.fabric(fabric) else {
            return;
        };
        let peer = incoming.peer;
        let adopted = slot.fabric.borrow_mut().adopt(incoming, now);
        if let Err(error) = adopted
            && self.refused_others.is_due(now)
        {
            tracing::warn!(%peer, %error, "connections could not be taken over");
        }
    }

    /// From now on takes neither connections nor calls. Calls that wait are not begun any more:
    /// their clients send them again, elsewhere or later.
    pub fn refuse(&mut self) {
        self.refuses = true;
        for call in self.backlog.take() {
            self.neglect(call);
        }
        for slot in &mut self.fabrics {
            slot.stop_listening();
        }
    }

    /// Takes connections and calls again, but of connections of which calls were not taken:
    /// those end. Listeners are to be put in place anew
    /// ([`FabricSlot::listen`]).
    pub fn resume(&mut self) {
        self.refuses = false;
    }

    /// Adds a provider.
    pub fn add_fabric(&mut self, slot: FabricSlot) {
        self.fabrics.push(slot);
    }

    /// The provider of a listener.
    pub fn fabric(&mut self, id: FabricId) -> Option<&mut FabricSlot> {
        self.fabrics.iter_mut().find(|slot| slot.id == id)
    }

    /// Lets go of a provider once its last connection has ended. Nothing may listen there, nor may
    /// a connection be on its way to it.
    pub fn retire(&mut self, id: FabricId) {
        if let Some(slot) = self.fabric(id) {
            slot.stop_listening();
            slot.retires = true;
            self.retiring += 1;
        }
    }

    /// Looks for providers whose last connection has ended.
    fn bury_fabrics(&mut self) {
        self.fabrics.retain(|slot| !slot.is_over());
        self.retiring = self.fabrics.iter().filter(|slot| slot.retires).count();
    }

    /// Lets connections have more receives posted than they were made for: as many as those that
    /// are made now.
    pub fn deepen_receives(&self) {
        for slot in &self.fabrics {
            for connection in slot.connections() {
                connection.deepen_receives(slot.limits.receive_depth);
            }
        }
    }

    /// Its connections.
    pub fn connections(&self) -> impl Iterator<Item = &Rc<Connection>> {
        self.fabrics.iter().flat_map(FabricSlot::connections)
    }

    /// Calls that wait for a limit or for their client's share. A client may be there twice.
    #[must_use]
    pub fn waiting(&self) -> Vec<(IpAddr, u32)> {
        let mut all = self.shared.flow.waiting();
        all.extend(self.backlog.waiting().map(|(tenant, calls)| {
            let calls = u32::try_from(calls).unwrap_or(u32::MAX);
            (tenant.client().address(), calls)
        }));
        all
    }

    /// Calls that are being served.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.tasks.len() - self.shared.idle.borrow().len()
    }

    /// Whether no call is being served or waits, and no reply is yet to be fetched.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls() == 0 && self.backlog.is_empty() && self.shared.exposed.is_idle()
    }

    /// Descriptors that become readable when there is work.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.fabrics
            .iter()
            .filter_map(|slot| slot.fabric.borrow().wake_descriptor())
    }

    /// Lets work make those descriptors readable; false if there is work already.
    pub fn arm(&self) -> bool {
        let mut slots = self.fabrics.iter();
        slots.all(|slot| slot.fabric.borrow_mut().arm())
    }

    /// When a provider, or a task that waits for a time, next has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.fabrics
            .iter()
            .filter_map(|slot| slot.fabric.borrow().next_deadline())
            .chain(self.shared.clock.next_deadline())
            .chain(self.shared.exposed.next_deadline())
            .chain(self.shared.transfers.next_deadline())
            .chain(self.shared.flow.next_deadline())
            .chain(self.unadmitted.next_deadline())
            .min()
    }
}
