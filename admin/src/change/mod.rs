//! Changes of the configuration: one way in for all of them, whoever asks.
//!
//! A change, be it a request of the API, a reload of the file or a rollback, goes through
//! [`ConfigStore::change`]: it is checked whole, compared with what is in force, applied by the service
//! ([`crate::control::Control::apply`]) as far as that can be done without a restart, and entered
//! into the history under the next generation. A change that fails anywhere leaves everything as
//! it was.

mod audit;
mod config_store;
mod counts;
mod edit;
mod guarded;
mod history;
mod persist;
mod types;

pub use config_store::ConfigStore;
pub use guarded::check_opened;
pub use persist::keep;
pub use types::{
    Author, ChangeError, ChangeHistory, ChangeReport, ChangeRequest, Current, Edit, EditFunction,
    Generation, HistoryEntry, Pending, Tag,
};
