//! Declarations of `cephfs/libcephfs.h` and `cephfs/ceph_ll_client.h` (soname 2). A test compiles
//! them against the installed header.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{dev_t, dirent, flock, gid_t, mode_t, statvfs, timespec, uid_t};

/// Declares types that are used by their addresses only.
macro_rules! opaque {
    ($($name:ident),+) => {
        $(
            #[repr(C)]
            pub struct $name {
                _bytes: [u8; 0],
                _marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
            }
        )+
    };
}

opaque!(RawMount, RawInode, RawFile, RawDirectory, RawIdentity);

/// `struct ceph_statx`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Statx {
    /// The fields that are filled.
    pub mask: u32,
    /// The preferred size of a transfer.
    pub block_size: u32,
    /// Names.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// The number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// The number of the snapshot.
    pub device: dev_t,
    /// The device of a device node.
    pub special: dev_t,
    /// Last access.
    pub accessed: timespec,
    /// Last change.
    pub changed: timespec,
    /// Last change of data.
    pub modified: timespec,
    /// Creation.
    pub born: timespec,
    /// A number that rises with each change.
    pub version: u64,
}

/// `struct inodeno_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InodeNumber {
    pub value: u64,
}

/// `CEPH_STATX_ALL_STATS`.
pub const ALL_STATS: c_uint = 0x1fff;
/// `AT_SYMLINK_NOFOLLOW`.
pub const NO_FOLLOW: c_uint = libc::AT_SYMLINK_NOFOLLOW as c_uint;

/// Bits of the mask of `ceph_ll_setattr`.
pub const SET_MODE: c_int = 1 << 0;
pub const SET_UID: c_int = 1 << 1;
pub const SET_GID: c_int = 1 << 2;
pub const SET_MODIFIED: c_int = 1 << 3;
pub const SET_ACCESSED: c_int = 1 << 4;
pub const SET_SIZE: c_int = 1 << 5;

/// `CEPH_DELEGATION_RD`.
pub const DELEGATION_READ: c_uint = 1;

/// `ceph_deleg_cb_t`: called with the open file and the value that was given with it.
pub type DelegationRecalled = unsafe extern "C" fn(*mut RawFile, *mut c_void);

/// `CEPH_RECLAIM_RESET`.
pub const RECLAIM_RESET: c_uint = 1;

#[link(name = "cephfs")]
unsafe extern "C" {
    pub fn ceph_create(mount: *mut *mut RawMount, user: *const c_char) -> c_int;
    pub fn ceph_conf_read_file(mount: *mut RawMount, path: *const c_char) -> c_int;
    pub fn ceph_conf_set(
        mount: *mut RawMount,
        option: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub fn ceph_conf_get(
        mount: *mut RawMount,
        option: *const c_char,
        value: *mut c_char,
        room: usize,
    ) -> c_int;
    pub fn ceph_init(mount: *mut RawMount) -> c_int;
    pub fn ceph_select_filesystem(mount: *mut RawMount, name: *const c_char) -> c_int;
    pub fn ceph_set_mount_timeout(mount: *mut RawMount, seconds: u32) -> c_int;
    pub fn ceph_set_session_timeout(mount: *mut RawMount, seconds: c_uint);
    pub fn ceph_set_uuid(mount: *mut RawMount, uuid: *const c_char);
    pub fn ceph_start_reclaim(mount: *mut RawMount, uuid: *const c_char, flags: c_uint) -> c_int;
    pub fn ceph_finish_reclaim(mount: *mut RawMount);
    pub fn ceph_mount(mount: *mut RawMount, root: *const c_char) -> c_int;
    pub fn ceph_unmount(mount: *mut RawMount) -> c_int;
    pub fn ceph_abort_conn(mount: *mut RawMount) -> c_int;
    pub fn ceph_release(mount: *mut RawMount) -> c_int;
    pub fn ceph_umask(mount: *mut RawMount, mask: mode_t) -> mode_t;
    pub fn ceph_get_fs_cid(mount: *mut RawMount) -> i64;
    pub fn ceph_get_cap_return_timeout(mount: *mut RawMount) -> u32;
    pub fn ceph_set_deleg_timeout(mount: *mut RawMount, seconds: u32) -> c_int;
    pub fn ceph_ll_delegation(
        mount: *mut RawMount,
        file: *mut RawFile,
        command: c_uint,
        recalled: DelegationRecalled,
        value: *mut c_void,
    ) -> c_int;

    pub fn ceph_userperm_new(
        uid: uid_t,
        gid: gid_t,
        count: c_int,
        groups: *mut gid_t,
    ) -> *mut RawIdentity;
    pub fn ceph_userperm_destroy(identity: *mut RawIdentity);

    pub fn ceph_ll_lookup_root(mount: *mut RawMount, out: *mut *mut RawInode) -> c_int;
    pub fn ceph_ll_lookup_inode(
        mount: *mut RawMount,
        number: InodeNumber,
        out: *mut *mut RawInode,
    ) -> c_int;
    pub fn ceph_ll_lookup(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        out: *mut *mut RawInode,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_put(mount: *mut RawMount, inode: *mut RawInode) -> c_int;
    pub fn ceph_ll_getattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_setattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        set: *mut Statx,
        mask: c_int,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_sync_inode(
        mount: *mut RawMount,
        inode: *mut RawInode,
        data_only: c_int,
    ) -> c_int;
    pub fn ceph_ll_readlink(
        mount: *mut RawMount,
        inode: *mut RawInode,
        text: *mut c_char,
        length: usize,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_statfs(mount: *mut RawMount, inode: *mut RawInode, found: *mut statvfs)
    -> c_int;
    pub fn ceph_ll_getxattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        name: *const c_char,
        value: *mut c_void,
        length: usize,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_setxattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        name: *const c_char,
        value: *const c_void,
        length: usize,
        flags: c_int,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_listxattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        names: *mut c_char,
        length: usize,
        found: *mut usize,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_removexattr(
        mount: *mut RawMount,
        inode: *mut RawInode,
        name: *const c_char,
        identity: *const RawIdentity,
    ) -> c_int;

    pub fn ceph_ll_create(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        mode: mode_t,
        open_flags: c_int,
        out: *mut *mut RawInode,
        file: *mut *mut RawFile,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_mkdir(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        mode: mode_t,
        out: *mut *mut RawInode,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_symlink(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        text: *const c_char,
        out: *mut *mut RawInode,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_mknod(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        mode: mode_t,
        device: dev_t,
        out: *mut *mut RawInode,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_link(
        mount: *mut RawMount,
        inode: *mut RawInode,
        parent: *mut RawInode,
        name: *const c_char,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_unlink(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_rmdir(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_rename(
        mount: *mut RawMount,
        parent: *mut RawInode,
        name: *const c_char,
        new_parent: *mut RawInode,
        new_name: *const c_char,
        identity: *const RawIdentity,
    ) -> c_int;

    pub fn ceph_ll_opendir(
        mount: *mut RawMount,
        inode: *mut RawInode,
        out: *mut *mut RawDirectory,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_releasedir(mount: *mut RawMount, directory: *mut RawDirectory) -> c_int;
    pub fn ceph_seekdir(mount: *mut RawMount, directory: *mut RawDirectory, offset: i64);
    pub fn ceph_readdirplus_r(
        mount: *mut RawMount,
        directory: *mut RawDirectory,
        entry: *mut dirent,
        found: *mut Statx,
        want: c_uint,
        flags: c_uint,
        out: *mut *mut RawInode,
    ) -> c_int;

    pub fn ceph_ll_open(
        mount: *mut RawMount,
        inode: *mut RawInode,
        flags: c_int,
        out: *mut *mut RawFile,
        identity: *const RawIdentity,
    ) -> c_int;
    pub fn ceph_ll_close(mount: *mut RawMount, file: *mut RawFile) -> c_int;
    pub fn ceph_ll_read(
        mount: *mut RawMount,
        file: *mut RawFile,
        offset: i64,
        length: u64,
        bytes: *mut c_char,
    ) -> c_int;
    pub fn ceph_ll_write(
        mount: *mut RawMount,
        file: *mut RawFile,
        offset: i64,
        length: u64,
        bytes: *const c_char,
    ) -> c_int;
    pub fn ceph_ll_fsync(mount: *mut RawMount, file: *mut RawFile, data_only: c_int) -> c_int;
    pub fn ceph_ll_fallocate(
        mount: *mut RawMount,
        file: *mut RawFile,
        mode: c_int,
        offset: i64,
        length: i64,
    ) -> c_int;
    pub fn ceph_ll_getlk(
        mount: *mut RawMount,
        file: *mut RawFile,
        lock: *mut flock,
        owner: u64,
    ) -> c_int;
    pub fn ceph_ll_setlk(
        mount: *mut RawMount,
        file: *mut RawFile,
        lock: *mut flock,
        owner: u64,
        waits: c_int,
    ) -> c_int;
}
