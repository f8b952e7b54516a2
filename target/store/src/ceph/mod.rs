//! A store in a CephFS file system, by libcephfs, which any number of servers may serve at once.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `config`, `volume` | the configuration of a volume; its state shared by all reactors |
//! | `session` | a mount and what is kept open of it; another one takes its place when it is lost |
//! | `handle`, `attributes`, `permission` | the forms of handles and attributes; the rights of callers |
//! | `call` | what a job on a helper works with |
//! | `view` | the context of operations: one reactor's part of a volume, for one client |
//! | `names`, `create`, `exclusive`, `listing`, `setattr`, `xattrs`, `access_lists` | names and attributes |
//! | `subdirectories` | the number of directories in a directory |
//! | `data`, `ranges` | contents of files |
//! | `held_files` | files that are open, without a name |
//! | `leases` | leases of files in the cluster |
//! | `cluster_locks` | byte-range locks in the cluster |
//! | `sys` | the library, with all `unsafe` |
//!
//! Every call of the library may block for any time, so each operation is one job on a helper
//! thread: those of the posix store, with turns and bounds by client. Names and data have separate
//! helpers. Nothing of a volume's state before an operation is reported, since another server may
//! change the same objects at any time.

mod access_lists;
mod attributes;
mod call;
pub mod cluster_locks;
pub mod config;
mod create;
mod data;
mod exclusive;
mod handle;
mod held_files;
mod leases;
mod listing;
mod names;
mod permission;
mod ranges;
mod rename;
mod session;
mod setattr;
mod subdirectories;
mod sys;
mod view;
pub mod volume;
mod xattrs;

/// The library without the store, for measurements of both.
pub mod library {
    pub use super::sys::{File, Identity, Inode, Mount, OpenMode, Statx};
}

use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::{Pool, Slice};

use self::view::{ClientView, ReactorView};
use self::volume::CephVolume;
use crate::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, ClientKey, CookieVerifier,
    CopiedRange, CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData,
    FileHold, FileLease, FileRanges, FoundRange, Handle, LeaseBreak, Linked, Modified, Namespace,
    Properties, RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow,
    SpecialKind, Stability, StagedWrite, Statistics, Store, Time, UsageAdvice, WriteVerifier,
    Written,
};

/// One reactor's view of a [`CephVolume`]. Clones share it.
#[derive(Clone)]
pub struct CephStore {
    inner: Rc<ReactorView>,
    /// The client of this view's operations.
    client: ClientKey,
}

impl CephStore {
    /// The volume on the reactor with this memory.
    #[must_use]
    pub fn new(volume: &CephVolume, pool: &Pool) -> Self {
        Self {
            inner: Rc::new(ReactorView::new(volume, pool)),
            client: ClientKey::OWN,
        }
    }

    fn view(&self) -> ClientView<'_> {
        ClientView {
            inner: &self.inner,
            client: self.client,
        }
    }

    /// Releases memory of ended jobs, and lets helpers close what has been idle for long. The
    /// reactor calls it in each turn, with the turn's time. Returns the amount of work done.
    pub fn poll(&self, now: Instant) -> usize {
        self.inner.poll(now)
    }

    /// When [`CephStore::poll`] next has work, for reactors that sleep.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    /// The volume of this view.
    #[must_use]
    pub fn volume(&self) -> &CephVolume {
        &self.inner.volume
    }
}

/// Calls the operation of the same name of the client's view.
macro_rules! view {
    ($store:ident.$operation:ident($($argument:ident),*)) => {
        $store.view().$operation($($argument),*).await
    };
}

impl Namespace for CephStore {
    forward_namespace!(view);
}

impl FileData for CephStore {
    type Reservation = data::Reservation;

    forward_file_data!(view);
}

impl FileRanges for CephStore {
    forward_file_ranges!(view);
}

impl AccessControl for CephStore {
    forward_access_control!(view);
}

impl ExtendedAttributes for CephStore {
    forward_extended_attributes!(view);
}

impl Store for CephStore {
    fn for_client(&self, client: ClientKey) -> Option<Self> {
        Some(Self {
            inner: Rc::clone(&self.inner),
            client,
        })
    }

    fn root(&self) -> Handle {
        self.inner.volume.root()
    }

    fn properties(&self) -> Properties {
        Properties {
            name_max: config::NAME_MAX as u32,
            links_max: i32::MAX as u32,
            size_max: i64::MAX as u64,
            file_system: 0,
            clone_block: None,
            xattrs: true,
            access_lists: true,
            counts_changes: true,
            changes_elsewhere: true,
            shared_by_servers: true,
            leases: self.inner.volume.config().leases,
        }
    }

    fn outlives_process(&self) -> bool {
        true
    }

    async fn lease(&self, file: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
        self.view().lease(file, end).await
    }
}
