//! Access control lists, by helpers, as the kernel keeps them in extended attributes (acl(5)). The
//! kernel checks what the caller may do.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::descriptor::proc_path;
use super::errors::store_error;
use super::namespace::{Changed, JobContext, OpenObject};
use super::sys::calls;
use super::view::ClientView;
use crate::access_list_format::{ACCESS, DEFAULT, LONGEST, decode, encode};
use crate::{
    ACCESS_ENTRIES_MAX, AccessList, AccessLists, Caller, Handle, Kind, Modified, Result, StoreError,
};

impl ClientView<'_> {
    pub(super) async fn access_lists(&self, object: Handle) -> Result<AccessLists> {
        let caller = Caller::SUPERUSER;
        let (context, place) = self.job_context(&caller, object).await?;
        let job = move || {
            let found = context.live(&place)?;
            require(&context, &place)?;
            let access = match read(&place, ACCESS)? {
                Some(list) => list,
                None => AccessList::of_mode(found.mode),
            };
            let default = match place.kind {
                Kind::Directory => read(&place, DEFAULT)?,
                _ => None,
            };
            Ok(AccessLists { access, default })
        };
        self.volume.helpers().run(self.client, job).await?
    }

    pub(super) async fn set_access_lists(
        &self,
        caller: &Caller,
        object: Handle,
        lists: &AccessLists,
    ) -> Modified<()> {
        let lists = lists.clone();
        let begin = async {
            let (context, place) = self.job_context(caller, object).await?;
            let job = move || {
                context.change(&place, |_| {
                    require(&context, &place)?;
                    if lists.default.is_some() && place.kind != Kind::Directory {
                        return Err(StoreError::Invalid);
                    }
                    let all = [Some(&lists.access), lists.default.as_ref()];
                    let fits = |list: &AccessList| list.entries() <= ACCESS_ENTRIES_MAX;
                    if !all.into_iter().flatten().all(fits) {
                        return Err(StoreError::Invalid);
                    }
                    let object = place.path.as_fd();
                    let write = |name: &CStr, list: &AccessList| {
                        calls::set_xattr(object, name, &encode(list), XattrFlags::empty())
                    };
                    let set = || {
                        if place.kind == Kind::Directory {
                            match &lists.default {
                                Some(list) => write(DEFAULT, list)?,
                                None => match calls::remove_xattr(object, DEFAULT) {
                                    Ok(()) | Err(Errno::NODATA) => {}
                                    Err(error) => return Err(error),
                                },
                            }
                        }
                        write(ACCESS, &lists.access)
                    };
                    context.act(set).map_err(list_error)?;
                    Ok(Changed::place(()))
                })
            };
            self.volume.helpers().run(self.client, job).await
        };
        begin.await.unwrap_or_else(Modified::failed)
    }
}

/// Permission bits of symbolic links mean nothing.
fn require(context: &JobContext, place: &OpenObject) -> Result<()> {
    match place.kind {
        Kind::Symlink => Err(StoreError::NotSupported),
        Kind::Directory => context.require_inside(place),
        _ => Ok(()),
    }
}

/// A list that the kernel keeps; `None` if there is none.
fn read(place: &OpenObject, name: &CStr) -> Result<Option<AccessList>> {
    let mut value = vec![0; LONGEST];
    let path = proc_path(place.path.as_fd());
    match rustix::fs::getxattr(&path, name, &mut value[..]) {
        Ok(length) => decode(&value[..length]).map(Some),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(list_error(error)),
    }
}

fn list_error(error: Errno) -> StoreError {
    match error {
        Errno::OPNOTSUPP => StoreError::NotSupported,
        Errno::RANGE | Errno::TOOBIG => StoreError::Invalid,
        error => store_error(error),
    }
}
