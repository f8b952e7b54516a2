//! RPC-over-RDMA versions one and two, the responder's side (RFC 5666, RFC 8166,
//! draft-cel-nfsv4-rpcrdma-version-two-02).
//!
//! The way of a call: a receive completes ([`Connection`]), a task takes it up ([`work`]), the
//! message is put together (`message`), a program serves it, fetching read chunks as it goes
//! (`pull`), and the reply leaves by RDMA Writes and one Send (`answer`).

mod answer;
mod backlog;
mod budget;
mod ccp;
mod classic;
mod connection;
mod counters;
mod desk;
mod exposures;
mod fabrics;
mod message;
pub mod options;
mod poison;
mod pull;
mod receives;
mod request;
mod responder;
pub mod reverse;
mod settings;
mod shared;
mod shortage;
mod tap;
mod transfers;
mod unadmitted;

pub use budget::{ExposureBudget, ExposureLimits};
pub use ccp::Ccp;
pub use connection::{Connection, Fabric, Request};
pub use counters::ConnectionCounters;
pub use desk::{Arrived, Desk};
pub use exposures::{Exposing, Exposures, dones_most, keys_most};
pub use fabrics::{FabricId, FabricSlot};
pub use request::work;
pub use responder::Responder;
pub use settings::{Inline, Settings, Terms};
pub use shared::{Outcome, Shared};
pub use tap::{Copied, Copies, Over, Tap, TapBounds, tap};
