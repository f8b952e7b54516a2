//! Calls to clients: the connections of one reactor that carry them, and the messages.
//!
//! The room `state` decides who is called and about what. A [`CallbackOrder`] of its home is sent
//! here, by the reactor of the connection, and the outcome is reported to the home.

mod connections;
mod message;
mod security;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use millrace_gss::GssService as Contexts;
use millrace_reactor::task::{TaskEnd, TaskSet};
use millrace_reactor::{Alarm, Clock};
use millrace_wire::nfs4::{CALLBACK_VERSIONS, CallbackSecurities};

use self::connections::CallbackConnections;
use self::security::CallbackContexts;
use super::client_state::ClientState;
use super::seam::CallOrigin;
use crate::handle::HandleKey;
use crate::rpc::ConnectionRef;
use crate::rpc::reverse::{ReverseCall, ReverseError};
use crate::state::{
    CALLBACK_TIME, CallbackOrder, CallbackOutcome, CallbackParameters, CallbackPath,
    CallbackTicket, HomeAnswer, StateError, StateEvent,
};

/// Most callbacks of a reactor that are not answered. Those beyond that are sent later.
const CALLS_MAX: usize = 4096;

/// What the home has for another reactor.
#[derive(Debug)]
pub enum ForReactor {
    /// A callback to send.
    Call(Box<CallbackOrder>),
    /// An answer.
    Answer(HomeAnswer),
}

type Report = (CallbackTicket, CallbackOutcome);
type CallTask = Pin<Box<dyn Future<Output = Report>>>;

/// Sends the callbacks of one reactor.
pub struct CallbackSender {
    reactor: usize,
    key: HandleKey,
    clock: Clock,
    connections: CallbackConnections,
    contexts: Option<Rc<CallbackContexts>>,
    calls: RefCell<TaskSet<CallTask>>,
    /// Outcomes that the home does not know yet.
    reports: RefCell<Vec<Report>>,
}

impl std::fmt::Debug for CallbackSender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CallbackSender")
            .field("reactor", &self.reactor)
            .finish_non_exhaustive()
    }
}

impl CallbackSender {
    /// The sender of a reactor, which seals file handles with `key`. `alarm` is rung when a
    /// callback is answered, for reactors that sleep.
    #[must_use]
    pub fn new(reactor: usize, key: HandleKey, clock: &Clock, alarm: Option<&Alarm>) -> Self {
        Self {
            reactor,
            key,
            clock: clock.clone(),
            connections: CallbackConnections::default(),
            contexts: None,
            calls: RefCell::new(TaskSet::new(CALLS_MAX, alarm)),
            reports: RefCell::default(),
        }
    }

    /// With security contexts, for clients that offer theirs.
    #[must_use]
    pub fn with_contexts(mut self, contexts: &Contexts) -> Self {
        self.contexts = Some(Rc::new(CallbackContexts::new(contexts)));
        self
    }

    /// The path that a connection is.
    pub fn path(&self, connection: &ConnectionRef) -> CallbackPath {
        CallbackPath {
            reactor: self.reactor,
            connection: connection.id(),
        }
    }

    /// Remembers a connection that may carry callbacks, and its end.
    pub fn allow(&self, connection: &ConnectionRef) {
        connection.allow_reverse();
        self.connections.add(connection);
    }

    /// Remembers only the end of a connection that is bound to a session.
    pub fn watch(&self, connection: &ConnectionRef) {
        self.connections.add(connection);
    }

    /// Sends a callback.
    fn send(&self, order: &CallbackOrder) {
        if let Err(outcome) = self.try_send(order) {
            self.reports.borrow_mut().push((order.ticket, outcome));
        }
    }

    fn try_send(&self, order: &CallbackOrder) -> Result<(), CallbackOutcome> {
        let (ticket, repeats, now) = (order.ticket, order.repeats, self.clock.now());
        let credentials = &order.parameters.credentials;
        let contexts = self.contexts.clone();
        let security = security::choose(credentials, contexts.as_deref(), now);
        let security = security.ok_or(CallbackOutcome::NoCredential)?;
        let message = message::encode(order, &self.key, &security);
        let message = message.ok_or(CallbackOutcome::Unsendable)?;
        // One that has ended is reported to the home as such.
        let connection = self.connections.find(order.path.connection);
        let connection = connection.ok_or(CallbackOutcome::Lost { xid: None })?;
        let deadline = now + CALLBACK_TIME;
        let call = Box::pin(async move {
            let call = ReverseCall {
                message: &message,
                protection: security.protection(),
                repeats,
                deadline,
            };
            let reply = connection.call_client(call).await;
            if let (Err(ReverseError::Unverified), Some(contexts)) = (&reply, &contexts) {
                contexts.report_unverified(connection.address());
            }
            (ticket, outcome(reply))
        });
        let spawned = self.calls.borrow_mut().spawn(call);
        spawned.map(drop).map_err(|_| CallbackOutcome::NotReady)
    }

    /// How long security contexts can still be used, from now.
    fn remaining(&self) -> impl Fn(&[u8]) -> Option<Duration> + Send + 'static {
        let contexts = self
            .contexts
            .as_ref()
            .map(|contexts| contexts.all().clone());
        let now = self.clock.now();
        move |credential| security::remaining(credential, contexts.as_ref()?, now)
    }

    /// Goes on with callbacks. Returns the amount of work done.
    fn run(&self) -> usize {
        let mut calls = self.calls.borrow_mut();
        if calls.is_empty() {
            return 0;
        }
        let mut ended: Vec<TaskEnd<Report>> = Vec::new();
        let work = calls.run(&mut ended);
        let done = ended.into_iter().filter_map(|one| one.outcome.ok());
        self.reports.borrow_mut().extend(done);
        work
    }
}

/// What became of a callback.
fn outcome(reply: Result<Vec<u8>, ReverseError>) -> CallbackOutcome {
    match reply {
        Ok(reply) => message::read(&reply),
        Err(ReverseError::ConnectionLost { xid }) => CallbackOutcome::Lost { xid: Some(xid) },
        // The same connection may carry it again, and still knows this identifier.
        Err(ReverseError::TimedOut { .. } | ReverseError::NotReady | ReverseError::Unverified) => {
            CallbackOutcome::Lost { xid: None }
        }
        Err(
            ReverseError::NotACall
            | ReverseError::TooLong { .. }
            | ReverseError::Unprotected
            | ReverseError::Refused { .. },
        ) => CallbackOutcome::Unsendable,
    }
}

impl ClientState {
    /// Sends a callback by a connection of this reactor.
    pub fn send_callback(&self, order: &CallbackOrder) {
        if let Some(sender) = self.callbacks() {
            sender.send(order);
        }
    }

    /// Has the home, if it is on this reactor, look at the security contexts of callbacks.
    pub fn check_callback_contexts(&self) {
        if let Some(sender) = self.callbacks() {
            let remaining = sender.remaining();
            let _ = (self.link()).ask_here(|home, _| home.check_contexts(remaining));
        }
    }

    /// When a callback of the home is to be looked at again, if the home is on this reactor.
    #[must_use]
    pub fn next_callback(&self) -> Option<Instant> {
        let due = self.link().ask_here(|home, _| home.next_callback());
        due.flatten().map(|due| self.link().instant(due))
    }

    /// Goes on with callbacks: those of the home that are due, those of this reactor that were
    /// answered, and connections that have ended. What other reactors have to learn goes to
    /// `forward`, with their number. Returns the amount of work done.
    pub fn run_callbacks(&self, mut forward: impl FnMut(usize, ForReactor)) -> usize {
        let Some(sender) = self.callbacks() else {
            return 0;
        };
        let mut work = sender.run();
        for connection in sender.connections.take_ended() {
            self.link()
                .tell(move |home, _| home.connection_ended(connection));
            work += 1;
        }
        for (ticket, outcome) in sender.reports.take() {
            let remaining = sender.remaining();
            self.link().tell(move |home, now| {
                if outcome == CallbackOutcome::NoCredential {
                    home.check_contexts_of(ticket, remaining);
                }
                home.callback_ended(ticket, outcome, now);
            });
            work += 1;
        }
        let (mut own, mut answers) = (Vec::new(), Vec::new());
        let _ = self.link().ask_here(|home, now| {
            while let Some(event) = home.take_event(now) {
                if let StateEvent::LockAvailable {
                    client,
                    file,
                    owner,
                } = event
                {
                    home.notify_lock(client, file, owner, now);
                }
            }
            while let Some(order) = home.take_callback(now) {
                match order.path.reactor == sender.reactor {
                    true => own.push(order),
                    false => forward(order.path.reactor, ForReactor::Call(Box::new(order))),
                }
            }
            while let Some((asker, answer)) = home.take_holder_answer() {
                answers.push((asker.reactor, HomeAnswer::late(asker, answer)));
            }
            while let Some(answer) = home.take_host_answer() {
                answers.push(answer);
            }
        });
        for (reactor, answer) in answers {
            work += 1;
            match reactor == sender.reactor {
                true => self.link().take(answer),
                false => forward(reactor, ForReactor::Answer(answer)),
            }
        }
        for order in own {
            sender.send(&order);
            work += 1;
        }
        work
    }
}

/// The parameters of callbacks that a client offers.
///
/// # Errors
/// Those of [`security::credentials`].
pub(super) fn parameters(
    state: &ClientState,
    origin: &CallOrigin<'_>,
    program: u32,
    offered: &CallbackSecurities<'_>,
) -> Result<CallbackParameters, StateError> {
    let sender = state.callbacks();
    let contexts = sender.and_then(|sender| sender.contexts.as_deref());
    Ok(CallbackParameters {
        program,
        version: CALLBACK_VERSIONS[0],
        minor_version: origin.minor_version,
        credentials: security::credentials(offered, contexts, origin)?,
    })
}
