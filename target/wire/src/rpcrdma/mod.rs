//! RPC-over-RDMA transport headers (RFC 8166, what RFC 5666 had beyond it, and the draft of version
//! two).
//!
//! Every message of every version begins with the [`FirstWords`]. They are read before anything
//! else is judged and tell which sibling module reads on: [`version1`] or [`version2`]. What comes
//! out is a [`Header`] whatever the version.
//!
//! A responder calls [`Header::parse_call`] and answers a [`Fault`] by [`Fault::answer`]; a
//! requester calls [`Header::parse`] and drops what is faulty (RFC 8166 section 4.5).
//!
//! Chunk lists are shared by the versions. They are checked once, when a header is parsed, against
//! [`Rules`]; afterwards [`Lists`] is walked without errors and without copies.

mod credits;
mod encode;
mod extensions;
mod fault;
mod header;
mod lists;
mod segment;
mod version;
pub mod version1;
pub mod version2;

pub use credits::CreditWindow;
pub use encode::{CallChunks, ReplyChunks};
pub use extensions::{ExtensionTable, RegisterError};
pub use fault::{ERROR_MAX, ErrorBody, Fault, Refusal, encode_error};
use header::encode_words;
pub use header::{Body, Header, Optional, Outgoing, encode_header, encode_plain_header};
pub use lists::{Lists, Reason, Rules};
pub use segment::{
    Filled, READ_ENTRY_LENGTH, REPLY_CHUNK_LENGTH, ReadChunk, ReadChunks, ReadList, ReadSegment,
    ReadSegments, SEGMENT_LENGTH, Segment, Segments, WRITE_ENTRY_LENGTH, WriteChunk, WriteChunks,
    WriteList,
};
pub use version::{Version, Versions};

use crate::xdr::xdr_struct;

/// The smallest inline limit: every peer takes Sends of this many bytes (RFC 8166 section 3.3.3).
pub const MIN_INLINE: usize = 1024;

/// Bytes of [`FirstWords`].
pub const FIRST_WORDS: usize = 16;

xdr_struct! {
    /// The four words that begin a message of any version (RFC 8166 section 4.1).
    pub struct FirstWords {
        /// Transaction identifier, that of the RPC message.
        pub xid: u32,
        /// Version of the transport protocol.
        pub version: u32,
        /// Credits: asked for in calls, granted in replies.
        pub credits: u32,
        /// Message type, whose meaning is the version's.
        pub kind: u32,
    }
}

impl FirstWords {
    /// Reads them, if sixteen bytes are there.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Self> {
        crate::xdr::from_bytes(message).ok()
    }
}

/// Type of RDMA_ERROR, the same in all versions so that version errors are understood.
pub const RDMA_ERROR: u32 = 4;
/// Error code: the version is not served.
pub const ERR_VERS: u32 = 1;
/// Error code of version one: header or chunks cannot be used.
pub const ERR_CHUNK: u32 = 2;
