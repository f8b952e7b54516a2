//! RPC (RFC 5531): the seam between transports and programs, the program table, and what happens to a
//! call between the two.

mod admission;
pub mod call;
pub mod counters;
mod credential;
pub mod dispatch;
mod encode;
pub mod program;
pub mod replay;

pub use admission::{CallSubject, NamedEntry};
pub(crate) use credential::{caller, denied_to};
