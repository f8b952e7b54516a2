//! All foreign code: the GSS library, the database of users, forks, files in memory.

mod acceptor;
mod fork;
mod gss_library;
mod memory_file;
mod users;

pub use acceptor::{AcceptedToken, AcceptorCredential, LibraryFailure};
#[cfg(test)]
pub use fork::bytes_of_a_fork;
pub use fork::forks;
pub use gss_library::GssLibrary;
pub use memory_file::MemoryFile;
pub use users::user;
