//! The requester library, the load generator and the proofs against foreign peers.
//!
//! [`requester`] calls an NFS server over RPC-over-RDMA: a polled, non-blocking [`Connection`] for
//! load, and a blocking [`Session`] for everything else.
//!
//! [`Connection`]: requester::Connection
//! [`Session`]: requester::Session

#![forbid(unsafe_code)]

pub mod requester;
