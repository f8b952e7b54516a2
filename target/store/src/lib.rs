//! The storage behind exports: the [`Store`] trait with its parts, and the stores.
//!
//! A store has files, directories and memory, and does not depend on RPC or NFS wire formats. One
//! value of a store serves one reactor; clones share the same tree. Data moves by registered
//! memory: a store lends the memory that holds the bytes ([`FileData::read`]) or will hold them
//! ([`FileData::stage_write`]), and the fabric reads or fills it without a copy.
//!
//! | part | operations |
//! | --- | --- |
//! | [`Namespace`] | names and attributes |
//! | [`FileData`] | contents of files |
//! | [`FileRanges`] | their space, holes and copies |
//! | [`ExtendedAttributes`] | extended attributes |
//! | [`AccessControl`] | access control lists |
//! | [`Store`] | all, and the constants of a store |

#[macro_use]
mod parts;

mod access_list;
mod access_list_format;
pub mod any;
mod caller_groups;
#[cfg(feature = "ceph")]
pub mod ceph;
mod exclusive;
mod file_hold;
mod file_lease;
mod immediate;
pub mod lock_file;
mod lru;
pub mod memory;
mod name_check;
pub mod posix;
pub mod types;
mod user_xattr;
mod verifier;

pub use access_list::*;
pub use caller_groups::CallerGroups;
pub use file_hold::FileHold;
pub use file_lease::{FileLease, LeaseBreak};
pub use immediate::Immediate;
pub use parts::*;
pub use types::*;

// Tests in here share supports with those outside.
#[cfg(test)]
extern crate self as millrace_store;

/// The operations that an export needs, with the semantics of RFC 1813 section 3.3.
///
/// Each operation checks the permissions of its `caller` ([`Caller::SUPERUSER`] passes all) and is
/// atomic against other operations on the same tree, but for long copies. Futures of in-memory
/// stores are ready at once, except where they let other tasks run during much work; others wait
/// on the reactor's own ring and never block it.
pub trait Store:
    Namespace + FileData + FileRanges + ExtendedAttributes + AccessControl + Clone + 'static
{
    /// The same store for the operations of one client, if clients take turns in waiting for scarce
    /// resources of the store. `None` if operations never wait: then this store serves all clients.
    fn for_client(&self, client: ClientKey) -> Option<Self> {
        let _ = client;
        None
    }

    /// The operations that are carried out without waiting, if this store has them.
    fn immediate(&self) -> Option<Immediate<'_>> {
        None
    }

    /// The root directory.
    fn root(&self) -> Handle;

    /// Fixed limits and properties.
    fn properties(&self) -> Properties;

    /// Whether its objects are still there, by the same handles, when the process has been started
    /// anew.
    fn outlives_process(&self) -> bool;

    /// A lease of a regular file: others may read it meanwhile. A change by another server, and a lock
    /// of bytes for writing, waits until the lease has ended or its time is over. A change by this
    /// store may wait as well.
    /// `None`: the file is being written, or the store has no leases ([`Properties::leases`]).
    #[allow(async_fn_in_trait)] // Polled on the core that called; never sent between threads.
    async fn lease(&self, file: Handle, end: LeaseBreak) -> Result<Option<FileLease>> {
        let _ = (file, end);
        Ok(None)
    }
}
