//! Counters of a connection, for status and metrics. One reactor writes, others may read.

use millrace_primitives::Counter;
use millrace_wire::rpcrdma::{Refusal, Version};

use super::{RdmaConnection, ResponderShared};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of the RPC-over-RDMA responder, of one connection or of one reactor.
        #[derive(Debug, Default)]
        pub struct ConnectionCounters {
            $($(#[$doc])* pub $name: Counter,)*
        }
    };
}

counters! {
    /// Calls received.
    calls,
    /// Replies sent inline (RDMA_MSG), and answers of extensions (RDMA2_OPTIONAL).
    replies_inline,
    /// Replies sent through the reply chunk (RDMA_NOMSG).
    replies_long,
    /// Calls whose message came through a position zero chunk.
    calls_long,
    /// Version errors sent.
    errors_version,
    /// All other errors of version one sent (ERR_CHUNK).
    errors_chunk,
    /// Errors sent for unusable headers and chunks (RDMA2_ERR_BAD_XDR).
    errors_bad_xdr,
    /// Errors sent for replies that do not fit (RDMA2_ERR_CANT_REPLY).
    errors_cannot_reply,
    /// Errors sent for unknown message types (RDMA2_ERR_INVAL_PROC).
    errors_invalid_procedure,
    /// Errors sent for unknown optional operations (RDMA2_ERR_INVAL_OPTION).
    errors_invalid_option,
    /// Messages of extensions accepted (RDMA2_OPTIONAL).
    optional,
    /// Calls sent to clients.
    reverse_calls,
    /// Replies and errors received for them.
    reverse_replies,
    /// Messages dropped unanswered.
    dropped,
    /// Bytes fetched by RDMA Reads.
    read_bytes,
    /// Bytes placed by RDMA Writes.
    written_bytes,
    /// Replies sent with remote invalidation.
    invalidations,
    /// Times that a chain waited for space in the send queue.
    send_waits,
    /// Times that a reply waited for a buffer.
    buffer_waits,
    /// Replies exposed as read chunks.
    exposures,
    /// Replies no longer exposed.
    exposures_ended,
    /// Replies whose window passed without RDMA_DONE.
    exposures_expired,
    /// Replies that waited for an exposure.
    exposure_waits,
    /// Replies not exposed because of a limit.
    exposures_refused,
    /// Bytes held for exposed replies.
    exposed_bytes,
    /// Bytes of these that are no longer accessible.
    revoked_bytes,
    /// RDMA_DONE messages received.
    dones,
    /// RDMA_DONE messages that were not expected.
    dones_stray,
}

impl ConnectionCounters {
    /// Counts an error sent in answer to a message of this version.
    pub fn count_error(&self, refusal: Refusal, version: u32) {
        let two = version == Version::Two.number();
        let counter = match refusal {
            Refusal::Version => &self.errors_version,
            _ if !two => &self.errors_chunk,
            Refusal::Header(_) => &self.errors_bad_xdr,
            Refusal::CannotReply { .. } => &self.errors_cannot_reply,
            Refusal::Procedure => &self.errors_invalid_procedure,
            Refusal::Option => &self.errors_invalid_option,
        };
        counter.add(1);
    }

    /// Errors sent, by code.
    #[must_use]
    pub fn errors(&self) -> [(&'static str, u64); 6] {
        [
            ("version", self.errors_version.get()),
            ("chunk", self.errors_chunk.get()),
            ("bad_xdr", self.errors_bad_xdr.get()),
            ("cannot_reply", self.errors_cannot_reply.get()),
            ("invalid_procedure", self.errors_invalid_procedure.get()),
            ("invalid_option", self.errors_invalid_option.get()),
        ]
    }
}

/// Counts for a connection and for its reactor.
pub fn count<S>(
    shared: &ResponderShared<S>,
    connection: &RdmaConnection,
    count: impl Fn(&ConnectionCounters),
) {
    count(connection.counters());
    count(&shared.counters);
}
