//! What few peers use, apart from the common path of the transport:
//!
//! * replies with read chunks, which the client fetches and answers by RDMA_DONE (`classic`,
//!   `exposures`, `budget`),
//! * the connection configuration protocol, and the alignment of RDMA_MSGP that it tells (`ccp`),
//! * extensions of version two ([`options`]).
//!
//! The common path holds a [`Compatibility`] for each connection, and calls what stands here.

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

/// What few peers use, on one connection.
pub struct Compatibility {
    /// Replies that the client fetches; without any but in classic mode.
    exposures: Exposures,
    receive_alignment: Cell<ccp::ReceiveAlignment>,
}

impl Compatibility {
    /// That of a new connection, in classic mode or not.
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

    /// What a reply of a version may take that has these limits without read chunks.
    #[inline]
    pub(super) fn limits(&self, version: Version, limits: Limits) -> Limits {
        if self.exposes(version) {
            return classic::limits(limits);
        }
        limits
    }

    /// The XID of a message that is an RDMA_DONE which may be awaited.
    #[inline]
    pub(super) fn done_of(&self, message: &[u8]) -> Option<u32> {
        if !self.exposures.is_on() {
            return None;
        }
        exposures::done_of(message)
    }

    /// Replies that the client may fetch, those that are about to leave included.
    #[must_use]
    pub fn exposed_replies(&self) -> u32 {
        self.exposures.open_replies()
    }

    /// Bytes of its buffer before a receive.
    #[inline]
    pub(super) fn indent(&self) -> usize {
        self.receive_alignment.get().indent
    }
}

/// What begins once a reply has left.
pub(super) enum FollowUp {
    /// The window of the exposure of this number.
    Exposed(u64),
    /// Limits that hold for all that comes behind it.
    Agreed(Box<ccp::Agreed>),
}

impl FollowUp {
    /// Begins it.
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
