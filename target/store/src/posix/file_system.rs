//! A file system of a volume: its identity and features.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FsWord, Mode, OFlags};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::mounts::mount_of;
use super::sys::handles;
use crate::Properties;

/// `f_type` of statfs(2).
const EXT4: FsWord = 0xef53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683e;
const TMPFS: FsWord = 0x0102_1994;
const F2FS: FsWord = 0xf2f5_2010;

/// A file system that a volume serves from, by one of its mounts.
pub(super) struct FileSystem {
    /// Its identity in handles.
    pub id: u64,
    /// The mount by which its objects are opened.
    pub mount: OwnedFd,
    /// The kernel's number of that mount.
    pub mount_id: u64,
    /// Whether querying attributes may take long: over a network or from another process.
    pub slow: bool,
    /// Whether it is in memory, and this host swaps nothing out: reads never wait.
    pub in_memory: bool,
    /// Whether the kernel has file handles for its objects.
    pub kernel_handles: bool,
}

impl FileSystem {
    /// The file system of a directory. `within` is part of its identity: the same file system in
    /// two exports has two identities, so that handles of one are not valid in the other. Without
    /// `kernel_handles` it is served as if the kernel had none.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn of(mount: OwnedFd, within: &[u8], kernel_handles: bool) -> Result<Self, Errno> {
        let kind = rustix::fs::fstatfs(&mount)?.f_type;
        let space = rustix::fs::fstatvfs(&mount)?;
        // Querying the UUID needs an open directory. If it cannot be opened, such as a folder that
        // only others may read, the kernel's number is used.
        let uuid = handles::uuid_of(mount.as_fd());
        // ext4 computes its `f_fsid` from its UUID in the same way, so the number does not change
        // with a kernel that reports the UUID itself.
        let own = uuid.map_or(space.f_fsid, |uuid| {
            let (words, _) = uuid.as_chunks::<8>();
            words
                .iter()
                .fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
        });
        Ok(Self {
            id: mix(&own.to_be_bytes(), within),
            mount_id: mount_of(mount.as_fd())?,
            kernel_handles: kernel_handles && kernel_handle(mount.as_fd())?.is_some(),
            mount,
            slow: !matches!(kind, EXT4 | XFS | BTRFS | TMPFS | F2FS),
            in_memory: kind == TMPFS && rustix::system::sysinfo().totalswap == 0,
        })
    }

    /// Its limits, for the root of a volume.
    pub fn properties(&self) -> Result<Properties, Errno> {
        let kind = rustix::fs::fstatfs(&self.mount)?.f_type;
        let space = rustix::fs::fstatvfs(&self.mount)?;
        Ok(Properties {
            name_max: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
            // No system call reports these two; the C library derives them from the type of file
            // system too.
            links_max: match kind {
                EXT4 => 65_000,
                BTRFS => 65_535,
                XFS | TMPFS => i32::MAX as u32,
                _ => 32_000,
            },
            size_max: match kind {
                EXT4 => u64::from(u32::MAX) * space.f_bsize,
                _ => i64::MAX as u64,
            },
            file_system: 0,
            clone_block: clone_block(&self.mount, space.f_bsize),
            xattrs: has_xattrs(self.mount.as_fd()),
            access_lists: has_access_lists(self.mount.as_fd()),
            counts_changes: false,
            changes_elsewhere: true,
            shared_by_servers: false,
            leases: false,
        })
    }
}

/// The unit of shared storage, if files below a directory can share it: tried on two files without
/// a name.
fn clone_block(directory: &OwnedFd, block: u64) -> Option<u32> {
    let open = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR)
    };
    let (one, other) = (open().ok()?, open().ok()?);
    rustix::fs::ioctl_ficlone(one, other).ok()?;
    u32::try_from(block).ok()
}

/// Whether objects have extended attributes of users.
fn has_xattrs(directory: BorrowedFd<'_>) -> bool {
    let asked = rustix::fs::getxattr(proc_path(directory), c"user.millrace", &mut [0; 1][..]);
    !matches!(asked, Err(Errno::OPNOTSUPP))
}

/// Whether objects of the file system have access control lists.
fn has_access_lists(directory: BorrowedFd<'_>) -> bool {
    let name = c"system.posix_acl_access";
    let asked = rustix::fs::getxattr(proc_path(directory), name, &mut [0; 1][..]);
    !matches!(asked, Err(Errno::OPNOTSUPP))
}

/// A directory opened for reading if permitted: only then it can be used to open handles.
pub(super) fn readable(path: OwnedFd) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&path, c".", flags, Mode::empty()).unwrap_or(path)
}

/// A directory's handle if its file system has handles and the kernel lets this process open them.
///
/// # Errors
/// Other errors of the kernel.
pub(super) fn kernel_handle(
    directory: BorrowedFd<'_>,
) -> Result<Option<handles::KernelHandle>, Errno> {
    let opened = handles::handle_of(directory).and_then(|handle| {
        handles::open_by_handle(directory, &handle, super::descriptor::PATH)?;
        Ok(handle)
    });
    match opened {
        Ok(handle) => Ok(Some(handle)),
        // No support; handles too long; not permitted; no file system object, but a path only.
        Err(
            Errno::OPNOTSUPP
            | Errno::OVERFLOW
            | Errno::NOSYS
            | Errno::PERM
            | Errno::STALE
            | Errno::BADF,
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// FNV-1a. It is not resistant to chosen collisions: handles are protected by a tag above.
fn mix(first: &[u8], second: &[u8]) -> u64 {
    let bytes = first.iter().chain(second);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
