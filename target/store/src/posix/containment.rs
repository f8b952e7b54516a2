//! Checks that objects are inside the exported folder.
//!
//! Names cannot lead outside: they are looked up one by one, and links are never followed. But
//! other processes may move a directory out of the folder while a client has its handle, and a
//! forged handle may name an object that never was inside. So before each look-up or change in a
//! directory, the kernel is queried for the directory's path in the mount.
//!
//! An object that is not a directory may have several names, all of them possibly unknown to the
//! kernel, so this check covers few of them. The others are protected by the tag of file handles,
//! which covers the export, as in every NFS server whose handles stay valid after renames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::descriptor::{PATH, device_of, path_of, stat};
use super::errors::store_error;
use super::folder::Folder;
use super::sys::handles::{self, KernelHandle};
use crate::{Attributes, Kind, Result, StoreError};

/// The most directories to climb if a path is too long for the kernel.
const DEEPEST: usize = 16_384;

/// The position of an object, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectLocation {
    /// It is the folder itself.
    Root,
    /// Below it.
    Below,
    /// It has a name elsewhere.
    Outside,
    /// It has no name known to the kernel, or one outside of the mount.
    Unknown,
}

/// Checks that a directory is the folder or below it.
///
/// # Errors
/// [`StoreError::Stale`] if it is not.
pub(super) fn require(folder: &Folder, directory: BorrowedFd<'_>) -> Result<()> {
    match place(folder, directory) {
        Ok(ObjectLocation::Root | ObjectLocation::Below) => Ok(()),
        Ok(ObjectLocation::Outside | ObjectLocation::Unknown) => Err(StoreError::Stale),
        Err(Errno::NAMETOOLONG) => climb(folder, directory),
        Err(error) => Err(store_error(error)),
    }
}

/// Whether a directory is known to be the folder or below it, on a thread that must not block.
pub(super) fn is_known_inside(folder: &Folder, directory: BorrowedFd<'_>) -> bool {
    let place = place(folder, directory);
    matches!(place, Ok(ObjectLocation::Root | ObjectLocation::Below))
}

/// Whether an object opened by a handle belongs to the folder.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn holds(
    folder: &Folder,
    object: BorrowedFd<'_>,
    attributes: &Attributes,
    kernel: &KernelHandle,
) -> Result<bool> {
    if attributes.kind == Kind::Directory {
        return match require(folder, object) {
            Ok(()) => Ok(true),
            Err(StoreError::Stale) => Ok(false),
            Err(error) => Err(error),
        };
    }
    // With several names it may be inside by another one than the kernel reports.
    if attributes.links != 1 {
        return Ok(true);
    }
    let found = match place(folder, object) {
        // The private mount of the folder shows nothing outside of it. The host's mount may.
        Ok(ObjectLocation::Unknown) if folder.has_own_mount() => {
            match handles::open_by_handle(folder.host_path(), kernel, PATH) {
                Ok(again) => place_on_host(folder, again.as_fd()),
                Err(error) => Err(error),
            }
        }
        other => other,
    };
    match found {
        Ok(ObjectLocation::Outside) => Ok(false),
        Ok(_) | Err(Errno::NAMETOOLONG) => Ok(true),
        Err(error) => Err(store_error(error)),
    }
}

/// Whether an object is the folder itself.
///
/// Errors of the kernel.
/// What the kernel says.
pub(super) fn is_root(folder: &Folder, object: BorrowedFd<'_>) -> Result<bool> {
    is_same(folder, object).map_err(store_error)
}

fn is_same(folder: &Folder, object: BorrowedFd<'_>) -> std::result::Result<bool, Errno> {
    let (root, object) = (folder.key(), stat(object)?);
    Ok(object.stx_ino == root.inode && device_of(&object) == root.device)
}

/// The position of an object in the mount that the volume opens objects by.
fn place(folder: &Folder, object: BorrowedFd<'_>) -> std::result::Result<ObjectLocation, Errno> {
    if folder.has_own_mount() {
        // In this mount the folder is the top, wherever it is moved.
        judge(folder, b"/", object)
    } else {
        place_on_host(folder, object)
    }
}

/// The position of an object, opened by a mount of the host, in the host's tree.
fn place_on_host(
    folder: &Folder,
    object: BorrowedFd<'_>,
) -> std::result::Result<ObjectLocation, Errno> {
    loop {
        let root = folder.last_path();
        let found = judge(folder, &root, object)?;
        // The folder itself may have been moved since its path was queried last.
        let now = path_of(folder.host_path())?;
        if now == **root {
            return Ok(found);
        }
        folder.note_path(now);
    }
}

/// The position of an object, given the path of the folder.
fn judge(
    folder: &Folder,
    root: &[u8],
    object: BorrowedFd<'_>,
) -> std::result::Result<ObjectLocation, Errno> {
    let path = path_of(object)?;
    // The kernel reports an object without a path by the name of a mount's root.
    Ok(if path == root && is_same(folder, object)? {
        ObjectLocation::Root
    } else if path == root || path == b"/" {
        ObjectLocation::Unknown
    } else if path
        .strip_prefix(root)
        .is_some_and(|rest| root == b"/" || rest.starts_with(b"/"))
    {
        ObjectLocation::Below
    } else {
        ObjectLocation::Outside
    })
}

/// The names from the folder to a directory in it.
///
/// # Errors
/// [`StoreError::Stale`] if it is not in it.
pub(super) fn way_to(folder: &Folder, directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>> {
    let [root, path] =
        [folder.root_path(), directory].map(|object| path_of(object).map_err(store_error));
    let (root, path) = (root?, path?);
    let root: &[u8] = if root == b"/" { b"" } else { &root };
    let rest = path.strip_prefix(root).ok_or(StoreError::Stale)?;
    let names = rest.split(|byte| *byte == b'/');
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// [`require`] for directories too deep for the kernel to report their path: climbs until it does.
fn climb(folder: &Folder, directory: BorrowedFd<'_>) -> Result<()> {
    let mut here: OwnedFd = parent(directory)?;
    for _ in 0..DEEPEST {
        match place(folder, here.as_fd()) {
            Ok(ObjectLocation::Root | ObjectLocation::Below) => return Ok(()),
            Ok(ObjectLocation::Outside | ObjectLocation::Unknown) => return Err(StoreError::Stale),
            Err(Errno::NAMETOOLONG) => here = parent(here.as_fd())?,
            Err(error) => return Err(store_error(error)),
        }
    }
    Err(StoreError::NameTooLong)
}

fn parent(directory: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::fs::openat(directory, c"..", PATH, Mode::empty()).map_err(|error| match error {
        // The kernel does not climb above the root of a mount.
        Errno::NOENT => StoreError::Stale,
        error => store_error(error),
    })
}
