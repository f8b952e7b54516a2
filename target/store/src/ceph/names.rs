//! Finding, removing, renaming and linking names.

use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::call::{CallContext, Changed, FoundObject};
use super::config::NAME_MAX;
use super::view::{ClientView, SERVER};
use crate::name_check as check;
use crate::{
    AccessMask, Attributes, Caller, Consistency, Handle, Kind, Linked, Modified, Renamed, Result,
    Statistics, StoreError,
};

/// More directories are not above each other: a path has 4096 bytes.
const DEPTH_MAX: usize = 4096;

/// The hidden directory of snapshots, which are not served.
const SNAPSHOTS: &[u8] = b".snap";

impl ClientView<'_> {
    pub(super) async fn attributes(&self, object: Handle) -> Result<Attributes> {
        let found = self.ask(&SERVER, move |context| {
            Ok(context.object(object)?.attributes)
        });
        found.await
    }

    pub(super) async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        let name = name.to_vec();
        let found = self.ask(caller, move |context| {
            let directory = context.directory(directory)?;
            let name = sought(&name)?;
            let found = context.lookup(&directory, &name)?;
            Ok((found.handle, found.attributes))
        });
        found.await
    }

    pub(super) async fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        let found = self.ask(caller, move |context| {
            let found = context.object(object)?;
            Ok((context.access(&found, wanted)?, found.attributes))
        });
        found.await
    }

    pub(super) async fn read_link(
        &self,
        caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        let found = self.ask(caller, move |context| {
            let found = context.object(link)?;
            if found.attributes.kind != Kind::Symlink {
                return Err(StoreError::Invalid);
            }
            let read = found.inode.read_link(&context.identity);
            let read = read.map_err(|error| context.error(error))?;
            Ok((read, found.attributes))
        });
        let (read, attributes) = found.await?;
        text.extend_from_slice(&read);
        Ok(attributes)
    }

    /// The cluster keeps no files for the clients of this server.
    pub(super) async fn statistics(&self, object: Handle) -> Result<Statistics> {
        let found = self.ask(&SERVER, move |context| {
            let found = context.object(object)?;
            let space = context.session.root().space();
            let space = space.map_err(|error| context.error(error))?;
            // The cluster counts objects of its storage, and has no bound for them.
            let most = u64::from(u32::MAX).max(space.objects.saturating_mul(2));
            let free = most - space.objects;
            Ok(Statistics {
                total_bytes: space.total,
                free_bytes: space.free,
                available_bytes: space.available,
                total_inodes: most,
                free_inodes: free,
                available_inodes: free,
                attributes: found.attributes,
            })
        });
        found.await
    }

    pub(super) async fn remove(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let name = check::removable(name).and_then(visible);
        self.in_directory(caller, directory, move |context, place| {
            let name = name?;
            let before = context.last_name(place, &name);
            let removed = place.inode.unlink(&context.identity, &name);
            removed.map_err(|error| context.removal_error(error))?;
            context.let_go(before);
            Ok(Changed::names(()))
        })
        .await
    }

    pub(super) async fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let name = check::removable_directory(name).and_then(visible);
        self.in_directory(caller, directory, move |context, place| {
            let name = name?;
            let before = context.last_name(place, &name);
            let removed = place.inode.remove_directory(&context.identity, &name);
            removed.map_err(|error| context.removal_error(error))?;
            context.let_go(before);
            Ok(Changed::place(()))
        })
        .await
    }

    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: (Handle, &[u8]),
        to: (Handle, &[u8]),
    ) -> Renamed {
        let names = [from.1, to.1].map(|name| check::movable(name).and_then(visible));
        let handles = [from.0, to.0];
        let tried = names.clone();
        let done = self.ask(caller, move |context| {
            context.renamed(handles, tried, false)
        });
        let done = match done.await {
            Ok(None) => {
                let done =
                    self.ask_alone(caller, move |context| context.renamed(handles, names, true));
                done.await
            }
            done => done,
        };
        done.and_then(|done| done.ok_or(StoreError::Delay))
            .unwrap_or_else(|error| Renamed {
                from: Consistency::default(),
                to: Consistency::default(),
                result: Err(error),
            })
    }

    pub(super) async fn link(
        &self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: &[u8],
    ) -> Linked {
        let name = check::new(name).and_then(visible);
        let done = self.ask(caller, move |context| {
            let object = context.object(object)?;
            let place = context.directory(directory);
            let done = context.change(place, |place| {
                let name = name?;
                if object.attributes.kind == Kind::Directory {
                    return Err(StoreError::Invalid);
                }
                let made = object.inode.link(&context.identity, &place.inode, &name);
                made.map_err(|error| match error {
                    // The object lost its last name in the meantime.
                    Errno::NOENT => StoreError::Stale,
                    Errno::EXIST => StoreError::Exists,
                    error => context.removal_error(error),
                })?;
                Ok(Changed {
                    other: Some(object.inode.clone()),
                    ..Changed::names(())
                })
            });
            Ok(Linked {
                object: context.attributes(&object).ok(),
                directory: done.consistency,
                result: done.result,
            })
        });
        done.await.unwrap_or_else(|error| Linked {
            object: None,
            directory: Consistency::default(),
            result: Err(error),
        })
    }
}

impl CallContext {
    /// The object of a name, with the caller's rights to look it up.
    pub fn lookup(&self, directory: &FoundObject, name: &CStr) -> Result<FoundObject> {
        let found = directory.inode.lookup(&self.identity, name);
        let found = found.map_err(|error| self.error(error))?;
        // The library would leave the directory that was mounted.
        if name == c".." && directory.handle == self.session.root_handle {
            return self.object(directory.handle);
        }
        self.keep(found)
    }

    /// Whether a directory is another one, or below it.
    pub(super) fn is_within(&self, directory: &FoundObject, other: &FoundObject) -> Result<bool> {
        let mut place = directory.clone();
        for _ in 0..DEPTH_MAX {
            if place.handle == other.handle {
                return Ok(true);
            }
            if place.handle == self.session.root_handle {
                return Ok(false);
            }
            place = self.parent(&place)?;
        }
        // It was moved on and on.
        Err(StoreError::Delay)
    }

    /// The directory that a directory is in.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn parent(&self, directory: &FoundObject) -> Result<FoundObject> {
        if directory.handle == self.session.root_handle {
            return Ok(directory.clone());
        }
        let found = directory.inode.lookup(&self.session.superuser, c"..");
        self.keep(found.map_err(|error| self.error(error))?)
    }

    /// The object that a name has, if a removal of the name may be its end.
    fn last_name(&self, directory: &FoundObject, name: &CStr) -> Option<FoundObject> {
        let found = directory.inode.lookup(&self.session.superuser, name).ok()?;
        let found = self.keep(found).ok()?;
        is_last(&found).then_some(found)
    }

    /// Closes an object that has no names any more. Its space is free when all servers have.
    pub(super) fn let_go(&self, object: Option<FoundObject>) {
        if let Some(object) = object {
            self.session.forget(object.attributes.inode);
        }
    }

    /// The meaning of an error of an operation that removes names. RFC 1813 does not permit
    /// `NFS3ERR_PERM` for these, which sticky directories cause.
    pub(super) fn removal_error(&self, error: Errno) -> StoreError {
        match error {
            Errno::PERM | Errno::BUSY => StoreError::Denied,
            Errno::EXIST => StoreError::NotEmpty,
            error => self.error(error),
        }
    }
}

/// Whether an object is gone without one of its names.
pub(super) fn is_last(object: &FoundObject) -> bool {
    object.attributes.kind == Kind::Directory || object.attributes.links <= 1
}

/// A name to look up; `.` and `..` are among them.
fn sought(name: &[u8]) -> Result<CString> {
    match name {
        b"" => Err(StoreError::Invalid),
        SNAPSHOTS => Err(StoreError::NotFound),
        name if name.contains(&b'/') => Err(StoreError::Invalid),
        name => bounded(CString::new(name).map_err(|_| StoreError::Invalid)?),
    }
}

/// A name to make or remove: not that of the snapshots.
pub(super) fn visible(name: CString) -> Result<CString> {
    if name.as_bytes() == SNAPSHOTS {
        return Err(StoreError::Denied);
    }
    bounded(name)
}

fn bounded(name: CString) -> Result<CString> {
    if name.as_bytes().len() > NAME_MAX {
        return Err(StoreError::NameTooLong);
    }
    Ok(name)
}
