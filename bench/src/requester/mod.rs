//! RPC-over-RDMA, the requester's side: version one (RFC 5666, RFC 8166, RFC 8267) and, where it
//! is offered, version two (draft-cel-nfsv4-rpcrdma-version-two-02, "version two draft").
//!
//! [`Connection`] is the core: it is polled, never blocks, keeps many calls in flight and
//! allocates nothing per steady call. Its owner polls the provider and hands over the events.
//!
//! The way of a call: [`Connection::submit`] encodes the RPC message once and queues it.
//! [`Connection::pump`] takes calls from the queue as credits allow
//! ([`CreditWindow`](millrace_wire::rpcrdma::CreditWindow)), decides how each travels ([`plan()`]),
//! exposes memory for the server, and posts one Send. The reply is matched by its XID, every key of
//! the call is revoked, and only then the caller sees a [`Completion`].
//!
//! A reply with read chunks (RFC 5666 section 3.8) is fetched from the server's memory by RDMA
//! Reads, and answered by RDMA_DONE.
//!
//! Calls are AUTH_SYS, or made under a Kerberos context ([`GssContext`]).
//!
//! [`Session`] is the comfort: it connects, mounts, calls the procedures of NFS version 3 one by
//! one, copies files with many calls in flight, and connects again when the connection is lost.

mod arrival;
mod assemble;
pub mod binding;
mod call;
mod ccp;
mod configuration;
mod connection;
mod deliver;
mod done;
mod encode;
mod events;
mod extensions;
mod fetch;
mod fetches;
mod give_up;
mod gss;
mod invalidate;
mod memory;
mod negotiate;
mod options;
mod padding;
pub mod plan;
mod reply;
mod retry;
mod reverse;
mod reverse_service;
mod send;
pub mod session;
mod settings;
mod slot;
mod version_search;

pub use call::{Call, CallError, CallId, Completion, Data, Part, Reply, RpcError, SubmitError};
pub use connection::{Connection, Counters, RequesterState};
pub use encode::{CallTemplate, Repetition};
pub use extensions::{Extension, OptionError};
pub use gss::{GssContext, PROTECTED_DATA_MAX, SecurityFault};
pub use plan::plan;
pub use reverse_service::{ReverseCall, ReverseService};
pub use session::Session;
pub use settings::{Alignment, Ccp, Identity, Settings};
pub use version_search::VersionMemory;
