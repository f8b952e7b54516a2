//! One client on one reactor.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use millrace_mempool::MemoryShare;

use super::gate::Gate;
use super::policy::{Claim, FIRST_RECEIVES, WEIGHT};
use super::{Cause, ClientRecord};
use crate::call::TransportKind;
use crate::call_histograms::ClassHistograms;

/// A client on one reactor.
pub struct ClientShare {
    pub(super) record: Arc<ClientRecord>,
    pub(super) connections: Cell<u32>,
    /// Receives held by its connections.
    pub(super) held: Cell<u32>,
    /// Receives requested by its connections.
    pub(super) demand: Cell<u32>,
    /// The same when shares were last computed.
    pub(super) counted: Cell<u32>,
    /// Its unanswered calls.
    pub(super) in_service: Cell<u32>,
    /// Its calls that have a task, by transport.
    serving: [Cell<u32>; TransportKind::COUNT],
    pub(super) active: Cell<bool>,
    /// When it was last active.
    pub(super) used: Cell<Instant>,
    /// Receives that it may hold.
    pub(super) share: Cell<u32>,
    /// Receives that each of its connections may hold.
    pub(super) connection_share: Cell<u32>,
    /// The gate of its own limit.
    pub(super) gate: Gate,
    /// Its calls that wait at a gate.
    pub(super) waiting: Cell<u32>,
    /// The number of its calls that should wait at the latest gate to use the rate there.
    pub(super) window: Cell<u32>,
    pub(super) window_cause: Cell<Cause>,
    /// Its TCP connections.
    pub(super) tcp: Cell<u32>,
    /// Bytes of its TCP records that wait or are being served.
    record_bytes: Cell<usize>,
    /// Buffers held by its calls, from their allocation until the fabric has released them.
    pub(super) memory: Rc<MemoryShare>,
    /// The latencies of its class.
    pub(super) class: RefCell<ClassHistograms>,
}

impl ClientShare {
    pub(super) fn new(
        record: Arc<ClientRecord>,
        class: ClassHistograms,
        reactor: usize,
        now: Instant,
    ) -> Self {
        let gate = Gate::new(Arc::clone(record.limit()));
        let memory = MemoryShare::counted(&record.slot(reactor).memory);
        Self {
            record,
            connections: Cell::new(0),
            held: Cell::new(0),
            demand: Cell::new(0),
            counted: Cell::new(0),
            in_service: Cell::new(0),
            serving: Default::default(),
            active: Cell::new(false),
            used: Cell::new(now),
            share: Cell::new(FIRST_RECEIVES),
            connection_share: Cell::new(FIRST_RECEIVES),
            gate,
            waiting: Cell::new(0),
            window: Cell::new(1),
            window_cause: Cell::new(Cause::ClientLimit),
            tcp: Cell::new(0),
            record_bytes: Cell::new(0),
            memory: Rc::new(memory),
            class: RefCell::new(class),
        }
    }

    /// The client.
    #[must_use]
    pub fn record(&self) -> &Arc<ClientRecord> {
        &self.record
    }

    /// Receives held by its connections on this reactor.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.get()
    }

    /// Calls that wait for a limit.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.get()
    }

    /// Memory of the reactor held by its calls.
    #[must_use]
    pub fn memory(&self) -> &Rc<MemoryShare> {
        &self.memory
    }

    /// The latencies of its class: the entry of the limits that applies to it.
    #[inline]
    pub(crate) fn class(&self) -> Ref<'_, ClassHistograms> {
        self.class.borrow()
    }

    /// Whether it has connections of any transport.
    pub(super) fn is_here(&self) -> bool {
        self.connections.get() > 0 || self.tcp.get() > 0
    }

    /// Calls that each of its connections needs to use the rate of the limit that throttles it, if
    /// any: those that do not wait, and enough that do.
    #[must_use]
    pub fn window(&self) -> Option<(u32, Cause)> {
        let waiting = self.waiting.get();
        if waiting == 0 {
            return None;
        }
        let moving = self.in_service.get().saturating_sub(waiting);
        let calls = moving.saturating_add(self.window.get());
        let each = calls.div_ceil(self.connections.get().max(1));
        Some((each, self.window_cause.get()))
    }

    /// Records receives acquired or released.
    pub(crate) fn note_held(&self, before: u32, after: u32) {
        self.held.set(self.held.get() + after - before);
    }

    /// Records a change of the receives requested by one of its connections. Returns whether the
    /// sum exceeds that of the last computation of shares: a request that goes up and down changes
    /// nothing.
    pub(super) fn note_demand(&self, before: u32, after: u32) -> bool {
        let demand = self.demand.get() + after - before;
        self.demand.set(demand);
        demand > self.counted.get()
    }

    /// Its calls with a task, by transport.
    pub(super) fn serving(&self, transport: TransportKind) -> u32 {
        self.serving[transport as usize].get()
    }

    /// Records that a call is in service: it has a task, or little data of it is fetched.
    pub(crate) fn begin(&self, transport: TransportKind) {
        let serving = &self.serving[transport as usize];
        serving.set(serving.get() + 1);
    }

    /// Records that it no longer is.
    pub(crate) fn end(&self, transport: TransportKind) {
        let serving = &self.serving[transport as usize];
        serving.set(serving.get() - 1);
    }

    /// Bytes of its TCP records that wait or are being served.
    pub(crate) fn record_bytes(&self) -> usize {
        self.record_bytes.get()
    }

    /// Records that a TCP record of this size is held.
    pub(crate) fn hold_record(&self, bytes: usize) {
        self.record_bytes.set(self.record_bytes.get() + bytes);
    }

    /// Records that a TCP record of this size is released.
    pub(crate) fn release_record(&self, bytes: usize) {
        self.record_bytes.set(self.record_bytes.get() - bytes);
    }

    pub(super) fn claim(&self) -> Claim {
        Claim {
            held: self.held.get(),
            demand: self.demand.get(),
            weight: WEIGHT / self.record.reactors().clamp(1, WEIGHT),
        }
    }
}
