//! RPC-over-RDMA version one (RFC 5666, RFC 8166): the responder against raw peers.

#[path = "../support/mod.rs"]
mod support;

mod bind;
mod ccp;
mod chunk;
mod cred;
mod done;
mod done_bounds;
mod done_iwarp;
mod hdr;
mod long;
mod pad;
mod sec;
mod small_data;
mod write;
