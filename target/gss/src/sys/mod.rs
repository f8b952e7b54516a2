//! All foreign code: the GSS library, the database of users, forks.

mod fork;

pub use fork::forks;
