//! The user behind a principal.

use std::io;

use crate::User;

/// The host's users. Called on helper threads; may block.
pub trait Directory: Send + Sync + 'static {
    /// A user by name with the groups, at most `groups_max`; `None`: unknown.
    ///
    /// # Errors
    ///
    /// The database cannot be asked now.
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>>;
}

/// The database of the C library, which asks what the host is configured for.
#[derive(Debug, Default)]
pub struct SystemDirectory;

impl Directory for SystemDirectory {
    fn user(&self, name: &str, groups_max: usize) -> io::Result<Option<User>> {
        todo!()
    }
}
