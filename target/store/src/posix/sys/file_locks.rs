//! Byte-range locks of an open file description (fcntl(2), "open file description locks").

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Locks or unlocks bytes, without waiting.
///
/// # Errors
/// `EAGAIN` or `EACCES` if another one has them; others of the kernel.
pub fn set(file: &OwnedFd, mut lock: libc::flock) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut lock)
}

/// A lock that prevents this one; of the kind `F_UNLCK` if there is none.
///
/// # Errors
/// Those of the kernel.
pub fn conflict(file: &OwnedFd, mut lock: libc::flock) -> io::Result<libc::flock> {
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(lock)
}

fn call(file: &OwnedFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and both commands take a lock that is written to at most
    // during the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
