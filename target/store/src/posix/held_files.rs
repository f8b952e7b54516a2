//! Files that are held while clients have them open, also without a name.
//!
//! Only the count of holds is kept of a file with names. Who removes the last name in this process
//! leaves a descriptor of the file to those who hold it, by which every reactor opens it from then
//! on. Clients that open and remove many files must not take all descriptors of the process: beyond
//! [`Limits::open_files`](super::config::Limits::open_files) of them, files end with their names. A
//! file that another process removes is stale when no reactor has it open.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::errors::store_error;
use super::open_files::{Opened, attributes_of, open_handle};
use super::shared_file::SharedFile;
use super::view::ClientView;
use super::volume::{Volume, WeakVolume};
use crate::{ClientKey, FileHold, Handle, Result, StoreError};

/// An object whose name is being removed, which may be its last one.
pub(super) struct Removal {
    pub handle: Handle,
    /// Opened as a path only.
    pub path: Arc<OwnedFd>,
}

impl ClientView<'_> {
    pub(super) async fn hold(&self, file: Handle) -> Result<FileHold> {
        let object = self.objects.get(self.client, file).await?;
        object.require_regular()?;
        // Counted first: a removal at the same time sees the hold, or its effect is seen here.
        let held = HeldFile::new(&self.volume, file, Arc::clone(&object.shared));
        object.attributes(self.client).await?;
        Ok(FileHold::new(held))
    }
}

impl Volume {
    /// Opens an object by its handle, one without a name if it is held. May block.
    ///
    /// # Errors
    /// [`StoreError::Stale`] if there is no such object in the volume.
    pub(super) fn open_object(&self, handle: &Handle) -> Result<Opened> {
        match open_handle(self.folder(), handle) {
            Err(StoreError::Stale) => self.open_removed(handle),
            outcome => outcome,
        }
    }

    fn open_removed(&self, handle: &Handle) -> Result<Opened> {
        let path = self.removed(handle).ok_or(StoreError::Stale)?;
        let path = path.try_clone().map_err(|_| StoreError::Io)?;
        let file_system = self.folder().file_system_of(path.as_fd());
        Ok(Opened {
            handle: *handle,
            attributes: attributes_of(self.folder(), path.as_fd())?,
            file_system: file_system.map_err(store_error)?,
            path,
        })
    }

    /// An object without a name that is held.
    pub(super) fn removed(&self, handle: &Handle) -> Option<Arc<OwnedFd>> {
        self.files().look(handle, SharedFile::removed).flatten()
    }

    /// Keeps an object whose last name is being removed, if it is held and one more may be kept.
    pub(super) fn keep_removed(&self, removal: &Removal) -> bool {
        let most = self.config().limits.open_files;
        let may_keep = || self.kept_files().begin(most);
        let keep = |shared: &SharedFile| shared.keep_removed(&removal.path, may_keep);
        self.files().look(&removal.handle, keep).unwrap_or(false)
    }
}

/// One hold of a file.
struct HeldFile {
    /// A volume that is served no longer is closed whoever holds its files.
    volume: WeakVolume,
    handle: Handle,
    shared: Option<Arc<SharedFile>>,
}

impl HeldFile {
    fn new(volume: &Volume, handle: Handle, shared: Arc<SharedFile>) -> Self {
        shared.hold();
        Self {
            volume: volume.downgrade(),
            handle,
            shared: Some(shared),
        }
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        let removed = shared.release();
        let Some(volume) = self.volume.upgrade() else {
            return;
        };
        volume.files().release(self.handle, shared);
        if let Some(path) = removed {
            volume.kept_files().end();
            volume.unlinked().tell(self.handle);
            // The last descriptor frees the space of the file, which may take long.
            drop(volume.helpers().run(ClientKey::OWN, move || drop(path)));
        }
    }
}
