//! RPC-over-RDMA transport headers (RFC 8166, with what RFC 5666 had beyond it).
//!
//! Every message of every version begins with the [`FirstWords`]. They are read before anything
//! else is judged and tell which sibling module reads on: [`version1`].
//!
//! Chunk lists are shared by the versions. They are checked once, when a header is parsed, against
//! [`Rules`]; afterwards [`Lists`] is walked without errors and without copies.

mod encode;
mod lists;
mod segment;
pub mod version1;

pub use encode::{CallChunks, ReplyChunks};
pub use lists::{Lists, Reason, Rules};
pub use segment::{
    Filled, ReadChunk, ReadChunks, ReadList, ReadSegment, ReadSegments, Segment, Segments,
    WriteChunk, WriteChunks, WriteList,
};

use crate::xdr::{Encoder, Result, xdr_struct};

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

/// Appends an RDMA_ERROR with ERR_VERS (RFC 8166 section 4.5.1): 28 bytes. The version word is
/// that of the call.
///
/// # Errors
/// No room.
pub fn encode_version_error(
    out: &mut Encoder<'_>,
    call: &FirstWords,
    credits: u32,
    low: u32,
    high: u32,
) -> Result<()> {
    error_words(out, call, credits, ERR_VERS)?;
    out.u32(low)?;
    out.u32(high)
}

fn error_words(out: &mut Encoder<'_>, call: &FirstWords, credits: u32, code: u32) -> Result<()> {
    out.u32(call.xid)?;
    out.u32(call.version)?;
    out.u32(credits)?;
    out.u32(RDMA_ERROR)?;
    out.u32(code)
}
