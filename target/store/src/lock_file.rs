//! Files whose byte-range locks are taken where others of the same files meet them: on the host, or
//! in the cluster.

use std::io;
use std::os::fd::OwnedFd;

use crate::Handle;
use crate::any::AnyVolume;
#[cfg(feature = "ceph")]
use crate::ceph::cluster_locks::ClusterLockFile;
use crate::posix::host_locks::HostLockFile;
use crate::{Result, StoreError};

/// A lock of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLock {
    /// First byte.
    pub offset: u64,
    /// Bytes; all ones for the rest of the file.
    pub length: u64,
    /// Whether it excludes readers.
    pub writes: bool,
}

impl FileLock {
    /// The lock as the system takes it.
    pub(crate) fn request(&self) -> libc::flock {
        let kind = match self.writes {
            true => libc::F_WRLCK,
            false => libc::F_RDLCK,
        };
        request(kind, self.offset, self.length)
    }

    /// The lock that the system has found.
    pub(crate) fn found(found: &libc::flock) -> Option<Self> {
        let kind = i32::from(found.l_type);
        (kind != libc::F_UNLCK).then(|| Self {
            offset: found.l_start.unsigned_abs(),
            length: match found.l_len {
                0 => u64::MAX,
                length => length.unsigned_abs(),
            },
            writes: kind == libc::F_WRLCK,
        })
    }
}

/// Unlocks bytes.
pub(crate) fn unlock_request(offset: u64, length: u64) -> libc::flock {
    request(libc::F_UNLCK, offset, length)
}

fn request(kind: i32, offset: u64, length: u64) -> libc::flock {
    let most = i64::MAX.unsigned_abs();
    let start = offset.min(most);
    // Bytes behind the last one that the system has locks for are those to the end.
    let length = if length <= most - start { length } else { 0 };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start.cast_signed(),
        l_len: length.cast_signed(),
        l_pid: 0,
    }
}

/// An open file for locks, which are those of one holder. They end when this is dropped.
pub enum LockFile {
    /// In a folder of the host.
    Posix(HostLockFile),
    /// In CephFS.
    #[cfg(feature = "ceph")]
    Ceph(ClusterLockFile),
}

/// Calls the file that there is.
macro_rules! forward {
    ($file:ident.$operation:ident($($argument:ident),*)) => {
        match $file {
            LockFile::Posix(file) => file.$operation($($argument),*),
            #[cfg(feature = "ceph")]
            LockFile::Ceph(file) => file.$operation($($argument),*),
        }
    };
}

impl AnyVolume {
    /// Ends the session of another server of the same files, and with it all that it has there.
    /// Returns whether its locks were in force until then. Blocks.
    ///
    /// # Errors
    /// Those of the cluster. [`io::ErrorKind::Unsupported`] in folders, which others may have as
    /// well, and where this server has no say.
    #[cfg_attr(not(feature = "ceph"), allow(unused_variables))] // Sessions are those of clusters.
    pub fn fence(&self, session: &str) -> io::Result<bool> {
        match self {
            Self::Memory(_) => Ok(true),
            Self::Posix(volume) if volume.config().exclusive => Ok(true),
            Self::Posix(_) => Err(io::ErrorKind::Unsupported.into()),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.fence(session).map_err(io::Error::other),
        }
    }

    /// Opens a file for locks, whoever has the rights to it. May block. `lost` is called, from any
    /// thread, when the locks of all files that were opened are gone.
    ///
    /// # Errors
    /// Those of opening a file by its handle. [`StoreError::Stale`] for files in memory, which nobody
    /// else has.
    #[cfg_attr(not(feature = "ceph"), allow(unused_variables))] // Locks of the host stay.
    pub fn open_for_locks(
        &self,
        object: Handle,
        lost: impl Fn() + Send + 'static,
    ) -> Result<LockFile> {
        match self {
            Self::Memory(_) => Err(StoreError::Stale),
            Self::Posix(volume) => volume.open_for_locks(object).map(LockFile::Posix),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.open_for_locks(object, lost).map(LockFile::Ceph),
        }
    }
}

impl LockFile {
    /// A file of the host that is open for reading and writing.
    #[must_use]
    pub fn of_host(file: OwnedFd) -> Self {
        Self::Posix(file.into())
    }

    /// Locks bytes in place of what this holder had there. `false` if somebody else has them. May
    /// block on some file systems, but does not wait for the lock.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn lock(&self, lock: FileLock) -> io::Result<bool> {
        forward!(self.lock(lock))
    }

    /// Whether its locks are not lost. If they are, that is told as well.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        match self {
            Self::Posix(_) => true,
            #[cfg(feature = "ceph")]
            Self::Ceph(file) => file.is_in_force(),
        }
    }

    /// Unlocks bytes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn unlock(&self, offset: u64, length: u64) -> io::Result<()> {
        forward!(self.unlock(offset, length))
    }

    /// What somebody else has that excludes a lock.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: a lease, which is about to end. Those of the file system.
    pub fn conflict(&self, lock: FileLock) -> io::Result<Option<FileLock>> {
        forward!(self.conflict(lock))
    }
}
