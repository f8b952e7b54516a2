//! Byte-range locks of an open file description (fcntl(2), "open file description locks").

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What a description asks for, or what another one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// First byte.
    pub start: i64,
    /// Bytes; 0 for all to the end.
    pub length: i64,
}

/// Locks or unlocks bytes, without waiting.
///
/// # Errors
/// `EAGAIN` or `EACCES` if another one has them; others of the kernel.
pub fn set(file: &OwnedFd, lock: FileLock) -> io::Result<()> {
    call(file, libc::F_OFD_SETLK, &mut raw(lock))
}

/// A lock that prevents this one, if there is one.
///
/// # Errors
/// Those of the kernel.
pub fn conflict(file: &OwnedFd, lock: FileLock) -> io::Result<Option<FileLock>> {
    let mut found = raw(lock);
    call(file, libc::F_OFD_GETLK, &mut found)?;
    let kind = i32::from(found.l_type);
    Ok((kind != libc::F_UNLCK).then_some(FileLock {
        kind,
        start: found.l_start,
        length: found.l_len,
    }))
}

fn raw(lock: FileLock) -> libc::flock {
    libc::flock {
        l_type: lock.kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: lock.start,
        l_len: lock.length,
        l_pid: 0,
    }
}

fn call(file: &OwnedFd, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and both commands take a lock that is written to at most
    // during the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
