//! Credit-based flow control: who may have how many calls outstanding, hold how much memory, and go
//! how fast.
//!
//! * [`policy`] is pure: what is known goes in, a grant comes out, or that a reply is held back.
//! * [`ClientTable`] is of the whole process: a client is its address, however many connections it
//!   has and wherever they are. [`Flow`] is one reactor's: it divides the reactor's memory for
//!   receives among the clients that are active there ([`ClientShare`]).
//!
//! * Memory that serves a call is charged to its client until the fabric has let go of it
//!   ([`Charged`]); a client that holds its share of a class waits in its own queue.
//! * Limits are [`rate::Limit`]s that all reactors share; calls of who is limited wait at a gate
//!   before they are executed, and the policy grants such a client what its rate can use.
//!
//! A call of who is not limited looks nothing up, takes no lock and allocates nothing here. The
//! table of the process is locked when a connection comes and when limits change.

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

pub use client_share::ClientShare;
pub use client_shares::Flow;
pub(crate) use client_shares::RECEIVES_PART;
pub use clients::{ClientLimit, ClientRecord, ClientTable};
pub use counters::{Cause, FlowCounters, VERSIONS};
pub use memory::Charged;
pub(crate) use peak::InFlightPeak;
pub use task_limits::TaskLimits;
pub use usage::{ClientUsage, ClientsUsage, Totals, Usage};
