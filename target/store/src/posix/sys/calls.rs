//! The system calls that change files or make them durable. Tests record them with their order
//! (`record`).

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dev, FallocateFlags, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags,
};
use rustix::io::Result;

use super::handles::last_error;
use crate::posix::descriptor::proc_path;

#[cfg(test)]
use super::record::{PendingCall, RecordedCall, begin};

/// Makes a call and records that it changes or syncs a file.
macro_rules! recorded {
    ($file:expr, $call:expr, $make:expr) => {{
        #[cfg(test)]
        let pending = begin($file, $call);
        #[cfg(test)]
        if let Some(error) = pending.as_ref().and_then(PendingCall::wait) {
            pending.into_iter().for_each(|pending| pending.end(false));
            return Err(error);
        }
        let outcome = $make;
        #[cfg(test)]
        if let Some(pending) = pending {
            pending.end(outcome.is_ok());
        }
        outcome
    }};
}

/// Makes a file and all its attributes durable.
pub fn fsync(file: impl AsFd) -> Result<()> {
    let file = file.as_fd();
    recorded!(
        file,
        RecordedCall::Sync { attributes: true },
        rustix::fs::fsync(file)
    )
}

/// Makes a file system durable.
pub fn syncfs(folder: impl AsFd) -> Result<()> {
    let folder = folder.as_fd();
    recorded!(
        folder,
        RecordedCall::SyncFileSystem,
        rustix::fs::syncfs(folder)
    )
}

/// Makes a new regular file, and opens it.
pub fn create(directory: impl AsFd, name: &CStr, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let directory = directory.as_fd();
    let flags = flags | OFlags::CREATE | OFlags::EXCL;
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::openat(directory, name, flags, mode)
    )
}

pub fn mkdirat(directory: impl AsFd, name: &CStr, mode: Mode) -> Result<()> {
    let directory = directory.as_fd();
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::mkdirat(directory, name, mode)
    )
}

pub fn symlinkat(text: &CStr, directory: impl AsFd, name: &CStr) -> Result<()> {
    let directory = directory.as_fd();
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::symlinkat(text, directory, name)
    )
}

pub fn mknodat(
    directory: impl AsFd,
    name: &CStr,
    kind: FileType,
    mode: Mode,
    device: Dev,
) -> Result<()> {
    let directory = directory.as_fd();
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::mknodat(directory, name, kind, mode, device)
    )
}

pub fn unlinkat(directory: impl AsFd, name: &CStr, flags: AtFlags) -> Result<()> {
    let directory = directory.as_fd();
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::unlinkat(directory, name, flags)
    )
}

/// Adds a name to an object, which may be open as a path only.
pub fn link(object: BorrowedFd<'_>, directory: impl AsFd, name: &CStr) -> Result<()> {
    let (path, directory) = (proc_path(object), directory.as_fd());
    recorded!(
        directory,
        RecordedCall::Name,
        rustix::fs::linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW)
    )
}

pub fn renameat(from: impl AsFd, from_name: &CStr, to: impl AsFd, to_name: &CStr) -> Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    recorded!(
        from,
        RecordedCall::Name,
        recorded!(
            to,
            RecordedCall::Name,
            rustix::fs::renameat(from, from_name, to, to_name)
        )
    )
}

/// Changes the owner or group of an object.
pub fn chown(object: BorrowedFd<'_>, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    recorded!(
        object,
        RecordedCall::Attributes,
        rustix::fs::chownat(object, c"", uid, gid, AtFlags::EMPTY_PATH)
    )
}

/// Sets the mode of an object, which may be open as a path only.
pub fn chmod(object: BorrowedFd<'_>, mode: Mode) -> Result<()> {
    recorded!(
        object,
        RecordedCall::Attributes,
        rustix::fs::chmodat(CWD, proc_path(object), mode, AtFlags::empty())
    )
}

pub fn utimens(object: BorrowedFd<'_>, times: &Timestamps) -> Result<()> {
    recorded!(
        object,
        RecordedCall::Attributes,
        rustix::fs::utimensat(object, c"", times, AtFlags::EMPTY_PATH)
    )
}

pub fn ftruncate(file: impl AsFd, size: u64) -> Result<()> {
    let file = file.as_fd();
    recorded!(
        file,
        RecordedCall::Attributes,
        rustix::fs::ftruncate(file, size)
    )
}

/// Takes or releases the space of a range.
pub fn fallocate(file: &OwnedFd, flags: FallocateFlags, offset: u64, length: u64) -> Result<()> {
    recorded!(
        file,
        RecordedCall::Attributes,
        rustix::fs::fallocate(file, flags, offset, length)
    )
}

/// Makes a range share the storage of another one (`FICLONERANGE`).
pub fn clone_range(from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<()> {
    let range = libc::file_clone_range {
        src_fd: from.0.as_raw_fd().into(),
        src_offset: from.1,
        src_length: length,
        dest_offset: to.1,
    };
    let call = || {
        // SAFETY: the kernel reads the structure during the call and keeps no pointer.
        let done = unsafe { libc::ioctl(to.0.as_raw_fd(), libc::FICLONERANGE, &raw const range) };
        match done {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    };
    recorded!(to.0, RecordedCall::Attributes, call())
}

/// Copies bytes between files. Returns their number.
pub fn copy_range(from: (&OwnedFd, u64), to: (&OwnedFd, u64), length: u64) -> Result<u64> {
    let (mut source, mut sink) = (from.1, to.1);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let copied = recorded!(
        to.0,
        RecordedCall::Write {
            offset: to.1,
            length: length as u64,
            flags: 0
        },
        rustix::fs::copy_file_range(from.0, Some(&mut source), to.0, Some(&mut sink), length)
    );
    copied.map(|copied| copied as u64)
}

/// Sets an extended attribute of an object, which may be open as a path only.
pub fn set_xattr(
    object: BorrowedFd<'_>,
    name: &CStr,
    value: &[u8],
    flags: XattrFlags,
) -> Result<()> {
    recorded!(
        object,
        RecordedCall::Attributes,
        rustix::fs::setxattr(proc_path(object), name, value, flags)
    )
}

/// Removes an extended attribute of an object, which may be open as a path only.
pub fn remove_xattr(object: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    recorded!(
        object,
        RecordedCall::Attributes,
        rustix::fs::removexattr(proc_path(object), name)
    )
}

/// Writes data from memory.
///
/// # Safety
/// The range is memory that may be read while this runs.
pub unsafe fn pwritev2(file: &OwnedFd, range: &libc::iovec, offset: i64, flags: i32) -> isize {
    let call = || {
        // SAFETY: guaranteed by the caller; the file is open.
        unsafe { libc::pwritev2(file.as_raw_fd(), &raw const *range, 1, offset, flags) }
    };
    #[cfg(test)]
    let call = || {
        let written = RecordedCall::Write {
            offset: offset.cast_unsigned(),
            length: range.iov_len as u64,
            flags,
        };
        let pending = begin(file, written);
        let outcome = call();
        pending.into_iter().for_each(|it| it.end(outcome >= 0));
        outcome
    };
    call()
}

/// `fsync`, or `fdatasync` without attributes, with the result of the C library.
pub fn sync_data(file: &OwnedFd, attributes: bool) -> isize {
    let call = || {
        // SAFETY: the call uses no memory.
        let outcome = unsafe {
            match attributes {
                true => libc::fsync(file.as_raw_fd()),
                false => libc::fdatasync(file.as_raw_fd()),
            }
        };
        outcome as isize
    };
    #[cfg(test)]
    let call = || {
        let pending = begin(file, RecordedCall::Sync { attributes });
        let _ = pending.as_ref().map(PendingCall::wait);
        let outcome = call();
        pending.into_iter().for_each(|it| it.end(outcome >= 0));
        outcome
    };
    call()
}
