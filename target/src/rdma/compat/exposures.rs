//! Memory that clients may fetch until they send RDMA_DONE (RFC 5666 section 3.8).
//!
//! The data of a reply with read chunks stays in our memory, which the client reads before it sends
//! RDMA_DONE. Until then the memory is accessible, with keys of that one connection, and only for
//! reading. It is released by RDMA_DONE, at the end of the window (RFC 5666 section 11), or when
//! the connection ends.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use millrace_mempool::Slice;
use millrace_primitives::TurnQueue;
use millrace_reactor::fabric::{ExposeError, Exposure, Key, Revoked};
use millrace_reactor::timer::{TimerId, TimerWheel};
use millrace_wire::rpcrdma::FirstWords;
use millrace_wire::rpcrdma::version1::{Kind, VERSION};

use super::Compatibility;
use super::budget::ExposureBudget;
use crate::call::Broken;
use crate::rdma::counters::count;
use crate::rdma::{RdmaConnection, ResponderShared};

/// The most segments, each with its own key, of one exposed reply.
pub const SEGMENTS_MAX: usize = 8;

/// The most keys of a connection with `replies` exposed replies.
#[must_use]
pub const fn keys_most(replies: u32) -> u32 {
    replies.saturating_mul(SEGMENTS_MAX as u32)
}

/// The most receives that such a connection keeps for RDMA_DONE: for the exposed replies, and as
/// many whose window has passed.
#[must_use]
pub const fn dones_most(replies: u32) -> u32 {
    replies.saturating_mul(2)
}

/// The exposures of a reply, in order.
pub type Segments = ArrayVec<Exposure, SEGMENTS_MAX>;

/// A reply that is exposed.
#[derive(Debug)]
struct ExposedReply {
    xid: u32,
    /// Distinguishes it from others of the connection.
    number: u64,
    /// Whether the reply was sent, so that RDMA_DONE may arrive.
    sent: bool,
    /// Whether a window passed before that.
    delayed: bool,
    keys: ArrayVec<ExposedKey, SEGMENTS_MAX>,
    window: TimerId,
}

/// A key, and the bytes held for it.
#[derive(Clone, Copy, Debug)]
struct ExposedKey {
    key: Key,
    bytes: u64,
}

#[derive(Debug, Default)]
struct ExposureTable {
    /// Oldest first.
    entries: Vec<ExposedReply>,
    /// Keys whose revocation takes effect later.
    dying: Vec<ExposedKey>,
    next: u64,
    ended: bool,
}

/// The exposures of one connection.
#[derive(Default)]
pub struct Exposures {
    on: bool,
    table: RefCell<ExposureTable>,
    pending: Cell<u32>,
    /// Replies whose window passed: RDMA_DONE may still arrive for them.
    late: Cell<u32>,
    /// Replies that wait for an exposure.
    pub(super) waiting: TurnQueue,
    /// Their number.
    pub(super) waiters: Cell<usize>,
    /// Replies that wait for their credits.
    withheld: TurnQueue,
}

impl Exposures {
    /// Empty. There can be exposures only if `on` (classic mode).
    pub(super) fn new(on: bool) -> Self {
        Self {
            on,
            ..Self::default()
        }
    }

    /// Whether replies of this connection may have read chunks.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Exposed replies, including those about to be sent.
    #[must_use]
    pub fn open_replies(&self) -> u32 {
        // Limited by the configuration.
        self.table.borrow().entries.len() as u32
    }

    /// Waits in `line` until `enough` holds, as in [`Compatibility::until_exposures_end`].
    pub(super) async fn queue(
        &self,
        line: &TurnQueue,
        mut enough: impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        let turn = line.join();
        let looked = turn.until(|_| {
            if self.table.borrow().ended {
                Poll::Ready(Err(Broken))
            } else if enough() {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        });
        looked.await
    }

    /// Exposes `pieces` as the reply to a call, in order; `extra` are bytes held with them, but not
    /// exposed. Returns the segments and the exposure's number.
    ///
    /// # Errors
    /// A limit is reached, or the connection has ended; nothing is exposed then.
    pub(super) fn open<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        xid: u32,
        pieces: &[Slice],
        extra: u64,
    ) -> Result<(Segments, u64), ExposeError> {
        let limits = shared.settings.get().exposures;
        let group = connection.exposure_slices();
        let table = &mut *self.table.borrow_mut();
        if table.ended {
            return Err(ExposeError::Closed);
        }
        if !self.on
            || table.entries.len() >= limits.connection as usize
            || pieces.len() > SEGMENTS_MAX * group
        {
            return Err(ExposeError::Full);
        }
        let length = |pieces: &[Slice]| pieces.iter().map(Slice::len).sum::<usize>() as u64;
        let bytes = length(pieces) + extra;
        let client = connection.peer().address;
        let exposed = &shared.exposed;
        if !exposed.budget.take(client, bytes, &limits) {
            return Err(ExposeError::Full);
        }
        let (mut segments, mut keys) =
            (Segments::new(), ArrayVec::<ExposedKey, SEGMENTS_MAX>::new());
        for part in pieces.chunks(group) {
            match connection.expose(part.iter().cloned().collect()) {
                Ok(exposure) => {
                    let extra = if keys.is_empty() { extra } else { 0 };
                    keys.push(ExposedKey {
                        key: exposure.key,
                        bytes: length(part) + extra,
                    });
                    segments.push(exposure);
                }
                Err(refused) => {
                    let opened: u64 = keys.iter().map(|held| held.bytes).sum();
                    exposed.budget.give_bytes(bytes - opened);
                    exposed.budget.give_reply(client);
                    count(shared, connection, |counters| {
                        counters.exposed_bytes.add(opened);
                    });
                    revoke(shared, connection, table, &keys);
                    return Err(refused);
                }
            }
        }
        let number = table.next;
        table.next += 1;
        let window = exposed.arm(connection, number, shared.clock.now(), limits.window);
        table.entries.push(ExposedReply {
            xid,
            number,
            sent: false,
            delayed: false,
            keys,
            window,
        });
        count(shared, connection, |counters| {
            counters.exposures.add(1);
            counters.exposed_bytes.add(bytes);
        });
        Ok((segments, number))
    }

    /// Records that a reply is sent: its window begins.
    pub(super) fn sent<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        number: u64,
    ) {
        let table = &mut *self.table.borrow_mut();
        let found = table.entries.iter_mut().find(|e| e.number == number);
        if let Some(entry) = found
            && !entry.sent
        {
            entry.sent = true;
            self.pending.set(self.pending.get() + 1);
            let length = shared.settings.get().exposures.window;
            shared.exposed.timers.borrow_mut().cancel(entry.window);
            entry.window = shared
                .exposed
                .arm(connection, number, shared.clock.now(), length);
        }
    }

    /// Ends an exposure whose window has passed.
    fn expire<S>(&self, shared: &ResponderShared<S>, connection: &Rc<RdmaConnection>, number: u64) {
        if self.prolong(shared, connection, number) {
            return;
        }
        let told = {
            let table = self.table.borrow();
            table.entries.iter().any(|e| e.number == number && e.sent)
        };
        if !self.end(shared, connection, number) {
            return;
        }
        count(shared, connection, |counters| {
            counters.exposures_expired.add(1);
        });
        let limits = shared.settings.get().exposures;
        self.late
            .set((self.late.get() + 1).min(limits.connection.max(1)));
        // A reply that could not be sent within two windows never will: the client receives
        // nothing.
        if limits.close || !told {
            connection.close(true);
        }
    }

    /// Gives an unsent reply one more window: it may have been withheld, or have waited for space
    /// in the send queue, and the client cannot have fetched it.
    fn prolong<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        number: u64,
    ) -> bool {
        let table = &mut *self.table.borrow_mut();
        let unsent = |e: &&mut ExposedReply| e.number == number && !e.sent && !e.delayed;
        let Some(entry) = table.entries.iter_mut().find(unsent) else {
            return false;
        };
        entry.delayed = true;
        let length = shared.settings.get().exposures.window;
        entry.window = shared
            .exposed
            .arm(connection, number, shared.clock.now(), length);
        true
    }

    /// Ends an exposure and wakes its waiters.
    fn end<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        number: u64,
    ) -> bool {
        {
            let table = &mut *self.table.borrow_mut();
            let Some(at) = table.entries.iter().position(|e| e.number == number) else {
                return false;
            };
            let entry = table.entries.remove(at);
            shared.exposed.timers.borrow_mut().cancel(entry.window);
            self.pending.set(self.pending.get() - u32::from(entry.sent));
            shared.exposed.budget.give_reply(connection.peer().address);
            revoke(shared, connection, table, &entry.keys);
            count(shared, connection, |counters| {
                counters.exposures_ended.add(1);
            });
        }
        self.waiting.wake();
        self.withheld.wake();
        true
    }
}

impl Compatibility {
    /// Replies sent with read chunks that wait for RDMA_DONE. One in preparation counts only after
    /// it is sent.
    #[must_use]
    pub fn awaited_dones(&self) -> u32 {
        self.exposures.pending.get()
    }

    /// Receives to be kept posted beyond the grant: one for every RDMA_DONE that may arrive,
    /// including those of unsent replies and of replies whose window has passed (RFC 5666 section
    /// 3.8; conformance table, D-28). Zero outside of classic mode.
    #[must_use]
    pub fn receives(&self) -> u32 {
        if !self.exposures.on {
            return 0;
        }
        self.exposures.open_replies() + self.exposures.late.get()
    }

    /// Waits in turn, first come, first served, until `enough` holds. It is evaluated when the
    /// waiter is first in line, and whenever an exposure of this connection has ended, by RDMA_DONE
    /// or at the end of its window.
    ///
    /// # Errors
    /// The connection ended.
    pub(in crate::rdma) async fn until_exposures_end(
        &self,
        enough: impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        self.exposures.queue(&self.exposures.withheld, enough).await
    }

    /// Handles RDMA_DONE: the memory of that reply is no longer accessible. Returns whether one was
    /// expected for this XID; a second one, or any other, changes nothing.
    pub(in crate::rdma) fn done<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        xid: u32,
    ) -> bool {
        // A client that reuses XIDs sends RDMA_DONE in the order of its replies.
        let known = |entry: &ExposedReply| entry.xid == xid && entry.sent;
        let number = {
            let table = self.exposures.table.borrow();
            table.entries.iter().find(|e| known(e)).map(|e| e.number)
        };
        let awaited = number.is_some_and(|number| self.exposures.end(shared, connection, number));
        count(shared, connection, |counters| {
            counters.dones.add(1);
            counters.dones_stray.add(u64::from(!awaited));
        });
        if !awaited {
            let late = &self.exposures.late;
            late.set(late.get().saturating_sub(1));
        }
        awaited
    }

    /// Records that a revocation has taken effect.
    pub(in crate::rdma) fn revoked<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &Rc<RdmaConnection>,
        key: Key,
    ) {
        let table = &mut *self.exposures.table.borrow_mut();
        if let Some(at) = table.dying.iter().position(|held| held.key == key) {
            let held = table.dying.swap_remove(at);
            release(shared, connection, held);
        }
    }

    /// Releases everything: the connection has ended, and its keys with it.
    pub(in crate::rdma) fn disconnected<S>(
        &self,
        shared: &ResponderShared<S>,
        connection: &RdmaConnection,
    ) {
        let table = &mut *self.exposures.table.borrow_mut();
        table.ended = true;
        for entry in table.entries.drain(..) {
            shared.exposed.timers.borrow_mut().cancel(entry.window);
            shared.exposed.budget.give_reply(connection.peer().address);
            count(shared, connection, |counters| {
                counters.exposures_ended.add(1);
            });
            table.dying.extend(entry.keys);
        }
        for held in table.dying.drain(..) {
            release(shared, connection, held);
        }
        self.exposures.pending.set(0);
        self.exposures.waiting.end();
        self.exposures.withheld.end();
    }
}

/// Revokes keys. Reads by the peer in progress may hold memory a little longer.
fn revoke<S>(
    shared: &ResponderShared<S>,
    connection: &RdmaConnection,
    table: &mut ExposureTable,
    keys: &[ExposedKey],
) {
    for &held in keys {
        match connection.revoke(held.key) {
            Revoked::Later => table.dying.push(held),
            Revoked::Now(_) | Revoked::Unknown => release(shared, connection, held),
        }
    }
}

/// Releases the accounting of memory that is no longer accessible.
fn release<S>(shared: &ResponderShared<S>, connection: &RdmaConnection, held: ExposedKey) {
    shared.exposed.budget.give_bytes(held.bytes);
    count(shared, connection, |counters| {
        counters.revoked_bytes.add(held.bytes);
    });
}

/// The XID of an RDMA_DONE (RFC 5666 section 4.1), if the message is one.
pub fn done_of(message: &[u8]) -> Option<u32> {
    let words = FirstWords::read(message)?;
    (words.version == VERSION && words.kind == Kind::Done.number()).then_some(words.xid)
}

/// State shared by the exposures of all connections of one reactor.
pub struct ReactorExposures {
    budget: Arc<ExposureBudget>,
    timers: RefCell<TimerWheel<DueWindow>>,
    expired: RefCell<Vec<DueWindow>>,
    /// Replies that wait for an exposure, on all connections.
    pub(super) waiting: Cell<usize>,
}

/// The connection and the number of an exposure whose window ends.
type DueWindow = (Weak<RdmaConnection>, u64);

impl ReactorExposures {
    /// Empty; within `budget`, which all reactors share.
    pub(in crate::rdma) fn new(budget: Arc<ExposureBudget>, now: Instant) -> Self {
        Self {
            budget,
            timers: RefCell::new(TimerWheel::new(now)),
            expired: RefCell::default(),
            waiting: Cell::new(0),
        }
    }

    /// The exposures of the whole service.
    #[must_use]
    pub fn budget(&self) -> &Arc<ExposureBudget> {
        &self.budget
    }

    /// Starts a window of this length.
    fn arm(
        &self,
        connection: &Rc<RdmaConnection>,
        number: u64,
        now: Instant,
        length: Duration,
    ) -> TimerId {
        let due = (Rc::downgrade(connection), number);
        let mut timers = self.timers.borrow_mut();
        timers.catch_up(now);
        timers.insert(now + length, due)
    }

    /// Whether nothing is exposed, on any connection.
    pub(in crate::rdma) fn is_idle(&self) -> bool {
        self.timers.borrow().is_empty()
    }

    /// When the next window ends.
    pub(in crate::rdma) fn next_deadline(&self) -> Option<Instant> {
        self.timers.borrow().next_deadline()
    }
}

/// Ends the exposures whose window has passed. Returns their number.
pub fn expire<S>(shared: &ResponderShared<S>, now: Instant) -> usize {
    let exposed = &shared.exposed;
    if exposed.timers.borrow().is_empty() {
        return 0;
    }
    let mut expired = exposed.expired.take();
    exposed.timers.borrow_mut().expired(now, &mut expired);
    let ended = expired.len();
    for (connection, number) in expired.drain(..) {
        if let Some(connection) = connection.upgrade() {
            let exposures = &connection.compat.exposures;
            exposures.expire(shared, &connection, number);
        }
    }
    exposed.expired.replace(expired);
    ended
}
