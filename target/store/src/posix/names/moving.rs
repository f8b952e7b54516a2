//! Renaming and linking.

use std::ffi::CString;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, linkat, renameat};
use rustix::io::Errno;

use super::remove::removal_error;
use super::scene::{Changed, Place, Scene, path_of};
use crate::{Consistency, Kind, Linked, Renamed, Result, StoreError};

/// Renames between two directories, which may be the same. The kernel knows what may be replaced
/// by what, that nothing moves below itself, and that a second name of the same object stays.
pub(super) fn rename(
    scene: &Scene,
    [from, to]: [&Place; 2],
    [from_name, to_name]: [Result<CString>; 2],
) -> Renamed {
    let held = scene.volume.changes().lock_both(&from.handle, &to.handle);
    let failed = |error| Renamed {
        from: Consistency::default(),
        to: Consistency::default(),
        result: Err(error),
    };
    if [from, to].iter().any(|place| place.kind != Kind::Directory) {
        return failed(StoreError::NotDirectory);
    }
    let (before_from, before_to) = match (scene.live(from), scene.live(to)) {
        (Ok(before_from), Ok(before_to)) => (before_from, before_to),
        (Err(error), _) | (_, Err(error)) => return failed(error),
    };
    let work = || {
        let (from_name, to_name) = (from_name?, to_name?);
        scene
            .act(|| renameat(&from.path, &*from_name, &to.path, &*to_name))
            .map_err(removal_error)
    };
    let outcome = work();
    let from_seen = scene.consistency(&before_from, from);
    let to_seen = scene.consistency(&before_to, to);
    drop(held);
    let places = if from.handle == to.handle {
        &[to][..]
    } else {
        // First where it came to: it may be found twice after a crash, but never nowhere.
        &[to, from][..]
    };
    Renamed {
        from: from_seen,
        to: to_seen,
        result: outcome.and_then(|()| scene.settle(Changed::place(()), places)),
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
        scene.change(directory, |_| add_link(scene, object, directory, name))
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
    let from = path_of(object.path.as_fd());
    scene
        .act(|| {
            let flags = AtFlags::SYMLINK_FOLLOW;
            linkat(rustix::fs::CWD, &*from, &directory.path, &*name, flags)
        })
        .map_err(|error| match error {
            // The object lost its last name meanwhile.
            Errno::NOENT => StoreError::Stale,
            error => removal_error(error),
        })?;
    // The count of links goes with the name.
    Ok(Changed::place(()))
}
