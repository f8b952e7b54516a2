//! Finding objects by name, and querying them.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::Access;
use rustix::io::Errno;

use super::errors::store_error;
use super::objects::Object;
use super::open_files::{attributes_of, open_name};
use super::sys::handles;
use super::sys::identity::assume;
use super::view::ClientView;
use super::volume::Volume;
use crate::{AccessMask, Attributes, Caller, Handle, Kind, Result, Statistics, StoreError};

impl ClientView<'_> {
    pub(super) async fn attributes(&self, object: Handle) -> Result<Attributes> {
        let object = self.objects.get(self.client, object).await?;
        self.check(&object, object.attributes(self.client).await)
    }

    pub(super) async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        let directory = self.objects.get(self.client, directory).await?;
        if directory.kind != Kind::Directory {
            return Err(StoreError::NotDirectory);
        }
        let identity = self.identity(caller).await?;
        let name = name.to_vec();
        let opened = self
            .ask(&directory, move |volume, path| {
                let opened = assume(&identity, || open_name(volume.folder(), path, &name));
                opened.map_err(|_| StoreError::Denied)?
            })
            .await?;
        let attributes = opened.attributes;
        let object = self.objects.insert(opened);
        Ok((object.handle, attributes))
    }

    pub(super) async fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        let object = self.objects.get(self.client, object).await?;
        let identity = self.identity(caller).await?;
        let kind = object.kind;
        let (granted, attributes) = self
            .ask(&object, move |volume, path| {
                let granted = assume(&identity, || granted(path, kind, wanted));
                let granted = granted.map_err(|_| StoreError::Denied)??;
                Ok((granted, attributes_of(volume.folder(), path)))
            })
            .await?;
        let attributes = self.check(&object, object.existing(attributes))?;
        Ok((granted, attributes))
    }

    pub(super) async fn read_link(
        &self,
        _caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        let link = self.objects.get(self.client, link).await?;
        if link.kind != Kind::Symlink {
            return Err(StoreError::Invalid);
        }
        let (found, attributes) = self
            .ask(&link, |volume, path| {
                let found = rustix::fs::readlinkat(path, c"", Vec::with_capacity(256));
                let found = found.map_err(store_error)?;
                Ok((found, attributes_of(volume.folder(), path)))
            })
            .await?;
        let attributes = self.check(&link, link.existing(attributes))?;
        text.extend_from_slice(found.as_bytes());
        Ok(attributes)
    }

    pub(super) async fn statistics(&self, object: Handle) -> Result<Statistics> {
        let object = self.objects.get(self.client, object).await?;
        let (space, attributes) = self
            .ask(&object, |volume, path| {
                let space = rustix::fs::fstatvfs(path).map_err(store_error)?;
                Ok((space, attributes_of(volume.folder(), path)))
            })
            .await?;
        let attributes = self.check(&object, object.existing(attributes))?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Statistics {
            total_bytes: bytes(space.f_blocks),
            free_bytes: bytes(space.f_bfree),
            available_bytes: bytes(space.f_bavail),
            total_inodes: space.f_files,
            free_inodes: space.f_ffree,
            available_inodes: space.f_favail,
            attributes,
        })
    }

    /// Queries an object on a helper.
    async fn ask<T: Send + 'static>(
        &self,
        object: &Rc<Object>,
        question: impl FnOnce(&Volume, BorrowedFd<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volume, path) = (self.volume.clone(), Arc::clone(&object.path));
        let job = move || question(&volume, path.as_fd());
        let answer = self.volume.helpers().run(self.client, job).await?;
        self.check(object, answer)
    }

    /// Drops an object that turned out to be removed.
    fn check<T>(&self, object: &Object, answer: Result<T>) -> Result<T> {
        if let Err(StoreError::Stale) = answer {
            self.objects.forget(&object.handle);
        }
        answer
    }
}

/// The requested rights that the kernel grants this thread (RFC 1813 section 3.3.4). Rights that do
/// not apply to the kind of object are not granted.
fn granted(object: BorrowedFd<'_>, kind: Kind, wanted: AccessMask) -> Result<AccessMask> {
    const CHANGE: u32 = AccessMask::MODIFY | AccessMask::EXTEND;
    let write = match kind {
        Kind::Directory => (
            Access::WRITE_OK | Access::EXEC_OK,
            CHANGE | AccessMask::DELETE,
        ),
        _ => (Access::WRITE_OK, CHANGE),
    };
    let execute = match kind {
        Kind::Directory => AccessMask::LOOKUP,
        Kind::File => AccessMask::EXECUTE,
        Kind::Symlink | Kind::Special(_) => 0,
    };
    let rights = [
        (Access::READ_OK, AccessMask::READ),
        write,
        (Access::EXEC_OK, execute),
    ];
    let mut granted = 0;
    for (access, rights) in rights {
        if wanted.0 & rights == 0 {
            continue;
        }
        match handles::may(object, access) {
            Ok(()) => granted |= rights,
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {}
            Err(error) => return Err(store_error(error)),
        }
    }
    Ok(AccessMask(granted & wanted.0))
}
