//! Rarely used features, separate from the common path of the transport:
//!
//! * replies with read chunks, which the client fetches and answers by RDMA_DONE (`classic`,
//!   `exposures`, `budget`),
//! * the connection configuration protocol, and the alignment of RDMA_MSGP that it announces
//!   (`ccp`),
//! * extensions of version two ([`options`]).
//!
//! The common path holds a [`Compatibility`] for each connection, and calls the functions of this
//! module.

mod budget;
mod ccp;
mod classic;
mod exposures;
pub mod options;

use std::cell::Cell;
use std::rc::Rc;

use millrace_wire::rpcrdma::Version;

use super::{RdmaConnection, ResponderShared};
use crate::call::Limits;

pub use budget::{ExposureBudget, ExposureLimits};
pub use ccp::Ccp;
pub(super) use ccp::serve;
pub(super) use classic::prepare;
use exposures::Exposures;
pub(super) use exposures::expire;
pub use exposures::{ReactorExposures, dones_most, keys_most};
pub(super) use options::take;

/// The rarely used features of one connection.
pub struct Compatibility {
    /// Replies that the client fetches; empty except in classic mode.
    exposures: Exposures,
    receive_alignment: Cell<ccp::ReceiveAlignment>,
}

impl Compatibility {
    /// The state of a new connection, in classic mode or not.
    pub(super) fn new(classic: bool) -> Self {
        Self {
            exposures: Exposures::new(classic),
            receive_alignment: Cell::default(),
        }
    }

    /// Whether replies of a version may have read chunks. Version two has no RDMA_DONE.
    #[inline]
    pub(super) fn exposes(&self, version: Version) -> bool {
        self.exposures.is_on() && version == Version::One
    }

    /// The limits of a reply of a version, given those without read chunks.
    #[inline]
    pub(super) fn limits(&self, version: Version, limits: Limits) -> Limits {
        if self.exposes(version) {
            return classic::limits(limits);
        }
        limits
    }

    /// The XID of an RDMA_DONE that may be expected.
    #[inline]
    pub(super) fn done_of(&self, message: &[u8]) -> Option<u32> {
        if !self.exposures.is_on() {
            return None;
        }
        exposures::done_of(message)
    }

    /// Replies that the client may fetch, including those about to be sent.
    #[must_use]
    pub fn exposed_replies(&self) -> u32 {
        self.exposures.open_replies()
    }

    /// The offset of a receive in its buffer.
    #[inline]
    pub(super) fn indent(&self) -> usize {
        self.receive_alignment.get().indent
    }
}

/// An action after a reply was sent.
pub(super) enum FollowUp {
    /// Start the window of the exposure with this number.
    Exposed(u64),
    /// Apply limits to everything after it.
    Agreed(Box<ccp::Agreed>),
}

impl FollowUp {
    /// Performs it.
    #[cold]
    pub fn begin<S>(self, shared: &ResponderShared<S>, connection: &Rc<RdmaConnection>) {
        match self {
            Self::Exposed(number) => {
                let exposures = &connection.compat.exposures;
                exposures.sent(shared, connection, number);
            }
            Self::Agreed(agreed) => agreed.begin(connection),
        }
    }
}
