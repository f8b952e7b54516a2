//! Byte-range locks of files on the host, where its processes and other servers of the same file
//! system meet them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::sys::file_locks::{self, FileLock};
use super::volume::Volume;
use crate::{Handle, Kind, Result, StoreError};

/// A lock of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLock {
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones for the rest of the file.
    pub length: u64,
    /// Whether it excludes readers.
    pub writes: bool,
}

/// A file whose locks are taken by one open file description: they end when this is dropped.
#[derive(Debug)]
pub struct HostLockFile {
    file: OwnedFd,
}

impl Volume {
    /// Opens a file for locks, whoever has the rights to it. May block.
    ///
    /// # Errors
    /// Those of opening a file by its handle.
    pub fn open_for_locks(&self, object: Handle) -> Result<HostLockFile> {
        let opened = self.open_object(&object)?;
        if opened.attributes.kind != Kind::File {
            return Err(StoreError::Invalid);
        }
        let path = proc_path(opened.path.as_fd());
        let open =
            |mode| rustix::fs::openat(CWD, path.as_str(), mode | OFlags::CLOEXEC, Mode::empty());
        let file = match open(OFlags::RDWR) {
            // Nobody writes to it then, so that nobody locks it for writing.
            Err(Errno::ROFS | Errno::TXTBSY | Errno::PERM) => open(OFlags::RDONLY),
            opened => opened,
        };
        Ok(HostLockFile {
            file: file.map_err(store_error)?,
        })
    }
}

impl HostLockFile {
    /// Locks bytes in place of what this description had there. `false` if somebody else has them.
    /// May block on some file systems, but does not wait for the lock.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn lock(&self, lock: HostLock) -> io::Result<bool> {
        match file_locks::set(&self.file, request(lock)) {
            Ok(()) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Unlocks bytes.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn unlock(&self, offset: u64, length: u64) -> io::Result<()> {
        let writes = false;
        let lock = request(HostLock {
            offset,
            length,
            writes,
        });
        let kind = libc::F_UNLCK;
        file_locks::set(&self.file, FileLock { kind, ..lock })
    }

    /// What somebody else has that excludes a lock.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn conflict(&self, lock: HostLock) -> io::Result<Option<HostLock>> {
        let found = file_locks::conflict(&self.file, request(lock))?;
        Ok(found.map(|found| HostLock {
            offset: found.start.unsigned_abs(),
            length: match found.length {
                0 => u64::MAX,
                length => length.unsigned_abs(),
            },
            writes: found.kind == libc::F_WRLCK,
        }))
    }
}

fn request(lock: HostLock) -> FileLock {
    let most = i64::MAX.unsigned_abs();
    let start = lock.offset.min(most);
    let has_end = lock.length <= most - start;
    FileLock {
        kind: if lock.writes {
            libc::F_WRLCK
        } else {
            libc::F_RDLCK
        },
        start: start.cast_signed(),
        // Bytes behind the last one that the host has locks for are those to the end.
        length: if has_end {
            lock.length.cast_signed()
        } else {
            0
        },
    }
}

fn is_conflict(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}
