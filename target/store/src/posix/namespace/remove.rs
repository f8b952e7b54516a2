//! Removing names.

use std::ffi::{CStr, CString};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::job_context::{Changed, JobContext, OpenObject};
use crate::posix::errors::store_error;
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
    if let Some(last) = last {
        context.volume.unlinked().tell(last);
    }
    Ok(Changed::place(last))
}

/// The object that is freed if this name is removed. Reactors then close it, so that its space is
/// free at once.
pub(super) fn last_name(context: &JobContext, place: &OpenObject, name: &CStr) -> Option<Handle> {
    let found = context.find(place, name).ok()?;
    let last = found.attributes.kind == Kind::Directory || found.attributes.links == 1;
    last.then_some(found.handle)
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
