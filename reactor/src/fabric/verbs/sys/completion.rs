//! Completion queues, and their wake-up channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq,
    ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status,
};

use super::context::DeviceContext;
use super::{destroyed, made, unblock, verbs};
use crate::fabric::verbs::report::Transport;

/// Completions taken at once.
const BATCH: usize = 64;

/// Becomes readable when an armed completion queue has a completion.
pub struct CompletionChannel {
    pointer: NonNull<ibv_comp_channel>,
    _context: Arc<DeviceContext>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for CompletionChannel {}
// SAFETY: rule 3, as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A channel without queues.
    ///
    /// # Errors
    /// The system gives no descriptor, or the device was removed.
    pub fn new(context: &Arc<DeviceContext>) -> io::Result<Arc<Self>> {
        // SAFETY: rule 1 for the context, which is borrowed.
        let pointer = made(unsafe { ibv_create_comp_channel(context.as_ptr()) })?;
        let channel = Self {
            pointer,
            _context: Arc::clone(context),
        };
        unblock(channel.descriptor())?;
        Ok(Arc::new(channel))
    }

    fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.pointer.as_ptr()
    }

    /// Readable when there are events; it does not block.
    pub fn descriptor(&self) -> RawFd {
        // SAFETY: rule 1; the library sets the field before it gives the channel out, and never
        // again.
        unsafe { (*self.as_ptr()).fd }
    }

    /// Takes and acknowledges all events, so that the descriptor is no longer readable. Returns
    /// their number.
    pub fn take_events(&self) -> usize {
        let mut count = 0;
        let mut queue = std::ptr::null_mut();
        let mut application = std::ptr::null_mut();
        // SAFETY: rule 1 for the channel; both results are variables of ours. A queue that an event
        // names exists until the event is acknowledged, for which its destruction waits.
        unsafe {
            while ibv_get_cq_event(self.as_ptr(), &raw mut queue, &raw mut application) == 0 {
                ibv_ack_cq_events(queue, 1);
                count += 1;
            }
        }
        count
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor until its `Drop`, and is borrowed as long.
        unsafe { BorrowedFd::borrow_raw(self.descriptor()) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when no queue holds it any more.
        let done = verbs(unsafe { ibv_destroy_comp_channel(self.as_ptr()) });
        destroyed("completion channel", done);
    }
}

/// The queue for completions of queue pairs.
pub struct CompletionQueue {
    pointer: NonNull<ibv_cq>,
    /// Flags of a completed receive that report an invalidated key.
    invalidating: u32,
    _channel: Option<Arc<CompletionChannel>>,
    _context: Arc<DeviceContext>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for CompletionQueue {}
// SAFETY: rule 3, as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue of at least this many entries, on one of the device's completion vectors.
    ///
    /// # Errors
    /// The device has no more, or none of this length.
    pub fn new(
        context: &Arc<DeviceContext>,
        entries: u32,
        channel: Option<&Arc<CompletionChannel>>,
        vector: u32,
    ) -> io::Result<Arc<Self>> {
        let number = |number: u32| i32::try_from(number).map_err(io::Error::other);
        let events = channel.map_or(std::ptr::null_mut(), |channel| channel.as_ptr());
        // SAFETY: rule 1 for context and channel, which are borrowed; a null channel means none.
        let pointer = made(unsafe {
            ibv_create_cq(
                context.as_ptr(),
                number(entries)?,
                std::ptr::null_mut(),
                events,
                number(vector)?,
            )
        })?;
        Ok(Arc::new(Self {
            pointer,
            invalidating: invalidating_flags(context),
            _channel: channel.cloned(),
            _context: Arc::clone(context),
        }))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.pointer.as_ptr()
    }

    /// Entries.
    pub fn capacity(&self) -> u32 {
        // SAFETY: rule 1; only a resize changes the field, and this module has none.
        u32::try_from(unsafe { (*self.as_ptr()).cqe }).unwrap_or(0)
    }

    /// Takes available completions, up to the capacity of `completions`, and returns their number.
    ///
    /// # Errors
    /// The queue is broken: its device was removed, or it overflowed.
    pub fn poll(&self, completions: &mut CompletionBatch) -> io::Result<usize> {
        let CompletionBatch {
            entries,
            count,
            invalidating,
        } = completions;
        *invalidating = self.invalidating;
        // SAFETY: rule 1 for the queue; the array of results, borrowed exclusively, is `BATCH`
        // long.
        let taken = unsafe { ibv_poll_cq(self.as_ptr(), BATCH as i32, entries.as_mut_ptr()) };
        *count = usize::try_from(taken).map_err(|_| io::Error::other("the queue is broken"))?;
        Ok(*count)
    }

    /// Requests one event at the channel for the next completion.
    ///
    /// # Errors
    /// The device was removed.
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: rule 1 for the queue.
        verbs(unsafe { ibv_req_notify_cq(self.as_ptr(), 0) })
    }
}

/// The software device `rdma_rxe` has a vendor number of all ones.
const RXE_VENDOR: u32 = 0x00ff_ffff;
/// `IB_WC_WITH_INVALIDATE` of the kernel's own `<rdma/ib_verbs.h>`.
const KERNEL_INVALIDATED: u32 = 1 << 2;

/// `rdma_rxe` passes the kernel's flags to user space unchanged, where the bits of messages on
/// reliable connections have another meaning.
fn invalidating_flags(context: &DeviceContext) -> u32 {
    let attributes = context.attributes();
    let own = ibv_wc_flags::IBV_WC_WITH_INV.0;
    match (attributes.vendor_id, attributes.transport) {
        (RXE_VENDOR, Transport::Roce) => own | KERNEL_INVALIDATED,
        _ => own,
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when no queue pair holds it any more. It
        // does not wait for events: they are acknowledged when they are taken.
        let done = verbs(unsafe { ibv_destroy_cq(self.as_ptr()) });
        destroyed("completion queue", done);
    }
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CompletionQueue")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Space for the completions of one poll, reused for the next.
pub struct CompletionBatch {
    entries: Box<[ibv_wc; BATCH]>,
    count: usize,
    invalidating: u32,
}

// SAFETY: the entries have numbers and unions of numbers only.
unsafe impl Send for CompletionBatch {}

impl CompletionBatch {
    /// The most completions of one poll.
    pub const MOST: usize = BATCH;

    /// An empty batch.
    pub fn new() -> Self {
        // SAFETY: the entries have numbers and unions of numbers only, for which zeros are valid.
        let entries = Box::new(unsafe { std::mem::zeroed() });
        Self {
            entries,
            count: 0,
            invalidating: 0,
        }
    }

    /// The number of completions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// One of them.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn get(&self, index: usize) -> Completion {
        Completion::of(&self.entries[..self.count][index], self.invalidating)
    }
}

/// The completion of one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The poster's identifier.
    pub id: u64,
    /// Its status.
    pub status: Status,
    /// Its kind; unreliable for a failed one.
    pub kind: CompletionKind,
    /// Bytes that arrived, of a receive.
    pub bytes: u32,
    /// Our key that the message invalidated, of a receive.
    pub invalidated: Option<u32>,
    /// The number of the queue pair.
    pub queue_pair: u32,
}

/// The kind of the completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A window was bound.
    Bind,
    /// A key was invalidated by this side.
    LocalInvalidate,
    /// A receive was filled.
    Receive,
    /// Anything else.
    Other,
}

/// The status of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It succeeded.
    Success,
    /// The queue pair was in error before.
    Flushed,
    /// Local memory and data do not match.
    LocalLength,
    /// Local memory is not registered for this access.
    LocalProtection,
    /// The queue pair does not support this.
    LocalQueuePair,
    /// A window was not bound.
    WindowBind,
    /// The peer's response was invalid.
    BadResponse,
    /// The peer accessed our memory without a right.
    LocalAccess,
    /// The peer does not support this request.
    RemoteInvalidRequest,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer failed to execute it.
    RemoteOperation,
    /// The peer does not answer.
    RetryExceeded,
    /// The peer has no receive.
    ReceiverNotReady,
    /// Anything else, with the library's number.
    Other(u32),
}

impl Completion {
    fn of(entry: &ibv_wc, invalidating: u32) -> Self {
        let kind = match entry.opcode {
            ibv_wc_opcode::IBV_WC_SEND => CompletionKind::Send,
            ibv_wc_opcode::IBV_WC_RDMA_WRITE => CompletionKind::Write,
            ibv_wc_opcode::IBV_WC_RDMA_READ => CompletionKind::Read,
            ibv_wc_opcode::IBV_WC_BIND_MW => CompletionKind::Bind,
            ibv_wc_opcode::IBV_WC_LOCAL_INV => CompletionKind::LocalInvalidate,
            ibv_wc_opcode::IBV_WC_RECV => CompletionKind::Receive,
            _ => CompletionKind::Other,
        };
        let status = Status::of(entry.status);
        let carries_key = status == Status::Success
            && kind == CompletionKind::Receive
            && entry.wc_flags & invalidating != 0;
        // SAFETY: both variants of the union are numbers of four bytes.
        let key = unsafe { entry.imm_data_invalidated_rkey_union.invalidated_rkey };
        Self {
            id: entry.wr_id,
            status,
            kind,
            bytes: entry.byte_len,
            invalidated: carries_key.then_some(key),
            queue_pair: entry.qp_num,
        }
    }
}

impl Status {
    fn of(status: ibv_wc_status::Type) -> Self {
        match status {
            ibv_wc_status::IBV_WC_SUCCESS => Self::Success,
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            ibv_wc_status::IBV_WC_LOC_LEN_ERR => Self::LocalLength,
            ibv_wc_status::IBV_WC_LOC_PROT_ERR => Self::LocalProtection,
            ibv_wc_status::IBV_WC_LOC_QP_OP_ERR => Self::LocalQueuePair,
            ibv_wc_status::IBV_WC_MW_BIND_ERR => Self::WindowBind,
            ibv_wc_status::IBV_WC_BAD_RESP_ERR => Self::BadResponse,
            ibv_wc_status::IBV_WC_LOC_ACCESS_ERR => Self::LocalAccess,
            ibv_wc_status::IBV_WC_REM_INV_REQ_ERR => Self::RemoteInvalidRequest,
            ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            ibv_wc_status::IBV_WC_REM_OP_ERR => Self::RemoteOperation,
            ibv_wc_status::IBV_WC_RETRY_EXC_ERR => Self::RetryExceeded,
            ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => Self::ReceiverNotReady,
            other => Self::Other(other),
        }
    }
}
