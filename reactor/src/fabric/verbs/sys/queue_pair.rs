//! Queue pairs and shared receive queues.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_create_qp, ibv_create_srq, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp, ibv_post_recv,
    ibv_post_send, ibv_post_srq_recv, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};

use super::completion::CompletionQueue;
use super::connection::QueuePairAttributes;
use super::memory::ProtectionDomain;
use super::work::{ReceiveList, SendList};
use super::{destroyed, made, verbs};

/// A list was not posted completely.
#[derive(Debug, thiserror::Error)]
#[error("{posted} requests were posted, and the next was refused: {error}")]
pub struct PostFailed {
    /// The number of requests that the device accepted.
    pub posted: usize,
    /// The error of the next one.
    pub error: io::Error,
}

/// Receives shared by several queue pairs.
pub struct SharedReceiveQueue {
    pointer: NonNull<ibv_srq>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: rule 3: the library locks for itself.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: rule 3, as above.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// A queue for this many receives, each of one range.
    ///
    /// # Errors
    /// The device has none, or none of this depth.
    pub fn new(domain: &Arc<ProtectionDomain>, depth: u32) -> io::Result<Arc<Self>> {
        let mut setup = ibv_srq_init_attr {
            srq_context: std::ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: depth,
                max_sge: 1,
                srq_limit: 0,
            },
        };
        // SAFETY: rule 1 for the domain, which is borrowed; the attributes are ours and outlast the
        // call, which only reads and adjusts them.
        let pointer = made(unsafe { ibv_create_srq(domain.as_ptr(), &raw mut setup) })?;
        Ok(Arc::new(Self {
            pointer,
            _domain: Arc::clone(domain),
        }))
    }

    /// Posts all of the list, and empties it.
    ///
    /// # Errors
    /// The number posted, and the error of the next; the list is unchanged.
    ///
    /// # Safety
    /// As for [`QueuePair::post_receive`], until this queue and all queue pairs that use it are
    /// destroyed.
    pub unsafe fn post(&self, list: &mut ReceiveList) -> Result<(), PostFailed> {
        let mut refused = std::ptr::null_mut();
        // SAFETY: rule 1 for the queue. The requests and ranges are linked within the list, which
        // is borrowed for the call; the caller keeps their memory (rule 4).
        let status =
            unsafe { ibv_post_srq_recv(self.pointer.as_ptr(), list.link(), &raw mut refused) };
        verbs(status).map_err(|error| PostFailed {
            posted: list.position(refused),
            error,
        })?;
        list.clear();
        Ok(())
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: rules 1 and 2: given back here only, when no queue pair holds it any more.
        let done = verbs(unsafe { ibv_destroy_srq(self.pointer.as_ptr()) });
        destroyed("shared receive queue", done);
    }
}

/// The parameters of a queue pair.
#[derive(Clone, Copy)]
pub struct QueuePairSetup<'a> {
    /// The completion queue of its send queue.
    pub send_queue: &'a Arc<CompletionQueue>,
    /// The completion queue of its receives.
    pub receive_queue: &'a Arc<CompletionQueue>,
    /// The shared receives that it uses, instead of its own.
    pub shared: Option<&'a Arc<SharedReceiveQueue>>,
    /// Requests of its send queue.
    pub send_depth: u32,
    /// Receives of its own.
    pub receive_depth: u32,
    /// Ranges of a request of its send queue.
    pub send_ranges: u32,
    /// Inline bytes of a request; fewer if the device supports fewer.
    pub inline: u32,
}

/// A reliable connection's two queues.
///
/// Windows bound to it are dropped first: they hold it, and `rdma_rxe` waits 50 seconds for them
/// before it destroys a queue pair.
pub struct QueuePair {
    pointer: NonNull<ibv_qp>,
    number: u32,
    inline_max: u32,
    _send_queue: Arc<CompletionQueue>,
    _receive_queue: Arc<CompletionQueue>,
    _shared: Option<Arc<SharedReceiveQueue>>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: rule 3: the library locks for itself; our own fields never change.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// An unconnected queue pair.
    ///
    /// # Errors
    /// The device has no more, or none of this size.
    pub fn new(domain: &Arc<ProtectionDomain>, setup: QueuePairSetup<'_>) -> io::Result<Self> {
        // Devices do not report their limit of inline bytes; they refuse too large a value.
        let mut inline = setup.inline;
        loop {
            match Self::attempt(domain, setup, inline) {
                Err(error) if inline > 0 && error.raw_os_error() == Some(libc::EINVAL) => {
                    inline = if inline > 64 { inline / 2 } else { 0 };
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(
        domain: &Arc<ProtectionDomain>,
        setup: QueuePairSetup<'_>,
        inline: u32,
    ) -> io::Result<Self> {
        let shared = setup.shared.map(|shared| shared.pointer.as_ptr());
        let mut raw = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: setup.send_queue.as_ptr(),
            recv_cq: setup.receive_queue.as_ptr(),
            srq: shared.unwrap_or(std::ptr::null_mut()),
            cap: ibv_qp_cap {
                max_send_wr: setup.send_depth,
                max_recv_wr: if shared.is_some() {
                    0
                } else {
                    setup.receive_depth
                },
                max_send_sge: setup.send_ranges,
                max_recv_sge: u32::from(shared.is_none()),
                max_inline_data: inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: rule 1 for the domain and the queues, which the setup borrows; the attributes are
        // ours and outlast the call, which only reads and adjusts them.
        let pointer = made(unsafe { ibv_create_qp(domain.as_ptr(), &raw mut raw) })?;
        Ok(Self {
            // SAFETY: made by the library just now and given back by nobody yet.
            number: unsafe { pointer.as_ref() }.qp_num,
            pointer,
            inline_max: raw.cap.max_inline_data,
            _send_queue: Arc::clone(setup.send_queue),
            _receive_queue: Arc::clone(setup.receive_queue),
            _shared: setup.shared.cloned(),
            _domain: Arc::clone(domain),
        })
    }

    /// Its number on its device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Inline bytes of a request.
    pub fn inline_max(&self) -> u32 {
        self.inline_max
    }

    /// Brings it into the state of the attributes; does nothing if they are empty.
    ///
    /// # Errors
    /// The device refuses.
    pub fn modify(&self, attributes: &QueuePairAttributes) -> io::Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        let raw = (&raw const attributes.raw).cast_mut();
        // SAFETY: rule 1 for the queue pair; the library only reads the attributes, which are
        // borrowed for the call.
        verbs(unsafe { ibv_modify_qp(self.pointer.as_ptr(), raw, attributes.mask) })
    }

    /// Brings it into the error state, in which all posted work is flushed.
    ///
    /// # Errors
    /// The device refuses, or was removed.
    pub fn fail(&self) -> io::Result<()> {
        // SAFETY: the structure has numbers and plain enumerations only, for which zeros are valid.
        let mut raw: ibv_qp_attr = unsafe { std::mem::zeroed() };
        raw.qp_state = ibv_qp_state::IBV_QPS_ERR;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        // SAFETY: rule 1 for the queue pair; the attributes are ours and outlast the call.
        verbs(unsafe { ibv_modify_qp(self.pointer.as_ptr(), &raw mut raw, mask) })
    }

    /// Posts all of the list with one doorbell, and empties it.
    ///
    /// # Errors
    /// The number posted, and the error of the next; the list is unchanged.
    ///
    /// # Safety
    /// * The windows and regions of bindings in the list exist until this call returns: the library
    ///   follows the pointers to them, which are no borrows any more.
    /// * The memory of each posted request stays with the caller until the request completes or
    ///   this queue pair is destroyed: nothing else is put there. Until then there is no reference
    ///   to the bytes that a Read fills, and no exclusive one to those of a Send or Write.
    pub unsafe fn post_send(&self, list: &mut SendList) -> Result<(), PostFailed> {
        let mut refused = std::ptr::null_mut();
        // SAFETY: rule 1 for the queue pair. The requests and ranges are linked within the list,
        // which is borrowed for the call; the caller keeps what they name (rule 4).
        let status = unsafe { ibv_post_send(self.pointer.as_ptr(), list.link(), &raw mut refused) };
        verbs(status).map_err(|error| PostFailed {
            posted: list.position(refused),
            error,
        })?;
        list.clear();
        Ok(())
    }

    /// Posts all of the list with one doorbell, and empties it.
    ///
    /// # Errors
    /// The number posted, and the error of the next; the list is unchanged.
    ///
    /// # Safety
    /// The buffer of each posted request stays with the caller until the request completes or this
    /// queue pair is destroyed: nothing else is put there. Until then there is no reference to its
    /// bytes.
    pub unsafe fn post_receive(&self, list: &mut ReceiveList) -> Result<(), PostFailed> {
        let mut refused = std::ptr::null_mut();
        // SAFETY: as in `post_send`; receives name nothing but memory.
        let status = unsafe { ibv_post_recv(self.pointer.as_ptr(), list.link(), &raw mut refused) };
        verbs(status).map_err(|error| PostFailed {
            posted: list.position(refused),
            error,
        })?;
        list.clear();
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: rule 1: given back here only. Afterwards the device touches no memory for it.
        let done = verbs(unsafe { ibv_destroy_qp(self.pointer.as_ptr()) });
        destroyed("queue pair", done);
    }
}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = formatter.debug_struct("QueuePair");
        debug.field("number", &self.number).finish_non_exhaustive()
    }
}
