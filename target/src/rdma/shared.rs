//! State shared by all connections of one reactor.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Buffer, Class, Pool, Slice};
use millrace_reactor::Clock;
use millrace_reactor::completion::Completions;
use millrace_reactor::fabric::{WorkError, WorkRequest};

use super::compat::options::Options;
use super::compat::{ExposureBudget, ReactorExposures};
use super::remote_access_failures::RemoteAccessFailures;
use super::transfers::TransferSchedule;
use super::{ConnectionCounters, RdmaConnection, Settings};
use crate::call::TurnEnd;
use crate::flow::Flow;

use crate::latency::LatencyBatch;
use crate::rpc::ConnectionRef;
use crate::rpc::reverse::first_xid;

/// The result of an awaited work request. Its slices are dropped before.
pub type Outcome = Result<(), WorkError>;

/// State shared by all connections of one reactor.
pub struct ResponderShared<S> {
    /// The programs served.
    pub programs: S,
    /// The reactor's memory.
    pub pool: Pool,
    /// The time of the turn, and tasks that wait for a later time.
    pub clock: Clock,
    /// Flow control.
    pub flow: Flow,
    /// Tasks that wait for work requests.
    pub completions: Completions<Outcome>,
    /// Settings, replaced as a whole by live changes.
    pub settings: Cell<Settings>,
    /// Sums over all connections.
    pub counters: std::sync::Arc<ConnectionCounters>,
    /// Extensions of version two.
    pub options: Options,
    /// The exposures of connections.
    pub exposed: ReactorExposures,
    pub(super) remote_access_failures: RemoteAccessFailures,
    /// When to check transfers that clients have not completed.
    pub(super) transfers: TransferSchedule,
    /// Decides whether an export admits an address; all are admitted before it is set.
    admission: OnceCell<Box<dyn Fn(IpAddr) -> bool>>,
    /// The XID of the next call to a client.
    reverse_xid: Cell<u32>,
    /// Calls answered in this turn, whose latency is recorded at its end.
    answered: LatencyBatch<ConnectionRef>,
    slices: RefCell<Vec<Vec<Slice>>>,
    chains: RefCell<Vec<Vec<WorkRequest>>>,
    full: RefCell<Vec<Rc<RdmaConnection>>>,
}

impl<S> ResponderShared<S> {
    /// Creates it, for a process with one reactor.
    pub fn new(programs: S, pool: Pool, clock: Clock, settings: Settings) -> Self {
        let flow = Flow::of_one_reactor(&pool, settings.receive_class(), &clock);
        let now = clock.now();
        Self {
            programs,
            pool,
            clock,
            flow,
            completions: Completions::new(),
            settings: Cell::new(settings),
            counters: std::sync::Arc::default(),
            options: Options::default(),
            exposed: ReactorExposures::new(std::sync::Arc::default(), now),
            remote_access_failures: RemoteAccessFailures::new(),
            transfers: TransferSchedule::default(),
            admission: OnceCell::new(),
            reverse_xid: Cell::new(first_xid()),
            answered: LatencyBatch::default(),
            slices: RefCell::default(),
            chains: RefCell::default(),
            full: RefCell::default(),
        }
    }

    /// Uses `flow`, which shares its clients with other reactors.
    #[must_use]
    pub fn with_flow(mut self, flow: Flow) -> Self {
        self.flow = flow;
        self
    }

    /// Uses a budget of exposures shared with other reactors.
    #[must_use]
    pub fn within(mut self, budget: std::sync::Arc<ExposureBudget>) -> Self {
        self.exposed = ReactorExposures::new(budget, self.clock.now());
        self
    }

    /// Limits clients at addresses that are not `admitted` in connections and time. Only the first
    /// call has an effect.
    pub fn admit_by(&self, admitted: impl Fn(IpAddr) -> bool + 'static) {
        let _ = self.admission.set(Box::new(admitted));
    }

    /// Whether an export admits clients at this address.
    pub(super) fn admits(&self, address: IpAddr) -> bool {
        let admission = self.admission.get();
        admission.is_none_or(|admitted| admitted(address))
    }

    /// A buffer to be kept for long: a receive, or a connection's reserve. It is never the last
    /// free one: that one passes from reply to reply, so that every call is answered eventually
    /// however many receives are posted (conformance row RR1-CRED-11).
    pub(super) fn keep(&self, class: Class) -> Option<Buffer> {
        let kept = self.pool.try_acquire(class)?;
        let left = self.pool.try_acquire(class);
        left.map(|_| kept)
    }

    /// Records an answered call of a connection.
    pub(super) fn answered(&self, connection: &RdmaConnection, arrived: Instant) {
        let observe = |one: &ConnectionRef, took, calls| one.usage().answered(took, calls);
        self.answered.note(connection.identity(), arrived, observe);
    }

    /// Ends a turn of the reactor: records the calls answered in it.
    pub fn turned(&self, end: &TurnEnd) {
        let observe = |one: &ConnectionRef, took, calls| one.usage().answered(took, calls);
        self.answered.settle(end, observe);
    }

    /// An empty list of slices, reused if possible, to avoid growing it again.
    pub(super) fn slices(&self) -> Vec<Slice> {
        self.slices.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a list of slices for reuse.
    pub(super) fn recycle_slices(&self, mut list: Vec<Slice>) {
        list.clear();
        self.slices.borrow_mut().push(list);
    }

    /// An empty chain, reused if possible.
    pub(super) fn chain(&self) -> Vec<WorkRequest> {
        self.chains.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a chain for reuse.
    pub(super) fn recycle_chain(&self, mut chain: Vec<WorkRequest>) {
        chain.clear();
        self.chains.borrow_mut().push(chain);
    }

    /// A new XID for a call to a client.
    pub(super) fn reverse_xid(&self) -> u32 {
        let xid = self.reverse_xid.get();
        self.reverse_xid.set(xid.wrapping_add(1));
        xid
    }

    /// Records that chains of a connection wait for space in its send queue.
    pub(super) fn note_full(&self, connection: &Rc<RdmaConnection>) {
        let mut full = self.full.borrow_mut();
        if !full.iter().any(|known| Rc::ptr_eq(known, connection)) {
            full.push(Rc::clone(connection));
        }
    }

    /// Wakes waiting chains that now have space.
    pub fn wake_senders(&self) {
        // A waker may use this list, so it is not borrowed during the calls.
        let mut full = self.full.take();
        full.retain(|connection| {
            connection.wake_sender(self);
            connection.has_waiting_senders()
        });
        full.append(&mut self.full.borrow_mut());
        self.full.replace(full);
    }
}
