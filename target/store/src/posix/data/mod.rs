//! READ, WRITE and COMMIT.
//!
//! | module | content |
//! | --- | --- |
//! | `ranges` | space, holes and copies of ranges |
//! | `read`, `write`, `commit` | the operations, and `route`: direct or through the page cache |
//! | `volume_data`, `file_state`, `local` | state of a volume, of a file, and of one reactor |
//! | `io_mode_lock` | separates direct writes from those through the page cache |
//! | `sync_group` | syncs of files, shared by waiting calls |
//! | `admission`, `in_flight` | limits and completion of operations in flight |
//! | `counters` | figures for operators |

mod admission;
mod commit;
pub(super) mod counters;
pub(super) mod file_state;
mod in_flight;
mod io_mode_lock;
pub(super) mod local;
mod ranges;
mod read;
mod route;
pub(super) mod sync_group;
pub(super) mod volume_data;
pub(super) mod write;

use millrace_mempool::Class;

use self::counters::Counters;
pub(super) use self::route::{DIRECT_LEAST, OFFSET_MAX};

/// The most bytes of one transfer: one buffer. Longer reads are short, and so are longer writes
/// ([`crate::StagedWrite::length`]).
const TRANSFER_MAX: u32 = Class::Large.size() as u32;
