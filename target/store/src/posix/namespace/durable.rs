//! Making names and attributes durable.
//!
//! What can be opened without acting on it is synced by itself. Symbolic links, devices, FIFOs and
//! sockets cannot: when they are new, their directory's sync takes them along, as file systems with
//! a journal do it; when their attributes change, all of their file system is synced.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::Kind;
use crate::posix::descriptor::proc_path;
use crate::posix::sys::calls;

/// Makes an object and what is known of it durable. `object` may be open as a path only; `folder`
/// is one of its file system.
///
/// # Errors
/// What the kernel says.
pub(super) fn sync(object: &OwnedFd, kind: Kind, folder: &OwnedFd) -> Result<()> {
    let open = |way| {
        let flags = way | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(proc_path(object.as_fd()), flags, Mode::empty())
    };
    let opened = match kind {
        Kind::Directory => open(OFlags::RDONLY | OFlags::DIRECTORY),
        // Where the process is no superuser it may have one right and not the other.
        Kind::File => open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY)),
        Kind::Symlink | Kind::Special(_) => Err(Errno::ACCESS),
    };
    match opened {
        Ok(file) => calls::fsync(file),
        Err(Errno::ACCESS) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(folder, c".", flags, Mode::empty())?;
            calls::syncfs(folder)
        }
        Err(error) => Err(error),
    }
}
