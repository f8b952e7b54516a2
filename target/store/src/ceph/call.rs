//! What a job on a helper works with: the session, the caller and the objects of handles.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use rustix::io::Errno;

use super::attributes::attributes;
use super::handle::ObjectKey;
use super::session::Session;
use super::sys::{File, Identity, Inode, OpenMode, Statx};
use super::volume::CephVolume;
use crate::{Attributes, Caller, Consistency, Handle, Kind, Modified, Result, StoreError};

/// The extended attribute of a directory that counts the directories in it.
const SUBDIRECTORIES: &std::ffi::CStr = c"ceph.dir.subdirs";

/// A job's volume, session and caller.
pub(super) struct CallContext {
    pub volume: CephVolume,
    pub session: Arc<Session>,
    pub caller: Caller,
    pub identity: Identity,
}

/// An object as it was found.
#[derive(Clone)]
pub(super) struct FoundObject {
    pub inode: Arc<Inode>,
    pub handle: Handle,
    pub attributes: Attributes,
}

/// The result of a change, and what to sync before the answer.
pub(super) struct Changed<T> {
    pub value: T,
    /// Whether the object that the operation works in was changed.
    pub place: bool,
    /// Whether as many directories are in it as before.
    pub has_same_directories: bool,
    /// Another object that was changed.
    pub other: Option<Arc<Inode>>,
}

impl<T> Changed<T> {
    /// Nothing was changed.
    pub fn nothing(value: T) -> Self {
        Self {
            value,
            place: false,
            has_same_directories: false,
            other: None,
        }
    }

    /// The object or directory that the operation works in was changed.
    pub fn place(value: T) -> Self {
        Self {
            place: true,
            ..Self::nothing(value)
        }
    }

    /// Names of other objects than directories were changed.
    pub fn names(value: T) -> Self {
        Self {
            has_same_directories: true,
            ..Self::place(value)
        }
    }
}

impl CallContext {
    pub fn new(volume: CephVolume, caller: Caller) -> Result<Self> {
        Ok(Self {
            session: volume.session()?,
            identity: Identity::of(&caller),
            volume,
            caller,
        })
    }

    /// The meaning of an error of the library.
    pub fn error(&self, error: Errno) -> StoreError {
        self.volume.error(&self.session, error)
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// [`StoreError::Stale`]: it is gone, or another one has its number.
    pub fn object(&self, handle: Handle) -> Result<FoundObject> {
        let (inode, found) = self.find(handle)?;
        let attributes = self.described(&inode, &found)?;
        Ok(FoundObject {
            inode,
            handle,
            attributes,
        })
    }

    /// The same to work with: links of a directory are not counted.
    ///
    /// # Errors
    /// The same.
    pub fn place(&self, handle: Handle) -> Result<FoundObject> {
        let (inode, found) = self.find(handle)?;
        Ok(FoundObject {
            inode,
            handle,
            attributes: attributes(&found),
        })
    }

    fn find(&self, handle: Handle) -> Result<(Arc<Inode>, Statx)> {
        let key = ObjectKey::from_handle(&handle, self.session.file_system)?;
        let inode = if handle == self.session.root_handle {
            Arc::clone(self.session.root())
        } else {
            self.session
                .object(key.inode)
                .map_err(|error| match error {
                    Errno::NOENT => StoreError::Stale,
                    error => self.error(error),
                })?
        };
        let found = inode.attributes(&self.session.superuser);
        let found = found.map_err(|error| self.error(error))?;
        // One without names stays known to the cluster for a while.
        let is_gone = found.links == 0 && !self.session.is_held(key.inode);
        if is_gone || ObjectKey::of(&found) != key {
            self.session.forget(key.inode);
            return Err(StoreError::Stale);
        }
        Ok((inode, found))
    }

    /// The directory of a handle, to work with.
    ///
    /// # Errors
    /// As for objects; [`StoreError::NotDirectory`].
    pub fn directory(&self, handle: Handle) -> Result<FoundObject> {
        let found = self.place(handle)?;
        match found.attributes.kind {
            Kind::Directory => Ok(found),
            _ => Err(StoreError::NotDirectory),
        }
    }

    /// The regular file of a handle.
    ///
    /// # Errors
    /// As for objects; [`StoreError::IsDirectory`], [`StoreError::Invalid`].
    pub fn file(&self, handle: Handle) -> Result<FoundObject> {
        let found = self.object(handle)?;
        match found.attributes.kind {
            Kind::File => Ok(found),
            Kind::Directory => Err(StoreError::IsDirectory),
            Kind::Symlink | Kind::Special(_) => Err(StoreError::Invalid),
        }
    }

    /// Keeps an object that a call of the library found or made.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn keep(&self, (inode, found): (Inode, Statx)) -> Result<FoundObject> {
        let inode = self.session.keep(found.inode, inode);
        self.kept(inode, &found)
    }

    /// Keeps a file that the caller has made.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn keep_made(&self, (file, found): (File, Statx)) -> Result<FoundObject> {
        let inode = self.session.keep_made(found.inode, file, self.caller.uid);
        self.kept(inode, &found)
    }

    fn kept(&self, inode: Arc<Inode>, found: &Statx) -> Result<FoundObject> {
        let key = ObjectKey::of(found);
        Ok(FoundObject {
            attributes: self.described(&inode, found)?,
            handle: key.handle(self.session.file_system),
            inode,
        })
    }

    /// Attributes with the links of directories: the library does not count their subdirectories.
    fn described(&self, inode: &Inode, found: &Statx) -> Result<Attributes> {
        let mut shown = attributes(found);
        if shown.kind == Kind::Directory {
            let count = match self.session.subdirectories.get(found.inode, found.version) {
                Some(count) => count,
                None => self.count_subdirectories(inode, found)?,
            };
            shown.links = count.saturating_add(2);
        }
        Ok(shown)
    }

    /// Asks the cluster. The number is that of this version, or of a later one that will be found
    /// and asked for next time.
    fn count_subdirectories(&self, inode: &Inode, found: &Statx) -> Result<u32> {
        let count = inode.xattr(&self.session.superuser, SUBDIRECTORIES, 32);
        let count = count.map_err(|error| self.error(error))?;
        let count = std::str::from_utf8(&count).ok();
        let count = count.and_then(|count| count.trim_end_matches('\0').parse::<u32>().ok());
        let count = count.unwrap_or(0);
        let known = &self.session.subdirectories;
        known.keep(found.inode, found.version, count);
        Ok(count)
    }

    /// Attributes of an entry of a directory.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn listed(&self, found: &Statx) -> Result<Attributes> {
        if u32::from(found.mode) & libc::S_IFMT != libc::S_IFDIR {
            return Ok(attributes(found));
        }
        let inode = self.session.object(found.inode);
        let inode = inode.map_err(|error| self.error(error))?;
        self.described(&inode, found)
    }

    /// Attributes of an object now.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn attributes(&self, object: &FoundObject) -> Result<Attributes> {
        let found = object.inode.attributes(&self.session.superuser);
        let found = found.map_err(|error| self.error(error))?;
        self.described(&object.inode, &found)
    }

    /// The attributes after an operation, and none from before: another server may have made
    /// changes in between.
    pub fn after(&self, object: &FoundObject) -> Consistency {
        Consistency {
            before: None,
            after: self.attributes(object).ok(),
        }
    }

    /// Refuses changes of a read-only volume.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    pub fn require_writable(&self) -> Result<()> {
        if self.volume.config().read_only {
            Err(StoreError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Changes an object, or names in a directory, and syncs that if the volume is strict.
    pub fn change<T>(
        &self,
        place: Result<FoundObject>,
        work: impl FnOnce(&FoundObject) -> Result<Changed<T>>,
    ) -> Modified<T> {
        let place = match place {
            Ok(place) => place,
            Err(error) => return Modified::failed(error),
        };
        let done = self.require_writable().and_then(|()| work(&place));
        let result = done.and_then(|changed| {
            if changed.has_same_directories
                && let Ok(found) = place.inode.attributes(&self.session.superuser)
            {
                let (before, after) = (place.attributes.change, found.version);
                let counts = &self.session.subdirectories;
                counts.pass_on(found.inode, before, after);
            }
            let own = changed.place.then_some(&place.inode);
            for inode in own.into_iter().chain(&changed.other) {
                self.settle(inode)?;
            }
            Ok(changed.value)
        });
        Modified {
            consistency: self.after(&place),
            result,
        }
    }

    /// Waits until a change is durable, if the volume is strict. The cluster answers before that.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn settle(&self, inode: &Inode) -> Result<()> {
        if !self.volume.is_strict() {
            return Ok(());
        }
        self.volume.counters().name_syncs.fetch_add(1, SeqCst);
        inode.sync().map_err(|error| self.error(error))
    }

    /// A file, open for any caller: rights are checked before.
    ///
    /// # Errors
    /// Errors of the cluster.
    pub fn opened(&self, file: &FoundObject, mode: OpenMode) -> Result<Arc<File>> {
        let number = file.attributes.inode;
        let opened = self
            .session
            .file(number, &file.inode, mode, self.caller.uid);
        opened.map_err(|error| self.error(error))
    }
}
