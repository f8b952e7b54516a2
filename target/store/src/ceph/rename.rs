//! RENAME, also onto a name of a file that has other names.
//!
//! Release 16 of the library takes a file that a rename has replaced for gone. When the request has
//! ended, it turns all names that it caches of that file into names that do not exist, and answers
//! so from then on. So it is made to forget the names that it caches before such a rename, and no
//! other request of this server uses names until the rename has ended.

use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::call::{CallContext, FoundObject};
use super::names::is_last;
use super::permission::WRITE;
use crate::{Consistency, Handle, Kind, Renamed, Result, StoreError};

impl CallContext {
    /// Moves a name. `None` if that has to be done while no other request uses names.
    ///
    /// # Errors
    /// An object of a handle is not there.
    pub fn renamed(
        &self,
        handles: [Handle; 2],
        names: [Result<CString>; 2],
        is_alone: bool,
    ) -> Result<Option<Renamed>> {
        let from = self.place(handles[0])?;
        let to = if handles[0] == handles[1] {
            from.clone()
        } else {
            self.place(handles[1])?
        };
        let kinds = [from.attributes.kind, to.attributes.kind];
        if kinds != [Kind::Directory; 2] {
            return Err(StoreError::NotDirectory);
        }
        let result = match self.rename(&from, &to, names, is_alone) {
            Ok(false) => return Ok(None),
            result => result.map(drop),
        };
        for place in [&from, &to] {
            self.session.subdirectories.forget(place.attributes.inode);
        }
        // The library learns of the change of another old directory a little later.
        let is_known = handles[0] == handles[1] || result.is_err();
        Ok(Some(Renamed {
            from: if is_known {
                self.after(&from)
            } else {
                Consistency::default()
            },
            to: self.after(&to),
            result,
        }))
    }

    /// The same in directories that are there. False if nothing is done, as it is not alone.
    fn rename(
        &self,
        from: &FoundObject,
        to: &FoundObject,
        [from_name, to_name]: [Result<CString>; 2],
        is_alone: bool,
    ) -> Result<bool> {
        let (from_name, to_name) = (from_name?, to_name?);
        self.require_writable()?;
        let moved = self.lookup(from, &from_name)?;
        let replaced = match self.lookup(to, &to_name) {
            Ok(found) => Some(found),
            Err(StoreError::NotFound) => None,
            Err(error) => return Err(error),
        };
        // Two names of one object stay. The library would take the first one for removed.
        let object = moved.attributes.inode;
        if replaced
            .as_ref()
            .is_some_and(|found| found.attributes.inode == object)
        {
            return Ok(true);
        }
        // The MDS of release 16 never answers a rename onto a directory that the old name is in.
        if let Some(replaced) = &replaced
            && replaced.attributes.kind == Kind::Directory
        {
            // Whatever would move there, as the kernel does.
            if self.is_within(from, replaced)? {
                return Err(StoreError::NotEmpty);
            }
            // The MDS looks first whether the directory is empty.
            if moved.attributes.kind != Kind::Directory {
                for directory in [from, to] {
                    self.require(directory, WRITE)?;
                }
                return Err(StoreError::IsDirectory);
            }
        }
        // A directory's entry for its parent changes.
        if moved.attributes.kind == Kind::Directory && from.handle != to.handle {
            self.require(&moved, WRITE)?;
        }
        let keeps_names = replaced.as_ref().is_some_and(|found| !is_last(found));
        if keeps_names && moved.attributes.kind != Kind::Directory {
            if !is_alone {
                return Ok(false);
            }
            for directory in [from, to] {
                self.require(directory, WRITE)?;
            }
            self.forget_names(&moved, to, &to_name)?;
        }
        let identity = &self.identity;
        let done = from.inode.rename(identity, &from_name, &to.inode, &to_name);
        done.map_err(|error| self.removal_error(error))?;
        if keeps_names {
            // The request has ended when it is durable.
            to.inode.sync().map_err(|error| self.error(error))?;
        }
        self.let_go(replaced.filter(is_last));
        // The target first: after a failure the object may be found twice, but never nowhere.
        self.settle(&to.inode)?;
        if from.handle != to.handle {
            self.settle(&from.inode)?;
        }
        Ok(true)
    }

    /// Has the library forget all names that it caches, by a request that changes nothing: to give
    /// an object a name that is taken.
    fn forget_names(&self, object: &FoundObject, place: &FoundObject, taken: &CStr) -> Result<()> {
        let superuser = &self.session.superuser;
        let request = || object.inode.link(superuser, &place.inode, taken);
        match self.session.mount().forget_names(request) {
            Ok(Err(Errno::EXIST)) => Ok(()),
            // Another server has removed it in the meantime.
            Ok(Ok(())) => {
                let removed = place.inode.unlink(superuser, taken);
                removed.map_err(|error| self.error(error))?;
                Err(StoreError::Delay)
            }
            Ok(Err(error)) => Err(self.error(error)),
            Err(error) => Err(self.error(error.error)),
        }
    }
}
