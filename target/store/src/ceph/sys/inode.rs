//! Objects of a mount.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io::Errno;

use super::bindings::{
    ALL_STATS, InodeNumber, NO_FOLLOW, RawFile, RawIdentity, RawInode, RawMount, SET_ACCESSED,
    SET_GID, SET_MODE, SET_MODIFIED, SET_SIZE, SET_UID, Statx, ceph_ll_create, ceph_ll_getattr,
    ceph_ll_getxattr, ceph_ll_link, ceph_ll_listxattr, ceph_ll_lookup, ceph_ll_lookup_inode,
    ceph_ll_lookup_root, ceph_ll_mkdir, ceph_ll_mknod, ceph_ll_put, ceph_ll_readlink,
    ceph_ll_removexattr, ceph_ll_rename, ceph_ll_rmdir, ceph_ll_setattr, ceph_ll_setxattr,
    ceph_ll_statfs, ceph_ll_symlink, ceph_ll_sync_inode, ceph_ll_unlink,
};
use super::file::File;
use super::identity::Identity;
use super::mount::Mount;
use super::outcome;
use crate::Time;

/// The longest text of a symbolic link.
const LINK_MAX: usize = 4096;

/// An object. Dropping it lets the library forget the object.
pub struct Inode {
    mount: Arc<Mount>,
    raw: NonNull<RawInode>,
}

// SAFETY: the library's objects may be used by any threads at once; they are counted.
unsafe impl Send for Inode {}
// SAFETY: as above.
unsafe impl Sync for Inode {}

/// Attributes to set, all in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Time of the last read.
    pub accessed: Option<Time>,
    /// Time of the last change of data.
    pub modified: Option<Time>,
}

/// Space of a file system in bytes, and objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFound {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes that users may take.
    pub available: u64,
    /// Objects of the storage.
    pub objects: u64,
}

/// A call of the library that makes an object or finds one.
type Found = Result<(Inode, Statx), Errno>;

impl Inode {
    /// The root of a mount.
    ///
    /// # Errors
    /// Errors of the cluster, as for all functions here.
    pub fn root(mount: &Arc<Mount>) -> Result<Self, Errno> {
        Self::out(mount, |out| {
            // SAFETY: a mounted file system, which stores one counted object on success.
            unsafe { ceph_ll_lookup_root(mount.as_ptr(), out) }
        })
    }

    /// The object with a number, whatever its names are.
    ///
    /// # Errors
    /// [`Errno::STALE`]: there is none.
    pub fn by_number(mount: &Arc<Mount>, number: u64) -> Result<Self, Errno> {
        Self::out(mount, |out| {
            let number = InodeNumber { value: number };
            // SAFETY: as in `root`.
            unsafe { ceph_ll_lookup_inode(mount.as_ptr(), number, out) }
        })
    }

    fn out(
        mount: &Arc<Mount>,
        call: impl FnOnce(*mut *mut RawInode) -> i32,
    ) -> Result<Self, Errno> {
        let mut raw = ptr::null_mut();
        outcome(call(&raw mut raw))?;
        Ok(Self {
            raw: NonNull::new(raw).ok_or(Errno::STALE)?,
            mount: Arc::clone(mount),
        })
    }

    /// An object that the library has counted for this value.
    ///
    /// # Safety
    /// It is of this mount, and nothing else releases it.
    pub(super) unsafe fn counted(mount: &Arc<Mount>, raw: *mut RawInode) -> Option<Self> {
        Some(Self {
            raw: NonNull::new(raw)?,
            mount: Arc::clone(mount),
        })
    }

    /// Makes or finds an object below this directory.
    fn below(
        &self,
        identity: &Identity,
        call: impl FnOnce(
            *mut RawMount,
            *mut RawInode,
            *mut *mut RawInode,
            *mut Statx,
            *const RawIdentity,
        ) -> i32,
    ) -> Found {
        let mut found = MaybeUninit::zeroed();
        let inode = Self::out(&self.mount, |out| {
            let (mount, parent) = (self.mount.as_ptr(), self.as_ptr());
            call(mount, parent, out, found.as_mut_ptr(), identity.as_ptr())
        })?;
        // SAFETY: all bit patterns of these numbers are valid.
        Ok((inode, unsafe { found.assume_init() }))
    }

    /// The object of a name. `.` and `..` are names; `..` of the root is the root.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn lookup(&self, identity: &Identity, name: &CStr) -> Found {
        self.below(identity, |mount, parent, out, found, by| {
            let (name, want) = (name.as_ptr(), ALL_STATS);
            // SAFETY: pointers of live values; the library stores what it found.
            unsafe { ceph_ll_lookup(mount, parent, name, out, found, want, NO_FOLLOW, by) }
        })
    }

    /// Makes a regular file, and opens it for [writing](super::OpenMode::Write). [`Errno::EXIST`] if
    /// the name is taken.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn create(
        &self,
        identity: &Identity,
        name: &CStr,
        mode: u32,
    ) -> Result<(File, Statx), Errno> {
        let mut file: *mut RawFile = ptr::null_mut();
        let (made, found) = self.below(identity, |mount, parent, out, found, by| {
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NOFOLLOW;
            let (name, opened) = (name.as_ptr(), &raw mut file);
            // SAFETY: as in `lookup`; it opens the file too.
            unsafe {
                ceph_ll_create(
                    mount, parent, name, mode, flags, out, opened, found, ALL_STATS, 0, by,
                )
            }
        })?;
        // SAFETY: just opened, and used nowhere else.
        let file = unsafe { File::opened(Arc::new(made), file) };
        Ok((file.ok_or(Errno::IO)?, found))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn make_directory(&self, identity: &Identity, name: &CStr, mode: u32) -> Found {
        self.below(identity, |mount, parent, out, found, by| {
            let name = name.as_ptr();
            // SAFETY: as in `lookup`.
            unsafe { ceph_ll_mkdir(mount, parent, name, mode, out, found, ALL_STATS, 0, by) }
        })
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn symlink(&self, identity: &Identity, name: &CStr, text: &CStr) -> Found {
        self.below(identity, |mount, parent, out, found, by| {
            let (name, text) = (name.as_ptr(), text.as_ptr());
            // SAFETY: as in `lookup`.
            unsafe { ceph_ll_symlink(mount, parent, name, text, out, found, ALL_STATS, 0, by) }
        })
    }

    /// Makes a node of a type (of `mode`) and device number.
    ///
    /// # Errors
    /// As the kernel's, but for the rights of the caller to make devices, which are not checked.
    pub fn make_node(&self, identity: &Identity, name: &CStr, mode: u32, device: u64) -> Found {
        self.below(identity, |mount, parent, out, found, by| {
            let (name, want) = (name.as_ptr(), ALL_STATS);
            // SAFETY: as in `lookup`.
            unsafe { ceph_ll_mknod(mount, parent, name, mode, device, out, found, want, 0, by) }
        })
    }

    /// Gives this object a name in a directory.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn link(&self, identity: &Identity, parent: &Self, name: &CStr) -> Result<(), Errno> {
        let mount = self.mount.as_ptr();
        let (own, parent, by) = (self.as_ptr(), parent.as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_link(mount, own, parent, name.as_ptr(), by) }).map(drop)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn unlink(&self, identity: &Identity, name: &CStr) -> Result<(), Errno> {
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_unlink(mount, self.as_ptr(), name.as_ptr(), by) }).map(drop)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn remove_directory(&self, identity: &Identity, name: &CStr) -> Result<(), Errno> {
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_rmdir(mount, self.as_ptr(), name.as_ptr(), by) }).map(drop)
    }

    /// Renames between this directory and another.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn rename(
        &self,
        identity: &Identity,
        name: &CStr,
        to: &Self,
        new_name: &CStr,
    ) -> Result<(), Errno> {
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        let (from, to) = (self.as_ptr(), to.as_ptr());
        let (name, new_name) = (name.as_ptr(), new_name.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_rename(mount, from, name, to, new_name, by) }).map(drop)
    }

    /// Attributes.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn attributes(&self, identity: &Identity) -> Result<Statx, Errno> {
        let mut found = MaybeUninit::<Statx>::zeroed();
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        let (want, out) = (ALL_STATS, found.as_mut_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_getattr(mount, self.as_ptr(), out, want, 0, by) })?;
        // SAFETY: all bit patterns of these numbers are valid.
        Ok(unsafe { found.assume_init() })
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_attributes(
        &self,
        identity: &Identity,
        change: &AttributeChange,
    ) -> Result<(), Errno> {
        let (mut set, mask) = change.encoded()?;
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_setattr(mount, self.as_ptr(), &raw mut set, mask, by) }).map(drop)
    }

    /// Waits until changes of the object, or of the names in the directory, are durable.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_sync_inode(self.mount.as_ptr(), self.as_ptr(), 0) }).map(drop)
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn read_link(&self, identity: &Identity) -> Result<Vec<u8>, Errno> {
        let mut text = vec![0_u8; LINK_MAX];
        let (mount, by, bytes) = (
            self.mount.as_ptr(),
            identity.as_ptr(),
            text.as_mut_ptr().cast(),
        );
        // SAFETY: pointers of live values, and a buffer of this length.
        let length =
            outcome(unsafe { ceph_ll_readlink(mount, self.as_ptr(), bytes, LINK_MAX, by) })?;
        text.truncate(length as usize);
        Ok(text)
    }

    /// Space of the file system.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn space(&self) -> Result<SpaceFound, Errno> {
        let mut found = MaybeUninit::<libc::statvfs>::zeroed();
        let mount = self.mount.as_ptr();
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_statfs(mount, self.as_ptr(), found.as_mut_ptr()) })?;
        // SAFETY: all bit patterns of these numbers are valid.
        let found = unsafe { found.assume_init() };
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(SpaceFound {
            total: bytes(found.f_blocks),
            free: bytes(found.f_bfree),
            available: bytes(found.f_bavail),
            objects: found.f_files,
        })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// As the kernel's; [`Errno::RANGE`]: it is longer than `most`.
    pub fn xattr(&self, identity: &Identity, name: &CStr, most: usize) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0_u8; most];
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        let (name, bytes) = (name.as_ptr(), value.as_mut_ptr().cast());
        // SAFETY: pointers of live values, and a buffer of this length.
        let length =
            outcome(unsafe { ceph_ll_getxattr(mount, self.as_ptr(), name, bytes, most, by) })?;
        value.truncate(length as usize);
        Ok(value)
    }

    /// Sets an extended attribute; flags as for setxattr(2).
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_xattr(
        &self,
        identity: &Identity,
        name: &CStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let (mount, by, own) = (self.mount.as_ptr(), identity.as_ptr(), self.as_ptr());
        let (name, bytes, length) = (name.as_ptr(), value.as_ptr().cast(), value.len());
        // SAFETY: pointers of live values, and a value of this length.
        outcome(unsafe { ceph_ll_setxattr(mount, own, name, bytes, length, flags, by) }).map(drop)
    }

    /// Names of extended attributes, each with a zero byte behind.
    ///
    /// # Errors
    /// As the kernel's; [`Errno::RANGE`]: they are longer than `most`.
    pub fn xattrs(&self, identity: &Identity, most: usize) -> Result<Vec<u8>, Errno> {
        let (mut names, mut length) = (vec![0_u8; most], 0);
        let (mount, by, own) = (self.mount.as_ptr(), identity.as_ptr(), self.as_ptr());
        let bytes = names.as_mut_ptr().cast();
        // SAFETY: pointers of live values, and a buffer of this length.
        outcome(unsafe { ceph_ll_listxattr(mount, own, bytes, most, &raw mut length, by) })?;
        names.truncate(length);
        Ok(names)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn remove_xattr(&self, identity: &Identity, name: &CStr) -> Result<(), Errno> {
        let (mount, by) = (self.mount.as_ptr(), identity.as_ptr());
        // SAFETY: pointers of live values.
        outcome(unsafe { ceph_ll_removexattr(mount, self.as_ptr(), name.as_ptr(), by) }).map(drop)
    }

    pub(super) fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    pub(super) fn as_ptr(&self) -> *mut RawInode {
        self.raw.as_ptr()
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        // SAFETY: it was counted for this value, which is its last use.
        unsafe { ceph_ll_put(self.mount.as_ptr(), self.as_ptr()) };
    }
}

impl AttributeChange {
    /// In the form of the library.
    fn encoded(&self) -> Result<(Statx, i32), Errno> {
        // SAFETY: all bit patterns of these numbers are valid.
        let mut set: Statx = unsafe { std::mem::zeroed() };
        let mut mask = 0;
        if let Some(mode) = self.mode {
            set.mode = u16::try_from(mode & 0o7777).map_err(|_| Errno::INVAL)?;
            mask |= SET_MODE;
        }
        if let Some(uid) = self.uid {
            (set.uid, mask) = (uid, mask | SET_UID);
        }
        if let Some(gid) = self.gid {
            (set.gid, mask) = (gid, mask | SET_GID);
        }
        if let Some(size) = self.size {
            (set.size, mask) = (size, mask | SET_SIZE);
        }
        if let Some(time) = self.accessed {
            (set.accessed, mask) = (timespec(time)?, mask | SET_ACCESSED);
        }
        if let Some(time) = self.modified {
            (set.modified, mask) = (timespec(time)?, mask | SET_MODIFIED);
        }
        Ok((set, mask))
    }
}

fn timespec(time: Time) -> Result<libc::timespec, Errno> {
    Ok(libc::timespec {
        tv_sec: i64::try_from(time.seconds).map_err(|_| Errno::INVAL)?,
        tv_nsec: i64::from(time.nanoseconds),
    })
}
