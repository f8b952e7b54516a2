//! Queries of an open descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Result;
use rustix::path::DecInt;

use super::handle::Key;

/// How objects are opened: as names for system calls, without access to their data, and never
/// through a symbolic link.
pub(super) const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The path of an open file in its mount, or in the tree of mounts that its mount is in.
pub(super) fn path_of(object: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let (folder, number) = (descriptors()?, DecInt::from_fd(object));
    let path = rustix::fs::readlinkat(folder, number, Vec::with_capacity(256));
    path.map(std::ffi::CString::into_bytes)
}

/// The folder in /proc of this process's descriptors. It stays open, as finding it takes longer than
/// reading a link in it.
fn descriptors() -> Result<BorrowedFd<'static>> {
    static FOLDER: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Ok(folder.as_fd());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(CWD, c"/proc/self/fd", flags, Mode::empty())?;
    Ok(FOLDER.get_or_init(|| folder).as_fd())
}

/// The path of an open object in /proc, for system calls that take paths only. It refers to the
/// object itself, whatever happened to its names, and for a symbolic link to the link.
pub(super) fn proc_path(object: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// Distinguishes an object from others where the kernel has no handles.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn key_of(object: BorrowedFd<'_>) -> Result<Key> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(object, c"", flags, wanted)?;
    let known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Key {
        device: device_of(&stat),
        inode: stat.stx_ino,
        born: if known {
            (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
        } else {
            (0, 0)
        },
    })
}

/// The attributes of an object in the kernel, without a query to a server.
pub(super) fn stat(object: BorrowedFd<'_>) -> Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(object, c"", flags, StatxFlags::BASIC_STATS)
}

/// The device number of the file system of an object.
pub(super) fn device_of(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}
