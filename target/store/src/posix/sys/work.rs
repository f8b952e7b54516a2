//! What a transfer of file data is, and what it holds on to.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_mempool::Slice;

/// How durable a write has to be before it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not at all.
    None,
    /// Its data, and what is needed to find it again.
    Data,
    /// All attributes too.
    File,
}

/// What an operation must not lose before the kernel is done with it.
pub struct HeldResources {
    pub file: Arc<OwnedFd>,
    /// The memory; none for a sync.
    pub slice: Option<Slice>,
}

/// What to do with what is held.
#[derive(Clone, Copy, Debug)]
pub struct WorkEntry {
    pub work: Work,
    /// Where in the file.
    pub offset: u64,
    /// Where in the slice, from its start.
    pub from: usize,
    /// How many bytes of it.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Read {
        /// Only what memory holds.
        cached: bool,
    },
    Write(Durability),
    Sync {
        /// All attributes too.
        attributes: bool,
    },
}

impl Work {
    /// The flags of `preadv2` and `pwritev2`, which rings take too.
    pub fn flags(self) -> i32 {
        match self {
            Self::Read { cached: true } => libc::RWF_NOWAIT,
            Self::Write(Durability::Data) => libc::RWF_DSYNC,
            Self::Write(Durability::File) => libc::RWF_SYNC,
            Self::Read { cached: false } | Self::Write(Durability::None) | Self::Sync { .. } => 0,
        }
    }
}
