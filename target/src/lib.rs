//! The Millrace service: NFS over RPC-over-RDMA.
//!
//! [`rpc`] has the seam, with transports on one side and programs on the other, and the table in
//! which each program says what the transports have to know about it.

// But for one call in `rpc/replay/map.rs`.
#![deny(unsafe_code)]

pub mod access;
pub mod capture;
pub mod file_data;
pub mod flow;
mod interrupted_call;
mod latency;
mod log_limit;
pub mod mount3;
pub mod nfs3;
pub mod nfs4;
pub mod rdma;
pub mod rpc;
pub mod rpcbind;
pub mod service;
pub mod state;
pub mod store_times;
pub mod tcp;
pub mod transfer;

pub use access::{call_histograms, export_counters, exports, handle};
pub use rpc::{call, counters, replay};
