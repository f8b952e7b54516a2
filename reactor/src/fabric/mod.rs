//! The provider-neutral interface of RDMA: queue pairs, work requests, completions, memory keys.
//!
//! A [`Provider`] owns all queue pairs of one reactor. It has two traits: the [`DataPath`], for
//! operations per call or per turn, and the [`ControlPath`], for connections, listeners and
//! reports. It is polled, never blocks, and reports [`Event`]s. Everything is addressed by index
//! ([`QueuePairId`], the poster's own token), so that no completion is ever searched for.
//!
//! Safety rests on ownership: memory posted with a work request belongs to the provider until the
//! work request completes or is flushed. Signalled requests return their memory in
//! [`Event::Completed`]; unsignalled ones drop it, which returns buffers to their pool.
//!
//! Order: completions of one queue pair are reported in the order of posting. RDMA Writes posted
//! before a Send are placed at the peer before that Send completes there. RDMA Reads may complete
//! after later Sends were sent; post requests that depend on a Read after its completion.

pub mod chain;
pub mod counters;
pub mod iwarp;
#[cfg(feature = "testing")]
pub mod loopback;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "verbs")]
pub mod verbs;

mod any;
mod carrier;
mod forward;
mod private_data;
mod provider;
mod service;

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use millrace_mempool::{Buffer, Slice};

pub use any::AnyProvider;
pub use carrier::{AdoptError, Carrier, Incoming};
pub use private_data::{PRIVATE_DATA_MAX, PrivateData, PrivateDataLength};
pub use provider::{ControlPath, DataPath, Provider};

/// The most local slices that one work request may gather from or scatter to.
pub const SLICES_MAX: usize = 4;

/// The most local slices that one RDMA Read fills if the fabric itself places received data
/// ([`DataPath::read_slices`]). It limits the state of a Read, and is enough for a transfer of 1
/// MiB between stores of 64 KiB blocks and of single pages at the front of a file.
pub const READ_SLICES_MAX: usize = 64;

/// Local memory of one work request, in order.
pub type Slices = ArrayVec<Slice, SLICES_MAX>;

/// Identifies one queue pair of one provider; never reused for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePairId {
    /// Slot in the provider's table.
    pub index: u32,
    /// Distinguishes the users of one slot over time.
    pub generation: u32,
}

/// Identifies one listener of one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// A memory key as on the wire: a steering tag (iWARP) or an R_key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u32);

/// Memory of the peer: a key and the offset under that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The peer's key.
    pub key: Key,
    /// All 64 bits as the peer advertised them.
    pub offset: u64,
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send the local slices as one message into the peer's next posted receive.
    Send {
        /// Ask the peer's adapter to invalidate this key of the peer on arrival.
        invalidate: Option<Key>,
        /// Ask for an event at a sleeping peer.
        solicited: bool,
    },
    /// Place the local slices into the peer's memory.
    Write(RemoteAddress),
    /// Fill the local slices from the peer's memory.
    Read(RemoteAddress),
    /// More local slices of the Read that precedes in the same chain: one request to the peer fills
    /// the slices of both, in order. If [`DataPath::read_slices`] is [`SLICES_MAX`] or less, such
    /// work requests fail with [`WorkError::LocalLength`].
    ReadMore,
}

/// One entry of a send queue.
#[derive(Debug)]
pub struct WorkRequest {
    /// The poster's own index, returned in [`Event::Completed`].
    pub token: u64,
    /// The operation.
    pub operation: Operation,
    /// Source of a Send or Write, sink of a Read. An empty list is a message of no bytes.
    pub local: Slices,
    /// Whether success is reported. Failure and flush always are.
    pub signalled: bool,
}

/// The remote access granted by an exposure. Never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may read the memory.
    RemoteRead,
    /// The peer may write the memory.
    RemoteWrite,
}

/// Memory accessible to the peer of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The unpredictable key, valid on that queue pair only.
    pub key: Key,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Limits of a queue pair, requested at listen or connect, and limited by the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairLimits {
    /// Work requests that may be posted and not yet completed.
    pub send_depth: u32,
    /// Receives that may be posted.
    pub receive_depth: u32,
    /// RDMA Reads of the peer that may be served at once (inbound read depth).
    pub ird: u16,
    /// RDMA Reads that may be open towards the peer at once (outbound read depth).
    /// More wait in the send queue.
    pub ord: u16,
    /// Exposures that may exist at once.
    pub exposures: u32,
    /// Bytes of the largest Send that the peer may make (the size of posted receives).
    pub receive_size: u32,
}

/// Read depths as announced by the peer and as in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadDepths {
    /// The inbound depth announced by the peer; absent if the peer cannot announce it.
    pub peer_ird: Option<u16>,
    /// The outbound depth announced by the peer; absent if the peer cannot announce it.
    pub peer_ord: Option<u16>,
    /// Reads of the peer that we serve at once.
    pub ird: u16,
    /// Reads that we may have open at once.
    pub ord: u16,
}

/// Why a work request did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The connection ended before the request was carried out.
    #[error("flushed: the connection ended first")]
    Flushed,
    /// The peer refused access to its memory: invalid key, bounds or rights.
    #[error("the peer refused access to its memory")]
    RemoteAccess,
    /// Local memory and received data do not match.
    #[error("the local memory is too short")]
    LocalLength,
    /// Read depth is zero in this direction (RFC 6581 section 9.1).
    #[error("the connection allows no RDMA Reads")]
    NoReads,
}

/// Why a post was refused; the work requests remain the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The send or receive queue has no space for the whole chain. Wait for completions.
    #[error("the queue has no room")]
    Full,
    /// The queue pair is closing or gone.
    #[error("the queue pair is closed")]
    Closed,
}

/// Why an exposure was refused; the memory remains the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposeError {
    /// [`QueuePairLimits::exposures`] is reached.
    #[error("no exposure is free")]
    Full,
    /// The queue pair is closing or gone.
    #[error("the queue pair is closed")]
    Closed,
    /// The memory has more slices than [`ControlPath::exposure_slices`], or no bytes where a key
    /// needs some.
    #[error("the fabric cannot register this memory under one key")]
    Scattered,
}

/// The result of a revocation.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // By value, for boxing would allocate per operation.
pub enum Revoked {
    /// The key is revoked and the memory is the caller's again.
    Now(Slices),
    /// The key is revoked later: [`Event::Revoked`] returns the memory.
    Later,
    /// No such exposure (any more).
    Unknown,
}

/// The layer and code of a protocol error, as in an RDMAP Terminate message (RFC 5040 section 4.8),
/// or the nearest equivalent on other fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terminate {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub kind: u8,
    /// Error code within the type.
    pub code: u8,
}

/// Why a connection failed or ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Ended {
    /// We closed it.
    #[error("closed by this side")]
    Local,
    /// The peer closed it in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer reported an error.
    #[error("the peer sent a Terminate: {0:?}")]
    TerminateReceived(Terminate),
    /// We detected an error of the peer and reported it.
    #[error("a Terminate was sent: {0:?}")]
    TerminateSent(Terminate),
    /// The negotiation frames were malformed or contradictory.
    #[error("the connection setup failed: {0}")]
    Setup(&'static str),
    /// A timeout.
    #[error("timed out: {0}")]
    TimedOut(&'static str),
    /// The network below failed.
    #[error("the network failed: {0}")]
    Network(std::io::ErrorKind),
}

/// An event of a provider.
#[derive(Debug)]
pub enum Event {
    /// A connection arrived at a listener that hands over ([`ControlPath::adopt`]).
    Incoming(Incoming),
    /// A peer requests a connection. Answer with [`ControlPath::accept`] or
    /// [`ControlPath::reject`]; receives may be posted before that.
    ConnectRequest {
        /// The new queue pair.
        queue_pair: QueuePairId,
        /// Its listener.
        listener: ListenerId,
        /// The peer's address.
        peer: SocketAddr,
        /// The peer's private data, without the fabric's own part.
        private_data: PrivateData,
        /// The peer's read depths; `ird` and `ord` are those of an accept.
        depths: ReadDepths,
    },
    /// The connection is established; on the connecting side with the answer's private data.
    Established {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The answer's private data (empty on the accepting side).
        private_data: PrivateData,
        /// Read depths in force.
        depths: ReadDepths,
    },
    /// The peer rejected our connection request. No other event follows.
    Rejected {
        /// The queue pair, now ended.
        queue_pair: QueuePairId,
        /// The peer's private data.
        private_data: PrivateData,
        /// The read depths that the peer requires.
        depths: ReadDepths,
    },
    /// A message arrived.
    Received {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The oldest posted receive, filled.
        buffer: Buffer,
        /// Bytes that arrived.
        length: u32,
        /// The key that the peer invalidated with this message. [`DataPath::revoke`] returns its
        /// memory, with [`Revoked::Now`].
        invalidated: Option<Key>,
    },
    /// A work request ended (every failed one, and every signalled one).
    Completed {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The poster's token.
        token: u64,
        /// Its result.
        result: Result<(), WorkError>,
        /// The posted memory.
        local: Slices,
    },
    /// A revocation with the result [`Revoked::Later`] took effect.
    Revoked {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The revoked key.
        key: Key,
        /// Its memory.
        local: Slices,
    },
    /// The connection ended. All posted work was flushed before this event (flushed work requests
    /// are reported, signalled or not; posted receives are dropped), all keys are revoked, and no
    /// other event follows for this queue pair.
    Disconnected {
        /// The queue pair, now ended.
        queue_pair: QueuePairId,
        /// The reason.
        reason: Ended,
    },
}

/// Parameters of answering or making a connection request.
#[derive(Clone, Debug)]
pub struct ConnectParameters {
    /// Limits of the queue pair.
    pub limits: QueuePairLimits,
    /// Private data for the peer's application.
    pub private_data: PrivateData,
}

/// The directions in which Sends may invalidate a key of their receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// Our Sends may invalidate keys of the peer ([`Operation::Send`]).
    pub sends: bool,
    /// The peer's Sends may invalidate keys of ours ([`Event::Received`]).
    pub receives: bool,
}

impl Invalidation {
    /// Both.
    pub const BOTH: Self = Self {
        sends: true,
        receives: true,
    };
}
