//! All foreign code: the GSS library, the databases of users and groups, forks, memory of keys and of files.

mod acceptor;
mod fork;
mod gss_calls;
mod gss_library;
mod initiator;
#[cfg(feature = "testing")]
mod library_tokens;
mod memory_file;
mod secret;
mod users;

pub use acceptor::{AcceptedToken, AcceptorCredential};
#[cfg(test)]
pub use fork::bytes_of_a_fork;
pub use fork::forks;
pub use gss_calls::LibraryFailure;
pub use gss_library::GssLibrary;
pub use initiator::InitiatorContext;
pub use memory_file::MemoryFile;
pub use secret::SecretBox;
pub use users::{account, user};
