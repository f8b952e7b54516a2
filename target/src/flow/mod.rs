//! Credit-based flow control: limits of outstanding calls, memory and rates of clients.
//!
//! * [`policy`] is pure: its input is the current state, its output a grant, or that a reply is
//!   withheld.
//! * [`ClientTable`] is that of the whole process: a client is its address, with all its
//!   connections on all reactors. [`Flow`] is one reactor's: it divides the reactor's memory for
//!   receives among the clients active there ([`ClientShare`]).
//!
//! * Memory of a call is charged to its client until the fabric has released it ([`Charged`]); a
//!   client that has used its share of a class waits in its own queue.
//! * Limits are [`rate::Limit`]s shared by all reactors; calls of a limited client wait at a gate
//!   before they are executed, and the policy grants such a client what its rate can use.
//!
//! A call of an unlimited client needs no look-up, lock or allocation here. The table of the
//! process is locked for new connections and changes of limits.

mod bans;
mod client_classes;
mod client_share;
mod client_shares;
mod clients;
mod counters;
mod gate;
mod memory;
mod peak;
pub mod policy;
pub mod rate;
mod task_limits;
mod usage;

pub use bans::{Bans, TooManyBans};
pub use client_classes::ClassesHistograms;
pub use client_share::ClientShare;
pub use client_shares::Flow;
pub(crate) use client_shares::RECEIVES_PART;
pub use clients::{ClientLimit, ClientRecord, ClientTable};
pub use counters::{Cause, FlowCounters, VERSIONS};
pub use memory::Charged;
pub(crate) use peak::InFlightPeak;
pub use task_limits::TaskLimits;
pub use usage::{ClientUsage, ClientsUsage, Totals, Usage};
