//! NFS version 3 (RFC 1813): one function per procedure, from typed arguments to typed results.
//!
//! Procedures know the store and the export's rules, not how calls arrive. What modifies returns
//! attributes before and after; what fails returns the attributes it can still find.

mod again;
mod attributes;
mod context;
mod convert;
mod create;
mod directory;
mod lookup;
mod read;
mod remove;
mod status;
mod system;
mod write;

pub(crate) use attributes::{access, getattr, setattr};
pub(crate) use context::Context;
pub(crate) use create::{create, mkdir, mknod, symlink};
pub(crate) use directory::{Listed, readdir, readdirplus};
pub(crate) use lookup::{lookup, readlink};
pub(crate) use read::read;
pub(crate) use remove::{link, remove, rename, rmdir};
pub(crate) use system::{fsinfo, fsstat, pathconf};
pub(crate) use write::{Data, commit, write};

/// Most bytes of one READ or WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;
