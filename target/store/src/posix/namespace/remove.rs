//! Removing names.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::job_context::{Changed, JobContext, OpenObject};
use crate::posix::errors::store_error;
use crate::posix::held_files::Removal;
use crate::posix::sys::calls;
use crate::{Handle, Kind, Result, StoreError};

/// Removes a name of a non-directory. Returns the object if that was its last name.
pub(super) fn name(
    context: &JobContext,
    place: &OpenObject,
    name: Result<CString>,
) -> Result<Changed<Option<Handle>>> {
    unlink(context, place, name, AtFlags::empty())
}

/// Removes an empty directory. Returns it.
pub(super) fn directory(
    context: &JobContext,
    place: &OpenObject,
    name: Result<CString>,
) -> Result<Changed<Option<Handle>>> {
    unlink(context, place, name, AtFlags::REMOVEDIR)
}

fn unlink(
    context: &JobContext,
    place: &OpenObject,
    name: Result<CString>,
    flags: AtFlags,
) -> Result<Changed<Option<Handle>>> {
    let name = name?;
    let last = last_name(context, place, &name);
    context
        .act(|| calls::unlinkat(&place.path, &name, flags))
        .map_err(removal_error)?;
    Ok(Changed::place(
        last.and_then(|last| removed(context, &last)),
    ))
}

/// The object that ends if this name is removed, unless it is held.
pub(super) fn last_name(context: &JobContext, place: &OpenObject, name: &CStr) -> Option<Removal> {
    let found = context.find(place, name).ok()?;
    if found.attributes.kind != Kind::Directory && found.attributes.links != 1 {
        return None;
    }
    let removal = Removal {
        handle: found.handle,
        path: Arc::new(found.path),
    };
    // Before the name goes, so that no client finds the object stale meanwhile.
    context.volume.keep_removed(&removal);
    Some(removal)
}

/// Ends an object whose last name was removed, unless it is held: all reactors close it, so that its
/// space is free at once.
pub(super) fn removed(context: &JobContext, removal: &Removal) -> Option<Handle> {
    if context.volume.keep_removed(removal) {
        return None;
    }
    context.volume.unlinked().tell(removal.handle);
    Some(removal.handle)
}

/// As [`store_error`], for operations that remove names. RFC 1813 does not permit `NFS3ERR_PERM`
/// for these, which sticky directories cause, and clients asked to retry would do so for as long as
/// a file system is mounted on a folder.
pub(super) fn removal_error(error: Errno) -> StoreError {
    match error {
        Errno::PERM | Errno::BUSY => StoreError::Denied,
        // POSIX permits this error for directories that are not empty; XFS uses it.
        Errno::EXIST => StoreError::NotEmpty,
        error => store_error(error),
    }
}
