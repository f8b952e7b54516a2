//! Changes of the configuration: one way in for all of them, whoever asks.
//!
//! A change, be it a request of the API, a reload of the file or a rollback, goes through
//! [`Ledger::change`]: it is checked whole, compared with what is in force, applied by the service
//! ([`crate::control::Control::apply`]) as far as that can be done without a restart, and entered
//! into the history under the next generation. A change that fails anywhere leaves everything as
//! it was.

mod audit;
mod counts;
mod edit;
mod guarded;
mod history;
mod ledger;
mod persist;
mod types;

pub use guarded::check_opened;
pub use ledger::Ledger;
pub use persist::keep;
pub use types::{
    Author, ChangeError, ChangeReport, ChangeRequest, Current, Edit, EditFunction, Generation,
    History, HistoryEntry, Pending, Tag,
};
