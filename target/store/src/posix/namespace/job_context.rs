//! What a job that changes names or attributes works with.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::durable;
use crate::posix::containment;
use crate::posix::errors::store_error;
use crate::posix::identity::Identity;
use crate::posix::objects::Object;
use crate::posix::open_files::{Opened, attributes_of, open_entry, open_name};
use crate::posix::sys;
use crate::posix::volume::{Sync, Volume};
use crate::{Attributes, Consistency, Handle, Kind, Modified, Result, StoreError};

/// Where a job works, and on whose behalf.
pub(in crate::posix) struct JobContext {
    pub volume: Volume,
    pub identity: Identity,
}

/// An object that a job changes, kept open for it.
#[derive(Clone)]
pub(in crate::posix) struct OpenObject {
    pub handle: Handle,
    pub kind: Kind,
    pub path: Arc<OwnedFd>,
}

impl OpenObject {
    pub fn of(object: &Object) -> Self {
        Self {
            handle: object.handle,
            kind: object.kind,
            path: Arc::clone(&object.path),
        }
    }
}

/// What a change came to, and what has to be durable before it is answered.
pub(in crate::posix) struct Changed<T> {
    pub value: T,
    /// Whether the directory (or the object itself) was changed.
    pub place: bool,
    /// A new or changed object.
    pub object: Option<OwnedFd>,
    pub kind: Kind,
}

impl<T> Changed<T> {
    /// Nothing was changed.
    pub fn nothing(value: T) -> Self {
        Self {
            value,
            place: false,
            object: None,
            kind: Kind::File,
        }
    }

    /// The directory alone was changed.
    pub fn place(value: T) -> Self {
        Self {
            place: true,
            ..Self::nothing(value)
        }
    }
}

impl JobContext {
    /// Calls the kernel on the caller's behalf.
    ///
    /// # Errors
    /// What the job fails with, or that the thread cannot be the caller.
    pub fn act<T>(&self, job: impl FnOnce() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match sys::identity::assume(&self.identity, job) {
            Ok(outcome) => outcome,
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::ACCESS)),
        }
    }

    /// Runs a change of one object under its lock, and makes it durable where the volume is strict.
    pub fn change<T>(
        &self,
        place: &OpenObject,
        work: impl FnOnce(&Attributes) -> Result<Changed<T>>,
    ) -> Modified<T> {
        let locked = self.volume.changes().lock(&place.handle);
        let (held, before) = match locked.and_then(|held| Ok((held, self.live(place)?))) {
            Ok(begun) => begun,
            Err(error) => return Modified::failed(error),
        };
        let outcome = work(&before);
        let consistency = self.consistency(&before, place);
        // What waits for a device holds up nobody else in the directory, and many changes can
        // become durable at once.
        drop(held);
        Modified {
            consistency,
            result: outcome.and_then(|changed| self.settle(changed, &[place])),
        }
    }

    /// Attributes of an object that is not gone.
    pub fn live(&self, place: &OpenObject) -> Result<Attributes> {
        let found = attributes_of(self.volume.folder(), place.path.as_fd())?;
        if found.links == 0 {
            Err(StoreError::Stale)
        } else {
            Ok(found)
        }
    }

    /// Refuses a directory that somebody has moved out of the volume.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    pub fn require_inside(&self, place: &OpenObject) -> Result<()> {
        containment::require(self.volume.folder(), place.path.as_fd())
    }

    /// The object that a name stands for, whoever may look it up. The directory is known to be
    /// inside.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn find(&self, place: &OpenObject, name: &CStr) -> Result<Opened> {
        let (directory, name) = (place.path.as_fd(), name.to_bytes());
        if name == b".." {
            open_name(self.volume.folder(), directory, name)
        } else {
            open_entry(self.volume.folder(), directory, name)
        }
    }

    /// What was before, and what is now. Data of files changes without their lock, so that of them
    /// there is no before.
    pub fn consistency(&self, before: &Attributes, place: &OpenObject) -> Consistency {
        Consistency {
            before: (place.kind != Kind::File).then_some(*before),
            after: self.live(place).ok(),
        }
    }

    /// Makes a change durable where the volume is strict.
    ///
    /// # Errors
    /// What the kernel says. The change stays, and nobody knows for how long.
    pub fn settle<T>(&self, changed: Changed<T>, places: &[&OpenObject]) -> Result<T> {
        if self.volume.config().sync == Sync::Strict {
            if let Some(object) = &changed.object {
                self.sync(object, changed.kind)?;
            }
            for place in places.iter().filter(|_| changed.place) {
                self.sync(&place.path, place.kind)?;
            }
        }
        Ok(changed.value)
    }

    fn sync(&self, object: &OwnedFd, kind: Kind) -> Result<()> {
        self.volume.changes().count_sync();
        let file_system = self.volume.folder().file_system_of(object.as_fd());
        file_system
            .and_then(|there| durable::sync(object, kind, &there.mount))
            .map_err(store_error)
    }
}
