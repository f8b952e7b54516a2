//! A store in a folder of a file system of the host.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `config`, `volume` | what a volume is opened from; what all reactors share of it |
//! | `folder`, `file_system`, `mounts` | its folder and the file systems that this spans |
//! | `handle`, `open_files`, `name_cache`, `containment` | opening objects by handle and by name, inside the folder only |
//! | `descriptor` | what can be asked of any open descriptor |
//! | `view` | what operations work with: one reactor's part of a volume, for one client |
//! | `objects`, `object`, `shared_file`, `lru` | what a reactor keeps open |
//! | `identity`, `groups`, `membership`, `helpers` | on whose behalf, and on which threads, what may block is done |
//! | `lookup`, `namespace`, `listing`, `setattr` | everything that finds, changes or lists names and attributes |
//! | `client_queues`, `client_waiters` | turns by client, for all that has to wait |
//! | `engine`, `hold` | reads and writes of file data: one ring per reactor |
//! | `data` | READ, WRITE and COMMIT: direct or by the page cache, and how durable |
//! | `volume_info` | what operators want to know of a volume |
//! | `errors` | what the kernel's errors mean to clients |
//! | `sys` | the system calls that no library wraps safely, with all `unsafe` |
//!
//! Modules depend on those that know less: `folder` on no volume, `volume` on no reactor, and
//! operations on the `view`.

mod client_queues;
mod client_waiters;
mod config;
mod containment;
mod data;
mod descriptor;
pub mod engine;
mod errors;
mod file_system;
mod folder;
mod groups;
mod handle;
pub mod helpers;
pub mod hold;
pub mod identity;
mod listing;
mod lookup;
mod lru;
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
    AccessMask, Attributes, Caller, ClientKey, CookieVerifier, CreateHow, DirectoryEntry,
    DirectoryOutcome, FileData, Handle, Linked, Modified, Namespace, Properties, ReadOutcome,
    Renamed, Result, SetAttributes, SpecialKind, Stability, StagedWrite, Statistics, Store, Time,
    WriteVerifier, Written,
};

/// One reactor's view of a [`Volume`]. Clones share it.
#[derive(Clone)]
pub struct PosixStore {
    inner: Rc<ReactorView>,
    /// Whose operations come by this one.
    client: ClientKey,
}

impl PosixStore {
    /// The volume on the reactor that `engine` and `clock` belong to. Waits have deadlines by that
    /// clock.
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

    /// Lets go of what has been idle for long and has helpers close it. The reactor calls it in
    /// each turn, with the turn's time. Returns how much there was to do.
    pub fn poll(&self, now: Instant) -> usize {
        let objects = &self.inner.objects;
        let done = objects.tick(now);
        let open = &self.inner.data.counters.open_objects;
        open.set(objects.len() as u64);
        done
    }

    /// When [`PosixStore::poll`] has something to do next, for reactors that sleep.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.inner.objects.next_deadline()
    }

    /// What it is a view of.
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

impl Store for PosixStore {
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
        self.inner.volume.properties()
    }

    fn outlives_process(&self) -> bool {
        true
    }
}
