//! Opening objects by handle and by name. All of this may block: it runs in jobs of helpers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::errors::store_error;
use super::file_system::FileSystem;
use super::handle::{self, Key, Place};
use super::inside;
use super::sys::handles::{self, KernelHandle};
use super::volume::{Mounts, Volume};
use crate::{Attributes, Handle, Kind, Result, SpecialKind, StoreError, Time};

/// How objects are opened: as names for system calls, without access to their data, and never
/// through a symbolic link.
pub(super) const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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
pub(super) fn open_handle(volume: &Volume, handle: &Handle) -> Result<Opened> {
    let (id, place) = handle::unpack(handle).ok_or(StoreError::Stale)?;
    if *handle == volume.root() {
        return finish(volume, *handle, root(volume)?, Arc::clone(volume.home()));
    }
    match place {
        Place::Kernel(kernel) => open_kernels(volume, handle, id, &kernel),
        Place::Remembered(key) => open_remembered(volume, handle, id, &key),
        // Of another folder.
        Place::Root => Err(StoreError::Stale),
    }
}

/// Opens an object by the kernel's handle, on whichever mount shows it inside of the folder.
fn open_kernels(
    volume: &Volume,
    handle: &Handle,
    id: u64,
    kernel: &KernelHandle,
) -> Result<Opened> {
    let open = |file_system: &Arc<FileSystem>| {
        if !volume.uses_kernel_handles(file_system) {
            return Err(StoreError::Stale);
        }
        let path = handles::open_by_handle(file_system.mount.as_fd(), kernel, PATH);
        let opened = finish(
            volume,
            *handle,
            path.map_err(lost)?,
            Arc::clone(file_system),
        )?;
        if inside::holds(volume, &opened, kernel)? {
            Ok(opened)
        } else {
            Err(StoreError::Stale)
        }
    };
    if volume.home().id == id {
        match open(volume.home()) {
            Err(StoreError::Stale) => {}
            outcome => return outcome,
        }
    }
    for file_system in volume.file_systems_below(id).map_err(lost)? {
        match open(&file_system) {
            Err(StoreError::Stale) => {}
            outcome => return outcome,
        }
    }
    Err(StoreError::Stale)
}

/// Opens an object by the names that led to it.
fn open_remembered(volume: &Volume, handle: &Handle, id: u64, key: &Key) -> Result<Opened> {
    let remembered = volume.remembered();
    let way = remembered.way(volume.key(), key).ok_or(StoreError::Stale)?;
    let walk = || {
        let mut here = root(volume)?;
        for name in &way {
            here = step(volume, here.as_fd(), name)?;
        }
        if key_of(here.as_fd()).map_err(lost)? == *key {
            Ok(here)
        } else {
            Err(StoreError::Stale)
        }
    };
    let path = match walk() {
        Err(StoreError::NotFound | StoreError::NotDirectory | StoreError::Stale) => {
            remembered.forget(key);
            return Err(StoreError::Stale);
        }
        outcome => outcome?,
    };
    let file_system = volume.file_system_of(path.as_fd()).map_err(lost)?;
    if file_system.id != id {
        return Err(StoreError::Stale);
    }
    finish(volume, *handle, path, file_system)
}

/// The folder, opened as a path only.
fn root(volume: &Volume) -> Result<OwnedFd> {
    rustix::fs::openat(volume.root_path(), c".", PATH, Mode::empty()).map_err(lost)
}

/// Opens one name in a directory, which leads nowhere but there.
fn step(volume: &Volume, directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let mut resolve = ResolveFlags::NO_MAGICLINKS;
    if volume.config().mounts == Mounts::Hide {
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
pub(super) fn open_name(volume: &Volume, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Opened> {
    check_name(name)?;
    inside::require(volume, directory)?;
    // The parent of the root is outside. Elsewhere it is checked where this led: the directory may
    // be moved meanwhile.
    let up = name == b"..";
    let name: &[u8] = if up && inside::is_root(volume, directory)? {
        b"."
    } else {
        name
    };
    if up {
        let path = step(volume, directory, name)?;
        if is_gone(directory) {
            return Err(StoreError::Stale);
        }
        inside::require(volume, path.as_fd())?;
        opened_of(volume, directory, name, path)
    } else {
        open_entry(volume, directory, name)
    }
}

/// As [`open_name`], of a name other than `..` in a directory that is known to be in the volume.
///
/// # Errors
/// What the kernel says.
pub(super) fn open_entry(
    volume: &Volume,
    directory: BorrowedFd<'_>,
    name: &[u8],
) -> Result<Opened> {
    let path = match step(volume, directory, name) {
        Err(StoreError::NotFound) if is_gone(directory) => return Err(StoreError::Stale),
        outcome => outcome?,
    };
    opened_of(volume, directory, name, path)
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
    volume: &Volume,
    directory: BorrowedFd<'_>,
    name: &[u8],
    path: OwnedFd,
) -> Result<Opened> {
    let file_system = volume.file_system_of(path.as_fd()).map_err(lost)?;
    let attributes = attributes_of(volume, path.as_fd())?;
    let root = attributes.file_system == 0 && attributes.inode == volume.key().inode;
    let handle = if root {
        volume.root()
    } else {
        let kernel = match volume.uses_kernel_handles(&file_system) {
            true => handles::handle_of(path.as_fd()),
            false => Err(Errno::OPNOTSUPP),
        };
        let place = match kernel {
            Ok(kernel) => Place::Kernel(kernel),
            // Overlays have handles of some objects and not of others.
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {
                Place::Remembered(remember(volume, directory, name, path.as_fd())?)
            }
            Err(error) => return Err(store_error(error)),
        };
        handle::pack(file_system.id, &place)
    };
    complete(handle, path, attributes, file_system)
}

/// Tells that a name leads to an object that had another name before. Does nothing where the kernel
/// finds objects by itself.
pub(super) fn moved(volume: &Volume, directory: BorrowedFd<'_>, name: &[u8]) {
    let file_system = volume.file_system_of(directory);
    if file_system.is_ok_and(|there| !volume.uses_kernel_handles(&there))
        && let Ok(path) = step(volume, directory, name)
    {
        // What cannot be remembered is stale when it is closed.
        let _ = remember(volume, directory, name, path.as_fd());
    }
}

/// Remembers by which name an object was found.
fn remember(
    volume: &Volume,
    directory: BorrowedFd<'_>,
    name: &[u8],
    object: BorrowedFd<'_>,
) -> Result<Key> {
    let remembered = volume.remembered();
    let key = key_of(object).map_err(store_error)?;
    if name == b"." || name == b".." {
        if !remembered.knows(&key) {
            learn(volume, object)?;
        }
        return Ok(key);
    }
    let parent = key_of(directory).map_err(store_error)?;
    if parent != *volume.key() && !remembered.knows(&parent) {
        learn(volume, directory)?;
    }
    remembered.put(key, parent, name);
    Ok(key)
}

/// Remembers all names that lead to a directory.
fn learn(volume: &Volume, directory: BorrowedFd<'_>) -> Result<()> {
    let names = inside::way_to(volume, directory)?;
    let mut here = root(volume)?;
    for name in names {
        let next = step(volume, here.as_fd(), &name)?;
        let keys = [next.as_fd(), here.as_fd()].map(key_of);
        let [Ok(key), Ok(parent)] = keys else {
            return Err(StoreError::Stale);
        };
        volume.remembered().put(key, parent, &name);
        here = next;
    }
    Ok(())
}

/// What tells an object from others where the kernel has no handles.
///
/// # Errors
/// What the kernel says.
pub(super) fn key_of(object: BorrowedFd<'_>) -> std::result::Result<Key, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(object, c"", flags, wanted)?;
    let known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(Key {
        device: device_of(&stat),
        inode: stat.stx_ino,
        born: if known {
            (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
        } else {
            (0, 0)
        },
    })
}

/// An object's attributes.
///
/// # Errors
/// What the kernel says.
pub(super) fn attributes_of(volume: &Volume, object: BorrowedFd<'_>) -> Result<Attributes> {
    // Where other hosts change objects too it is their time that counts.
    let stat = rustix::fs::statx(object, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    Ok(attributes(volume, &stat.map_err(store_error)?))
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

/// What the kernel knows of an object without asking anybody else.
pub(super) fn stat(object: BorrowedFd<'_>) -> std::result::Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(object, c"", flags, StatxFlags::BASIC_STATS)
}

/// [`attributes_of`] what the kernel said.
pub(super) fn attributes(volume: &Volume, stat: &Statx) -> Attributes {
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
        file_system: volume.file_system_number(device_of(stat)),
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
    }
}

/// The device number of the file system that an object is on.
pub(super) fn device_of(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Asks what was opened for its attributes.
fn finish(
    volume: &Volume,
    handle: Handle,
    path: OwnedFd,
    file_system: Arc<FileSystem>,
) -> Result<Opened> {
    let attributes = attributes_of(volume, path.as_fd())?;
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
