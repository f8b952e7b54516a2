//! Taking names away.

use std::ffi::CString;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::scene::{Changed, Place, Scene};
use crate::posix::errors::store_error;
use crate::{Result, StoreError};

/// Takes a name from what is not a directory.
pub(super) fn name(scene: &Scene, place: &Place, name: Result<CString>) -> Result<Changed<()>> {
    unlink(scene, place, name, AtFlags::empty())
}

/// Takes an empty directory away.
pub(super) fn directory(
    scene: &Scene,
    place: &Place,
    name: Result<CString>,
) -> Result<Changed<()>> {
    unlink(scene, place, name, AtFlags::REMOVEDIR)
}

fn unlink(
    scene: &Scene,
    place: &Place,
    name: Result<CString>,
    flags: AtFlags,
) -> Result<Changed<()>> {
    let name = name?;
    scene
        .act(|| unlinkat(&place.path, &*name, flags))
        .map_err(removal_error)?;
    Ok(Changed::place(()))
}

/// As [`store_error`], for operations that take names away. RFC 1813 gives those no
/// `NFS3ERR_PERM`, which sticky directories cause, and clients that were told to try again would
/// do so for as long as something is mounted on a folder.
pub(super) fn removal_error(error: Errno) -> StoreError {
    match error {
        Errno::PERM | Errno::BUSY => StoreError::Denied,
        error => store_error(error),
    }
}
