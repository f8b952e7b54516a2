//! Changes of the configuration, all by one function.
//!
//! A request of the API, a reload of the file and a rollback all go through
//! [`ConfigStore::change`]. It checks the whole configuration, compares it with the one in force,
//! lets the service apply the changes that need no restart ([`crate::control::Control::apply`]),
//! and adds it to the history as the next generation. A change that fails at any step has no
//! effect. One that takes away what clients use (the module `in_use`) is refused without `force`.

mod audit;
mod config_store;
mod counts;
mod edit;
mod guarded;
mod history;
pub(crate) mod in_use;
mod persist;
mod types;

pub use config_store::ConfigStore;
pub use guarded::check_opened;
pub use persist::keep;
pub use types::{
    Author, ChangeError, ChangeHistory, ChangeReport, ChangeRequest, Current, Edit, EditFunction,
    FileComparison, Generation, HistoryEntry, Pending, Tag,
};
