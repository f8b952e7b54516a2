//! The parts of a store, each with a macro that forwards all of its operations.

use millrace_mempool::Slice;

use crate::{
    AccessMask, Attributes, Caller, CookieVerifier, CreateHow, DirectoryEntry, DirectoryOutcome,
    FileHold, Handle, Linked, Modified, ReadOutcome, Renamed, Result, SetAttributes, SpecialKind,
    Stability, StagedWrite, Statistics, Time, WriteVerifier, Written,
};

/// Declares a trait of asynchronous operations, and a macro for stores that hand them on. In an
/// implementation, `forward!(call)` defines each operation as `call!(self.operation(arguments))`;
/// the types of the trait's operations have to be in scope. The sign in front is a dollar sign,
/// which a macro cannot write by itself into another.
macro_rules! part {
    (
        $dollar:tt
        $(#[$of_part:meta])*
        pub trait $part:ident, forwarded by $forward:ident, with { $($types:tt)* } {
            $(
                $(#[$of_operation:meta])*
                async fn $operation:ident(&self $(, $argument:ident: $kind:ty)* $(,)?) -> $outcome:ty;
            )*
        }
    ) => {
        $(#[$of_part])*
        #[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
        pub trait $part {
            $($types)*
            $(
                $(#[$of_operation])*
                async fn $operation(&self $(, $argument: $kind)*) -> $outcome;
            )*
        }

        /// Implements the operations of the part of the same name by handing them on.
        #[macro_export]
        macro_rules! $forward {
            ($dollar call:ident) => {
                $(
                    async fn $operation(&self $(, $argument: $kind)*) -> $outcome {
                        $dollar call!(self.$operation($($argument),*))
                    }
                )*
            };
        }
    };
}

#[macro_use]
mod access_lists;
#[macro_use]
mod ranges;
#[macro_use]
mod xattrs;

pub use access_lists::*;
pub use ranges::*;
pub use xattrs::*;

part! { $
/// Names and attributes.
pub trait Namespace, forwarded by forward_namespace, with {} {
    /// Attributes of an object.
    async fn attributes(&self, object: Handle) -> Result<Attributes>;

    /// Sets the given attributes; `guard` is the change time that the object must still have
    /// ([`StoreError::NotSync`](crate::StoreError::NotSync)). Setting a size truncates or extends
    /// with zeros.
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
    async fn link(
        &self,
        caller: &Caller,
        object: Handle,
        directory: Handle,
        name: &[u8],
    ) -> Linked;

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

    /// Holds a regular file that a client opens: all operations on its handle go on when its last
    /// name has been removed. A store that cannot do this returns an empty hold.
    async fn hold(&self, file: Handle) -> Result<FileHold>;
}
}

part! { $
/// Contents of files.
pub trait FileData, forwarded by forward_file_data, with {
    /// What a staged write holds until it is committed or dropped.
    type Reservation: 'static;
} {
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
    /// [`FileData::commit_write`], and nothing at all if the staged write is dropped.
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
}
}
