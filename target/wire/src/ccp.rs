//! The connection configuration protocol (RFC 5666 section 6): an RPC program by which the peers of
//! a version one connection exchange their limits. RFC 8166 removed it in favour of private data.

use crate::xdr::{xdr_enum, xdr_struct};

/// Program number (RFC 5666 section 12). Early peers had none, so it can be set elsewhere.
pub const PROGRAM: u32 = 100_417;

/// Program version.
pub const VERSION: u32 = 1;

xdr_enum! {
    /// Procedures (RFC 5666 section 6.1).
    pub enum Procedure {
        Null = 0, "NULL", "does nothing";
        Configure = 1, "CONF_RDMA", "exchanges the limits of the connection";
    }
}

xdr_struct! {
    /// The requester's wishes and limits: arguments of [`Procedure::Configure`]
    /// (RFC 5666 section 6.2).
    pub struct Wish {
        /// Bytes of the largest inline call that it wants to send.
        pub call_size: u32,
        /// Bytes of the largest inline reply that it accepts.
        pub reply_size: u32,
        /// RDMA Reads that it can serve at once; none if zero.
        pub reads: u32,
    }
}

xdr_struct! {
    /// The responder's limits: results of [`Procedure::Configure`]
    /// (RFC 5666 section 6.2).
    pub struct Limits {
        /// Bytes of the largest inline call that it accepts.
        pub call_size: u32,
        /// The alignment in bytes that RDMA_MSGP should give to data; none if zero.
        pub alignment: u32,
        /// RDMA Reads that it can serve at once; none if zero.
        pub reads: u32,
    }
}
