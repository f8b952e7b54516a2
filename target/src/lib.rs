//! The Millrace service: NFS over RPC-over-RDMA.
//!
//! [`call`] is the seam: transports on one side, programs on the other.

// But for one call in `replay/map.rs`.
#![deny(unsafe_code)]

pub mod call;
mod complaint;
pub mod counters;
pub mod dispatch;
pub mod exports;
pub mod flow;
pub mod handle;
mod latency;
pub mod mount3;
pub mod nfs3;
pub mod rdma;
pub mod replay;
pub mod rpcbind;
pub mod service;
pub mod store_times;
pub mod tcp;
pub mod transfer;
