//! The provider-neutral face of RDMA: queue pairs, work requests, completions, memory keys.
//!
//! A [`Provider`] owns all queue pairs of one reactor. It has two faces: the [`DataPath`], for what
//! runs per call or per turn, and the [`ControlPath`], for connections, listeners and reports. It
//! is polled, never blocks, and speaks through [`Event`]s. Everything is addressed by index
//! ([`QueuePairId`], the poster's own token), so that no completion is ever searched for.
//!
//! Ownership is the safety rule of this face: memory posted with a work request belongs to the
//! provider until the work request completes or is flushed. Signalled requests hand their memory
//! back in [`Event::Completed`]; unsignalled ones drop it, which returns buffers to their pool.
//!
//! Order: completions of one queue pair come in the order of posting. RDMA Writes posted before a
//! Send are placed at the peer before that Send completes there. RDMA Reads may complete after
//! later Sends were sent; post what depends on a Read after its completion.

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

/// Most local slices that one work request may gather from or scatter to.
pub const SLICES_MAX: usize = 4;

/// Most local slices that one RDMA Read fills where the fabric itself places what arrives
/// ([`DataPath::read_slices`]). It bounds what is kept for a Read, and is enough for a transfer of
/// 1 MiB between stores of 64 KiB blocks and of single pages at the front of a file.
pub const READ_SLICES_MAX: usize = 64;

/// Local memory of one work request, in order.
pub type Slices = ArrayVec<Slice, SLICES_MAX>;

/// Names one queue pair of one provider; never reused for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueuePairId {
    /// Slot in the provider's table.
    pub index: u32,
    /// Distinguishes the users of one slot over time.
    pub generation: u32,
}

/// Names one listener of one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// A memory key as it stands on the wire: a steering tag (iWARP) or an R_key.
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

/// What a work request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Send the local slices as one message into the peer's next posted receive.
    Send {
        /// Ask the peer's adapter to invalidate this key of the peer's on arrival.
        invalidate: Option<Key>,
        /// Ask for an event at a sleeping peer.
        solicited: bool,
    },
    /// Place the local slices into the peer's memory.
    Write(RemoteAddress),
    /// Fill the local slices from the peer's memory.
    Read(RemoteAddress),
    /// More local slices of the Read that precedes in the same chain: one request to the peer fills
    /// the slices of both, in order. Where [`DataPath::read_slices`] is [`SLICES_MAX`] or less,
    /// such work requests fail with [`WorkError::LocalLength`].
    ReadMore,
}

/// One entry of a send queue.
#[derive(Debug)]
pub struct WorkRequest {
    /// The poster's own index, given back in [`Event::Completed`].
    pub token: u64,
    /// What to do.
    pub operation: Operation,
    /// Source of a Send or Write, sink of a Read. An empty list is a message of no bytes.
    pub local: Slices,
    /// Whether success is reported. Failure and flush always are.
    pub signalled: bool,
}

/// Which remote access an exposure grants. Never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may read the memory.
    RemoteRead,
    /// The peer may write the memory.
    RemoteWrite,
}

/// Memory made reachable for the peer of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The unpredictable key, valid on that queue pair only.
    pub key: Key,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

/// Limits of a queue pair, asked for at listen or connect, and bounded by the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairLimits {
    /// Work requests that may be posted and not yet completed.
    pub send_depth: u32,
    /// Receives that may be posted.
    pub receive_depth: u32,
    /// RDMA Reads of the peer's that may be served at once (inbound read depth).
    pub ird: u16,
    /// RDMA Reads that may be open towards the peer at once (outbound read depth).
    /// More wait in the send queue.
    pub ord: u16,
    /// Exposures that may exist at once.
    pub exposures: u32,
    /// Bytes of the largest Send that the peer may make (the size of posted receives).
    pub receive_size: u32,
}

/// Read depths as the peer stated them and as they now hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadDepths {
    /// What the peer stated that it serves; absent where the peer cannot state it.
    pub peer_ird: Option<u16>,
    /// What the peer stated that it wants to open; absent where the peer cannot state it.
    pub peer_ord: Option<u16>,
    /// Reads of the peer's that we serve at once.
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
    /// The peer refused the remote memory: bad key, bounds or rights.
    #[error("the peer refused access to its memory")]
    RemoteAccess,
    /// Local memory and arriving data do not fit.
    #[error("the local memory is too short")]
    LocalLength,
    /// Read depth is zero in this direction (RFC 6581 section 9.1).
    #[error("the connection allows no RDMA Reads")]
    NoReads,
}

/// Why a post was refused; the work requests stay with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The send or receive queue has no room for all of the chain. Wait for completions.
    #[error("the queue has no room")]
    Full,
    /// The queue pair is closing or gone.
    #[error("the queue pair is closed")]
    Closed,
}

/// Why an exposure was refused; the memory stays with the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposeError {
    /// [`QueuePairLimits::exposures`] is reached.
    #[error("no exposure is free")]
    Full,
    /// The queue pair is closing or gone.
    #[error("the queue pair is closed")]
    Closed,
    /// The memory is in more slices than [`ControlPath::exposure_slices`], or has no bytes at all
    /// where a key needs some.
    #[error("the fabric cannot register this memory under one key")]
    Scattered,
}

/// What became of a revoked exposure.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // By value, for boxing would allocate per operation.
pub enum Revoked {
    /// The key is dead and the memory is the caller's again.
    Now(Slices),
    /// The key dies later: [`Event::Revoked`] brings the memory.
    Later,
    /// No such exposure (any more).
    Unknown,
}

/// Which layer of the protocol refused, as an RDMAP Terminate message says it
/// (RFC 5040 section 4.8), or nearest to it on other fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terminate {
    /// 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub kind: u8,
    /// Error code within the type.
    pub code: u8,
}

/// Why a connection came to nothing or to its end.
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
    /// We found the peer in error and told it so.
    #[error("a Terminate was sent: {0:?}")]
    TerminateSent(Terminate),
    /// The negotiation frames were malformed or contradictory.
    #[error("the connection setup failed: {0}")]
    Setup(&'static str),
    /// A deadline passed.
    #[error("timed out: {0}")]
    TimedOut(&'static str),
    /// The network below failed.
    #[error("the network failed: {0}")]
    Network(std::io::ErrorKind),
}

/// What a provider reports.
#[derive(Debug)]
pub enum Event {
    /// A connection arrived at a listener that hands over ([`ControlPath::adopt`]).
    Incoming(Incoming),
    /// A peer asks for a connection. Answer with [`ControlPath::accept`] or
    /// [`ControlPath::reject`]; receives may be posted before that.
    ConnectRequest {
        /// The new queue pair.
        queue_pair: QueuePairId,
        /// Who listened.
        listener: ListenerId,
        /// The peer's address.
        peer: SocketAddr,
        /// The peer's private data, without what belongs to the fabric itself.
        private_data: PrivateData,
        /// The peer's read depths; `ird` and `ord` are what an accept would set.
        depths: ReadDepths,
    },
    /// The connection stands; on the connecting side with the answer's private data.
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
        /// The queue pair, dead now.
        queue_pair: QueuePairId,
        /// Why, in the peer's words.
        private_data: PrivateData,
        /// What the peer says it would need.
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
        /// The key that the peer invalidated with this message. Its memory is fetched with
        /// [`DataPath::revoke`], which answers [`Revoked::Now`].
        invalidated: Option<Key>,
    },
    /// A work request ended (every failed one, and every signalled one).
    Completed {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The poster's token.
        token: u64,
        /// How it ended.
        result: Result<(), WorkError>,
        /// The memory that was posted.
        local: Slices,
    },
    /// A revocation that answered [`Revoked::Later`] took effect.
    Revoked {
        /// The queue pair.
        queue_pair: QueuePairId,
        /// The dead key.
        key: Key,
        /// Its memory.
        local: Slices,
    },
    /// The connection ended. All posted work was flushed before this event (signalled or not,
    /// flushed work requests are reported; posted receives are dropped), all keys are dead, and
    /// no other event follows for this queue pair.
    Disconnected {
        /// The queue pair, dead now.
        queue_pair: QueuePairId,
        /// Why.
        reason: Ended,
    },
}

/// How to answer or make a connection request.
#[derive(Clone, Debug)]
pub struct ConnectParameters {
    /// Limits of the queue pair.
    pub limits: QueuePairLimits,
    /// Private data for the peer's application.
    pub private_data: PrivateData,
}

/// In which directions Sends may invalidate a key of their receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// Our Sends may invalidate keys of the peer's ([`Operation::Send`]).
    pub sends: bool,
    /// The peer's Sends may invalidate keys of ours ([`Event::Received`]).
    pub receives: bool,
}

impl Invalidation {
    /// In both.
    pub const BOTH: Self = Self {
        sends: true,
        receives: true,
    };
}
