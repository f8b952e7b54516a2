//! Changes of the configuration while the service runs.
//!
//! A change takes two steps. First everything that can fail is made ready: stores, memory and log
//! filter on the thread that asks (`apply`), listeners and providers on the reactors (`reactor`),
//! which are told by a message. Then the change is decided in one place ([`ticket::Change`]),
//! which each reactor looks at before its next turn: put in force by all of them, or given up by
//! all. A reactor that is stuck when it is asked finds the decision when it wakes, so it can never
//! be left with a change that others have not.
//!
//! | module | content |
//! | --- | --- |
//! | `ticket` | data between the requesting thread and the reactors |
//! | `apply` | the requesting thread |
//! | `reactor` | each reactor |
//! | `listeners` | which listeners are kept, added and removed |
//! | `exports` | which stores are kept, added and removed, and freeing removed ones |
//! | `log` | the filter of the log |
//! | `drain`, `pause` | running without clients, and resuming |

mod apply;
mod drain;
mod exports;
mod listeners;
mod log;
mod pause;
mod reactor;
#[cfg(test)]
mod tests;
mod ticket;

pub use drain::Drain;
pub use exports::{ExportVolumes, Reaper, check as check_exports};
pub use listeners::{Listener, listener_status};
pub use log::{LogFilter, LogHook};
pub use reactor::{ChangeablePrograms, Parts, Pending, listen_again};
pub use ticket::{ChangeTicket, Resume};

pub(super) use apply::{Changing, InForce};
