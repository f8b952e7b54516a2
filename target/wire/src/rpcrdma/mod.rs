//! RPC-over-RDMA transport headers: version one (RFC 8166, and the parts of RFC 5666 that it
//! removed) and the draft of version two.
//!
//! Every message begins with the [`FirstWords`], which select the module that decodes the rest:
//! [`version1`] or [`version2`]. The result is a [`Header`] for both.
//!
//! A responder calls [`Header::parse_call`] and answers a [`Fault`] by [`Fault::answer`]. A
//! requester calls [`Header::parse`] and drops faulty messages (RFC 8166 section 4.5).
//!
//! Chunk lists are shared by the versions. They are checked once, when a header is parsed, against
//! [`Rules`]. Afterwards [`Lists`] is read without errors and without copies.

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
pub use header::{
    Body, Header, Optional, Outgoing, encode_header, encode_plain_header, encode_result_header,
    has_reads,
};
pub use lists::{Lists, Reason, Rules};
pub use segment::{
    Filled, READ_ENTRY_LENGTH, REPLY_CHUNK_LENGTH, ReadChunk, ReadChunks, ReadList, ReadSegment,
    ReadSegments, SEGMENT_LENGTH, Segment, Segments, WRITE_ENTRY_LENGTH, WriteChunk, WriteChunks,
    WriteList,
};
pub use version::{Version, Versions};

use crate::xdr::{Decoder, xdr_struct};

/// The smallest inline limit: every peer accepts Sends of this size (RFC 8166 section 3.3.3).
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
        /// Message type. Its meaning depends on the version.
        pub kind: u32,
    }
}

impl FirstWords {
    /// Decodes the first words; `None` if there are fewer than sixteen bytes.
    #[must_use]
    #[inline]
    pub fn read(message: &[u8]) -> Option<Self> {
        let [xid, version, credits, kind] = Decoder::new(message).words().ok()?;
        Some(Self {
            xid,
            version,
            credits,
            kind,
        })
    }
}

/// Type of RDMA_ERROR, the same in all versions so that version errors are understood.
pub const RDMA_ERROR: u32 = 4;
/// Error code: the version is not served.
pub const ERR_VERS: u32 = 1;
/// Error code of version one: header or chunks cannot be used.
pub const ERR_CHUNK: u32 = 2;
