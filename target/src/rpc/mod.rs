//! RPC (RFC 5531): the seam between transports and programs, the program table, and what happens to
//! a call between the two.

mod admission;
mod backlog;
pub mod call;
mod connection;
pub mod counters;
mod credential;
pub mod dispatch;
mod encode;
mod gss;
pub mod program;
mod protection;
pub mod replay;
pub mod reverse;
mod reverse_protection;
mod scheduler;
mod serving_time;
mod slot;
mod transport;

pub use admission::{CallSubject, NamedEntry};
pub use connection::ConnectionRef;
pub(crate) use credential::{caller, denied_to};
pub use gss::{GssAuthenticator, GssLimits};
pub use scheduler::{CallScheduler, ScheduledCall};
pub use slot::{RequestSlot, TasklessCall, TasklessCalls};
pub use transport::{ConnectionReport, OpenWork, RdmaReport, Transport};
