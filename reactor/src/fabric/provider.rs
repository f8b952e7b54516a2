//! The two traits of a provider: the data path and the control path.
//!
//! The methods are divided by frequency. [`DataPath`] has those called for each call or in each
//! turn of a reactor; they are to be resolved at compile time, so programs use a provider's own
//! type or [`AnyProvider`](super::AnyProvider). [`ControlPath`] has those called for each
//! connection, listener or report, where dynamic dispatch is cheap enough.
//!
//! No method has a default: types that forward to other providers implement every method, and the
//! compiler finds a missing one.

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

/// Queue pairs in use: operations for each call or in each turn.
///
/// It is polled, never blocks, and allocates nothing in the steady state.
pub trait DataPath {
    /// The most slices that one RDMA Read of this queue pair may fill, including those of its
    /// continuations ([`Operation::ReadMore`]). [`chain::transfer`] observes it.
    fn read_slices(&self, queue_pair: QueuePairId) -> usize;

    /// Free send queue entries for a chain: [`QueuePairLimits::send_depth`] of them when all posted
    /// work is complete. Unsignalled ones become free as well, soon after their completion.
    fn send_room(&self, queue_pair: QueuePairId) -> usize;

    /// A descriptor that becomes readable when [`DataPath::poll`] has work, for adaptive
    /// reactors; `None` if the provider has to be polled.
    fn wake_descriptor(&self) -> Option<RawFd>;

    /// The next deadline of [`DataPath::poll`].
    fn next_deadline(&self) -> Option<Instant>;

    /// Posts one receive. Messages fill receives in the order posted.
    ///
    /// # Errors
    /// The receive queue is full, or the queue pair is closed. The buffer is returned.
    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        buffer: Buffer,
    ) -> Result<(), (PostError, Buffer)>;

    /// Posts a chain: all of `chain` or nothing. On success `chain` is left empty (the caller may
    /// reuse its allocation). Work is sent at the next [`DataPath::flush`].
    ///
    /// # Errors
    /// The send queue has no space for all of it, or the queue pair is closed.
    fn post(
        &mut self,
        queue_pair: QueuePairId,
        chain: &mut Vec<WorkRequest>,
    ) -> Result<(), PostError>;

    /// Exposes memory to the peer of one queue pair.
    ///
    /// # Errors
    /// No exposure is free, the memory cannot be registered under one key, or the queue pair is
    /// closed. The memory is returned.
    #[allow(clippy::result_large_err)] // The memory comes back by value; boxing would allocate.
    fn expose(
        &mut self,
        queue_pair: QueuePairId,
        local: Slices,
        access: Access,
    ) -> Result<Exposure, (ExposeError, Slices)>;

    /// Ends an exposure.
    fn revoke(&mut self, queue_pair: QueuePairId, key: Key) -> Revoked;

    /// Advances all work and appends events, at most the spare capacity of `events`, so that a
    /// steady loop does not allocate. Returns the amount of work done (0: idle).
    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize;

    /// Sends everything posted since the last flush: one doorbell or one gathered write per queue
    /// pair. Returns the amount of work done.
    fn flush(&mut self, now: Instant) -> usize;

    /// Called before a reactor sleeps on [`DataPath::wake_descriptor`]: until the next poll, work
    /// makes it readable. False if there is work already, so that the reactor stays awake.
    fn arm(&mut self) -> bool;
}

/// Listeners, start and end of connections, and reports.
pub trait ControlPath {
    /// A short word for logs and metrics: `iwarp`, `verbs`, `loopback`.
    fn name(&self) -> &'static str;

    /// Whether Sends may invalidate keys, on all devices that connections may use.
    fn remote_invalidation(&self) -> Invalidation;

    /// The most slices that one key may cover ([`DataPath::expose`]), at most [`SLICES_MAX`].
    /// Devices have keys for one range of addresses only; memory in pieces needs a key for each.
    fn exposure_slices(&self) -> usize;

    /// The address that a listener is bound to (with the port that the system chose for port 0).
    fn listener_address(&self, listener: ListenerId) -> Option<SocketAddr>;

    /// A second handle on a listener's socket, for a provider that takes the listener over
    /// ([`ControlPath::listen_on`]).
    ///
    /// # Errors
    /// There is no such listener, the system gives no descriptor, or the fabric has no sockets
    /// ([`io::ErrorKind::Unsupported`]).
    fn listener_socket(&self, listener: ListenerId) -> io::Result<OwnedFd>;

    /// Connections in any state, including those that the application does not know yet or any
    /// more.
    fn connections(&self) -> usize;

    /// Our address and port of a connection, if the provider knows them.
    fn local_address(&self, queue_pair: QueuePairId) -> Option<SocketAddr>;

    /// The name of a connection's device, if the fabric has devices.
    fn device_name(&self, queue_pair: QueuePairId) -> Option<String>;

    /// Starts listening. With `hand_over` every new connection is reported as [`Event::Incoming`]
    /// for the service to place; without, this provider keeps it.
    ///
    /// # Errors
    /// The address cannot be used.
    fn listen(
        &mut self,
        address: SocketAddr,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId>;

    /// Listens on a socket that already listens: connections not accepted yet arrive here once the
    /// other provider has stopped.
    ///
    /// # Errors
    /// The system cannot poll the socket, or the fabric has no sockets
    /// ([`io::ErrorKind::Unsupported`]).
    fn listen_on(
        &mut self,
        socket: OwnedFd,
        limits: QueuePairLimits,
        hand_over: bool,
    ) -> io::Result<ListenerId>;

    /// Changes the limits of connections that a listener accepts from now on, if the fabric can.
    fn limit_listener(&mut self, listener: ListenerId, limits: QueuePairLimits);

    /// Stops listening. Connections made through the listener continue.
    fn stop_listening(&mut self, listener: ListenerId);

    /// Adopts a connection that arrived at another reactor's listener.
    ///
    /// # Errors
    /// The connection arrived at another kind of provider, there are too many connections, or the
    /// system cannot poll it. The connection is then ended.
    fn adopt(&mut self, incoming: Incoming, now: Instant) -> Result<(), AdoptError>;

    /// Starts connecting. The outcome is [`Event::Established`], [`Event::Rejected`] or
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
    /// The request does not exist any more ([`PostError::Closed`]).
    fn accept(
        &mut self,
        queue_pair: QueuePairId,
        parameters: ConnectParameters,
    ) -> Result<(), PostError>;

    /// Rejects a connection request. The queue pair ends at once.
    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]);

    /// Permits more posted receives for a queue pair than when it was made, if the fabric can.
    fn deepen_receives(&mut self, queue_pair: QueuePairId, receive_depth: u32);

    /// Limits the number of our concurrent RDMA Reads to `reads`, a number that the peer has
    /// announced outside of the connection's setup (RFC 5666 section 6.2), and to the depth from
    /// the setup. Later calls may raise or lower it; open Reads are not affected. With zero, Reads
    /// that are not open end with [`WorkError::NoReads`].
    fn limit_reads(&mut self, queue_pair: QueuePairId, reads: u16);

    /// Closes in order: posted work is sent, then the connection ends with [`Event::Disconnected`],
    /// at the latest at the provider's own timeout.
    fn close(&mut self, queue_pair: QueuePairId);

    /// Ends a connection at once; posted work is flushed. [`Event::Disconnected`] follows.
    fn abort(&mut self, queue_pair: QueuePairId);
}

/// All queue pairs of one fabric on one reactor, with both traits. Not `Send`: it stays on its
/// core.
pub trait Provider: DataPath + ControlPath {}

impl<P: DataPath + ControlPath + ?Sized> Provider for P {}
