//! Opening objects by handle and by name. All of this may block: it runs in jobs of helpers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::containment;
use super::descriptor::{PATH, device_of, key_of, stat};
use super::errors::store_error;
use super::file_system::FileSystem;
use super::folder::Folder;
use super::handle::{self, HandleLocation, Key};
use super::sys::handles::{self, KernelHandle};
use crate::{Attributes, Handle, Kind, Result, SpecialKind, StoreError, Time};

/// A newly opened object.
pub(super) struct Opened {
    /// Its handle for clients.
    pub handle: Handle,
    /// Opened as a path only.
    pub path: OwnedFd,
    /// Its attributes when it was opened.
    pub attributes: Attributes,
    /// Its file system.
    pub file_system: Arc<FileSystem>,
}

/// Opens an object by its handle. Needs the rights of the process itself, not of a caller.
///
/// # Errors
/// [`StoreError::Stale`] if there is no such object in the volume.
pub(super) fn open_handle(folder: &Folder, handle: &Handle) -> Result<Opened> {
    let (id, place) = handle::unpack(handle).ok_or(StoreError::Stale)?;
    if *handle == folder.root() {
        return finish(folder, *handle, root(folder)?, Arc::clone(folder.home()));
    }
    match place {
        HandleLocation::Kernel(kernel) => open_kernels(folder, handle, id, &kernel),
        HandleLocation::Remembered(key) => open_remembered(folder, handle, id, &key),
        // A handle of another folder.
        HandleLocation::Root => Err(StoreError::Stale),
    }
}

/// Opens an object by the kernel's handle, in the mount that shows it inside of the folder.
fn open_kernels(
    folder: &Folder,
    handle: &Handle,
    id: u64,
    kernel: &KernelHandle,
) -> Result<Opened> {
    let open = |file_system: &Arc<FileSystem>| {
        if !folder.uses_kernel_handles(file_system) {
            return Err(StoreError::Stale);
        }
        let path = handles::open_by_handle(file_system.mount.as_fd(), kernel, PATH);
        let opened = finish(
            folder,
            *handle,
            path.map_err(lost)?,
            Arc::clone(file_system),
        )?;
        if containment::holds(folder, opened.path.as_fd(), &opened.attributes, kernel)? {
            Ok(opened)
        } else {
            Err(StoreError::Stale)
        }
    };
    if folder.home().id == id {
        match open(folder.home()) {
            Err(StoreError::Stale) => {}
            outcome => return outcome,
        }
    }
    for file_system in folder.file_systems_below(id).map_err(lost)? {
        match open(&file_system) {
            Err(StoreError::Stale) => {}
            outcome => return outcome,
        }
    }
    Err(StoreError::Stale)
}

/// Opens an object by the names in the cache.
fn open_remembered(folder: &Folder, handle: &Handle, id: u64, key: &Key) -> Result<Opened> {
    let names = folder.name_cache();
    let way = names.way(folder.key(), key).ok_or(StoreError::Stale)?;
    let walk = || {
        let mut here = root(folder)?;
        for name in &way {
            here = step(folder, here.as_fd(), name)?;
        }
        if key_of(here.as_fd()).map_err(lost)? == *key {
            Ok(here)
        } else {
            Err(StoreError::Stale)
        }
    };
    let path = match walk() {
        Err(StoreError::NotFound | StoreError::NotDirectory | StoreError::Stale) => {
            names.forget(key);
            return Err(StoreError::Stale);
        }
        outcome => outcome?,
    };
    let file_system = folder.file_system_of(path.as_fd()).map_err(lost)?;
    if file_system.id != id {
        return Err(StoreError::Stale);
    }
    finish(folder, *handle, path, file_system)
}

/// The folder, opened as a path only.
fn root(folder: &Folder) -> Result<OwnedFd> {
    rustix::fs::openat(folder.root_path(), c".", PATH, Mode::empty()).map_err(lost)
}

/// Opens one name in a directory, without following links.
fn step(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let mut resolve = ResolveFlags::NO_MAGICLINKS;
    if folder.hides_mounts() {
        resolve |= ResolveFlags::NO_XDEV;
    }
    match rustix::fs::openat2(directory, name, PATH, Mode::empty(), resolve) {
        Ok(path) => Ok(path),
        // A hidden mount, where the covered folder is not accessible.
        Err(Errno::XDEV) => Err(StoreError::Denied),
        Err(error) => Err(store_error(error)),
    }
}

/// Opens the object of a name in a directory: the object itself, also if it is a symbolic link. `.`
/// and `..` are permitted; the root is its own parent. Runs with the caller's rights: the kernel
/// checks search permission of the directory.
///
/// # Errors
/// [`StoreError::Invalid`] for an invalid name; [`StoreError::Stale`] if the directory is no longer
/// in the volume; errors of the kernel.
pub(super) fn open_name(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Opened> {
    check_name(name)?;
    containment::require(folder, directory)?;
    // The parent of the root is outside. For other directories the result is checked: they may be
    // moved in the meantime.
    let up = name == b"..";
    let name: &[u8] = if up && containment::is_root(folder, directory)? {
        b"."
    } else {
        name
    };
    if up {
        let path = step(folder, directory, name)?;
        if is_gone(directory) {
            return Err(StoreError::Stale);
        }
        containment::require(folder, path.as_fd())?;
        opened_of(folder, directory, name, path)
    } else {
        open_entry(folder, directory, name)
    }
}

/// As [`open_name`], for a name other than `..` in a directory known to be in the folder.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn open_entry(
    folder: &Folder,
    directory: BorrowedFd<'_>,
    name: &[u8],
) -> Result<Opened> {
    let path = match step(folder, directory, name) {
        Err(StoreError::NotFound) if is_gone(directory) => return Err(StoreError::Stale),
        outcome => outcome?,
    };
    opened_of(folder, directory, name, path)
}

/// As [`step`] for a name other than `..`, on a thread that must not block: the kernel has the name
/// in memory, and the object is in the same mount. `None` if not, or for another answer than that
/// the name does not exist.
pub(super) fn step_in_memory(directory: BorrowedFd<'_>, name: &[u8]) -> Option<Result<OwnedFd>> {
    let resolve = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
    match rustix::fs::openat2(directory, name, PATH, Mode::empty(), resolve) {
        Ok(path) => Some(Ok(path)),
        // A directory that was removed has no names in memory.
        Err(Errno::NOENT) => Some(Err(StoreError::NotFound)),
        Err(_) => None,
    }
}

/// Whether an open directory has been removed.
fn is_gone(directory: BorrowedFd<'_>) -> bool {
    stat(directory).is_ok_and(|found| found.stx_nlink == 0)
}

/// Attributes and handle of an object that was just made or found as `name` in a directory, and
/// opened as a path or otherwise.
///
/// # Errors
/// Errors of the kernel; [`StoreError::Stale`] if it is already removed.
pub(super) fn opened_of(
    folder: &Folder,
    directory: BorrowedFd<'_>,
    name: &[u8],
    path: OwnedFd,
) -> Result<Opened> {
    let file_system = folder.file_system_of(path.as_fd()).map_err(lost)?;
    let attributes = attributes_of(folder, path.as_fd())?;
    let root = attributes.file_system == 0 && attributes.inode == folder.key().inode;
    let handle = if root {
        folder.root()
    } else {
        let kernel = match folder.uses_kernel_handles(&file_system) {
            true => handles::handle_of(path.as_fd()),
            false => Err(Errno::OPNOTSUPP),
        };
        let place = match kernel {
            Ok(kernel) => HandleLocation::Kernel(kernel),
            // Overlays have handles for some objects only.
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                HandleLocation::Remembered(remember(folder, directory, name, path.as_fd())?)
            }
            Err(error) => return Err(store_error(error)),
        };
        handle::pack(file_system.id, &place)
    };
    complete(handle, path, attributes, file_system)
}

/// Records a new name of an object that had another one before. Does nothing if the kernel has
/// handles.
pub(super) fn moved(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) {
    let file_system = folder.file_system_of(directory);
    if file_system.is_ok_and(|there| !folder.uses_kernel_handles(&there))
        && let Ok(path) = step(folder, directory, name)
    {
        // An object that cannot be cached is stale when it is closed.
        let _ = remember(folder, directory, name, path.as_fd());
    }
}

/// Caches the name by which an object was found.
fn remember(
    folder: &Folder,
    directory: BorrowedFd<'_>,
    name: &[u8],
    object: BorrowedFd<'_>,
) -> Result<Key> {
    let names = folder.name_cache();
    let key = key_of(object).map_err(store_error)?;
    if name == b"." || name == b".." {
        if !names.knows(&key) {
            learn(folder, object)?;
        }
        return Ok(key);
    }
    let parent = key_of(directory).map_err(store_error)?;
    if parent != *folder.key() && !names.knows(&parent) {
        learn(folder, directory)?;
    }
    names.put(key, parent, name);
    Ok(key)
}

/// Caches all names that lead to a directory.
fn learn(folder: &Folder, directory: BorrowedFd<'_>) -> Result<()> {
    let names = containment::way_to(folder, directory)?;
    let mut here = root(folder)?;
    for name in names {
        let next = step(folder, here.as_fd(), &name)?;
        let keys = [next.as_fd(), here.as_fd()].map(key_of);
        let [Ok(key), Ok(parent)] = keys else {
            return Err(StoreError::Stale);
        };
        folder.name_cache().put(key, parent, &name);
        here = next;
    }
    Ok(())
}

/// An object's attributes.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn attributes_of(folder: &Folder, object: BorrowedFd<'_>) -> Result<Attributes> {
    // If other hosts change objects too, their clock determines the times.
    let stat = rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    Ok(attributes(folder, &stat.map_err(store_error)?))
}

/// Refuses an invalid name of one component (RFC 1813 section 3.2).
///
/// # Errors
/// [`StoreError::Invalid`].
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

/// [`attributes_of`] for an answer of the kernel.
pub(super) fn attributes(folder: &Folder, stat: &Statx) -> Attributes {
    let mode = u32::from(stat.stx_mode);
    let device = (stat.stx_rdev_major, stat.stx_rdev_minor);
    let time = |time: rustix::fs::StatxTimestamp| Time {
        seconds: u64::try_from(time.tv_sec).unwrap_or(0),
        nanoseconds: time.tv_nsec,
    };
    Attributes {
        kind: match FileType::from_raw_mode(mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::BlockDevice => Kind::Special(SpecialKind::Block(device.0, device.1)),
            FileType::CharacterDevice => Kind::Special(SpecialKind::Character(device.0, device.1)),
            FileType::Fifo => Kind::Special(SpecialKind::Fifo),
            FileType::Socket => Kind::Special(SpecialKind::Socket),
            FileType::RegularFile | FileType::Unknown => Kind::File,
        },
        mode: mode & 0o7777,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        inode: stat.stx_ino,
        file_system: folder.file_system_number(device_of(stat)),
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
        // The kernel reports its change cookie (STATX_CHANGE_COOKIE) to its own server only. Since
        // Linux 6.13 a change after a query has a distinct time on ext4, XFS, Btrfs and tmpfs;
        // elsewhere changes within one tick of the kernel's clock are not distinguished.
        change: time(stat.stx_ctime).as_nanoseconds(),
    }
}

/// Queries the attributes of an opened object.
fn finish(
    folder: &Folder,
    handle: Handle,
    path: OwnedFd,
    file_system: Arc<FileSystem>,
) -> Result<Opened> {
    let attributes = attributes_of(folder, path.as_fd())?;
    complete(handle, path, attributes, file_system)
}

/// An object without a name is removed.
fn complete(
    handle: Handle,
    path: OwnedFd,
    attributes: Attributes,
    file_system: Arc<FileSystem>,
) -> Result<Opened> {
    if attributes.links == 0 {
        return Err(StoreError::Stale);
    }
    Ok(Opened {
        handle,
        path,
        attributes,
        file_system,
    })
}

/// The error for a handle that does not open.
fn lost(error: Errno) -> StoreError {
    match error {
        // File systems answer this for handles that they never made.
        Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::OVERFLOW => {
            StoreError::Stale
        }
        other => store_error(other),
    }
}
