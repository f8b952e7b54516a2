//! A store in a folder of a file system of the host.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `config`, `volume` | the configuration of a volume; its state shared by all reactors |
//! | `folder`, `file_system`, `mounts` | its folder and the file systems below it |
//! | `handle`, `open_files`, `name_cache`, `containment` | opening objects by handle and by name, inside the folder only |
//! | `descriptor` | queries of open descriptors |
//! | `view` | the context of operations: one reactor's part of a volume, for one client |
//! | `objects`, `object`, `shared_file` | the objects that a reactor keeps open |
//! | `identity`, `groups`, `membership`, `helpers` | identities and threads of operations that may block |
//! | `lookup`, `namespace`, `listing`, `setattr`, `xattrs` | operations that find, change or list names and attributes |
//! | `client_queues`, `client_waiters` | queues served client by client in turn |
//! | `engine`, `hold` | reads and writes of file data: one ring per reactor |
//! | `at_once`, `cache_hits` | what need not wait; whether a read is tried so |
//! | `data` | READ, WRITE and COMMIT: direct or through the page cache, and their durability; space and copies of ranges |
//! | `host_locks` | byte-range locks on the host |
//! | `volume_info` | information for operators |
//! | `errors` | translation of the kernel's errors |
//! | `sys` | system calls without a safe wrapper in a library, with all `unsafe` |
//!
//! Modules depend on more basic ones: `folder` on no volume, `volume` on no reactor, and operations
//! on the `view`.

mod access_lists;
mod at_once;
mod cache_hits;
mod client_queues;
mod client_waiters;
mod config;
mod containment;
mod data;
mod descriptor;
pub mod engine;
pub(crate) mod errors;
mod file_system;
mod folder;
mod groups;
mod handle;
mod held_files;
pub mod helpers;
pub mod hold;
pub mod host_locks;
pub mod identity;
mod kept_files;
mod listing;
mod lookup;
mod membership;
mod mounts;
mod name_cache;
mod namespace;
mod object;
mod objects;
mod open_files;
mod setattr;
mod shared_file;
mod sys;
mod view;
pub mod volume;
pub mod volume_info;
mod xattrs;

#[cfg(test)]
mod durability_tests;
#[cfg(test)]
#[path = "../../tests/posix_machine/mod.rs"]
mod posix_machine;

use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Slice;
use millrace_reactor::Clock;

pub use self::data::counters::VolumeFigures;

use self::data::local::LocalData;
use self::engine::Engine;
use self::groups::Identities;
use self::objects::Objects;
use self::view::{ClientView, ReactorView};
use self::volume::Volume;
use crate::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, ClientKey, CookieVerifier,
    CopiedRange, CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData,
    FileHold, FileRanges, FoundRange, Handle, Immediate, Linked, Modified, Namespace, Properties,
    RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow, SpecialKind, Stability,
    StagedWrite, Statistics, Store, Time, UsageAdvice, WriteVerifier, Written,
};

/// One reactor's view of a [`Volume`]. Clones share it.
#[derive(Clone)]
pub struct PosixStore {
    inner: Rc<ReactorView>,
    /// The client of this view's operations.
    client: ClientKey,
}

impl PosixStore {
    /// The volume on the reactor of `engine` and `clock`. Waits have deadlines by that clock.
    #[must_use]
    pub fn new(volume: &Volume, engine: &Engine, clock: &Clock) -> Self {
        Self {
            inner: Rc::new(ReactorView {
                objects: Objects::new(volume),
                data: LocalData::new(volume, engine, clock),
                identities: Identities::new(),
                volume: volume.clone(),
                engine: engine.clone(),
            }),
            client: ClientKey::OWN,
        }
    }

    fn view(&self) -> ClientView<'_> {
        ClientView {
            inner: &self.inner,
            client: self.client,
        }
    }

    /// Drops objects that have been idle for long, which helpers then close. The reactor calls it
    /// in each turn, with the turn's time. Returns the amount of work done.
    pub fn poll(&self, now: Instant) -> usize {
        let objects = &self.inner.objects;
        let done = objects.tick(now);
        let open = &self.inner.data.counters.open_objects;
        open.set(objects.len() as u64);
        done
    }

    /// When [`PosixStore::poll`] next has work, for reactors that sleep.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.objects.next_deadline()
    }

    /// The volume of this view.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.inner.volume
    }
}

/// Calls the operation of the same name of the client's view.
macro_rules! view {
    ($store:ident.$operation:ident($($argument:ident),*)) => {
        $store.view().$operation($($argument),*).await
    };
}

impl Namespace for PosixStore {
    forward_namespace!(view);
}

impl FileData for PosixStore {
    type Reservation = data::write::Reservation;

    forward_file_data!(view);
}

impl FileRanges for PosixStore {
    forward_file_ranges!(view);
}

impl AccessControl for PosixStore {
    forward_access_control!(view);
}

impl ExtendedAttributes for PosixStore {
    forward_extended_attributes!(view);
}

impl Store for PosixStore {
    fn for_client(&self, client: ClientKey) -> Option<Self> {
        Some(Self {
            inner: Rc::clone(&self.inner),
            client,
        })
    }

    fn immediate(&self) -> Option<Immediate<'_>> {
        Some(Immediate::of_folder(self))
    }

    fn root(&self) -> Handle {
        self.inner.volume.root()
    }

    fn properties(&self) -> Properties {
        self.inner.volume.properties()
    }

    fn outlives_process(&self) -> bool {
        true
    }
}
