//! Connection requests to be handed to their owning reactors.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::sys::{ConnectionEvent, ConnectionId, EventChannel};
use super::token::Token;
use crate::fabric::PrivateData;

/// A connection request to be handed to its owning reactor; rejected when dropped.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) manager: ConnectionId,
    pub(super) peer: SocketAddr,
    pub(super) private_data: PrivateData,
    /// Reads that the peer serves.
    pub(super) peer_ird: u8,
    /// Reads that the peer wants to open.
    pub(super) peer_ord: u8,
    /// The channel of its events.
    channel: RawFd,
}

impl Arrival {
    /// The content of a request from the connection manager, if it is complete.
    pub(super) fn of(event: ConnectionEvent, channel: &EventChannel) -> Option<Self> {
        let mut manager = event.new?;
        // Until it is taken, its events have no owner.
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

    /// Moves its events to this channel, under this token.
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
