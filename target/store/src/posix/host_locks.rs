//! Byte-range locks of files on the host, where its processes and other servers of the same file
//! system meet them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::sys::file_locks;
use super::volume::Volume;
use crate::lock_file::{FileLock, unlock_request};
use crate::{Handle, Kind, Result, StoreError};

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
    pub(crate) fn open_for_locks(&self, object: Handle) -> Result<HostLockFile> {
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

impl From<OwnedFd> for HostLockFile {
    fn from(file: OwnedFd) -> Self {
        Self { file }
    }
}

impl HostLockFile {
    pub(crate) fn lock(&self, lock: FileLock) -> io::Result<bool> {
        match file_locks::set(&self.file, lock.request()) {
            Ok(()) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn unlock(&self, offset: u64, length: u64) -> io::Result<()> {
        file_locks::set(&self.file, unlock_request(offset, length))
    }

    pub(crate) fn conflict(&self, lock: FileLock) -> io::Result<Option<FileLock>> {
        let found = file_locks::conflict(&self.file, lock.request())?;
        Ok(FileLock::found(&found))
    }
}

fn is_conflict(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}
