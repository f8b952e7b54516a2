//! Callbacks that are due: each waits for a slot and a connection of its client, is sent, and sent
//! again where the client asks for that or the connection is lost (RFC 8881 sections 2.10.6.2 and
//! 20.9).
//!
//! The home decides what is sent and by which connection; the reactor of the connection sends it
//! and reports the outcome.

use std::sync::Arc;
use std::time::Duration;

use super::SessionId;
use super::backchannel::{CallbackParameters, CallbackPath, TakenSlot};
use super::callback_jobs::{CallbackJob, PAUSE_MOST};
use super::clients::ClientId;
use super::files::FileKey;
use super::holder_queries::HolderAttributes;
use super::home::StateHome;
use super::stateid::Stateid;

/// How long a client has to answer a callback.
pub const CALLBACK_TIME: Duration = Duration::from_secs(10);

/// A request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferringRequest {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u32,
    /// Its sequence number.
    pub sequence: u32,
}

/// What a client is called about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackSubject {
    /// A delegation is to be returned.
    Recall {
        /// The delegation.
        stateid: Stateid,
        /// The file.
        file: FileKey,
        /// Whether the file will be truncated to nothing.
        truncates: bool,
        /// The request that the delegation was granted with. Its reply may still be on its way.
        granted_by: Option<ReferringRequest>,
    },
    /// A denied lock has become available.
    LockAvailable {
        /// The file.
        file: FileKey,
        /// The lock owner.
        owner: Arc<[u8]>,
    },
    /// The client is to use fewer slots of a session.
    RecallSlots {
        /// The session, in which the callback is sent.
        session: SessionId,
        /// The highest slot to use.
        highest_slot: u32,
    },
    /// The client is to return delegations, as memory is short.
    RecallAny {
        /// How many it may keep.
        keep: u32,
    },
    /// The client is asked for the attributes of a file that it changes under a delegation.
    GetAttributes {
        /// The file.
        file: FileKey,
        /// The delegation.
        stateid: Stateid,
    },
}

impl CallbackSubject {
    /// The session that it has to be sent in, if it is about one.
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::RecallSlots { session, .. } => Some(*session),
            _ => None,
        }
    }
}

/// A callback for a reactor to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackOrder {
    /// Names the order in its [report](StateHome::callback_ended).
    pub ticket: CallbackTicket,
    /// By which connection.
    pub path: CallbackPath,
    /// In which session.
    pub session: SessionId,
    /// The client.
    pub client: ClientId,
    /// The slot.
    pub slot: u32,
    /// Its sequence number.
    pub sequence: u32,
    /// The highest slot in use.
    pub highest_slot: u32,
    /// Program and credentials.
    pub parameters: CallbackParameters,
    /// Longest message.
    pub size_max: u32,
    /// The transaction identifier of the same callback when it was sent before and lost.
    pub repeats: Option<u32>,
    /// What about.
    pub subject: CallbackSubject,
}

/// An attempt to send a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackTicket {
    job: u64,
    attempt: u32,
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackOutcome {
    /// The client has taken it, and answered the operation so.
    Taken {
        /// The answer to the operation.
        answer: CallbackAnswer,
        /// The highest slot that the client wants to be used.
        target_slot: u32,
    },
    /// The client is not ready for the slot's next callback.
    NotReady,
    /// The client disagrees about the slot or its sequence number.
    Misordered,
    /// The client has only this version of the program.
    OtherVersion(u32),
    /// The client does not know the session, or refuses the program or the credential.
    Refused,
    /// It cannot be sent at all.
    Unsendable,
    /// No credential that the client accepts can be used now.
    NoCredential,
    /// It was not answered: the connection has ended or is silent.
    Lost {
        /// The transaction identifier, if it may have been sent.
        xid: Option<u32>,
    },
}

/// The answer to the operation of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// It was done, now or when it was sent before.
    Done,
    /// It was done and has told this about a file.
    Attributes(HolderAttributes),
    /// The client wants to be asked again.
    Later,
    /// It failed.
    Failed,
}

impl StateHome {
    /// Calls a client, as soon as it has a connection and a slot for that. Returns false if too many
    /// callbacks wait for it already.
    pub(super) fn call_client(
        &mut self,
        client: ClientId,
        subject: CallbackSubject,
        (now, deadline): (Duration, Duration),
    ) -> bool {
        let job = CallbackJob::new(client, subject, (now, deadline));
        self.callbacks.add(job)
    }

    /// Tells the owner of a lock request that the lock has become available.
    pub fn notify_lock(
        &mut self,
        client: ClientId,
        file: FileKey,
        owner: Arc<[u8]>,
        now: Duration,
    ) {
        let subject = CallbackSubject::LockAvailable { file, owner };
        self.call_client(client, subject, (now, now + CALLBACK_TIME));
    }

    /// The next callback to send. To be called until there is none.
    pub fn take_callback(&mut self, now: Duration) -> Option<CallbackOrder> {
        self.end_holder_queries(now);
        for number in self.callbacks.due(now) {
            self.place_callback(number, now);
        }
        self.callbacks.orders.pop_front()
    }

    /// When a callback or a recall is to be looked at again.
    #[must_use]
    pub fn next_callback(&self) -> Option<Duration> {
        let ends = self.next_recall_end().min(self.next_holder_query_end());
        let due = self.callbacks.next_due().min(ends);
        (due < Duration::MAX).then_some(due)
    }

    /// Tries callbacks of a client that wait.
    pub(super) fn hasten_callbacks(&mut self, index: u32) {
        let Some(client) = self.clients.get(index).map(|client| client.id) else {
            return;
        };
        for number in self.callbacks.of_client(client) {
            let job = self.callbacks.get(number);
            if job.is_some_and(|job| job.sent.is_none()) {
                self.callbacks.try_at(number, Duration::ZERO);
            }
        }
    }

    /// Gives a slot and a connection to a callback that is due.
    fn place_callback(&mut self, number: u64, now: Duration) {
        let Some(job) = self.callbacks.get(number) else {
            return;
        };
        let Some(index) = self.clients.find(job.client) else {
            return self.callbacks.remove(number);
        };
        let (deadline, mut place) = (job.deadline, job.place);
        let wanted = job.subject.session();
        if place.is_none() {
            if now > deadline || !self.is_needed(number) {
                return self.callbacks.remove(number);
            }
            let client = self.clients.get_mut(index);
            let mut sessions = client.into_iter().flat_map(|client| &mut client.sessions);
            place = sessions.find_map(|session| {
                if wanted.is_some_and(|wanted| wanted != session.id) {
                    return None;
                }
                session.back.path()?;
                Some((session.id, session.back.take_slot()?))
            });
        }
        let order = place.and_then(|place| self.callback_order(number, place));
        let Some(job) = self.callbacks.get_mut(number) else {
            return;
        };
        job.place = place;
        match order {
            Some(order) => {
                job.attempt += 1;
                self.callbacks.note_sent(number, order.path);
                self.callbacks.orders.push_back(order);
            }
            // A new connection or a free slot hastens it.
            None => self.callbacks.try_at(number, now + PAUSE_MOST),
        }
    }

    /// The order to send a callback that has a slot, if there is a connection.
    fn callback_order(
        &mut self,
        number: u64,
        (session, taken): (SessionId, TakenSlot),
    ) -> Option<CallbackOrder> {
        let (_, known) = self.client_session_mut(session).ok()?;
        let back = &known.back;
        let (path, parameters) = (back.path()?, back.parameters.clone()?);
        let (highest_slot, size_max) = (back.highest_slot(), back.limits.request_size);
        let job = self.callbacks.get(number)?;
        Some(CallbackOrder {
            ticket: CallbackTicket {
                job: number,
                attempt: job.attempt + 1,
            },
            path,
            session,
            client: job.client,
            slot: taken.slot,
            sequence: taken.sequence,
            highest_slot,
            parameters,
            size_max,
            repeats: job.repeats,
            subject: job.subject.clone(),
        })
    }

    /// Whether the delegation of a recall has not been returned or revoked since.
    fn is_needed(&self, number: u64) -> bool {
        let job = self.callbacks.get(number);
        job.is_some_and(|job| match &job.subject {
            CallbackSubject::Recall { stateid, .. }
            | CallbackSubject::GetAttributes { stateid, .. } => {
                self.find_state(job.client, None, stateid).is_ok()
            }
            CallbackSubject::RecallSlots {
                session,
                highest_slot,
            } => {
                let found = self.sessions.find(*session);
                found.is_ok_and(|session| session.highest_slots().target == *highest_slot)
            }
            CallbackSubject::LockAvailable { .. } | CallbackSubject::RecallAny { .. } => true,
        })
    }

    /// Looks at the security contexts of a callback's session, before a report that it found none.
    pub fn check_contexts_of(
        &mut self,
        ticket: CallbackTicket,
        remaining: impl Fn(&[u8]) -> Option<Duration>,
    ) {
        let lease = self.config.lease;
        let job = self.callbacks.get(ticket.job);
        let Some((session, _)) = job.and_then(|job| job.place) else {
            return;
        };
        if let Ok((index, known)) = self.client_session_mut(session)
            && known.back.check_contexts(remaining, lease)
        {
            self.publish_conditions(index);
        }
    }

    /// Takes the report about a callback.
    pub fn callback_ended(
        &mut self,
        ticket: CallbackTicket,
        outcome: CallbackOutcome,
        now: Duration,
    ) {
        let Some(job) = self.callbacks.get(ticket.job) else {
            return;
        };
        let (Some(path), Some((session, taken))) = (job.sent, job.place) else {
            return;
        };
        if job.attempt != ticket.attempt {
            return;
        }
        let (client, is_new) = (job.client, job.repeats.is_none());
        self.callbacks.try_at(ticket.job, now);
        let Ok((index, known)) = self.client_session_mut(session) else {
            return;
        };
        let back = &mut known.back;
        match outcome {
            CallbackOutcome::Taken {
                answer,
                target_slot,
            } => {
                back.free_slot(taken.slot, true);
                back.set_target(target_slot);
                self.hasten_callbacks(index);
                self.end_callback(ticket.job, answer, now);
            }
            CallbackOutcome::NotReady => self.pause_callback(ticket.job, now),
            CallbackOutcome::Misordered => {
                back.set_slot_aside(taken.slot);
                self.begin_anew(ticket.job, now);
            }
            CallbackOutcome::OtherVersion(version) if back.change_version(version) => {
                back.free_slot(taken.slot, false);
                self.begin_anew(ticket.job, now);
            }
            CallbackOutcome::Refused | CallbackOutcome::OtherVersion(_) => {
                back.free_slot(taken.slot, false);
                back.mark_all_down();
                self.begin_anew(ticket.job, now);
            }
            CallbackOutcome::Unsendable => {
                back.free_slot(taken.slot, false);
                self.callbacks.remove(ticket.job);
            }
            // It was never sent: other callbacks may use its slot, and it may use another session.
            CallbackOutcome::NoCredential if is_new => {
                back.free_slot(taken.slot, false);
                self.begin_anew(ticket.job, now);
                self.pause_callback(ticket.job, now);
            }
            CallbackOutcome::NoCredential => {
                if back.path().is_none() {
                    self.supersede(ticket.job, client, now);
                }
                self.pause_callback(ticket.job, now);
            }
            CallbackOutcome::Lost { xid } => {
                back.mark_down(path.connection);
                if back.path().is_none() {
                    self.supersede(ticket.job, client, now);
                }
                if let Some(job) = self.callbacks.get_mut(ticket.job) {
                    job.repeats = xid.or(job.repeats);
                }
            }
        }
        self.publish_conditions(index);
    }

    /// A callback that the client has taken is over, unless the client wants to be asked again.
    fn end_callback(&mut self, number: u64, answer: CallbackAnswer, now: Duration) {
        let job = self.callbacks.get_mut(number);
        let Some(job) = job.filter(|job| !job.is_superseded) else {
            return self.callbacks.remove(number);
        };
        (job.place, job.repeats) = (None, None);
        let mut answer = answer;
        if let CallbackSubject::GetAttributes { stateid, .. } = job.subject {
            match answer {
                // Its first copy was executed, and its results are not known.
                CallbackAnswer::Done | CallbackAnswer::Later => answer = CallbackAnswer::Later,
                answer => self.holder_answered(&stateid, answer, now),
            }
        }
        let Some(job) = self.callbacks.get(number) else {
            return;
        };
        match answer {
            CallbackAnswer::Later if now <= job.deadline => self.pause_callback(number, now),
            _ => self.callbacks.remove(number),
        }
    }

    /// Sends a callback again after a while.
    fn pause_callback(&mut self, number: u64, now: Duration) {
        if let Some(job) = self.callbacks.get_mut(number) {
            let pause = job.pause;
            job.pause = (pause * 2).min(PAUSE_MOST);
            self.callbacks.try_at(number, now + pause);
        }
    }

    /// Looks for another slot.
    fn begin_anew(&mut self, number: u64, now: Duration) {
        let Some(job) = self.callbacks.get_mut(number) else {
            return;
        };
        (job.place, job.repeats) = (None, None);
        match job.is_superseded {
            true => self.callbacks.remove(number),
            false => self.callbacks.try_at(number, now),
        }
    }

    /// Tries a callback in another session of the client, if that has a connection. The first one
    /// stays, as its slot has to be settled.
    fn supersede(&mut self, number: u64, client: ClientId, now: Duration) {
        let index = self.clients.find(client);
        if !index.is_some_and(|index| self.can_call(index)) {
            return;
        }
        let Some(job) = self.callbacks.get_mut(number) else {
            return;
        };
        if !std::mem::replace(&mut job.is_superseded, true) {
            let (subject, deadline) = (job.subject.clone(), job.deadline);
            self.call_client(client, subject, (now, deadline));
        }
    }

    /// Frees the callbacks of a session of a client, which has ended, for other sessions.
    pub(super) fn leave_session(&mut self, client: ClientId, session: SessionId) {
        for number in self.callbacks.of_client(client) {
            let job = self.callbacks.get_mut(number);
            let job = job.filter(|job| job.place.is_some_and(|(one, _)| one == session));
            if let Some(job) = job {
                // A late report names the attempt before.
                job.attempt += 1;
                self.begin_anew(number, Duration::ZERO);
            }
        }
    }
}
