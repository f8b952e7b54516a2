//! Finding objects by name, and querying them.

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fs::Access;
use rustix::io::Errno;

use super::containment;
use super::errors::store_error;
use super::identity::{Identity, assume, is_own, query_as};
use super::objects::Object;
use super::open_files::{attributes_of, check_name, open_name, opened_of, step_in_memory};
use super::sys::handles;
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
        if let Some(found) = self.lookup_in_memory(&identity, &directory, name) {
            return self.check(&directory, found);
        }
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
        if let Some(found) = self.access_in_memory(&identity, &object, wanted) {
            return Ok(found);
        }
        let (kind, uid) = (object.kind, identity.uid());
        let (granted, attributes) = self
            .ask(&object, move |volume, path| {
                let granted = assume(&identity, || granted(path, kind, wanted));
                let granted = granted.map_err(|_| StoreError::Denied)??;
                Ok((granted, attributes_of(volume.folder(), path)))
            })
            .await?;
        let attributes = self.check(&object, object.existing(attributes))?;
        if wanted.0 & AccessMask::READ != 0 && may_need_list(uid, &attributes) {
            object.has_list_in_memory.set(true);
        }
        Ok((granted, attributes))
    }

    /// [`Self::access`] on this thread, if the kernel has all that it needs in memory.
    pub(super) fn access_in_memory(
        &self,
        identity: &Identity,
        object: &Object,
        wanted: AccessMask,
    ) -> Option<(AccessMask, Attributes)> {
        if object.file_system.slow {
            return None;
        }
        let attributes = object.attributes_at_once().ok()?;
        if may_need_list(identity.uid(), &attributes) && !object.has_list_in_memory.get() {
            return None;
        }
        let granted = self.query_here(identity, || granted(object.fd(), object.kind, wanted))?;
        Some((granted.ok()?, attributes))
    }

    /// [`Self::lookup`] on this thread, if the kernel has the name in memory. Otherwise, and for errors
    /// other than that it does not exist, `None`.
    pub(super) fn lookup_in_memory(
        &self,
        identity: &Identity,
        directory: &Object,
        name: &[u8],
    ) -> Option<Result<(Handle, Attributes)>> {
        let (folder, path) = (self.volume.folder(), directory.fd());
        let file_system = &directory.file_system;
        let is_plain = name != b".." && check_name(name).is_ok();
        if !is_plain || file_system.slow || !folder.uses_kernel_handles(file_system) {
            return None;
        }
        if directory.handle != folder.root() && !containment::is_known_inside(folder, path) {
            return None;
        }
        match self.query_here(identity, || step_in_memory(path, name))?? {
            Ok(object) => {
                let opened = opened_of(folder, path, name, object).ok()?;
                let attributes = opened.attributes;
                let object = self.objects.insert(opened);
                Some(Ok((object.handle, attributes)))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Queries the kernel as a caller on this thread, if the thread may act as that caller.
    fn query_here<T>(&self, identity: &Identity, query: impl FnOnce() -> T) -> Option<T> {
        let may = self.engine.may_act() || is_own(identity);
        may.then(|| query_as(identity, query).ok())?
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

/// Whether an access control list may decide about the rights of a caller: not those of the owner, and
/// not where the mode grants nothing to the group. Where it may, the kernel reads the list before any
/// verdict, possibly from a disk, and keeps it for as long as the object is open.
fn may_need_list(uid: u32, attributes: &Attributes) -> bool {
    attributes.uid != uid && attributes.mode & 0o070 != 0
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
