//! Any of the stores, for services whose configuration says which.
//!
//! An enum rather than a trait object: the futures of a store are part of its caller's, so that a
//! steady READ or WRITE allocates nothing. Operations on names of a folder are boxed all the same.
//! They are as large as they are slow, and would make every task of a reactor larger.

use millrace_mempool::Slice;
use millrace_reactor::Clock;

use crate::memory::MemoryStore;
use crate::posix::PosixStore;
use crate::posix::engine::Engine;
use crate::posix::volume::Volume;
use crate::{
    AccessMask, Attributes, Caller, ClientKey, CookieVerifier, CreateHow, DirectoryEntry,
    DirectoryOutcome, Handle, Linked, Modified, Properties, ReadOutcome, Renamed, Result,
    SetAttributes, SpecialKind, Stability, StagedWrite, Statistics, Store, StoreError, Time,
    WriteVerifier, Written,
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
    Memory(<MemoryStore as Store>::Reservation),
    /// In a folder.
    Posix(<PosixStore as Store>::Reservation),
}

fn staged<From, To>(from: StagedWrite<From>, into: impl FnOnce(From) -> To) -> StagedWrite<To> {
    let StagedWrite {
        file,
        offset,
        length,
        reservation,
    } = from;
    StagedWrite {
        file,
        offset,
        length,
        reservation: into(reservation),
    }
}

/// Calls the store that there is.
macro_rules! each {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            AnyStore::Posix($store) => $call.await,
        }
    };
}

/// The same, in a box for folders.
macro_rules! each_boxed {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            AnyStore::Posix($store) => Box::pin($call).await,
        }
    };
}

impl Store for AnyStore {
    type Reservation = Reservation;

    fn for_client(&self, client: ClientKey) -> Option<Self> {
        match self {
            Self::Memory(store) => store.for_client(client).map(Self::Memory),
            Self::Posix(store) => store.for_client(client).map(Self::Posix),
        }
    }

    fn root(&self) -> Handle {
        match self {
            Self::Memory(store) => store.root(),
            Self::Posix(store) => store.root(),
        }
    }

    async fn attributes(&self, object: Handle) -> Result<Attributes> {
        each!(self, store => store.attributes(object))
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()> {
        each_boxed!(self, store => store.set_attributes(caller, object, set, guard))
    }

    async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)> {
        each_boxed!(self, store => store.lookup(caller, directory, name))
    }

    async fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)> {
        each_boxed!(self, store => store.access(caller, object, wanted))
    }

    async fn read_link(
        &self,
        caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes> {
        each_boxed!(self, store => store.read_link(caller, link, text))
    }

    async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome> {
        each!(self, store => store.read(caller, file, offset, length, slices))
    }

    async fn stage_write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Self::Reservation>> {
        match self {
            Self::Memory(store) => {
                let write = store.stage_write(caller, file, offset, length, slices);
                Ok(staged(write.await?, Reservation::Memory))
            }
            Self::Posix(store) => {
                let write = store.stage_write(caller, file, offset, length, slices);
                Ok(staged(write.await?, Reservation::Posix))
            }
        }
    }

    async fn commit_write(
        &self,
        write: StagedWrite<Self::Reservation>,
        stability: Stability,
    ) -> Modified<Written> {
        let mut reservation = None;
        let write = staged(write, |own| reservation = Some(own));
        match (self, reservation) {
            (Self::Memory(store), Some(Reservation::Memory(reservation))) => {
                let write = staged(write, |()| reservation);
                store.commit_write(write, stability).await
            }
            (Self::Posix(store), Some(Reservation::Posix(reservation))) => {
                let write = staged(write, |()| reservation);
                store.commit_write(write, stability).await
            }
            // Staged by another store than this one.
            _ => Modified::failed(StoreError::Stale),
        }
    }

    async fn commit(&self, file: Handle, offset: u64, length: u32) -> Modified<WriteVerifier> {
        each!(self, store => store.commit(file, offset, length))
    }

    async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<(Handle, Attributes)> {
        each_boxed!(self, store => store.create(caller, directory, name, how))
    }

    async fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        each_boxed!(self, store => store.make_directory(caller, directory, name, set))
    }

    async fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        each_boxed!(self, store => store.symlink(caller, directory, name, text, set))
    }

    async fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)> {
        each_boxed!(self, store => store.make_node(caller, directory, name, kind, set))
    }

    async fn remove(&self, caller: &Caller, directory: Handle, name: &[u8]) -> Modified<()> {
        each_boxed!(self, store => store.remove(caller, directory, name))
    }

    async fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()> {
        each_boxed!(self, store => store.remove_directory(caller, directory, name))
    }

    async fn rename(&self, caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Renamed {
        each_boxed!(self, store => store.rename(caller, from, to))
    }

    async fn link(
        &self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: &[u8],
    ) -> Linked {
        each_boxed!(self, store => store.link(caller, object, directory, name))
    }

    async fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome> {
        each_boxed!(self, store => store.read_directory(
            caller, directory, cookie, verifier, attributes, sink
        ))
    }

    async fn statistics(&self, object: Handle) -> Result<Statistics> {
        each_boxed!(self, store => store.statistics(object))
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
