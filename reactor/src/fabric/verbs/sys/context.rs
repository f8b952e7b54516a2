//! Open devices: their limits, ports and asynchronous events.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_ack_async_event, ibv_async_event, ibv_close_device, ibv_context, ibv_device,
    ibv_device_attr, ibv_device_cap_flags, ibv_event_type_str, ibv_free_device_list,
    ibv_get_async_event, ibv_get_device_list, ibv_gid, ibv_mtu, ibv_open_device, ibv_port_attr,
    ibv_port_state, ibv_port_state_str, ibv_query_device, ibv_query_gid, ibv_query_port,
    ibv_transport_type,
};

use super::{made, unblock, unless_empty, verbs};
use crate::fabric::verbs::report::Transport;

/// `IBV_LINK_LAYER_ETHERNET` of `<infiniband/verbs.h>`.
const LINK_LAYER_ETHERNET: u8 = 2;

/// An open device.
pub struct DeviceContext {
    pointer: NonNull<ibv_context>,
    name: String,
    attributes: Attributes,
}

// SAFETY: rule 3: the library locks for itself; our own fields never change.
unsafe impl Send for DeviceContext {}
// SAFETY: rule 3, as above.
unsafe impl Sync for DeviceContext {}

/// Limits and features of a device. Negative counts of the device are zero here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The firmware's version.
    pub firmware: String,
    /// Its vendor number.
    pub vendor_id: u32,
    /// The network of its first port.
    pub transport: Transport,
    /// Ports, counted from one.
    pub ports: u8,
    /// The most queue pairs.
    pub max_qp: u32,
    /// The most work requests of a queue.
    pub max_qp_wr: u32,
    /// The most ranges of a work request.
    pub max_sge: u32,
    /// The most ranges of an RDMA Read.
    pub max_sge_rd: u32,
    /// The most completion queues.
    pub max_cq: u32,
    /// The most entries of one.
    pub max_cqe: u32,
    /// The most memory regions.
    pub max_mr: u32,
    /// The size of the largest one in bytes.
    pub max_mr_size: u64,
    /// The most memory windows.
    pub max_mw: u32,
    /// The most shared receive queues.
    pub max_srq: u32,
    /// The most receives of one.
    pub max_srq_wr: u32,
    /// The most RDMA Reads of a peer that one queue pair serves.
    pub max_qp_rd_atom: u32,
    /// The most RDMA Reads that one queue pair has open.
    pub max_qp_init_rd_atom: u32,
    /// Memory windows of type 2, bound to one queue pair.
    pub has_memory_windows_2: bool,
    /// Sends may invalidate keys.
    pub has_send_invalidate: bool,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// Whether it is active.
    pub is_active: bool,
    /// The state in the library's words.
    pub state: &'static str,
    /// The most payload bytes of a packet.
    pub mtu: u32,
    /// Entries of the table of addresses.
    pub gids: u32,
    /// Whether it is an Ethernet port.
    pub is_ethernet: bool,
}

/// The kind of an event of a device, a port, or a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AsyncKind {
    /// The device was removed or has failed.
    DeviceFatal,
    /// A port is active.
    PortActive,
    /// A port is no longer active.
    PortError,
    /// The addresses of a port changed.
    AddressesChanged,
    /// A queue pair is in error without a completion with the reason.
    QueuePairError,
    /// A completion queue overflowed.
    CompletionQueueError,
    /// An event of a shared receive queue.
    SharedReceiveQueue,
    /// Anything else.
    Other,
}

/// An asynchronous event, acknowledged already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Its kind.
    pub kind: AsyncKind,
    /// The library's name for it.
    pub name: &'static str,
    /// The queue pair's number, for [`AsyncKind::QueuePairError`].
    pub queue_pair: Option<u32>,
    /// The port, for an event of one.
    pub port: Option<u8>,
}

/// The list of devices, freed on drop.
struct List {
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new() -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: the function's only argument is where it writes the count, a variable of ours.
        let first = unsafe { ibv_get_device_list(&raw mut count) };
        if first.is_null() {
            let error = io::Error::last_os_error();
            // A kernel without RDMA, or without a device yet: treated as an empty list.
            return match error.raw_os_error() {
                Some(libc::ENOSYS | libc::ENODEV | libc::ENOENT) => Ok(Self { first, count: 0 }),
                _ => Err(error),
            };
        }
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Self { first, count })
    }

    fn iter(&self) -> impl Iterator<Item = *mut ibv_device> {
        // SAFETY: the library made a list of so many entries, which `self` owns until its `Drop`.
        (0..self.count).map(|index| unsafe { *self.first.add(index) })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: made by `ibv_get_device_list` and given back here only; open devices stay
            // open.
            unsafe { ibv_free_device_list(self.first) };
        }
    }
}

/// The names of the existing devices; none if the kernel has no RDMA.
///
/// # Errors
/// The library cannot list them.
pub fn device_names() -> io::Result<Vec<String>> {
    Ok(List::new()?.iter().map(device_name).collect())
}

/// Opens every device; those that do not open are returned with their errors.
///
/// # Errors
/// The library cannot list them.
#[allow(clippy::type_complexity)] // A name and its outcome.
pub fn open_devices() -> io::Result<Vec<(String, io::Result<Arc<DeviceContext>>)>> {
    let list = List::new()?;
    let opened = list.iter().map(|device| {
        let name = device_name(device);
        let context = DeviceContext::open(device, name.clone());
        (name, context.map(Arc::new))
    });
    Ok(opened.collect())
}

/// Opens the device of this name.
///
/// # Errors
/// There is none, or it cannot be opened.
pub fn open_device(name: &str) -> io::Result<Arc<DeviceContext>> {
    let list = List::new()?;
    let device = list.iter().find(|&device| device_name(device) == name);
    let device = device.ok_or(io::ErrorKind::NotFound)?;
    DeviceContext::open(device, name.to_owned()).map(Arc::new)
}

/// The kernel's name of a device of a list or of an open context.
pub(super) fn device_name(device: *mut ibv_device) -> String {
    // SAFETY: the callers pass a device of a `List` or of a context that they hold during the call;
    // its name is an array, which the library never changes.
    text(unsafe { &(*device).name })
}

/// The text before the first zero of an array.
fn text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|&byte| byte.cast_unsigned()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// A constant text of the library.
fn constant(pointer: *const c_char) -> &'static str {
    if pointer.is_null() {
        return "unknown";
    }
    // SAFETY: the callers pass the answers of functions of the library that return constant texts.
    unsafe { CStr::from_ptr(pointer) }
        .to_str()
        .unwrap_or("unknown")
}

fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

impl DeviceContext {
    fn open(device: *mut ibv_device, name: String) -> io::Result<Self> {
        // SAFETY: both callers pass a device of a `List` that they own during the call.
        let pointer = made(unsafe { ibv_open_device(device) })?;
        let mut context = Self {
            pointer,
            name,
            attributes: Attributes::none(),
        };
        context.attributes = context.query()?;
        unblock(context.async_descriptor())?;
        Ok(context)
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.pointer.as_ptr()
    }

    /// The kernel's name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Limits and features.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn query(&self) -> io::Result<Attributes> {
        // SAFETY: the structure has plain numbers only, for which zeros are valid.
        let mut raw: ibv_device_attr = unsafe { std::mem::zeroed() };
        // SAFETY: rule 1 for the context; the result is a variable of ours.
        verbs(unsafe { ibv_query_device(self.as_ptr(), &raw mut raw) })?;
        let has = |flag: ibv_device_cap_flags| raw.device_cap_flags & flag.0 != 0;
        // SAFETY: rule 1 for the context; the library keeps a device while a context of it is open.
        let transport = unsafe { (*(*self.as_ptr()).device).transport_type };
        let transport = match transport {
            ibv_transport_type::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ if self.port(1).is_ok_and(|port| port.is_ethernet) => Transport::Roce,
            _ => Transport::InfiniBand,
        };
        Ok(Attributes {
            firmware: text(&raw.fw_ver),
            vendor_id: raw.vendor_id,
            transport,
            ports: raw.phys_port_cnt,
            max_qp: count(raw.max_qp),
            max_qp_wr: count(raw.max_qp_wr),
            max_sge: count(raw.max_sge),
            max_sge_rd: count(raw.max_sge_rd),
            max_cq: count(raw.max_cq),
            max_cqe: count(raw.max_cqe),
            max_mr: count(raw.max_mr),
            max_mr_size: raw.max_mr_size,
            max_mw: count(raw.max_mw),
            max_srq: count(raw.max_srq),
            max_srq_wr: count(raw.max_srq_wr),
            max_qp_rd_atom: count(raw.max_qp_rd_atom),
            max_qp_init_rd_atom: count(raw.max_qp_init_rd_atom),
            // Both kinds of type 2 can be bound by one queue pair for that queue pair.
            has_memory_windows_2: raw.max_mw > 0
                && (has(ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A)
                    || has(ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B)),
            has_send_invalidate: has(ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS),
        })
    }

    /// Queries a port, counted from one.
    ///
    /// # Errors
    /// There is no such port, or the device is gone.
    pub fn port(&self, number: u8) -> io::Result<PortAttributes> {
        // SAFETY: the structure has plain numbers only, for which zeros are valid.
        let mut raw: ibv_port_attr = unsafe { std::mem::zeroed() };
        // SAFETY: rule 1 for the context, and the result is a variable of ours. This function fills
        // the first fields of the structure, which lie the same in its older form that the symbol
        // is declared with.
        verbs(unsafe { ibv_query_port(self.as_ptr(), number, (&raw mut raw).cast()) })?;
        Ok(PortAttributes {
            is_active: raw.state == ibv_port_state::IBV_PORT_ACTIVE,
            // SAFETY: the function takes any number, and answers with a constant text.
            state: constant(unsafe { ibv_port_state_str(raw.state) }),
            mtu: match raw.active_mtu {
                ibv_mtu::IBV_MTU_256 => 256,
                ibv_mtu::IBV_MTU_512 => 512,
                ibv_mtu::IBV_MTU_1024 => 1024,
                ibv_mtu::IBV_MTU_2048 => 2048,
                ibv_mtu::IBV_MTU_4096 => 4096,
                _ => 0,
            },
            gids: count(raw.gid_tbl_len),
            is_ethernet: raw.link_layer == LINK_LAYER_ETHERNET,
        })
    }

    /// An entry of a port's table of addresses; zero where the entry is empty.
    ///
    /// # Errors
    /// There is no such entry, or the device is gone.
    pub fn gid(&self, port: u8, index: u32) -> io::Result<Ipv6Addr> {
        let index = c_int::try_from(index).map_err(io::Error::other)?;
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: rule 1 for the context; the result is a variable of ours.
        verbs(unsafe { ibv_query_gid(self.as_ptr(), port, index, &raw mut gid) })?;
        // SAFETY: the bytes were initialised above, and any bytes are valid.
        Ok(Ipv6Addr::from(unsafe { gid.raw }))
    }

    /// Completion vectors: interrupts that completion queues can be spread over.
    pub fn completion_vectors(&self) -> u32 {
        // SAFETY: rule 1; the library sets the field before it gives the context out, and never
        // again.
        count(unsafe { (*self.as_ptr()).num_comp_vectors })
    }

    /// The device's memory node, if reported.
    pub fn numa_node(&self) -> Option<u32> {
        let path = format!("/sys/class/infiniband/{}/device/numa_node", self.name);
        let node = std::fs::read_to_string(path).ok()?;
        node.trim().parse().ok()
    }

    /// Readable when there are asynchronous events; it does not block.
    pub fn async_descriptor(&self) -> RawFd {
        // SAFETY: rule 1; the library sets the field before it gives the context out, and never
        // again.
        unsafe { (*self.as_ptr()).async_fd }
    }

    /// The next asynchronous event, acknowledged.
    ///
    /// # Errors
    /// The device is gone.
    pub fn next_async_event(&self) -> io::Result<Option<AsyncEvent>> {
        let mut event = RawAsyncEvent {
            element: 0,
            kind: 0,
        };
        let raw = (&raw mut event).cast::<ibv_async_event>();
        // SAFETY: rule 1 for the context; the event is a variable of ours with the room that the
        // library needs (see `RawAsyncEvent`).
        if unsafe { ibv_get_async_event(self.as_ptr(), raw) } != 0 {
            return unless_empty(io::Error::last_os_error()).map(|()| None);
        }
        let kind = kind_of(event.kind);
        let queue_pair = matches!(event.kind, QUEUE_PAIR_EVENTS!()).then(|| {
            // SAFETY: such an event names a queue pair, which is not destroyed before the event
            // is acknowledged.
            unsafe { (*(event.element as *const rdma_sys::ibv_qp)).qp_num }
        });
        let port = matches!(event.kind, PORT_EVENTS!()).then(|| event.element as u8);
        let described = AsyncEvent {
            kind,
            name: name_of(event.kind),
            queue_pair: queue_pair.filter(|_| kind == AsyncKind::QueuePairError),
            port,
        };
        // SAFETY: the library filled the event just now, and it is acknowledged here only.
        unsafe { ibv_ack_async_event(raw) };
        Ok(Some(described))
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when nothing made on it is left.
        let closed = verbs(unsafe { ibv_close_device(self.as_ptr()) });
        super::destroyed("device context", closed);
    }
}

impl std::fmt::Debug for DeviceContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("Context");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Attributes {
    fn none() -> Self {
        Self {
            firmware: String::new(),
            vendor_id: 0,
            transport: Transport::InfiniBand,
            ports: 0,
            max_qp: 0,
            max_qp_wr: 0,
            max_sge: 0,
            max_sge_rd: 0,
            max_cq: 0,
            max_cqe: 0,
            max_mr: 0,
            max_mr_size: 0,
            max_mw: 0,
            max_srq: 0,
            max_srq_wr: 0,
            max_qp_rd_atom: 0,
            max_qp_init_rd_atom: 0,
            has_memory_windows_2: false,
            has_send_invalidate: false,
        }
    }
}

/// `struct ibv_async_event` with the event's kind as a number: rdma-sys has it as an enumeration,
/// which a newer library's kinds would break.
#[repr(C)]
struct RawAsyncEvent {
    element: u64,
    kind: c_int,
}

const _: () = assert!(size_of::<RawAsyncEvent>() == size_of::<ibv_async_event>());

/// `enum ibv_event_type` of `<infiniband/verbs.h>`: events whose element is a queue pair.
macro_rules! QUEUE_PAIR_EVENTS {
    () => {
        1..=7 | 16
    };
}
/// The same whose element is a port.
macro_rules! PORT_EVENTS {
    () => {
        9..=13 | 17 | 18
    };
}
use {PORT_EVENTS, QUEUE_PAIR_EVENTS};

fn kind_of(number: c_int) -> AsyncKind {
    match number {
        0 => AsyncKind::CompletionQueueError,
        1..=3 => AsyncKind::QueuePairError,
        8 => AsyncKind::DeviceFatal,
        9 => AsyncKind::PortActive,
        10 => AsyncKind::PortError,
        11 | 12 | 18 => AsyncKind::AddressesChanged,
        14 | 15 => AsyncKind::SharedReceiveQueue,
        _ => AsyncKind::Other,
    }
}

/// The kinds known to rdma-sys are between these.
fn name_of(number: c_int) -> &'static str {
    if !(0..=18).contains(&number) {
        return "unknown event";
    }
    // SAFETY: the function takes the number as the C enumeration that it is, without Rust's rules
    // on it; and this one is among those that rdma-sys knows as well.
    let kind = unsafe { std::mem::transmute::<c_int, rdma_sys::ibv_event_type>(number) };
    // SAFETY: the function takes any number, and answers with a constant text.
    constant(unsafe { ibv_event_type_str(kind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_names_and_kinds() {
        assert_eq!(kind_of(8), AsyncKind::DeviceFatal);
        assert_eq!(kind_of(10), AsyncKind::PortError);
        assert_eq!(kind_of(99), AsyncKind::Other);
        assert_eq!(name_of(99), "unknown event");
        for number in 0..=18 {
            assert!(!name_of(number).is_empty());
        }
    }

    #[test]
    fn names_end_at_the_first_zero() {
        let array = [
            b'm'.cast_signed(),
            b'5'.cast_signed(),
            0,
            b'x'.cast_signed(),
        ];
        assert_eq!(text(&array), "m5");
        assert_eq!(text(&array[..2]), "m5");
        assert_eq!(text(&[]), "");
    }
}
