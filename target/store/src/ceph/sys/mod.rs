//! libcephfs behind safe types. This module has all `unsafe` of the store.
//!
//! | module | content |
//! | --- | --- |
//! | `bindings` | declarations of the library |
//! | `mount` | a mount: configuration, session, end |
//! | `identity` | on whose behalf a call is made |
//! | `inode` | objects: attributes, names below a directory, extended attributes |
//! | `file`, `directory` | open files and directories |
//! | `lease` | leases of open files |
//! | `loan` | memory of reactors, for jobs on other threads |
//!
//! Every call may block for any time, also dropping a value: only helper threads make them. Values
//! hold their mount, so that the library's pointers are valid as long as they live.

mod bindings;
mod directory;
mod file;
mod identity;
mod inode;
mod lease;
mod loan;
mod mount;

#[cfg(test)]
mod tests;

use rustix::io::Errno;

pub use self::bindings::Statx;
pub use self::directory::Directory;
pub use self::file::{File, OpenMode};
pub use self::identity::Identity;
pub use self::inode::{AttributeChange, Inode, SpaceFound};
pub use self::lease::{LeasedFile, is_of_lease};
pub use self::loan::{LentMemory, Loan, LoanTable};
pub use self::mount::{Mount, MountConfig, MountError};

/// The outcome of a call: a number, or a negative error number of Linux.
fn outcome(code: i32) -> Result<u32, Errno> {
    u32::try_from(code).map_err(|_| Errno::from_raw_os_error(code.wrapping_neg()))
}
