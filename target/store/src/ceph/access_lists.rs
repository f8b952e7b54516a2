//! Access control lists, as extended attributes in the format of Linux.

use rustix::io::Errno;

use super::call::{CallContext, Changed, FoundObject};
use super::permission::owns;
use super::sys::AttributeChange;
use super::view::{ClientView, SERVER};
use crate::access_list_format::{ACCESS, DEFAULT, LONGEST, decode, encode};
use crate::{
    ACCESS_ENTRIES_MAX, AccessList, AccessLists, Caller, Handle, Kind, Modified, Result, StoreError,
};

const SET_GROUP: u32 = 0o2000;

impl ClientView<'_> {
    pub(super) async fn access_lists(&self, object: Handle) -> Result<AccessLists> {
        let found = self.ask(&SERVER, move |context| {
            let found = context.object(object)?;
            require_kind(&found)?;
            let mode = found.attributes.mode;
            let access = context.access_list(&found)?;
            Ok(AccessLists {
                access: access.unwrap_or_else(|| AccessList::of_mode(mode)),
                default: default_list(context, &found)?,
            })
        });
        found.await
    }

    pub(super) async fn set_access_lists(
        &self,
        caller: &Caller,
        object: Handle,
        lists: &AccessLists,
    ) -> Modified<()> {
        let lists = lists.clone();
        self.change(caller, object, move |context, found| {
            require_kind(found)?;
            let is_directory = found.attributes.kind == Kind::Directory;
            if lists.default.is_some() && !is_directory {
                return Err(StoreError::Invalid);
            }
            let all = [Some(&lists.access), lists.default.as_ref()];
            let fits = |list: &AccessList| list.entries() <= ACCESS_ENTRIES_MAX;
            if !all.into_iter().flatten().all(fits) {
                return Err(StoreError::Invalid);
            }
            if !owns(&context.caller, &found.attributes) {
                return Err(StoreError::NotOwner);
            }
            let set = set(context, found, &lists, is_directory);
            set.map_err(|error| match error {
                Errno::RANGE | Errno::TOOBIG => StoreError::Invalid,
                error => context.error(error),
            })?;
            Ok(Changed::place(()))
        })
        .await
    }
}

fn set(
    context: &CallContext,
    found: &FoundObject,
    lists: &AccessLists,
    is_directory: bool,
) -> std::result::Result<(), Errno> {
    let superuser = &context.session.superuser;
    let removed = |name| match found.inode.remove_xattr(superuser, name) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(error) => Err(error),
    };
    if is_directory {
        match &lists.default {
            Some(list) => found
                .inode
                .set_xattr(superuser, DEFAULT, &encode(list), 0)?,
            None => removed(DEFAULT)?,
        }
    }
    // The library sets the permission bits of an access list.
    if lists.access.is_extended() {
        found
            .inode
            .set_xattr(superuser, ACCESS, &encode(&lists.access), 0)?;
    } else {
        removed(ACCESS)?;
    }
    let caller = &context.caller;
    let mut special = found.attributes.mode & 0o7000;
    if caller.uid != 0 && !caller.in_group(found.attributes.gid) {
        special &= !SET_GROUP;
    }
    let change = AttributeChange {
        mode: Some(special | lists.access.mode()),
        ..AttributeChange::default()
    };
    found.inode.set_attributes(superuser, &change)
}

/// The list that new objects in a directory begin with.
pub(super) fn default_list(
    context: &CallContext,
    found: &FoundObject,
) -> Result<Option<AccessList>> {
    if found.attributes.kind != Kind::Directory {
        return Ok(None);
    }
    let superuser = &context.session.superuser;
    match found.inode.xattr(superuser, DEFAULT, LONGEST) {
        // Without a list, the library answers an empty value for a directory.
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => decode(&value).map(Some),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(context.error(error)),
    }
}

/// Permission bits of symbolic links mean nothing.
fn require_kind(found: &FoundObject) -> Result<()> {
    match found.attributes.kind {
        Kind::Symlink => Err(StoreError::NotSupported),
        _ => Ok(()),
    }
}
