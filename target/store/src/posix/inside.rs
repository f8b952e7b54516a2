//! Whether objects are inside the folder of a volume.
//!
//! Names lead nowhere else: they are looked up one by one, and never followed. But a directory may
//! be moved out of the folder by others while a client has its handle, and a handle may name what
//! never was inside. So the place of a directory is asked of the kernel each time that something is
//! looked up or changed in it, by the name that it has in the mount.
//!
//! What is no directory has any number of names, of which the kernel may know none, so that this
//! can be asked of few. For the others it is the tag of clients' handles (which covers the export)
//! that keeps them inside, as with every NFS server that does not give up handles on renames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::Mode;
use rustix::io::Errno;

use super::errors::store_error;
use super::opening::{Opened, PATH, device_of, stat};
use super::sys::handles::{self, KernelHandle};
use super::volume::Volume;
use crate::{Kind, Result, StoreError};

/// Most directories to climb where a path is longer than the kernel tells.
const DEEPEST: usize = 16_384;

/// Where the kernel says that an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is the folder itself.
    Root,
    /// Below it.
    Below,
    /// It has a name elsewhere.
    Outside,
    /// It has no name that the kernel knows, or one outside of the mount.
    Unknown,
}

/// Makes sure that a directory is the folder or below it.
///
/// # Errors
/// [`StoreError::Stale`] if it is not.
pub(super) fn require(volume: &Volume, directory: BorrowedFd<'_>) -> Result<()> {
    match place(volume, directory) {
        Ok(Place::Root | Place::Below) => Ok(()),
        Ok(Place::Outside | Place::Unknown) => Err(StoreError::Stale),
        Err(Errno::NAMETOOLONG) => climb(volume, directory),
        Err(error) => Err(store_error(error)),
    }
}

/// Whether what a handle opened belongs to the volume.
///
/// # Errors
/// What the kernel says.
pub(super) fn holds(volume: &Volume, opened: &Opened, kernel: &KernelHandle) -> Result<bool> {
    if opened.attributes.kind == Kind::Directory {
        return match require(volume, opened.path.as_fd()) {
            Ok(()) => Ok(true),
            Err(StoreError::Stale) => Ok(false),
            Err(error) => Err(error),
        };
    }
    // With more than one name it may be inside by another than the kernel tells.
    if opened.attributes.links != 1 {
        return Ok(true);
    }
    let found = match place(volume, opened.path.as_fd()) {
        // The private mount of the folder shows nothing outside of it. The host's own may.
        Ok(Place::Unknown) if volume.has_own_mount() => {
            match handles::open_by_handle(volume.host_path(), kernel, PATH) {
                Ok(again) => place_on_host(volume, again.as_fd()),
                Err(error) => Err(error),
            }
        }
        other => other,
    };
    match found {
        Ok(Place::Outside) => Ok(false),
        Ok(_) | Err(Errno::NAMETOOLONG) => Ok(true),
        Err(error) => Err(store_error(error)),
    }
}

/// Whether an object is the folder itself.
///
/// # Errors
/// What the kernel says.
pub(super) fn is_root(volume: &Volume, object: BorrowedFd<'_>) -> Result<bool> {
    is_same(volume, object).map_err(store_error)
}

fn is_same(volume: &Volume, object: BorrowedFd<'_>) -> std::result::Result<bool, Errno> {
    let (root, object) = (volume.key(), stat(object)?);
    Ok(object.stx_ino == root.inode && device_of(&object) == root.device)
}

/// Where an object is in the mount that the volume opens objects by.
fn place(volume: &Volume, object: BorrowedFd<'_>) -> std::result::Result<Place, Errno> {
    if volume.has_own_mount() {
        // There the folder is the top, wherever it is moved.
        judge(volume, b"/", object)
    } else {
        place_on_host(volume, object)
    }
}

/// Where an object, opened by a mount of the host's, is in the host's tree.
fn place_on_host(volume: &Volume, object: BorrowedFd<'_>) -> std::result::Result<Place, Errno> {
    let mut root = path_of(volume.host_path())?;
    loop {
        let found = judge(volume, &root, object)?;
        // The folder itself may have been moved between the two questions.
        let now = path_of(volume.host_path())?;
        if now == root {
            return Ok(found);
        }
        root = now;
    }
}

/// Where an object is if this is the path of the folder.
fn judge(
    volume: &Volume,
    root: &[u8],
    object: BorrowedFd<'_>,
) -> std::result::Result<Place, Errno> {
    let path = path_of(object)?;
    // The kernel calls what it has no path for by the name of a mount's root.
    Ok(if path == root && is_same(volume, object)? {
        Place::Root
    } else if path == root || path == b"/" {
        Place::Unknown
    } else if path
        .strip_prefix(root)
        .is_some_and(|rest| root == b"/" || rest.starts_with(b"/"))
    {
        Place::Below
    } else {
        Place::Outside
    })
}

/// The names that lead from the folder to a directory in it.
///
/// # Errors
/// [`StoreError::Stale`] if it is not in it.
pub(super) fn way_to(volume: &Volume, directory: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>> {
    let [root, path] =
        [volume.root_path(), directory].map(|object| path_of(object).map_err(store_error));
    let (root, path) = (root?, path?);
    let root: &[u8] = if root == b"/" { b"" } else { &root };
    let rest = path.strip_prefix(root).ok_or(StoreError::Stale)?;
    let names = rest.split(|byte| *byte == b'/');
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// The path of an open file in its mount, or in the tree of mounts that its mount is in.
pub(super) fn path_of(object: BorrowedFd<'_>) -> std::result::Result<Vec<u8>, Errno> {
    let link = proc_path(object);
    rustix::fs::readlink(&link, Vec::with_capacity(256)).map(std::ffi::CString::into_bytes)
}

/// The name by which an open file can be named to system calls that take none.
pub(super) fn proc_path(object: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// [`require`] for directories so deep that the kernel does not tell their path: climbs until it
/// does.
fn climb(volume: &Volume, directory: BorrowedFd<'_>) -> Result<()> {
    let mut here: OwnedFd = parent(directory)?;
    for _ in 0..DEEPEST {
        match place(volume, here.as_fd()) {
            Ok(Place::Root | Place::Below) => return Ok(()),
            Ok(Place::Outside | Place::Unknown) => return Err(StoreError::Stale),
            Err(Errno::NAMETOOLONG) => here = parent(here.as_fd())?,
            Err(error) => return Err(store_error(error)),
        }
    }
    Err(StoreError::NameTooLong)
}

fn parent(directory: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::fs::openat(directory, c"..", PATH, Mode::empty()).map_err(|error| match error {
        // The kernel goes up no further than the root of a mount, if that is not above.
        Errno::NOENT => StoreError::Stale,
        error => store_error(error),
    })
}
