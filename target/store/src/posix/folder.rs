//! The folder of a volume: its file systems, and the resolution of handles and names.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::config::{Mounts, VolumeConfig};
use super::descriptor::{key_of, path_of};
use super::file_system::{FileSystem, kernel_handle, readable};
use super::handle::{self, HandleLocation, Key};
use super::mounts::{MountsBelow, mount_of};
use super::name_cache::NameCache;
use crate::{Handle, Properties};

/// One volume's folder.
pub(super) struct Folder {
    /// The folder in the host's tree of mounts.
    host: OwnedFd,
    /// Its path when that was queried last.
    last_path: ArcSwap<Vec<u8>>,
    /// The file system of the folder. Its mount is a private one of the folder alone, or the
    /// host's.
    home: Arc<FileSystem>,
    /// Whether the mount is private.
    own_mount: bool,
    root: Handle,
    /// The folder's key in [`NameCache`].
    key: Key,
    /// Part of the identities of its file systems.
    within: Vec<u8>,
    /// Whether kernel handles may be used.
    kernel_handles: bool,
    properties: Properties,
    /// What clients see of file systems mounted below.
    mounts: Mounts,
    below: MountsBelow,
    name_cache: NameCache,
}

impl Folder {
    /// The folder at the configured path now, and its real path. Blocks.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn find(config: &VolumeConfig) -> io::Result<(OwnedFd, PathBuf)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::openat(CWD, &config.root, flags, Mode::empty())?;
        // Only through /proc/self/fd does the kernel report the path of an object, and open its
        // data.
        let path = path_of(host.as_fd()).map_err(|error| {
            io::Error::other(format!(
                "/proc/self/fd is needed and cannot be read ({error})"
            ))
        })?;
        Ok((host, OsString::from_vec(path).into()))
    }

    /// Opens a folder found by `find`. Blocks.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn open(host: OwnedFd, config: &VolumeConfig, kernel_handles: bool) -> io::Result<Self> {
        let host = readable(host);
        let mount = match config.mounts {
            Mounts::Hide => own_mount(&host)?,
            Mounts::Cross => None,
        };
        let own_mount = mount.is_some();
        if !own_mount && config.mounts == Mounts::Hide {
            tracing::info!(
                "{}: this process may not make a private mount (CAP_SYS_ADMIN); mount points below \
                 the folder are refused",
                config.root.display()
            );
        }
        let mount = match mount {
            Some(mount) => readable(mount),
            None => rustix::io::fcntl_dupfd_cloexec(&host, 0)?,
        };
        let key = key_of(mount.as_fd())?;
        let kernel = match kernel_handles {
            true => kernel_handle(mount.as_fd())?,
            false => None,
        };
        // Distinguishes this folder from all others on its file system.
        let within = match &kernel {
            Some(handle) => handle.as_bytes().to_vec(),
            None => [key.inode.to_be_bytes(), key.born.0.to_be_bytes()].concat(),
        };
        let home = FileSystem::of(mount, &within, kernel_handles)?;
        if !home.kernel_handles && kernel_handles {
            tracing::warn!(
                "{}: the file system has no handles, or this process may not open them \
                 (CAP_DAC_READ_SEARCH); clients' handles end with the process",
                config.root.display()
            );
        }
        let place = kernel.map_or(HandleLocation::Root, HandleLocation::Kernel);
        Ok(Self {
            root: handle::pack(home.id, &place),
            properties: Properties {
                changes_elsewhere: !config.exclusive,
                ..home.properties()?
            },
            own_mount,
            key,
            within,
            kernel_handles,
            home: Arc::new(home),
            last_path: ArcSwap::from_pointee(path_of(host.as_fd())?),
            host,
            mounts: config.mounts,
            below: MountsBelow::default(),
            name_cache: NameCache::default(),
        })
    }

    /// The folder's own handle.
    pub fn root(&self) -> Handle {
        self.root
    }

    /// Limits and properties of its file system.
    pub fn properties(&self) -> Properties {
        self.properties
    }

    /// Whether file systems mounted below are hidden.
    pub fn hides_mounts(&self) -> bool {
        self.mounts == Mounts::Hide
    }

    /// The folder, in the mount used to open its objects.
    pub fn root_path(&self) -> BorrowedFd<'_> {
        self.home.mount.as_fd()
    }

    /// The folder in the host's tree of mounts.
    pub fn host_path(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }

    /// The path of the folder when that was queried last.
    pub fn last_path(&self) -> Guard<Arc<Vec<u8>>> {
        self.last_path.load()
    }

    /// Records its present path.
    pub fn note_path(&self, path: Vec<u8>) {
        self.last_path.store(Arc::new(path));
    }

    /// The file system of the folder.
    pub fn home(&self) -> &Arc<FileSystem> {
        &self.home
    }

    /// The file system of an object opened below the folder.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn file_system_of(&self, object: BorrowedFd<'_>) -> Result<Arc<FileSystem>, Errno> {
        let home = self.home();
        if self.mounts == Mounts::Hide {
            return Ok(Arc::clone(home));
        }
        let mount = mount_of(object)?;
        if mount == home.mount_id {
            return Ok(Arc::clone(home));
        }
        self.below.by_mount(self.host_path(), &self.within, mount)
    }

    /// The file systems below the folder with this identity, one for each of their mounts.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn file_systems_below(&self, id: u64) -> Result<Vec<Arc<FileSystem>>, Errno> {
        match self.mounts {
            Mounts::Hide => Ok(Vec::new()),
            Mounts::Cross => self.below.by_identity(self.host_path(), &self.within, id),
        }
    }

    /// Whether the folder is opened by a private mount, which shows nothing outside of it.
    pub fn has_own_mount(&self) -> bool {
        self.own_mount
    }

    /// The mounts below the folder.
    pub fn below(&self) -> &MountsBelow {
        &self.below
    }

    /// Whether kernel handles are used for a file system.
    pub fn uses_kernel_handles(&self, file_system: &FileSystem) -> bool {
        self.kernel_handles && file_system.kernel_handles
    }

    /// Finds objects that the kernel has no handles for.
    pub fn name_cache(&self) -> &NameCache {
        &self.name_cache
    }

    /// The folder's key in [`Folder::name_cache`].
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number in attributes of the file system with this device number.
    pub fn file_system_number(&self, device: u64) -> u64 {
        if device == self.key.device { 0 } else { device }
    }
}

/// A private mount of the folder alone, outside all mount trees: it contains no mounts below the
/// folder, and no path leads out of it. `None` without the privilege (CAP_SYS_ADMIN).
fn own_mount(folder: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    match rustix::mount::open_tree(folder, c"", flags) {
        Ok(mount) => Ok(Some(mount)),
        Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}
