//! Connection requests on their way to the reactor that shall own them.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::sys::{ConnectionEvent, ConnectionId, EventChannel};
use super::token::Token;
use crate::fabric::PrivateData;

/// A connection request on its way to the reactor that shall own it; turned away when dropped.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) manager: ConnectionId,
    pub(super) peer: SocketAddr,
    pub(super) private_data: PrivateData,
    /// Reads that the peer serves.
    pub(super) peer_ird: u8,
    /// Reads that the peer wants to open.
    pub(super) peer_ord: u8,
    /// The channel that its events come to.
    channel: RawFd,
}

impl Arrival {
    /// What a request of the connection manager's brings, if it is whole.
    pub(super) fn of(event: ConnectionEvent, channel: &EventChannel) -> Option<Self> {
        let mut manager = event.new?;
        // Until somebody takes it, events of it are nobody's.
        manager.set_token(Token::Nobody.encode());
        Some(Self {
            peer: manager.peer_address()?,
            manager,
            private_data: event.private_data,
            peer_ird: event.initiator_depth,
            peer_ord: event.responder_resources,
            channel: channel.descriptor(),
        })
    }

    /// Lets its events come to this channel, under this token.
    ///
    /// # Errors
    /// The connection manager refuses, since the peer or the device is gone.
    pub(super) fn take(
        &mut self,
        channel: &Arc<EventChannel>,
        token: Token,
    ) -> std::io::Result<()> {
        if self.channel != channel.descriptor() {
            self.manager.migrate(channel)?;
            self.channel = channel.descriptor();
        }
        self.manager.set_token(token.encode());
        Ok(())
    }
}
