//! The connection manager: identifiers of connections and listeners, and their events.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{
    ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state, rdma_accept, rdma_ack_cm_event, rdma_bind_addr,
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_connect,
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id,
    rdma_disconnect, rdma_establish, rdma_event_channel, rdma_get_cm_event, rdma_init_qp_attr,
    rdma_listen, rdma_migrate_id, rdma_port_space, rdma_reject, rdma_resolve_addr,
    rdma_resolve_route,
};

use super::address::Address;
use super::context::device_name;
use super::{destroyed, made, manager, unblock, unless_empty};
use crate::fabric::PrivateData;

/// The channel of the connection manager's events.
pub struct EventChannel {
    pointer: NonNull<rdma_event_channel>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for EventChannel {}
// SAFETY: rule 3, as above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    /// A channel without identifiers.
    ///
    /// # Errors
    /// The kernel has no connection manager (ENODEV, ENOENT), or this process may not use it
    /// (EACCES).
    pub fn new() -> io::Result<Arc<Self>> {
        // SAFETY: the function has no arguments and no preconditions.
        let pointer = made(unsafe { rdma_create_event_channel() })?;
        let channel = Self { pointer };
        unblock(channel.descriptor())?;
        Ok(Arc::new(channel))
    }

    fn as_ptr(&self) -> *mut rdma_event_channel {
        self.pointer.as_ptr()
    }

    /// Readable when there are events; it does not block.
    pub fn descriptor(&self) -> RawFd {
        // SAFETY: rule 1; the library sets the field before it gives the channel out, and never
        // again.
        unsafe { (*self.as_ptr()).fd }
    }

    /// The next event, acknowledged.
    ///
    /// # Errors
    /// The connection manager is gone.
    pub fn next(self: &Arc<Self>) -> io::Result<Option<ConnectionEvent>> {
        let mut event = std::ptr::null_mut();
        // SAFETY: rule 1 for the channel; the result is a variable of ours.
        if unsafe { rdma_get_cm_event(self.as_ptr(), &raw mut event) } != 0 {
            return unless_empty(io::Error::last_os_error()).map(|()| None);
        }
        // SAFETY: the library keeps an event until it is acknowledged, which is done below and
        // nowhere else; it is copied once.
        let copied = unsafe { self.copy(&*event) };
        // SAFETY: the library gave the event out just now, and `copied` does not refer to it.
        manager(unsafe { rdma_ack_cm_event(event) })?;
        Ok(Some(copied))
    }

    /// # Safety
    /// The event was given out by the library and is not acknowledged yet. It is copied for the
    /// first time: a copy of a connection request owns the new identifier.
    unsafe fn copy(self: &Arc<Self>, event: &rdma_cm_event) -> ConnectionEvent {
        let kind = ConnectionEventKind::of(event.event);
        let is_request = kind == ConnectionEventKind::ConnectRequest;
        let named = if is_request {
            event.listen_id
        } else {
            event.id
        };
        let new = is_request.then(|| NonNull::new(event.id)).flatten();
        // SAFETY: identifiers exist while an event that names them is not acknowledged, for which
        // their destruction waits; `context` holds our token. All variants of the parameters have
        // plain numbers and a pointer only.
        let (token, parameters) = unsafe { ((*named).context as u64, &event.param.conn) };
        let has_data = matches!(
            kind,
            ConnectionEventKind::ConnectRequest
                | ConnectionEventKind::ConnectResponse
                | ConnectionEventKind::Established
                | ConnectionEventKind::Rejected
        ) && !parameters.private_data.is_null();
        let length = if has_data {
            parameters.private_data_len
        } else {
            0
        };
        let data: &[u8] = if has_data {
            // SAFETY: in the events that have private data the library points to so many bytes of
            // the event, which the caller keeps during the call.
            unsafe {
                std::slice::from_raw_parts(parameters.private_data.cast(), usize::from(length))
            }
        } else {
            &[]
        };
        let most = data.len().min(crate::fabric::PRIVATE_DATA_MAX);
        ConnectionEvent {
            kind,
            token,
            status: event.status,
            new: new.map(|pointer| ConnectionId {
                pointer,
                channel: Arc::clone(self),
            }),
            private_data: data[..most].iter().copied().collect(),
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
        }
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor until its `Drop`, and is borrowed as long.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when no identifier holds it any more.
        unsafe { rdma_destroy_event_channel(self.as_ptr()) };
    }
}

/// An event of a connection or listener.
#[derive(Debug)]
pub struct ConnectionEvent {
    /// Its kind.
    pub kind: ConnectionEventKind,
    /// The token of the identifier; that of the listener for a request.
    pub token: u64,
    /// A negative error number, or a reason code of the fabric.
    pub status: i32,
    /// The new connection of a request.
    pub new: Option<ConnectionId>,
    /// The peer's private data; InfiniBand pads it with zeros to its own length.
    pub private_data: PrivateData,
    /// In a request and in its answer: Reads that the peer requests.
    pub responder_resources: u8,
    /// In a request and in its answer: Reads that the peer serves.
    pub initiator_depth: u8,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionEventKind {
    /// The peer's address was resolved to a device.
    AddressResolved,
    /// The address was not resolved.
    AddressError,
    /// The route to the peer was resolved.
    RouteResolved,
    /// The route was not resolved.
    RouteError,
    /// A peer requests a connection.
    ConnectRequest,
    /// The peer accepts; this side must make its queue pair ready and confirm.
    ConnectResponse,
    /// The connection could not be made.
    ConnectError,
    /// There is no peer, or a timeout.
    Unreachable,
    /// The peer refuses.
    Rejected,
    /// The connection is established.
    Established,
    /// The connection has ended.
    Disconnected,
    /// The device is being removed.
    DeviceRemoval,
    /// The local address has moved to another device or port.
    AddressChange,
    /// The queue pair's number may be reused.
    TimewaitExit,
    /// Anything else.
    Other,
}

impl ConnectionEventKind {
    fn of(kind: rdma_cm_event_type::Type) -> Self {
        match kind {
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_ERROR => Self::AddressError,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            rdma_cm_event_type::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST => Self::ConnectRequest,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::ConnectResponse,
            rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError,
            rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => Self::Rejected,
            rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => Self::Established,
            rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE => Self::AddressChange,
            rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            _ => Self::Other,
        }
    }
}

/// Parameters of connecting or accepting.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParameters<'a> {
    /// For the peer's application; fabrics limit its length.
    pub private_data: &'a [u8],
    /// Reads of the peer that we serve.
    pub responder_resources: u8,
    /// Reads that we open.
    pub initiator_depth: u8,
    /// Retransmissions of a request that the peer does not confirm, 0 to 7.
    pub retry_count: u8,
    /// The same if the peer has no receive; 7 is unlimited.
    pub rnr_retry_count: u8,
    /// The queue pair's number.
    pub queue_pair: u32,
    /// Whether it uses a shared receive queue.
    pub shared_receive: bool,
}

impl ConnectionParameters<'_> {
    fn raw(&self) -> io::Result<rdma_conn_param> {
        let length = u8::try_from(self.private_data.len()).map_err(io::Error::other)?;
        Ok(rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: length,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 0,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: u8::from(self.shared_receive),
            qp_num: self.queue_pair,
        })
    }
}

/// States of a queue pair before it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePairState {
    /// Receives may be posted.
    Init,
    /// Messages may arrive.
    ReadyToReceive,
    /// Messages may be sent.
    ReadyToSend,
}

/// The attributes that bring a queue pair into a state, from the connection manager.
pub struct QueuePairAttributes {
    pub(super) raw: ibv_qp_attr,
    pub(super) mask: c_int,
}

impl QueuePairAttributes {
    /// Whether there is nothing to do: iWARP's kernel drivers do it themselves.
    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Sets the peer's access rights, if the state includes them ([`QueuePairState::Init`]). On the
    /// connecting side the connection manager does not know them.
    pub fn set_remote_access(&mut self, read: bool, write: bool) {
        if self.mask & ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0.cast_signed() != 0 {
            let access = super::RegionAccess {
                remote_read: read,
                remote_write: write,
                ..super::RegionAccess::default()
            };
            self.raw.qp_access_flags = access.flags();
        }
    }

    /// Sets the read depths, if the state includes them: Reads of the peer that we serve, and Reads
    /// that we open.
    pub fn set_depths(&mut self, responder_resources: u8, initiator_depth: u8) {
        let has = |flag: ibv_qp_attr_mask| self.mask & flag.0.cast_signed() != 0;
        if has(ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC) {
            self.raw.max_dest_rd_atomic = responder_resources;
        }
        if has(ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC) {
            self.raw.max_rd_atomic = initiator_depth;
        }
    }
}

/// A connection or listener of the connection manager. Dropping it ends either; an unanswered
/// connection request is rejected.
pub struct ConnectionId {
    pointer: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for ConnectionId {}

impl ConnectionId {
    /// An identifier whose events carry this token.
    ///
    /// # Errors
    /// The connection manager refuses.
    pub fn new(channel: &Arc<EventChannel>, token: u64) -> io::Result<Self> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: rule 1 for the channel, which is borrowed; the result is a variable of ours. The
        // library keeps the token as a number and follows it nowhere.
        manager(unsafe {
            rdma_create_id(
                channel.as_ptr(),
                &raw mut pointer,
                token as *mut c_void,
                rdma_port_space::RDMA_PS_TCP,
            )
        })?;
        Ok(Self {
            pointer: made(pointer)?,
            channel: Arc::clone(channel),
        })
    }

    fn as_ptr(&self) -> *mut rdma_cm_id {
        self.pointer.as_ptr()
    }

    /// Sets the token of events from now on.
    pub fn set_token(&mut self, token: u64) {
        // SAFETY: rule 1. The field is the application's: the library only copies it in calls that
        // take this identifier's channel, and the provider that owns both makes those calls.
        unsafe { (*self.as_ptr()).context = token as *mut c_void };
    }

    /// Binds an address; on one device if it is that device's.
    ///
    /// # Errors
    /// The address is in use or not a device's.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let mut address = Address::new(address);
        // SAFETY: rule 1 for the identifier; the address is ours and outlasts the call.
        manager(unsafe { rdma_bind_addr(self.as_ptr(), address.as_mut_ptr().cast()) })
    }

    /// Listens for connection requests, with this backlog.
    ///
    /// # Errors
    /// The connection manager refuses.
    pub fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: rule 1 for the identifier.
        manager(unsafe { rdma_listen(self.as_ptr(), backlog) })
    }

    /// Starts resolving the device and address of a peer.
    ///
    /// # Errors
    /// The connection manager refuses at once; later ones are events.
    pub fn resolve_address(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let mut source = source.map(Address::new);
        let from = source
            .as_mut()
            .map_or(std::ptr::null_mut(), Address::as_mut_ptr);
        let mut destination = Address::new(destination);
        let to = destination.as_mut_ptr();
        // SAFETY: rule 1 for the identifier; the addresses are ours, or null, and outlast the call.
        manager(unsafe {
            rdma_resolve_addr(self.as_ptr(), from.cast(), to.cast(), milliseconds(timeout))
        })
    }

    /// Starts resolving the route to the peer.
    ///
    /// # Errors
    /// The connection manager refuses at once; later ones are events.
    pub fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: rule 1 for the identifier.
        manager(unsafe { rdma_resolve_route(self.as_ptr(), milliseconds(timeout)) })
    }

    /// Sends a connection request to the peer.
    ///
    /// # Errors
    /// The connection manager refuses at once; later ones are events.
    pub fn connect(&self, parameters: &ConnectionParameters<'_>) -> io::Result<()> {
        let mut raw = parameters.raw()?;
        // SAFETY: rule 1 for the identifier; the library copies the parameters, and their private
        // data is borrowed for the call.
        manager(unsafe { rdma_connect(self.as_ptr(), &raw mut raw) })
    }

    /// Accepts a connection request.
    ///
    /// # Errors
    /// The connection manager refuses, or the peer is gone.
    pub fn accept(&self, parameters: &ConnectionParameters<'_>) -> io::Result<()> {
        let mut raw = parameters.raw()?;
        // SAFETY: as in `connect`.
        manager(unsafe { rdma_accept(self.as_ptr(), &raw mut raw) })
    }

    /// Confirms an acceptance, once the queue pair is up.
    ///
    /// # Errors
    /// The connection manager refuses, or the peer is gone.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: rule 1 for the identifier.
        manager(unsafe { rdma_establish(self.as_ptr()) })
    }

    /// Rejects a connection request.
    ///
    /// # Errors
    /// The data is too long for the fabric, or the peer is gone.
    pub fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private_data.len()).map_err(io::Error::other)?;
        // SAFETY: rule 1 for the identifier; the data is borrowed for the call, and `length` is its
        // own.
        manager(unsafe { rdma_reject(self.as_ptr(), private_data.as_ptr().cast(), length) })
    }

    /// Ends the connection in order.
    ///
    /// # Errors
    /// It has ended already.
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: rule 1 for the identifier.
        manager(unsafe { rdma_disconnect(self.as_ptr()) })
    }

    /// The name of its device, once it has one.
    pub fn device_name(&self) -> Option<String> {
        // SAFETY: rule 1 for the identifier.
        let context = NonNull::new(unsafe { (*self.as_ptr()).verbs })?;
        // SAFETY: the library keeps the context of a device open while an identifier is on it, and
        // this one, which is borrowed, is.
        Some(device_name(unsafe { context.as_ref() }.device))
    }

    /// The port of that device, from one on.
    pub fn port_number(&self) -> u8 {
        // SAFETY: rule 1 for the identifier.
        unsafe { (*self.as_ptr()).port_num }
    }

    /// Our address, once there is one.
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: rule 1 for the identifier; the union has room for any address.
        unsafe {
            let address = &raw const (*self.as_ptr()).route.addr.src_addr_union;
            Address::read(address.cast())
        }
    }

    /// The peer's address, once there is one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as in `local_address`.
        unsafe {
            let address = &raw const (*self.as_ptr()).route.addr.dst_addr_union;
            Address::read(address.cast())
        }
    }

    /// Moves it to another channel, including pending events. All events taken from the first one
    /// are acknowledged, so this does not block.
    ///
    /// # Errors
    /// The connection manager refuses; it stays where it is.
    pub fn migrate(&mut self, channel: &Arc<EventChannel>) -> io::Result<()> {
        // SAFETY: rule 1 for identifier and channel, which are borrowed; the field below keeps the
        // new channel from now on (rule 2).
        manager(unsafe { rdma_migrate_id(self.as_ptr(), channel.as_ptr()) })?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    /// The attributes that bring a queue pair of this connection into a state.
    ///
    /// # Errors
    /// The connection has not reached this stage, or has ended.
    pub fn queue_pair_attributes(&self, state: QueuePairState) -> io::Result<QueuePairAttributes> {
        // SAFETY: the structure has numbers and plain enumerations only, for which zeros are valid.
        let mut raw: ibv_qp_attr = unsafe { std::mem::zeroed() };
        raw.qp_state = match state {
            QueuePairState::Init => ibv_qp_state::IBV_QPS_INIT,
            QueuePairState::ReadyToReceive => ibv_qp_state::IBV_QPS_RTR,
            QueuePairState::ReadyToSend => ibv_qp_state::IBV_QPS_RTS,
        };
        let mut mask = 0;
        // SAFETY: rule 1 for the identifier; both results are variables of ours.
        manager(unsafe { rdma_init_qp_attr(self.as_ptr(), &raw mut raw, &raw mut mask) })?;
        Ok(QueuePairAttributes { raw, mask })
    }
}

impl Drop for ConnectionId {
    fn drop(&mut self) {
        // SAFETY: rule 1: given back here only. It waits for events that were taken and not
        // acknowledged, of which `EventChannel::next` leaves none.
        let done = manager(unsafe { rdma_destroy_id(self.as_ptr()) });
        destroyed("connection identifier", done);
    }
}

impl std::fmt::Debug for ConnectionId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ConnectionId")
            .field("local", &self.local_address())
            .field("peer", &self.peer_address())
            .finish_non_exhaustive()
    }
}

/// A timeout in the connection manager's form.
fn milliseconds(timeout: Duration) -> c_int {
    c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
}
