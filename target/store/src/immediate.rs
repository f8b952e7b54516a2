//! Operations of stores that are carried out without waiting.

use millrace_mempool::Slice;

use crate::memory::MemoryStore;
use crate::posix::PosixStore;
use crate::{AccessMask, Attributes, Caller, Handle, Modified, ReadOutcome, Written};

/// Operations of a store that are carried out at once, for callers that do not wait. They are those
/// of the same names of the store. `None`: the operation would have to wait or fails, and has had no
/// effect.
#[derive(Clone, Copy)]
pub struct Immediate<'a>(ImmediateStore<'a>);

#[derive(Clone, Copy)]
enum ImmediateStore<'a> {
    /// All operations.
    Memory(&'a MemoryStore),
    /// Attributes of open objects, names and rights that the kernel has in memory, and reads from the
    /// page cache.
    Posix(&'a PosixStore),
}

impl<'a> Immediate<'a> {
    pub(crate) fn of_memory(store: &'a MemoryStore) -> Self {
        Self(ImmediateStore::Memory(store))
    }

    pub(crate) fn of_folder(store: &'a PosixStore) -> Self {
        Self(ImmediateStore::Posix(store))
    }

    /// Whether it carries out every operation. Then `None` means a failure.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.0, ImmediateStore::Memory(_))
    }

    /// Whether to try a read of a file now. After a read whose bytes were not in memory, some reads
    /// are not tried.
    #[inline]
    #[must_use]
    pub fn expects_bytes_of(&self, file: Handle) -> bool {
        match self.0 {
            ImmediateStore::Memory(_) => true,
            ImmediateStore::Posix(store) => store.expects_cached(file),
        }
    }

    /// [`Namespace::attributes`](crate::Namespace::attributes).
    #[inline]
    #[must_use]
    pub fn attributes(&self, object: Handle) -> Option<Attributes> {
        match self.0 {
            ImmediateStore::Memory(store) => store.attributes_at_once(object),
            ImmediateStore::Posix(store) => store.attributes_at_once(object),
        }
    }

    /// [`Namespace::lookup`](crate::Namespace::lookup).
    #[must_use]
    pub fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Option<(Handle, Attributes)> {
        match self.0 {
            ImmediateStore::Memory(store) => store.lookup_at_once(caller, directory, name),
            ImmediateStore::Posix(store) => store.lookup_at_once(caller, directory, name),
        }
    }

    /// [`Namespace::access`](crate::Namespace::access).
    #[must_use]
    pub fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Option<(AccessMask, Attributes)> {
        match self.0 {
            ImmediateStore::Memory(store) => store.access_at_once(caller, object, wanted),
            ImmediateStore::Posix(store) => store.access_at_once(caller, object, wanted),
        }
    }

    /// [`FileData::read`](crate::FileData::read).
    #[inline]
    pub fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Option<ReadOutcome> {
        match self.0 {
            ImmediateStore::Memory(store) => {
                store.read_at_once(caller, file, offset, length, slices)
            }
            ImmediateStore::Posix(store) => {
                store.read_at_once(caller, file, offset, length, slices)
            }
        }
    }

    /// [`FileData::stage_write`](crate::FileData::stage_write) and
    /// [`FileData::commit_write`](crate::FileData::commit_write) of these bytes. They are as stable as
    /// the store makes anything.
    pub fn write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        bytes: &[u8],
    ) -> Option<Modified<Written>> {
        match self.0 {
            ImmediateStore::Memory(store) => store.write_at_once(caller, file, offset, bytes),
            ImmediateStore::Posix(_) => None,
        }
    }
}
