//! The providers of one reactor: one for each listener, with the connections that came by it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use millrace_reactor::fabric::{ControlPath, ListenerId, QueuePairId, QueuePairLimits};

use super::{Fabric, RdmaConnection};

/// Names a listener of the service, on all its reactors. No two ever have the same name, however
/// listeners come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FabricId(pub u64);

/// One provider and the connections that it carries.
pub struct FabricSlot {
    /// Its listener's name.
    pub id: FabricId,
    /// The provider.
    pub fabric: Fabric,
    /// Limits of its connections.
    pub limits: QueuePairLimits,
    listener: Option<ListenerId>,
    connections: Vec<Option<Rc<RdmaConnection>>>,
    /// It goes with its last connection.
    pub(super) retires: bool,
}

impl FabricSlot {
    /// Without connections yet; with a listener where this reactor has one.
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

    /// The same by this name.
    #[must_use]
    pub fn named(mut self, id: FabricId) -> Self {
        self.id = id;
        self
    }

    /// What listens, where this reactor has it.
    #[must_use]
    pub fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.fabric.borrow().listener_address(self.listener?)
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn listen(&mut self, address: SocketAddr, hand_over: bool) -> std::io::Result<()> {
        let mut fabric = self.fabric.borrow_mut();
        self.listener = Some(fabric.listen(address, self.limits, hand_over)?);
        Ok(())
    }

    /// Listens on a socket that listens already, of a slot that is to listen no longer.
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
    /// If nothing listens here, or the system gives no descriptor.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        let listener = self.listener.ok_or(std::io::ErrorKind::NotConnected)?;
        self.fabric.borrow().listener_socket(listener)
    }

    /// Listens no longer. Connections live on.
    pub fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.fabric.borrow_mut().stop_listening(listener);
        }
    }

    /// Gives connections that are made from now on other limits.
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

    /// Whether it is to go and carries nothing any more, last words included.
    pub(super) fn is_over(&self) -> bool {
        self.retires
            && self.connections().next().is_none()
            && self.fabric.borrow().connections() == 0
    }
}
