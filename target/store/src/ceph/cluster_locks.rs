//! Byte-range locks in the cluster, where other gateways and clients of it meet them. They end with
//! the session.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::call::CallContext;
use super::session::Session;
use super::sys::{File, OpenMode, is_of_lease};
use super::volume::CephVolume;
use crate::lock_file::{FileLock, unlock_request};
use crate::{Caller, Handle, Result};

/// A file whose locks are taken for one session: they end when this is dropped, or with the session.
pub struct ClusterLockFile {
    // Closed before it is not counted any more.
    file: File,
    number: u64,
    volume: CephVolume,
    session: Arc<Session>,
}

impl CephVolume {
    /// Opens a file for locks, whoever has the rights to it. `lost` is called when the session is
    /// lost, and all locks with it. There is no other session before all files that were opened for
    /// locks have been dropped: nobody goes on as if it had locks. Blocks.
    ///
    /// # Errors
    /// [`StoreError::Stale`], [`StoreError::Delay`] without a session, and those of the cluster.
    pub(crate) fn open_for_locks(
        &self,
        object: Handle,
        lost: impl Fn() + Send + 'static,
    ) -> Result<ClusterLockFile> {
        let context = CallContext::new(self.clone(), Caller::SUPERUSER)?;
        let found = context.file(object)?;
        let session = Arc::clone(&context.session);
        // The cluster locks bytes for writing by a file that was opened for reading, too.
        let file = File::open(&found.inode, &session.superuser, OpenMode::Read);
        let file = file.map_err(|error| context.error(error))?;
        self.lock_in(&session, Box::new(lost))?;
        Ok(ClusterLockFile {
            file,
            number: found.attributes.inode,
            volume: self.clone(),
            session,
        })
    }
}

impl ClusterLockFile {
    pub(crate) fn lock(&self, lock: FileLock) -> io::Result<bool> {
        match self.file.set_lock(lock.request()) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(error) => Err(self.failure(error)),
        }
    }

    pub(crate) fn unlock(&self, offset: u64, length: u64) -> io::Result<()> {
        let unlocked = self.file.set_lock(unlock_request(offset, length));
        unlocked.map_err(|error| self.failure(error))
    }

    pub(crate) fn conflict(&self, lock: FileLock) -> io::Result<Option<FileLock>> {
        let found = self.file.conflicting_lock(lock.request());
        let found = found.map_err(|error| self.failure(error))?;
        let conflict = FileLock::found(&found);
        if conflict.is_some() && is_of_lease(&found) {
            let file = (self.number, self.file.inode());
            self.volume.request_break(&self.session, file);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(conflict)
    }

    pub(crate) fn is_in_force(&self) -> bool {
        self.volume.is_current(&self.session)
    }

    /// An error, of which the volume takes note.
    fn failure(&self, error: Errno) -> io::Error {
        // That is how the library says that it has lost locks of a file.
        let known = match error {
            Errno::IO => Errno::SHUTDOWN,
            error => error,
        };
        let _ = self.volume.error(&self.session, known);
        known.into()
    }
}

impl Drop for ClusterLockFile {
    fn drop(&mut self) {
        self.session.end_lock_file();
    }
}
