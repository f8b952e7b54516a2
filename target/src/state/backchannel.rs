//! Backchannels of sessions: the connections that carry callbacks, and the slots that these use
//! (RFC 8881 sections 2.10.3.1, 2.10.6.1 and 18.34).

use std::sync::Arc;

use super::clients::ClientSession;
use super::home::StateHome;
use super::session::ChannelLimits;
use super::{SessionId, StateError};

/// Most callbacks of a session at a time.
const SLOTS_MAX: usize = 16;
/// Most connections of a session that are remembered.
const CONNECTIONS_MAX: usize = 64;

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
    /// The credential, as the protocol encodes it.
    pub credential: Arc<[u8]>,
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

    /// The connection for the next callback: the latest bound.
    pub fn path(&self) -> Option<CallbackPath> {
        self.parameters.as_ref()?;
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
        self.was_bound && self.path().is_none()
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

    /// Changes what the callbacks of a session are sent with.
    ///
    /// # Errors
    /// [`StateError::BadSession`].
    pub fn control_backchannel(
        &mut self,
        session: SessionId,
        parameters: CallbackParameters,
    ) -> Result<(), StateError> {
        let (_, known) = self.client_session_mut(session)?;
        known.back.parameters = Some(parameters);
        Ok(())
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
