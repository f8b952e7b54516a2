//! How sessions begin and end (RFC 8881 sections 18.36 and 18.37).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::address_shares::charged_address;
use super::backchannel::{
    Backchannel, BindingRequest, BoundChannels, CallbackParameters, CallbackPath,
};
use super::clients::{ClientId, ClientSession, LeasedClient};
use super::home::{StateEvent, StateHome};
use super::session::{ChannelLimits, Session};
use super::{SessionId, StateError};

/// What CREATE_SESSION asks for.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'a> {
    /// The client.
    pub client: ClientId,
    /// Sequence number of the client ID.
    pub sequence: u32,
    /// Who calls.
    pub principal: &'a [u8],
    /// Limits wanted for the fore channel.
    pub fore: ChannelLimits,
    /// Limits wanted for the backchannel.
    pub back: ChannelLimits,
    /// Whether the connection is to carry callbacks, and can.
    pub backchannel: bool,
    /// Where it came from, if that is known.
    pub origin: Option<SessionOrigin>,
    /// The connection by which it came, if that can be identified.
    pub connection: Option<CallbackPath>,
    /// What callbacks are sent with, if the client has offered something usable.
    pub callbacks: Option<&'a CallbackParameters>,
    /// What else is wrong with the arguments. It is the outcome of a request that would make a
    /// session.
    pub fault: Option<&'a StateError>,
}

/// Where a request for a session came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOrigin {
    /// The address of the client.
    pub address: IpAddr,
    /// The minor version of the protocol.
    pub minor_version: u32,
}

/// What CREATE_SESSION returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionGrant {
    /// The session.
    pub session: SessionId,
    /// Sequence number of the request.
    pub sequence: u32,
    /// Limits of the fore channel.
    pub fore: ChannelLimits,
    /// Limits of the backchannel.
    pub back: ChannelLimits,
    /// Whether the connection carries callbacks.
    pub backchannel: bool,
}

impl StateHome {
    /// Makes a session. The first one confirms the client. A retry gets the session of the original.
    /// If that failed, it made nothing, and is judged again: some clients repeat the number with
    /// other arguments, others take the next one.
    ///
    /// # Errors
    /// [`StateError::StaleClientid`], [`StateError::SeqMisordered`], [`StateError::ClidInuse`],
    /// [`StateError::TooSmall`], [`StateError::NoSpc`].
    pub fn create_session(
        &mut self,
        request: &SessionRequest<'_>,
        now: Duration,
    ) -> Result<SessionGrant, StateError> {
        let index = self.live_record(request.client, now)?;
        let client = self.clients.get(index).ok_or(StateError::StaleClientid)?;
        let has_failed = match &client.created {
            // Also before the first request.
            Ok(_) | Err(StateError::SeqMisordered) => false,
            Err(_) => true,
        };
        if request.sequence == client.sequence && !has_failed {
            return client.created.clone();
        }
        if request.sequence.wrapping_sub(client.sequence) > 1 {
            return Err(StateError::SeqMisordered);
        }
        if !client.is_confirmed && *client.principal != *request.principal {
            // Not kept: the client's own request is still to come.
            return Err(StateError::ClidInuse);
        }
        let created = self.make_session(index, request, now);
        if let Some(client) = self.clients.get_mut(index) {
            client.sequence = request.sequence;
            client.created.clone_from(&created);
        }
        created
    }

    fn make_session(
        &mut self,
        index: u32,
        request: &SessionRequest<'_>,
        now: Duration,
    ) -> Result<SessionGrant, StateError> {
        if let Some(fault) = request.fault {
            return Err(fault.clone());
        }
        let mut fore = self.fore_limits(&request.fore)?;
        let back = self.back_limits(&request.back)?;
        let client = self.clients.get(index).ok_or(StateError::StaleClientid)?;
        // The client may use all that it is granted before it is told of less.
        let slots_most = fore.requests;
        let sessions = client.sessions.len();
        let clients = self.slot_shares.clients + usize::from(sessions == 0);
        let share = self.slots_for(clients, sessions + 1, fore.cached_size);
        fore.requests = fore.requests.min(share);
        if client.sessions.len() >= self.config.sessions_per_client {
            return Err(StateError::NoSpc);
        }
        let is_first = !client.is_confirmed;
        let id = client.id;
        let protection = client.protection.clone();
        let superseded = self.clients.confirmed(&client.owner);
        let superseded = superseded.filter(|_| is_first);
        // The sessions of a record that this one replaces go with it.
        let leaves_room = |old| {
            !self
                .clients
                .get(old)
                .is_none_or(|old| old.sessions.is_empty())
        };
        let is_replacement = superseded.is_some_and(leaves_room);
        let is_other = |one: &LeasedClient| one.id != id && !one.sessions.is_empty();
        let address = request.origin.map(|origin| charged_address(origin.address));
        let (few, free) = (self.config.sessions_per_client, self.free_sessions.len());
        // Its share first: who has more than that takes nothing from others.
        let has_room = is_replacement
            || (self.sessions_by_address.permits(address, few, free)
                || self.remove_courteous(now, |one| is_other(one) && one.address == address))
                && (!self.free_sessions.is_empty() || self.remove_courteous(now, is_other));
        if !has_room {
            return Err(StateError::NoSpc);
        }
        let mut channel = Backchannel::new(request.callbacks.cloned(), back);
        let backchannel = request.backchannel && request.callbacks.is_some();
        if let Some(path) = request.connection {
            let binding = BindingRequest {
                channels: BoundChannels {
                    fore: true,
                    back: backchannel,
                },
                or_both: false,
                can_call: request.backchannel,
            };
            channel.bind(path, binding)?;
        }
        let backchannel = channel.path().is_some();
        self.watches_contexts |= channel.has_contexts();
        // Nothing fails from here on.
        if let Some(old) = superseded {
            self.remove_client(old);
        }
        if is_first {
            self.clients.confirm(index, address, now);
            self.recognize_client(index, now);
        }
        let place = self.free_sessions.pop().ok_or(StateError::NoSpc)?;
        self.session_serial = self.session_serial.wrapping_add(1);
        let check = self.session_check(place, self.session_serial);
        let id = SessionId::new(place, self.session_serial, check);
        self.sessions.publish(Arc::new(Session::new(
            id,
            (request.client, index),
            [fore, back],
            slots_most,
            self.leases.clone(),
            protection,
        )));
        if let Some(client) = self.clients.get_mut(index) {
            client.origin = request.origin.or(client.origin);
            self.sessions_by_address.add(address);
            client.sessions.push(ClientSession {
                id,
                address,
                draining: None,
                back: channel,
            });
            let sessions = client.sessions.len();
            self.slot_shares.count(sessions - 1, sessions);
        }
        self.publish_conditions(index);
        Ok(SessionGrant {
            session: id,
            sequence: request.sequence,
            fore,
            back,
            backchannel,
        })
    }

    fn fore_limits(&self, asked: &ChannelLimits) -> Result<ChannelLimits, StateError> {
        let (most, least) = (&self.config.fore_most, &self.config.fore_least);
        let limits = ChannelLimits {
            request_size: asked.request_size.min(most.request_size),
            response_size: asked.response_size.min(most.response_size),
            cached_size: asked.cached_size.min(most.cached_size),
            operations: asked.operations.min(most.operations),
            requests: asked.requests.min(most.requests),
        };
        let fits = limits.fits(least) && limits.requests > 0;
        fits.then_some(limits).ok_or(StateError::TooSmall)
    }

    fn back_limits(&self, asked: &ChannelLimits) -> Result<ChannelLimits, StateError> {
        let fits = asked.fits(&self.config.back_least);
        fits.then_some(*asked).ok_or(StateError::TooSmall)
    }

    /// Ends a session. `own` is the slot of the request that asks for it, if it is one of that
    /// session.
    ///
    /// # Errors
    /// [`StateError::BadSession`]; [`StateError::Delay`] while other requests of the session are
    /// executed, for some time.
    pub fn destroy_session(
        &mut self,
        session: SessionId,
        own: Option<u32>,
        now: Duration,
    ) -> Result<(), StateError> {
        let shared = self.sessions.find(session)?.share();
        let client = self.clients.find(shared.client());
        let index = client.ok_or(StateError::BadSession)?;
        if shared.is_executing(own) {
            let client = self.clients.get_mut(index);
            let mut sessions = client.into_iter().flat_map(|client| &mut client.sessions);
            let known = sessions.find(|known| known.id == session);
            let known = known.ok_or(StateError::BadSession)?;
            let since = *known.draining.get_or_insert(now);
            if now < since + self.config.drain {
                return Err(StateError::Delay);
            }
        }
        self.end_session(index, session);
        Ok(())
    }

    /// Ends a session of a client at once.
    pub(super) fn end_session(&mut self, index: u32, session: SessionId) {
        if let Ok(found) = self.sessions.find(session) {
            found.end();
            self.sessions.withdraw(session);
            self.free_sessions
                .extend(u32::try_from(session.index()).ok());
        }
        if let Some(client) = self.clients.get_mut(index) {
            let (id, before) = (client.id, client.sessions.len());
            for ended in client.sessions.extract_if(.., |known| known.id == session) {
                self.sessions_by_address.remove(ended.address, 1);
            }
            self.slot_shares.count(before, client.sessions.len());
            self.leave_session(id, session);
        }
        self.publish_conditions(index);
        self.events.push_back(StateEvent::SessionEnded { session });
    }
}

impl ChannelLimits {
    /// Whether all that has a lower limit reaches it.
    fn fits(&self, least: &Self) -> bool {
        self.request_size >= least.request_size
            && self.response_size >= least.response_size
            && self.operations >= least.operations
            && self.requests >= least.requests
    }
}
