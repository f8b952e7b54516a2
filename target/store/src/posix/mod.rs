//! A store in a folder of a file system of the host.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `volume`, `file_system`, `mounts` | one export's folder, shared by all reactors; the file systems it spans |
//! | `handle`, `opening`, `remembered`, `inside`, `lookup` | finding objects by handle and by name, inside the folder only |
//! | `objects`, `object`, `shared_file`, `lru` | what a reactor keeps open |
//! | `identity`, `groups`, `helpers` | on whose behalf, and on which threads, what may block is done |
//! | `names`, `listing`, `setting` | everything that changes or lists names and attributes |
//! | `client_queues`, `client_waiters` | turns by client, for all that has to wait |
//! | `engine`, `hold` | reads and writes of file data: one ring per reactor |
//! | `data` | READ, WRITE and COMMIT: direct or by the page cache, and how durable |
//! | `about` | what operators want to know of a volume |
//! | `errors` | what the kernel's errors mean to clients |
//! | `sys` | the system calls that no library wraps safely, with all `unsafe` |

pub mod about;
mod client_queues;
mod client_waiters;
mod data;
pub mod engine;
mod errors;
mod file_system;
mod groups;
mod handle;
pub mod helpers;
pub mod hold;
pub mod identity;
mod inside;
mod listing;
mod lookup;
mod lru;
mod mounts;
mod names;
mod object;
mod objects;
mod opening;
mod remembered;
mod setting;
mod shared_file;
mod sys;
pub mod volume;

#[cfg(test)]
mod durability_tests;
#[cfg(test)]
#[path = "../../tests/posix_machine/mod.rs"]
mod posix_machine;

use std::ops::Deref;
use std::rc::Rc;
use std::time::Instant;

use millrace_mempool::Slice;
use millrace_reactor::Clock;

pub use self::data::VolumeFigures;

use self::engine::Engine;
use self::groups::Identities;
use self::objects::Objects;
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
    inner: Rc<Inner>,
    /// Whose operations come by this one.
    client: ClientKey,
}

/// The store for one operation of a client.
#[derive(Clone, Copy)]
struct ClientView<'a> {
    inner: &'a Inner,
    client: ClientKey,
}

impl ClientView<'_> {
    /// The engine for this client's operations.
    fn client_engine(&self) -> Engine {
        self.inner.engine.for_client(self.client)
    }
}

impl Deref for ClientView<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.inner
    }
}

struct Inner {
    volume: Volume,
    engine: Engine,
    /// What this reactor has open.
    objects: Objects,
    /// What this reactor's reads, writes and syncs are at.
    data: data::Local,
    /// Callers that this reactor has met.
    identities: Identities,
}

impl PosixStore {
    /// The volume on the reactor that `engine` and `clock` belong to. Waits have deadlines by that
    /// clock.
    #[must_use]
    pub fn new(volume: &Volume, engine: &Engine, clock: &Clock) -> Self {
        Self {
            inner: Rc::new(Inner {
                objects: Objects::new(volume),
                data: data::Local::new(volume, engine, clock),
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
    type Reservation = data::Reservation;

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
