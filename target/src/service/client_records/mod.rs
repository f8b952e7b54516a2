//! Records of NFS version 4's clients in the state directory, by which they reclaim opens and locks
//! after a restart of the server.
//!
//! `clients/` has one file for each client that has state, and the file `start` with the number of
//! this start, the last start whose grace period has ended, and the lease. A record is valid if its
//! client has completed its reclaims in that start or later.
//!
//! Every file is written under a temporary name, synchronized, and renamed, and the folder is
//! synchronized too: there is the old file or the new one. A thread of its own does so
//! ([`RecordWriter`]), in groups, as reactors must not wait for a disk.

mod folder;
mod layout;
mod writer;

pub use folder::RecordFolder;
pub use writer::{RecordBatches, RecordCounters, RecordWriter};
