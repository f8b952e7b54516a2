//! One of the stores, chosen by the configuration.
//!
//! This is an enum and not a trait object, so that the futures of a store are part of its caller's
//! and a steady READ or WRITE allocates nothing. Operations on names of a folder are boxed: their
//! futures are large and would enlarge every task of a reactor.

use millrace_mempool::Slice;
use millrace_reactor::Clock;

use crate::memory::MemoryStore;
use crate::posix::PosixStore;
use crate::posix::engine::Engine;
use crate::posix::volume::Volume;
use crate::{
    AccessControl, AccessLists, AccessMask, Attributes, Caller, ClientKey, CookieVerifier,
    CopiedRange, CreateHow, DirectoryEntry, DirectoryOutcome, ExtendedAttributes, FileData,
    FileRanges, FoundRange, Handle, Immediate, Linked, Modified, Namespace, Properties,
    RangeContent, ReadOutcome, Renamed, Result, SetAttributes, SetXattrHow, SpecialKind, Stability,
    StagedWrite, Statistics, Store, StoreError, Time, UsageAdvice, WriteVerifier, Written,
};

/// What an export serves from, whichever kind. Clones share it, also between threads.
#[derive(Clone)]
pub enum AnyVolume {
    /// In memory.
    Memory(MemoryStore),
    /// A folder of the host.
    Posix(Volume),
}

impl AnyVolume {
    /// Whether both are one and the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => one.is(other),
            (Self::Posix(one), Self::Posix(other)) => one.is(other),
            _ => false,
        }
    }

    /// The folder, if it is one.
    #[must_use]
    pub fn posix(&self) -> Option<&Volume> {
        match self {
            Self::Memory(_) => None,
            Self::Posix(volume) => Some(volume),
        }
    }

    /// Its store on the reactor that `engine` and `clock` belong to. `None` for a folder without
    /// an engine.
    #[must_use]
    pub fn store(&self, engine: Option<&Engine>, clock: &Clock) -> Option<AnyStore> {
        Some(match self {
            Self::Memory(store) => AnyStore::Memory(store.clone()),
            Self::Posix(volume) => AnyStore::Posix(PosixStore::new(volume, engine?, clock)),
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
}

impl AnyStore {
    /// Whether it is a view of this one.
    #[must_use]
    pub fn is_of(&self, volume: &AnyVolume) -> bool {
        match (self, volume) {
            (Self::Memory(one), AnyVolume::Memory(other)) => one.is(other),
            (Self::Posix(one), AnyVolume::Posix(other)) => one.volume().is(other),
            _ => false,
        }
    }
}

/// What a staged write holds, as its own store knows it.
pub enum Reservation {
    /// In memory.
    Memory(<MemoryStore as FileData>::Reservation),
    /// In a folder.
    Posix(<PosixStore as FileData>::Reservation),
}

/// Calls the store that there is. Futures of folders are boxed, but for the attributes.
macro_rules! namespace {
    ($any:ident.attributes($object:ident)) => {
        match $any {
            AnyStore::Memory(store) => store.attributes($object).await,
            AnyStore::Posix(store) => store.attributes($object).await,
        }
    };
    ($any:ident.$operation:ident($($argument:ident),*)) => {
        match $any {
            AnyStore::Memory(store) => store.$operation($($argument),*).await,
            AnyStore::Posix(store) => Box::pin(store.$operation($($argument),*)).await,
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
            // Staged by another store than this one.
            _ => Modified::failed(StoreError::Stale),
        }
    }};
    ($any:ident.$operation:ident($($argument:ident),*)) => {
        match $any {
            AnyStore::Memory(store) => store.$operation($($argument),*).await,
            AnyStore::Posix(store) => store.$operation($($argument),*).await,
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
        }
    }

    fn immediate(&self) -> Option<Immediate<'_>> {
        match self {
            Self::Memory(store) => store.immediate(),
            Self::Posix(store) => store.immediate(),
        }
    }

    fn root(&self) -> Handle {
        match self {
            Self::Memory(store) => store.root(),
            Self::Posix(store) => store.root(),
        }
    }

    fn properties(&self) -> Properties {
        match self {
            Self::Memory(store) => store.properties(),
            Self::Posix(store) => store.properties(),
        }
    }

    fn outlives_process(&self) -> bool {
        match self {
            Self::Memory(store) => store.outlives_process(),
            Self::Posix(store) => store.outlives_process(),
        }
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
