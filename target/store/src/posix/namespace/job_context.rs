//! The context of jobs that change names or attributes.

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

/// The volume and the identity of a job.
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

/// The result of a change, and the objects to sync before the answer.
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
    /// Calls the kernel as the caller.
    ///
    /// # Errors
    /// Errors of the job, or the thread cannot assume the caller's identity.
    pub fn act<T>(&self, job: impl FnOnce() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        match sys::identity::assume(&self.identity, job) {
            Ok(outcome) => outcome,
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::ACCESS)),
        }
    }

    /// Runs a change of one object under its lock, and syncs it if the volume is strict.
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
        // Waiting for the device then blocks no other change in the directory, and many changes can
        // be synced at once.
        drop(held);
        Modified {
            consistency,
            result: outcome.and_then(|changed| self.settle(changed, &[place])),
        }
    }

    /// Attributes of an object that is not removed.
    pub fn live(&self, place: &OpenObject) -> Result<Attributes> {
        let found = attributes_of(self.volume.folder(), place.path.as_fd())?;
        if found.links == 0 && self.volume.removed(&place.handle).is_none() {
            Err(StoreError::Stale)
        } else {
            Ok(found)
        }
    }

    /// Refuses a directory that was moved out of the volume.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    pub fn require_inside(&self, place: &OpenObject) -> Result<()> {
        containment::require(self.volume.folder(), place.path.as_fd())
    }

    /// The object of a name, without a check of the caller's rights. The directory is known to be
    /// inside.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn find(&self, place: &OpenObject, name: &CStr) -> Result<Opened> {
        let (directory, name) = (place.path.as_fd(), name.to_bytes());
        if name == b".." {
            open_name(self.volume.folder(), directory, name)
        } else {
            open_entry(self.volume.folder(), directory, name)
        }
    }

    /// Attributes before and after. Data of files changes without their lock, so for files there
    /// are none before.
    pub fn consistency(&self, before: &Attributes, place: &OpenObject) -> Consistency {
        Consistency {
            before: (place.kind != Kind::File).then_some(*before),
            after: self.live(place).ok(),
        }
    }

    /// Syncs a change if the volume is strict.
    ///
    /// # Errors
    /// Errors of the kernel. The change stays, but may not be durable.
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
