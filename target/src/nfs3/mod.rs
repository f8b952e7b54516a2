//! NFS version 3 (RFC 1813): a [program](crate::rpc::program) with one function per procedure, from
//! typed arguments to typed results.
//!
//! Procedures know the store and the export's rules, not how calls arrive. What modifies returns
//! attributes before and after; what fails returns the attributes it can still find.

mod arguments;
mod attributes;
mod context;
mod convert;
mod create;
mod delegations;
mod directory;
mod lookup;
mod program;
mod read;
mod remove;
mod rules;
mod status;
mod status_counters;
mod system;
mod write;

pub use crate::file_data::TRANSFER_MAX;
pub use program::Nfs3;
pub use rules::INFO;
pub use status_counters::{Nfs3Counters, StatusCounters};
