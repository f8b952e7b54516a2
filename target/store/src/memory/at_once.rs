//! Operations for callers that do not wait.

use millrace_mempool::Slice;

use super::MemoryStore;
use crate::{AccessMask, Attributes, Caller, Handle, Modified, ReadOutcome, Written};

/// `None` stands for a failure.
impl MemoryStore {
    #[inline]
    pub(crate) fn attributes_at_once(&self, object: Handle) -> Option<Attributes> {
        self.tree.attributes(object).ok()
    }

    pub(crate) fn lookup_at_once(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Option<(Handle, Attributes)> {
        self.tree.lookup(caller, directory, name).ok()
    }

    pub(crate) fn access_at_once(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Option<(AccessMask, Attributes)> {
        self.tree.access(caller, object, wanted).ok()
    }

    #[inline]
    pub(crate) fn read_at_once(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Option<ReadOutcome> {
        self.tree.read(caller, file, offset, length, slices).ok()
    }

    pub(crate) fn write_at_once(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        bytes: &[u8],
    ) -> Option<Modified<Written>> {
        self.tree.write(caller, file, offset, bytes).ok()
    }
}
