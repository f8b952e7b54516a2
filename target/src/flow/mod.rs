//! Credits as the sluice: who may have how many calls outstanding, hold how much memory, and go
//! how fast.
//!
//! * [`policy`] is pure: what is known goes in, a grant comes out, or that a reply is held back.
//! * [`Clients`] is of the whole process: a client is its address, however many connections it has
//!   and wherever they are. [`Flow`] is one reactor's: it divides the reactor's memory for receives
//!   among the clients that are active there ([`Tenant`]).
//!
//! * Memory that serves a call is charged to its client until the fabric has let go of it
//!   ([`Charged`]); a client that holds its share of a class waits in its own queue.
//! * Limits are [`rate::Limit`]s that all reactors share; calls of who is limited wait at a gate before
//!   they are executed, and the policy grants such a client what its rate can use.
//!
//! A call of who is not limited looks nothing up, takes no lock and allocates nothing here. The table of the process is
//! locked when a connection comes and when limits change.

mod clients;
mod counters;
mod gate;
mod memory;
mod peak;
pub mod policy;
pub mod rate;
mod tenant;
mod tenants;
mod usage;

pub use clients::{Client, ClientLimit, Clients};
pub use counters::{Cause, FlowCounters, VERSIONS};
pub use memory::Charged;
pub(crate) use peak::InFlightPeak;
pub use tenant::Tenant;
pub use tenants::Flow;
pub(crate) use tenants::{RECEIVES_PART, TASKS};
pub use usage::{ClientUsage, ClientsUsage, Totals, Usage};
