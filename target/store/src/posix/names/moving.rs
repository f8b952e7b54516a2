//! Renaming and linking.

use std::ffi::CString;
use std::os::fd::AsFd;

use rustix::io::Errno;

use super::remove::{last_name, removal_error};
use super::scene::{Changed, Place, Scene};
use crate::posix::opening::moved;
use crate::posix::sys::calls;
use crate::{Consistency, Handle, Kind, Linked, Renamed, Result, StoreError};

/// Renames between two directories, which may be the same. The kernel knows what may be replaced
/// by what, that nothing moves below itself, and that a second name of the same object stays.
/// Tells the object that was replaced if that was its last name.
pub(super) fn rename(
    scene: &Scene,
    [from, to]: [&Place; 2],
    [from_name, to_name]: [Result<CString>; 2],
) -> (Renamed, Option<Handle>) {
    if [from, to].iter().any(|it| it.kind != Kind::Directory) {
        return (not_renamed(StoreError::NotDirectory), None);
    }
    let begin = || {
        let held = scene.volume.changes().lock_both(&from.handle, &to.handle)?;
        Ok((held, scene.live(from)?, scene.live(to)?))
    };
    let (held, before_from, before_to) = match begin() {
        Ok(begun) => begun,
        Err(error) => return (not_renamed(error), None),
    };
    let work = || {
        scene.require_inside(from)?;
        scene.require_inside(to)?;
        let (from_name, to_name) = (from_name?, to_name?);
        let replaced = last_name(scene, to, &to_name);
        scene
            .act(|| calls::renameat(&from.path, &from_name, &to.path, &to_name))
            .map_err(removal_error)?;
        moved(&scene.volume, to.path.as_fd(), to_name.to_bytes());
        // It stays if both are names of one object.
        let after = replaced.and_then(|_| scene.find(to, &to_name).ok());
        let gone = replaced.filter(|it| after.is_none_or(|after| after.handle != *it));
        if let Some(gone) = gone {
            scene.volume.departed().tell(gone);
        }
        Ok(gone)
    };
    let outcome: Result<Option<Handle>> = work();
    let from_seen = scene.consistency(&before_from, from);
    let to_seen = scene.consistency(&before_to, to);
    drop(held);
    let places = if from.handle == to.handle {
        &[to][..]
    } else {
        // First where it came to: it may be found twice after a crash, but never nowhere.
        &[to, from][..]
    };
    let last = outcome.unwrap_or_default();
    let renamed = Renamed {
        from: from_seen,
        to: to_seen,
        result: outcome.and_then(|_| scene.settle(Changed::place(()), places)),
    };
    (renamed, last)
}

/// A rename that failed before anything was looked at.
pub(super) fn not_renamed(error: StoreError) -> Renamed {
    Renamed {
        from: Consistency::default(),
        to: Consistency::default(),
        result: Err(error),
    }
}

/// Gives an object another name.
pub(super) fn link(
    scene: &Scene,
    object: &Place,
    directory: &Place,
    name: Result<CString>,
) -> Linked {
    let done = if directory.kind == Kind::Directory {
        scene.change(directory, |_| {
            scene.require_inside(directory)?;
            add_link(scene, object, directory, name)
        })
    } else {
        crate::Modified::failed(StoreError::NotDirectory)
    };
    Linked {
        object: scene.live(object).ok(),
        directory: done.consistency,
        result: done.result,
    }
}

fn add_link(
    scene: &Scene,
    object: &Place,
    directory: &Place,
    name: Result<CString>,
) -> Result<Changed<()>> {
    let name = name?;
    if object.kind == Kind::Directory {
        return Err(StoreError::Invalid);
    }
    scene.live(object)?;
    scene
        .act(|| calls::link(object.path.as_fd(), &directory.path, &name))
        .map_err(|error| match error {
            // The object lost its last name meanwhile.
            Errno::NOENT => StoreError::Stale,
            Errno::EXIST => StoreError::Exists,
            error => removal_error(error),
        })?;
    // The count of links goes with the name.
    Ok(Changed::place(()))
}
