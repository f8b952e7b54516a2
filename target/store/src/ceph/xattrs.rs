//! Extended attributes. The library checks what the caller may do.

use rustix::io::Errno;

use super::call::{CallContext, Changed, FoundObject};
use super::permission::{READ, WRITE, owns};
use super::view::ClientView;
use crate::user_xattr::{LIST_MAX, append_names, full_name};
use crate::{Caller, Handle, Kind, Modified, Result, SetXattrHow, StoreError, XATTR_VALUE_MAX};

const STICKY: u32 = 0o1000;

impl ClientView<'_> {
    pub(super) async fn xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let name = full_name(name)?;
        let found = self.ask(caller, move |context| {
            let found = context.object(object)?;
            require_kind(&found)?;
            context.require_read(&found)?;
            let read = found
                .inode
                .xattr(&context.session.superuser, &name, XATTR_VALUE_MAX);
            read.map_err(|error| context.xattr_error(error))
        });
        value.extend_from_slice(&found.await?);
        Ok(())
    }

    pub(super) async fn xattrs(
        &self,
        caller: &Caller,
        object: Handle,
        names: &mut Vec<u8>,
    ) -> Result<()> {
        let found = self.ask(caller, move |context| {
            let found = context.object(object)?;
            require_kind(&found)?;
            context.require(&found, READ)?;
            let listed = found.inode.xattrs(&context.session.superuser, LIST_MAX);
            listed.map_err(|error| context.xattr_error(error))
        });
        append_names(&found.await?, names);
        Ok(())
    }

    pub(super) async fn set_xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Modified<()> {
        let name = full_name(name);
        if value.len() > XATTR_VALUE_MAX {
            return Modified::failed(StoreError::XattrTooLong);
        }
        let value: Box<[u8]> = value.into();
        let flags = match how {
            SetXattrHow::Either => 0,
            SetXattrHow::Create => libc::XATTR_CREATE,
            SetXattrHow::Replace => libc::XATTR_REPLACE,
        };
        self.change(caller, object, move |context, found| {
            let name = name?;
            require_kind(found)?;
            require_change(context, found)?;
            let superuser = &context.session.superuser;
            let set = found.inode.set_xattr(superuser, &name, &value, flags);
            set.map_err(|error| context.xattr_error(error))?;
            Ok(Changed::place(()))
        })
        .await
    }

    pub(super) async fn remove_xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
    ) -> Modified<()> {
        let name = full_name(name);
        self.change(caller, object, move |context, found| {
            let name = name?;
            require_kind(found)?;
            require_change(context, found)?;
            let removed = found.inode.remove_xattr(&context.session.superuser, &name);
            removed.map_err(|error| context.xattr_error(error))?;
            Ok(Changed::place(()))
        })
        .await
    }
}

impl CallContext {
    fn xattr_error(&self, error: Errno) -> StoreError {
        match error {
            Errno::NODATA => StoreError::NoXattr,
            // The cluster has a bound for all attributes of an object.
            Errno::TOOBIG | Errno::RANGE | Errno::NOSPC => StoreError::XattrTooLong,
            error => self.error(error),
        }
    }
}

/// Files and directories have extended attributes.
fn require_kind(found: &FoundObject) -> Result<()> {
    match found.attributes.kind {
        Kind::File | Kind::Directory => Ok(()),
        Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
    }
}

/// Anybody may make names in some directories, and only the owner may say what these are.
fn require_change(context: &CallContext, found: &FoundObject) -> Result<()> {
    let shown = &found.attributes;
    let is_sticky = shown.kind == Kind::Directory && shown.mode & STICKY != 0;
    if is_sticky && !owns(&context.caller, shown) {
        return Err(StoreError::NotOwner);
    }
    context.require(found, WRITE)
}
