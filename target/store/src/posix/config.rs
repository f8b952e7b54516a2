//! The configuration of a volume.

use std::io;
use std::path::PathBuf;

use super::helpers::HelperLimits;

/// Whether data passes the page cache by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where a transfer is aligned and long enough to gain from it.
    #[default]
    Auto,
    /// Wherever a transfer is aligned.
    Always,
    /// Never.
    Never,
}

/// When a change of names and attributes is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// Once it is durable, as RFC 1813 section 4.8 wants.
    #[default]
    Strict,
    /// Once it is made; a crash of the host may undo it.
    Relaxed,
}

/// Whose word is taken on a caller's groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// The client's, which names sixteen at most.
    #[default]
    Client,
    /// This host's user database.
    Server,
}

/// What clients see where another file system is mounted below the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mounts {
    /// The folder that the mount covers.
    #[default]
    Hide,
    /// The file system that is mounted there.
    Cross,
}

/// Bounds of what one volume may take of the process, so that one that hangs harms no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most objects that each reactor keeps open.
    pub open_files: usize,
    /// Threads for names and attributes, and jobs that wait for one.
    pub helpers: HelperLimits,
    /// Most reads, writes and syncs of data that each reactor has begun and not ended.
    pub operations: usize,
    /// Most bytes written and not known to be durable, by all reactors.
    pub dirty: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_files: 4096,
            helpers: HelperLimits {
                threads: 16,
                queue: 1024,
            },
            operations: 256,
            dirty: 1 << 30,
        }
    }
}

/// What a volume is opened from.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// For logs and names of threads.
    pub name: String,
    /// The folder.
    pub root: PathBuf,
    /// Whether data passes the page cache by.
    pub direct: Direct,
    /// When a change of names and attributes is answered.
    pub sync: Sync,
    /// Whose word is taken on a caller's groups.
    pub groups: Groups,
    /// What clients see of file systems mounted below.
    pub mounts: Mounts,
    /// Bounds.
    pub limits: Limits,
    /// Where a clean stop leaves the write verifier for the next start.
    pub state: Option<PathBuf>,
}

/// Why a volume does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder is not there or is none.
    #[error("{}: {error}", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Whoever opened it does not want the folder that was found.
    #[error("{0}")]
    Refused(String),
}
