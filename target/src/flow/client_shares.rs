//! The clients of one reactor, and their shares of its memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_mempool::{Class, Pool, PoolGauges};
use millrace_reactor::Clock;

use super::gate::Gate;
use super::policy::{self, Claim, FIRST_RECEIVES, Pressure};
use super::{
    Cause, ClassesHistograms, ClientRecord, ClientShare, ClientTable, FlowCounters, InFlightPeak,
    TaskLimits, Usage,
};
use crate::call::{Broken, TransportKind};
use crate::call_histograms::ClassHistograms;
use crate::exports::ExportId;

/// Receives may take half of the buffers of their class; the other half is for replies and new
/// clients.
pub(crate) const RECEIVES_PART: u64 = 2;

/// A client without calls for this long is no longer active: its share goes to the others.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

/// The interval of recounting active clients.
const RECOUNT_AFTER: Duration = Duration::from_millis(100);

/// A client without connections is remembered for this long, so that reconnecting does not reset
/// its limit.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Flow control of one reactor. Clones share it.
#[derive(Clone)]
pub struct Flow {
    inner: Rc<Inner>,
}

struct Inner {
    clients: ClientTable,
    reactor: usize,
    clock: Clock,
    pool: Pool,
    gauges: Arc<PoolGauges>,
    receive_class: Class,
    counters: Arc<FlowCounters>,
    classes: ClassesHistograms,
    used_peak: InFlightPeak,
    shares: RefCell<HashMap<IpAddr, Rc<ClientShare>>>,
    exports: RefCell<HashMap<ExportId, Rc<Gate>>>,
    claims: RefCell<Vec<Claim>>,
    /// The number of active clients.
    active: Cell<u32>,
    /// Buffers of each class that the calls of one client may hold.
    holds: [Cell<u32>; 3],
    /// Active clients with connections, by transport.
    sharers: [Cell<u32>; TransportKind::COUNT],
    /// Whether there are several active clients.
    is_shared: Cell<bool>,
    /// Buffers of the receive class, existing and possible.
    total: Cell<u64>,
    /// A client was added, removed or became active since the last count.
    stale: Cell<bool>,
    epoch: Cell<u64>,
    /// The latest time of the next count.
    recount_at: Cell<Instant>,
}

impl Flow {
    /// Flow control of the reactor with this index, whose receives come from `receive_class` of
    /// `pool`.
    #[must_use]
    pub fn new(
        clients: &ClientTable,
        reactor: usize,
        pool: &Pool,
        receive_class: Class,
        clock: &Clock,
    ) -> Self {
        Self {
            inner: Rc::new(Inner {
                clients: clients.clone(),
                reactor,
                clock: clock.clone(),
                pool: pool.clone(),
                gauges: pool.gauges(),
                receive_class,
                counters: Arc::default(),
                classes: ClassesHistograms::default(),
                used_peak: InFlightPeak::new(clock.now()),
                shares: RefCell::default(),
                exports: RefCell::default(),
                claims: RefCell::default(),
                active: Cell::new(0),
                holds: [1; 3].map(Cell::new),
                sharers: Default::default(),
                is_shared: Cell::new(false),
                total: Cell::new(pool.attainable(receive_class)),
                stale: Cell::new(true),
                epoch: Cell::new(0),
                recount_at: Cell::new(clock.now()),
            }),
        }
    }

    /// Flow control of a process of one reactor.
    #[must_use]
    pub fn of_one_reactor(pool: &Pool, receive_class: Class, clock: &Clock) -> Self {
        Self::new(&ClientTable::new(1), 0, pool, receive_class, clock)
    }

    /// The clients of the process.
    #[must_use]
    pub fn clients(&self) -> &ClientTable {
        &self.inner.clients
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> &Arc<FlowCounters> {
        &self.inner.counters
    }

    /// The latencies of its clients' calls, by class.
    #[must_use]
    pub fn classes(&self) -> &ClassesHistograms {
        &self.inner.classes
    }

    /// The client at an address.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> Rc<ClientShare> {
        let inner = &*self.inner;
        let mut shares = inner.shares.borrow_mut();
        let client = shares.entry(address).or_insert_with(|| {
            let record = inner.clients.client(address);
            let class = inner.class_of(&record);
            let client = ClientShare::new(record, class, inner.reactor, inner.clock.now());
            inner.bound_memory(&client);
            Rc::new(client)
        });
        Rc::clone(client)
    }

    /// Adds a connection of a client, unless its share cannot hold the first receives of all its
    /// connections. Receives of other connections beyond that are not counted: one of them may be
    /// dead without being detected yet, and the new one its replacement.
    #[must_use]
    pub fn join(&self, address: IpAddr) -> Option<Rc<ClientShare>> {
        let client = self.client(address);
        client.used.set(self.inner.clock.now());
        client.active.set(true);
        self.count();
        let connections = client.connections.get();
        let first = (connections + 1).saturating_mul(FIRST_RECEIVES);
        // Never of a first connection: every share has room for one.
        if first > client.share.get() {
            self.inner.counters.turned_away.add(1);
            return None;
        }
        self.set_connections(&client, connections + 1);
        Some(client)
    }

    /// Calls that wait for a limit or for their client's share of buffers, by client; only clients
    /// with any.
    #[must_use]
    pub fn waiting(&self) -> Vec<(IpAddr, u32)> {
        let shares = self.inner.shares.borrow();
        let waiting = shares.iter().map(|(&address, client)| {
            let holds = u32::try_from(client.memory.waiting()).unwrap_or(u32::MAX);
            (address, client.waiting().saturating_add(holds))
        });
        waiting.filter(|&(_, waiting)| waiting > 0).collect()
    }

    /// The usage counters of a connection of a client.
    #[must_use]
    pub fn usage(&self, client: &ClientShare) -> Usage {
        Usage::new(&client.record, self.inner.reactor)
    }

    /// Counts time that a call of a client had to wait for a limit or for the client's share.
    pub fn throttled(&self, client: &ClientShare, cause: Cause, time: Duration) {
        self.inner.counters.add_throttled(cause, time);
        client.record.slot(self.inner.reactor).add_throttled(time);
    }

    /// Removes a connection of a client, and its calls that wait at a gate.
    pub fn leave(&self, client: &ClientShare) {
        self.set_connections(client, client.connections.get() - 1);
        client.gate.changed();
        for gate in self.inner.exports.borrow().values() {
            gate.changed();
        }
    }

    fn set_connections(&self, client: &ClientShare, count: u32) {
        let inner = &*self.inner;
        client.connections.set(count);
        client
            .record
            .set_connections(&inner.clients, inner.reactor, count);
        inner.stale.set(true);
    }

    /// Records a change of the receives requested by one of a client's connections. Shares are
    /// computed again before the next one is used, so that none is based on old requests.
    pub fn note_demand(&self, client: &ClientShare, before: u32, after: u32) {
        if client.note_demand(before, after) {
            self.inner.stale.set(true);
        }
    }

    /// Records a call of a client.
    pub fn called(&self, client: &ClientShare) {
        let now = self.inner.clock.now();
        client.used.set(now);
        client.in_service.set(client.in_service.get() + 1);
        self.inner.used_peak.note(now, self.in_service());
        self.inner.counters.used.add(1);
        if !client.active.replace(true) {
            self.inner.stale.set(true);
        }
    }

    /// Records the end of a call of a client.
    pub fn ended(&self, client: &ClientShare) {
        client.in_service.set(client.in_service.get() - 1);
        self.inner.counters.used.sub(1);
    }

    fn in_service(&self) -> u32 {
        u32::try_from(self.inner.counters.used.get()).unwrap_or(u32::MAX)
    }

    /// Publishes the most calls in service at once, at the end of a turn.
    pub fn publish_peak(&self) {
        let inner = &*self.inner;
        let peak = inner.used_peak.most(inner.clock.now(), self.in_service());
        inner.counters.used_peak.set(u64::from(peak));
    }

    /// The next time at which [`publish_peak`](Self::publish_peak) publishes a lower value without
    /// new calls.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let counters = &self.inner.counters;
        let falls = counters.used_peak.get() > counters.used.get();
        falls.then(|| self.inner.used_peak.falls(self.inner.clock.now()))
    }

    /// Receives that a connection of this client may hold now.
    #[must_use]
    pub fn share(&self, client: &ClientShare) -> u32 {
        self.recount();
        client.connection_share.get()
    }

    /// The shortage of memory.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let class = self.inner.gauges.class(self.inner.receive_class);
        let total = self.inner.total.get();
        Pressure {
            free: total.saturating_sub(class.in_use()),
            total,
            waiters: class.waiters(),
        }
    }

    /// Whether any call may have to wait at a gate.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.inner.clients.is_limited()
    }

    /// Whether a call of this client may have to wait at a gate.
    #[must_use]
    pub fn may_wait(&self, client: &ClientShare) -> bool {
        self.has_limits() && (self.has_limited_exports() || !client.gate.is_open())
    }

    /// Whether any export has a limit.
    #[must_use]
    pub fn has_limited_exports(&self) -> bool {
        self.inner.clients.has_limited_exports()
    }

    /// Waits until the limits of a client and of an export permit a call that moves `bytes`.
    ///
    /// # Errors
    /// The call `is_over` before it may begin.
    pub async fn pass(
        &self,
        client: &ClientShare,
        export: Option<ExportId>,
        bytes: u64,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Broken> {
        client.used.set(self.inner.clock.now());
        // If clients use TCP only, no other code removes those that have left.
        self.recount();
        if !client.gate.is_open() {
            let cause = Cause::ClientLimit;
            self.through(client, &client.gate, bytes, cause, &is_over)
                .await?;
        }
        if let Some(export) = export {
            let gate = self.export(export);
            if !gate.is_open() {
                let cause = Cause::ExportLimit;
                self.through(client, &gate, bytes, cause, &is_over).await?;
            }
        }
        Ok(())
    }

    async fn through(
        &self,
        client: &ClientShare,
        gate: &Gate,
        bytes: u64,
        cause: Cause,
        is_over: impl Fn() -> bool,
    ) -> Result<(), Broken> {
        let inner = &*self.inner;
        let sharers = match cause {
            // Each of its connections reports the same waiting calls.
            Cause::ExportLimit => inner.active.get().max(1),
            _ => client.record.reactors().max(1),
        };
        client.window.set((gate.window(bytes) / sharers).max(1));
        client.window_cause.set(cause);
        let since = inner.clock.now();
        let (clock, origin) = (&inner.clock, inner.clients.origin());
        let passed = gate
            .pass(clock, origin, bytes, &client.waiting, is_over)
            .await;
        let waited = inner.clock.now().saturating_duration_since(since);
        self.throttled(client, cause, waited);
        passed
    }

    fn export(&self, export: ExportId) -> Rc<Gate> {
        let mut exports = self.inner.exports.borrow_mut();
        let gate = exports
            .entry(export)
            .or_insert_with(|| Rc::new(Gate::new(self.inner.clients.export(export))));
        Rc::clone(gate)
    }

    /// Notifies waiting calls that limits have changed ([`ClientTable::set_limits`]).
    pub fn limits_changed(&self) {
        let inner = &*self.inner;
        inner.classes.sweep(&inner.clients.classes());
        for client in inner.shares.borrow().values() {
            client.gate.changed();
            client.class.replace(inner.class_of(&client.record));
        }
        let mut exports = self.inner.exports.borrow_mut();
        for gate in exports.values() {
            gate.changed();
        }
        exports.retain(|_, gate| !gate.is_open());
    }

    /// Adds a TCP connection of a client.
    pub(crate) fn join_tcp(&self, address: IpAddr) -> Rc<ClientShare> {
        let client = self.client(address);
        client.tcp.set(client.tcp.get() + 1);
        client.record.slot(self.inner.reactor).tcp.add(1);
        self.called_by_tcp(&client);
        self.inner.stale.set(true);
        client
    }

    /// Removes a TCP connection of a client.
    pub(crate) fn leave_tcp(&self, client: &ClientShare) {
        client.tcp.set(client.tcp.get() - 1);
        client.record.slot(self.inner.reactor).tcp.sub(1);
        self.inner.stale.set(true);
    }

    /// Records a call of a client over TCP.
    pub(crate) fn called_by_tcp(&self, client: &ClientShare) {
        client.used.set(self.inner.clock.now());
        if !client.active.replace(true) {
            self.inner.stale.set(true);
        }
    }

    /// The clock of the reactor, for waiting for memory.
    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Whether one more call of this client may be served in addition to `served` calls of all
    /// clients.
    #[must_use]
    pub fn may_serve(&self, client: &ClientShare, limits: &TaskLimits, served: usize) -> bool {
        let sharers = self.inner.sharers[limits.transport as usize].get();
        limits.allow(sharers, client.serving(limits.transport), served)
    }

    /// Whether several clients were active lately.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.inner.is_shared.get()
    }

    /// A client's part of a limit of calls over TCP. One part is reserved for the next client.
    pub(crate) fn tcp_part(&self, all: usize) -> usize {
        let sharers = self.inner.sharers[TransportKind::Tcp as usize].get();
        (all / (sharers as usize + 1)).max(1)
    }

    /// Recounts active clients, if they may have changed.
    pub(super) fn recount(&self) {
        let inner = &*self.inner;
        let changed = inner.stale.get() || inner.epoch.get() != inner.clients.epoch();
        if changed || inner.clock.now() >= inner.recount_at.get() {
            self.count();
        }
    }

    fn count(&self) {
        let inner = &*self.inner;
        let now = inner.clock.now();
        inner.stale.set(false);
        inner.epoch.set(inner.clients.epoch());
        inner.recount_at.set(now + RECOUNT_AFTER);
        let total = inner.pool.attainable(inner.receive_class);
        inner.total.set(total);
        let budget = u32::try_from(total / RECEIVES_PART).unwrap_or(u32::MAX);

        let mut shares = inner.shares.borrow_mut();
        let mut claims = inner.claims.borrow_mut();
        claims.clear();
        let mut idle = 0;
        let mut present = 0;
        let mut sharers = 0;
        let mut by_tcp = 0;
        shares.retain(|_, client| {
            let unused = now.saturating_duration_since(client.used.get());
            let here = client.connections.get() > 0;
            present += u64::from(here);
            if unused > ACTIVE_FOR && client.in_service.get() == 0 {
                client.active.set(false);
            }
            sharers += u64::from(client.active.get() && client.is_here());
            by_tcp += u32::from(client.active.get() && client.tcp.get() > 0);
            if client.active.get() && here {
                claims.push(client.claim());
                client.counted.set(client.demand.get());
            } else {
                idle += client.held.get();
            }
            let holds = client.held.get() > 0 || client.memory.held_bytes() > 0;
            client.is_here() || holds || client.waiting.get() > 0 || unused < REMEMBERED_FOR
        });
        inner.counters.clients.set(present);
        let active = u32::try_from(claims.len()).unwrap_or(u32::MAX);
        inner.active.set(active);
        inner.is_shared.set(sharers > 1);
        inner.sharers[TransportKind::Rdma as usize].set(active);
        inner.sharers[TransportKind::Tcp as usize].set(by_tcp);
        // As with receives, one share is reserved for the next client.
        let part = |all: u64, sharers: u64| {
            let part = u32::try_from(all / (sharers + 1)).unwrap_or(u32::MAX);
            part.max(1)
        };
        for (class, holds) in Class::ALL.into_iter().zip(&inner.holds) {
            let all = inner.pool.attainable(class);
            // Receives have a part of their class, and their own shares.
            let receives = if class == inner.receive_class {
                all / RECEIVES_PART
            } else {
                0
            };
            holds.set(part(all - receives, sharers));
        }
        let level = policy::level(budget.saturating_sub(idle), &claims);
        for client in shares.values() {
            inner.bound_memory(client);
            let share = client.claim().at(level).max(FIRST_RECEIVES);
            client.share.set(share);
            let each = share / client.connections.get().max(1);
            client.connection_share.set(each.max(FIRST_RECEIVES));
        }
    }
}

impl Inner {
    /// The latencies of the class of a client.
    fn class_of(&self, client: &ClientRecord) -> ClassHistograms {
        ClassHistograms::new(self.classes.keep(client.class()))
    }

    /// Sets a client's limit of memory to that of every client.
    fn bound_memory(&self, client: &ClientShare) {
        for (class, most) in Class::ALL.into_iter().zip(&self.holds) {
            client.memory.set_most(class, most.get());
        }
    }
}

#[cfg(test)]
mod tests;
