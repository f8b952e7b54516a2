//! What the configuration and the peer decide about a connection.

use millrace_mempool::Class;
use millrace_reactor::fabric::PrivateData;
use millrace_wire::private_data;
use millrace_wire::rpcrdma::{MIN_INLINE, Rules, Versions};

use super::budget::ExposureLimits;

/// Settings of the responder, the same for all connections of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a posted receive, and the longest message that is sent inline.
    pub inline: usize,
    /// Most credits granted to one connection.
    pub credits: u32,
    /// What headers are let in.
    pub rules: Rules,
    /// Bounds of replies with read chunks, for connections that have them.
    pub exposures: ExposureLimits,
}

impl Settings {
    /// Settings for an inline limit in bytes, a bound on credits, and the bytes of the largest
    /// WRITE; with `padding` RDMA_MSGP is understood, else refused (RFC 8166 section 4.6.1).
    #[must_use]
    pub fn new(inline: usize, credits: u32, transfer_max: u32, padding: bool) -> Self {
        let rules = Rules {
            versions: Versions::ONE,
            padding,
            // One WRITE of the largest size, with its round-up and all that stands around it.
            read_bytes: u64::from(transfer_max) + 64 * 1024,
            ..Rules::default()
        };
        Self {
            inline: inline.max(MIN_INLINE),
            credits: credits.max(1),
            rules,
            exposures: ExposureLimits::default(),
        }
    }

    /// The class of buffers that receives come from.
    #[must_use]
    pub fn receive_class(&self) -> Class {
        Class::for_size(self.inline).unwrap_or(Class::Large)
    }
}

/// What a connection request's private data settles (RFC 8797).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// Longest message that may be sent to the peer inline, in bytes.
    pub send: usize,
    /// Whether replies may invalidate a key of the peer's.
    pub invalidate: bool,
}

impl Inline {
    /// Reads the peer's private data. Without it the limit is 1024 bytes (RFC 8166
    /// section 3.3.3) and keys are left alone.
    #[must_use]
    pub fn of_peer(bytes: &[u8], settings: &Settings) -> Self {
        match private_data::PrivateData::find(bytes) {
            Some(peer) => Self {
                send: peer.receive_size.min(settings.inline),
                invalidate: peer.remote_invalidation,
            },
            None => Self {
                send: MIN_INLINE,
                invalidate: false,
            },
        }
    }
}

/// The private data of an accept: our sizes. The flag for remote invalidation speaks of the
/// reverse direction here and stays clear.
#[must_use]
pub fn private_data(settings: &Settings) -> PrivateData {
    let message = private_data::PrivateData {
        remote_invalidation: false,
        send_size: settings.inline,
        receive_size: settings.inline,
    };
    message.to_bytes().into_iter().collect()
}
