//! A transfer of file data, and the resources that it holds.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millrace_mempool::Slice;

/// The durability of a write before it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not at all.
    None,
    /// Its data, and the metadata needed to find it.
    Data,
    /// All attributes too.
    File,
}

/// Resources of an operation until the kernel has completed it.
pub struct HeldResources {
    pub file: Arc<OwnedFd>,
    /// The memory; none for a sync.
    pub slice: Option<Slice>,
}

/// The operation on these resources.
#[derive(Clone, Copy, Debug)]
pub struct WorkEntry {
    pub work: Work,
    /// The offset in the file.
    pub offset: u64,
    /// The offset in the slice.
    pub from: usize,
    /// The number of bytes.
    pub length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Read {
        /// Only data in the page cache.
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
