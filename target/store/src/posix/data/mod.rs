//! READ, WRITE and COMMIT.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `read`, `write`, `commit` | the operations, and `route`: past the page cache or through it |
//! | `volume_data`, `file_state`, `local` | what is shared of a volume, of a file, and by one reactor |
//! | `io_mode_lock` | writes of both ways keep out of each other's pages |
//! | `sync_group` | syncs of files, shared by those who wait |
//! | `admission`, `in_flight` | how much may be under way, and what its end means |
//! | `verifier` | the write verifier, and what a clean stop leaves |
//! | `counters` | figures for operators |

mod admission;
mod commit;
pub(super) mod counters;
pub(super) mod file_state;
mod in_flight;
mod io_mode_lock;
pub(super) mod local;
mod read;
mod route;
pub(super) mod sync_group;
mod verifier;
pub(super) mod volume_data;
pub(super) mod write;

use millrace_mempool::Class;

use self::counters::Counters;

/// Most bytes of one transfer: one buffer. Longer reads are short, and so are longer writes
/// ([`crate::StagedWrite::length`] tells).
const TRANSFER_MAX: u32 = Class::Large.size() as u32;
