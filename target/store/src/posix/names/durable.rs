//! Making names and attributes durable.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

use super::scene::path_of;
use crate::Kind;

/// Makes an object and what is known of it durable. `object` may be open as a path only.
///
/// # Errors
/// What the kernel says.
pub(super) fn sync(object: &OwnedFd, kind: Kind) -> Result<()> {
    let open = |way| {
        let flags = way | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::open(path_of(object.as_fd()), flags, Mode::empty())
    };
    let opened = match kind {
        Kind::Directory => open(OFlags::RDONLY | OFlags::DIRECTORY),
        // Where the process is no superuser it may have one right and not the other.
        Kind::File => open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY)),
        // Opening these acts on what is behind them, if they can be opened at all.
        Kind::Symlink | Kind::Special(_) => Err(Errno::ACCESS),
    };
    match opened {
        Ok(file) => rustix::fs::fsync(file),
        Err(Errno::ACCESS | Errno::PERM) => sync_file_system(object),
        Err(error) => Err(error),
    }
}

/// Makes all of an object's file system durable, by the folder that the kernel lets this process
/// open there.
fn sync_file_system(object: &OwnedFd) -> Result<()> {
    rustix::fs::syncfs(object)
}
