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

/// An object just opened.
pub(super) struct Opened {
    /// By which clients know it.
    pub handle: Handle,
    /// Opened as a path only.
    pub path: OwnedFd,
    /// As they were then.
    pub attributes: Attributes,
    /// Where it is.
    pub file_system: Arc<FileSystem>,
}

/// Opens an object by its handle. Needs the rights of the process itself, not of a caller.
///
/// # Errors
/// [`StoreError::Stale`] if there is no such object in the volume any more, or never was.
pub(super) fn open_handle(folder: &Folder, handle: &Handle) -> Result<Opened> {
    let (id, place) = handle::unpack(handle).ok_or(StoreError::Stale)?;
    if *handle == folder.root() {
        return finish(folder, *handle, root(folder)?, Arc::clone(folder.home()));
    }
    match place {
        HandleLocation::Kernel(kernel) => open_kernels(folder, handle, id, &kernel),
        HandleLocation::Remembered(key) => open_remembered(folder, handle, id, &key),
        // Of another folder.
        HandleLocation::Root => Err(StoreError::Stale),
    }
}

/// Opens an object by the kernel's handle, on whichever mount shows it inside of the folder.
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

/// Opens an object by the names that led to it.
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

/// Opens one name in a directory, which leads nowhere but there.
fn step(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let mut resolve = ResolveFlags::NO_MAGICLINKS;
    if folder.hides_mounts() {
        resolve |= ResolveFlags::NO_XDEV;
    }
    match rustix::fs::openat2(directory, name, PATH, Mode::empty(), resolve) {
        Ok(path) => Ok(path),
        // A mount that is to be hidden, where what it covers is out of reach.
        Err(Errno::XDEV) => Err(StoreError::Denied),
        Err(error) => Err(store_error(error)),
    }
}

/// Opens what a name in a directory stands for: the object itself, also if that is a symbolic link.
/// `.` and `..` are names; the root is its own parent. Runs with the rights of whoever asks: that
/// the directory may be searched is for the kernel to say.
///
/// # Errors
/// [`StoreError::Invalid`] for what is no name; [`StoreError::Stale`] if the directory is not in
/// the volume any more; what the kernel says.
pub(super) fn open_name(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Opened> {
    check_name(name)?;
    containment::require(folder, directory)?;
    // The parent of the root is outside. Elsewhere it is checked where this led: the directory may
    // be moved meanwhile.
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

/// As [`open_name`], of a name other than `..` in a directory that is known to be in the folder.
///
/// # Errors
/// What the kernel says.
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

/// Whether a directory that is open has been removed.
fn is_gone(directory: BorrowedFd<'_>) -> bool {
    stat(directory).is_ok_and(|found| found.stx_nlink == 0)
}

/// What is known of an object that was just made or found as `name` in a directory, and opened as a
/// path or otherwise.
///
/// # Errors
/// What the kernel says; [`StoreError::Stale`] if it is removed already.
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
            // Overlays have handles of some objects and not of others.
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                HandleLocation::Remembered(remember(folder, directory, name, path.as_fd())?)
            }
            Err(error) => return Err(store_error(error)),
        };
        handle::pack(file_system.id, &place)
    };
    complete(handle, path, attributes, file_system)
}

/// Tells that a name leads to an object that had another name before. Does nothing where the kernel
/// finds objects by itself.
pub(super) fn moved(folder: &Folder, directory: BorrowedFd<'_>, name: &[u8]) {
    let file_system = folder.file_system_of(directory);
    if file_system.is_ok_and(|there| !folder.uses_kernel_handles(&there))
        && let Ok(path) = step(folder, directory, name)
    {
        // What cannot be remembered is stale when it is closed.
        let _ = remember(folder, directory, name, path.as_fd());
    }
}

/// Remembers by which name an object was found.
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

/// Remembers all names that lead to a directory.
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
/// What the kernel says.
pub(super) fn attributes_of(folder: &Folder, object: BorrowedFd<'_>) -> Result<Attributes> {
    // Where other hosts change objects too it is their time that counts.
    let stat = rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    Ok(attributes(folder, &stat.map_err(store_error)?))
}

/// Refuses what is no name of one component (RFC 1813 section 3.2).
///
/// # Errors
/// [`StoreError::Invalid`].
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(StoreError::Invalid);
    }
    Ok(())
}

/// [`attributes_of`] what the kernel said.
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
        // The kernel tells its change cookie (STATX_CHANGE_COOKIE) to its own server only. Since
        // Linux 6.13 a change after a question has a time of its own on ext4, XFS, Btrfs and tmpfs;
        // elsewhere changes within one tick of the kernel's clock look like one.
        change: time(stat.stx_ctime).as_nanoseconds(),
    }
}

/// Asks what was opened for its attributes.
fn finish(
    folder: &Folder,
    handle: Handle,
    path: OwnedFd,
    file_system: Arc<FileSystem>,
) -> Result<Opened> {
    let attributes = attributes_of(folder, path.as_fd())?;
    complete(handle, path, attributes, file_system)
}

/// An object without a name is gone.
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

/// What it means that a handle does not open.
fn lost(error: Errno) -> StoreError {
    match error {
        // File systems say so of handles that they never made.
        Errno::INVAL | Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::OVERFLOW => {
            StoreError::Stale
        }
        other => store_error(other),
    }
}
