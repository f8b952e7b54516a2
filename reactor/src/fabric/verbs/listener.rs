//! Listeners: they accept requests, and are restored when their device returns.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::common::Common;
use super::sys::{ConnectionEventKind, ConnectionId};
use super::token::Token;
use crate::fabric::QueuePairLimits;

/// The most connection requests waiting in the kernel.
const BACKLOG: i32 = 1024;

/// The interval of attempts to listen again.
const REST: Duration = Duration::from_secs(1);

pub(super) struct VerbsListener {
    /// Absent while its device is.
    manager: Option<ConnectionId>,
    token: Token,
    /// With the actual port.
    pub(super) address: SocketAddr,
    pub(super) limits: QueuePairLimits,
    pub(super) hand_over: bool,
    retry: Option<Instant>,
}

impl VerbsListener {
    /// Starts listening.
    ///
    /// # Errors
    /// The address is in use, or not one of an RDMA device.
    pub(super) fn new(
        index: u32,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
        common: &Common,
    ) -> io::Result<Self> {
        let token = Token::Listener(index);
        let manager = bind(token, address, common)?;
        // The connection manager has its own port space.
        let bound = manager.local_address();
        let port = bound.map_or(address.port(), |bound| bound.port());
        Ok(Self {
            manager: Some(manager),
            token,
            address: SocketAddr::new(address.ip(), port),
            limits,
            hand_over,
            retry: None,
        })
    }

    /// Handles an event of the connection manager.
    pub(super) fn managed(&mut self, kind: ConnectionEventKind, common: &mut Common) {
        let is_lost = matches!(
            kind,
            ConnectionEventKind::DeviceRemoval | ConnectionEventKind::AddressChange
        );
        if !is_lost || self.manager.is_none() {
            return;
        }
        tracing::warn!(
            address = %self.address,
            "the RDMA device of a listener was removed; it listens again once a device is available"
        );
        self.stop(common);
        let retry = common.now + REST;
        self.retry = Some(retry);
        common.has_deadline(retry);
    }

    /// Retries to listen, if that is due.
    pub(super) fn expire(&mut self, common: &mut Common) {
        let Some(retry) = self.retry else {
            return;
        };
        if retry > common.now {
            common.has_deadline(retry);
            return;
        }
        match bind(self.token, self.address, common) {
            Ok(manager) => {
                tracing::info!(address = %self.address, "listening again, on an RDMA device");
                self.manager = Some(manager);
                self.retry = None;
            }
            Err(error) => {
                tracing::debug!(address = %self.address, %error, "no RDMA device to listen on yet");
                let retry = common.now + REST;
                self.retry = Some(retry);
                common.has_deadline(retry);
            }
        }
    }

    /// Stops listening.
    pub(super) fn stop(&mut self, common: &Common) {
        if let Some(manager) = self.manager.take() {
            let token = Token::Nobody.encode();
            common.reaper.destroy(Box::new(manager), token);
        }
        self.retry = None;
    }
}

fn bind(token: Token, address: SocketAddr, common: &Common) -> io::Result<ConnectionId> {
    let manager = ConnectionId::new(&common.channel, token.encode())?;
    manager.bind(address)?;
    manager.listen(BACKLOG)?;
    Ok(manager)
}
