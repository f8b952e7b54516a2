//! One of the stores, chosen by the configuration.
//!
//! This is an enum and not a trait object, so that the futures of a store are part of its caller's
//! and a steady READ or WRITE allocates nothing. Operations on names of a folder are boxed: their
//! futures are large and would enlarge every task of a reactor.

use std::time::{Duration, Instant};

use millrace_mempool::{Pool, Slice};
use millrace_reactor::Clock;

#[cfg(feature = "ceph")]
use crate::ceph::{CephStore, volume::CephVolume};
use crate::memory::MemoryStore;
use crate::posix::PosixStore;
use crate::posix::engine::Engine;
use crate::posix::volume::Volume;
use crate::posix::volume_info::FileSystemSpace;
use crate::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, ClientKey, CookieVerifier,
    CopiedRange, CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData,
    FileHold, FileLease, FileRanges, FoundRange, Handle, Immediate, LeaseBreak, Linked, Modified,
    Namespace, Properties, RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow,
    SpecialKind, Stability, StagedWrite, Statistics, Store, StoreError, Time, UsageAdvice,
    WriteVerifier, Written,
};

/// The interval of checking whether a volume's helpers are done.
const PAUSE: Duration = Duration::from_millis(5);

/// What an export serves from, whichever kind. Clones share it, also between threads.
#[derive(Clone)]
pub enum AnyVolume {
    /// In memory.
    Memory(MemoryStore),
    /// A folder of the host.
    Posix(Volume),
    /// A directory of a CephFS file system.
    #[cfg(feature = "ceph")]
    Ceph(CephVolume),
}

impl AnyVolume {
    /// Whether both are one and the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => one.is(other),
            (Self::Posix(one), Self::Posix(other)) => one.is(other),
            #[cfg(feature = "ceph")]
            (Self::Ceph(one), Self::Ceph(other)) => one.is(other),
            _ => false,
        }
    }

    /// The folder, if it is one.
    #[must_use]
    pub fn posix(&self) -> Option<&Volume> {
        match self {
            Self::Posix(volume) => Some(volume),
            _ => None,
        }
    }

    /// Its kind, as the configuration names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Posix(_) => "posix",
            #[cfg(feature = "ceph")]
            Self::Ceph(_) => "ceph",
        }
    }

    /// Whether its files are kept outside of this process, so that it has to be closed.
    #[must_use]
    pub fn is_kept_elsewhere(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// Its name in logs; empty in memory.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Memory(_) => String::new(),
            Self::Posix(volume) => volume.config().name.clone(),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.config().name.clone(),
        }
    }

    /// Whether nothing else uses it: no reactor and no job.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Posix(volume) => volume.is_sole(),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.is_sole(),
        }
    }

    /// Ends its service, once no reactor uses it. Blocks as long as its file system does.
    pub fn close(&self) {
        // Reactors have left syncing and closing to helpers.
        while self.is_busy() {
            std::thread::sleep(PAUSE);
        }
        match self {
            Self::Memory(_) => {}
            Self::Posix(volume) => volume.close(),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.close(),
        }
    }

    /// The space of its file system, unless it is in memory. Blocks.
    #[must_use]
    pub fn space(&self) -> Option<FileSystemSpace> {
        match self {
            Self::Memory(_) => None,
            Self::Posix(volume) => volume.space().ok(),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.space().ok(),
        }
    }

    fn is_busy(&self) -> bool {
        let load = match self {
            Self::Memory(_) => return false,
            Self::Posix(volume) => volume.helpers().load(),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => volume.load(),
        };
        load.running > 0 || load.queued > 0
    }

    /// Its store on the reactor that `pool`, `engine` and `clock` belong to. `None` for a folder
    /// without an engine.
    #[must_use]
    #[cfg_attr(not(feature = "ceph"), allow(unused_variables))] // The engine has the pool.
    pub fn store(&self, pool: &Pool, engine: Option<&Engine>, clock: &Clock) -> Option<AnyStore> {
        Some(match self {
            Self::Memory(store) => AnyStore::Memory(store.clone()),
            Self::Posix(volume) => AnyStore::Posix(PosixStore::new(volume, engine?, clock)),
            #[cfg(feature = "ceph")]
            Self::Ceph(volume) => AnyStore::Ceph(CephStore::new(volume, pool)),
        })
    }
}

/// One reactor's view of an [`AnyVolume`]. Clones share it.
#[derive(Clone)]
pub enum AnyStore {
    /// In memory.
    Memory(MemoryStore),
    /// A folder of the host.
    Posix(PosixStore),
    /// A directory of a CephFS file system.
    #[cfg(feature = "ceph")]
    Ceph(CephStore),
}

impl AnyStore {
    /// Whether it is a view of this one.
    #[must_use]
    pub fn is_of(&self, volume: &AnyVolume) -> bool {
        match (self, volume) {
            (Self::Memory(one), AnyVolume::Memory(other)) => one.is(other),
            (Self::Posix(one), AnyVolume::Posix(other)) => one.volume().is(other),
            #[cfg(feature = "ceph")]
            (Self::Ceph(one), AnyVolume::Ceph(other)) => one.volume().is(other),
            _ => false,
        }
    }

    /// Does what is due by the time of the reactor's turn, such as closing idle objects. Returns the
    /// amount of work.
    pub fn poll(&self, now: Instant) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::Posix(store) => store.poll(now),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.poll(now),
        }
    }

    /// When [`AnyStore::poll`] next has work, for reactors that sleep.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Memory(_) => None,
            Self::Posix(store) => store.next_deadline(),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.next_deadline(),
        }
    }
}

/// What a staged write holds, as its own store knows it.
pub enum Reservation {
    /// In memory.
    Memory(<MemoryStore as FileData>::Reservation),
    /// In a folder.
    Posix(<PosixStore as FileData>::Reservation),
    /// In CephFS.
    #[cfg(feature = "ceph")]
    Ceph(<CephStore as FileData>::Reservation),
}

/// Calls the store that there is. Futures of folders are boxed, but for the attributes.
macro_rules! namespace {
    ($any:ident.attributes($object:ident)) => {
        match $any {
            AnyStore::Memory(store) => store.attributes($object).await,
            AnyStore::Posix(store) => store.attributes($object).await,
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => Box::pin(store.attributes($object)).await,
        }
    };
    ($any:ident.$operation:ident($($argument:ident),*)) => {
        match $any {
            AnyStore::Memory(store) => store.$operation($($argument),*).await,
            AnyStore::Posix(store) => Box::pin(store.$operation($($argument),*)).await,
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => Box::pin(store.$operation($($argument),*)).await,
        }
    };
}

impl Namespace for AnyStore {
    forward_namespace!(namespace);
}

/// Calls the store that there is, with a future of its own size.
macro_rules! apart {
    ($any:ident.$operation:ident($($argument:ident),*)) => {
        match $any {
            AnyStore::Memory(store) => Box::pin(store.$operation($($argument),*)).await,
            AnyStore::Posix(store) => Box::pin(store.$operation($($argument),*)).await,
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => Box::pin(store.$operation($($argument),*)).await,
        }
    };
}

/// Calls the store that there is, with the reservation that it knows.
macro_rules! file_data {
    ($any:ident.stage_write($($argument:ident),*)) => {
        Ok(match $any {
            AnyStore::Memory(store) => {
                let staged = store.stage_write($($argument),*).await?;
                staged.map(Reservation::Memory)
            }
            AnyStore::Posix(store) => {
                let staged = store.stage_write($($argument),*).await?;
                staged.map(Reservation::Posix)
            }
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => {
                let staged = Box::pin(store.stage_write($($argument),*)).await?;
                staged.map(Reservation::Ceph)
            }
        })
    };
    ($any:ident.commit_write($staged:ident, $stability:ident)) => {{
        let mut reservation = None;
        let staged = $staged.map(|own| reservation = Some(own));
        match ($any, reservation) {
            (AnyStore::Memory(store), Some(Reservation::Memory(own))) => {
                store.commit_write(staged.map(|()| own), $stability).await
            }
            (AnyStore::Posix(store), Some(Reservation::Posix(own))) => {
                store.commit_write(staged.map(|()| own), $stability).await
            }
            #[cfg(feature = "ceph")]
            (AnyStore::Ceph(store), Some(Reservation::Ceph(own))) => {
                let staged = staged.map(|()| own);
                Box::pin(store.commit_write(staged, $stability)).await
            }
            // Staged by another store than this one.
            _ => Modified::failed(StoreError::Stale),
        }
    }};
    ($any:ident.$operation:ident($($argument:ident),*)) => {
        match $any {
            AnyStore::Memory(store) => store.$operation($($argument),*).await,
            AnyStore::Posix(store) => store.$operation($($argument),*).await,
            #[cfg(feature = "ceph")]
            AnyStore::Ceph(store) => Box::pin(store.$operation($($argument),*)).await,
        }
    };
}

impl FileData for AnyStore {
    type Reservation = Reservation;

    forward_file_data!(file_data);
}

impl FileRanges for AnyStore {
    forward_file_ranges!(apart);
}

impl AccessControl for AnyStore {
    forward_access_control!(apart);
}

impl ExtendedAttributes for AnyStore {
    forward_extended_attributes!(apart);
}

impl Store for AnyStore {
    fn for_client(&self, client: ClientKey) -> Option<Self> {
        match self {
            Self::Memory(store) => store.for_client(client).map(Self::Memory),
            Self::Posix(store) => store.for_client(client).map(Self::Posix),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.for_client(client).map(Self::Ceph),
        }
    }

    fn immediate(&self) -> Option<Immediate<'_>> {
        match self {
            Self::Memory(store) => store.immediate(),
            Self::Posix(store) => store.immediate(),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.immediate(),
        }
    }

    fn root(&self) -> Handle {
        match self {
            Self::Memory(store) => store.root(),
            Self::Posix(store) => store.root(),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.root(),
        }
    }

    fn properties(&self) -> Properties {
        match self {
            Self::Memory(store) => store.properties(),
            Self::Posix(store) => store.properties(),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.properties(),
        }
    }

    fn outlives_process(&self) -> bool {
        match self {
            Self::Memory(store) => store.outlives_process(),
            Self::Posix(store) => store.outlives_process(),
            #[cfg(feature = "ceph")]
            Self::Ceph(store) => store.outlives_process(),
        }
    }

    async fn lease(&self, file: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
        apart!(self.lease(file, end))
    }
}

#[cfg(test)]
mod tests {
    use millrace_mempool::{HugepagePolicy, Registry};

    use super::*;
    use crate::memory::MemoryConfig;

    /// Every task of a reactor has room for the largest operation, and moves it.
    #[test]
    fn operations_stay_small() {
        let config = MemoryConfig {
            size_bytes: 1 << 20,
            inodes: None,
            file_system: 0,
            epoch: 1,
            root_mode: 0o777,
            root_uid: 0,
            root_gid: 0,
        };
        let memory = MemoryStore::new(&Registry::new(HugepagePolicy::Off), config).unwrap();
        let any = AnyStore::Memory(memory);
        let (caller, root) = (Caller::SUPERUSER, any.root());
        let mut slices = Vec::new();
        assert!(size_of_val(&any.attributes(root)) <= 512);
        assert!(size_of_val(&any.lookup(&caller, root, b"a")) <= 256);
        assert!(size_of_val(&any.rename(&caller, (root, b"a"), (root, b"b"))) <= 512);
        assert!(size_of_val(&any.read(&caller, root, 0, 1, &mut slices)) <= 1536);
        assert!(size_of_val(&any.stage_write(&caller, root, 0, 1, &mut slices)) <= 1024);
        assert!(size_of_val(&any.commit(root, 0, 1)) <= 1024);
    }
}
