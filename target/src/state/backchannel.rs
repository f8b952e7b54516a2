//! Backchannels of sessions: the connections that carry callbacks, and the slots that these use
//! (RFC 8881 sections 2.10.3.1, 2.10.6.1 and 18.34).

use std::sync::Arc;
use std::time::Duration;

use super::clients::ClientSession;
use super::home::StateHome;
use super::session::{ChannelLimits, SessionConditions};
use super::{SessionId, StateError};

/// Most callbacks of a session at a time.
const SLOTS_MAX: usize = 16;
/// Most connections of a session that are remembered.
const CONNECTIONS_MAX: usize = 64;
/// Most security contexts of a session that are remembered when others are added.
const CONTEXTS_MAX: usize = 16;

/// A connection that can carry callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallbackPath {
    /// The reactor that has it.
    pub reactor: usize,
    /// Its identifier, unique in the process.
    pub connection: u64,
}

/// What the callbacks of a session are sent with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackParameters {
    /// The program number.
    pub program: u32,
    /// The version of the program.
    pub version: u32,
    /// The minor version of the protocol that the client uses.
    pub minor_version: u32,
    /// The credentials.
    pub credentials: CallbackCredentials,
}

/// The credentials of callbacks, as the protocol encodes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallbackCredentials {
    /// Those of security contexts, which end. The first one that has not ended is used.
    pub contexts: Vec<Arc<[u8]>>,
    /// The one that is used without a security context.
    pub lasting: Option<Arc<[u8]>>,
}

impl CallbackCredentials {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty() && self.lasting.is_none()
    }

    /// Adds those that were there before, behind the others.
    fn add_earlier(&mut self, earlier: Self) {
        for context in earlier.contexts {
            if !self.contexts.contains(&context) {
                self.contexts.push(context);
            }
        }
        self.contexts.truncate(CONTEXTS_MAX);
        self.lasting = self.lasting.take().or(earlier.lasting);
    }
}

/// The channels that a connection serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundChannels {
    /// Requests of the client.
    pub fore: bool,
    /// Callbacks.
    pub back: bool,
}

/// The channels that BIND_CONN_TO_SESSION asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingRequest {
    /// Those that it has to serve.
    pub channels: BoundChannels,
    /// Whether it is to serve both if it can.
    pub or_both: bool,
    /// Whether its transport can call the client.
    pub can_call: bool,
}

#[derive(Debug)]
struct BoundConnection {
    path: CallbackPath,
    channels: BoundChannels,
}

/// A slot of the backchannel.
#[derive(Debug, Default)]
struct CallbackSlot {
    /// Of the last callback that the client has taken.
    sequence: u32,
    /// Whether a callback uses it.
    is_used: bool,
    /// Whether client and server disagree about its sequence number.
    is_set_aside: bool,
}

/// A slot that a callback has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenSlot {
    pub slot: u32,
    pub sequence: u32,
}

/// The backchannel of a session.
#[derive(Debug)]
pub(super) struct Backchannel {
    /// `None` if the client has offered no usable security.
    pub parameters: Option<CallbackParameters>,
    pub limits: ChannelLimits,
    /// The latest bound last.
    connections: Vec<BoundConnection>,
    /// Whether a connection has ever carried callbacks.
    was_bound: bool,
    slots: Vec<CallbackSlot>,
    /// How many slots the client wants to be used.
    target: usize,
    /// What is reported of the security contexts.
    pub context_conditions: SessionConditions,
}

impl Backchannel {
    pub fn new(parameters: Option<CallbackParameters>, limits: ChannelLimits) -> Self {
        let slots = usize::try_from(limits.requests).map_or(SLOTS_MAX, |most| most.min(SLOTS_MAX));
        Self {
            parameters,
            limits,
            connections: Vec::new(),
            was_bound: false,
            slots: (0..slots).map(|_| CallbackSlot::default()).collect(),
            target: slots,
            context_conditions: SessionConditions::default(),
        }
    }

    /// Binds a connection to channels, in addition to what it serves already.
    pub fn bind(
        &mut self,
        path: CallbackPath,
        request: BindingRequest,
    ) -> Result<BoundChannels, StateError> {
        let is_capable = request.can_call && self.parameters.is_some();
        let channels = if request.or_both && is_capable {
            BoundChannels {
                fore: true,
                back: true,
            }
        } else {
            request.channels
        };
        if channels.back && !is_capable {
            return Err(StateError::Inval);
        }
        let known = self.connections.iter().position(|one| one.path == path);
        if let Some(known) = known {
            let before = self.connections[known].channels;
            if (before.fore && !channels.fore) || (before.back && !channels.back) {
                return Err(StateError::Inval);
            }
            self.connections.remove(known);
        } else if self.connections.len() >= CONNECTIONS_MAX {
            // Requests come by other connections all the same.
            let spare = self.connections.iter().position(|one| !one.channels.back);
            self.connections.remove(spare.unwrap_or(0));
        }
        self.was_bound |= channels.back;
        self.connections.push(BoundConnection { path, channels });
        Ok(channels)
    }

    /// The connection for the next callback, if there is a credential for it.
    pub fn path(&self) -> Option<CallbackPath> {
        let parameters = self.parameters.as_ref()?;
        (!parameters.credentials.is_empty())
            .then(|| self.connection())
            .flatten()
    }

    /// The connection for callbacks: the latest bound.
    fn connection(&self) -> Option<CallbackPath> {
        let mut carrying = self.connections.iter().rev();
        let found = carrying.find(|one| one.channels.back);
        found.map(|one| one.path)
    }

    /// Forgets a connection that has ended. Whether it carried callbacks.
    fn forget(&mut self, connection: u64) -> bool {
        let carried = |one: &BoundConnection| one.channels.back;
        let ended = |one: &BoundConnection| one.path.connection == connection;
        let was_used = self
            .connections
            .iter()
            .any(|one| ended(one) && carried(one));
        self.connections.retain(|one| !ended(one));
        was_used
    }

    /// Sends no more callbacks by a connection, until the client binds it again.
    pub fn mark_down(&mut self, connection: u64) {
        let mut connections = self.connections.iter_mut();
        if let Some(known) = connections.find(|one| one.path.connection == connection) {
            known.channels.back = false;
        }
    }

    /// Sends no more callbacks by any connection, until the client binds one again.
    pub fn mark_all_down(&mut self) {
        for known in &mut self.connections {
            known.channels.back = false;
        }
    }

    /// The connections, by their identifiers.
    pub fn connections(&self) -> impl Iterator<Item = u64> {
        self.connections.iter().map(|one| one.path.connection)
    }

    /// Whether callbacks have lost their last connection.
    pub fn is_down(&self) -> bool {
        self.was_bound && self.connection().is_none()
    }

    /// Changes what callbacks are sent with. Earlier credentials remain where there are no others
    /// of their kind, and earlier contexts in any case.
    fn change(&mut self, mut parameters: CallbackParameters) {
        if !parameters.credentials.contexts.is_empty() {
            self.context_conditions = SessionConditions::default();
        }
        if let Some(earlier) = self.parameters.take() {
            parameters.credentials.add_earlier(earlier.credentials);
        }
        self.parameters = Some(parameters);
    }

    /// Forgets security contexts that have ended. Whether other conditions are to be reported.
    pub fn check_contexts(
        &mut self,
        remaining: impl Fn(&[u8]) -> Option<Duration>,
        lease: Duration,
    ) -> bool {
        let Some(parameters) = &mut self.parameters else {
            return false;
        };
        let contexts = &mut parameters.credentials.contexts;
        if contexts.is_empty() {
            return false;
        }
        let mut longest = None;
        contexts.retain(|context| {
            let remaining = remaining(context);
            longest = longest.max(remaining);
            remaining.is_some()
        });
        let conditions = match longest {
            None => SessionConditions::CONTEXTS_EXPIRED,
            Some(remaining) if remaining <= lease => SessionConditions::CONTEXTS_EXPIRING,
            Some(_) => SessionConditions::default(),
        };
        std::mem::replace(&mut self.context_conditions, conditions) != conditions
    }

    /// Whether there are security contexts that will end.
    pub fn has_contexts(&self) -> bool {
        let parameters = self.parameters.as_ref();
        parameters.is_some_and(|parameters| !parameters.credentials.contexts.is_empty())
    }

    /// Whether the client has disagreed about the sequence numbers of all slots.
    pub fn is_faulty(&self) -> bool {
        self.slots.iter().all(|slot| slot.is_set_aside)
    }

    /// Calls another version of the client's program; false if that is the present one.
    pub fn change_version(&mut self, version: u32) -> bool {
        let parameters = self.parameters.as_mut();
        parameters.is_some_and(|one| std::mem::replace(&mut one.version, version) != version)
    }

    /// Takes the lowest free slot.
    pub fn take_slot(&mut self) -> Option<TakenSlot> {
        let mut slots = (0..).zip(&mut self.slots).take(self.target);
        let (number, slot) = slots.find(|(_, slot)| !slot.is_used && !slot.is_set_aside)?;
        slot.is_used = true;
        Some(TakenSlot {
            slot: number,
            sequence: slot.sequence.wrapping_add(1),
        })
    }

    /// Gives a slot back. Its sequence number advances if the client has taken the callback.
    pub fn free_slot(&mut self, number: u32, advances: bool) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_used = false;
            slot.sequence = slot.sequence.wrapping_add(u32::from(advances));
        }
    }

    /// Uses a slot no more.
    pub fn set_slot_aside(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            (slot.is_used, slot.is_set_aside) = (false, true);
        }
    }

    /// The highest slot that a callback uses.
    pub fn highest_slot(&self) -> u32 {
        let slots = (0..).zip(&self.slots);
        let used = slots.filter(|(_, slot)| slot.is_used);
        used.map(|(number, _)| number).last().unwrap_or(0)
    }

    /// Uses slots up to this one, as the client has asked.
    pub fn set_target(&mut self, highest_slot: u32) {
        let wanted = usize::try_from(highest_slot).map_or(SLOTS_MAX, |slot| slot.saturating_add(1));
        self.target = wanted.min(self.slots.len());
    }
}

impl StateHome {
    /// Binds a connection to channels of a session. Returns what it serves from now on.
    ///
    /// # Errors
    /// [`StateError::BadSession`]; [`StateError::Inval`] if the connection cannot carry callbacks,
    /// or would lose a channel that it serves.
    pub fn bind_connection(
        &mut self,
        session: SessionId,
        path: CallbackPath,
        request: BindingRequest,
    ) -> Result<BoundChannels, StateError> {
        let (index, known) = self.client_session_mut(session)?;
        let channels = known.back.bind(path, request)?;
        self.publish_conditions(index);
        self.hasten_callbacks(index);
        Ok(channels)
    }

    /// Changes what the callbacks of a session are sent with. Security contexts are added to those
    /// that there are (RFC 8881 section 18.33.3).
    ///
    /// # Errors
    /// [`StateError::BadSession`].
    pub fn control_backchannel(
        &mut self,
        session: SessionId,
        parameters: CallbackParameters,
    ) -> Result<(), StateError> {
        let (index, known) = self.client_session_mut(session)?;
        known.back.change(parameters);
        self.watches_contexts |= known.back.has_contexts();
        self.publish_conditions(index);
        self.hasten_callbacks(index);
        Ok(())
    }

    /// Looks at the security contexts of callbacks (RFC 8881 section 18.46.3). `remaining` tells how
    /// long one can still be used, if it can.
    pub fn check_contexts(&mut self, remaining: impl Fn(&[u8]) -> Option<Duration>) {
        if !self.watches_contexts {
            return;
        }
        let lease = self.config.lease;
        let (mut changed, mut are_left) = (Vec::new(), false);
        for (index, client) in self.clients.iter_mut() {
            let mut is_changed = false;
            for session in &mut client.sessions {
                is_changed |= session.back.check_contexts(&remaining, lease);
                are_left |= session.back.has_contexts();
            }
            changed.extend(is_changed.then_some(index));
        }
        self.watches_contexts = are_left;
        for index in changed {
            self.publish_conditions(index);
        }
    }

    /// Whether callbacks of a session have security contexts, which are to be looked at from time to
    /// time.
    #[must_use]
    pub fn watches_contexts(&self) -> bool {
        self.watches_contexts
    }

    /// Unbinds a connection that has ended from all sessions.
    pub fn connection_ended(&mut self, connection: u64) {
        let mut changed = Vec::new();
        for (index, client) in self.clients.iter_mut() {
            let mut carried = false;
            for session in &mut client.sessions {
                carried |= session.back.forget(connection);
            }
            changed.extend(carried.then_some(index));
        }
        for index in changed {
            self.publish_conditions(index);
        }
    }

    /// Whether a session has a connection for callbacks.
    pub fn has_backchannel(&mut self, session: SessionId) -> bool {
        let known = self.client_session_mut(session);
        known.is_ok_and(|(_, known)| known.back.path().is_some())
    }

    /// Whether callbacks can be sent to a client.
    pub(super) fn can_call(&self, index: u32) -> bool {
        let client = self.clients.get(index);
        let mut sessions = client.into_iter().flat_map(|client| &client.sessions);
        sessions.any(|session| session.back.path().is_some() && !session.back.is_faulty())
    }

    /// A session as the home knows it, with the index of its client.
    pub(super) fn client_session_mut(
        &mut self,
        session: SessionId,
    ) -> Result<(u32, &mut ClientSession), StateError> {
        let client = self.sessions.find(session)?.client();
        let index = self.clients.find(client).ok_or(StateError::BadSession)?;
        let client = self.clients.get_mut(index);
        let mut sessions = client.into_iter().flat_map(|client| &mut client.sessions);
        let known = sessions.find(|known| known.id == session);
        Ok((index, known.ok_or(StateError::BadSession)?))
    }
}
