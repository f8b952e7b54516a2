//! What a provider does, in two faces: the data path and the control path.
//!
//! The methods are divided by how often they run. [`DataPath`] has what runs for each call or in
//! each turn of a reactor; its calls are to be resolved at compile time, so programs hold a
//! provider's own type or [`AnyProvider`](super::AnyProvider). [`ControlPath`] has what runs for
//! each connection, listener or report, where a call through a table of methods costs nothing that
//! matters.
//!
//! No method has a default: what stands for several providers, or before one, passes every method
//! on, and the compiler finds the one that was forgotten.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use millrace_mempool::Buffer;

use super::{
    Access, AdoptError, ConnectParameters, Event, ExposeError, Exposure, Incoming, Invalidation,
    Key, ListenerId, PostError, QueuePairId, QueuePairLimits, Revoked, Slices, WorkRequest,
};
#[cfg(doc)]
use super::{Operation, SLICES_MAX, WorkError, chain};

/// Queue pairs in use: what runs for each call or in each turn.
///
/// It is polled, never blocks, and allocates nothing in the steady state.
pub trait DataPath {
    /// Most slices that one RDMA Read of this queue pair may fill, over its own work request and
    /// those that continue it ([`Operation::ReadMore`]). [`chain::transfer`] cuts by it.
    fn read_slices(&self, queue_pair: QueuePairId) -> usize;

    /// Send queue entries free for a chain: [`QueuePairLimits::send_depth`] of them when all that
    /// was posted is over. Unsignalled ones come free as well, soon after they are over.
    fn send_room(&self, queue_pair: QueuePairId) -> usize;

    /// A descriptor that becomes readable when [`DataPath::poll`] has work, for adaptive
    /// reactors; `None` if the provider has to be polled.
    fn wake_descriptor(&self) -> Option<RawFd>;

    /// The next instant at which [`DataPath::poll`] has a deadline to act on.
    fn next_deadline(&self) -> Option<Instant>;

    /// Posts one receive. Messages fill receives in the order posted.
    ///
    /// # Errors
    /// The receive queue is full, or the queue pair is closed. The buffer comes back.
    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)>;

    /// Posts a chain: all of `chain` or nothing. On success `chain` is left empty (its allocation
    /// is the caller's to reuse). Work leaves at the next [`DataPath::flush`].
    ///
    /// # Errors
    /// The send queue has no room for all of it, or the queue pair is closed.
    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError>;

    /// Exposes memory to the peer of one queue pair.
    ///
    /// # Errors
    /// No exposure is free, the memory cannot be put under one key, or the queue pair is closed.
    /// The memory comes back.
    #[allow(clippy::result_large_err)] // The memory comes back by value; boxing would allocate.
    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)>;

    /// Ends an exposure.
    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked;

    /// Advances everything that can advance and appends what happened, at most `events` spare
    /// capacity's worth, so that a steady loop does not allocate. Returns the amount of work done
    /// (0: idle).
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize;

    /// Hands what was posted since the last flush to the network: one doorbell or one gathered
    /// write per queue pair. Returns the amount of work done.
    fn flush(&mut self, now: Instant) -> usize;

    /// Called when a reactor is about to sleep on [`DataPath::wake_descriptor`]: from here on
    /// until the next poll, work makes it readable. False if there is work already, so that the
    /// reactor stays awake.
    fn arm(&mut self) -> bool;
}

/// Listeners, the beginning and the end of connections, and what is reported of them.
pub trait ControlPath {
    /// A short word for logs and metrics: `iwarp`, `verbs`, `loopback`.
    fn name(&self) -> &'static str;

    /// Whether Sends may invalidate keys, on all devices that connections may be on.
    fn remote_invalidation(&self) -> Invalidation;

    /// Most slices that one key may cover ([`DataPath::expose`]), at most [`SLICES_MAX`]. Devices
    /// know keys of one range of addresses only; their memory in pieces takes a key for each.
    fn exposure_slices(&self) -> usize;

    /// The address that a listener is bound to (with the port that the system chose for port 0).
    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr>;

    /// A second handle on a listener's socket, for a provider that shall take the listener over
    /// ([`ControlPath::listen_on`]).
    ///
    /// # Errors
    /// There is no such listener, the system gives no descriptor, or the fabric has no sockets
    /// ([`io::ErrorKind::Unsupported`]).
    fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd>;

    /// Connections there are in any state, those included that the application does not know of
    /// yet or any more.
    fn connections(&self) -> usize;

    /// Our address and port of a connection, where the provider knows them.
    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr>;

    /// The name of the device that a connection is on, where the fabric has devices.
    fn device_name(&self, queue_pair: QueuePairId) -> Option<String>;

    /// Starts to listen. With `hand_over` every new connection is reported as
    /// [`Event::Incoming`] for the service to place; without, this provider keeps it.
    ///
    /// # Errors
    /// The address cannot be used.
    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId>;

    /// Listens on a socket that listens already: connections that nobody has accepted yet come
    /// here once the other provider has stopped.
    ///
    /// # Errors
    /// The system cannot watch the socket, or the fabric has no sockets
    /// ([`io::ErrorKind::Unsupported`]).
    fn listen_on(
        &mut self,
        socket: OwnedFd,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId>;

    /// Gives the connections that a listener accepts from now on other limits, where the fabric
    /// can.
    fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits);

    /// Stops to listen. Connections made through the listener live on.
    fn stop_listening(&mut self, listener: ListenerId);

    /// Takes over a connection that arrived at another reactor's listener.
    ///
    /// # Errors
    /// The connection arrived at another kind of provider, there are too many connections, or the
    /// system cannot watch it. The connection is ended then.
    fn adopt(&mut self, incoming: Incoming, now: Instant) -> Result<(), AdoptError>;

    /// Begins to connect. The outcome comes as [`Event::Established`], [`Event::Rejected`] or
    /// [`Event::Disconnected`]. Receives may be posted at once.
    ///
    /// # Errors
    /// The address cannot be reached from here, or there are too many connections.
    fn connect(
        &mut self,
        address: SocketAddr,
        parameters: ConnectParameters,
        now: Instant,
    ) -> io::Result<QueuePairId>;

    /// Accepts a connection request. [`Event::Established`] follows.
    ///
    /// # Errors
    /// The request is no more ([`PostError::Closed`]).
    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError>;

    /// Rejects a connection request. The queue pair is dead at once.
    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]);

    /// Lets a queue pair have more receives posted than it was made for, where the fabric can.
    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32);

    /// Keeps RDMA Reads of ours that are open at once at or below `reads`, a number that the peer
    /// has given outside of the connection's setup (RFC 5666 section 6.2), and at or below the
    /// depth that the setup gave. Later calls may raise or lower it; Reads that are open already
    /// stay so. With zero, Reads that are not open end with [`WorkError::NoReads`].
    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16);

    /// Closes in order: what is posted is sent, then the connection ends with
    /// [`Event::Disconnected`], at the latest after the provider's own deadline.
    fn close(&mut self, queue_pair: QueuePairId);

    /// Ends a connection at once; posted work is flushed. [`Event::Disconnected`] follows.
    fn abort(&mut self, queue_pair: QueuePairId);
}

/// All queue pairs of one fabric on one reactor, with both faces. Not `Send`: it lives and dies on
/// its core.
pub trait Provider: DataPath + ControlPath {}

impl<P: DataPath + ControlPath + ?Sized> Provider for P {}
