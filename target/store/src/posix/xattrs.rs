//! Extended attributes, by helpers. The kernel checks what the caller may do.

use std::os::fd::AsFd;

use rustix::fs::{Access, XattrFlags};
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::namespace::{Changed, JobContext, OpenObject};
use super::sys::{calls, handles};
use super::view::ClientView;
use crate::user_xattr::{LIST_MAX, append_names, full_name};
use crate::{Caller, Handle, Kind, Modified, Result, SetXattrHow, StoreError, XATTR_VALUE_MAX};

impl ClientView<'_> {
    pub(super) async fn xattr(
        &self,
        caller: &Caller,
        object: Handle,
        name: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let name = full_name(name)?;
        let found = self
            .ask_as(caller, object, move |context, place| {
                let mut value = vec![0; XATTR_VALUE_MAX];
                let path = proc_path(place.path.as_fd());
                let get = || rustix::fs::getxattr(&path, &name, &mut value[..]);
                let length = context.act(get).map_err(xattr_error)?;
                value.truncate(length);
                Ok(value)
            })
            .await?;
        value.extend_from_slice(&found);
        Ok(())
    }

    pub(super) async fn xattrs(
        &self,
        caller: &Caller,
        object: Handle,
        names: &mut Vec<u8>,
    ) -> Result<()> {
        let found = self
            .ask_as(caller, object, move |context, place| {
                // The kernel shows names to everybody.
                let may = || handles::may(place.path.as_fd(), Access::READ_OK);
                context.act(may).map_err(store_error)?;
                let mut list = vec![0; LIST_MAX];
                let path = proc_path(place.path.as_fd());
                let length = rustix::fs::listxattr(&path, &mut list[..]).map_err(xattr_error)?;
                list.truncate(length);
                Ok(list)
            })
            .await?;
        append_names(&found, names);
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
            SetXattrHow::Either => XattrFlags::empty(),
            SetXattrHow::Create => XattrFlags::CREATE,
            SetXattrHow::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(caller, object, move |context, place| {
            let name = name?;
            let set = || calls::set_xattr(place.path.as_fd(), &name, &value, flags);
            context.act(set).map_err(xattr_error)
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
        self.change_xattr(caller, object, move |context, place| {
            let name = name?;
            let remove = || calls::remove_xattr(place.path.as_fd(), &name);
            context.act(remove).map_err(xattr_error)
        })
        .await
    }

    /// Asks about an object on a helper, in the context of a caller.
    async fn ask_as<T: Send + 'static>(
        &self,
        caller: &Caller,
        object: Handle,
        question: impl FnOnce(&JobContext, &OpenObject) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (context, place) = self.job_context(caller, object).await?;
        let job = move || {
            context.live(&place)?;
            require(&context, &place)?;
            question(&context, &place)
        };
        self.volume.helpers().run(self.client, job).await?
    }

    async fn change_xattr(
        &self,
        caller: &Caller,
        object: Handle,
        work: impl FnOnce(&JobContext, &OpenObject) -> Result<()> + Send + 'static,
    ) -> Modified<()> {
        let begin = async {
            let (context, place) = self.job_context(caller, object).await?;
            let job = move || {
                context.change(&place, |_| {
                    require(&context, &place)?;
                    work(&context, &place).map(Changed::place)
                })
            };
            self.volume.helpers().run(self.client, job).await
        };
        begin.await.unwrap_or_else(Modified::failed)
    }
}

/// Files and directories have extended attributes (xattr(7)).
fn require(context: &JobContext, place: &OpenObject) -> Result<()> {
    match place.kind {
        Kind::File => Ok(()),
        Kind::Directory => context.require_inside(place),
        Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
    }
}

fn xattr_error(error: Errno) -> StoreError {
    match error {
        Errno::NODATA => StoreError::NoXattr,
        // Of the file system, which may have less room than the kernel.
        Errno::TOOBIG | Errno::RANGE => StoreError::XattrTooLong,
        error => store_error(error),
    }
}
