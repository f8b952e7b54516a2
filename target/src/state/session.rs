//! Sessions as all reactors use them: limits, slots, conditions, and the table that finds them.
//!
//! The home of the clients makes and ends sessions. Reactors look them up without a lock.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};

use super::StateError;
use super::clients::ClientId;
use super::lease::LeaseCells;
use super::protection::{GuardedOperation, StateCaller, StateProtection};
use super::slot::{CachedReply, RequestFingerprint, SessionSlot, SlotBegin};
use super::slot_limits::{HighestSlots, SlotLimits};

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Index and number are readable, the rest is a check that makes the whole hard to guess.
    pub(super) fn new(index: u32, serial: u32, check: u64) -> Self {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&index.to_be_bytes());
        id[4..8].copy_from_slice(&serial.to_be_bytes());
        id[8..].copy_from_slice(&check.to_be_bytes());
        Self(id)
    }

    /// The index of the session in its table.
    pub(super) fn index(self) -> usize {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d]) as usize
    }
}

/// Limits of a channel of a session. Sizes are in bytes and count the RPC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelLimits {
    /// Longest request.
    pub request_size: u32,
    /// Longest reply.
    pub response_size: u32,
    /// Longest reply that is cached.
    pub cached_size: u32,
    /// Most operations of a request.
    pub operations: u32,
    /// Most requests at a time: slots.
    pub requests: u32,
}

/// Conditions that SEQUENCE reports, each while it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionConditions(u32);

impl SessionConditions {
    /// State of the client was revoked, as its lease had expired and others asked for some of it.
    pub const EXPIRED_SOME: Self = Self(1);
    /// State of the client was revoked by an administrator.
    pub const ADMIN_REVOKED: Self = Self(2);
    /// Delegations of the client were revoked as they were not returned.
    pub const RECALLABLE_REVOKED: Self = Self(4);
    /// No session of the client has a connection for callbacks any more.
    pub const PATH_DOWN: Self = Self(8);
    /// The session has no connection for callbacks any more.
    pub const PATH_DOWN_SESSION: Self = Self(16);
    /// Client and server disagree about all slots of the backchannel.
    pub const BACKCHANNEL_FAULT: Self = Self(32);
    /// The client has to reclaim its state, or to say that it has done so.
    pub const RECLAIM_NEEDED: Self = Self(64);
    /// The client gets state by reclaims only. It is not reported.
    pub const RECLAIMS_ONLY: Self = Self(128);
    /// All security contexts of the session's callbacks will have ended within a lease.
    pub const CONTEXTS_EXPIRING: Self = Self(256);
    /// All security contexts of the session's callbacks have ended.
    pub const CONTEXTS_EXPIRED: Self = Self(512);

    /// Whether all these conditions last.
    #[must_use]
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether there is no condition.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn with(self, others: Self, last: bool) -> Self {
        Self(if last { self.0 | others.0 } else { self.0 })
    }
}

/// A session of a client.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    client: ClientId,
    /// The client's index, which its lease cells have too.
    client_index: u32,
    fore: ChannelLimits,
    back: ChannelLimits,
    slots: Box<[SessionSlot]>,
    highest: SlotLimits,
    conditions: AtomicU32,
    has_ended: AtomicBool,
    leases: Arc<LeaseCells>,
    protection: Option<StateProtection>,
}

impl Session {
    pub(super) fn new(
        id: SessionId,
        (client, client_index): (ClientId, u32),
        [fore, back]: [ChannelLimits; 2],
        slots_most: u32,
        leases: Arc<LeaseCells>,
        protection: Option<StateProtection>,
    ) -> Self {
        let highest = fore.requests.saturating_sub(1);
        let slot = |_| SessionSlot::new(fore.cached_size as usize, highest);
        Self {
            id,
            client,
            client_index,
            fore,
            back,
            slots: (0..slots_most.max(fore.requests)).map(slot).collect(),
            highest: SlotLimits::new(highest),
            conditions: AtomicU32::new(0),
            has_ended: AtomicBool::new(false),
            leases,
            protection,
        }
    }

    /// Refuses an operation on the session that needs the machine credential of its client.
    ///
    /// # Errors
    /// [`StateError::WrongCred`].
    pub fn check_caller(
        &self,
        operation: GuardedOperation,
        caller: &StateCaller,
    ) -> Result<(), StateError> {
        let protection = self.protection.as_ref();
        protection.map_or(Ok(()), |protection| protection.check(operation, caller))
    }

    /// Whether requests are taken only from connections that CREATE_SESSION or BIND_CONN_TO_SESSION
    /// came by, since the latter needs the machine credential (RFC 8881 section 18.35.3).
    #[must_use]
    pub fn needs_bound_connections(&self) -> bool {
        let protection = self.protection.as_ref();
        protection.is_some_and(|one| one.operations.contains(GuardedOperation::BindConnection))
    }

    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Limits of the fore channel.
    #[must_use]
    pub fn fore(&self) -> &ChannelLimits {
        &self.fore
    }

    /// Limits of the backchannel.
    #[must_use]
    pub fn back(&self) -> &ChannelLimits {
        &self.back
    }

    /// The highest slots that requests may use, and are to use.
    #[must_use]
    pub fn highest_slots(&self) -> HighestSlots {
        self.highest.get()
    }

    /// The most slots that it can have.
    pub(super) fn slots_most(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Has the client use slots up to this one; returns whether that is a change.
    pub(super) fn set_target_slot(&self, highest: u32) -> bool {
        self.highest.set_target(highest)
    }

    /// A client that uses no slot above `used` has sent a new request in a slot: it knows the limits
    /// that the slot's last reply told. Slots above a lowered limit are dropped. Returns the limits
    /// for the reply.
    fn follow_target(&self, slot: &SessionSlot, used: u32) -> HighestSlots {
        let HighestSlots { target, enforced } = self.highest.get();
        if target != enforced
            && let Some(change) = self.highest.follow(slot.told.get(), used)
        {
            // Slots that come back begin anew as well.
            let least = change.from.min(change.to) as usize;
            let most = change.from.max(change.to) as usize;
            let changed = self.slots.iter().take(most + 1).skip(least + 1);
            changed.for_each(SessionSlot::reset);
        }
        let highest = self.highest.get();
        slot.told.tell(highest);
        highest
    }

    /// Begins the request of a SEQUENCE. New requests and retries of the last one renew the lease,
    /// by [`renew_lease`](Self::renew_lease); other outcomes do not.
    ///
    /// # Errors
    /// [`StateError::BadSession`] if the session has ended, [`StateError::BadSlot`] if it has no
    /// such slot.
    pub fn begin(
        &self,
        slot: u32,
        sequence: u32,
        fingerprint: RequestFingerprint,
    ) -> Result<SlotBegin<'_>, StateError> {
        if self.has_ended.load(Ordering::Acquire) {
            return Err(StateError::BadSession);
        }
        let known = self.slots.get(slot as usize);
        let known = known.filter(|_| slot <= self.highest.get().enforced);
        Ok(known
            .ok_or(StateError::BadSlot)?
            .begin(sequence, fingerprint))
    }

    /// Renews the lease of the client, for the reactor that received the SEQUENCE.
    pub fn renew_lease(&self, reactor: usize, now: Duration) {
        self.leases.renew(reactor, self.client_index, now);
    }

    /// What SEQUENCE reports.
    #[must_use]
    pub fn conditions(&self) -> SessionConditions {
        SessionConditions(self.conditions.load(Ordering::Relaxed))
    }

    pub(super) fn set_conditions(&self, conditions: SessionConditions) {
        self.conditions.store(conditions.0, Ordering::Relaxed);
    }

    /// Refuses requests from now on. Those that are executed go on to their end.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether a slot other than `own` executes a request.
    pub(super) fn is_executing(&self, own: Option<u32>) -> bool {
        let others = (0..).zip(&self.slots);
        let mut others = others.filter(|(index, _)| Some(*index) != own);
        others.any(|(_, slot)| slot.is_executing())
    }
}

/// The sessions, for any reactor to look up.
#[derive(Debug)]
pub struct SessionDirectory {
    sessions: Box<[ArcSwapOption<Session>]>,
}

impl SessionDirectory {
    /// A directory for so many sessions.
    pub(super) fn new(sessions: u32) -> Self {
        Self {
            sessions: (0..sessions).map(|_| ArcSwapOption::empty()).collect(),
        }
    }

    /// The session with an identifier.
    ///
    /// # Errors
    /// [`StateError::BadSession`] if there is none.
    pub fn find(&self, id: SessionId) -> Result<SessionGuard, StateError> {
        let cell = self.sessions.get(id.index());
        let guard = cell.ok_or(StateError::BadSession)?.load();
        match &*guard {
            Some(session) if session.id == id => Ok(SessionGuard(guard)),
            _ => Err(StateError::BadSession),
        }
    }

    /// Puts a session where its identifier says.
    pub(super) fn publish(&self, session: Arc<Session>) {
        if let Some(cell) = self.sessions.get(session.id.index()) {
            cell.store(Some(session));
        }
    }

    /// Takes a session out.
    pub(super) fn withdraw(&self, id: SessionId) {
        if let Some(cell) = self.sessions.get(id.index()) {
            cell.store(None);
        }
    }
}

/// A session that was looked up. It lives as long as this, also if it ends meanwhile.
pub struct SessionGuard(Guard<Option<Arc<Session>>>);

impl SessionGuard {
    /// The session, to keep for longer than a request.
    #[must_use]
    pub fn share(&self) -> Arc<Session> {
        self.0.as_ref().expect("checked by the look-up").clone()
    }
}

/// A slot of a session that a request has taken, with its session. Dropping it ends the request
/// without a cached reply.
pub struct SessionClaim {
    session: SessionGuard,
    slot: u32,
    sequence: u32,
    fingerprint: RequestFingerprint,
    is_open: bool,
}

impl SessionClaim {
    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The sequence number.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// The highest slots to tell the client, which says that it uses none above `used`.
    #[must_use]
    pub fn highest_slots(&self, used: u32) -> HighestSlots {
        match self.session.slots.get(self.slot as usize) {
            Some(slot) => self.session.follow_target(slot, used),
            None => self.session.highest_slots(),
        }
    }

    /// Holds the session by a count, as a request does that may wait: a thread can hold only a few
    /// sessions from looking them up, and all its look-ups take longer while it does.
    pub fn keep(&mut self) {
        let looked_up = std::mem::replace(&mut self.session.0, Guard::from_inner(None));
        self.session.0 = Guard::from_inner(Guard::into_inner(looked_up));
    }

    /// Ends the request, as [`SlotClaim::finish`](super::SlotClaim::finish).
    pub fn finish(mut self, reply: Option<&[&[u8]]>) -> bool {
        self.end(reply)
    }

    /// Gives the slot back, as [`SlotClaim::abandon`](super::SlotClaim::abandon).
    pub fn abandon(mut self) {
        self.is_open = false;
        if let Some(slot) = self.session.slots.get(self.slot as usize) {
            slot.resume(self.sequence, self.fingerprint).abandon();
        }
    }

    fn end(&mut self, reply: Option<&[&[u8]]>) -> bool {
        self.is_open = false;
        let slot = self.session.slots.get(self.slot as usize);
        slot.is_some_and(|slot| slot.resume(self.sequence, self.fingerprint).finish(reply))
    }
}

impl Drop for SessionClaim {
    fn drop(&mut self) {
        if self.is_open {
            self.end(None);
        }
    }
}

/// The outcome of a request's begin, as [`SlotBegin`].
pub enum SessionBegin {
    /// It is new: the caller executes it.
    New(SessionClaim),
    /// It repeats the last one; with its reply if that was cached.
    Replay(Option<CachedReply>),
    /// It repeats one that is still being executed.
    InProgress,
    /// Its sequence number is out of order.
    Misordered,
    /// It has the sequence number of the last request and differs from it.
    FalseRetry,
}

impl SessionGuard {
    /// Begins the request of a SEQUENCE, as [`Session::begin`], and keeps the session for it. A new
    /// request and a repeated one renew the lease of the client (RFC 8881 section 8.3), for the
    /// reactor and at the time given.
    ///
    /// # Errors
    /// As there.
    pub fn begin_request(
        self,
        slot: u32,
        sequence: u32,
        fingerprint: RequestFingerprint,
        (reactor, now): (usize, Duration),
    ) -> Result<SessionBegin, StateError> {
        match self.begin(slot, sequence, fingerprint)? {
            SlotBegin::New(claim) => claim.detach(),
            SlotBegin::Replay(reply) => {
                self.renew_lease(reactor, now);
                return Ok(SessionBegin::Replay(reply));
            }
            SlotBegin::InProgress => return Ok(SessionBegin::InProgress),
            SlotBegin::Misordered => return Ok(SessionBegin::Misordered),
            SlotBegin::FalseRetry => return Ok(SessionBegin::FalseRetry),
        }
        self.renew_lease(reactor, now);
        Ok(SessionBegin::New(SessionClaim {
            session: self,
            slot,
            sequence,
            fingerprint,
            is_open: true,
        }))
    }
}

impl Deref for SessionGuard {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.0.as_ref().expect("checked by the look-up")
    }
}
