//! The providers of one reactor: one for each listener, with its connections.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use millrace_reactor::fabric::{ControlPath, ListenerId, QueuePairId, QueuePairLimits};

use super::{Fabric, RdmaConnection};

/// Identifies a listener of the service, on all its reactors. Identifiers are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FabricId(pub u64);

/// One provider and its connections.
pub struct FabricSlot {
    /// Its listener's identifier.
    pub id: FabricId,
    /// The provider.
    pub fabric: Fabric,
    /// Limits of its connections.
    pub limits: QueuePairLimits,
    listener: Option<ListenerId>,
    connections: Vec<Option<Rc<RdmaConnection>>>,
    /// It is dropped with its last connection.
    pub(super) retires: bool,
}

impl FabricSlot {
    /// Without connections; with a listener if this reactor has one.
    #[must_use]
    pub fn new(fabric: Fabric, limits: QueuePairLimits, listener: Option<ListenerId>) -> Self {
        Self {
            id: FabricId::default(),
            fabric,
            limits,
            listener,
            connections: Vec::new(),
            retires: false,
        }
    }

    /// The same with this identifier.
    #[must_use]
    pub fn named(mut self, id: FabricId) -> Self {
        self.id = id;
        self
    }

    /// The listener, if this reactor has it.
    #[must_use]
    pub fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// The address of the listener.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.fabric.borrow().listener_address(self.listener?)
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub fn listen(&mut self, address: SocketAddr, hand_over: bool) -> std::io::Result<()> {
        let mut fabric = self.fabric.borrow_mut();
        self.listener = Some(fabric.listen(address, self.limits, hand_over)?);
        Ok(())
    }

    /// Listens on a socket that already listens, of a slot that is to stop listening.
    ///
    /// # Errors
    /// If the socket cannot be watched.
    pub fn listen_on(&mut self, socket: OwnedFd, hand_over: bool) -> std::io::Result<()> {
        let mut fabric = self.fabric.borrow_mut();
        self.listener = Some(fabric.listen_on(socket, self.limits, hand_over)?);
        Ok(())
    }

    /// A second handle on the listener's socket.
    ///
    /// # Errors
    /// If there is no listener, or the system gives no descriptor.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        let listener = self.listener.ok_or(std::io::ErrorKind::NotConnected)?;
        self.fabric.borrow().listener_socket(listener)
    }

    /// Stops listening. Connections continue.
    pub fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.fabric.borrow_mut().stop_listening(listener);
        }
    }

    /// Sets the limits of connections made from now on.
    pub fn limit(&mut self, limits: QueuePairLimits) {
        self.limits = limits;
        if let Some(listener) = self.listener {
            self.fabric.borrow_mut().limit_listener(listener, limits);
        }
    }

    /// Its connections.
    pub fn connections(&self) -> impl Iterator<Item = &Rc<RdmaConnection>> {
        self.connections.iter().flatten()
    }

    pub(super) fn connection(&self, id: QueuePairId) -> Option<&Rc<RdmaConnection>> {
        let connection = self.connections.get(id.index as usize)?.as_ref()?;
        (connection.queue_pair() == id).then_some(connection)
    }

    pub(super) fn insert(&mut self, connection: Rc<RdmaConnection>) {
        let index = connection.queue_pair().index as usize;
        if self.connections.len() <= index {
            self.connections.resize(index + 1, None);
        }
        self.connections[index] = Some(connection);
    }

    pub(super) fn remove(&mut self, id: QueuePairId) -> Option<Rc<RdmaConnection>> {
        self.connection(id)?;
        self.connections[id.index as usize].take()
    }

    /// Whether it is retiring and idle, with everything sent.
    pub(super) fn is_over(&self) -> bool {
        self.retires
            && self.connections().next().is_none()
            && self.fabric.borrow().connections() == 0
    }
}
