//! Open directories.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io::Errno;

use super::bindings::{
    ALL_STATS, NO_FOLLOW, RawDirectory, Statx, ceph_ll_opendir, ceph_ll_releasedir,
    ceph_readdirplus_r, ceph_seekdir,
};
use super::identity::Identity;
use super::inode::Inode;
use super::outcome;

/// A directory that is being listed. Dropping it closes it.
pub struct Directory {
    inode: Arc<Inode>,
    raw: NonNull<RawDirectory>,
}

/// One entry of a directory.
pub struct NextEntry {
    /// Where to go on after it.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Attributes of its object.
    pub found: Statx,
}

impl Directory {
    /// Opens a directory at the position after a cookie, or at its start with 0.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn open(inode: &Arc<Inode>, identity: &Identity, cookie: u64) -> Result<Self, Errno> {
        let position = i64::try_from(cookie).map_err(|_| Errno::INVAL)?;
        let (mount, by) = (inode.mount().as_ptr(), identity.as_ptr());
        let mut raw = ptr::null_mut();
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_opendir(mount, inode.as_ptr(), &raw mut raw, by) })?;
        let opened = Self {
            raw: NonNull::new(raw).ok_or(Errno::IO)?,
            inode: Arc::clone(inode),
        };
        if position != 0 {
            // SAFETY: as above; the library takes any position.
            unsafe { ceph_seekdir(mount, raw, position) };
        }
        Ok(opened)
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn next(&mut self) -> Result<Option<NextEntry>, Errno> {
        let mut entry = MaybeUninit::<libc::dirent>::zeroed();
        let mut found = MaybeUninit::<Statx>::zeroed();
        let (mount, mut out) = (self.inode.mount(), ptr::null_mut());
        // SAFETY: pointers of live values; the library stores an entry, its attributes, and an
        // object that it counts.
        let code = unsafe {
            ceph_readdirplus_r(
                mount.as_ptr(),
                self.raw.as_ptr(),
                entry.as_mut_ptr(),
                found.as_mut_ptr(),
                ALL_STATS,
                NO_FOLLOW,
                &raw mut out,
            )
        };
        // SAFETY: as above; dropping it releases the object.
        drop(unsafe { Inode::counted(mount, out) });
        if outcome(code)? == 0 {
            return Ok(None);
        }
        // SAFETY: filled by the library, whose names end with a zero byte.
        let (entry, found) = unsafe { (entry.assume_init(), found.assume_init()) };
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
        Ok(Some(NextEntry {
            cookie: entry.d_off.cast_unsigned(),
            name: name.to_bytes().to_vec(),
            found,
        }))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: this value opened it, and this is its last use.
        unsafe { ceph_ll_releasedir(self.inode.mount().as_ptr(), self.raw.as_ptr()) };
    }
}
