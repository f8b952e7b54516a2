//! The requester library, the load generator and the proofs against foreign peers.
//!
//! [`requester`] calls an NFS server over RPC-over-RDMA: a polled, non-blocking [`Connection`] for
//! load, and a blocking [`Session`] for everything else. The other modules are the commands of
//! `millrace-bench`.
//!
//! [`Connection`]: requester::Connection
//! [`Session`]: requester::Session

#![forbid(unsafe_code)]

pub mod admin;
pub mod cases;
pub mod ceiling;
pub mod changes;
pub mod client;
pub mod conformance;
pub mod crash;
pub mod fabric;
pub mod interrupt;
pub mod limits;
pub mod load;
pub mod lookup;
pub mod pauses;
pub mod requester;
pub mod roundtrip;
pub mod security;
pub mod spawn;
pub mod table;
pub mod units;
