//! Credits as the sluice: who may have how many calls outstanding, hold how much memory, and go
//! how fast.
//!
//! * [`policy`] is pure: what is known goes in, a grant comes out, or that a reply is held back.
//! * [`Clients`] is of the whole process: a client is its address, however many connections it has
//!   and wherever they are. [`Flow`] is one reactor's: it divides the reactor's memory for receives
//!   among the clients that are active there ([`Tenant`]).
//!
//! A call looks nothing up, takes no lock and allocates nothing here. The table of the process is
//! locked when a connection comes and when limits change.

mod clients;
mod counters;
pub mod policy;
mod tenants;

pub use clients::{Client, Clients};
pub use counters::{Cause, FlowCounters};
pub use tenants::{Flow, Tenant};
