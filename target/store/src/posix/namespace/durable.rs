//! Making names and attributes durable.
//!
//! Objects that can be opened without side effects are synced individually. Symbolic links,
//! devices, FIFOs and sockets cannot: when they are new, the sync of their directory includes them,
//! as in file systems with a journal; when their attributes change, the whole file system is
//! synced.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::Kind;
use crate::posix::descriptor::proc_path;
use crate::posix::sys::calls;

/// Makes an object and its attributes durable. `object` may be open as a path only; `folder` is one
/// of its file system.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn sync(object: &OwnedFd, kind: Kind, folder: &OwnedFd) -> Result<()> {
    let open = |way| {
        let flags = way | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(proc_path(object.as_fd()), flags, Mode::empty())
    };
    let opened = match kind {
        Kind::Directory => open(OFlags::RDONLY | OFlags::DIRECTORY),
        // Without superuser rights the process may have only one of these rights.
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
