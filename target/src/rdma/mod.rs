//! RPC-over-RDMA versions one and two, the responder's side (RFC 5666, RFC 8166,
//! draft-cel-nfsv4-rpcrdma-version-two-02).
//!
//! The path of a call: a receive completes ([`RdmaConnection`]), and if the call needs nothing that
//! has to be waited for, it is served and answered in the same turn (`at_once`). If it lacks little
//! data, that is fetched first (`small_data`). Otherwise a task handles it ([`work`]): the message is
//! assembled (`message`), a program serves it, fetching read chunks as needed (`pull`), and the reply
//! is sent by RDMA Writes and one Send (`answer`).

mod answer;
mod at_once;
pub mod compat;
mod connection;
mod counters;
mod fabrics;
mod message;
mod pull;
mod receives;
mod remote_access_failures;
mod report;
mod request;
mod responder;
pub mod reverse;
mod settings;
mod shared;
mod shortage;
mod small_data;
mod transfers;
mod unadmitted;

pub use compat::{
    Ccp, Compatibility, ExposureBudget, ExposureLimits, ReactorExposures, dones_most, keys_most,
    options,
};
pub use connection::{ConnectionRequest, Fabric, RdmaConnection};
pub use counters::ConnectionCounters;
pub use fabrics::{FabricId, FabricSlot};
pub use request::{Arrived, work};
pub use responder::Responder;
pub use settings::{Inline, Settings, Terms};
pub use shared::{Outcome, ResponderShared};
