//! Open files.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io::Errno;

use super::bindings::{
    RawFile, ceph_ll_close, ceph_ll_fallocate, ceph_ll_fsync, ceph_ll_getlk, ceph_ll_open,
    ceph_ll_read, ceph_ll_setlk, ceph_ll_write,
};
use super::identity::Identity;
use super::inode::Inode;
use super::loan::LentMemory;
use super::outcome;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenMode {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

/// An open file. Dropping it closes it.
pub struct File {
    inode: Arc<Inode>,
    raw: NonNull<RawFile>,
}

// SAFETY: the library's open files may be used by any threads at once.
unsafe impl Send for File {}
// SAFETY: as above.
unsafe impl Sync for File {}

impl File {
    /// Opens a file.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn open(inode: &Arc<Inode>, identity: &Identity, mode: OpenMode) -> Result<Self, Errno> {
        let flags = match mode {
            OpenMode::Read => libc::O_RDONLY,
            OpenMode::Write => libc::O_RDWR,
        };
        let mut raw = ptr::null_mut();
        let (mount, by) = (inode.mount().as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_open(mount, inode.as_ptr(), flags, &raw mut raw, by) })?;
        Ok(Self {
            raw: NonNull::new(raw).ok_or(Errno::IO)?,
            inode: Arc::clone(inode),
        })
    }

    /// A file that the library has opened for this value. `None`: it has not.
    ///
    /// # Safety
    /// It is of this object, and nothing else closes it.
    pub(super) unsafe fn opened(inode: Arc<Inode>, raw: *mut RawFile) -> Option<Self> {
        Some(Self {
            raw: NonNull::new(raw)?,
            inode,
        })
    }

    /// The object.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(super) fn as_ptr(&self) -> *mut RawFile {
        self.raw.as_ptr()
    }

    /// Reads into lent memory, all of it or to the end of the file. Returns the number of bytes.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn read(&self, offset: u64, memory: &LentMemory) -> Result<usize, Errno> {
        self.all(offset, memory.len(), |offset, done| {
            let (bytes, length) = memory.part(done);
            let mount = self.inode.mount().as_ptr();
            // SAFETY: pointers of live values; the memory is of this length, lent, and referred to
            // by nothing.
            unsafe {
                ceph_ll_read(
                    mount,
                    self.raw.as_ptr(),
                    offset,
                    length as u64,
                    bytes.cast(),
                )
            }
        })
    }

    /// Writes lent memory. Returns the number of bytes: fewer only if a later part failed.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn write(&self, offset: u64, memory: &LentMemory) -> Result<usize, Errno> {
        self.all(offset, memory.len(), |offset, done| {
            let (bytes, length) = memory.part(done);
            let mount = self.inode.mount().as_ptr();
            // SAFETY: as in `read`.
            unsafe {
                ceph_ll_write(
                    mount,
                    self.raw.as_ptr(),
                    offset,
                    length as u64,
                    bytes.cast(),
                )
            }
        })
    }

    /// Reads into bytes.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.all(offset, bytes.len(), |offset, done| {
            let part = &mut bytes[done..];
            let mount = self.inode.mount().as_ptr();
            let (to, length) = (part.as_mut_ptr().cast(), part.len() as u64);
            // SAFETY: pointers of live values, and a buffer of this length.
            unsafe { ceph_ll_read(mount, self.raw.as_ptr(), offset, length, to) }
        })
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.all(offset, bytes.len(), |offset, done| {
            let part = &bytes[done..];
            let mount = self.inode.mount().as_ptr();
            let (from, length) = (part.as_ptr().cast(), part.len() as u64);
            // SAFETY: pointers of live values, and a buffer of this length.
            unsafe { ceph_ll_write(mount, self.raw.as_ptr(), offset, length, from) }
        })
    }

    /// Repeats a transfer until it has done all or returns zero.
    fn all(
        &self,
        offset: u64,
        length: usize,
        mut transfer: impl FnMut(i64, usize) -> i32,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < length {
            let from = i64::try_from(offset + done as u64).map_err(|_| Errno::FBIG)?;
            match outcome(transfer(from, done)) {
                Ok(0) => break,
                Ok(bytes) => done += bytes as usize,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Waits until what was written is durable, with all attributes unless `data_only`. Reports
    /// errors of earlier writes.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let mount = self.inode.mount().as_ptr();
        let data_only = i32::from(data_only);
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_fsync(mount, self.raw.as_ptr(), data_only) }).map(drop)
    }

    /// Makes a range read as zeros, and releases its space.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn punch(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let [offset, length] = [offset, length].map(i64::try_from);
        let (offset, length) = (
            offset.map_err(|_| Errno::FBIG)?,
            length.map_err(|_| Errno::FBIG)?,
        );
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let mount = self.inode.mount().as_ptr();
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_fallocate(mount, self.raw.as_ptr(), mode, offset, length) })
            .map(drop)
    }
}

/// The owner of all locks that are taken by an open file, in its session.
const LOCK_OWNER: u64 = 1;

impl File {
    /// Locks or unlocks bytes in the cluster, without waiting for another owner.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if another owner has them. Errors of the cluster.
    pub fn set_lock(&self, lock: libc::flock) -> Result<(), Errno> {
        self.set_lock_of(LOCK_OWNER, lock)
    }

    /// The same for another owner of this session.
    ///
    /// # Errors
    /// The same.
    pub(super) fn set_lock_of(&self, owner: u64, mut lock: libc::flock) -> Result<(), Errno> {
        let mount = self.inode.mount().as_ptr();
        // SAFETY: pointers of live values; the lock is used during the call only.
        outcome(unsafe { ceph_ll_setlk(mount, self.raw.as_ptr(), &raw mut lock, owner, 0) })
            .map(drop)
    }

    /// A lock that prevents this one; of the kind `F_UNLCK` if there is none.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn conflicting_lock(&self, mut lock: libc::flock) -> Result<libc::flock, Errno> {
        let mount = self.inode.mount().as_ptr();
        // SAFETY: pointers of live values; the lock is written to during the call only.
        outcome(unsafe { ceph_ll_getlk(mount, self.raw.as_ptr(), &raw mut lock, LOCK_OWNER) })?;
        Ok(lock)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: this value opened it, and this is its last use.
        unsafe { ceph_ll_close(self.inode.mount().as_ptr(), self.raw.as_ptr()) };
    }
}
