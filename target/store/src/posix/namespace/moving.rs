//! Renaming and linking.

use std::ffi::CString;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::job_context::{Changed, JobContext, OpenObject};
use super::remove::{last_name, removal_error, removed};
use crate::posix::open_files::moved;
use crate::posix::sys::calls;
use crate::{Consistency, Handle, Kind, Linked, Renamed, Result, StoreError};

/// Renames between two directories, which may be the same. The kernel checks which objects can be
/// replaced, that no directory moves below itself, and keeps a second name of the same object.
/// Returns the replaced object if that was its last name.
pub(super) fn rename(
    context: &JobContext,
    [from, to]: [&OpenObject; 2],
    [from_name, to_name]: [Result<CString>; 2],
) -> (Renamed, Option<Handle>) {
    if [from, to].iter().any(|it| it.kind != Kind::Directory) {
        return (not_renamed(StoreError::NotDirectory), None);
    }
    let begin = || {
        let held = context
            .volume
            .changes()
            .lock_both(&from.handle, &to.handle)?;
        Ok((held, context.live(from)?, context.live(to)?))
    };
    let (held, before_from, before_to) = match begin() {
        Ok(begun) => begun,
        Err(error) => return (not_renamed(error), None),
    };
    let work = || {
        context.require_inside(from)?;
        context.require_inside(to)?;
        let (from_name, to_name) = (from_name?, to_name?);
        let replaced = last_name(context, to, &to_name);
        context
            .act(|| calls::renameat(&from.path, &from_name, &to.path, &to_name))
            .map_err(removal_error)?;
        moved(context.volume.folder(), to.path.as_fd(), to_name.to_bytes());
        // It stays if both are names of one object.
        let after = replaced
            .as_ref()
            .and_then(|_| context.find(to, &to_name).ok());
        let gone = replaced.filter(|it| after.is_none_or(|after| after.handle != it.handle));
        Ok(gone.and_then(|gone| removed(context, &gone)))
    };
    let outcome: Result<Option<Handle>> = work();
    let from_seen = context.consistency(&before_from, from);
    let to_seen = context.consistency(&before_to, to);
    drop(held);
    let places = if from.handle == to.handle {
        &[to][..]
    } else {
        // The target first: after a crash the object may be found twice, but never nowhere.
        &[to, from][..]
    };
    let last = outcome.unwrap_or_default();
    let renamed = Renamed {
        from: from_seen,
        to: to_seen,
        result: outcome.and_then(|_| context.settle(Changed::place(()), places)),
    };
    (renamed, last)
}

/// A rename that failed before any check.
pub(super) fn not_renamed(error: StoreError) -> Renamed {
    Renamed {
        from: Consistency::default(),
        to: Consistency::default(),
        result: Err(error),
    }
}

/// Gives an object another name.
pub(super) fn link(
    context: &JobContext,
    object: &OpenObject,
    directory: &OpenObject,
    name: Result<CString>,
) -> Linked {
    let done = if directory.kind == Kind::Directory {
        context.change(directory, |_| {
            context.require_inside(directory)?;
            add_link(context, object, directory, name)
        })
    } else {
        crate::Modified::failed(StoreError::NotDirectory)
    };
    Linked {
        object: context.live(object).ok(),
        directory: done.consistency,
        result: done.result,
    }
}

fn add_link(
    context: &JobContext,
    object: &OpenObject,
    directory: &OpenObject,
    name: Result<CString>,
) -> Result<Changed<()>> {
    let name = name?;
    if object.kind == Kind::Directory {
        return Err(StoreError::Invalid);
    }
    context.live(object)?;
    context
        .act(|| calls::link(object.path.as_fd(), &directory.path, &name))
        .map_err(|error| match error {
            // The object lost its last name in the meantime.
            Errno::NOENT => StoreError::Stale,
            Errno::EXIST => StoreError::Exists,
            error => removal_error(error),
        })?;
    // The link count is durable together with the name.
    Ok(Changed::place(()))
}
