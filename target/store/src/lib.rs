//! What an export serves from: the [`Store`] trait and its stores.
//!
//! A store knows files, directories and memory, and nothing of RPC or NFS wire formats. One value
//! of a store serves one reactor; clones share the same tree. Data moves by registered memory: a
//! store lends the memory where bytes live ([`Store::read`]) or shall live
//! ([`Store::stage_write`]), and the fabric fills or drains it without a copy.

pub mod any;
pub mod memory;
pub mod posix;
pub mod types;

pub use types::*;

// Tests in here share supports with those outside.
#[cfg(test)]
extern crate self as millrace_store;

use millrace_mempool::Slice;

/// The operations that an export needs, with the semantics of RFC 1813 section 3.3.
///
/// Each operation checks the permissions of its `caller` ([`Caller::SUPERUSER`] passes all) and is
/// atomic against other operations on the same tree. Futures of in-memory stores are ready at
/// once; others wait on the reactor's own ring and never block it.
#[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
pub trait Store: Clone + 'static {
    /// What a staged write holds until it is committed or dropped.
    type Reservation: 'static;

    /// The same store for the operations of one client, where operations of clients wait in turn
    /// for what the store has few of. `None` where they wait for nothing: then this one will do.
    fn for_client(&self, client: ClientKey) -> Option<Self> {
        let _ = client;
        None
    }

    /// The root directory.
    fn root(&self) -> Handle;

    /// Attributes of an object.
    async fn attributes(&self, object: Handle) -> Result<Attributes>;

    /// Sets the given attributes; `guard` is the change time that the object must still have
    /// ([`StoreError::NotSync`]). Setting a size truncates or extends with zeros.
    async fn set_attributes(
        &self,
        caller: &Caller,
        object: Handle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Modified<()>;

    /// Finds `name` in a directory. `.` and `..` are names; `..` of the root is the root.
    async fn lookup(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Result<(Handle, Attributes)>;

    /// Which of the wanted rights the caller has (RFC 1813 section 3.3.4).
    async fn access(
        &self,
        caller: &Caller,
        object: Handle,
        wanted: AccessMask,
    ) -> Result<(AccessMask, Attributes)>;

    /// The text of a symbolic link, appended to `text`.
    async fn read_link(
        &self,
        caller: &Caller,
        link: Handle,
        text: &mut Vec<u8>,
    ) -> Result<Attributes>;

    /// The memory that holds `length` bytes from `offset` on: appended to `slices` in order, less
    /// at the end of the file; holes are slices of zeros. The caller drops the slices when the
    /// last operation on them has completed. Other slices that `slices` holds are left alone.
    async fn read(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<ReadOutcome>;

    /// Reserves the memory where `length` bytes at `offset` shall live, appended to `slices` in
    /// order. Space limits are checked here. Nothing of the file changes before
    /// [`Store::commit_write`], and nothing at all if the staged write is dropped.
    async fn stage_write(
        &self,
        caller: &Caller,
        file: Handle,
        offset: u64,
        length: u32,
        slices: &mut Vec<Slice>,
    ) -> Result<StagedWrite<Self::Reservation>>;

    /// Makes a staged write part of the file once its memory is filled: bytes, size, mode and times
    /// change together or not at all.
    async fn commit_write(
        &self,
        staged: StagedWrite<Self::Reservation>,
        stability: Stability,
    ) -> Modified<Written>;

    /// Makes earlier unstable writes durable (RFC 1813 section 3.3.21).
    async fn commit(&self, file: Handle, offset: u64, length: u32) -> Modified<WriteVerifier>;

    /// Creates a regular file.
    async fn create(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        how: &CreateHow,
    ) -> Modified<(Handle, Attributes)>;

    /// Creates a directory.
    async fn make_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)>;

    /// Creates a symbolic link.
    async fn symlink(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        text: &[u8],
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)>;

    /// Creates a device node, FIFO or socket.
    async fn make_node(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
        kind: SpecialKind,
        set: &SetAttributes,
    ) -> Modified<(Handle, Attributes)>;

    /// Removes a name that is not a directory.
    async fn remove(&self, caller: &Caller, directory: Handle, name: &[u8]) -> Modified<()>;

    /// Removes an empty directory.
    async fn remove_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        name: &[u8],
    ) -> Modified<()>;

    /// Renames, replacing what POSIX lets be replaced.
    async fn rename(&self, caller: &Caller, from: (Handle, &[u8]), to: (Handle, &[u8])) -> Renamed;

    /// Makes a hard link.
    async fn link(&self, caller: &Caller, object: Handle, directory: Handle, name: &[u8])
    -> Linked;

    /// Lists a directory from the place after `cookie` (0: from the start; `.` and `..` are
    /// among the entries) until `sink` returns false or the end is reached. Every entry that exists
    /// throughout is listed exactly once, whatever is added or removed meanwhile; a cookie stays
    /// valid when its own entry has been removed.
    async fn read_directory(
        &self,
        caller: &Caller,
        directory: Handle,
        cookie: u64,
        verifier: CookieVerifier,
        attributes: bool,
        sink: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<DirectoryOutcome>;

    /// Space and inode counts.
    async fn statistics(&self, object: Handle) -> Result<Statistics>;

    /// Fixed limits and properties.
    fn properties(&self) -> Properties;

    /// Whether its objects are still there, by the same handles, when the process has been started
    /// anew.
    fn outlives_process(&self) -> bool;
}
