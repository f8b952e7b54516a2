//! NFS versions 4.1 and 4.2, called through the seam between transports and programs.

#[path = "../support/initiator.rs"]
mod initiator;
#[path = "../support/millraced.rs"]
mod millraced;
#[path = "../support/session_client.rs"]
mod session_client;
#[path = "../support/mod.rs"]
mod support;

use millrace_testing::allocation::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

mod acl;
mod at_once;
mod attributes;
mod bounded_lengths;
mod callbacks;
mod changes;
mod chunk_forms;
mod compound;
mod connections;
mod data;
mod delegations;
mod exports;
mod fairness;
mod gateways;
mod gss_callbacks;
mod holders;
mod host_locks;
mod interrupted;
mod leases;
mod mutated;
mod names;
mod opens;
mod operators;
mod owners;
mod read_plus;
mod removed_files;
mod restart;
mod revocation;
mod sessions;
mod slots_and_credits;
mod state_protection;
mod transport_versions;
mod version2;
mod write_compounds;
mod xattrs;
