//! `/api/v1/config` and the paths below it: the configuration, its changes and their history.

mod change;
mod precondition;
mod show;

pub use change::*;
pub use precondition::{Required, expected};
pub use show::*;
