//! RPC-over-RDMA version two (draft 02): the responder against raw peers.

#[path = "../support/mod.rs"]
mod support;

mod carried_over;
mod dir;
mod err;
mod hdr;
mod inv;
mod neg;
mod opt;
