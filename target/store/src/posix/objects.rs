//! What a reactor has open of a volume.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use super::identity::Identity;
use super::volume::Volume;
use crate::{Attributes, Handle, Kind, Result, StoreError};

/// The objects that a reactor keeps open, at most so many.
pub(super) struct Objects {}

/// An object, open for as long as this is held.
pub(super) struct Object {
    /// By which clients know it.
    pub handle: Handle,
    /// What it is; that never changes.
    pub kind: Kind,
    /// Opened as a path only: names it to system calls, gives no access to data.
    pub path: Arc<OwnedFd>,
    /// What all reactors know of it.
    pub shared: Arc<SharedFile>,
    /// What this reactor's reads, writes and syncs of it are at. Before an object is let go,
    /// [`super::data::settle`] runs on a helper if `shared.data` has unstable data.
    pub local: super::data::ObjectState,
}

/// What all reactors that have an object open share of it. The room `data` puts in what it needs.
#[derive(Default)]
pub(super) struct SharedFile {
    /// How writes of two ways keep out of each other's pages, and what is not durable yet.
    pub data: super::data::FileState,
}

/// What data is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

/// An open file for data.
#[derive(Clone)]
pub(super) struct DataFile {
    pub file: Arc<OwnedFd>,
    /// Whether it passes the page cache by, and then the alignment of offsets, lengths and memory.
    pub direct: Option<u32>,
}

impl Objects {
    pub fn new(_volume: &Volume) -> Self {
        Self {}
    }

    /// The object with this handle, opened on a helper unless it is open.
    pub async fn get(&self, _handle: Handle) -> Result<Rc<Object>> {
        Err(StoreError::NotSupported)
    }
}

impl Object {
    /// Its attributes. Without leaving the reactor where the file system never blocks on that.
    pub async fn attributes(&self) -> Result<Attributes> {
        Err(StoreError::NotSupported)
    }

    /// Makes sure that the caller may use its data so: what the kernel says, but owners always may
    /// (RFC 1813 section 4.4). A verdict is kept for a second as long as owner and mode stay.
    pub async fn permit(&self, _identity: &Identity, _wanted: Use) -> Result<()> {
        Err(StoreError::NotSupported)
    }

    /// Its data, opened with the rights of the superuser, kept open with the object. `direct` is
    /// a wish, which not every file system grants.
    pub async fn data(&self, _wanted: Use, _direct: bool) -> Result<DataFile> {
        Err(StoreError::NotSupported)
    }
}
