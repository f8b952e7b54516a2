//! The listener of TCP connections: replaced while connections continue, and paused while descriptors
//! or memory are short.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Instant;

use millrace_reactor::accept::is_shortage;
use rustix::event::epoll;

use super::{EVENTS, LISTENER, TcpServer};
use crate::call::Serve;

/// A bound listener that has accepted nothing yet.
#[derive(Debug)]
pub struct PreparedListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl PreparedListener {
    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl<S: Serve> TcpServer<S> {
    /// Listens at an address and returns the bound one. At most one listener.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn listen(&mut self, address: SocketAddr) -> std::io::Result<SocketAddr> {
        self.listen_on(TcpListener::bind(address)?)
    }

    /// As [`TcpServer::listen`], on a socket that already listens.
    ///
    /// # Errors
    /// If the socket cannot be watched.
    pub fn listen_on(&mut self, socket: TcpListener) -> std::io::Result<SocketAddr> {
        let prepared = self.prepare_socket(socket)?;
        let bound = prepared.address;
        self.take_listener(prepared);
        Ok(bound)
    }

    /// Prepares a second listener. Nothing is accepted from it before [`TcpServer::take_listener`];
    /// dropping it discards it.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn prepare_listener(&self, address: SocketAddr) -> std::io::Result<PreparedListener> {
        self.prepare_socket(TcpListener::bind(address)?)
    }

    fn prepare_socket(&self, socket: TcpListener) -> std::io::Result<PreparedListener> {
        socket.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let address = socket.local_addr()?;
        Ok(PreparedListener { socket, address })
    }

    /// Replaces the listener by this one. Connections continue.
    pub fn take_listener(&mut self, prepared: PreparedListener) {
        self.listener = Some(prepared.socket);
        self.pause.end();
    }

    /// A second handle on the listener's socket, if it listens.
    pub fn listening_socket(&self) -> Option<std::io::Result<OwnedFd>> {
        Some(self.listener.as_ref()?.try_clone().map(OwnedFd::from))
    }

    /// Stops listening. Connections continue.
    pub fn stop_listening(&mut self) {
        self.listener = None;
        self.pause.end();
    }

    /// Accepts connections that wait.
    pub(super) fn accept(&mut self, now: Instant) {
        // A burst of connections must not delay other work.
        for _ in 0..EVENTS {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((_, peer))
                    if self
                        .shared
                        .flow
                        .clients()
                        .bans()
                        .has(peer.ip().to_canonical(), now) =>
                {
                    self.counters.refused.add(1);
                }
                // Those that no export admits stay here, so that their number is limited.
                Ok((socket, peer))
                    if self.config.hand_over
                        && self.shared.service.admits(peer.ip().to_canonical()) =>
                {
                    if self.accepted.len() < self.config.connections {
                        self.accepted.push(socket);
                    } else {
                        self.counters.refused.add(1);
                    }
                }
                Ok((socket, peer)) => {
                    if let Err(error) = self.adopt(socket, now) {
                        tracing::debug!(%peer, %error, "TCP connection turned away");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_shortage(&error) => {
                    if self.pause.begin(now) {
                        tracing::warn!(%error, "no TCP connections can be accepted for a moment");
                    }
                    self.counters.accept_pauses.add(1);
                    return self.hear_listener(false);
                }
                Err(error) => {
                    if self.cannot_accept.is_due(now) {
                        tracing::warn!(%error, "accepting a TCP connection failed");
                    }
                    return;
                }
            }
        }
    }

    /// Enables or disables events of the listener.
    pub(super) fn hear_listener(&self, reports: bool) {
        let Some(listener) = &self.listener else {
            return;
        };
        let mut interest = epoll::EventFlags::empty();
        interest.set(epoll::EventFlags::IN, reports);
        let data = epoll::EventData::new_u64(LISTENER);
        // It fails only for descriptors not in the set.
        let _ = epoll::modify(&self.epoll, listener, data, interest);
    }
}
