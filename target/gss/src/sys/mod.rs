//! All foreign code: the GSS library, the database of users, forks.

mod fork;
mod users;

pub use fork::forks;
pub use users::user;
